from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from f2cto.methods.omp import Pick, matching_pursuit
from f2cto.methods.vectors import Points
from f2cto.randomness import generator

quick = settings(max_examples=20, deadline=None)
seeds = st.integers(0, 10**6)
ATOMS = 8


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def pursue(atoms: Tensor, target: Tensor, count: int, pick: Pick = Pick.ALIGNED) -> tuple[list[int], Tensor]:
    order, weights = matching_pursuit(Points(atoms), atoms @ target, count, pick=pick)
    return order.tolist(), weights


def error(atoms: Tensor, target: Tensor, chosen: list[int], weights: Tensor) -> float:
    return float((weights @ atoms[chosen] - target).square().sum())


def least_error(atoms: Tensor, target: Tensor, among: list[int], count: int) -> float:
    """The best that up to `count` atoms can do with weights >= 0: plain least squares for every set of them."""
    best = float(target.square().sum())
    for size in range(1, count + 1):
        for some in combinations(among, size):
            fit = np.linalg.lstsq(atoms[list(some)].numpy().T, target.numpy())[0]
            if (fit >= 0).all():
                best = min(best, error(atoms, target, list(some), torch.from_numpy(fit)))
    return best


def best_error(atoms: Tensor, target: Tensor, count: int) -> float:
    return least_error(atoms, target, list(range(ATOMS)), count)


@given(seeds, st.integers(1, 4))
@quick
def test_the_best_subset_of_orthogonal_atoms(seed: int, count: int) -> None:
    """Each atom's share of the target is its own business, so that greedy is exact."""
    atoms = torch.linalg.qr(random(seed, ATOMS, ATOMS)).Q
    target = random(seed + 1, ATOMS)
    order, weights = pursue(atoms, target, count)
    assert error(atoms, target, order, weights) == pytest.approx(best_error(atoms, target, count), abs=1e-9)


@given(seeds, st.integers(1, 3))
@quick
def test_the_best_subset_of_atoms_that_are_nearly_orthogonal(seed: int, count: int) -> None:
    """Tropp, 2004: a target of k atoms is found exactly where no two have an inner product of 1/(2k - 1) or more."""
    atoms = torch.linalg.qr(random(seed, ATOMS, ATOMS)).Q + 0.02 * random(seed + 1, ATOMS, ATOMS)
    atoms = atoms / atoms.norm(dim=1, keepdim=True)
    assert float((atoms @ atoms.T - torch.eye(ATOMS)).abs().max()) < 1 / 5
    used = torch.randperm(ATOMS, generator=generator(seed, 2))[:count]
    amounts = 0.2 + random(seed + 3, count).abs()
    target = amounts @ atoms[used]
    order, weights = pursue(atoms, target, count)
    assert sorted(order) == sorted(used.tolist())
    assert best_error(atoms, target, count) == pytest.approx(0, abs=1e-12)
    assert torch.allclose(weights, torch.stack([amounts[used == k][0] for k in order]), atol=1e-6)


@given(seeds, st.integers(1, 5))
@quick
def test_weights_are_the_best_that_are_not_negative(seed: int, count: int) -> None:
    atoms, target = random(seed, ATOMS, 4), random(seed + 1, 4)  # more atoms than dimensions: some weights are zero
    order, weights = pursue(atoms, target, count)
    assert bool((weights >= 0).all())
    assert error(atoms, target, order, weights) == pytest.approx(least_error(atoms, target, order, count), abs=1e-7)
    assert error(atoms, target, order, weights) >= best_error(atoms, target, count) - 1e-9


@given(seeds)
@quick
def test_more_atoms_come_nearer_and_all_are_taken_once(seed: int) -> None:
    atoms, target = random(seed, ATOMS, 5), random(seed + 1, 5)
    longest, _ = pursue(atoms, target, ATOMS)
    assert sorted(longest) == list(range(ATOMS))
    errors = []
    for count in range(1, ATOMS + 1):
        order, weights = pursue(atoms, target, count)
        assert order == longest[:count]
        errors.append(error(atoms, target, order, weights))
    assert all(later <= before + 1e-7 for before, later in pairwise(errors))


def test_each_atom_is_the_best_aligned_with_what_is_left() -> None:
    atoms, target = random(3, ATOMS, 6), random(4, 6)
    for count in range(3):
        order, weights = pursue(atoms, target, count)
        residual = target - (weights @ atoms[order] if order else 0)
        products = atoms @ residual
        products[order] = -torch.inf
        assert pursue(atoms, target, count + 1)[0][-1] == int(products.argmax())


def test_the_nearest_atom_need_not_be_the_best_aligned() -> None:
    # Inner products with (1, 0): 3 and 0.9; squared distances: 4 and 0.01.
    atoms, target = torch.tensor([[3.0, 0.0], [0.9, 0.0]]).double(), torch.tensor([1.0, 0.0]).double()
    assert pursue(atoms, target, 1)[0] == [0]
    assert pursue(atoms, target, 1, Pick.NEAREST)[0] == [1]


def test_nothing_helps() -> None:
    # All atoms point away from the target; the one that hurts least comes first.
    atoms = torch.tensor([[-2.0, 0.0], [-1.0, 0.0], [-3.0, 0.0]]).double()
    order, weights = pursue(atoms, torch.tensor([1.0, 0.0]).double(), 3)
    assert order == [1, 0, 2]
    assert weights.tolist() == [0, 0, 0]


def test_a_ridge_shrinks() -> None:
    # min (2 x - 6)^2 + 2 x^2: 2 (2 x - 6) 2 + 4 x = 0, x = 2.
    _, weights = matching_pursuit(Points(torch.tensor([[2.0]]).double()), torch.tensor([12.0]), 1, ridge=2.0)
    assert weights.tolist() == [pytest.approx(2)]


def test_doubles_share_and_zeros_are_harmless() -> None:
    atoms = torch.tensor([[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]).double()
    order, weights = pursue(atoms, torch.tensor([2.0, 2.0]).double(), 3)
    assert sorted(order) == [0, 1, 2]
    assert float(weights[:2].sum()) == pytest.approx(2, abs=1e-6)
    nothing, none = pursue(torch.zeros(3, 2).double(), torch.zeros(2).double(), 3)
    assert sorted(nothing) == [0, 1, 2]
    assert none.tolist() == [0, 0, 0]
