"""One test per numbered equation, on two samples and a linear model; every right-hand side is written out by hand.

The loss of sample k is l_k(w; x) = (w.x - y_k)^2 / 2 with x in R^2, so with r_k = w.(x_k + p_k) - y_k the gradients
are grad_w l_k = r_k (x_k + p_k) and grad_p l_k = r_k w.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor

from f2cto.constraints import L2Ball, LinfBall, Simplex
from f2cto.descent import gradient, sign
from f2cto.trilevel import worker
from f2cto.trilevel.coreset import Blocks, RobustCoreset, TopK, smoothed_topk
from f2cto.trilevel.master import aggregate, average
from f2cto.trilevel.penalty import penalised
from f2cto.trilevel.problem import Point, Refined, Sets, objective
from f2cto.trilevel.refinement import refine_p, refine_q, refine_w_p, refined
from f2cto.trilevel.settings import Hat, Penalties, Rest, Rules, Settings, Start, StepSizes
from f2cto.trilevel.slopes import Autograd
from f2cto.trilevel.stationarity import moves, stationarity_gap
from f2cto.trilevel.values import g2, residuals, second_level, v2_eval, v2_train, v3
from f2cto.trilevel.worker import WorkerState, local_round, update

LAMBDA = 0.3


def update_alpha(problem: RobustCoreset, at: Point, known: Refined, settings: Settings) -> Tensor:
    return worker.update_alpha(at, problem.sets, Autograd(problem).alpha(at, known, settings.penalties), settings)


def update_q(problem: RobustCoreset, at: Point, known: Refined, settings: Settings) -> Tensor:
    return worker.update_q(at, problem.sets, Autograd(problem).q(at, known, settings.penalties), settings)


def update_w(problem: RobustCoreset, at: Point, known: Refined, settings: Settings) -> tuple[float, Tensor]:
    value, slope = Autograd(problem).w(at, known, settings.penalties)
    return value, worker.update_w(at, slope, settings)


def update_p(problem: RobustCoreset, at: Point, known: Refined, settings: Settings) -> Tensor:
    return worker.update_p(at, problem.sets, Autograd(problem).p(at, known, settings.penalties), settings)


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def evaluate(w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return (x @ w - y).square() / 2, y > 0


X = torch.tensor([[1.0, 2.0], [3.0, -1.0]], dtype=torch.float64)
Y = vector(1.0, 0.5)
NOISE = torch.tensor([[0.0, 0.1], [0.3, 0.0]], dtype=torch.float64)
PROBLEM = RobustCoreset(
    evaluate=evaluate,
    x=X,
    y=Y,
    sets=Sets(A=Simplex(), Q=LinfBall(0.5), W=L2Ball(2.0), P=LinfBall(0.25)),
    topk=TopK(LAMBDA, Blocks(torch.zeros(2, dtype=torch.long), torch.tensor([1])), lambda: NOISE),
    every=torch.full((2,), 0.5, dtype=torch.float64),
)
ALPHA, W = vector(0.6, 0.4), vector(0.5, -0.2)
Q = torch.tensor([[0.1, -0.1], [0.2, 0.0]], dtype=torch.float64)
P = torch.tensor([[-0.1, 0.2], [0.0, 0.1]], dtype=torch.float64)
AT = Point(alpha=ALPHA, q=Q, w=W, p=P)
P_STAR, Q_STAR = 2 * P, -Q
P_HAT, W_HAT = P / 2, vector(0.3, 0.1)
KNOWN = Refined(p_star=P_STAR, q_star=Q_STAR, w_hat=W_HAT, p_hat=P_HAT)
C = Penalties(rho_1=2.0, rho_2=1.5, rho_3=3.0, phi=2.5)
ETA = StepSizes(alpha=0.05, q=0.1, w=0.02, p=0.03, w_hat=0.04)
SETTINGS = Settings(eta=ETA, penalties=C, steps=2)


def r(w: Tensor, perturbation: Tensor) -> Tensor:
    """The residuals (r_1, r_2), entry by entry."""
    rows = [[x0 + d0, x1 + d1] for (x0, x1), (d0, d1) in zip(X.tolist(), perturbation.tolist(), strict=True)]
    return vector(*[w[0] * a + w[1] * b - y for (a, b), y in zip(rows, Y.tolist(), strict=True)])


def loss(w: Tensor, perturbation: Tensor) -> Tensor:
    return r(w, perturbation) ** 2 / 2


def grad_w(w: Tensor, perturbation: Tensor, weights: Tensor) -> Tensor:
    """The gradient in w of the weighted sum of losses."""
    return sum(
        (weights[k] * r(w, perturbation)[k] * (X[k] + perturbation[k]) for k in range(2)), start=torch.zeros(2).double()
    )


def grad_p(w: Tensor, perturbation: Tensor, weights: Tensor) -> Tensor:
    """The gradient in the perturbations of the weighted sum of losses."""
    return torch.stack([weights[k] * r(w, perturbation)[k] * w for k in range(2)])


HALF = vector(0.5, 0.5)  # means over two samples
# alpha + z is (0.6, 0.5) in the first draw and (0.9, 0.4) in the second: sample 1 is on top in both.
TOPK = (0.6 + 0.9) / 2


def close(a: Tensor | float, b: Tensor | float) -> None:
    one, two = torch.as_tensor(a, dtype=torch.float64), torch.as_tensor(b, dtype=torch.float64)
    torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


def test_eq_1_level_by_level() -> None:
    close(smoothed_topk(ALPHA, NOISE, 1), TOPK)
    f1 = loss(W, Q).mean() - LAMBDA * TOPK
    close(PROBLEM.f1(ALPHA, Q, W, P), f1)
    close(PROBLEM.f2_eval(ALPHA, Q, W), -loss(W, Q).mean())
    close(PROBLEM.f2_train(ALPHA, W, P), 0.6 * loss(W, P)[0] + 0.4 * loss(W, P)[1])
    close(PROBLEM.f3(ALPHA, W, P), -0.6 * loss(W, P)[0] - 0.4 * loss(W, P)[1])
    other = replace(AT, q=Q_STAR)
    close(objective([PROBLEM, PROBLEM], [AT, other]), (f1 + loss(W, Q_STAR).mean() - LAMBDA * TOPK) / 2)


def test_eq_1_with_the_papers_sums() -> None:
    literal = replace(PROBLEM, every=vector(1.0, 1.0))
    close(literal.f1(ALPHA, Q, W, P), loss(W, Q).sum() - LAMBDA * TOPK)
    close(literal.f2_eval(ALPHA, Q, W), -loss(W, Q).sum())


def test_smoothed_topk_gradient_is_the_inclusion_probability() -> None:
    alpha = vector(0.3, 0.3, 0.4)
    noise = torch.tensor([[0.2, 0.0, 0.0], [0.0, 0.3, 0.0], [0.0, 0.2, 0.1]], dtype=torch.float64)
    # Two places, draw by draw: {1, 3}, {2, 3}, {2, 3}.
    close(gradient(lambda a: smoothed_topk(a, noise, 2), alpha), vector(1 / 3, 2 / 3, 1.0))
    tied = gradient(lambda a: smoothed_topk(a, torch.zeros(1, 3).double(), 2), alpha)
    assert sorted(tied.tolist()) == [0.0, 1.0, 1.0]


def test_topk_blocks_add_up() -> None:
    blocks = Blocks(torch.tensor([0, 1, 0, 2]), torch.tensor([1, 1, 0]))
    topk = TopK(2.0, blocks, lambda: NOISE[:, :1].expand(2, 4))
    # Per draw the noise is one number (0, then 0.3) for all: max(0.1, 0.5) + 0.2, plus twice the mean noise 0.15.
    close(topk(vector(0.1, 0.2, 0.5, 0.2)), 2.0 * (0.7 + 2 * 0.15))


def test_eq_2_inner_value_function() -> None:
    close(v3(PROBLEM, ALPHA, W, P_STAR), -(ALPHA * loss(W, P_STAR)).sum())


def test_eq_3_second_level_of_the_bilevel_form() -> None:
    level = second_level(PROBLEM, AT, P_STAR)
    close(level.objective, (ALPHA * loss(W, P)).sum())
    close(level.residual, (ALPHA * (loss(W, P_STAR) - loss(W, P))).sum())


def test_eq_4_first_outer_value_function() -> None:
    close(v2_eval(PROBLEM, ALPHA, W, Q_STAR), -loss(W, Q_STAR).mean())


def test_eq_5_second_outer_value_function() -> None:
    close(v2_train(PROBLEM, ALPHA, W_HAT, P_HAT), (ALPHA * loss(W_HAT, P_HAT)).sum())


def test_eq_6_residuals() -> None:
    found = residuals(PROBLEM, AT, KNOWN)
    close(found.evaluation, loss(W, Q_STAR).mean() - loss(W, Q).mean())
    close(found.training, (ALPHA * (loss(W, P) - loss(W_HAT, P_HAT))).sum())
    close(found.inner, (ALPHA * (loss(W, P_STAR) - loss(W, P))).sum())


def test_eq_7_refines_p() -> None:
    p = torch.zeros_like(P)
    for _ in range(2):
        p = (p + ETA.p * grad_p(W, p, ALPHA)).clamp(-0.25, 0.25)
    close(refine_p(PROBLEM, AT, torch.zeros_like(P), SETTINGS), p)


def test_eq_7_with_sign_steps_reaches_the_border() -> None:
    settings = replace(SETTINGS, eta=replace(ETA, p=0.2), rules=Rules(p=sign))
    close(refine_p(PROBLEM, AT, torch.zeros_like(P), settings), 0.25 * grad_p(W, torch.zeros_like(P), ALPHA).sign())


def test_eq_8_refines_q() -> None:
    q = Q
    for _ in range(2):
        q = (q + ETA.q * grad_p(W, q, HALF)).clamp(-0.5, 0.5)
    close(refine_q(PROBLEM, AT, Q, SETTINGS), q)


def test_g2_and_eq_9_refine_w_and_p() -> None:
    close(g2(PROBLEM, AT, P_STAR, 2.5), (ALPHA * (loss(W, P) + 2.5 * (loss(W, P_STAR) - loss(W, P)))).sum())
    # In p the loss has the factor 1 - phi; in w there is phi times the loss at p* beside it.
    p = (P - ETA.p * (1 - 2.5) * grad_p(W, P, ALPHA)).clamp(-0.25, 0.25)
    slope = (1 - 2.5) * grad_w(W, p, ALPHA) + 2.5 * grad_w(W, P_STAR, ALPHA)
    w = W - ETA.w_hat * slope
    found = refine_w_p(PROBLEM, AT, P_STAR, SETTINGS)
    close(found.p, p)
    close(found.w, w)
    assert w.norm() < 2.0  # inside W, so the projection did nothing


def test_eq_9_projects_on_the_ball() -> None:
    tight = replace(PROBLEM, sets=replace(PROBLEM.sets, W=L2Ball(0.1)))
    close(refine_w_p(tight, AT, P_STAR, SETTINGS).w.norm(), 0.1)


def test_eq_10_penalty_function() -> None:
    expected = (
        loss(W, Q).mean()
        - LAMBDA * TOPK
        + 2.0 * (loss(W, Q_STAR).mean() - loss(W, Q).mean())
        + 1.5 * (ALPHA * (loss(W, P) - loss(W_HAT, P_HAT))).sum()
        + 3.0 * (ALPHA * (loss(W, P_STAR) - loss(W, P))).sum()
    )
    close(penalised(PROBLEM, AT, KNOWN, C), expected)


@pytest.mark.parametrize("name", ["alpha", "q", "w", "p"])
def test_gradients_of_eq_10_against_finite_differences(name: str) -> None:
    def value(v: Tensor) -> Tensor:
        return penalised(PROBLEM, replace(AT, **{name: v}), KNOWN, C)

    x: Tensor = getattr(AT, name)
    slope, h = gradient(value, x).flatten(), 1e-5
    for k, step in enumerate(torch.eye(x.numel(), dtype=torch.float64) * h):
        there, back = x + step.view_as(x), x - step.view_as(x)
        assert float((value(there) - value(back)) / (2 * h)) == pytest.approx(float(slope[k]), abs=1e-6)


def test_eq_11_moves_alpha() -> None:
    inclusion = vector(1.0, 0.0)
    slope = -LAMBDA * inclusion + 1.5 * (loss(W, P) - loss(W_HAT, P_HAT)) + 3.0 * (loss(W, P_STAR) - loss(W, P))
    moved = ALPHA - ETA.alpha * slope
    close(update_alpha(PROBLEM, AT, KNOWN, SETTINGS), moved + (1 - moved.sum()) / 2)  # both stay positive


def test_eq_12_moves_q() -> None:
    close(update_q(PROBLEM, AT, KNOWN, SETTINGS), (Q - ETA.q * (1 - 2.0) * grad_p(W, Q, HALF)).clamp(-0.5, 0.5))


def test_eq_13_moves_w_without_projection() -> None:
    slope = (
        (1 - 2.0) * grad_w(W, Q, HALF)
        + 2.0 * grad_w(W, Q_STAR, HALF)
        + (1.5 - 3.0) * grad_w(W, P, ALPHA)
        + 3.0 * grad_w(W, P_STAR, ALPHA)
    )
    value, w = update_w(PROBLEM, AT, KNOWN, SETTINGS)
    close(w, W - ETA.w * slope)
    close(value, penalised(PROBLEM, AT, KNOWN, C))
    outside = replace(AT, w=10 * W)
    assert update_w(PROBLEM, outside, KNOWN, replace(SETTINGS, eta=replace(ETA, w=0.0)))[1].norm() > 2.0


def test_eq_14_moves_p() -> None:
    close(update_p(PROBLEM, AT, KNOWN, SETTINGS), (P - ETA.p * (1.5 - 3.0) * grad_p(W, P, ALPHA)).clamp(-0.25, 0.25))


def test_update_is_gauss_seidel() -> None:
    """Each variable sees the new values of those before it; p sees the worker's own projected step of w."""
    close_to_the_border = replace(PROBLEM, sets=replace(PROBLEM.sets, W=L2Ball(0.3)))
    state = WorkerState(t=0, at=AT, refined=KNOWN, mean_alpha=AT.alpha)
    done = update(close_to_the_border, state, W_HAT, SETTINGS)
    at = replace(AT, alpha=update_alpha(PROBLEM, AT, KNOWN, SETTINGS))
    at = replace(at, q=update_q(PROBLEM, at, KNOWN, SETTINGS))
    _, w = update_w(PROBLEM, at, KNOWN, SETTINGS)
    assert w.norm() > 0.3
    at = replace(at, p=update_p(PROBLEM, replace(at, w=w * 0.3 / w.norm()), KNOWN, SETTINGS))
    close(done.w, w)
    close(done.state.at.alpha, at.alpha)
    close(done.state.at.q, at.q)
    close(done.state.at.p, at.p)


