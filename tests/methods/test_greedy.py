from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from f2cto.config import SettingsError
from f2cto.methods.base import Given
from f2cto.methods.greedy import GreedySettings, Grown, Growth, Kernel, choose, grow, make, uses_features
from f2cto.methods.lifted import Pretraining
from f2cto.methods.ntk import Ntk
from f2cto.methods.quotas import quotas
from f2cto.methods.running import run
from f2cto.models import FlatModel, fresh
from f2cto.randomness import generator
from testing.shards import blobs, federation

COUNT, CLASSES = 12, 3


def points(count: int = 4, inputs: int = 5) -> Tensor:
    return torch.randn(count, inputs, generator=generator(2), dtype=torch.float64)


def test_one_hidden_layer_by_the_arc_cosine_formulas() -> None:
    """Without bias: T = |x||x'| J1(t) / 2 pi d + x.x' J0(t) / 2 pi d, J1 = sin t + (pi - t) cos t, J0 = pi - t."""
    x = points()
    found = Ntk(hidden=1, weight=1.0, bias=0.0)(x, x)
    for i, a in enumerate(x):
        for j, b in enumerate(x):
            lengths = float(a.norm() * b.norm())
            t = math.acos(min(1.0, max(-1.0, float(a @ b) / lengths)))
            first, zeroth = math.sin(t) + (math.pi - t) * math.cos(t), math.pi - t
            expected = (lengths * first + float(a @ b) * zeroth) / (2 * math.pi * len(a))
            assert float(found[i, j]) == pytest.approx(expected, rel=1e-6)


def wide_network_kernel(x: Tensor, kernel: Ntk, width: int, rng: Generator) -> Tensor:
    """Inner products of the parameter gradients of one random network."""
    sizes = [x.shape[1], *[width] * kernel.hidden, 1]
    weights = [torch.randn(n, m, generator=rng) for m, n in pairwise(sizes)]
    biases = [torch.randn(n, generator=rng) for n in sizes[1:]]
    parameters = [p.requires_grad_() for p in (*weights, *biases)]
    rows = []
    for sample in x.float():
        h = sample
        for layer, (w, b) in enumerate(zip(weights, biases, strict=True)):
            h = kernel.weight * (w @ (h.relu() if layer else h)) / math.sqrt(w.shape[1]) + kernel.bias * b
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(h.sum(), parameters)]))
    gradients = torch.stack(rows)
    return (gradients @ gradients.T).double()


@pytest.mark.parametrize("hidden", [1, 2])
def test_kernel_of_wide_networks(hidden: int) -> None:
    """Entries of one network deviate by about diagonal/sqrt(width), a few times that with depth.

    With four networks of width 1500 that is 1.3 % of the diagonal; 8 % is six such deviations.
    """
    x, kernel = points(), Ntk(hidden=hidden, weight=1.2, bias=0.4)
    measured = torch.stack([wide_network_kernel(x, kernel, 1500, generator(n)) for n in range(4)]).mean(dim=0)
    expected = kernel(x, x)
    scale = torch.outer(expected.diagonal(), expected.diagonal()).sqrt()
    assert float(((measured - expected) / scale).abs().max()) < 0.08


def test_samples_of_zeros_have_a_kernel() -> None:
    x = torch.cat([points(2), torch.zeros(1, 5, dtype=torch.float64)])
    assert bool(torch.isfinite(Ntk(bias=0.0)(x, x)).all())


def small_growth(**changes: float) -> tuple[Growth, Tensor]:
    x, y = blobs(COUNT, CLASSES, 0)
    kernel, inputs = Ntk(), x.double()
    settings = replace(GreedySettings(weight_steps=0, cg_steps=200), **changes)  # type: ignore[arg-type]
    return Growth(lambda which: kernel(inputs[which], inputs), one_hot(y, CLASSES).double(), settings), y


def started(growth: Growth, *which: int) -> Grown:
    return growth.settled(growth.added(growth.empty(), torch.tensor(which)))


def outer_with(growth: Growth, grown: Grown, which: Tensor, v: Tensor) -> float:
    """The outer loss after the inner problem was solved again with other weights v."""
    wider = replace(grown, chosen=which, sees=growth.rows(which), a=torch.zeros_like(growth.targets[which]))
    wider = replace(wider, weights=v * len(v))
    return float(growth.outer(growth.fitted(wider)))


