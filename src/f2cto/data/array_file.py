"""An .npz file with an array of samples and one of labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from f2cto.data.errors import DataError
from f2cto.data.labels import missing, numbered_classes, numbered_names
from f2cto.data.samples import DataSet, numbered

Array = NDArray[Any]
SAMPLES, LABELS, SITES = "x", "y", "site"


def read_arrays(path: Path, label: str | None, site: str | None) -> DataSet:
    """Samples out of `x`, labels out of `y` and sites out of `site`, if it is there, or under the names given."""
    arrays = load_arrays(path)
    label, site = label or LABELS, site or (SITES if SITES in arrays else None)
    x = sample_array(arrays, path)
    y, classes = numbered_classes(label_series(arrays, label, path), f"the array {label} of {path}")
    sites, names = (
        numbered_names(label_series(arrays, site, path), f"the array {site} of {path}") if site else (None, ())
    )
    sound = np.flatnonzero(np.isfinite(x).reshape(len(x), -1).all(axis=1))
    if len(sound) == 0:
        msg = f"All {len(x)} rows of x in {path} have NaN or infinite numbers; repair them."
        raise DataError(msg)
    samples = numbered(torch.from_numpy(x), y, sites).take(torch.from_numpy(sound))
    return DataSet(path.name, samples, None, classes, names, notes=_left_out(len(x), sound))


def load_arrays(path: Path) -> dict[str, Array]:
    """All arrays of the file."""
    try:
        with path.open("rb") as file:  # numpy would leave it open where it is broken
            found = np.load(file, allow_pickle=False)
            return {SAMPLES: found} if isinstance(found, np.ndarray) else dict(found)
    except Exception as error:  # a broken header can end in whatever Python's own parser raises
        msg = f"{path} cannot be read ({error}); write it with numpy.savez(path, x=..., y=...), without objects."
        raise DataError(msg) from error


def array_rows(path: Path, rows: Tensor) -> pl.DataFrame:
    """Some samples with their features side by side, x0, x1, …, and every array that has one value a sample."""
    arrays = load_arrays(path)
    x = _array(arrays, SAMPLES, path)
    columns = x.reshape(len(x), -1)[rows.numpy()].T
    features = {f"x{i}": column for i, column in enumerate(columns)}
    return pl.DataFrame(features | {name: v[rows.numpy()] for name, v in arrays.items() if v.shape == (len(x),)})


def sample_array(arrays: dict[str, Array], path: Path) -> Array:
    """Bytes as they are, other numbers as float32."""
    x = _array(arrays, SAMPLES, path)
    if x.dtype.kind not in "biuf" or x.ndim < 2 or x.size == 0:
        msg = f"The array x of {path} must hold numbers, a row for each sample; got {x.dtype} of shape {x.shape}."
        raise DataError(msg)
    with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, and left out as such
        return x if x.dtype == np.uint8 else x.astype(np.float32)


def label_series(arrays: dict[str, Array], name: str, path: Path) -> pl.Series:
    """The values of an array, one for each sample."""
    values, count = _array(arrays, name, path), len(arrays[SAMPLES])
    if values.shape != (count,):
        msg = f"The array {name} of {path} must hold one value for each of {count} samples; got shape {values.shape}."
        raise DataError(msg)
    if values.dtype.kind not in "biufUS":
        msg = f"The array {name} of {path} holds {values.dtype}; give whole numbers or names."
        raise DataError(msg)
    return pl.Series(name, values)


def _array(arrays: dict[str, Array], name: str, path: Path) -> Array:
    if name not in arrays:
        raise DataError(missing("array", name, list(arrays), str(path)))
    return arrays[name]


def _left_out(count: int, sound: NDArray[np.intp]) -> tuple[str, ...]:
    broken = np.setdiff1d(np.arange(count), sound)
    if len(broken) == 0:
        return ()
    return (
        f"{len(broken)} of {count} rows have NaN or infinite numbers and were left out, the first row {broken[0]}.",
    )
