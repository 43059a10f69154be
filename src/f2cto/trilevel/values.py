"""The hierarchical composite value functions: one inner, V3, and two outer, V2^(1) and V2^(2).

Each is the lower level's best objective, taken at the refined point that the worker found for it. The refined point is
a constant; the gradient that flows through the explicit arguments is the envelope gradient of the value function.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from f2cto.trilevel.problem import LocalProblem, Point, Refined


def v3(problem: LocalProblem, alpha: Tensor, w: Tensor, p_star: Tensor) -> Tensor:
    """The inner value function V3(alpha, w) = min over P of f3, Eq. (2), at the refined p*."""
    return problem.f3(alpha, w, p_star)


def v2_eval(problem: LocalProblem, alpha: Tensor, w: Tensor, q_star: Tensor) -> Tensor:
    """The first outer value function V2^(1)(alpha, w) = min over Q of f2_eval, Eq. (4), at the refined q*."""
    return problem.f2_eval(alpha, q_star, w)


def v2_train(problem: LocalProblem, alpha: Tensor, w_hat: Tensor, p_hat: Tensor) -> Tensor:
    """The worker's share of the second outer value function V2^(2)(alpha), Eq. (5), at the refined (w^, p^)."""
    return problem.f2_train(alpha, w_hat, p_hat)


class SecondLevel(NamedTuple):
    """The second level once the third has become a constraint on it."""

    objective: Tensor
    residual: Tensor  # feasible where <= 0


def second_level(problem: LocalProblem, at: Point, p_star: Tensor) -> SecondLevel:
    """The lower level of the bilevel form, Eq. (3): f2_train, subject to f3 - V3 <= 0."""
    return SecondLevel(
        objective=problem.f2_train(at.alpha, at.w, at.p),
        residual=problem.f3(at.alpha, at.w, at.p) - v3(problem, at.alpha, at.w, p_star),
    )


def g2(problem: LocalProblem, at: Point, p_star: Tensor, phi: float) -> Tensor:
    """The penalised second level g2 = f2_train + phi (f3 - V3), the text above Eq. (9)."""
    level = second_level(problem, at, p_star)
    return level.objective + phi * level.residual


class Residuals(NamedTuple):
    """How far a point is from satisfying each value-function constraint; all <= 0 where it is feasible."""

    evaluation: Tensor  # f2_eval  - V2^(1)
    training: Tensor  # f2_train - V2^(2), this worker's share
    inner: Tensor  # f3       - V3


def residuals(problem: LocalProblem, at: Point, refined: Refined) -> Residuals:
    """The three value-function constraints of the single-level form, Eq. (6)."""
    level = second_level(problem, at, refined.p_star)
    return Residuals(
        evaluation=problem.f2_eval(at.alpha, at.q, at.w) - v2_eval(problem, at.alpha, at.w, refined.q_star),
        training=level.objective - v2_train(problem, at.alpha, refined.w_hat, refined.p_hat),
        inner=level.residual,
    )
