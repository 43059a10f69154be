"""The penalty function: the three constraints of Eq. (6) folded into one objective."""

from __future__ import annotations

from torch import Tensor

from f2cto.trilevel.problem import LocalProblem, Point, Refined
from f2cto.trilevel.settings import Penalties
from f2cto.trilevel.values import residuals


def penalised(problem: LocalProblem, at: Point, refined: Refined, c: Penalties) -> Tensor:
    """Worker i's penalty objective L_i(alpha, q, w, p), Eq. (10)."""
    return problem.f1(at.alpha, at.q, at.w, at.p) + penalty(problem, at, refined, c)


def penalty(problem: LocalProblem, at: Point, refined: Refined, c: Penalties) -> Tensor:
    """What Eq. (10) adds to f1: each value-function constraint, weighed."""
    r = residuals(problem, at, refined)
    return c.rho_1 * r.evaluation + c.rho_2 * r.training + c.rho_3 * r.inner
