from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from f2cto.methods.cuts import (
    Plane,
    active,
    ascended,
    by_number,
    mu_height,
    numbered,
    reported,
    shrinkage,
    smoothing_error,
    square,
    touching,
)
from f2cto.randomness import generator

SIZE, BOUND = 4, 9.0


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


class Quadratic:
    """h = 1/2 v'Hv + b'v with eigenvalues of H of either sign: mu-weakly convex and L-smooth."""

    def __init__(self, seed: int) -> None:
        root = draw(seed, SIZE, SIZE)
        self.h, self.b = (root + root.T) / 2, draw(seed + 1, SIZE)
        values = torch.linalg.eigvalsh(self.h)
        self.mu, self.smoothness = max(0.0, -float(values[0])), float(values.abs().max())

    def __call__(self, v: Tensor) -> Tensor:
        return ((v @ self.h) * v).sum(dim=-1) / 2 + v @ self.b

    def slope(self, v: Tensor) -> Tensor:
        return self.h @ v + self.b


def within(seed: int, count: int) -> Tensor:
    """Points of the ball |v|^2 <= BOUND, its border included."""
    points = 2 * draw(seed, count, SIZE)
    shrink: Tensor = (BOUND**0.5 / points.norm(dim=1, keepdim=True)).clamp(max=1)
    return points * shrink


def plane_at(at: Tensor, slope: Tensor, height: float, bend: float = 0.0) -> tuple[Plane, Tensor]:
    """A cut whose first half of the variables the master holds and a worker the rest; and the worker's slope."""
    cut = touching((slope[:2],), (at[:2],), bend)
    return Plane(cut, height, (0.0,)), slope[2:]


def value_at(v: Tensor, at: Tensor, slope: Tensor, height: float, bend: float = 0.0) -> float:
    plane, rest = plane_at(at, slope, height, bend)
    share = touching((rest,), (at[2:],), bend).share((v[2:],))
    (plane,) = reported({0: plane}, "cut", 0, {"cut.0": share}).values()
    return plane.value(v[:2])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(-2, 2))
def test_a_mu_cut_never_cuts_off_what_is_feasible(seed: int, tolerance: float) -> None:
    h, at = Quadratic(seed), within(seed + 2, 1)[0]
    height = mu_height(float(h(at)), square((at,)), h.mu, BOUND) - tolerance
    for v in within(seed + 3, 60):
        if h(v) <= tolerance:
            assert value_at(v, at, h.slope(at), height) <= 1e-9


def test_without_mu_it_would() -> None:
    """h = -v^2/2 is 1-weakly convex. The tangent at v = 1 asks for -1/2 - (v - 1) <= 0, which excludes v = 0."""
    one, zero = torch.ones(1), torch.zeros(1)
    slope = touching((-one,), (one,))
    assert mu_height(-0.5, 1.0, 0.0, 1.0) + slope.share((zero,)) == pytest.approx(0.5)
    assert mu_height(-0.5, 1.0, 1.0, 1.0) + slope.share((zero,)) == pytest.approx(-1.5)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(-2, 2), st.floats(0, 1))
def test_a_zeroth_order_cut_never_cuts_off_what_is_feasible(seed: int, tolerance: float, radius: float) -> None:
    """Smoothing leaves the gradient of a quadratic as it is, which makes it the estimator's mean."""
    h, at = Quadratic(seed), within(seed + 2, 1)[0]
    height = float(h(at)) - tolerance - smoothing_error(radius, h.smoothness, SIZE)
    for v in within(seed + 3, 60):
        if h(v) <= tolerance:
            assert value_at(v, at, h.slope(at), height, bend=h.smoothness + 1) <= 1e-9


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.01, 2), st.floats(0, 2))
def test_a_zeroth_order_cut_forgives_what_smoothing_does(seed: int, tolerance: float, radius: float) -> None:
    """h = sum(1 - cos v) has L = 1, and its smoothed gradient is exp(-r^2/2) sin v, not sin v."""
    at = within(seed, 1)[0]
    slope = torch.exp(torch.tensor(-(radius**2) / 2)) * at.sin()
    height = float((1 - at.cos()).sum()) - tolerance - smoothing_error(radius, 1.0, SIZE)
    for v in within(seed + 1, 60):
        if float((1 - v.cos()).sum()) <= tolerance:
            assert value_at(v, at, slope, height, bend=2.0) <= 1e-9