def test_fit_is_stationary() -> None:
    growth, _ = small_growth()
    grown = started(growth, 0, 3, 5, 8)
    a = grown.a.clone().requires_grad_()
    (slope,) = torch.autograd.grad(growth.inner(grown).objective(a), a)
    assert float(slope.abs().max()) < 1e-8
    assert float(grown.a.abs().max()) > 0.1


def test_rates_are_slopes_of_the_retrained_problem() -> None:
    """Central differences for the chosen, one-sided ones of second order for those whose weight is zero."""
    growth, _ = small_growth(penalty=0.01)
    grown = started(growth, 0, 3, 5)
    everyone = torch.arange(COUNT)
    v = torch.zeros(COUNT, dtype=torch.float64)
    v[grown.chosen] = grown.weights / 3
    rates = growth.rates(grown, growth.rows(everyone), everyone)
    small = 1e-5
    for k in range(COUNT):
        away = torch.zeros_like(v)
        away[k] = small
        steps = (1, -1) if v[k] > 0 else (0, 1, 2)
        at = [outer_with(growth, grown, everyone, v + n * away) for n in steps]
        slope = (at[0] - at[1]) / (2 * small) if v[k] > 0 else (-3 * at[0] + 4 * at[1] - at[2]) / (2 * small)
        assert float(rates[k]) == pytest.approx(slope, rel=1e-3, abs=1e-5)


def test_first_picks_are_those_of_brute_force() -> None:
    """Every sample not chosen is given a little weight, the regression is solved again: the best of them comes next."""
    growth, y = small_growth(start=0, candidates=COUNT)
    places = quotas(torch.zeros_like(y), 3)
    found = grow(growth, torch.zeros_like(y), places, generator(0)).chosen
    grown = growth.empty()
    for _ in range(3):
        grown, size = growth.settled(grown), max(1, len(grown.chosen))
        rest = [k for k in range(COUNT) if k not in grown.chosen.tolist()]
        tried = {}
        for k in rest:
            v = torch.cat([grown.weights / size, grown.weights.new_tensor([1e-5])])
            tried[k] = outer_with(growth, grown, torch.cat([grown.chosen, torch.tensor([k])]), v)
        grown = growth.added(grown, torch.tensor([min(tried, key=lambda k: tried[k])]))
    assert found.tolist() == grown.chosen.tolist()


def test_weight_steps_lower_the_outer_loss() -> None:
    losses = [
        float(growth.outer(started(growth, 0, 3, 5, 8)))
        for growth, _ in (small_growth(weight_steps=steps, weight_step=0.05) for steps in (0, 20))
    ]
    assert losses[1] < losses[0] - 1e-4


def test_classes_share_the_places() -> None:
    shard = federation(size=6)[0]
    picked = choose(GreedySettings(), shard, shard.model.own(), generator(0))
    assert shard.y[picked.indices].bincount().tolist() == [2, 2, 2]


def convolution() -> FlatModel:
    nn = torch.nn
    return FlatModel(
        fresh(lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)), generator(0))
    )


def test_images_are_seen_through_the_shared_model_and_the_rest_needs_none() -> None:
    assert uses_features(convolution(), Kernel.AUTO)
    assert not uses_features(convolution(), Kernel.NTK)
    shards = federation()
    floats = {}
    for kernel in (Kernel.AUTO, Kernel.FEATURES):
        settings = GreedySettings(kernel=kernel, pretraining=Pretraining(rounds=2))
        selector = make(settings, Given(shards[0].model.own()))
        floats[kernel] = run(selector, shards, shards[0].model.own()).traffic.floats_per_worker
    d = shards[0].model.size  # down and up in both rounds, and the final parameters down
    assert floats == {Kernel.AUTO: 0, Kernel.FEATURES: 5 * d}


@pytest.mark.parametrize("wrong", [{"penalty": 0.0}, {"candidates": 0}, {"start": -1}])
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        GreedySettings(**wrong)  # type: ignore[arg-type]


def test_what_takes_many_minutes_is_refused_before_anything_is_computed() -> None:
    shard = replace(federation(1, 20, CLASSES)[0], x=torch.zeros(300_000, 1), y=torch.zeros(300_000).long(), size=50)
    with pytest.raises(SettingsError, match="300,000 of worker 0 for each of 50"):
        make(GreedySettings(), Given(shard.model.own())).program().start(shard)
