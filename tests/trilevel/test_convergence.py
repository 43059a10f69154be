"""Algorithm 1 on problems with known answers, through the real program, engine and master."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor

from f2cto.constraints import ConstraintSet
from f2cto.descent import gradient
from f2cto.randomness import generator
from f2cto.trilevel.master import Stopped
from f2cto.trilevel.problem import Point
from f2cto.trilevel.settings import Penalties, Settings, StepSizes, Stopping
from testing.known import D, Known, boundary, disagreeing, interior, pulled
from testing.problems import QuadraticTrilevel, smooth_start, smooth_workers
from testing.runs import Run, lemma_ratios, run

NAMES = ("alpha", "q", "w", "p")
CASES = {case.__name__: case for case in (interior, disagreeing, boundary, pulled)}
each_case = pytest.mark.parametrize("make", CASES.values(), ids=CASES.keys())


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def farthest(points: list[Point], answer: list[Point]) -> float:
    """The largest error in any coordinate of any variable of any worker."""
    pairs = list(zip(points, answer, strict=True))
    return max(float((getattr(a, name) - getattr(b, name)).abs().max()) for a, b in pairs for name in NAMES)


def touches(onto: ConstraintSet, x: Tensor) -> bool:
    """Whether `x` lies in the set, but a point a little further out does not."""
    return onto.contains(x) and not onto.contains(1.01 * x)


def smooth(iterations: int, local_rounds: int = 1) -> tuple[Run, ConstraintSet, float]:
    """A run on the smooth problem, its W and its step size."""
    eta = iterations ** (-1 / 3)
    settings = Settings(StepSizes(eta, eta, eta, eta, eta), Penalties(rho_1=2, rho_2=1, rho_3=2, phi=2), steps=2)
    problems = smooth_workers(4, generator(3, 0))
    ended = run(problems, smooth_start(problems, generator(3, 1)), settings, Stopping(iterations), local_rounds)
    return ended, problems[0].sets.W, eta


# The answers themselves, before anything is asked to find them.


@each_case
def test_each_lower_level_is_optimal_at_the_answer(make: Callable[[Generator], Known]) -> None:
    """The least of a convex function on a convex set is where a projected step leads back to: by autograd alone."""
    known = make(generator(1))
    sets, w = known.problems[0].sets, known.answer[0].w

    def steps(problem: QuadraticTrilevel, u: Point) -> tuple[Tensor, Tensor, Tensor]:
        return (
            sets.Q.project(u.q - gradient(lambda q: problem.f2_eval(u.alpha, q, u.w), u.q)),
            sets.P.project(u.p - gradient(lambda p: problem.f3(u.alpha, u.w, p), u.p)),
            gradient(lambda v: problem.f2_train(u.alpha, v, u.p), u.w),
        )

    q, p, slopes = zip(*map(steps, known.problems, known.answer), strict=True)
    torch.testing.assert_close(torch.stack(q), torch.stack([u.q for u in known.answer]))
    torch.testing.assert_close(torch.stack(p), torch.stack([u.p for u in known.answer]))
    torch.testing.assert_close(sets.W.project(w - torch.stack(slopes).mean(dim=0)), w)


@each_case
def test_no_other_weights_do_better(make: Callable[[Generator], Known]) -> None:
    """Level 1 at the best response to alpha, found by projected descent, is least at the answer."""
    known = make(generator(1))
    rng = generator(4)
    best = judged(known, [u.alpha for u in known.answer])
    for size in (0.01, 0.3):
        tried = [u.alpha + size * torch.randn(u.alpha.shape, generator=rng, dtype=u.alpha.dtype) for u in known.answer]
        assert judged(known, [known.problems[0].sets.A.project(alpha) for alpha in tried]) > best


def judged(known: Known, alphas: list[Tensor]) -> float:
    """The first level's objective once the lower levels have answered alpha."""
    pairs = list(zip(known.problems, alphas, strict=True))
    w = torch.zeros(D, dtype=torch.float64)
    for _ in range(150):
        slopes = [a.training_slope(a.answer(alpha, w)) for a, alpha in pairs]
        w = known.problems[0].sets.W.project(w - 0.5 * torch.stack(slopes).mean(dim=0))
    answers = [a.answer(alpha, w) for a, alpha in pairs]
    return sum(float(a.f1(u.alpha, u.q, u.w, u.p)) for a, u in zip(known.problems, answers, strict=True))


def test_which_constraints_bite() -> None:
    known = boundary(generator(1))
    sets = known.problems[0].sets
    for name, onto in (("alpha", sets.A), ("q", sets.Q), ("w", sets.W), ("p", sets.P)):
        assert any(touches(onto, getattr(u, name)) for u in known.answer)
    known = pulled(generator(1))
    sets = known.problems[0].sets
    assert all(touches(sets.Q, u.q) and touches(sets.P, u.p) for u in known.answer)
    assert not any(touches(sets.A, u.alpha) or touches(sets.W, u.w) for u in known.answer)


def test_who_pulls_and_who_disagrees() -> None:
    def slopes(known: Known) -> tuple[Tensor, Tensor]:
        pairs = list(zip(known.problems, known.answer, strict=True))
        return torch.stack([a.judging_slope(u) for a, u in pairs]), torch.stack([a.training_slope(u) for a, u in pairs])

    for content in slopes(interior(generator(1))):
        assert float(content.abs().max()) < 1e-12
    for wanted in slopes(disagreeing(generator(1))):
        assert float(wanted.mean(dim=0).abs().max()) < 1e-12
        assert float(wanted.abs().max()) > 0.1
    first, _ = slopes(pulled(generator(1)))
    assert float(first.mean(dim=0).abs().max()) > 0.1


