"""Training that does not collapse, and what is said of one that does."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from f2cto.attacks import Pgd
from f2cto.attacks.base import Range
from f2cto.data.dataset import LabelledData
from f2cto.descent import gradient
from f2cto.evaluation import Evaluation, Judge
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from f2cto.training import FORMER, Portion, Training, _batches, clipped, collapsed, train_robust
from testing.shards import blobs

ATTACK = Pgd(0.05, 2)
WILD: dict[str, Any] = {"steps": 40, "rate": 200.0, "warm_up": 0.0, "clip": 0.0}  # diverges


def learner() -> FlatModel:
    return FlatModel(fresh(lambda: mlp(20, (16,), 3), generator(1)))


def trained(seed: int = 2, **settings: Any) -> tuple[Tensor, bool]:
    """Parameters after training on three classes, and whether they only guess."""
    x, y = blobs(90, 3, 1, (20,))
    model = learner()
    w = train_robust(model, model.own(), x, y, ATTACK, Training(**settings), generator(seed))
    return w, collapsed(model, w, Portion(x, y, 1))


def test_the_rate_grows_and_then_falls_by_a_cosine() -> None:
    settings = Training(steps=4, rate=0.8, warm_up=0.5)
    # Half of the height, then all of it; the cosine: 1, (1 + sqrt(1/2)) / 2, 1/2, (1 - sqrt(1/2)) / 2.
    expected = [0.4, 0.8 * 0.853553, 0.4, 0.8 * 0.146447]
    assert [settings.rate_at(number) for number in range(4)] == pytest.approx(expected, abs=1e-6)
    assert Training(steps=4, rate=0.8, warm_up=0.0).rate_at(0) == 0.8


def test_long_gradients_are_shortened_and_keep_their_direction() -> None:
    long = torch.tensor([3.0, -4.0])
    assert clipped(long, 1.0).tolist() == pytest.approx([0.6, -0.8])
    for most in (5.0, 10.0, 0.0):
        assert torch.equal(clipped(long, most), long)
    assert torch.equal(clipped(torch.zeros(2), 1.0), torch.zeros(2))


def test_no_step_is_longer_than_rate_times_clip() -> None:
    w, _ = trained(steps=1, rate=0.5, warm_up=0.0, clip=0.01, restarts=0)
    assert float((w - learner().own()).norm()) == pytest.approx(0.5 * 0.01, rel=1e-4)


def test_warm_up_shortens_the_first_of_two_steps() -> None:
    # Of two steps of warm-up the first is half as long; without momentum and clipping nothing else differs.
    settings: dict[str, Any] = {"steps": 2, "momentum": 0.0, "attack_steps": 0, "clip": 0.0, "restarts": 0}
    model, (x, y) = learner(), blobs(50, 3, 1, (20,))
    start, still = model.own(), Pgd(0.0, 0, random_start=False)
    slope = partial(gradient, lambda w: model.losses(w, x, y).mean())
    for share in (0.5, 1.0):  # of the rate in the first step; in the second, the cosine halves the rate
        w = start - 0.1 * share * slope(start)
        expected = w - 0.1 * 0.5 * slope(w)
        how = Training(**settings, warm_up=1.0 if share < 1 else 0.0)
        assert torch.allclose(train_robust(model, start, x, y, still, how, generator(2)), expected, atol=1e-6)


def test_the_former_recipe_can_still_be_had_to_the_bit() -> None:
    x, y = blobs(90, 3, 1, (20,))
    model, rng, steps = learner(), generator(2), 7
    w = model.own()
    velocity = torch.zeros_like(w)
    for number, rows in enumerate(_batches(90, 50, steps, rng)):
        growth = min(1.0, (number + 1) / (0.2 * steps))
        attack = Pgd(ATTACK.radius * growth, ATTACK.steps, ATTACK.step * growth)
        attacked = attack.perturb(lambda v, w=w: model.logits(w, v), x[rows], y[rows], rng)  # type: ignore[misc]
        leaf = w.clone().requires_grad_()
        (slope,) = torch.autograd.grad(cross_entropy(model.logits(leaf, attacked), y[rows]), leaf)
        velocity = 0.9 * velocity + slope
        w = w - 0.1 * 0.5 * (1 + math.cos(math.pi * number / steps)) * velocity
    found, _ = trained(steps=steps, precision="full", **FORMER)
    assert torch.equal(found, w)


def linear(weight: list[list[float]], bias: list[float]) -> tuple[FlatModel, Tensor]:
    model = FlatModel(fresh(lambda: nn.Linear(len(weight[0]), len(bias)), generator(0)))
    return model, torch.tensor([number for row in weight for number in row] + bias)


X = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [0.1, 1.0]])
Y = torch.tensor([0, 1, 0, 1])
LEARNED = [[2.0, 0.0], [0.0, 2.0]]


@pytest.mark.parametrize(
    ("weight", "bias", "fell"),
    [
        (LEARNED, [0.0, 0.0], False),
        (LEARNED, [0.0, math.nan], True),
        (LEARNED, [math.inf, 0.0], True),
        ([[0.0, 0.0], [0.0, 0.0]], [0.1, 0.0], True),  # the same answer for all
        ([[0.5, 0.0], [0.0, 0.5]], [1.0, 0.0], True),  # the same answer for all, at a loss of 0.62, below log 2
        ([[0.0, 2.0], [2.0, 0.0]], [0.0, 0.0], True),  # two answers, at a loss of 2, above log 2
    ],
)
def test_a_model_that_only_guesses_is_told_from_one_that_learned(
    weight: list[list[float]], bias: list[float], *, fell: bool
) -> None:
    assert collapsed(*linear(weight, bias), Portion(X, Y, 1)) is fell


def test_chance_is_among_the_outputs_in_play() -> None:
    # Two answers at a loss of about 1.0: more than log 2, less than log 4.
    model, w = linear([[0.0, 0.6], [0.6, 0.0], [-9.0, -9.0], [-9.0, -9.0]], [0.0, 0.0, 0.0, 0.0])
    two = torch.tensor([[True, True, False, False]]).expand(4, -1)
    assert 0.9 < float(model.losses(w, X, Y).mean()) < math.log(4)
    assert not collapsed(model, w, Portion(X, Y, 1))
    assert collapsed(model, w, Portion(X, Y, 1, outputs=two))


def test_one_answer_is_right_where_there_is_one_class() -> None:
    model, w = linear([[0.0, 0.0], [0.0, 0.0]], [1.0, 0.0])
    assert not collapsed(model, w, Portion(X, torch.zeros(4, dtype=torch.long), 1))
    assert collapsed(model, w * math.nan, Portion(X, torch.zeros(4, dtype=torch.long), 1))


def test_a_training_that_diverges_is_rescued_by_halving_the_rate() -> None:
    fell = [trained(**WILD, restarts=restarts)[1] for restarts in range(13)]
    assert fell[0]
    assert not fell[-1]
    needed = fell.index(False)
    assert not any(fell[needed:])  # once rescued, further restarts are not made use of
    assert torch.equal(trained(**WILD, restarts=needed)[0], trained(**WILD, restarts=12)[0])
    assert needed >= 2  # half the rate is still too much


def test_a_rescued_training_is_the_same_each_time() -> None:
    assert torch.equal(trained(**WILD, restarts=12)[0], trained(**WILD, restarts=12)[0])


def test_a_training_that_learned_is_not_repeated() -> None:
    assert torch.equal(trained(steps=60, restarts=0)[0], trained(steps=60, restarts=5)[0])


def test_the_defaults_rescue_what_the_former_recipe_loses() -> None:
    for seed in (1, 2, 3):
        assert trained(seed, steps=40, rate=5.0, **FORMER)[1]
        assert not trained(seed, steps=40, rate=5.0)[1]


@pytest.mark.parametrize(("rate", "fell"), [(0.1, 0), (1e30, 2)])
def test_a_judge_counts_the_models_that_collapsed(rate: float, fell: int) -> None:
    data = LabelledData(*blobs(90, 3, 1, (20,)))
    how, judged = Training(steps=40, rate=rate), Evaluation(radius=0.05, pgd_steps=1)
    judge = Judge(lambda: mlp(20, (16,), 3), data, how, judged, Range(), 0)
    scores = judge.scores([data, data], lambda: None)
    assert {score.collapsed for score in scores.values()} == {fell}
    assert {score.draws for score in scores.values()} == {2}


@pytest.mark.parametrize("bad", [{"warm_up": 1.5}, {"warm_up": -0.1}, {"clip": -1.0}, {"restarts": -1}])
def test_senseless_settings_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Training needs warm_up"):
        Training(**bad)
