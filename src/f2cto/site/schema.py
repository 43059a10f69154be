"""What all sites agree on before anything is exchanged: the classes, and what becomes of each column.

A schema is a readable JSON file that one person makes, from a table that may be looked at, and hands to all sites. It
holds the names of classes, columns and words and the ends of the columns' ranges; no row.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from torch import Tensor

from f2cto.config import SettingsError, build, plain
from f2cto.data.encoding import DEFAULT, Column, Encoder, Options, feature_names, fitted
from f2cto.data.errors import DataError
from f2cto.data.files import open_data
from f2cto.data.labels import missing
from f2cto.data.scaling import Scaling

FORMAT = 1


@dataclass(frozen=True)
class ColumnSchema:
    """A column of numbers with its range, or of words with those that are known."""

    name: str
    low: float = 0.0  # what becomes 0, after the logarithm
    high: float = 1.0  # what becomes 1, after the logarithm
    unit: float = 0.0  # of the logarithm; 0: there is none
    words: tuple[str, ...] = ()  # empty: a column of numbers
    other: bool = False  # whether other words have a feature of their own
    fixed: bool = False  # no attacker can change it

    def __post_init__(self) -> None:
        """Refuse a column that tells nothing."""
        numbers = (self.low, self.high, self.unit)
        if not all(map(math.isfinite, numbers)) or not self.low < self.high or self.unit < 0:
            got = ", ".join(map(str, numbers))
            msg = f"The column `{self.name}` needs numbers low < high and a unit >= 0; got {got}."
            raise ValueError(msg)
        if self.words and (len(self.words) < 2 or len(set(self.words)) < len(self.words)):
            msg = f"The column `{self.name}` needs two words or more, each once; got {', '.join(self.words)}."
            raise ValueError(msg)

    def plain(self) -> dict[str, Any]:
        """What matters of it, for JSON."""
        only = ("words", "other") if self.words else ("low", "high", "unit")
        values = plain(self)
        return {"name": self.name, **{key: values[key] for key in only}, **({"fixed": True} if self.fixed else {})}


@dataclass(frozen=True)
class Schema:
    """Classes, and either columns or the shape of samples that are arrays of numbers."""

    classes: tuple[str, ...]  # names, in the order of the labels
    columns: tuple[ColumnSchema, ...] = ()
    shape: tuple[int, ...] = ()  # of a sample, where there are no columns
    one_hot: bool = True  # a feature a word, else one with the word's place
    format: int = FORMAT

    def __post_init__(self) -> None:
        """Refuse what no two sites could agree on."""
        if self.format != FORMAT:
            msg = f"This version reads schemas of format {FORMAT}, and this one has format {self.format}; make it anew."
            raise ValueError(msg)
        if len(self.classes) < 2 or len(set(self.classes)) < len(self.classes) or "" in self.classes:
            msg = f"A schema needs the names of two classes or more, each once; got {list(self.classes)}."
            raise ValueError(msg)
        names = [column.name for column in self.columns]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            msg = f"The schema has two columns named `{twice[0]}`; leave one out."
            raise ValueError(msg)
        if bool(self.columns) == bool(self.shape) or any(side < 1 for side in self.shape):
            msg = "A schema has either `columns` or the `shape` of a sample, such as [1, 28, 28]; give one of them."
            raise ValueError(msg)

    @property
    def sample(self) -> tuple[int, ...]:
        """The shape of a sample as models take it."""
        return self.shape or (len(self.encoder().names),)

    @property
    def fixed(self) -> tuple[int, ...]:
        """The features that no attacker can change."""
        return self.encoder().positions({column.name for column in self.columns if column.fixed})

    @property
    def digest(self) -> str:
        """What two sites compare to know that they have the same schema."""
        canonical = json.dumps(_plain(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def encoder(self) -> Encoder:
        """What makes features of columns."""
        numbers = [column for column in self.columns if not column.words]
        low, high, unit = (np.array([getattr(c, name) for c in numbers], float) for name in ("low", "high", "unit"))
        columns = (
            Column(c.name, feature_names(c.name, c.words, more=c.other, one_hot=self.one_hot), c.words)
            if c.words
            else Column(c.name, (c.name,))
            for c in self.columns
        )
        return Encoder(tuple(columns), Scaling(low, high, unit, np.zeros(len(numbers), bool)), self.one_hot)


def schema_of(path: Path, label: str | None, fixed: Sequence[str] = (), options: Options = DEFAULT) -> Schema:
    """The schema that a file suggests: it must be one that may be looked at, a public sample or one site's."""
    return suggested(path, label, fixed, options)[0]


