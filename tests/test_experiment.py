from __future__ import annotations

from pathlib import Path

import pytest
import torch

from f2cto.comparison import contender, picked
from f2cto.config import build, merged
from f2cto.experiment import choose, learned_nothing, picture
from f2cto.models import fresh
from f2cto.preparation import prepare
from f2cto.randomness import generator
from f2cto.run_settings import RunSettings


def rows(x: torch.Tensor) -> set[bytes]:
    return {sample.numpy().tobytes() for sample in x}


def test_validation_samples_are_never_test_samples() -> None:
    test = prepare(build(RunSettings, {"seed": 3}), Path())
    validation = prepare(build(RunSettings, {"seed": 3, "evaluation": {"part": "validation"}}), Path())
    assert validation.test is not None
    assert test.test is not None
    assert not rows(validation.test.x) & rows(test.test.x)
    assert not rows(validation.train.x) & rows(test.test.x)
    assert not rows(validation.train.x) & rows(validation.test.x)
    assert len(test.train) == len(validation.train) + len(validation.test) == 1258


def test_pictures() -> None:
    grey, colour = torch.rand(1, 4, 5, generator=torch.Generator()), torch.full((3, 4, 5), 2.0)
    shown = picture(grey)
    assert shown is not None
    assert shown.shape == (4, 5)
    coloured = picture(colour)
    assert coloured is not None
    assert coloured.shape == (4, 5, 3)
    assert coloured.max() == 1.0
    assert picture(torch.zeros(7)) is None


@pytest.mark.parametrize(
    ("change", "blind"),
    [
        ({"f2cto": {"proxy": {"step": 0.0, "hat_step": 0.0}, "stopping": {"iterations": 2}}}, True),
        ({"f2cto": {"proxy": {"step": 0.5, "hat_step": 1.0}, "stopping": {"iterations": 30}}}, False),
        ({"method": "herding"}, False),  # it trains nothing, and nothing is asked of it
    ],
)
def test_a_model_that_learned_nothing_is_known(change: dict[str, object], *, blind: bool) -> None:
    on = prepare(build(RunSettings, {"workers": 2, **change}), Path())
    assert learned_nothing(on, choose(on.settings.method, on, seed=0)) == blind


EASY = {
    "method": "easy",
    "workers": 2,
    "data": {"scenario": {"samples": 200}},
    "methods": {"easy": {"attack_steps": 2, "pretraining": {"rounds": 2}}},
}


def picks(changes: dict[str, object]) -> list[list[int]]:
    """What `easy` keeps; alone and in a comparison it is the same."""
    on = prepare(build(RunSettings, merged(EASY, changes)), Path())
    alone = [rows.tolist() for rows in choose("easy", on, seed=0).indices]
    proxy = fresh(on.network, generator(on.settings.seed, 1))
    assert picked(contender("easy"), on, [10, 10], proxy, seed=0).indices == alone
    return alone


@pytest.mark.parametrize("radius", [0.0, 0.3])
def test_no_method_is_attacked_as_another_ones_settings_say(radius: float) -> None:
    """Such as the upper-bilevel variant of F2CTO, which has no attacks on training."""
    assert picks({"f2cto": {"perturbation": {"train_radius": radius}}}) == picks({})


def test_models_are_attacked_alike_where_they_choose_and_where_they_are_judged() -> None:
    far = picks({"evaluation": {"radius": 0.3}})
    assert far != picks({})
    assert far == picks({"evaluation": {"radius": 0.1}, "selection_radius": 0.3})
