"""Cuts: inequalities that every point close to a lower level's solution obeys.

Let h(v) be the squared distance of the variables v from the answer of a lower level. The level's constraint h(v) <= eps
is replaced by inequalities read off h at points v_t,

    mu-cut             h(v_t) + grad h(v_t).(v - v_t) <= eps + mu (b + |v_t|^2)
    zeroth-order cut   h(v_t) + G.(v - v_t) <= eps + (L + 1)/2 |v - v_t|^2 + r^2 L^2 (n + 3)^3 / 8

The first holds where h is mu-weakly convex and |v|^2 <= b: weak convexity leaves mu/2 |v - v_t|^2 <= mu (|v|^2 +
|v_t|^2). With mu = 0 it is the plain cutting plane of a convex h. The second holds where h is L-smooth in n variables
and G is the gradient of h smoothed by normal noise of deviation r: G is off grad h by at most r L (n + 3)^(3/2) / 2, of
which Young's inequality makes the last term and the one in (L + 1).

No one holds all of v: a cut is a sum of shares, one for each worker's variables and one for the master's, and a height.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

Values = tuple[Tensor, ...]  # a value for each block of variables


def dot(a: Values, b: Values) -> float:
    """The inner product over all blocks."""
    return sum(float(torch.dot(x.flatten(), y.flatten())) for x, y in zip(a, b, strict=True))


def square(a: Values) -> float:
    """The squared length over all blocks."""
    return dot(a, a)


def plus(a: Values, b: Values, factor: float = 1.0) -> Values:
    """The sum a + factor b, block by block."""
    return tuple(x.add(y, alpha=factor) for x, y in zip(a, b, strict=True))


@dataclass(frozen=True, eq=False)
class Cut:
    """One holder's share of a cut: slope.(v - v_t) - bend/2 |v - v_t|^2 in its own variables v."""

    slope: Values
    offset: float  # slope.v_t
    bend: float = 0.0  # L + 1 of a zeroth-order cut
    at: Values = ()  # v_t, where there is a bend

    def share(self, v: Values) -> float:
        """What these variables add to the left side of the cut."""
        line = dot(self.slope, v) - self.offset
        return line - self.bend / 2 * square(plus(v, self.at, -1)) if self.bend else line

    def gradient(self, v: Values) -> Values:
        """The share's gradient."""
        return plus(self.slope, plus(v, self.at, -1), -self.bend) if self.bend else self.slope


def touching(slope: Values, at: Values, bend: float = 0.0) -> Cut:
    """The share of a cut made at `at`; there it is zero."""
    return Cut(slope, dot(slope, at), bend, at if bend else ())


def mu_height(h: float, square_norm: float, mu: float, bound: float) -> float:
    """The height of a mu-cut: h(v_t) - mu (b + |v_t|^2)."""
    return h - mu * (bound + square_norm)


def smoothing_error(radius: float, smoothness: float, count: int) -> float:
    """What smoothing can cost a zeroth-order cut in `count` variables: r^2 L^2 (n + 3)^3 / 8."""
    return (radius * smoothness) ** 2 * (count + 3) ** 3 / 8


@dataclass(frozen=True, eq=False)
class Plane:
    """A cut as the master knows it: its own share, the height, and the workers' shares as last reported."""

    cut: Cut
    height: float  # h(v_t) less all that the cut forgives
    shares: tuple[float, ...]
    dual: float = 0.0

    def rest(self) -> float:
        """The cut without the master's share."""
        return self.height + sum(self.shares)

    def value(self, z: Tensor) -> float:
        """How far the cut is broken at the master's z and the workers' variables; at most zero: it holds."""
        return self.rest() + self.cut.share((z,))


Planes = Mapping[int, Plane]


def ascended(dual: float, value: float, step: float, shrink: float, most: float) -> float:
    """One step of a multiplier up the Lagrangian regularised by -shrink/2 dual^2, kept in [0, most]."""
    return min(max(dual + step * (value - shrink * dual), 0.0), most)


def shrinkage(t: int, step: float, least: float) -> float:
    """The weight of the regulariser in iteration t, 1/(step (t + 1)^(1/4)), but not below `least`."""
    return max(1 / (step * (t + 1) ** 0.25), least) if step else least


def active(planes: Planes, most: int) -> dict[int, Plane]:
    """The planes with a positive multiplier; of more than `most`, those with the largest."""
    kept = [number for number, plane in planes.items() if plane.dual > 0]
    kept = sorted(kept, key=lambda number: -planes[number].dual)[:most]
    return {number: planes[number] for number in sorted(kept)}


def reported(planes: Planes, prefix: str, worker: int, scalars: Mapping[str, float]) -> dict[int, Plane]:
    """The planes with the shares that one worker sent."""

    def updated(number: int, plane: Plane) -> Plane:
        shares = list(plane.shares)
        shares[worker] = scalars.get(f"{prefix}.{number}", shares[worker])
        return replace(plane, shares=tuple(shares))

    return {number: updated(number, plane) for number, plane in planes.items()}


def numbered(prefix: str, values: Mapping[int, float]) -> dict[str, float]:
    """Numbers by cut, as scalars of a message."""
    return {f"{prefix}.{number}": float(value) for number, value in values.items()}


def by_number(prefix: str, scalars: Mapping[str, float]) -> dict[int, float]:
    """The scalars of a message back as numbers by cut."""
    start = f"{prefix}."
    return {int(name.removeprefix(start)): value for name, value in scalars.items() if name.startswith(start)}


def check_schedule(every: int, most: int, until: int) -> None:
    """Refuse cuts that never come or of which none may stay."""
    if every < 1 or most < 1 or until < 0:
        msg = f"Cuts need every >= 1, most >= 1 and until >= 0; got {every}, {most} and {until}."
        raise ValueError(msg)


def due(t: int, every: int, until: int) -> bool:
    """Whether new cuts are made before iteration t: in every so many, until T_1 where there is one."""
    return t % every == 0 and (not until or t < until)
