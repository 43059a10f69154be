"""Named settings: one TOML file each, read from the installed package.

What `f2cto tune --save` chose for a preset stands beside it in a file of its own, `NAME.tuned.toml`, read on top of it.
A preset may begin with `like = "NAME"`: it is then that preset, as it was tuned, but for what it says itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from f2cto.config import SettingsError, merged, read_toml

TUNED = ".tuned.toml"
LIKE = "like"


def preset_names() -> list[str]:
    """The presets that come with the package."""
    return presets_among(f.name for f in files(__name__).iterdir())


def presets_among(names: Iterable[str]) -> list[str]:
    """The presets among files; what was tuned is a part of one."""
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml") and not name.endswith(TUNED))


def preset_file(name: str) -> Path:
    """Where a preset stands, or the settings file that a path names."""
    if name.endswith(".toml"):
        return Path(name)
    if name not in preset_names():
        msg = f"There is no preset `{name}`; there are {', '.join(preset_names())}, or give the path of a .toml file."
        raise SettingsError(msg)
    return Path(str(files(__name__) / f"{name}.toml"))


def tuned_file(name: str) -> Path:
    """Where the settings chosen for a preset stand, if there are any."""
    return preset_file(name).with_suffix(TUNED)


def read_preset(name: str) -> dict[str, Any]:
    """A preset by name, or any settings file by its path (such as a former run's `settings.toml`), as it was tuned."""
    return _read(name, ())


def _read(name: str, followers: tuple[str, ...]) -> dict[str, Any]:
    """A preset upon the one it is like; `followers` are those that came here by being like this one."""
    if name in followers:
        msg = f"Presets are like each other in a circle: {' -> '.join((*followers, name))}. Break it at one of them."
        raise SettingsError(msg)
    values, tuned = read_toml(preset_file(name)), tuned_file(name)
    model = values.pop(LIKE, None)
    if model is not None:
        values = merged(_read(str(model), (*followers, name)), values)
    return merged(values, read_toml(tuned)) if tuned.exists() else values
