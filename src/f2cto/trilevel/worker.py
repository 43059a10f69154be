"""What worker i does in one iteration: refine its value functions, then move its variables, Eqs. (7)-(14)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Generator, Tensor

from f2cto.descent import projected_step
from f2cto.trilevel.problem import LocalProblem, Point, Refined, Sets
from f2cto.trilevel.refinement import refine_attacks, refine_w_p, refined
from f2cto.trilevel.settings import Settings
from f2cto.trilevel.slopes import AlphaSlopes, slopes_of
from f2cto.trilevel.stationarity import Moves, moves


@dataclass(frozen=True)
class Heard:
    """What each weight has cost at level 2 under attack, in the iterations that listened."""

    total: Tensor  # the sum of the gradients of f2_train in alpha at p*; empty before the first
    times: int = 0

    def and_now(self, costs: Tensor) -> Heard:
        """With one iteration more."""
        return Heard(self.total + costs if self.times else costs, self.times + 1)


NOTHING = Heard(torch.empty(0))


@dataclass(frozen=True)
class Missing:
    """While a choice is read off: what it leaves of the weighted gradient of one class."""

    number: int = 0  # of the class
    slope: Tensor = NOTHING.total


@dataclass(frozen=True)
class WorkerState:
    """All a worker remembers between two phases. It never leaves the worker."""

    t: int
    at: Point  # alpha^t, q^t, w^t, p^t; w^t is the worker's copy of the shared parameters
    refined: Refined
    mean_alpha: Tensor  # of alpha^1 … alpha^t, where alpha^s weighs s: late iterates count, no single one decides
    heard: Heard = NOTHING
    taken: Tensor = NOTHING.total  # once a choice is read off: the number of each entry of alpha in it, 0: not in it
    missing: Missing = Missing()  # what the choice so far leaves to be done


@dataclass(frozen=True)
class Update:
    """What comes out of one update: the raw step of w to be sent, and scalars about it."""

    state: WorkerState
    w: Tensor  # w_i^{t+1}, not projected
    objective: float  # L_i on the way, at (alpha^{t+1}, q^{t+1}, w^t, p^t)
    moves: Moves
    metrics: dict[str, float] = field(default_factory=dict)


def start(problem: LocalProblem, at: Point) -> WorkerState:
    """The state before the first iteration; the first synchronisation sets w^."""
    sets = problem.sets
    at = replace(at, alpha=sets.A.project(at.alpha), q=sets.Q.project(at.q), p=sets.P.project(at.p))
    known = Refined(p_star=at.p, q_star=at.q, w_hat=at.w, p_hat=at.p)
    return WorkerState(t=0, at=at, refined=known, mean_alpha=at.alpha)


def refine(problem: LocalProblem, state: WorkerState, settings: Settings, rng: Generator) -> WorkerState:
    """Refine the value functions at the present point; `refined.w_hat` is then to be averaged over the workers."""
    return replace(state, refined=refined(problem, state.at, state.refined, state.t, settings, rng))


def update(problem: LocalProblem, state: WorkerState, w_hat: Tensor, settings: Settings) -> Update:
    """Move the variables in Gauss-Seidel order, Eqs. (11)-(14), given the averaged w^."""
    known, slopes = replace(state.refined, w_hat=w_hat), slopes_of(problem)
    sets, c = problem.sets, settings.penalties
    at = replace(state.at, q=known.q_star, p=known.p_star) if settings.exact else state.at
    heard = state.heard
    if settings.rest.listens:
        heard = heard.and_now(slopes.f2_train_alpha(replace(at, p=known.p_star)))
    if settings.rest.frozen:
        at = replace(at, alpha=sets.A.project(at.alpha))  # A may have narrowed since
    else:
        at = replace(at, alpha=update_alpha(at, sets, slopes.alpha(at, known, c), settings))
    if not settings.exact:
        at = replace(at, q=update_q(at, sets, slopes.q(at, known, c), settings))
    objective, slope = slopes.w(at, known, c)
    w = update_w(at, slope, settings)
    if not settings.exact:
        there = replace(at, w=sets.W.project(w))
        at = replace(at, p=update_p(at, sets, slopes.p(there, known, c), settings))
    share = 2 / (max(0, state.t - settings.rest.until) + 2)
    return Update(
        state=replace(
            state,
            t=state.t + 1,
            at=at,
            refined=known,
            mean_alpha=torch.lerp(state.mean_alpha, at.alpha, share),
            heard=heard,
        ),
        w=w,
        objective=objective,
        moves=moves(state.at, at, settings.eta, exact=settings.exact),
        metrics=slopes.metrics(),
    )


def update_alpha(at: Point, sets: Sets, slopes: AlphaSlopes, settings: Settings) -> Tensor:
    """The weights' projected step, Eq. (11).

    f1 and the penalty come apart because a rule may rescale what the lower levels say about alpha while f1's own pull
    is left alone; with the plain rule the two add up to the gradient of L_i.
    """
    return projected_step(slopes.own + settings.rules.alpha(slopes.lower), at.alpha, sets.A, settings.eta.alpha)


def update_q(at: Point, sets: Sets, slope: Tensor, settings: Settings) -> Tensor:
    """The evaluation-side perturbations' projected step, Eq. (12)."""
    return projected_step(slope, at.q, sets.Q, settings.eta.q, settings.rules.q)


def update_w(at: Point, slope: Tensor, settings: Settings) -> Tensor:
    """The parameters' step, Eq. (13)."""
    # Not projected: Eq. (13) sends the raw step, and Lemma 1 bounds the difference after Eq. (15) projects the mean.
    return at.w - settings.eta.w * slope


def update_p(at: Point, sets: Sets, slope: Tensor, settings: Settings) -> Tensor:
    """The training-side perturbations' projected step, Eq. (14); the slope is taken at the worker's own projected w."""
    return projected_step(slope, at.p, sets.P, settings.eta.p, settings.rules.p)


def local_round(problem: LocalProblem, state: WorkerState, settings: Settings, rng: Generator) -> WorkerState:
    """One iteration without the master: the worker's own w^ and w stand for the averages (F2CTO+P)."""
    state = refine(problem, state, settings, rng)
    done = update(problem, state, state.refined.w_hat, settings)
    return replace(done.state, at=replace(done.state.at, w=problem.sets.W.project(done.w)))


def iterate(problem: LocalProblem, state: WorkerState, settings: Settings, rng: Generator) -> Update:
    """A whole iteration from (w^t, w^ of iteration t) to the worker's w^{t+1} and its w^ of iteration t + 1.

    In the exact form the step of w^ that iteration t + 1 begins with is taken at alpha^{t+1} and at p* of iteration t,
    not at anything that iteration t + 1 finds out. So it can be taken now, and both means travel in one message. Where
    w^ is to restart from w the worker's own w stands for it until the master's has come.
    """
    q_star, p_star = refine_attacks(problem, state.at, state.refined, settings, rng)
    known = Refined(p_star=p_star, q_star=q_star, w_hat=state.refined.w_hat, p_hat=p_star)
    done = update(problem, replace(state, refined=known), known.w_hat, settings)
    if settings.hat.syncs(done.state.t):
        w_hat = problem.sets.W.project(done.w)
    else:
        w_hat = refine_w_p(problem, replace(done.state.at, w=known.w_hat, p=p_star), p_star, settings).w
    return replace(done, state=replace(done.state, refined=replace(known, w_hat=w_hat)))
