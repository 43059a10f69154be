"""Training samples damaged in controlled ways: to see where it pays that workers know about each other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl
import torch
from torch import Generator, Tensor

from f2cto.data.errors import DataError
from f2cto.data.samples import Samples


@dataclass(frozen=True)
class Damage:
    """What is done to training samples; by default nothing."""

    labels: float = 0.0  # this share gets another class
    outliers: float = 0.0  # this share gets features that belong to no class
    imbalance: float = 1.0  # the first class keeps so many times the share of its samples that the last keeps

    def __post_init__(self) -> None:
        """Refuse what is no share, and a ratio below 1."""
        if not (0 <= self.labels <= 1 and 0 <= self.outliers <= 1):
            msg = f"`labels` and `outliers` are shares between 0 and 1; got {self.labels:g} and {self.outliers:g}."
            raise ValueError(msg)
        if not 1 <= self.imbalance < float("inf"):
            msg = f"`imbalance` is a ratio of at least 1, and 1 means none; got {self.imbalance:g}."
            raise ValueError(msg)


def damaged(samples: Samples, damage: Damage, rng: Generator) -> Samples:
    """The samples after `damage`; meant for training samples only, or nothing sound is left to judge by.

    Classes are thinned out first, so that the shares hold for what is left: exactly, up to rounding. Who gets a wrong
    label and who becomes an outlier are independent draws. Numbers of rows and sites stay with their samples.
    """
    if damage.imbalance > 1:
        samples = samples.take(thinned(samples.y, damage.imbalance, rng))
    if wrong := round(damage.labels * len(samples)):
        samples = replace(samples, y=mislabelled(samples.y, _some(len(samples), wrong, rng), rng))
    if odd := round(damage.outliers * len(samples)):
        samples = replace(samples, x=nonsense(samples.x, _some(len(samples), odd, rng), rng))
    return samples


def thinned(y: Tensor, imbalance: float, rng: Generator) -> Tensor:
    """Positions to keep, in order: the class of rank r among C, in a random order, keeps imbalance^(-r / (C - 1)).

    Shares are of the class's own samples, at least one of which is kept. So the most and the least frequent class end
    up `imbalance` apart where all classes were equally frequent.
    """
    present = y.bincount().nonzero().flatten()
    order = present[torch.randperm(len(present), generator=rng)]
    kept = []
    for rank, label in enumerate(order):
        members = (y == label).nonzero().flatten()
        share = imbalance ** (-rank / max(len(order) - 1, 1))
        kept.append(members[_some(len(members), max(round(share * len(members)), 1), rng)])
    return torch.cat(kept).sort().values


def mislabelled(y: Tensor, positions: Tensor, rng: Generator) -> Tensor:
    """Labels with those at `positions` replaced by another class, uniform among the others that occur.

    The noisy data of BCSR's release are drawn among all classes of the task, a sample's own included, so that fewer
    labels are wrong than were drawn; here every one of them is, and the share is exact.
    """
    present = y.bincount().nonzero().flatten()
    if len(present) < 2:
        msg = "Labels can be wrong only among two classes or more; these samples have one: leave out `damage.labels`."
        raise DataError(msg)
    moves = torch.randint(1, len(present), positions.shape, generator=rng)
    labels = y.clone()
    labels[positions] = present[(torch.searchsorted(present, y[positions]) + moves) % len(present)]
    return labels


def nonsense(x: Tensor | pl.DataFrame, positions: Tensor, rng: Generator) -> Tensor | pl.DataFrame:
    """Samples with those at `positions` replaced by what belongs to no class."""
    return noisy(x, positions, rng) if isinstance(x, Tensor) else shuffled(x, positions, rng)


def noisy(x: Tensor, positions: Tensor, rng: Generator) -> Tensor:
    """Samples with those at `positions` replaced by uniform noise: bytes over all bytes, numbers from min to max."""
    x, shape = x.clone(), (len(positions), *x.shape[1:])
    if x.is_floating_point():
        x[positions] = x.min() + (x.max() - x.min()) * torch.rand(shape, generator=rng, dtype=x.dtype)
    else:
        low, high = (0, 255) if x.dtype == torch.uint8 else (int(x.min()), int(x.max()))
        x[positions] = torch.randint(low, high + 1, shape, generator=rng, dtype=x.dtype)
    return x


def shuffled(x: pl.DataFrame, positions: Tensor, rng: Generator) -> pl.DataFrame:
    """Rows with the cells of those at `positions` mixed among them, column by column.

    Each cell stays one that its column knows, so types and ranges hold; only what a row says as a whole is nonsense.
    """
    return x.select(
        column.gather(_mixed(len(x), positions, rng).numpy())  # a view by position works for columns of all types
        for column in x.iter_columns()
    )


def _mixed(count: int, positions: Tensor, rng: Generator) -> Tensor:
    source = torch.arange(count)
    source[positions] = positions[torch.randperm(len(positions), generator=rng)]
    return source


def _some(count: int, wanted: int, rng: Generator) -> Tensor:
    """So many of `count` positions."""
    return torch.randperm(count, generator=rng)[:wanted]