def suggested(
    path: Path, label: str | None, fixed: Sequence[str] = (), options: Options = DEFAULT
) -> tuple[Schema, tuple[str, ...]]:
    """The schema that a file suggests, and notes on what of the file is not in it, a sentence each."""
    data = open_data(path, label=label)
    if isinstance(data.train.x, Tensor):
        if fixed:
            msg = f"Only columns can be fixed by name, and {path} has none; got {', '.join(fixed)}."
            raise DataError(msg)
        return Schema(data.classes, shape=tuple(data.train.x.shape[1:])), data.notes
    return Schema(data.classes, _columns(data.train.x, fixed, options), one_hot=options.one_hot), data.notes


def schema_text(schema: Schema) -> str:
    """A schema as its file has it, a line a column."""
    values = _plain(schema)
    if not schema.columns:
        return json.dumps(values, indent=2, ensure_ascii=False) + "\n"
    lines = ",\n".join(f"    {json.dumps(column, ensure_ascii=False)}" for column in values.pop("columns"))
    head = json.dumps(values, indent=2, ensure_ascii=False).removesuffix("\n}")
    return f'{head},\n  "columns": [\n{lines}\n  ]\n}}\n'


def schema_from_text(text: str, where: str = "The schema") -> Schema:
    """A schema out of its file's text; `where` says in errors which it is."""
    try:
        values = json.loads(text)
    except ValueError as error:
        msg = f"{where} is not JSON ({error}); make it with `f2cto federation schema`."
        raise SettingsError(msg) from error
    if not isinstance(values, Mapping) or "classes" not in values:
        msg = f"{where} has no `classes`; make it with `f2cto federation schema`."
        raise SettingsError(msg)
    columns = values.get("columns", [])
    if isinstance(columns, list) and not all(isinstance(c, Mapping) and c.get("name") for c in columns):
        msg = f"{where} has a column without a `name`; make it with `f2cto federation schema`."
        raise SettingsError(msg)
    return build(Schema, values)


def read_schema(path: Path) -> Schema:
    """A schema from its file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        msg = f"Cannot read the schema {path}: {reason}."
        raise SettingsError(msg) from error
    return schema_from_text(text, str(path))


def _plain(schema: Schema) -> dict[str, Any]:
    values: dict[str, Any] = {"format": schema.format, "classes": list(schema.classes)}
    if schema.columns:
        return values | {"one_hot": schema.one_hot, "columns": [column.plain() for column in schema.columns]}
    return values | {"shape": list(schema.shape)}


def _columns(frame: pl.DataFrame, fixed: Sequence[str], options: Options) -> tuple[ColumnSchema, ...]:
    for name in fixed:
        if name not in frame.columns:
            raise DataError(missing("column", name, frame.columns, "The table"))
    encoder = fitted([frame], options)
    ranges = zip(encoder.scaling.low, encoder.scaling.high, encoder.scaling.unit, strict=True)
    return tuple(_column(c, (0.0, 1.0, 0.0) if c.vocabulary else next(ranges), fixed) for c in encoder.columns)


def _column(column: Column, scale: tuple[float, float, float], fixed: Sequence[str]) -> ColumnSchema:
    low, high, unit = map(float, scale)
    words, other = column.vocabulary, bool(column.vocabulary) and len(column.features) > len(column.vocabulary)
    return ColumnSchema(column.name, low, high, unit, words, other, column.name in fixed)
