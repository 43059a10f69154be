"""From samples as their owners keep them to the tensors that models take, fitted on the workers' training samples only.

Columns of numbers are scaled by statistics (see `scaling`). Columns of words become one 0/1 column a category. For that
the workers must agree on the categories: names and counts of categories are exchanged, or declared beforehand. They
tell what kinds of things a worker has seen, never a row; whoever minds even that gives a column as numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import polars.selectors as cs
import torch
from numpy.typing import NDArray
from torch import Tensor

from f2cto.data.dataset import LabelledData, as_labelled
from f2cto.data.errors import DataError
from f2cto.data.labels import missing
from f2cto.data.samples import Samples
from f2cto.data.scaling import Array, Scaling, column_statistics, merged


@dataclass(frozen=True)
class Options:
    """How columns become features."""

    one_hot: bool = True  # a 0/1 column a category, else one column with the category's place in the alphabet
    categories: int = 30  # so many a column at most, the most frequent; the rest are one more, "other"
    logarithm: bool = True  # spread heavy-tailed numbers by a logarithm

    def __post_init__(self) -> None:
        """Refuse a number of categories that tells nothing apart."""
        if self.categories < 2:
            msg = f"A column of words needs at least 2 categories; got categories = {self.categories}."
            raise ValueError(msg)


DEFAULT = Options()


@dataclass(frozen=True, eq=False)
class Encoded:
    """Samples as features in [0, 1], and what the features are."""

    shards: list[LabelledData]
    others: list[LabelledData]
    fixed: tuple[int, ...] = ()  # features that come from fixed columns
    names: tuple[str, ...] = ()  # of the features, if they come from columns
    clipped: tuple[int, ...] = ()  # how many values of each feature lay outside the fitted range


@dataclass(frozen=True, eq=False)
class Column:
    """A column of the frame and the features it becomes."""

    name: str
    features: tuple[str, ...]
    vocabulary: tuple[str, ...] = ()  # of a column of words, without "other"; empty: a column of numbers


@dataclass(frozen=True, eq=False)
class Encoder:
    """What becomes of each column. Whoever has it can encode samples that were not fitted."""

    columns: tuple[Column, ...]
    scaling: Scaling  # of the columns of numbers, in their order
    one_hot: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """Of all features."""
        return tuple(feature for column in self.columns for feature in column.features)

    def positions(self, names: Collection[str]) -> tuple[int, ...]:
        """The features that come from the named columns."""
        origin = [column.name for column in self.columns for _ in column.features]
        return tuple(i for i, name in enumerate(origin) if name in names)

    def apply(self, frame: pl.DataFrame) -> tuple[Tensor, NDArray[np.int64]]:
        """The features of checked columns, (M, features), and how many values of each feature were clipped."""
        scaled, clipped = self.scaling.apply(self._numbers(frame))
        x, outside, at, number = torch.zeros(len(frame), len(self.names)), np.zeros(len(self.names), np.int64), 0, 0
        for column in self.columns:
            end = at + len(column.features)
            if column.vocabulary:
                places, known = _places(frame[column.name], column.vocabulary), len(column.vocabulary)
                x[:, at:end] = torch.eye(known + 1)[places, : end - at] if self.one_hot else places[:, None] / known
            else:
                x[:, at], outside[at] = torch.from_numpy(scaled[:, number]), clipped[number]
                number += 1
            at = end
        return x, outside

    def _numbers(self, frame: pl.DataFrame) -> Array:
        return frame.select(c.name for c in self.columns if not c.vocabulary).cast(pl.Float64).to_numpy()


def encode(
    shards: Sequence[Samples], others: Sequence[Samples], fixed: Sequence[str] = (), options: Options = DEFAULT
) -> Encoded:
    """The workers' training samples and all `others` (validation, test) as features, fitted on the former.

    Bytes are divided by 255 and tensors of other numbers stay as they are. Columns end up in [0, 1]; `fixed` names
    those that no attacker can change.
    """
    named = {f"Shard {i}": part for i, part in enumerate(shards)} | {f"Part {i}": p for i, p in enumerate(others)}
    if all(isinstance(part.x, Tensor) for part in named.values()):
        if fixed:
            msg = f"Only columns can be fixed by name, and these samples have none; got {', '.join(fixed)}."
            raise DataError(msg)
        parts = [as_labelled((part.x, part.y), name) for name, part in named.items()]
        return Encoded(parts[: len(shards)], parts[len(shards) :])
    frames = _checked(named)
    for name in fixed:
        if name not in frames[0].columns:
            raise DataError(missing("column", name, frames[0].columns, "The table"))
    encoder = fitted(frames[: len(shards)], options)
    done = [encoder.apply(frame) for frame in frames]
    parts = [LabelledData(x, part.y) for (x, _), part in zip(done, named.values(), strict=True)]
    return Encoded(
        shards=parts[: len(shards)],
        others=parts[len(shards) :],
        fixed=encoder.positions(fixed),
        names=encoder.names,
        clipped=tuple(int(count) for count in np.sum([clipped for _, clipped in done], axis=0)),
    )


def fitted(frames: Sequence[pl.DataFrame], options: Options = DEFAULT) -> Encoder:
    """What becomes of each column of checked tables, constant ones left out."""
    numeric = _numbers(frames[0]).columns
    scaling = merged([column_statistics(_numbers(frame)) for frame in frames], logarithm=options.logarithm)
    used = [i for i, constant in enumerate(scaling.constant) if not constant]
    columns = [
        Column(name, (name,))
        if name in numeric
        else _words(name, [_category_counts(frame[name]) for frame in frames], options)
        for name in frames[0].columns
    ]
    kept = {numeric[i] for i in used} | {c.name for c in columns if len(c.vocabulary) > 1}
    if not kept:
        msg = "Every column has the same value at all workers; give columns that differ from sample to sample."
        raise DataError(msg)
    scaling = Scaling(scaling.low[used], scaling.high[used], scaling.unit[used], scaling.constant[used])
    return Encoder(tuple(c for c in columns if c.name in kept), scaling, options.one_hot)


def vocabulary(counts: Iterable[Counter[str]], most: int) -> tuple[tuple[str, ...], bool]:
    """The most frequent categories over all workers, in alphabetical order, and whether there are others."""
    total = sum(counts, Counter[str]())
    known = sorted(total, key=lambda name: (-total[name], name))[:most]
    return tuple(sorted(known)), len(total) > most


def _checked(parts: dict[str, Samples]) -> list[pl.DataFrame]:
    frames = {name: part.x for name, part in parts.items() if isinstance(part.x, pl.DataFrame)}
    if len(frames) < len(parts):
        msg = "Some parts are tables and some tensors; give all in one form."
        raise DataError(msg)
    first = _kinds(next(iter(frames.values())))
    for name, frame in frames.items():
        if odd := [column for column, _ in set(_kinds(frame)) ^ set(first)]:
            msg = f"{name} differs from Shard 0 in column `{min(odd)}`; all parts need the same columns and types."
            raise DataError(msg)
        if frame.is_empty():
            msg = f"{name} is empty; leave it out or give it data."
            raise DataError(msg)
        _check_cells(frame, name)
    return [frame.select(column for column, _ in first) for frame in frames.values()]


def _check_cells(frame: pl.DataFrame, part: str) -> None:
    for column in frame:
        if not (_is_number(column) or isinstance(column.dtype, pl.String | pl.Categorical | pl.Enum)):
            msg = f"The column `{column.name}` of {part} holds {column.dtype}; give numbers or words, or leave it out."
            raise DataError(msg)
    floats = cs.float()
    counts = frame.select((floats.is_null() | ~floats.is_finite()).sum(), (~floats).is_null().sum()).row(0, named=True)
    for name, count in counts.items():
        if count:
            msg = f"{part} has {count:,} empty or infinite cells in column `{name}`; fill them or leave the rows out."
            raise DataError(msg)


def _kinds(frame: pl.DataFrame) -> list[tuple[str, bool]]:
    return [(column.name, _is_number(column)) for column in frame]


def _is_number(column: pl.Series) -> bool:
    return column.dtype.is_numeric() or column.dtype == pl.Boolean


def _numbers(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(column.name for column in frame if _is_number(column))


def _category_counts(column: pl.Series) -> Counter[str]:
    return Counter(dict(column.cast(pl.String).value_counts().iter_rows()))


def _words(name: str, counts: Sequence[Counter[str]], options: Options) -> Column:
    known, more = vocabulary(counts, options.categories)
    return Column(name, feature_names(name, known, more=more, one_hot=options.one_hot), known)


def feature_names(name: str, known: Sequence[str], *, more: bool, one_hot: bool) -> tuple[str, ...]:
    """Of a column of words: a feature for every known one and, if there are `more`, one for all others."""
    others = [f"{name}: other"] if more else []
    return (*(f"{name}={word}" for word in known), *others) if one_hot else (name,)


def _places(column: pl.Series, known: tuple[str, ...]) -> Tensor:
    """Each category's place in the vocabulary; all others have the place after the last.

    Categories that training never saw count as "other". Where training had no others there is no feature for them, and
    they are all zeros: none of those known.
    """
    places = column.cast(pl.String).cast(pl.Enum(known), strict=False).to_physical().cast(pl.Int64)
    return torch.from_numpy(places.fill_null(len(known)).to_numpy().copy())
