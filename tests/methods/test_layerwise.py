"""Gradients layer by layer, against the definition: one sample's loss, one backward pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from f2cto.counting import Tally, counted
from f2cto.methods import matching
from f2cto.methods.layerwise import by_layer
from f2cto.methods.matching import gradient_gram
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from f2cto.resnet import resnet18
from f2cto.signals import signal_network

Make = Callable[[], nn.Module]
COUNT = 7


class Twice(nn.Module):
    """A layer that is used twice in one pass."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(self.inner(self.inner(x).tanh()).tanh())
        return result


class Borrowed(nn.Module):
    """A layer whose weights are also used without it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.inner(x).tanh() + linear(x, self.inner.weight)
        result: Tensor = self.last(hidden)
        return result


class Tied(nn.Module):
    """Two layers with the same weights."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.other, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.other.weight = self.inner.weight

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(self.other(self.inner(x).tanh()).tanh())
        return result


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1, dilation=2),
        nn.GroupNorm(2, 4),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 3, (2, 1), bias=False),
        nn.Flatten(),
        nn.LazyLinear(3),
    )


def settled(make: Make, shape: tuple[int, ...]) -> Make:
    """A module whose lazy layers know their sizes."""

    def made() -> nn.Module:
        module = make()
        module(torch.zeros(1, *shape))
        return module

    return made


BY_LAYER: dict[str, tuple[Make, tuple[int, ...]]] = {
    "perceptron": (lambda: mlp(6, (8, 5), 3), (6,)),
    "no bias, written into": (
        lambda: nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(inplace=True), nn.Linear(8, 3)),
        (6,),
    ),
    "layer norm": (lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3)), (6,)),
    "convolutions": (settled(convolutions, (2, 8, 8)), (2, 8, 8)),
    "over time": (lambda: signal_network(2, 3, 4), (2, 16)),
    "residual": (lambda: resnet18(1, 3, 4), (1, 8, 8)),
}
ONE_BY_ONE: dict[str, tuple[Make, tuple[int, ...]]] = {
    "used twice": (Twice, (6,)),
    "used without the layer": (Borrowed, (6,)),
    "tied": (Tied, (6,)),
    "of a kind not known": (lambda: nn.Sequential(nn.Linear(6, 8), nn.PReLU(8), nn.Linear(8, 3)), (6,)),
    "in groups": (lambda: nn.Sequential(nn.Conv1d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(16, 3)), (2, 6)),
    "a vector per place": (lambda: nn.Sequential(nn.Linear(6, 4), nn.Flatten(), nn.Linear(8, 3)), (2, 6)),
}
EVERY = BY_LAYER | ONE_BY_ONE


def task(make: Make, shape: tuple[int, ...]) -> tuple[FlatModel, Tensor, Tensor, Tensor]:
    model, rng = FlatModel(fresh(make, generator(3)).double()), generator(4)
    x = torch.rand(COUNT, *shape, generator=rng, dtype=torch.float64)
    w = model.own() + 0.1 * torch.randn(model.size, generator=rng, dtype=torch.float64)
    return model, w, x, torch.arange(COUNT) % 3


def definition(model: FlatModel, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    leaf = w.clone().requires_grad_()
    rows = [torch.autograd.grad(model.losses(leaf, x[k : k + 1], y[k : k + 1]).sum(), leaf)[0] for k in range(len(y))]
    return torch.stack(rows)


@pytest.mark.parametrize("block", [10**9, 6000])
@pytest.mark.parametrize(("make", "shape"), EVERY.values(), ids=EVERY)
def test_products_are_those_of_single_gradients(
    make: Make, shape: tuple[int, ...], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "BLOCK_BYTES", block)
    given = task(make, shape)
    g = definition(*given)
    torch.testing.assert_close(gradient_gram(*given), g @ g.T, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("make", "shape"), BY_LAYER.values(), ids=BY_LAYER)
def test_known_layers_say_all(make: Make, shape: tuple[int, ...]) -> None:
    given = task(make, shape)
    layers = by_layer(*given)
    assert layers is not None
    g = definition(*given)
    torch.testing.assert_close(torch.cat([layer.total() for layer in layers]), g.sum(dim=0))
    squares = torch.stack([layer.squares() for layer in layers]).sum(dim=0)
    torch.testing.assert_close(squares, g.square().sum(dim=1))


@pytest.mark.parametrize(("make", "shape"), ONE_BY_ONE.values(), ids=ONE_BY_ONE)
def test_where_layers_do_not_account_for_all_none_is_trusted(make: Make, shape: tuple[int, ...]) -> None:
    assert by_layer(*task(make, shape)) is None


def test_a_pass_by_layer_counts_as_one_pass() -> None:
    tally = Tally()
    model = FlatModel(counted(fresh(lambda: mlp(6, (8,), 3), generator(3)), tally))
    gradient_gram(model, model.own(), torch.rand(COUNT, 6, generator=generator(1)), torch.arange(COUNT) % 3)
    assert tally == Tally(forward=COUNT, backward=COUNT)


def test_single_precision_is_near_and_by_layer_however_samples_cancel() -> None:
    """Two equal samples with opposite labels: their gradients all but cancel."""
    model = FlatModel(fresh(lambda: mlp(6, (8, 5), 2), generator(3)))
    w, x = 0 * model.own(), torch.rand(1, 6, generator=generator(1)).expand(400, 6)
    w[-7:-2] += 1e-3
    y = torch.arange(400) % 2
    assert by_layer(model, w, x, y) is not None
    exact = gradient_gram(model, w.double(), x.double(), y)
    torch.testing.assert_close(gradient_gram(model, w, x, y).double(), exact, rtol=1e-5, atol=1e-7)
