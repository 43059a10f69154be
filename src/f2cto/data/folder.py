"""Where the data sets lie."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path

from f2cto.data.errors import DataError

VARIABLE = "F2CTO_DATA"
HOMELESS = Path("f2cto-data")  # for users without a home, as containers have them


def data_folder(given: Path | None = None) -> Path:
    """The folder given, else the one that `F2CTO_DATA` names, else f2cto's own in the user's cache."""
    named = os.environ.get(VARIABLE)
    if given is not None or named:
        return _expanded(given or Path(str(named)))
    try:
        return user_cache_path("f2cto", appauthor=False)
    except RuntimeError:
        return HOMELESS


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:
        msg = f"The home folder in {path} is not known; give a path without ~."
        raise DataError(msg) from error
