"""A site's own file as the schema has it: the same features and classes as everywhere, in the site's row numbers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
import torch
from torch import Tensor

from f2cto.attacks.base import Range
from f2cto.data.array_file import LABELS, label_series, load_arrays, sample_array
from f2cto.data.cells import Kind, words
from f2cto.data.dataset import LabelledData, as_labelled
from f2cto.data.errors import DataError
from f2cto.data.image_folder import read_images
from f2cto.data.tables import guessed, label_column, read_table, require, typed
from f2cto.site.schema import ColumnSchema, Schema

UNIT = Range()


@dataclass(frozen=True, eq=False)
class SiteData:
    """All that a site takes part with."""

    samples: LabelledData
    rows: Tensor  # (M,), int64: each sample's row in the site's file
    files: tuple[str, ...] = ()  # of the rows, where they are files
    notes: tuple[str, ...] = ()  # what was left out, clipped or unknown, a sentence each

    def __len__(self) -> int:
        """How many samples there are."""
        return len(self.samples)

    @cached_property
    def digest(self) -> str:
        """What tells whether a checkpoint was made with these samples."""
        found = hashlib.sha256()
        for part in (self.samples.x, self.samples.y, self.rows):
            found.update(np.ascontiguousarray(part.numpy()).data)
        return found.hexdigest()


def read_site(path: Path, label: str | None, schema: Schema, valid: Range = UNIT) -> SiteData:
    """A table, an .npz file or a folder of images; what does not fit the schema or the range is an error."""
    data = _from_table(path, label, schema) if schema.columns else _of_shape(path, label, schema)
    low, high = float(data.samples.x.min()), float(data.samples.x.max())
    slack = 1e-6 * (valid.high - valid.low)
    if low < valid.low - slack or high > valid.high + slack:
        msg = (
            f"The features of {path} reach from {low:g} to {high:g}, and the range is [{valid.low:g}, {valid.high:g}]; "
            "scale them, or give the range that all sites agreed on with --low and --high."
        )
        raise DataError(msg)
    return data


def _of_shape(path: Path, label: str | None, schema: Schema) -> SiteData:
    data = _from_images(path, schema) if path.is_dir() else _from_arrays(path, label or LABELS, schema)
    shape = tuple(data.samples.x.shape[1:])
    if shape != schema.shape:
        msg = f"The samples of {path} have the shape {shape}, and the schema says {schema.shape}; bring them to it."
        raise DataError(msg)
    return data


def _from_table(path: Path, label: str | None, schema: Schema) -> SiteData:
    frame = read_table(path)
    if label is None:
        msg = f"Say which column of {path} is the label with --label; it has {', '.join(frame.columns)}."
        raise DataError(msg)
    if label in {column.name for column in schema.columns}:
        msg = f"The schema has `{label}` as a feature; name the column with the classes, or make the schema anew."
        raise DataError(msg)
    _check_kinds(frame, schema, path)
    kinds = {column.name: Kind.WORD if column.words else Kind.NUMBER for column in schema.columns}
    table = typed(frame, kinds, path, carried=[label])
    _, y = label_column(table.frame, label, path, schema.classes, table.rows)
    encoder = schema.encoder()
    x, clipped = encoder.apply(table.frame)
    outside = [(name, count) for name, count in zip(encoder.names, clipped.tolist(), strict=True) if count]
    notes = [
        f"{count:,} values of `{name}` lie outside the schema's range and were clipped." for name, count in outside
    ]
    notes += [note for column in schema.columns if column.words and (note := _unknown(table.frame, column))]
    return SiteData(LabelledData(x, y), table.rows, notes=(*table.notes, *notes))


def _check_kinds(frame: pl.DataFrame, schema: Schema, path: Path) -> None:
    """Refuse columns that are missing, or of another kind than the schema says."""
    for column in schema.columns:
        require(frame.columns, column.name, path)
    found = guessed(frame.select(column.name for column in schema.columns))
    for column in schema.columns:
        kind = found.get(column.name)
        # Codes such as 80 or 443 may be words at one site and look like numbers at another.
        codes = bool(column.words) and kind is Kind.NUMBER and _known(frame, column) > 0
        if kind is not (Kind.WORD if column.words else Kind.NUMBER) and not codes:
            has = {Kind.WORD: "words", Kind.NUMBER: "numbers", None: frame[column.name].dtype}[kind]
            says = "words" if column.words else "numbers"
            msg = (
                f"The column `{column.name}` of {path.name} holds {has}, and the schema says {says}; export it as such."
            )
            raise DataError(msg)


def _known(frame: pl.DataFrame, column: ColumnSchema) -> int:
    return int(frame.select(words(pl.col(column.name)).is_in(column.words).sum()).item())


def _unknown(frame: pl.DataFrame, column: ColumnSchema) -> str:
    count = len(frame) - _known(frame, column)
    become = 'count as "other"' if column.other else "are none of those known"
    return f"{count:,} values of `{column.name}` are not among the schema's words and {become}." if count else ""


def _from_arrays(path: Path, label: str, schema: Schema) -> SiteData:
    arrays = load_arrays(path)
    x, names = sample_array(arrays, path), label_series(arrays, label, path)
    _, y = label_column(pl.DataFrame({label: names}), label, path, schema.classes)
    sound = torch.from_numpy(np.flatnonzero(np.isfinite(x).reshape(len(x), -1).all(axis=1)))
    if len(sound) == 0:
        msg = f"All {len(x)} rows of x in {path} have NaN or infinite numbers; repair them."
        raise DataError(msg)
    broken = len(x) - len(sound)
    note = (f"{broken} of {len(x)} rows have NaN or infinite numbers and were left out.",) if broken else ()
    return SiteData(as_labelled((torch.from_numpy(x)[sound], y[sound]), str(path)), sound, notes=note)


def _from_images(path: Path, schema: Schema) -> SiteData:
    found = read_images(path)
    names = pl.DataFrame({"class": [found.classes[label] for label in found.train.y.tolist()]})
    _, y = label_column(names, "class", path, schema.classes)
    return SiteData(as_labelled((found.train.x, y), str(path)), found.train.rows, found.files, found.notes)
