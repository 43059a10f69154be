"""Numbers brought to [0, 1] by what workers may tell of their columns: a count and thirteen quantiles, never a row.

    worker: column_statistics ─► vector ─► master: merged ─► Scaling ─► worker: Scaling.apply

The ends of the range are the 1 % and 99 % quantiles of all workers' samples together, as far as the workers' quantiles
tell: each stands for the share of its worker's samples around its level, and of these points the weighted quantile is
taken. Not the median over the workers: where each has a class of its own, the few that hold a rare attack would find
all their values clipped. Not the extreme either: among 200 workers of 400 samples the largest 99 % quantile is a
rarity, and one worker with a broken meter would squash everyone's column. So the range is about what one would fit if
the samples lay in one place, however they are dealt out: over the columns of UNSW-NB15, at 200 workers, it ends 1 % off
with samples dealt at random and 5 % off with samples sorted by class (mean deviation).

The quantiles are values that occur. Those of a worker with few samples are some samples' own, column by column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]

PERCENTS = (0, 1, 2, 5, 10, 25, 50, 75, 90, 95, 98, 99, 100)  # the quantiles that are told
HEAVY = 10.0  # a tail is heavy if it reaches so many times beyond what is usual
DEPTH = 30.0  # the logarithm spreads what lies between the end of the tail and so small a part of it


@dataclass(frozen=True, eq=False)
class Statistics:
    """What a worker tells of its columns of numbers."""

    count: int  # samples
    quantiles: Array  # (columns, percents), the smallest and the largest value included

    def vector(self) -> Tensor:
        """As one message: the count, then column after column its quantiles.  (1 + 13 columns,), float64."""
        return torch.from_numpy(np.concatenate([[float(self.count)], self.quantiles.ravel()]))

    @staticmethod
    def from_vector(vector: Tensor) -> Statistics:
        """Back from a message."""
        values = vector.double().numpy()
        return Statistics(round(values[0]), values[1:].reshape(-1, len(PERCENTS)))


@dataclass(frozen=True, eq=False)
class Scaling:
    """How each column is brought to [0, 1]; one entry a column."""

    low: Array  # what becomes 0, after the logarithm
    high: Array  # what becomes 1, after the logarithm
    unit: Array  # of the logarithm; 0 where there is none
    constant: NDArray[np.bool_]  # one value at all workers: nothing to learn from

    def apply(self, values: Array) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The scaled values (M, columns), and how many of each column were clipped."""
        scaled = (_spread(values, self.unit) - self.low) / np.where(self.constant, 1.0, self.high - self.low)
        clipped = ((scaled < 0) | (scaled > 1)).sum(axis=0)
        return scaled.clip(0, 1).astype(np.float32), clipped


def column_statistics(frame: pl.DataFrame) -> Statistics:
    """What a worker tells of its columns, all of numbers."""
    if not frame.columns:
        return Statistics(0, np.empty((0, len(PERCENTS))))
    values = np.ascontiguousarray(frame.cast(pl.Float64).to_numpy().T)
    return Statistics(len(frame), np.percentile(values, PERCENTS, axis=1, method="inverted_cdf").T)


def merged(statistics: Sequence[Statistics], *, logarithm: bool = True) -> Scaling:
    """The scaling for all workers, whatever their order.

    A column whose quantiles coincide though it is not constant, such as a rare flag, is scaled from its smallest to its
    largest value. A heavy-tailed one goes through sign(x) log(1 + |x| / unit) first, if `logarithm` allows it.
    """
    counts = np.array([worker.count for worker in statistics])
    columns = np.stack([worker.quantiles for worker in statistics], axis=1)  # (columns, workers, percents)
    pooled = np.array([_pooled(column, counts) for column in columns]).reshape(-1, len(PERCENTS))
    smallest, low, high, largest = pooled[:, 0], pooled[:, 1], pooled[:, -2], pooled[:, -1]
    flat = low == high
    low, high = np.where(flat, smallest, low), np.where(flat, largest, high)
    reach = np.maximum(abs(low), abs(high))
    # Measured on UNSW-NB15 with an MLP of 128 and 64 units: 85.7 % accuracy against 85.1 % without logarithms, and
    # 83.1 % against 80.6 % from 2,000 samples. A unit taken from the median gains less, and jumps where half are zeros.
    unit = np.where(logarithm & (reach > HEAVY * _usual_size(pooled)), reach / DEPTH, 0.0)
    return Scaling(_spread(low, unit), _spread(high, unit), unit, smallest == largest)


def _pooled(quantiles: Array, counts: NDArray[np.int64]) -> Array:
    """The quantiles of one column over all workers; `quantiles` is (workers, percents)."""
    percents = np.array(PERCENTS)
    # Each quantile stands for the samples halfway to its neighbours. Counted in half percents the weights are whole
    # numbers: their sums are exact, and no rounding depends on the order of the workers.
    edges = np.concatenate([[0], percents[1:] + percents[:-1], [200]])
    weights = (counts[:, None] * np.diff(edges)).ravel()
    order = quantiles.argsort(axis=None)
    reached = np.searchsorted(weights[order].cumsum(), 2 * percents * counts.sum())
    pooled: Array = quantiles.ravel()[order][reached]
    return pooled


def _usual_size(pooled: Array) -> Array:
    """How large the values of a column usually are.

    The median for a column of one sign. The quartiles for one of both: its median may be near zero, as in data that
    were centred, without any tail being heavy.
    """
    median, quartiles = abs(pooled[:, PERCENTS.index(50)]), pooled[:, [PERCENTS.index(25), PERCENTS.index(75)]]
    both = (pooled[:, 0] < 0) & (pooled[:, -1] > 0)
    return np.where(both, np.max(abs(quartiles), axis=1, initial=0), median)


def _spread(values: Array, unit: Array) -> Array:
    logarithms = np.sign(values) * np.log1p(abs(values) / np.where(unit > 0, unit, 1.0))
    return np.where(unit > 0, logarithms, values)
