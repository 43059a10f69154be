"""Choosing points that stand for many: k-center, herding and facility location, in memory that grows with n.

Herding and k-center keep running sums and nearest distances. Facility location, and the first centre, need the sum of
distances from every point to all: block by block for up to `EXACT` points. Beyond, m = `DEMANDS` random points stand
for all. By Hoeffding's inequality the mean distance to the nearest of k chosen is then off by at most

    D sqrt((k log n + log(2 / delta)) / 2m)       with probability 1 - delta, for all sets of k points at once,

D being the largest distance; what greedy picks guarantee is less by at most twice that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import torch
from torch import Generator, Tensor

from f2cto.methods.vectors import Vectors, blocks, distances

EXACT = 20_000  # points of which all pairs are looked at
DEMANDS = 2_048  # points that stand for more than these
LOOKED_AT = 256  # points whose gains are computed together


@dataclass(frozen=True, eq=False)
class Demand:
    """The points whose distances count."""

    points: Vectors
    rows: Tensor  # which of the points, in their order, (m,)
    squared: bool

    @cached_property
    def those(self) -> Vectors:
        """Themselves."""
        return self.points.take(self.rows)

    def distances(self, which: Tensor) -> Tensor:
        """From those that count to some points; from a point to itself it is zero, without rounding.  (m, len)."""
        apart = distances(self.those, self.points.take(which), squared=self.squared)
        place = torch.searchsorted(self.rows, which).clamp(max=len(self.rows) - 1)
        own = (self.rows[place] == which).nonzero().flatten()
        apart[place[own], own] = 0
        return apart

    def totals(self) -> Tensor:
        """The sum of distances from those that count to each point.  (n,)."""
        parts = blocks(len(self.points), len(self.rows))
        return torch.cat([self.distances(some.to(self.rows)).sum(dim=0) for some in parts])

    def gains(self, nearest: Tensor, which: Tensor) -> Tensor:
        """By how much the distances to the nearest chosen point would shrink with each of some points.  (len,)."""
        return self.distances(which).neg_().add_(nearest[:, None]).clamp_(min=0).sum(dim=0)


def demand(points: Vectors, rng: Generator, *, squared: bool = False) -> Demand:
    """All points, or a random sample of them where they are too many."""
    count, where = len(points), points.squares().device
    rows = torch.arange(count) if count <= EXACT else torch.randperm(count, generator=rng, device=rng.device)[:DEMANDS]
    return Demand(points, rows.sort().values.to(where), squared)


def k_center(points: Vectors, count: int, rng: Generator) -> Tensor:
    """The first `count` points of a farthest-first traversal (Gonzalez, 1985), in that order.

    No choice of as many centres has less than half the radius max_i min_{s chosen} d(i, s), whatever the first centre
    is. It is the point with the smallest mean distance to all here: a typical one, the same for every seed where there
    are up to `EXACT` points.
    """
    order = [int(demand(points, rng).totals().argmin())]
    squares = points.squares()
    nearest, left = torch.full_like(squares, torch.inf), torch.ones_like(squares, dtype=torch.bool)
    while len(order) < count:
        last = torch.tensor(order[-1:], device=squares.device)
        nearest = torch.minimum(nearest, distances(points, points.take(last), squared=False)[:, 0])
        nearest[last], left[last] = 0, False
        # Masked: among doubles of the centres the farthest point may be one that was taken.
        order.append(int(torch.where(left, nearest, -1.0).argmax()))
    return torch.tensor(order, device=squares.device)


def herding(points: Vectors, weights: Tensor | None = None) -> Iterator[int]:
    """Herding (Welling, 2009): next comes what brings the mean of the chosen nearest to the mean of all.

    `weights` >= 0 make it a weighted mean of all; where they are all zero they say nothing.
    """
    own = points.squares()
    if weights is None or not bool(weights.any()):
        weights = torch.ones_like(own)
    wanted = points.along((weights / weights.sum()).to(own))
    chosen_sum, left = torch.zeros_like(own), torch.ones_like(own, dtype=torch.bool)
    for n in range(1, len(own) + 1):
        # ||mean of chosen and k - mean of all||^2, without what does not depend on k
        cost = (own + 2 * chosen_sum) / n**2 - 2 * wanted / n
        pick = torch.where(left, cost, torch.inf).argmin()[None]
        yield int(pick)
        left[pick] = False
        chosen_sum = chosen_sum + points.products(points.take(pick))[:, 0]


def herd(points: Vectors, count: int, weights: Tensor | None = None) -> Tensor:
    """The first `count` points of herding."""
    return torch.tensor(list(islice(herding(points, weights), count)), device=points.squares().device)


def facility_location(points: Vectors, count: int, rng: Generator, *, squared: bool = False) -> Tensor:
    """Greedy minimisation of sum_i min_{s chosen} d(i, s), or of squared distances; best first.

    The same as greedy maximisation of similarities D - d, which reaches at least 1 - 1/e of the best. Lazy (Minoux,
    1978): gains only shrink as more is chosen, so that what a point gained when last looked at bounds what it gains
    now, and most points need not be looked at again. Ties go to the first.
    """
    counted = demand(points, rng, squared=squared)
    order = counted.totals().argmin()[None]
    nearest = counted.distances(order)[:, 0]
    parts = blocks(len(points), len(counted.rows)) if count > 1 else iter(())
    bounds = torch.cat([nearest[:0], *(counted.gains(nearest, some.to(order)) for some in parts)])
    while len(order) < count:
        bounds[order] = -torch.inf
        order = torch.cat([order, _best(counted, nearest, bounds)])
        nearest = torch.minimum(nearest, counted.distances(order[-1:])[:, 0])
    return order


def _best(counted: Demand, nearest: Tensor, bounds: Tensor) -> Tensor:
    """The point that gains most; `bounds` of those that had to be looked at are written to.  (1,)."""
    known = torch.zeros_like(bounds, dtype=torch.bool)
    while not bool(known[best := bounds.argmax()]):
        some = bounds.topk(min(LOOKED_AT, len(bounds))).indices
        some = torch.cat([best[None], some[~known[some] & (some != best) & (bounds[some] > -torch.inf)]])
        bounds[some] = counted.gains(nearest, some)
        known[some] = True
    return best[None]


def cluster_sizes(points: Vectors, chosen: Tensor) -> Tensor:
    """For how many points each of the chosen is the nearest one; each stands for itself at least."""
    centres, parts = points.take(chosen), blocks(len(points), len(chosen))
    nearest = torch.cat(
        [distances(points.take(some.to(chosen)), centres, squared=True).argmin(dim=1) for some in parts]
    )
    nearest[chosen] = torch.arange(len(chosen), device=chosen.device)
    return nearest.bincount(minlength=len(chosen)).double()
