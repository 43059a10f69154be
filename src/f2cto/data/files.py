"""Users' own files: tables, arrays, folders of images; and their rows back again, so that a coreset can be kept."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from torch import Tensor

from f2cto.data.array_file import array_rows, read_arrays
from f2cto.data.errors import DataError
from f2cto.data.image_folder import image_files, read_images
from f2cto.data.samples import DataSet
from f2cto.data.table_file import column_rows, read_columns

TABLES = (".parquet", ".csv")
KNOWN = "a .parquet, .csv or .npz file, or a folder with the images of each class in a sub-folder"


def open_data(path: Path, *, label: str | None = None, site: str | None = None) -> DataSet:
    """A user's file or folder as a data set, without a test part.

    Args:
        path: the file or folder.
        label: the column with the classes, names or whole numbers; for .npz the array, `y` if not given.
        site: the column or array that says whose each sample is, if any.

    """
    kind = _kind(path)
    if kind == "folder":
        if label or site:
            msg = f"The folder {path} has its classes as sub-folders and no columns; leave out label and worker column."
            raise DataError(msg)
        return read_images(path)
    if kind == ".npz":
        return read_arrays(path, label, site)
    return read_columns(path, label, site)


def export_rows(path: Path, rows: Tensor) -> pl.DataFrame:
    """Rows of the file as they are there, in the order given; for folders of images the files' names and labels."""
    kind = _kind(path)
    try:
        if kind == ".npz":
            return array_rows(path, rows)
        frame = image_files(path) if kind == "folder" else column_rows(path)
        return frame[rows.numpy()]
    except (IndexError, pl.exceptions.OutOfBoundsError) as error:
        msg = f"{path} has no row {int(rows.max())} any more; export from the file that the rows were chosen from."
        raise DataError(msg) from error


def _kind(path: Path) -> str:
    if path.is_dir():
        return "folder"
    if not path.exists():
        msg = f"There is no {path}; give {KNOWN}."
        raise DataError(msg)
    suffix = path.suffix.lower()
    if suffix not in {*TABLES, ".npz"}:
        msg = f"{path} is of no known kind; give {KNOWN}."
        raise DataError(msg)
    return suffix
