"""Refining the value functions: what a worker computes before the variables move, Eqs. (7)-(9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Generator, Tensor

from f2cto.constraints import ConstraintSet
from f2cto.descent import Rule, plain, projected_descent, projected_step, sign
from f2cto.randomness import anywhere
from f2cto.trilevel.problem import LocalProblem, Point, Refined, Separable
from f2cto.trilevel.settings import Settings, Start
from f2cto.trilevel.slopes import Slopes, slopes_of


def refine_p(problem: LocalProblem, at: Point, start: Tensor, settings: Settings) -> Tensor:
    """The third level's answer p*, Eq. (7): R projected steps on f3."""
    eta, rule = settings.eta.p, settings.rules.p
    steps = settings.steps if eta else 0  # where no step moves p, no gradient is asked for
    at = replace(at, alpha=_towards_centre(at.alpha, problem.sets.A, settings.interior), p=start)
    return _by_parts(
        problem,
        at,
        rule,
        lambda part, here, slopes: projected_descent(
            lambda v: slopes.f3_p(replace(here, p=v)), here.p, part.sets.P, eta, steps, rule
        ),
    )


def refine_q(problem: LocalProblem, at: Point, start: Tensor, settings: Settings) -> Tensor:
    """The evaluation-side answer q*, Eq. (8): R projected steps on f2_eval."""
    eta, rule = settings.eta.q, settings.rules.q
    return _by_parts(
        problem,
        replace(at, q=start),
        rule,
        lambda part, here, slopes: projected_descent(
            lambda v: slopes.f2_eval_q(replace(here, q=v)), here.q, part.sets.Q, eta, settings.steps, rule
        ),
    )


def refine_w_p(problem: LocalProblem, at: Point, p_star: Tensor, settings: Settings) -> Point:
    """The second level's answer (w^, p^), Eq. (9): R^ alternations on g2 from the point `at`."""
    slopes, sets, eta, phi = slopes_of(problem), problem.sets, settings.eta, settings.penalties.phi
    for _ in range(settings.hat.steps):
        if not settings.exact:
            at = replace(at, p=projected_step(slopes.g2_p(at, p_star, phi), at.p, sets.P, eta.p, settings.rules.p))
        at = replace(at, w=projected_step(slopes.g2_w(at, p_star, phi), at.w, sets.W, eta.w_hat))
    return at


def refined(problem: LocalProblem, at: Point, before: Refined, t: int, settings: Settings, rng: Generator) -> Refined:  # noqa: PLR0913
    """All refined points of iteration t; w^ is still the worker's own."""
    q_star, p_star = refine_attacks(problem, at, before, settings, rng)
    w_hat, p_hat = refine_hat(problem, at, replace(before, p_star=p_star), t, settings)
    return Refined(p_star=p_star, q_star=q_star, w_hat=w_hat, p_hat=p_hat)


def refine_attacks(
    problem: LocalProblem, at: Point, before: Refined, settings: Settings, rng: Generator
) -> tuple[Tensor, Tensor]:
    """(q*, p*) at the present point."""
    q_star = refine_q(problem, at, _start(settings.start, at.q, before.q_star, problem.sets.Q, rng), settings)
    if settings.shared_refinement:
        return q_star, q_star
    start = _start(settings.start, at.p, before.p_star, problem.sets.P, rng)
    return q_star, refine_p(problem, at, start, settings)


def refine_hat(problem: LocalProblem, at: Point, known: Refined, t: int, settings: Settings) -> tuple[Tensor, Tensor]:
    """(w^, p^) of iteration t, from where they were (`known`) or, when they are synchronised, from (w, p).

    In the exact form p^ ends at p*. On the way, w^ steps at the p^ it still has: the maximiser that w's own last step
    was taken at. Only then have w and w^ made steps of the same kind, and their losses differ by what they were
    trained on and by nothing else.
    """
    syncs = settings.hat.syncs(t)
    hat = replace(at, w=known.w_hat, p=known.p_hat)
    if syncs:
        hat = replace(at, p=known.p_star) if settings.exact else at
    if not (syncs and settings.hat.waits):
        hat = refine_w_p(problem, hat, hat.p if settings.exact else known.p_star, settings)
    return hat.w, known.p_star if settings.exact else hat.p


def _by_parts(
    problem: LocalProblem, at: Point, rule: Rule, descend: Callable[[LocalProblem, Point, Slopes], Tensor]
) -> Tensor:
    """A descent part by part where samples and rule allow it, else in one piece."""
    if not isinstance(problem, Separable) or rule not in {plain, sign}:
        return descend(problem, at, slopes_of(problem))
    done = [descend(part, _rows(at, rows), slopes_of(part)) for rows, part in problem.parts()]
    return done[0] if len(done) == 1 else torch.cat(done)


def _rows(at: Point, rows: slice) -> Point:
    return Point(alpha=at.alpha[rows], q=at.q[rows], w=at.w, p=at.p[rows])


def _towards_centre(alpha: Tensor, onto: ConstraintSet, share: float) -> Tensor:
    """Alpha moved towards the point of A nearest to the origin: for simplices, the uniform weights."""
    return alpha if share == 0 else (1 - share) * alpha + share * onto.project(torch.zeros_like(alpha))


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
