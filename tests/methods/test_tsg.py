from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from f2cto.constraints import LinfBall
from f2cto.hypergradient.method import lower_steps, start, step
from f2cto.hypergradient.problem import Point
from f2cto.message import Message
from f2cto.methods.base import Given, Shard
from f2cto.methods.running import run
from f2cto.methods.tsg import Levels, Softness, Tsg, TsgSettings, TsgState
from f2cto.trilevel.master import DivergedError
from testing.shards import federation

SHORT = TsgSettings(iterations=3)


def made(settings: TsgSettings, shards: list[Shard]) -> Tsg:
    return Tsg(settings, Given(shards[0].model.own()))


def states(method: Tsg, shards: list[Shard]) -> list[TsgState]:
    """The workers' states after a run."""
    kept = [method.start(shard) for shard in shards]

    def ask(phase: str, message: Message) -> list[Message]:
        replies = []
        for i, shard in enumerate(shards):
            kept[i], reply = method.run(phase, shard, kept[i], message)
            replies.append(reply)
        return replies

    method.lead(ask, method.given.w, lambda _: None)
    return kept


def centralised(method: Tsg, shard: Shard, iterations: int) -> Point:
    """The hypergradient method on one shard, without any federation."""
    how, even = method.solver_settings(shard), torch.full((len(shard.y),), 1 / len(shard.y))
    zeros = torch.zeros_like(shard.x)
    state = start(Point(even, method.given.w, (zeros, zeros)), how)
    for t in range(iterations):
        state = step(method.problem(shard, t), state, how)
    return state.at


def test_one_worker_is_the_centralised_method() -> None:
    shards = federation(workers=1)
    method = made(SHORT, shards)
    (state,) = states(method, shards)
    expected = centralised(method, shards[0], 3)
    assert torch.equal(state.alpha, expected.x)
    assert torch.equal(state.p, expected.z[0])
    assert torch.equal(state.q, expected.z[1])


def test_workers_with_the_same_data_are_the_centralised_method_too() -> None:
    first = federation(workers=1)[0]
    shards = [replace(first, worker=i) for i in range(3)]
    method = made(SHORT, shards)
    expected = centralised(method, first, 3)
    for state in states(method, shards):
        torch.testing.assert_close(state.alpha, expected.x)


def test_an_iteration_sends_the_parameters_down_and_up() -> None:
    shards = federation()
    result = run(made(SHORT, shards), shards, shards[0].model.own())
    assert result.traffic.floats_per_worker == 3 * 2 * shards[0].model.size
    assert [row.iteration for row in result.solution.history] == [1, 2, 3]
    assert result.solution.history[-1].objective < result.solution.history[0].objective


def test_the_master_averages_over_workers() -> None:
    shards = federation(workers=2)
    method = made(TsgSettings(iterations=1), shards)
    steps = [
        method.run("iterate", shard, method.start(shard), Message({"w": method.given.w}))[1].vectors["w"]
        for shard in shards
    ]
    assert not torch.equal(*steps)
    torch.testing.assert_close(run(method, shards, method.given.w).solution.w, (steps[0] + steps[1]) / 2)


def test_a_run_that_leaves_the_numbers_says_so() -> None:
    shards = federation(workers=1)
    with pytest.raises(DivergedError, match="TSG left the numbers in iteration 1; lower its steps"):
        run(made(TsgSettings(iterations=3, levels=Levels(middle=1e30)), shards), shards, shards[0].model.own())


def test_the_largest_weights_of_each_class_are_kept() -> None:
    shard = federation()[0]
    alpha = torch.linspace(-1, 1, len(shard.y))  # unconstrained: some are negative
    zeros = torch.zeros_like(shard.x)
    coreset = made(SHORT, [shard]).coreset(shard, TsgState(0, alpha, zeros, zeros))
    for c, places in enumerate(shard.places().tolist()):
        members = (shard.y == c).nonzero().flatten()
        kept = {k for k in coreset.indices.tolist() if int(shard.y[k]) == c}
        assert kept == set(members[-places:].tolist())


def test_negative_weights_do_not_come_back() -> None:
    shard = federation(size=24)[0]
    zeros = torch.zeros_like(shard.x)
    coreset = made(SHORT, [shard]).coreset(shard, TsgState(0, torch.linspace(-1, 1, 24), zeros, zeros))
    assert float(coreset.weights.min()) == 0
    assert float(coreset.weights.sum()) == pytest.approx(1)


@pytest.mark.parametrize("project", [True, False])
def test_sets_are_kept_only_if_asked_for(project: bool) -> None:  # noqa: FBT001
    shards = federation(workers=2)
    levels = Levels(upper=5.0, lower_steps=5)
    method = made(TsgSettings(iterations=5, levels=levels, softness=Softness(attack=20.0), project=project), shards)
    ended = states(method, shards)
    sums = [abs(float(state.alpha.sum()) - 1) < 1e-5 and float(state.alpha.min()) >= 0 for state in ended]
    balls = [LinfBall(0.1).contains(state.p) and LinfBall(0.1).contains(state.q) for state in ended]
    assert sums == balls == [project] * 2


def test_attacks_are_as_long_as_their_softness_says() -> None:
    """For a small attack p = alpha/c grad l, and alpha = 1/M, c = 1/(M length): p = length grad l."""
    shard = federation(workers=1)[0]
    method = made(TsgSettings(levels=Levels(lower_steps=40), softness=Softness(attack=1e-3)), [shard])
    at = Point(method.start(shard).alpha, method.given.w, (torch.zeros_like(shard.x),) * 2)
    p, q = lower_steps(method.problem(shard, 0), at, method.solver_settings(shard))
    expected = 1e-3 * 0.1 * 6**0.5 * input_gradient(shard, method.given.w)
    torch.testing.assert_close(p, expected, rtol=1e-2, atol=1e-7)
    torch.testing.assert_close(q, expected, rtol=1e-2, atol=1e-7)


def input_gradient(shard: Shard, w: Tensor) -> Tensor:
    x = shard.x.clone().requires_grad_()
    return torch.autograd.grad(shard.model.losses(w, x, shard.y).sum(), x)[0]


def test_mislabelled_samples_lose_weight() -> None:
    shard = federation(workers=1, count=60)[0]
    wrong = torch.arange(60) < 12
    y = torch.where(wrong, (shard.y + 1) % 3, shard.y)
    method = made(TsgSettings(iterations=25, levels=Levels(middle=0.5, lower_steps=1)), [shard])
    (state,) = states(method, [replace(shard, y=y)])
    assert float(state.alpha[wrong].mean()) < float(state.alpha[~wrong].mean())
    assert float((state.alpha[wrong] < state.alpha.median()).double().mean()) > 0.8


def test_the_top_k_term_pulls_weights_up() -> None:
    shards = federation(workers=1)
    without, within = (states(made(replace(SHORT, topk=topk), shards), shards)[0].alpha.sum() for topk in (0.0, 5.0))
    assert float(within) > float(without)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: TsgSettings(iterations=0), "iterations >= 1 and draws >= 1; got 0 and 16"),
        (lambda: Softness(attack=0.0), "an attack of length > 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: object, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        make()  # type: ignore[operator]


def test_an_unknown_phase_is_named() -> None:
    shard = federation()[0]
    method = made(SHORT, [shard])
    with pytest.raises(ValueError, match="TSG knows the phase `iterate`; got `refine`"):
        method.run("refine", shard, method.start(shard), Message())
