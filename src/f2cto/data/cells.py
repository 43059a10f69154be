"""What a cell of a table may hold, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType

import polars as pl


class Kind(Enum):
    """What every cell of a column must be; a cell that is not is broken."""

    NUMBER = "a number"
    WHOLE = "a whole number from 0 on, decimal or as in 0x1f"
    FLAG = "0 or 1"
    WORD = "a word"


POSSIBLE: MappingProxyType[Kind, Callable[[pl.Expr], pl.Expr]] = MappingProxyType(
    {
        Kind.NUMBER: lambda value: value.is_finite(),
        Kind.WHOLE: lambda value: value.is_finite() & (value >= 0) & (value == value.floor()),
        Kind.FLAG: lambda value: (value == 0) | (value == 1),
        Kind.WORD: lambda value: value.is_not_null(),
    }
)


def read(query: pl.LazyFrame, schema: pl.Schema, kinds: Mapping[str, Kind]) -> pl.LazyFrame:
    """The columns of `kinds` read as their kind, Float64 or Categorical, and null where a cell is broken."""
    # In two steps, or polars would read each number once for the check and once for the value.
    values = query.with_columns(_value(name, schema[name], kind) for name, kind in kinds.items())
    return values.with_columns(
        pl.when(POSSIBLE[kind](pl.col(name))).then(pl.col(name)).alias(name) for name, kind in kinds.items()
    )


def numbers(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """The column as Float64, null where a cell is no number."""
    return (column.str.strip_chars() if dtype == pl.String else column).cast(pl.Float64, strict=False)


def words(column: pl.Expr) -> pl.Expr:
    """The column as trimmed text, null where nothing is left.

    Whole numbers are written one way. Publishers who join files made by different programs leave "0" in some and "0.0"
    in others; kept apart, the two would tell a classifier which file a row is from, and so its class.
    """
    text = column.cast(pl.String).str.strip_chars()
    short = text.str.strip_suffix(".0")
    whole = text.str.ends_with(".0") & short.cast(pl.Int64, strict=False).is_not_null()
    return pl.when(whole).then(short).when(text != "").then(text)


def _value(name: str, dtype: pl.DataType, kind: Kind) -> pl.Expr:
    column = pl.col(name)
    if kind is Kind.WORD:
        return words(column).cast(pl.Categorical).alias(name)
    value = numbers(column, dtype)
    return pl.coalesce(value, _hexadecimal(column)) if kind is Kind.WHOLE and dtype == pl.String else value


def _hexadecimal(column: pl.Expr) -> pl.Expr:
    """Numbers such as 0x1f; "face" is a word, whatever its letters."""
    text = column.str.strip_chars()
    digits = pl.when(text.str.starts_with("0x")).then(text.str.slice(2))
    return digits.str.to_integer(base=16, strict=False).cast(pl.Float64)
