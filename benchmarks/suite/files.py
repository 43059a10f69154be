"""The data of cells: laid out once in a folder of their own, from the compact copies in the shared folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import polars as pl

from f2cto.data.sources import SOURCES

GAS_DRIFT = "gas_drift/gas_drift.parquet"


def lay_out(sources: Iterable[str], shared: Path, folder: Path) -> None:
    """Bring what is missing of some data sets into the folder; each appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted(set(sources)):
        place = folder / (SOURCES[source].folder if source in SOURCES else Path(source).parent)
        if place != folder and not place.exists():
            _lay_out(source, shared / "data", place)


def _lay_out(source: str, copies: Path, place: Path) -> None:
    with tempfile.TemporaryDirectory(dir=place.parent) as temporary:
        made = Path(temporary)
        if source in SOURCES:
            _unpack(source, copies, made)
        elif source == GAS_DRIFT:
            _as_columns(copies / GAS_DRIFT, made / place.name)
        else:
            shutil.copytree((copies / source).parent, made / place.name)
        (made / place.name).rename(place)


def _unpack(source: str, copies: Path, folder: Path) -> None:
    """A publisher's own layout."""
    subprocess.run([sys.executable, str(copies / "unpack.py"), str(folder), source], check=True, capture_output=True)  # noqa: S603


def _as_columns(table: Path, folder: Path) -> None:
    """An array of numbers as a table: the product scales columns, and takes arrays as they are."""
    with np.load(table.with_suffix(".npz"), allow_pickle=False) as arrays:
        features = {f"x{i}": column for i, column in enumerate(arrays["x"].T)}
        frame = pl.DataFrame({"label": arrays["y"], "site": arrays["site"], **features})
    folder.mkdir()
    frame.write_parquet(folder / table.name)


def located(source: str, folder: Path) -> str:
    """A named source as it is, a file by its path in the folder."""
    return source if source in SOURCES else str(folder / source)
