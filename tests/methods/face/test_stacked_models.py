"""Many networks in one pass, against the definition: each network by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from f2cto.counting import Tally, counted
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from f2cto.signals import signal_network

P, N, CLASSES = 3, 5, 4
Make = Callable[[], nn.Module]


class Residual(nn.Sequential):
    """A sequence that is not run as one."""

    def forward(self, x: Tensor) -> Tensor:
        flat, first, last = self
        hidden = flat(x)
        result: Tensor = last(hidden + first(hidden))
        return result


def tied() -> nn.Module:
    inner = nn.Linear(6, 6)
    return nn.Sequential(nn.Flatten(), inner, nn.ReLU(), inner, nn.Linear(6, CLASSES))


NETWORKS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "perceptron": (lambda: mlp(6, (8, 5), CLASSES), (6,)),
    "perceptron on images": (lambda: mlp(12, (8,), CLASSES), (3, 2, 2)),
    "linear": (lambda: mlp(6, (), CLASSES), (6,)),
    "no bias": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, CLASSES, bias=False)), (6,)),
    "layer norm": (lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, CLASSES)), (6,)),
    "convolutions": (lambda: signal_network(2, CLASSES, 4), (2, 16)),
    "a sequence with a way around": (
        lambda: Residual(nn.Flatten(), nn.Linear(6, 6), nn.Linear(6, CLASSES)),
        (6,),
    ),
    "one layer twice": (tied, (6,)),
    "weights by length and direction": (lambda: nn.Sequential(nn.Flatten(), weight_norm(nn.Linear(6, CLASSES))), (6,)),
}
every = pytest.mark.parametrize(("make", "shape"), NETWORKS.values(), ids=NETWORKS)


def task(make: Make, shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> tuple[FlatModel, Tensor, Tensor]:
    model, rng = FlatModel(fresh(make, generator(3)).to(dtype)), generator(4)
    w = model.own() + 0.1 * torch.randn(P, model.size, generator=rng, dtype=dtype)
    return model, w, torch.rand(P, N, *shape, generator=rng, dtype=dtype)


@every
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_stacked_logits_are_those_of_each_network(make: Make, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    model, w, x = task(make, shape, dtype)
    found = model.stacked_logits(w, x)
    assert found.shape == (P, N, CLASSES)
    one_by_one = torch.stack([model.logits(w[k], x[k]) for k in range(P)])
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    torch.testing.assert_close(found, one_by_one, rtol=tolerance, atol=tolerance)


def test_sizes_are_those_of_the_tensors_in_w() -> None:
    model = FlatModel(fresh(lambda: mlp(6, (8,), CLASSES), generator(3)))
    assert model.sizes == (48, 8, 32, 4)
    assert sum(model.sizes) == model.size
    assert [part.numel() for part in model.unflatten(model.own()).values()] == list(model.sizes)


@every
def test_who_counts_at_the_network_sees_each_networks_samples_once(make: Make, shape: tuple[int, ...]) -> None:
    tally = Tally()
    model = FlatModel(counted(fresh(make, generator(3)), tally))
    w = model.own().expand(P, -1).clone().requires_grad_()
    out = model.stacked_logits(w, torch.rand(P, N, *shape, generator=generator(1)))
    assert tally == Tally(forward=P * N)
    torch.autograd.grad(out.sum(), w)
    assert tally == Tally(forward=P * N, backward=P * N)


def test_what_a_hook_gives_back_is_the_output() -> None:
    module = fresh(lambda: mlp(6, (8,), CLASSES), generator(3))
    model, w, x = FlatModel(module), *task(lambda: mlp(6, (8,), CLASSES), (6,), torch.float32)[1:]
    plain = model.stacked_logits(w, x)
    module.register_forward_hook(lambda _, __, out: 2 * out)
    torch.testing.assert_close(model.stacked_logits(w, x), 2 * plain)


def test_a_layer_that_is_watched_later_is_seen() -> None:
    module = fresh(lambda: mlp(6, (8,), CLASSES), generator(3))
    model, w, x = FlatModel(module), *task(lambda: mlp(6, (8,), CLASSES), (6,), torch.float32)[1:]
    model.stacked_logits(w, x)
    seen: list[int] = []
    handle = module[1].register_forward_hook(lambda _, __, out: seen.append(len(out)))  # type: ignore[index]
    model.stacked_logits(w, x)
    assert seen == [N] * P
    handle.remove()
    model.stacked_logits(w, x)
    assert seen == [N] * P
