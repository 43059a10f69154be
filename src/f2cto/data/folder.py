"""Where the data sets lie."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path

VARIABLE = "F2CTO_DATA"


def data_folder(given: Path | None = None) -> Path:
    """The folder given, else the one that `F2CTO_DATA` names, else f2cto's own in the user's cache."""
    if given is not None:
        return given.expanduser()
    named = os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else user_cache_path("f2cto", appauthor=False)
