"""Orthogonal matching pursuit with non-negative weights.

Pati, Rezaiifar, Krishnaprasad: Orthogonal Matching Pursuit, 1993; Bruckstein, Elad, Zibulevsky: On the Uniqueness of
Nonnegative Sparse Solutions to Underdetermined Systems of Equations, 2008; as used by Killamsetty et al.: GRAD-MATCH,
ICML 2021. Atoms (the rows of A) and target t are known by their inner products only: A A^T and wanted = A t.
"""

from __future__ import annotations

from enum import StrEnum

import torch
from torch import Tensor

from f2cto.methods.vectors import Vectors

# A trace of ridge, relative to the atoms: with atoms that depend on each other, as doubles do, weights are unique too.
TRACE = 1e-10


class Pick(StrEnum):
    """Which atom comes next."""

    ALIGNED = "aligned"  # the one with the largest inner product with what is left of the target
    NEAREST = "nearest"  # the one nearest to what is left of the target


def matching_pursuit(
    atoms: Vectors, wanted: Tensor, count: int, *, ridge: float = 0.0, pick: Pick = Pick.ALIGNED
) -> tuple[Tensor, Tensor]:
    """`count` atoms in the order in which they were picked, and their weights x >= 0.

    After each pick all weights are fitted anew, min ||A_S^T x - t||^2 + ridge ||x||^2 over x >= 0. Where no atom helps
    any more the one that hurts least is taken, with weight 0.
    """
    squares, wanted = atoms.squares(), wanted.double()
    order = torch.arange(0, device=wanted.device)
    weights = wanted.new_zeros(0)
    left = torch.ones_like(wanted, dtype=torch.bool)
    ridge += TRACE * float(squares.mean())
    for _ in range(count):
        score = wanted - atoms.along(torch.zeros_like(wanted).index_put((order,), weights))
        if pick is Pick.NEAREST:
            score = score - squares / 2
        order = torch.cat([order, torch.where(left, score, -torch.inf).argmax()[None]])
        left[order[-1]] = False
        chosen = (some := atoms.take(order)).products(some)
        chosen.diagonal().add_(ridge)
        weights = nonnegative(chosen, wanted[order], torch.cat([weights, weights.new_zeros(1)]))
    return order, weights


def nonnegative(gram: Tensor, wanted: Tensor, start: Tensor) -> Tensor:
    """The x >= 0 with the least x^T gram x / 2 - wanted^T x, by the active sets of Lawson and Hanson, 1974.

    Args:
        gram: positive definite.
        wanted: the linear term.
        start: x >= 0 that is optimal if its zeros stay zero, such as zeros.

    """
    x, free = start, start > 0
    tolerance = 1e-12 * float(wanted.abs().max())
    for _ in range(3 * len(x)):  # it ends by itself after about len(x); rounding must not make it go round for ever
        slope = torch.where(free, -torch.inf, wanted - gram @ x)
        if float(slope.max()) <= tolerance:
            break
        free = free.clone()
        free[slope.argmax()] = True
        x, free = _fitted(gram, wanted, x, free)
    return x


def _fitted(gram: Tensor, wanted: Tensor, x: Tensor, free: Tensor) -> tuple[Tensor, Tensor]:
    """The fit over the free weights, where those that would become negative are held at zero."""
    while bool(free.any()):
        fit = torch.zeros_like(x)
        fit[free] = torch.linalg.solve(gram[free][:, free], wanted[free])
        low = free & (fit <= 0)
        if not bool(low.any()):
            return fit, free
        # As far towards the fit as all weights stay >= 0; at least one gets to zero, and is held there from now on.
        shares = torch.where(low, x / (x - fit).clamp(min=torch.finfo(x.dtype).tiny), torch.inf)
        free = free & (shares > shares.min())
        x = torch.where(free, (x + shares.min() * (fit - x)).clamp(min=0), 0.0)
    return x, free
