"""Linear systems known by their products alone: truncated Neumann series and conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

Blocks = dict[int, Tensor]  # a vector in numbered blocks; a block that is not there is zero
Product = Callable[[Blocks], Blocks]


class Solver(StrEnum):
    """The ways to solve B u = c with a few products."""

    NEUMANN = "neumann"
    CG = "cg"


@dataclass(frozen=True)
class Adjoint:
    """How an adjoint system B u = c is solved; either way with `terms` products with B.

    neumann  u = eta sum_{i=0..terms} (I - eta B)^i c. What is left of the error is (I - eta B)^(terms + 1): it falls
             if eta is below 2 / (largest eigenvalue of B), by max |1 - eta lambda| with each term.
    cg       at most `terms` iterations from zero; `eta` is not used. It ends early where nothing is left to gain, or
             where B turns out not to be positive definite.
    """

    solver: Solver = Solver.NEUMANN
    terms: int = 2
    eta: float = 0.05

    def __post_init__(self) -> None:
        """Refuse what cannot be summed."""
        if self.terms < 0:
            msg = f"An adjoint system needs terms >= 0; got {self.terms}."
            raise ValueError(msg)
        if not self.eta > 0:
            msg = f"The Neumann series needs a step eta > 0; got {self.eta}."
            raise ValueError(msg)


def solve(product: Product, c: Blocks, how: Adjoint) -> Blocks:
    """An approximate solution u of B u = c, where `product` gives B v."""
    match how.solver:
        case Solver.NEUMANN:
            return _neumann(product, c, how.terms, how.eta)
        case Solver.CG:
            return _conjugate_gradients(product, c, how.terms)


def plus(a: Blocks, b: Blocks, factor: float = 1.0) -> Blocks:
    """The sum a + factor b."""
    return a | {k: a[k].add(v, alpha=factor) if k in a else factor * v for k, v in b.items()}


def dot(a: Blocks, b: Blocks) -> float:
    """The inner product of a and b."""
    return float(sum((a[k] * b[k]).sum() for k in a.keys() & b.keys()))


def _neumann(product: Product, c: Blocks, terms: int, eta: float) -> Blocks:
    term = total = c
    for _ in range(terms):
        term = plus(term, product(term), -eta)
        total = plus(total, term)
    return {k: eta * v for k, v in total.items()}


def _conjugate_gradients(product: Product, c: Blocks, iterations: int) -> Blocks:
    u: Blocks = {k: torch.zeros_like(v) for k, v in c.items()}
    residual = direction = c
    left = dot(c, c)
    tiny = left * max((torch.finfo(v.dtype).eps ** 2 for v in c.values()), default=0.0)
    for _ in range(iterations):
        if left <= tiny:
            break
        image = product(direction)
        curvature = dot(direction, image)
        if curvature <= 0:
            break
        u = plus(u, direction, left / curvature)
        residual = plus(residual, image, -left / curvature)
        before, left = left, dot(residual, residual)
        direction = plus(residual, direction, left / before)
    return u