# Algorithm 1 finds them.


@each_case
@pytest.mark.parametrize("seed", range(10))
def test_the_answer_is_reached_from_anywhere(make: Callable[[Generator], Known], seed: int) -> None:
    known = make(generator(1))
    assert known.bias < 5e-4
    start = known.start(generator(2, seed))
    assert farthest(start, known.answer) > 0.5
    ended = run(known.problems, start, known.settings, Stopping(iterations=400, tolerance=1e-7))
    assert ended.solution.stopped is Stopped.STATIONARY
    assert farthest(ended.points, known.answer) < 1e-3


def test_the_penalty_bias_keeps_to_its_bound_and_falls_with_rho() -> None:
    def error(rho_2: float) -> tuple[float, float]:
        known = pulled(generator(1), rho_2)
        ended = run(known.problems, known.start(generator(2, 0)), known.settings, Stopping(400, tolerance=1e-9))
        return farthest(ended.points, known.answer), known.bias

    (coarse, coarse_bound), (fine, fine_bound) = error(1e2), error(1e3)
    assert coarse < coarse_bound
    assert fine < fine_bound
    assert fine == pytest.approx(coarse / 10, rel=0.1)  # O(1/rho_2), and not just below the bound


# The gap, and when a run ends.


@each_case
def test_the_gap_falls_and_a_run_ends_at_the_first_stationary_point(make: Callable[[Generator], Known]) -> None:
    known = make(generator(1))
    ended = run(known.problems, known.start(generator(5)), known.settings, Stopping(iterations=400, tolerance=1e-6))
    assert ended.solution.stopped is Stopped.STATIONARY
    assert ended.gaps[-1] <= 1e-6 < min(ended.gaps[:-1])  # Definition 2
    assert ended.gaps[-1] < 1e-6 * max(ended.gaps)


def test_the_gap_is_what_definition_1_says() -> None:
    """Recomputed in one iteration from the points themselves."""
    known = interior(generator(1))
    start, eta = known.start(generator(5)), known.settings.eta
    ended = run(known.problems, start, known.settings, Stopping(iterations=1))
    local = [
        ((getattr(a, name) - getattr(b, name)) / getattr(eta, name)).square().sum() / len(start) ** 2
        for a, b in zip(start, ended.points, strict=True)
        for name in ("alpha", "q", "p")
    ]
    shared = ((start[0].w - ended.solution.w) / eta.w).square().sum()
    assert ended.gaps == pytest.approx([float(sum(local) + shared)])


@pytest.mark.parametrize("local_rounds", [1, 2, 4])
def test_the_gap_is_that_of_one_step_however_many_lie_between_two_exchanges(local_rounds: int) -> None:
    """Only w moves here, by I steps: its part of Definition 1 is their mean."""
    known = interior(generator(1))
    start, eta = known.start(generator(5)), known.settings.eta
    settings = replace(known.settings, eta=StepSizes(0, 0, eta.w, 0, eta.w_hat))
    ended = run(known.problems, start, settings, Stopping(iterations=local_rounds), local_rounds)
    step = (start[0].w - ended.solution.w) / (local_rounds * eta.w)
    assert ended.gaps == pytest.approx([float(step.square().sum())])
    assert ended.gaps[0] > 1e-6


def test_without_tolerance_a_run_takes_all_its_iterations() -> None:
    known = interior(generator(1))
    ended = run(known.problems, known.answer, known.settings, Stopping(iterations=3))
    assert ended.solution.stopped is Stopped.ITERATIONS
    assert len(ended.gaps) == 3
    assert max(ended.gaps) < 1e-20  # the answer is a place of rest


def test_a_run_ends_when_its_time_is_up() -> None:
    known = interior(generator(1))
    settings = replace(known.settings, steps=1)
    ended = run(known.problems, known.start(generator(5)), settings, Stopping(iterations=10**9, seconds=0.2))
    seconds = [row.seconds for row in ended.solution.history]
    assert ended.solution.stopped is Stopped.TIME
    assert seconds[-1] >= 0.2 > max(seconds[:-1], default=0.0)


# Lemma 1 and Theorem 2.


def test_lemma_1_holds_in_each_iteration() -> None:
    ended, onto, eta = smooth(iterations=60)
    ratios = lemma_ratios(ended, onto, eta)
    assert len(ratios) == 60
    assert max(ratios) <= 1
    assert min(ratios) > 0.01  # the workers do differ, so that the bound has something to bound


@each_case
def test_lemma_1_holds_at_the_edge_of_the_sets_too(make: Callable[[Generator], Known]) -> None:
    known = make(generator(1))
    ended = run(known.problems, known.start(generator(6)), known.settings, Stopping(iterations=15))
    assert max(lemma_ratios(ended, known.problems[0].sets.W, known.settings.eta.w)) <= 1


@pytest.mark.parametrize("local_rounds", [1, 2, 5])
def test_traffic_is_4_d_floats_per_worker_and_exchange(local_rounds: int) -> None:
    iterations = 10
    ended, _, _ = smooth(iterations, local_rounds)
    d = ended.solution.w.numel()
    assert ended.solution.history[-1].iteration == iterations
    assert ended.traffic.floats_per_worker == 4 * d * iterations / local_rounds
    assert ended.traffic.down.floats == ended.traffic.up.floats


def test_local_rounds_still_reach_the_answer_where_workers_agree() -> None:
    known = interior(generator(1))
    stopping = Stopping(iterations=400, tolerance=1e-7)
    ended = run(known.problems, known.start(generator(7)), known.settings, stopping, local_rounds=2)
    assert ended.solution.stopped is Stopped.STATIONARY
    assert farthest(ended.points, known.answer) < 1e-3
