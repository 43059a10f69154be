"""Gradients without derivatives: the two-point estimator.

Saeed Ghadimi, Guanghui Lan: Stochastic First- and Zeroth-order Methods for Nonconvex Stochastic Programming, SIAM
Journal on Optimization, 2013. With u ~ N(0, I) in n dimensions,

    G(v) = (f(v + r u) - f(v)) / r  u

has as its mean the gradient of f smoothed by normal noise of deviation r. Where f is nearly linear over that distance,
E|G - grad f|^2 is (n + 1) |grad f|^2: the number of evaluations it takes grows with n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from f2cto.methods.cuts import Values, plus


@dataclass(frozen=True)
class Smoothing:
    """How gradients are estimated."""

    radius: float = 1e-6  # r; what smoothing costs grows like r n^(3/2)
    directions: int = 1  # how many u are averaged over; one is the published estimator
    per_sample: bool = True  # an attack's difference is that of its own sample's loss, not of the sum over samples
    joint: bool = False  # the letter: one direction for all variables of a cut, and nothing of its slope is known

    def __post_init__(self) -> None:
        """Refuse estimates out of nothing."""
        if self.directions < 1 or not self.radius > 0:
            msg = f"Smoothing needs directions >= 1 and a radius > 0; got {self.directions} and {self.radius}."
            raise ValueError(msg)


def normal(like: Values, rng: Generator) -> Values:
    """A direction: standard normal numbers."""
    return tuple(torch.randn(v.shape, generator=rng, dtype=v.dtype, device=v.device) for v in like)


def two_point(f: Callable[[Values], Tensor], v: Values, how: Smoothing, rng: Generator) -> tuple[Tensor, Values]:
    """The value of f and the mean of the estimator over directions.

    Where f gives a row of numbers, the k-th of which depends on row k of `v` only, every row has a difference of its
    own: what is estimated is the gradient of their sum.
    """
    value, total = f(v), tuple(torch.zeros_like(block) for block in v)
    for _ in range(how.directions):
        u = normal(v, rng)
        rise = (f(plus(v, u, how.radius)) - value) / (how.radius * how.directions)
        total = tuple(t + along(rise, b) for t, b in zip(total, u, strict=True))
    return value, total


def along(rise: Tensor, u: Tensor) -> Tensor:
    """A direction times the rise along it, or each of its rows times a rise of its own."""
    return rise.reshape(rise.shape + (1,) * (u.ndim - rise.ndim)) * u
