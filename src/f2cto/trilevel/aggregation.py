"""How the master makes one vector of the workers': the mean of Eq. (15), or a rule that bad workers cannot bend.

Blanchard et al., Machine Learning with Adversaries, 2017: one worker alone can put a mean wherever it likes. The
trimmed mean and the median (Yin et al., Byzantine-Robust Distributed Learning, 2018) leave extremes out, coordinate by
coordinate; clipping leaves everyone in and bounds how far each can pull.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

PIECE = 2**20  # numbers looked at together: 200 vectors of a large network in one table would not fit into memory


class Rule(StrEnum):
    """How several workers' vectors become one."""

    MEAN = "mean"
    TRIMMED = "trimmed"  # in every coordinate without the smallest and largest values
    MEDIAN = "median"  # in every coordinate
    CLIPPED = "clipped"  # the mean, moves much longer than most shortened


@dataclass(frozen=True)
class Aggregation:
    """A rule and what it needs to know. With `trim` and `clip` as they are, a fifth of the workers may be bad."""

    rule: Rule = Rule.MEAN
    trim: float = 0.2  # the share of the workers left out at either end, if trimmed
    clip: float = 2.0  # the longest move, in median lengths, if clipped

    def __post_init__(self) -> None:
        """Refuse rules that would leave out everyone."""
        if not 0 <= self.trim < 0.5:
            msg = f"`trim` is the share left out at either end, from 0 to below 0.5; got {self.trim}."
            raise ValueError(msg)
        if not 0 < self.clip < math.inf:
            msg = (
                f"`clip` is the longest move in median lengths, a number > 0; got {self.clip}. "
                "To let all moves through, use the rule `mean`."
            )
            raise ValueError(msg)

    def cut(self, workers: int) -> int:
        """How many values trimming leaves out at either end: the share rounded up, yet never all of them.

        Rounded up, since the share is meant of the workers there were: where one of five does not answer, the bad one
        is still to be cut from the other four. One worker (of an even number, two) always remains.
        """
        share = math.ceil(self.trim * workers - 1e-9)  # 0.07 * 100 is a little more than 7
        return min(share, (workers - 1) // 2)


def combined(ws: Sequence[Tensor], weights: Sequence[float], around: Tensor, how: Aggregation) -> Tensor:
    """The workers' vectors in one.

    Args:
        ws: one flat vector a worker, free of NaN.
        weights: how much each worker counts, > 0; only their proportions matter.
        around: where the workers' moves began; only clipping looks at it.
        how: the rule.

    """
    _check(ws, weights)
    match how.rule:
        case Rule.MEAN:
            return _mean(ws, weights)
        case Rule.TRIMMED:
            return _trimmed(ws, weights, how.cut(len(ws)))
        case Rule.MEDIAN:
            return _median(ws, weights)
        case Rule.CLIPPED:
            return _clipped(ws, weights, around, how.clip)


def _mean(ws: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """The sum of weight_i w_i over the sum of the weights."""
    if _are_one(ws):
        return ws[0]
    if _are_equal(weights):
        return _by_coordinate(ws, lambda rows: rows.mean(dim=0))
    return _added(torch.zeros_like(ws[0]), ws, _shares(weights))


def _trimmed(ws: Sequence[Tensor], weights: Sequence[float], cut: int) -> Tensor:
    """The weighted mean of each coordinate without its `cut` smallest and `cut` largest values."""
    if cut == 0 or _are_one(ws):
        return _mean(ws, weights)
    kept = slice(cut, len(ws) - cut)
    if _are_equal(weights):
        return _by_coordinate(ws, lambda rows: _ascending(rows)[kept].mean(dim=0))
    # Of equal values with unequal weights, which is cut must not depend on the order in which the workers come.
    lightest_first = sorted(range(len(ws)), key=lambda i: weights[i])
    shares = ws[0].new_tensor(_shares([weights[i] for i in lightest_first]))

    def mean_of_kept(rows: Tensor) -> Tensor:
        values, order = rows.sort(dim=0, stable=True)
        counts = shares[order[kept]]
        return (values[kept] * counts).sum(dim=0) / counts.sum(dim=0)

    return _by_coordinate([ws[i] for i in lightest_first], mean_of_kept)


def _median(ws: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """The weighted median of each coordinate: half of all weight lies on either side.

    Where a value ends the first half exactly, the median is the mean of it and the next, as usual.
    """
    if _are_equal(weights) or _are_one(ws):
        return _trimmed(ws, [1.0] * len(ws), (len(ws) - 1) // 2)  # all but the middle one or two cut
    shares = ws[0].new_tensor(_shares(weights), dtype=torch.float64)

    def middle(rows: Tensor) -> Tensor:
        values, order = rows.sort(dim=0)
        reached = shares[order].cumsum(dim=0)  # the weight of this value and all below
        lower = (reached < 0.5 - 1e-12).sum(dim=0, keepdim=True)  # shares of whole samples add up to a half nearly
        upper = (reached <= 0.5 + 1e-12).sum(dim=0, keepdim=True)
        return (values.gather(0, lower) + values.gather(0, upper))[0] / 2

    return _by_coordinate(ws, middle)


def _clipped(ws: Sequence[Tensor], weights: Sequence[float], around: Tensor, clip: float) -> Tensor:
    """The weighted mean, each move w_i - around shortened to at most `clip` median lengths.

    Every worker's length counts alike in the median. Of the two middle lengths of an even number the shorter is taken:
    of two workers, a huge one would else set its own limit.
    """
    lengths = [_length(w - around) for w in ws]
    limit = clip * statistics.median_low(lengths)
    if max(lengths) <= limit:
        return _mean(ws, weights)
    kept = [min(1.0, limit / length) if length else 1.0 for length in lengths]
    shares = [share * part for share, part in zip(_shares(weights), kept, strict=True)]
    return _added(around.clone(), (w - around for w in ws), shares)


def _added(to: Tensor, moves: Iterable[Tensor], factors: Sequence[float]) -> Tensor:
    """`to` itself, with every move times its factor added."""
    for move, factor in zip(moves, factors, strict=True):
        to.add_(move, alpha=factor)
    return to


def _by_coordinate(ws: Sequence[Tensor], rule: Callable[[Tensor], Tensor]) -> Tensor:
    """The vector of what `rule` makes of the columns of the table of all vectors, some columns at a time."""
    whole = torch.empty_like(ws[0])
    width = max(64, PIECE // len(ws) // 64 * 64)
    for part, *rows in zip(*(torch.split(vector, width) for vector in (whole, *ws)), strict=True):
        part.copy_(rule(torch.stack(rows)))
    return whole


def _ascending(rows: Tensor) -> Tensor:
    """Every column of a table sorted; the table may be written to."""
    if rows.device.type != "cpu":
        return rows.sort(dim=0).values
    rows.numpy().sort(axis=0)  # torch's own sort takes three to ten times as long here
    return rows


def _length(move: Tensor) -> float:
    # In double precision: torch adds up millions of float32 squares with errors near one percent.
    return float(torch.linalg.vector_norm(move, dtype=torch.float64))


def _shares(weights: Sequence[float]) -> list[float]:
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def _are_one(ws: Sequence[Tensor]) -> bool:
    """Whether the workers have one vector: they work as one, or sent back what they all had been sent.

    The mean of copies is rounded. Workers in this process send no copies, and those elsewhere are to come to the same.
    """
    return all(w is ws[0] or torch.equal(w, ws[0]) for w in ws)


def _are_equal(weights: Sequence[float]) -> bool:
    return all(weight == weights[0] for weight in weights)


def _check(ws: Sequence[Tensor], weights: Sequence[float]) -> None:
    if not ws or len(ws) != len(weights):
        msg = f"Each of at least one worker needs one vector and one weight; got {len(ws)} and {len(weights)}."
        raise ValueError(msg)
    if not all(0 < weight < math.inf for weight in weights):
        msg = f"Workers' weights must be numbers > 0; got {list(weights)}. Leave out who is not to count."
        raise ValueError(msg)
