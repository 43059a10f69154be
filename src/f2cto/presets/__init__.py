"""Named settings: one TOML file each, read from the installed package.

A preset has a version: the same name and version are the same settings on every machine, and `NAME@VERSION` is refused
where the package has another. With `like = "NAME@VERSION"` a preset is that one but for what it says itself.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from f2cto.config import SettingsError, merged, read_toml

LIKE, VERSION = "like", "version"
SUFFIX = ".toml"


def preset_names() -> list[str]:
    """The presets that come with the package."""
    return sorted(f.name.removesuffix(SUFFIX) for f in files(__name__).iterdir() if f.name.endswith(SUFFIX))


def preset_file(name: str) -> Path:
    """Where a preset stands, or the settings file that a path names."""
    if name.endswith(SUFFIX):
        return Path(name)
    if name not in preset_names():
        msg = f"There is no preset `{name}`; there are {', '.join(preset_names())}, or give the path of a .toml file."
        raise SettingsError(msg)
    return Path(str(files(__name__) / f"{name}{SUFFIX}"))


def preset_version(name: str) -> int:
    """The version of a preset of the package."""
    return int(read_toml(preset_file(name))[VERSION])


def read_preset(name: str) -> dict[str, Any]:
    """The settings of a preset by name, or of a settings file by its path (such as a former run's `settings.toml`)."""
    return _read(name, ())


def _read(name: str, followers: tuple[str, ...]) -> dict[str, Any]:
    """A preset upon the one it is like; `followers` are those that came here by being like this one."""
    if name in followers:
        msg = f"Presets are like each other in a circle: {' -> '.join((*followers, name))}. Break it at one of them."
        raise SettingsError(msg)
    values = _versioned(name)
    model = values.pop(LIKE, None)
    return values if model is None else merged(_read(str(model), (*followers, name)), values)


def _versioned(name: str) -> dict[str, Any]:
    """What one file says, if it is of the version that was asked for."""
    plain, _, wanted = (name, "", "") if name.endswith(SUFFIX) else name.partition("@")
    values = read_toml(preset_file(plain))
    version = values.pop(VERSION, None)
    if wanted and wanted != str(version):
        msg = f"This package has preset `{plain}` in version {version}, not {wanted}; ask for `{plain}@{version}`, or "
        raise SettingsError(msg + f"install the package that has version {wanted}.")
    return values
