"""From the names or numbers that users give their classes and sites to positions in a sorted list of them."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

import polars as pl
import torch
from torch import Tensor

from f2cto.data.errors import DataError

NAMES = (pl.String, pl.Categorical, pl.Enum, pl.Boolean)


def numbered_classes(values: pl.Series, where: str) -> tuple[Tensor, tuple[str, ...]]:
    """Classes as positions, and their names; `where` says in errors where they were found."""
    positions, names = numbered_names(values, where)
    if len(names) < 2:
        msg = f"All {len(values)} labels in {where} are `{names[0]}`; selecting for a classifier needs two classes."
        raise DataError(msg)
    return positions, names


def numbered_names(values: pl.Series, where: str) -> tuple[Tensor, tuple[str, ...]]:
    """Each value's position among the different ones: numbers in their order, names in that of the alphabet."""
    texts = _texts(values, where)
    names = sorted_names(texts.unique().to_list())
    position = {name: number for number, name in enumerate(names)}
    return torch.tensor(texts.replace_strict(position, return_dtype=pl.Int64).to_list()), names


def sorted_names(names: Sequence[str]) -> tuple[str, ...]:
    """In the order of their numbers if all are whole numbers, else of the alphabet."""
    if all(name.removeprefix("-").isdecimal() for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def missing(kind: str, name: str, known: Sequence[object], where: str) -> str:
    """That a column or array of that name is not there, with those whose names are like it."""
    near = get_close_matches(name, [str(other) for other in known])
    hint = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(map(str, known))}."
    return f"{where} has no {kind} `{name}`; {hint}"


def _texts(values: pl.Series, where: str) -> pl.Series:
    if values.dtype == pl.String:
        values = _read(values.str.strip_chars().replace("", None))
    if values.dtype.is_float():
        values = values.fill_nan(None)
    if values.null_count():
        first = values.is_null().arg_true()[0]
        msg = f"{where} is empty in {values.null_count()} rows, the first row {first}; fill them or take the rows out."
        raise DataError(msg)
    if values.dtype.is_float() or values.dtype.is_decimal():
        broken = values != values.round()
        if values.dtype.is_float():
            broken |= values.is_infinite()
        if broken.any():
            first = broken.arg_true()[0]
            msg = f"{where} holds {values[first]} in row {first}; give whole numbers or names."
            raise DataError(msg)
        values = _whole(values, where)
    if not values.dtype.is_integer() and values.dtype not in NAMES:
        msg = f"{where} holds {values.dtype}; give whole numbers or names."
        raise DataError(msg)
    return values.cast(pl.String)


def _whole(values: pl.Series, where: str) -> pl.Series:
    try:
        return values.cast(pl.Int64)
    except pl.exceptions.PolarsError as error:
        largest = str(values.abs().max())
        msg = f"{where} holds numbers beyond 64 bits, such as {largest}; give smaller ones or names."
        raise DataError(msg) from error


def _read(texts: pl.Series) -> pl.Series:
    """Numbers if all are numbers and some are written with a point; names are left as they are, 007 included."""
    if texts.str.contains(r"^-?\d+$").all():
        return texts
    numbers = texts.cast(pl.Float64, strict=False)
    return numbers if numbers.null_count() == texts.null_count() else texts