def test_eq_15_projects_the_mean() -> None:
    ws = [vector(3.0, 0.0), vector(3.0, 8.0)]
    close(average(ws), vector(3.0, 4.0))
    close(aggregate(ws, L2Ball(1.0)), vector(0.6, 0.8))
    close(aggregate(ws, L2Ball(10.0)), vector(3.0, 4.0))


def test_eq_16_stationarity_gap() -> None:
    after = [replace(AT, alpha=ALPHA + 0.01, q=Q + 0.02, p=P - 0.03), replace(AT, alpha=ALPHA - 0.02)]
    w_next = W + vector(0.1, 0.2)
    stacked = [
        *[(AT.alpha - u.alpha) / (ETA.alpha * 2) for u in after],
        *[(AT.q - u.q).flatten() / (ETA.q * 2) for u in after],
        (W - w_next) / ETA.w,
        *[(AT.p - u.p).flatten() / (ETA.p * 2) for u in after],
    ]
    gap = stationarity_gap([moves(AT, u, ETA) for u in after], W, w_next, ETA.w)
    close(gap, torch.cat(stacked).square().sum())
    assert moves(AT, after[0], ETA, exact=True)[1:] == (0.0, 0.0)


def test_exact_form_keeps_perturbations_at_the_maximisers() -> None:
    """With q = q*, p = p* the terms of rho_1 and rho_3 vanish: alpha and w see rho_2 only."""
    exact = replace(SETTINGS, exact=True)
    done = update(PROBLEM, WorkerState(t=3, at=AT, refined=KNOWN, mean_alpha=AT.alpha), W_HAT, exact)
    slope_alpha = -LAMBDA * vector(1.0, 0.0) + 1.5 * (loss(W, P_STAR) - loss(W_HAT, P_HAT))
    moved = ALPHA - ETA.alpha * slope_alpha
    alpha = moved + (1 - moved.sum()) / 2
    close(done.state.at.alpha, alpha)
    close(done.state.at.q, Q_STAR)
    close(done.state.at.p, P_STAR)
    close(done.w, W - ETA.w * (grad_w(W, Q_STAR, HALF) + 1.5 * grad_w(W, P_STAR, alpha)))
    assert done.state.t == 4


