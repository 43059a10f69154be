"""Every set, the same laws: feasible, idempotent, optimal, non-expansive."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from f2cto.constraints import Box, ConstraintSet, L2Ball, LinfBall, Simplex, Simplices, WholeSpace

SETS: dict[str, Callable[[int], ConstraintSet]] = {
    "simplex": lambda _: Simplex(),
    "simplex of 3": lambda _: Simplex(3.0),
    "simplices": lambda n: Simplices(torch.arange(n) % 3, torch.tensor([0.5, 0.0, 2.0], dtype=torch.float64)),
    "linf ball": lambda _: LinfBall(0.7),
    "l2 ball": lambda _: L2Ball(1.3),
    "box": lambda n: Box(torch.linspace(-1, 0.5, n).double(), torch.linspace(-1, 1.5, n).double()),
    "whole space": lambda _: WholeSpace(),
}
ENTRIES = st.one_of(
    st.floats(-2, 2),
    st.sampled_from([0.0, 0.0, 1.0, -1.0, 1e-300, 1e6, -1e6, 1e12]),  # ties, zeros and huge values
)


def points(size: int) -> st.SearchStrategy[Tensor]:
    return arrays(np.float64, size, elements=ENTRIES).map(torch.from_numpy)


pairs = st.integers(3, 12).flatmap(lambda n: st.tuples(points(n), points(n)))


@pytest.mark.parametrize("make", SETS.values(), ids=SETS)
@given(pair=pairs)
@settings(max_examples=150, deadline=None)
def test_projection_laws(make: Callable[[int], ConstraintSet], pair: tuple[Tensor, Tensor]) -> None:
    x, other = pair
    onto = make(len(x))
    nearest, z = onto.project(x), onto.project(other)
    scale = 1 + float(x.abs().max()) + float(other.abs().max())
    assert onto.contains(nearest, atol=1e-9 * scale)
    assert torch.allclose(onto.project(nearest), nearest, atol=1e-9 * scale, rtol=0)
    # The variational inequality <x - Px, z - Px> <= 0 for every feasible z is what being nearest means.
    assert float((x - nearest) @ (z - nearest)) <= 1e-9 * scale**2
    assert float((nearest - z).norm()) <= float((x - other).norm()) + 1e-9 * scale


@pytest.mark.parametrize("make", SETS.values(), ids=SETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_keeps_dtype_and_input(make: Callable[[int], ConstraintSet], dtype: torch.dtype) -> None:
    onto = make(6)
    x = torch.linspace(-3, 3, 6, dtype=dtype)
    before = x.clone()
    result = onto.project(x)
    assert result.dtype == dtype
    assert torch.equal(x, before)


@pytest.mark.parametrize("make", [SETS["simplex"], SETS["linf ball"], SETS["l2 ball"]])
def test_points_inside_stay(make: Callable[[int], ConstraintSet]) -> None:
    x = torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64)
    assert torch.allclose(make(3).project(x), x, atol=1e-15)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([2.0, 0.0], [1.0, 0.0]),
        ([1.0, 1.0], [0.5, 0.5]),
        ([0.9, 0.3], [0.8, 0.2]),  # one threshold 0.1
        ([-5.0, -5.0, -5.0], [1 / 3, 1 / 3, 1 / 3]),
        ([1e12, 0.0], [1.0, 0.0]),
        ([7.0], [1.0]),
        ([1e308, -1e308], [1.0, 0.0]),
    ],
)
def test_simplex_by_hand(x: list[float], expected: list[float]) -> None:
    result = Simplex().project(torch.tensor(x, dtype=torch.float64))
    assert torch.allclose(result, torch.tensor(expected, dtype=torch.float64), atol=1e-12)


def test_simplices_are_simplices_side_by_side() -> None:
    x = torch.randn(60, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    groups = torch.randint(5, (60,), generator=torch.Generator().manual_seed(2))
    groups[groups == 3] = 4  # a group without members
    totals = torch.tensor([1.0, 0.5, 0.0, 2.0, 3.0], dtype=torch.float64)
    result = Simplices(groups, totals).project(x)
    for g in (0, 1, 2, 4):
        alone = Simplex(float(totals[g])).project(x[groups == g])
        assert torch.allclose(result[groups == g], alone, atol=1e-12)


def test_a_hundred_thousand_elements() -> None:
    # A method quadratic in time or memory would need 80 GB or minutes here.
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    result = Simplex().project(x)
    assert abs(float(result.sum()) - 1) < 1e-9
    thresholds = (x - result)[result > 0]
    # All positive entries were lowered by one threshold, and no other entry lies above it.
    assert float(thresholds.max() - thresholds.min()) < 1e-12
    assert float(x[result == 0].max()) <= float(thresholds.max()) + 1e-12


@pytest.mark.parametrize(
    "broken",
    [
        lambda: LinfBall(-1.0),
        lambda: L2Ball(float("nan")),
        lambda: Simplex(-1.0),
        lambda: Box(torch.ones(2), torch.zeros(2)),
        lambda: Simplices(torch.tensor([0, 2]), torch.ones(2)),
        lambda: Simplices(torch.tensor([0, 1]), torch.tensor([1.0, -1.0])),
    ],
)
def test_sets_without_points_are_refused(broken: Callable[[], ConstraintSet]) -> None:
    with pytest.raises(ValueError, match=r"must|need"):
        broken()


def test_l2_ball_of_vectors_whose_squares_overflow() -> None:
    x = torch.full((4,), 1e200, dtype=torch.float64)
    assert torch.allclose(L2Ball(1.0).project(x), torch.full((4,), 0.5, dtype=torch.float64))
    assert torch.equal(L2Ball(1.0).project(torch.zeros(3)), torch.zeros(3))
