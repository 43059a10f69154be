from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import derived_seed, generator
from f2cto.resnet import Block, resnet18
from f2cto.signals import signal_network


def test_flat_model_is_the_module() -> None:
    module = fresh(lambda: mlp(4, (5, 3), 2), generator(1))
    flat, x = FlatModel(module), torch.rand(7, 4, generator=generator(2))
    w = flat.own()
    assert w.shape == (flat.size,) == (4 * 5 + 5 + 5 * 3 + 3 + 3 * 2 + 2,)
    assert torch.equal(flat.logits(w, x), module(x))
    y = torch.zeros(7, dtype=torch.long)
    assert torch.allclose(flat.losses(w, x, y).mean(), cross_entropy(module(x), y))
    assert torch.equal(flat.features(w, x), module[:-1](x))  # type: ignore[index]


def test_parameters_are_copied() -> None:
    module = mlp_of(3)
    flat = FlatModel(module)
    w = flat.own()
    w += 1
    assert not torch.equal(w, flat.own())


def mlp_of(seed: int) -> nn.Module:
    return fresh(lambda: mlp(4, (5,), 2), generator(seed))


def test_fresh_depends_on_the_generator_only() -> None:
    one, two, other = (FlatModel(mlp_of(seed)).own() for seed in (3, 3, 4))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_networks_that_are_no_function_of_w_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Layer `1` keeps running statistics.*GroupNorm"):
        FlatModel(fresh(lambda: nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), generator(0)))
    with pytest.raises(ValueError, match="no parameters"):
        FlatModel(nn.ReLU())


def test_features_need_a_linear_layer() -> None:
    flat = FlatModel(fresh(lambda: nn.Conv1d(1, 1, 1), generator(0)))
    with pytest.raises(ValueError, match="no linear layer"):
        flat.features(flat.own(), torch.zeros(1, 1, 3))


def test_keys_give_unrelated_seeds() -> None:
    keys = [(7,), (7, 0), (0, 7), (7, 1), (8,)]
    assert len({derived_seed(*key) for key in keys}) == len(keys)
    assert derived_seed(7, 1) == derived_seed(7, 1)


@pytest.mark.parametrize("stride", [1, 2, 4])
def test_a_resnet_looks_at_every_pixel_whatever_its_first_stride(stride: int) -> None:
    network = fresh(lambda: resnet18(3, 5, width=4, stride=stride), generator(0))
    first = network[1]  # type: ignore[index]
    x = torch.rand(1, 3, 16, 16, generator=generator(1)).requires_grad_()
    assert first(x).shape == (1, 4, 16 // stride, 16 // stride)
    (slope,) = torch.autograd.grad(first(x).square().sum(), x)
    assert (slope != 0).all()
    assert network(x).shape == (1, 5)


def test_a_resnet_begins_as_its_ways_around_and_can_leave_them() -> None:
    network = fresh(lambda: resnet18(3, 5, width=4), generator(0))
    blocks = [part for part in network.modules() if isinstance(part, Block)]
    assert len(blocks) == 8
    for block in blocks:
        x = torch.rand(2, next(block.parameters()).shape[1], 8, 8, generator=generator(2))
        torch.testing.assert_close(block(x), block.around(x).relu())
        (slope,) = torch.autograd.grad(block(x).square().sum(), list(block.through.parameters())[-2])
        assert slope.any()


def test_a_signal_network_looks_at_every_reading_of_each_sample_alone() -> None:
    flat = FlatModel(fresh(lambda: signal_network(6, 12, width=8), generator(0)))
    x = torch.rand(3, 6, 128, generator=generator(1)).requires_grad_()
    logits = flat.logits(flat.own(), x)
    assert logits.shape == (3, 12)
    torch.testing.assert_close(flat.logits(flat.own(), x[1:2]), logits[1:2], rtol=1e-4, atol=1e-5)
    (slope,) = torch.autograd.grad(logits[1].square().sum(), x)
    assert (slope[1] != 0).all()
    assert not slope[[0, 2]].any()


def test_signals_of_any_length_have_the_same_network() -> None:
    """A mean over time: what an activity is does not depend on when in the window it begins."""
    flat = FlatModel(fresh(lambda: signal_network(2, 3, width=4), generator(0)))
    lengths = [torch.rand(1, 2, n, generator=generator(n)) for n in (8, 50, 128)]
    assert [flat.logits(flat.own(), x).shape for x in lengths] == [(1, 3)] * 3