@pytest.mark.parametrize(
    ("hat", "t", "steps_from"),
    [
        (Hat(), 5, "w"),  # the letter: every iteration restarts from w and steps at once
        (Hat(sync_every=3, waits=False), 3, "w"),
        (Hat(sync_every=3, waits=False), 4, "w_hat"),
        (Hat(sync_every=3, waits=True), 3, "nowhere"),  # lock-step: equal to w, and at rest
        (Hat(sync_every=3, waits=True), 5, "w_hat"),
        (Hat(sync_every=0), 0, "w"),
        (Hat(sync_every=0), 7, "w_hat"),  # never synchronised again
    ],
)
def test_when_w_hat_is_synchronised(hat: Hat, t: int, steps_from: str) -> None:
    settings = replace(SETTINGS, hat=hat)
    found = refined(PROBLEM, AT, KNOWN, t, settings, Generator())
    p_star = refine_p(PROBLEM, AT, torch.zeros_like(P), settings)
    match steps_from:
        case "nowhere":
            close(found.w_hat, W)
        case "w":
            close(found.w_hat, refine_w_p(PROBLEM, AT, p_star, settings).w)
        case _:
            hat_point = replace(AT, w=W_HAT, p=P_HAT)
            close(found.w_hat, refine_w_p(PROBLEM, hat_point, p_star, settings).w)


