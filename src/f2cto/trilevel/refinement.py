"""Refining the value functions: what a worker computes before the variables move, Eqs. (7)-(9)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Generator, Tensor

from f2cto.constraints import ConstraintSet
from f2cto.descent import projected_descent, projected_step
from f2cto.randomness import anywhere
from f2cto.trilevel.problem import LocalProblem, Point, Refined
from f2cto.trilevel.settings import Settings, Start
from f2cto.trilevel.values import g2


def refine_p(problem: LocalProblem, at: Point, start: Tensor, settings: Settings) -> Tensor:
    """The third level's answer p*, Eq. (7): R projected steps on f3."""
    return projected_descent(
        lambda p: problem.f3(at.alpha, at.w, p), start, problem.sets.P, settings.eta.p, settings.steps, settings.rules.p
    )


def refine_q(problem: LocalProblem, at: Point, start: Tensor, settings: Settings) -> Tensor:
    """The evaluation-side answer q*, Eq. (8): R projected steps on f2_eval."""
    return projected_descent(
        lambda q: problem.f2_eval(at.alpha, q, at.w),
        start,
        problem.sets.Q,
        settings.eta.q,
        settings.steps,
        settings.rules.q,
    )


def refine_w_p(problem: LocalProblem, at: Point, p_star: Tensor, settings: Settings) -> Point:
    """The second level's answer (w^, p^), Eq. (9): R^ alternations on g2 from the point `at`."""
    for _ in range(settings.hat.steps):
        at = _alternate(problem, at, p_star, settings)
    return at


def _alternate(problem: LocalProblem, at: Point, p_star: Tensor, settings: Settings) -> Point:
    """One step of p, unless it is kept at p*, then one of w at the new p."""
    phi, eta, sets = settings.penalties.phi, settings.eta, problem.sets
    p = at.p
    if not settings.exact:
        p = projected_step(lambda v: g2(problem, replace(at, p=v), p_star, phi), p, sets.P, eta.p, settings.rules.p)
    here = replace(at, p=p)
    return replace(
        here, w=projected_step(lambda v: g2(problem, replace(here, w=v), p_star, phi), at.w, sets.W, eta.w_hat)
    )


def refined(problem: LocalProblem, at: Point, before: Refined, t: int, settings: Settings, rng: Generator) -> Refined:  # noqa: PLR0913
    """All refined points of iteration t; w^ is still the worker's own."""
    p_star = refine_p(problem, at, _start(settings.start, at.p, before.p_star, problem.sets.P, rng), settings)
    q_star = refine_q(problem, at, _start(settings.start, at.q, before.q_star, problem.sets.Q, rng), settings)
    syncs = settings.hat.syncs(t)
    hat = at if syncs else replace(at, w=before.w_hat, p=before.p_hat)
    if settings.exact:
        hat = replace(hat, p=p_star)
    if not (syncs and settings.hat.waits):
        hat = refine_w_p(problem, hat, p_star, settings)
    return Refined(p_star=p_star, q_star=q_star, w_hat=hat.w, p_hat=hat.p)


def _start(start: Start, current: Tensor, previous: Tensor, onto: ConstraintSet, rng: Generator) -> Tensor:
    match start:
        case Start.ZERO:
            return torch.zeros_like(current)
        case Start.PREVIOUS:
            return previous
        case Start.CURRENT:
            return current
        case Start.RANDOM:
            return anywhere(onto, current, rng)
