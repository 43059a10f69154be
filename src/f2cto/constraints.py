"""The convex sets the levels are constrained to, each known by its projection.

A set is a frozen value with two methods. `project` is the nearest point,

    argmin_z ||z - x||  subject to  z in the set,

and `contains` says whether a point is already there. Sets keep dtype and device of what they are given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class ConstraintSet(Protocol):
    """A closed convex set."""

    def project(self, x: Tensor) -> Tensor:
        """The nearest point of the set."""
        ...

    def contains(self, x: Tensor, atol: float = 1e-6) -> bool:
        """Whether `x` lies in the set, up to `atol`."""
        ...


@dataclass(frozen=True)
class WholeSpace:
    """No constraint at all."""

    def project(self, x: Tensor) -> Tensor:
        """The point itself."""
        return x

    def contains(self, x: Tensor, atol: float = 1e-6) -> bool:  # noqa: ARG002  (the protocol's signature)
        """Always true for finite points."""
        return bool(torch.isfinite(x).all())


@dataclass(frozen=True)
class LinfBall:
    """All points with no coordinate beyond `radius` in size: the paper's Q and P, and the attacks' ball."""

    radius: float

    def __post_init__(self) -> None:
        """Refuse a ball without points."""
        _check_radius(self.radius)

    def project(self, x: Tensor) -> Tensor:
        """Each coordinate clipped on its own."""
        return x.clamp(-self.radius, self.radius)

    def contains(self, x: Tensor, atol: float = 1e-6) -> bool:
        """Whether the largest coordinate is within the radius."""
        return bool((x.abs() <= self.radius + atol).all())


@dataclass(frozen=True)
class L2Ball:
    """All points of Euclidean norm at most `radius`: the paper's W."""

    radius: float

    def __post_init__(self) -> None:
        """Refuse a ball without points."""
        _check_radius(self.radius)

    def project(self, x: Tensor) -> Tensor:
        """The point scaled back to the sphere if it lies outside."""
        norm = _norm(x)
        return x if norm <= self.radius else x * (self.radius / norm)

    def contains(self, x: Tensor, atol: float = 1e-6) -> bool:
        """Whether the norm is within the radius, up to `atol` relative to it."""
        return bool(_norm(x) <= self.radius + atol * max(1.0, self.radius))


@dataclass(frozen=True, eq=False)
class Box:
    """All points between `lower` and `upper`, coordinate by coordinate; where the two agree it is frozen."""

    lower: Tensor
    upper: Tensor
    trusted: bool = False  # part of a box that was checked

    def __post_init__(self) -> None:
        """Refuse a box without points."""
        if not self.trusted and bool((self.lower > self.upper).any()):
            msg = "A box needs lower <= upper in every coordinate; some lower bound exceeds its upper bound."
            raise ValueError(msg)

    def rows(self, rows: slice) -> Box:
        """The box of some rows."""
        return Box(self.lower[rows], self.upper[rows], trusted=True)

    def project(self, x: Tensor) -> Tensor:
        """Each coordinate clipped on its own."""
        return x.clamp(self.lower, self.upper).to(x.dtype)

    def contains(self, x: Tensor, atol: float = 1e-6) -> bool:
        """Whether every coordinate is between its bounds."""
        return bool(((x >= self.lower - atol) & (x <= self.upper + atol)).all())


@dataclass(frozen=True)
class Simplex:
    """Non-negative weights that sum to `total`: the paper's A, reading ||alpha|| = 1 as the l1 norm."""

    total: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a simplex without points."""
        _check_radius(self.total)

    def project(self, x: Tensor) -> Tensor:
        """Every weight lowered by one threshold and cut at zero."""
        groups = torch.zeros(x.shape[0], dtype=torch.long, device=x.device)
        return _onto_simplices(x, groups, x.new_tensor([self.total], dtype=torch.float64))

    def contains(self, x: Tensor, atol: float = 1e-6) -> bool:
        """Whether no weight is negative and the sum is right."""
        return bool((x >= -atol).all()) and abs(float(x.double().sum()) - self.total) <= atol * max(1.0, self.total)


@dataclass(frozen=True, eq=False)
class Simplices:
    """A product of simplices: the weights of group g are non-negative and sum to `totals[g]`.

    Args:
        groups: the group 0..G-1 of each coordinate.   (M,)
        totals: what each group's weights sum to.      (G,)

    """

    groups: Tensor
    totals: Tensor

    def __post_init__(self) -> None:
        """Refuse groups that no total is known for, and totals that nothing can sum to."""
        if bool((self.totals < 0).any()):
            msg = f"Simplices need totals >= 0; got {self.totals.tolist()}."
            raise ValueError(msg)
        count = self.totals.shape[0]
        if self.groups.numel() and not 0 <= int(self.groups.min()) <= int(self.groups.max()) < count:
            msg = f"Simplices got {count} totals, so groups must be numbered 0 to {count - 1}."
            raise ValueError(msg)

    def project(self, x: Tensor) -> Tensor:
        """Every group projected on its own simplex."""
        return _onto_simplices(x, self.groups, self.totals)

    def contains(self, x: Tensor, atol: float = 1e-6) -> bool:
        """Whether no weight is negative and every group's sum is right."""
        sums = self.totals.double().new_zeros(self.totals.shape).index_add(0, self.groups, x.double())
        return bool((x >= -atol).all()) and bool((sums - self.totals.double()).abs().max() <= atol)


def _onto_simplices(x: Tensor, groups: Tensor, totals: Tensor) -> Tensor:
    """Project on a product of simplices in O(M log M): one sort, then all thresholds at once.

    Inside group g the answer is max(x - tau_g, 0), with tau_g fixed by the sum. Sorted downwards, entry j of a group
    stays positive iff x_(j) > (x_(1) + ... + x_(j) - total)/j.
    """
    if x.numel() == 0:
        return x
    v, totals = x.double(), totals.double()
    count = totals.shape[0]
    top = v.new_full((count,), -torch.inf).scatter_reduce(0, groups, v, "amax")
    # Shifting a group changes nothing, and what lies `total` below its largest entry ends at zero anyway. Both
    # together keep the sums short even where entries are huge.
    v = torch.maximum(v - top[groups], -totals[groups])
    order = v.argsort(descending=True, stable=True)
    order = order[groups[order].argsort(stable=True)]
    sizes = torch.bincount(groups, minlength=count)
    first = sizes.cumsum(0) - sizes
    g, sorted_v = groups[order], v[order]
    sums = sorted_v.cumsum(0)
    sums = sums - (sums - sorted_v)[first.clamp(max=len(v) - 1)][g]
    rank = torch.arange(1, len(v) + 1, device=x.device) - first[g]
    positive = sorted_v * rank > sums - totals[g]
    support = torch.zeros_like(totals).index_add(0, g, positive.double()).clamp(min=1)
    last = (first + support.long() - 1).clamp(max=len(v) - 1)
    tau = (sums[last] - totals) / support
    return (v - tau[groups]).clamp(min=0).to(x.dtype)


def _norm(x: Tensor) -> Tensor:
    """The Euclidean norm, safe where the squares of the entries would overflow or vanish."""
    largest = x.abs().max() if x.numel() else x.new_zeros(())
    return x.new_zeros(()) if largest == 0 else largest * torch.linalg.vector_norm(x / largest)


def _check_radius(radius: float) -> None:
    if not radius >= 0:
        msg = f"A set's size must be a number >= 0; got {radius}."
        raise ValueError(msg)
