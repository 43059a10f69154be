"""Vectors known by inner products, against the gradients themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from f2cto.methods.f2cto.gradients import Combined, Products, gradient_vectors
from f2cto.methods.last_layer import LastLayer
from f2cto.methods.vectors import Points, Vectors, points
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from f2cto.signals import signal_network

COUNT = 9
Make = Callable[[], nn.Module]


def draw(*shape: int, key: int = 1) -> Tensor:
    return torch.randn(*shape, generator=generator(key), dtype=torch.float64)


def products() -> tuple[Products, Tensor]:
    slope, inputs = draw(COUNT, 3), draw(COUNT, 4, key=2)
    return Products(slope, inputs), torch.einsum("no,nw->now", slope, inputs).flatten(1)


def combined() -> tuple[Combined, Tensor]:
    outer, rows = products()
    other = draw(COUNT, 5, key=3)
    parts = ((2.0, outer), (0.25, points(other)))
    return Combined(parts), torch.cat([2.0**0.5 * rows, 0.5 * other], dim=1)


@pytest.mark.parametrize("make", [products, combined])
def test_vectors_are_what_they_stand_for(make: Callable[[], tuple[Vectors, Tensor]]) -> None:
    same(*make())


@pytest.mark.parametrize("make", [products, combined])
def test_some_of_the_vectors_are_some_of_the_rows(make: Callable[[], tuple[Vectors, Tensor]]) -> None:
    vectors, explicit = make()
    rows = torch.tensor([7, 0, 3])
    same(vectors.take(rows), explicit[rows])
    torch.testing.assert_close(vectors.take(rows).products(vectors), explicit[rows] @ explicit.T)


def same(vectors: Vectors, explicit: Tensor) -> None:
    """All that a rule can ask of vectors, against explicit rows."""
    assert len(vectors) == len(explicit)
    weights = draw(len(explicit), key=4)
    torch.testing.assert_close(vectors.products(vectors), explicit @ explicit.T, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(vectors.squares(), explicit.square().sum(dim=1), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(vectors.along(weights), explicit @ (weights @ explicit), rtol=1e-9, atol=1e-12)


def task(make: Make, shape: tuple[int, ...]) -> tuple[FlatModel, Tensor, Tensor, Tensor]:
    model = FlatModel(fresh(make, generator(3)).double())
    w = model.own() + 0.1 * draw(model.size, key=5)
    return model, w, torch.rand(COUNT, *shape, generator=generator(6), dtype=torch.float64), torch.arange(COUNT) % 3


def gradients(model: FlatModel, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """One sample, one backward pass."""
    leaf = w.clone().requires_grad_()
    rows = [torch.autograd.grad(model.losses(leaf, x[k : k + 1], y[k : k + 1]).sum(), leaf)[0] for k in range(len(y))]
    return torch.stack(rows)


@pytest.mark.parametrize(
    "make",
    [
        lambda: mlp(6, (8, 5), 3),
        lambda: mlp(6, (), 3),
        lambda: nn.Sequential(nn.Linear(6, 8, bias=False), nn.Tanh(), nn.Linear(8, 3, bias=False)),
    ],
    ids=["perceptron", "linear", "no biases"],
)
def test_of_a_perceptron_they_are_the_gradients_in_all_of_w(make: Make) -> None:
    given = task(make, (6,))
    same(gradient_vectors(*given), gradients(*given))


class Twice(nn.Module):
    """Its inner layer is used twice, so that layers do not account for the gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(self.inner(self.inner(x).tanh()).tanh())
        return result


LAST: dict[str, tuple[Make, tuple[int, ...], int]] = {  # and how many numbers the last layer has
    "convolutions": (lambda: signal_network(2, 3, 4), (2, 16), 0),
    "layer norm": (lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3)), (6,), 27),
    "a layer used twice": (Twice, (6,), 21),
}


@pytest.mark.parametrize(("make", "shape", "size"), LAST.values(), ids=LAST)
def test_of_other_networks_they_are_the_gradients_in_the_last_layer(
    make: Make, shape: tuple[int, ...], size: int
) -> None:
    model, w, x, y = given = task(make, shape)
    found = gradient_vectors(*given)
    assert isinstance(found, LastLayer)
    width = found.inputs.shape[1] * 3
    assert width == (size or width)
    same(found, gradients(model, w, x, y)[:, -width:])


def test_parts_joined_evenly_have_mean_square_one() -> None:
    outer, _ = products()
    parts: list[Vectors] = [outer, points(100 * draw(COUNT, 5, key=3)), Points(1e-4 * draw(COUNT, 2, key=4))]
    even = Combined.even(parts)
    for scale, part in even.parts:
        assert float(scale * part.squares().mean()) == pytest.approx(1)
    assert float(even.squares().mean()) == pytest.approx(3)


def test_a_part_of_zeros_says_nothing() -> None:
    outer, rows = products()
    even = Combined.even([outer, Points(torch.zeros(COUNT, 2, dtype=torch.float64))])
    same(even, rows / rows.square().sum(dim=1).mean().sqrt())


def test_single_precision_models_give_vectors_in_double() -> None:
    model = FlatModel(fresh(lambda: mlp(6, (8,), 3), generator(3)))
    found = gradient_vectors(model, model.own(), torch.rand(COUNT, 6, generator=generator(1)), torch.arange(COUNT) % 3)
    assert found.squares().dtype == torch.float64