@pytest.mark.parametrize(
    ("start", "point"),
    [(Start.ZERO, torch.zeros_like(P)), (Start.PREVIOUS, P_STAR.clamp(-0.25, 0.25)), (Start.CURRENT, P)],
)
def test_where_refinements_start(start: Start, point: Tensor) -> None:
    settings = replace(SETTINGS, start=start, steps=0)
    close(refined(PROBLEM, AT, KNOWN, 0, settings, Generator()).p_star, point)


def test_random_start_is_inside_and_from_the_given_generator() -> None:
    settings = replace(SETTINGS, start=Start.RANDOM, steps=0)
    one, two, other = (refined(PROBLEM, AT, KNOWN, 0, settings, Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(one.q_star, two.q_star)
    assert not torch.equal(one.q_star, other.q_star)
    assert PROBLEM.sets.Q.contains(one.q_star)
    assert one.q_star.abs().max() > 0.1


def test_frozen_alpha_stays() -> None:
    done = update(
        PROBLEM,
        WorkerState(t=0, at=AT, refined=KNOWN, mean_alpha=AT.alpha),
        W_HAT,
        replace(SETTINGS, rest=Rest(frozen=True)),
    )
    assert torch.equal(done.state.at.alpha, ALPHA)
    assert not torch.equal(done.state.at.q, Q)


def test_local_round_is_an_iteration_without_the_master() -> None:
    state = WorkerState(t=0, at=AT, refined=KNOWN, mean_alpha=AT.alpha)
    after = local_round(PROBLEM, state, SETTINGS, Generator())
    known = refined(PROBLEM, AT, KNOWN, 0, SETTINGS, Generator())
    done = update(PROBLEM, replace(state, refined=known), known.w_hat, SETTINGS)
    close(after.at.w, PROBLEM.sets.W.project(done.w))
    close(after.at.alpha, done.state.at.alpha)
    assert after.t == 1


def test_interior_decides_p_star_where_alpha_is_zero() -> None:
    """By the letter the second sample's p* stays at its start; a little weight attacks it like the first."""
    at, settings = replace(AT, alpha=vector(1.0, 0.0)), replace(SETTINGS, eta=replace(ETA, p=0.2), rules=Rules(p=sign))
    start = torch.zeros_like(P)
    letter = refine_p(PROBLEM, at, start, settings)
    close(letter[1], start[1])
    decided = refine_p(PROBLEM, at, start, replace(settings, interior=1e-3))
    close(decided[0], letter[0])
    close(decided[1], 0.25 * grad_p(W, start, HALF)[1].sign())


def test_the_mean_of_the_weights_counts_iteration_s_s_times() -> None:
    state, seen = WorkerState(t=0, at=AT, refined=KNOWN, mean_alpha=AT.alpha), []
    for _ in range(4):
        state = update(PROBLEM, state, W_HAT, SETTINGS).state
        seen.append(state.at.alpha)
    assert len({tuple(alpha.tolist()) for alpha in seen}) > 1  # else any mean would do
    expected = sum(s * alpha for s, alpha in enumerate(seen, start=1)) / 10
    torch.testing.assert_close(state.mean_alpha, expected)


def test_what_weights_cost_is_heard_and_the_mean_begins_where_alpha_moves() -> None:
    """The cost of a weight is the slope of f2_train in alpha at p*, whatever p is."""
    resting = replace(SETTINGS, rest=Rest(frozen=True, until=2, listens=True))
    state = WorkerState(t=0, at=AT, refined=KNOWN, mean_alpha=AT.alpha)
    for times in (1, 2):
        w, p_star = state.at.w, state.refined.p_star
        cost = gradient(lambda alpha: PROBLEM.f2_train(alpha, w, p_star), state.at.alpha)  # noqa: B023
        before, state = state, update(PROBLEM, state, W_HAT, resting).state
        assert state.heard.times == times
        torch.testing.assert_close(state.heard.total, cost + (before.heard.total if times > 1 else 0))
        torch.testing.assert_close(state.mean_alpha, AT.alpha)
    state = update(PROBLEM, state, W_HAT, replace(SETTINGS, rest=Rest(until=2))).state
    assert state.heard.times == 2
    assert not torch.equal(state.at.alpha, AT.alpha)
    torch.testing.assert_close(state.mean_alpha, state.at.alpha)  # not mixed with the weights that stood still
