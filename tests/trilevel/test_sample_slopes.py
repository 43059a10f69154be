"""The fast form against the readable one: float64, all state after 20 iterations, every combination of settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import pytest
import torch
from torch import Tensor

from f2cto.federation.in_process import InProcess
from f2cto.selectors.base import Shard
from f2cto.selectors.f2cto import F2cto
from f2cto.selectors.f2cto_settings import F2ctoSettings, Form, Perturbation, Proxy, StepRule, Weighting, WeightRule
from f2cto.trilevel.coreset import RobustCoreset
from f2cto.trilevel.problem import Sets
from f2cto.trilevel.program import Stage, TrilevelProgram
from f2cto.trilevel.settings import Penalties, Start, Stopping
from f2cto.trilevel.worker import WorkerState
from testing.shards import federation


@dataclass(frozen=True, eq=False)
class Readable:
    """A problem that hides its short way, so that the solver goes by the definitions."""

    problem: RobustCoreset

    @property
    def sets(self) -> Sets:
        return self.problem.sets

    def f1(self, alpha: Tensor, q: Tensor, w: Tensor, p: Tensor) -> Tensor:
        return self.problem.f1(alpha, q, w, p)

    def f2_eval(self, alpha: Tensor, q: Tensor, w: Tensor) -> Tensor:
        return self.problem.f2_eval(alpha, q, w)

    def f2_train(self, alpha: Tensor, w: Tensor, p: Tensor) -> Tensor:
        return self.problem.f2_train(alpha, w, p)

    def f3(self, alpha: Tensor, w: Tensor, p: Tensor) -> Tensor:
        return self.problem.f3(alpha, w, p)


def shards() -> list[Shard]:
    small = federation(workers=1, count=12, size=3)
    return [replace(shard, x=shard.x.double()) for shard in small]


def final_states(method: F2cto, *, readable: bool, chunk: int = 0) -> list[WorkerState]:
    def stage(shard: Shard, t: int) -> Stage:
        made = method.stage(shard, t)
        assert isinstance(made.problem, RobustCoreset)
        problem = replace(made.problem, chunk=chunk)
        return replace(made, problem=Readable(problem) if readable else problem)

    engine = InProcess(TrilevelProgram[Shard](stage, method.initial, method.settings.local_rounds), shards())
    method.lead(engine.ask, shards()[0].model.own().double(), lambda _: None)
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


def test_no_third_level() -> None:
    settings = F2ctoSettings(perturbation=Perturbation(train_radius=0.0), stopping=Stopping(iterations=20))
    method = F2cto(settings, radius=9.0)
    same(final_states(method, readable=True), final_states(method, readable=False))


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("chunk", [1, 5, 12])
def test_chunks_change_nothing(form: Form, chunk: int) -> None:
    settings = F2ctoSettings(
        perturbation=Perturbation(form=form, ramp=0), penalties=PENALTIES, stopping=Stopping(iterations=12)
    )
    method = F2cto(settings, radius=9.0)
    same(final_states(method, readable=False), final_states(method, readable=False, chunk=chunk))


def test_frozen_alpha() -> None:
    method = F2cto(F2ctoSettings(weighting=Weighting(frozen=True), stopping=Stopping(iterations=12)), radius=9.0)
    same(final_states(method, readable=True), final_states(method, readable=False))


@pytest.mark.parametrize("classwise", [False, True])
def test_topk_by_one_sort(classwise: bool) -> None:  # noqa: FBT001
    method = F2cto(F2ctoSettings(weighting=Weighting(classwise=classwise)), radius=9.0)
    shard = shards()[0]
    problem = method.stage(shard, 3).problem
    assert isinstance(problem, RobustCoreset)
    alpha = torch.rand(12, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    value = problem.topk(alpha)
    torch.testing.assert_close(problem.topk.value(alpha.detach()), value.detach(), rtol=1e-12, atol=0)
    (slope,) = torch.autograd.grad(value, alpha)
    torch.testing.assert_close(problem.topk.inclusion(alpha.detach()), slope, rtol=1e-12, atol=1e-15)


def test_passes_are_counted_as_the_equations_need_them() -> None:
    """Exact form: R input gradients, w^'s step, one pass at w (for alpha, w and the accuracy), one at w^."""
    calls: list[tuple[int, bool]] = []
    shard = shards()[0]
    method = F2cto(F2ctoSettings(), radius=9.0)
    program = method.program()

    def counting_stage(s: Shard, t: int) -> Stage:
        made = method.stage(s, t)
        assert isinstance(made.problem, RobustCoreset)
        inner = made.problem.evaluate

        def evaluate(w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            calls.append((len(x), torch.is_grad_enabled()))
            return inner(w, x, y)

        return replace(made, problem=replace(made.problem, evaluate=evaluate))

    counted = replace(program, stage=counting_stage)
    engine = InProcess(counted, [shard])
    method = replace(method, settings=replace(method.settings, stopping=Stopping(iterations=2)))
    method.lead(engine.ask, shard.model.own().double(), lambda _: None)
    first, second = calls[:5], calls[5:]
    assert first == [(12, True)] * 3 + [(12, True), (12, False)]  # w^ rests when it is synchronised
    assert second == [(12, True)] * 3 + [(12, True)] + [(12, True), (12, False)]
