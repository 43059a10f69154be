from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from f2cto.constraints import Simplex
from f2cto.hypergradient.linear import Adjoint, Solver
from f2cto.methods.bcsr import BcsrSettings, Losses, choose, hypergradient, released_slope, weigh
from f2cto.methods.f2cto_stages import blocks_of
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from f2cto.trilevel.coreset import TopK
from f2cto.trilevel.master import DivergedError
from testing.shards import blobs, federation

COUNT, SIZE = 7, 3


def quadratics() -> tuple[Tensor, Tensor]:
    """Sample k's loss is |rows_k theta - wanted_k|^2 / 2; the weighted sum has one minimiser."""
    rng = generator(5)
    rows = torch.randn(COUNT, 4, SIZE, generator=rng, dtype=torch.float64)
    return rows, torch.randn(COUNT, 4, generator=rng, dtype=torch.float64)


def quadratic_losses(theta: Tensor) -> Tensor:
    rows, wanted = quadratics()
    return (rows @ theta - wanted).square().sum(dim=1) / 2


def minimiser(w: Tensor) -> Tensor:
    rows, wanted = quadratics()
    normal = torch.einsum("k,kij,kil->jl", w, rows, rows)
    theta: Tensor = torch.linalg.solve(normal, torch.einsum("k,kij,ki->j", w, rows, wanted))
    return theta


def some_weights(count: int = COUNT) -> Tensor:
    raw = torch.rand(count, generator=generator(6), dtype=torch.float64) + 0.2
    return raw / raw.sum()


def jacobian(fn: Losses, theta: Tensor) -> Tensor:
    """The derivative of each output, row by row."""
    theta = theta.detach().requires_grad_()
    return torch.stack([torch.autograd.grad(out, theta, retain_graph=True)[0] for out in fn(theta).reshape(-1)])


def hessian(fn: Losses, theta: Tensor) -> Tensor:
    theta = theta.detach().requires_grad_()
    (slope,) = torch.autograd.grad(fn(theta), theta, create_graph=True)
    return torch.stack([torch.autograd.grad(entry, theta, retain_graph=True)[0] for entry in slope])


def network() -> tuple[Losses, Tensor]:
    model = FlatModel(fresh(lambda: mlp(6, (4,), 3), generator(1)))
    x, y = blobs(COUNT, 3, 0)
    return lambda w: model.losses(w, x.double(), y), model.own().double()


@pytest.mark.parametrize("how", [Adjoint(Solver.CG, 20), Adjoint(Solver.NEUMANN, 1000, 0.1)], ids=["cg", "neumann"])
def test_hypergradient_is_the_slope_of_the_loss_of_the_solved_inner_problem(how: Adjoint) -> None:
    w = some_weights()
    found = hypergradient(quadratic_losses, (minimiser(w), w), lambda v: v, how)
    small = 1e-5
    for k in range(COUNT):
        away = torch.zeros_like(w)
        away[k] = small
        up, down = (quadratic_losses(minimiser(v)).mean() for v in (w + away, w - away))
        assert float(found[k]) == pytest.approx(float(up - down) / (2 * small), rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("terms", [0, 1, 3])
def test_truncated_series_is_its_own_formula_on_a_network(terms: int) -> None:
    """-J u with u = eta sum_{j <= terms} (I - eta H)^j v, all matrices written out."""
    losses, theta = network()
    w, eta = some_weights(), 0.3
    h = hessian(lambda v: w @ losses(v), theta)
    v = jacobian(lambda v: losses(v).mean(), theta)[0]
    powers = [torch.linalg.matrix_power(torch.eye(len(theta)).double() - eta * h, j) for j in range(terms + 1)]
    u = eta * torch.stack(powers).sum(dim=0) @ v
    found = hypergradient(losses, (theta, w), lambda v: v, Adjoint(terms=terms, eta=eta))
    torch.testing.assert_close(found, -jacobian(losses, theta) @ u)


def test_released_slope_goes_through_a_softmax_and_a_mean() -> None:
    losses, theta = network()
    w = some_weights()
    s = w.softmax(dim=0)
    h = hessian(lambda v: s @ losses(v) / COUNT, theta)
    v = jacobian(lambda v: losses(v).mean(), theta)[0]
    shrink = torch.eye(len(theta)).double() - 10.0 * h
    u = v + shrink @ v + shrink @ shrink @ v + shrink @ shrink @ shrink @ v
    expected = -(torch.diag(s) - torch.outer(s, s)) @ jacobian(losses, theta) @ u / COUNT
    torch.testing.assert_close(released_slope(losses, (theta, w), 3), expected)


def test_one_step_holds_the_inclusion_probabilities_of_noisy_weights() -> None:
    shard = federation()[0]
    s = BcsrSettings(outer_steps=1, inner_steps=0, topk=0.5, weight_step=0.05)
    theta, w = shard.model.own(), torch.full((24,), 1 / 24)
    z = torch.randn(s.draws, 24, generator=generator(3)) * s.noise
    ranked = TopK(s.topk, blocks_of(shard, classwise=True), lambda: z)
    at = w.clone().requires_grad_()
    (by_definition,) = torch.autograd.grad(ranked(at), at)
    how = Adjoint(terms=s.neumann, eta=s.inner_step)
    h = hypergradient(lambda v: shard.model.losses(v, shard.x, shard.y), (theta, w), lambda v: v, how)
    expected = Simplex().project(w - s.weight_step * (h - by_definition))
    torch.testing.assert_close(weigh(s, shard, theta, generator(3)), expected)


def test_topk_term_gathers_the_weights_and_is_dead_as_released() -> None:
    shard = federation()[0]
    s = BcsrSettings(outer_steps=8, weight_step=0.05)
    kept = []
    for topk in (0.0, 2.0):
        w = weigh(replace(s, topk=topk), shard, shard.model.own(), generator(0))
        kept.append(float(w.topk(shard.size).values.sum()))
    assert kept[1] > kept[0] + 0.2
    released = [
        weigh(replace(s, topk=topk, as_released=True), shard, shard.model.own(), generator(0)) for topk in (0.0, 1000.0)
    ]
    assert torch.equal(*released)


def test_published_keeps_the_largest_and_released_draws() -> None:
    shard = federation()[0]
    s = BcsrSettings(outer_steps=5, topk=1.0, weight_step=0.05, classwise=False)
    w = weigh(s, shard, shard.model.own(), generator(0))
    picked = choose(s, shard, shard.model.own(), generator(0))
    assert float(w[picked.indices].min()) >= float(w.topk(shard.size).values.min())
    torch.testing.assert_close(picked.weights, w[picked.indices] / w[picked.indices].sum())
    released = replace(s, as_released=True)
    draws = [choose(released, shard, shard.model.own(), generator(seed)).indices for seed in range(20)]
    assert len({tuple(sorted(d.tolist())) for d in draws}) > 15


def test_divergence_is_told() -> None:
    shard = federation()[0]
    s = BcsrSettings(outer_steps=40, inner_step=1e12)
    with pytest.raises(DivergedError, match=r"worker 0 .* lower `inner_step`"):
        weigh(s, shard, shard.model.own(), generator(0))


@pytest.mark.parametrize("wrong", [{"draws": 0}, {"inner_step": 0.0}, {"neumann": -1}, {"noise": -1.0}])
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        BcsrSettings(**wrong)  # type: ignore[arg-type]
