"""The fast form against the readable one: float64, all state after 20 iterations, every combination of settings."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from f2cto.federation.in_process import InProcess
from f2cto.federation.joint import Joint, in_this_process
from f2cto.methods.base import Shard
from f2cto.methods.f2cto_settings import (
    F2ctoSettings,
    Form,
    Perturbation,
    Proxy,
    StepRule,
    Weighting,
    WeightRule,
)
from f2cto.methods.f2cto_stages import Team
from f2cto.methods.lockstep import F2cto
from f2cto.methods.screening import Screening
from f2cto.trilevel.coreset import Blocks, RobustCoreset, TopK
from f2cto.trilevel.program import Stage, TrilevelProgram
from f2cto.trilevel.settings import Penalties, Start, Stopping
from f2cto.trilevel.slopes import Readable
from f2cto.trilevel.worker import Heard, WorkerState, start, update
from testing.shards import federation


def shards() -> list[Shard]:
    small = federation(workers=1, count=12, size=3)
    return [replace(shard, x=shard.x.double()) for shard in small]


def final_states(method: F2cto, *, readable: bool, **changes: object) -> list[WorkerState]:
    """What a run of Algorithm 1 ends with; `changes` are to the problem, which is not cut in parts otherwise."""
    stages = method.stages()

    def stage(team: Team, t: int, heard: Heard) -> Stage:
        made = stages(team, t, heard)
        assert isinstance(made.problem, RobustCoreset)
        problem = replace(made.problem, **{"chunk": 0, **changes})  # type: ignore[arg-type]
        return replace(made, problem=Readable(problem) if readable else problem)

    teams = [Team((shard,)) for shard in shards()]
    engine = InProcess(TrilevelProgram[Team](stage, stages.initial, method.settings.local_rounds), teams)
    method.lead_from(engine.ask, shards()[0].model.own().double(), lambda _: None, lambda _: None)  # Algorithm 1 alone
    return engine.states


def same(one: list[WorkerState], two: list[WorkerState]) -> None:
    for a, b in zip(one, two, strict=True):
        for x, y in zip(tensors(a), tensors(b), strict=True):
            torch.testing.assert_close(x, y, rtol=0, atol=1e-9)


def tensors(s: WorkerState) -> list[Tensor]:
    r = s.refined
    return [s.at.alpha, s.at.q, s.at.w, s.at.p, r.p_star, r.q_star, r.w_hat, r.p_hat]


PENALTIES = Penalties(2.0, 1.5, 3.0, 2.0)
LETTER, LOCK_STEP = (1, False), (4, True)
COMBINATIONS = {
    f"{form}, {rule}, {start}, radius {radius}, sync {sync[0]}, rounds {rounds}": (
        form,
        rule,
        start,
        radius,
        sync,
        rounds,
    )
    for form, rule, start, radius, sync, rounds in product(
        Form, StepRule, Start, [0.1, 0.05], [LETTER, LOCK_STEP], [1, 2]
    )
}


@pytest.mark.parametrize("values", COMBINATIONS.values(), ids=COMBINATIONS)
def test_fast_is_readable(values: tuple[Form, StepRule, Start, float, tuple[int, bool], int]) -> None:
    form, rule, start, radius, (sync, waits), rounds = values
    settings = F2ctoSettings(
        # What does not touch the passes goes along with what does, so that every value is met.
        weighting=Weighting(draws=5, classwise=waits, rule=WeightRule.PLAIN if waits else WeightRule.STANDARDISED),
        proxy=Proxy(sync_every=sync, waits=waits, sums=rounds == 2, step=0.02, hat_step=0.04),
        perturbation=Perturbation(0.1, radius, steps=2, rule=rule, start=start, ramp=3, form=form),
        penalties=PENALTIES,
        stopping=Stopping(iterations=20),
        local_rounds=rounds,
    )
    method = F2cto(settings, radius=9.0)
    same(final_states(method, readable=True), final_states(method, readable=False))


HAT_STEPS = [1, 2, 4, 8, 10]


def with_hat_steps(hat_steps: int) -> F2cto:
    return F2cto(F2ctoSettings(proxy=Proxy(hat_steps=hat_steps), stopping=Stopping(iterations=12)), radius=9.0)


@pytest.mark.parametrize("hat_steps", HAT_STEPS)
def test_fast_is_readable_for_every_number_of_steps_of_w_hat(hat_steps: int) -> None:
    method = with_hat_steps(hat_steps)
    same(final_states(method, readable=True), final_states(method, readable=False))


@pytest.mark.parametrize("hat_steps", HAT_STEPS)
def test_what_else_is_in_memory_changes_no_bit(hat_steps: int) -> None:
    """Tensors that nobody asked for take the places in memory, hence the ids, of those that are no longer needed."""
    method, evaluate, held = with_hat_steps(hat_steps), shards()[0].model.evaluate, list[Tensor]()

    def crowded(w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        held.extend(torch.zeros(3) for _ in range(7))
        return evaluate(w, x, y)

    alone, beside = (final_states(method, readable=False, evaluate=e) for e in (evaluate, crowded))
    for a, b in zip(alone, beside, strict=True):
        assert all(map(torch.equal, tensors(a), tensors(b)))


def test_no_third_level() -> None:
    settings = F2ctoSettings(perturbation=Perturbation(train_radius=0.0), stopping=Stopping(iterations=20))
    method = F2cto(settings, radius=9.0)
    same(final_states(method, readable=True), final_states(method, readable=False))


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("chunk", [1, 5, 12])
@pytest.mark.parametrize("keeps_graphs", [False, True])
def test_chunks_change_nothing(form: Form, chunk: int, keeps_graphs: bool) -> None:  # noqa: FBT001
    settings = F2ctoSettings(
        perturbation=Perturbation(form=form, ramp=0), penalties=PENALTIES, stopping=Stopping(iterations=12)
    )
    method = F2cto(settings, radius=9.0)
    parts = final_states(method, readable=False, chunk=chunk, keeps_graphs=keeps_graphs)
    same(final_states(method, readable=False), parts)


def test_screening() -> None:
    """What is heard, who is set aside by it and all that follows are the same in both forms."""
    settings = F2ctoSettings(screening=Screening(rounds=6, since=2, least=0.2), stopping=Stopping(iterations=20))
    method = F2cto(settings, radius=2.0)
    one, two = final_states(method, readable=True), final_states(method, readable=False, chunk=5)
    same(one, two)
    for a, b in zip(one, two, strict=True):
        assert a.heard.times == b.heard.times == 4
        torch.testing.assert_close(a.heard.total, b.heard.total, rtol=0, atol=1e-9)


def test_frozen_alpha() -> None:
    method = F2cto(F2ctoSettings(weighting=Weighting(frozen=True), stopping=Stopping(iterations=12)), radius=9.0)
    same(final_states(method, readable=True), final_states(method, readable=False))


@pytest.mark.parametrize("classwise", [False, True])
def test_topk_by_one_sort(classwise: bool) -> None:  # noqa: FBT001
    method = F2cto(F2ctoSettings(weighting=Weighting(classwise=classwise)), radius=9.0)
    shard = shards()[0]
    problem = method.stages()(Team((shard,)), 3).problem
    assert isinstance(problem, RobustCoreset)
    alpha = torch.rand(12, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    value = problem.topk(alpha)
    torch.testing.assert_close(problem.topk.value(alpha.detach()), value.detach(), rtol=1e-12, atol=0)
    (slope,) = torch.autograd.grad(value, alpha)
    torch.testing.assert_close(problem.topk.inclusion(alpha.detach()), slope, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("sizes", [[2, 5, 0, 1], [3, 3, 3, 3], [1, 0, 0, 4]])
def test_topk_by_one_sort_where_blocks_have_unequal_places(sizes: list[int]) -> None:
    groups = torch.arange(24) % 4
    noise = 0.1 * torch.randn(7, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    topk = TopK(0.3, Blocks(groups, torch.tensor(sizes)), lambda: noise)
    alpha = torch.rand(24, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    value = topk(alpha)
    (slope,) = torch.autograd.grad(value, alpha)
    torch.testing.assert_close(topk.value(alpha.detach()), value.detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(topk.inclusion(alpha.detach()), slope, rtol=1e-12, atol=1e-15)


def test_passes_are_counted_as_the_equations_need_them() -> None:
    """Exact form: R input gradients, w^'s step, one pass at w (for alpha, w and the accuracy), one at w^."""
    calls: list[tuple[int, bool]] = []
    method = F2cto(F2ctoSettings(stopping=Stopping(iterations=2)), radius=9.0)
    stages = method.stages()

    def counting(team: Team, t: int, heard: Heard) -> Stage:
        made = stages(team, t, heard)
        assert isinstance(made.problem, RobustCoreset)
        inner = made.problem.evaluate

        def evaluate(w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            calls.append((len(x), torch.is_grad_enabled()))
            return inner(w, x, y)

        return replace(made, problem=replace(made.problem, evaluate=evaluate))

    team = Team(tuple(shards()))
    engine = InProcess(TrilevelProgram[Team](counting, stages.initial), [team])
    method.lead_from(engine.ask, team.shards[0].model.own().double(), lambda _: None, lambda _: None)
    first, second = calls[:4], calls[4:]
    assert first == [(12, True)] * 3 + [(12, True)]  # synchronised, w^ rests and is w: its pass is known
    assert second == [(12, True)] * 3 + [(12, True)] + [(12, True), (12, False)]


@pytest.mark.parametrize("settings", [F2ctoSettings(), F2ctoSettings(weighting=Weighting(classwise=False))])
def test_a_team_is_its_workers(settings: F2ctoSettings) -> None:
    """Three workers of different size as one, against each on its own: the same states after 20 iterations."""
    three = [
        replace(shard, x=shard.x[: 9 + i].double(), y=shard.y[: 9 + i])
        for i, shard in enumerate(federation(workers=3, count=12, size=4))
    ]
    method = F2cto(replace(settings, stopping=Stopping(iterations=20)), radius=99.0)
    joint, apart = in_this_process(method.program(), three), InProcess(method.program(), three)
    assert isinstance(joint, Joint)
    w = three[0].model.own().double()
    one, two = (method.lead(engine.ask, w, lambda _: None) for engine in (joint, apart))
    torch.testing.assert_close(one.w, two.w, rtol=0, atol=1e-9)
    same([state for state in joint.states if isinstance(state, WorkerState)], apart.states)
    for a, b in zip(one.history, two.history, strict=True):
        assert a.gap == pytest.approx(b.gap, rel=1e-6)
        assert a.objective == pytest.approx(b.objective, rel=1e-9)
    assert vars(joint.traffic.down) == vars(apart.traffic.down)
    assert vars(joint.traffic.up) == vars(apart.traffic.up)


@pytest.mark.parametrize("frozen", [False, True])
def test_the_accuracy_reported_is_that_of_w(frozen: bool) -> None:  # noqa: FBT001
    """Not that of w^, whose pass may come first where alpha does not move."""
    shard = shards()[0]
    w = shard.model.own().double()
    right = shard.model.logits(w, shard.x).argmax(dim=1)  # labels that w gets right, so that its accuracy is 1
    team = Team((replace(shard, y=right),))
    method = F2cto(F2ctoSettings(weighting=Weighting(frozen=frozen)), radius=9.0)
    stage = method.stages()(team, 5)
    state = start(stage.problem, method.stages().initial(team))
    state = replace(state, t=5, at=replace(state.at, w=w))
    elsewhere = torch.zeros_like(w)
    elsewhere[-3:] = torch.where(torch.bincount(right, minlength=3) == torch.bincount(right).max(), -9.0, 0.0)
    done = update(stage.problem, state, elsewhere, stage.settings)
    assert done.metrics == {"robust_accuracy": 1.0}
