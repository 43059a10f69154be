"""Named settings: one TOML file each, read from the installed package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from f2cto.config import SettingsError, read_toml


def preset_names() -> list[str]:
    """The presets that come with the package."""
    return sorted(f.name.removesuffix(".toml") for f in files(__name__).iterdir() if f.name.endswith(".toml"))


def read_preset(name: str) -> dict[str, Any]:
    """A preset by name, or any settings file by its path (such as a former run's `settings.toml`)."""
    if name.endswith(".toml"):
        return read_toml(Path(name))
    if name not in preset_names():
        msg = f"There is no preset `{name}`; there are {', '.join(preset_names())}, or give the path of a .toml file."
        raise SettingsError(msg)
    return read_toml(Path(str(files(__name__) / f"{name}.toml")))
