"""Losses and gradients of many networks at once, against one network at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from f2cto.counting import Tally, counted
from f2cto.methods.f2cto import stacked
from f2cto.methods.f2cto.stacked import Stacked
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from f2cto.signals import signal_network

P, N = 3, 5
Make = Callable[[], nn.Module]
NETWORKS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "perceptron, all at once": (lambda: mlp(6, (8, 5), 3), (6,)),
    "convolutions, one by one": (lambda: signal_network(2, 3, 4), (2, 16)),
}
every = pytest.mark.parametrize(("make", "shape"), NETWORKS.values(), ids=NETWORKS)


def task(make: Make, shape: tuple[int, ...]) -> tuple[FlatModel, Tensor, Tensor, Tensor]:
    model, rng = FlatModel(fresh(make, generator(3)).double()), generator(4)
    w = model.own() + 0.1 * torch.randn(P, model.size, generator=rng, dtype=torch.float64)
    x = torch.rand(P, N, *shape, generator=rng, dtype=torch.float64)
    return model, w, x, torch.randint(3, (P, N), generator=rng)


def alone(model: FlatModel, w: Tensor, x: Tensor, y: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The definition, for one network."""
    w, x = w.clone().requires_grad_(), x.clone().requires_grad_()
    losses = cross_entropy(model.logits(w, x), y, reduction="none")
    in_w, in_x = torch.autograd.grad(weights @ losses, (w, x))
    return losses.detach(), in_w, in_x


@every
def test_losses_and_gradients_are_those_of_each_network(make: Make, shape: tuple[int, ...]) -> None:
    model, w, x, y = task(make, shape)
    weights = torch.rand(P, N, generator=generator(5), dtype=torch.float64)
    found = Stacked(model).gradients(w, x, y, weights)
    for k in range(P):
        for mine, expected in zip(found, alone(model, w[k], x[k], y[k], weights[k]), strict=True):
            torch.testing.assert_close(mine[k], expected, rtol=1e-9, atol=1e-12)
            assert not mine.requires_grad


@every
def test_gradients_in_samples_are_those_of_each_sample(make: Make, shape: tuple[int, ...]) -> None:
    model, w, x, y = task(make, shape)
    found = Stacked(model).in_samples(w, x, y)
    for k in range(P):
        for i in range(N):
            one = slice(i, i + 1)
            expected = alone(model, w[k], x[k, one], y[k, one], w.new_ones(1))[2]
            torch.testing.assert_close(found[k, one], expected, rtol=1e-9, atol=1e-12)


@every
def test_gradients_can_be_taken_where_no_others_are(make: Make, shape: tuple[int, ...]) -> None:
    model, w, x, y = task(make, shape)
    expected = Stacked(model).in_samples(w, x, y)
    with torch.no_grad():
        assert torch.equal(Stacked(model).in_samples(w, x, y), expected)
        Stacked(model).gradients(w, x, y, x.new_ones(P, N))


@every
def test_one_pass_each_way_counts_each_networks_samples_once(make: Make, shape: tuple[int, ...]) -> None:
    tally, (_, w, x, y) = Tally(), task(make, shape)
    networks = Stacked(FlatModel(counted(fresh(make, generator(3)).double(), tally)))
    networks.gradients(w, x, y, torch.ones(P, N, dtype=torch.float64))
    assert tally == Tally(forward=P * N, backward=P * N)
    networks.in_samples(w, x, y)
    assert tally == Tally(forward=2 * P * N, backward=2 * P * N)


@pytest.mark.parametrize(("bytes_", "sizes"), [(4 * 10 * 2, [2, 2, 1]), (1, [1] * 5), (10**9, [5])])
def test_groups_cover_every_network_once_and_stay_small(
    bytes_: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacked, "GROUP_BYTES", bytes_)
    groups = list(Stacked(FlatModel(mlp_of())).groups(5, 10))
    assert [k for some in groups for k in range(5)[some]] == list(range(5))
    assert [some.stop - some.start for some in groups] == sizes


def mlp_of() -> nn.Module:
    return fresh(lambda: mlp(6, (), 3), generator(3))
