from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from f2cto.config import plain
from f2cto.federation.in_process import InProcess
from f2cto.methods.f2cto_settings import (
    Choice,
    F2ctoSettings,
    Form,
    Perturbation,
    StepRule,
    Unit,
    WeightRule,
)
from f2cto.methods.lockstep import CoresetProgram, F2cto
from f2cto.methods.running import run
from f2cto.methods.screening import Screening
from f2cto.methods.variants import largest, literal, lower_bilevel, periodic, placed, upper_bilevel
from f2cto.trilevel.settings import Stopping
from f2cto.trilevel.worker import WorkerState
from testing.shards import federation

SETTINGS = F2ctoSettings(stopping=Stopping(iterations=10), perturbation=Perturbation(ramp=2))


def ended(settings: F2ctoSettings) -> list[WorkerState]:
    """The workers' states after a run, each worker on its own."""
    shards, method = federation(), F2cto(settings, radius=5.0)
    engine = InProcess(CoresetProgram(method.stages(), together=False), shards)
    method.lead(engine.ask, shards[0].model.own(), lambda _: None)
    return engine.states


def changed(after: dict[str, Any], before: dict[str, Any], path: str = "") -> set[str]:
    """The keys of the settings that differ."""
    keys = set[str]()
    for key, value in before.items():
        if isinstance(value, dict):
            keys |= changed(after[key], value, f"{path}{key}.")
        elif after[key] != value:
            keys.add(path + key)
    return keys


@pytest.mark.parametrize(
    ("variant", "keys"),
    [
        (upper_bilevel, {"perturbation.train_radius"}),
        (lower_bilevel, {"weighting.frozen", "choice"}),
        (periodic, {"local_rounds"}),
        (placed, {"weighting.frozen"}),
        (largest, {"choice"}),
    ],
)
def test_a_variant_changes_what_it_is_about_and_nothing_else(
    variant: Callable[[F2ctoSettings], F2ctoSettings], keys: set[str]
) -> None:
    assert changed(plain(variant(SETTINGS)), plain(SETTINGS)) == keys


def test_the_upper_variant_attacks_evaluation_and_not_training() -> None:
    for state in ended(upper_bilevel(SETTINGS)):
        assert not bool(state.refined.p_star.any())
        assert float(state.refined.q_star.abs().max()) == pytest.approx(0.1)


def test_the_lower_variant_leaves_weights_where_they_were() -> None:
    shards = federation()
    method = F2cto(lower_bilevel(SETTINGS), radius=5.0)
    for state, shard in zip(ended(lower_bilevel(SETTINGS)), shards, strict=True):
        assert torch.equal(state.at.alpha, method.program().start(shard).at.alpha)
        assert bool(state.refined.p_star.any())  # the third level is there


def test_the_largest_weights_are_those_of_all_samples() -> None:
    screened = replace(SETTINGS, screening=Screening(rounds=4, since=1))
    assert largest(screened) == largest(SETTINGS)
    assert placed(screened).screening == screened.screening


def test_the_periodic_variant_talks_a_fifth_as_often() -> None:
    shards = federation()
    w = shards[0].model.own()
    settings = replace(periodic(SETTINGS), choice=Choice.AVERAGE)  # reading is not of the iterations
    result = run(F2cto(settings, radius=5.0), shards, w)
    assert result.solution.history[-1].iteration == 10
    assert result.traffic.floats_per_worker == 4 * len(w) * 10 / 5


def test_the_periodic_variant_keeps_a_period_that_was_set() -> None:
    assert periodic(replace(SETTINGS, local_rounds=3)).local_rounds == 3


def test_the_letter_has_the_printed_numbers() -> None:
    """The row P-MNIST of the paper's table of settings."""
    letter = literal(SETTINGS)
    assert (letter.weighting.step, letter.weighting.unit) == (2e-2, Unit.ABSOLUTE)  # eta_alpha
    assert letter.perturbation.step == 8e-3  # eta_q, eta_p
    assert letter.proxy.step == letter.proxy.hat_step == 5e-3  # eta_w
    assert letter.proxy.radius == 5  # c_2
    assert (letter.perturbation.steps, letter.proxy.hat_steps) == (10, 1)  # R, R^


def test_the_letter_has_the_printed_equations() -> None:
    letter = literal(lower_bilevel(SETTINGS))
    assert (letter.perturbation.rule, letter.weighting.rule) == (StepRule.PLAIN, WeightRule.PLAIN)
    assert letter.perturbation.form is Form.PENALTY
    assert (letter.proxy.sync_every, letter.proxy.waits) == (1, False)
    assert not letter.weighting.classwise
    assert not letter.weighting.frozen
    assert letter.choice is Choice.TOP
    assert letter.perturbation.ramp == 0


def test_the_letter_leaves_what_is_not_printed() -> None:
    ours = replace(
        SETTINGS,
        weighting=replace(SETTINGS.weighting, topk=0.7, noise=0.2, draws=9),
        perturbation=Perturbation(eval_radius=0.03, train_radius=0.04),
    )
    letter = literal(ours)
    assert letter.stopping == ours.stopping
    assert (letter.weighting.topk, letter.weighting.noise, letter.weighting.draws) == (0.7, 0.2, 9)
    assert (letter.perturbation.eval_radius, letter.perturbation.train_radius) == (0.03, 0.04)


def test_the_letter_does_not_diverge() -> None:
    """Its steps are short: over 40 iterations the loss moves, and never upwards by much."""
    shards = federation(workers=2, count=60)
    settings = literal(replace(SETTINGS, stopping=Stopping(iterations=40)))
    history = run(F2cto(settings, radius=5.0), shards, shards[0].model.own()).solution.history
    values = [row.objective for row in history]
    assert all(map(math.isfinite, values))
    assert max(b - a for a, b in pairwise(values)) < 0.05
    assert values[-1] < values[0]