def test_the_cost_of_smoothing_by_hand() -> None:
    assert smoothing_error(0.1, 2.0, 1) == pytest.approx(0.2**2 * 4**3 / 8)


def test_without_a_bend_it_would() -> None:
    """h = 1 - cos v at v = 3: tangent 1 - cos 3 + (v - 3) sin 3 <= 0.1 excludes 0, which is feasible."""
    at, zero = torch.full((1,), 3.0), torch.zeros(1)
    height = 1 - float(at.cos()) - 0.1
    assert height + touching((at.sin(),), (at,)).share((zero,)) > 1
    assert height + touching((at.sin(),), (at,), 2.0).share((zero,)) < -7


def test_gradients_of_shares() -> None:
    at, slope, v = (draw(seed, 3) for seed in (1, 2, 3))
    for bend in (0.0, 1.7):
        cut, leaf = touching((slope,), (at,), bend), v.clone().requires_grad_()
        (expected,) = torch.autograd.grad(slope @ (leaf - at) - bend / 2 * (leaf - at).square().sum(), leaf)
        assert torch.allclose(cut.gradient((v,))[0], expected)
        assert cut.share((at,)) == pytest.approx(0, abs=1e-12)


def test_multipliers_by_hand() -> None:
    """With step 2 the regulariser weighs 1/2 at t = 0 and 1/4 at t = 15, as 16^(1/4) = 2."""
    assert shrinkage(0, 2.0, 0.0) == pytest.approx(0.5)
    assert shrinkage(15, 2.0, 0.0) == pytest.approx(0.25)
    assert shrinkage(15, 2.0, 0.3) == pytest.approx(0.3)
    assert ascended(0.0, 3.0, 2.0, 0.5, 10.0) == pytest.approx(6.0)  # 0 + 2 (3 - 0)
    assert ascended(6.0, -1.0, 2.0, 0.25, 10.0) == pytest.approx(1.0)  # 6 + 2 (-1 - 1.5)
    assert ascended(1.0, -10.0, 2.0, 0.25, 10.0) == 0
    assert ascended(6.0, 30.0, 2.0, 0.25, 10.0) == 10


def test_cuts_without_a_multiplier_are_dropped() -> None:
    cut = touching((torch.ones(1),), (torch.zeros(1),))
    planes = {n: Plane(cut, 0.0, (0.0,), dual) for n, dual in {3: 0.5, 4: 0.0, 7: 2.0, 9: 1.0}.items()}
    assert list(active(planes, 10)) == [3, 7, 9]
    assert list(active(planes, 2)) == [7, 9]


def test_a_cut_is_the_sum_of_its_shares() -> None:
    plane = Plane(touching((torch.tensor([2.0]),), (torch.tensor([1.0]),)), 0.5, (0.0, 3.0))
    planes = reported({4: plane}, "cut", 0, {"cut.4": -1.0, "cut.5": 100.0, "lower.4": 100.0})
    assert planes[4].shares == (-1.0, 3.0)
    assert planes[4].value(torch.tensor([3.0])) == pytest.approx(0.5 - 1 + 3 + 2 * (3 - 1))


def test_numbers_survive_a_message() -> None:
    assert by_number("cut", {**numbered("cut", {3: 1.5, 12: 0.0}), "cutting": 1.0, "keep.3": 2.0}) == {3: 1.5, 12: 0.0}
