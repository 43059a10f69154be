"""A user's table: one column is the label, one may say whose each row is, the others are features."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
from torch import Tensor

from f2cto.data.errors import DataError
from f2cto.data.labels import numbered_classes, numbered_names
from f2cto.data.samples import DataSet, Samples
from f2cto.data.tables import Table, guessed, read_table, require, typed, without_useless


def read_columns(path: Path, label: str | None, site: str | None) -> DataSet:
    """The rows without broken cells; columns that are of no use are left out, and the notes say which."""
    frame = read_table(path)
    y, classes = numbered_classes(frame[_label(frame, label, path)], f"the column {label} of {path}")
    sites, names = _sites(frame, site, path)
    table = _features(frame, {name for name in (label, site) if name}, path)
    samples = Samples(table.frame, y[table.rows], table.rows, None if sites is None else sites[table.rows])
    return DataSet(path.name, samples, None, classes, names, notes=table.notes)


def column_rows(path: Path) -> pl.DataFrame:
    """All rows and columns of the file, numbers as numbers."""
    return pl.DataFrame([_natural(column) for column in read_table(path)])


def _label(frame: pl.DataFrame, label: str | None, path: Path) -> str:
    if label is None:
        msg = f"Say which column of {path} is the label; it has {', '.join(frame.columns)}."
        raise DataError(msg)
    require(frame.columns, label, path)
    return label


def _sites(frame: pl.DataFrame, site: str | None, path: Path) -> tuple[Tensor | None, tuple[str, ...]]:
    if site is None:
        return None, ()
    require(frame.columns, site, path)
    return numbered_names(frame[site], f"the column {site} of {path}")


def _features(frame: pl.DataFrame, skip: set[str], path: Path) -> Table:
    kinds = guessed(frame, skip)
    table = typed(frame, kinds, path)
    others = [name for name in frame.columns if name not in {*kinds, *skip}]
    note = (f"Left out because neither numbers nor words: {', '.join(others)}.",) if others else ()
    table = without_useless(replace(table, notes=(*table.notes, *note)))
    if not table.frame.columns:
        msg = f"No column of {path} but the label has values that differ; give it features."
        raise DataError(msg)
    return table


def _natural(column: pl.Series) -> pl.Series:
    """Text as numbers where nothing is lost by it; 007 stays what it is."""
    if column.dtype != pl.String or column.str.contains(r"^[-+]?0\d").any():
        return column
    for kind in (pl.Int64, pl.Float64):
        numbers = column.cast(kind, strict=False)
        if numbers.null_count() == column.null_count():
            return numbers
    return column
