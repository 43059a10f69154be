"""Clipping, noise, and the accounting against formulas and experiments of its own."""

from __future__ import annotations

import math
import sys
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from dp_accounting import GaussianDpEvent, NeighboringRelation
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from torch import Tensor

import f2cto
from f2cto.privacy import Privacy, noised, spent
from f2cto.randomness import generator

CLIPPED = Privacy(clip=2.0, noise=0.0)


def phi(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def leak(epsilon: float, distance: float) -> float:
    """Balle and Wang, Theorem 8: the delta of a Gaussian mechanism, its sensitivity in deviations of the noise."""
    return phi(distance / 2 - epsilon / distance) - math.exp(epsilon) * phi(-distance / 2 - epsilon / distance)


@pytest.mark.parametrize("seed", [None, 1])
def test_off_means_untouched(seed: int | None) -> None:
    move = torch.tensor([3.0, torch.inf])
    assert noised(move, Privacy(), None if seed is None else generator(seed)) is move
    assert not Privacy().on


@pytest.mark.parametrize(
    ("move", "expected"),
    [
        ([3.0, 4.0], [1.2, 1.6]),
        ([-3.0, 4.0], [-1.2, 1.6]),
        ([0.6, 0.8], [0.6, 0.8]),
        ([0.0, 0.0], [0.0, 0.0]),
        ([0.0, 1e30], [0.0, 2.0]),
        ([math.nan, 1.0], [0.0, 0.0]),  # left the numbers
        ([math.inf, 1.0], [0.0, 0.0]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_moves_are_shortened(move: list[float], expected: list[float], dtype: torch.dtype) -> None:
    given = torch.tensor(move, dtype=dtype)
    before = given.clone()
    result = noised(given, CLIPPED, generator(1))
    assert result.dtype == dtype
    assert result.tolist() == pytest.approx(expected, rel=1e-6)
    assert torch.equal(given.nan_to_num(), before.nan_to_num())
    assert result is not given


def test_lengths_of_millions_of_small_numbers() -> None:
    move = torch.full((4_000_000,), 0.1)  # of length 200; torch's sum of squares in float32 is off by a percent
    assert float(noised(move, CLIPPED, generator(1)).double().norm()) == pytest.approx(2, rel=1e-6)


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("size", [100_000, 100_001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_is_normal_with_the_deviation_said(seed: int | None, size: int, dtype: torch.dtype) -> None:
    how = Privacy(clip=3.0, noise=0.5)
    move = torch.zeros(size, dtype=dtype)
    move[7] = 100.0  # clipped to 3, two deviations
    result = noised(move, how, None if seed is None else generator(seed)).double()
    noise = (result - move.double() * 0.03) / 1.5
    # One time in a million the operating system's noise may fail here.
    assert scipy.stats.kstest(noise.numpy(), "norm").pvalue > 1e-6
    assert abs(float(noise.var()) - 1) < 5 * math.sqrt(2 / size)
    half = size // 2
    for lag in (1, half, half + size % 2):
        assert abs(float((noise[lag:] * noise[:-lag]).mean())) < 5 / math.sqrt(size - lag), "neighbours know each other"


def test_a_generator_decides_the_noise() -> None:
    how, move = Privacy(clip=1.0), torch.ones(9)
    first, again, other = (noised(move, how, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_noise_without_generator_is_nobodys() -> None:
    how, move = Privacy(clip=1.0), torch.ones(9)
    results = list[Tensor]()
    for _ in range(2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            results.append(noised(move, how))
    assert not torch.equal(*results)


@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0, 30.0, 1000.0, 1e5])
@pytest.mark.parametrize("releases", [1, 2, 10, 50])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01, 0.3])
def test_epsilon_is_where_the_formula_gives_delta(noise: float, releases: int, delta: float) -> None:
    # Opposite moves are 2 clip apart; T releases are one in which they are sqrt(T) times as far apart.
    distance = 2 / noise * math.sqrt(releases)
    epsilon = spent(Privacy(clip=0.7, noise=noise, delta=delta), releases)
    if leak(0, distance) <= delta:
        assert epsilon == 0
    elif epsilon < 600:  # beyond, exp is no number
        assert leak(epsilon, distance) == pytest.approx(delta, rel=1e-6, abs=1e-14)


@pytest.mark.parametrize(("noise", "releases"), [(1.0, 1), (2.0, 7), (10.0, 100), (40.0, 1000)])
def test_epsilon_beside_the_general_accountants(noise: float, releases: int) -> None:
    exact = spent(Privacy(clip=1.0, noise=noise), releases)
    # In the library's words: one record, which is replaced, in a sum of vectors of length one.
    table = PLDAccountant(NeighboringRelation.REPLACE_ONE).compose(GaussianDpEvent(noise), releases)
    assert table.get_epsilon(1e-5) == pytest.approx(exact, rel=1e-3)
    renyi = RdpAccountant().compose(GaussianDpEvent(noise / 2), releases).get_epsilon(1e-5)
    assert exact < renyi < 1.2 * exact


def test_two_releases_by_quadrature() -> None:
    how = Privacy(clip=3.0, noise=2.0, delta=0.05)
    epsilon = spent(how, 2)
    grid = np.linspace(-60, 60, 2001)
    one, other = (scipy.stats.norm.pdf(grid, centre, 6.0) for centre in (3.0, -3.0))
    ahead = np.outer(one, one) - math.exp(epsilon) * np.outer(other, other)
    assert ahead.clip(min=0).sum() * (grid[1] - grid[0]) ** 2 == pytest.approx(0.05, rel=1e-3)


def test_the_best_guess_about_the_data_is_as_good_as_promised() -> None:
    """Two data sets with opposite moves, three releases each: whoever sees them can tell so much and no more."""
    how, tries, releases = Privacy(clip=2.0, noise=5.0, delta=0.1), 3_000, 3
    epsilon = spent(how, releases)
    assert epsilon > 0.3
    rng, move = generator(5), torch.tensor([30.0, 40.0])  # clipped to (1.2, 1.6)
    evidence = torch.tensor(
        [
            [sum(float(noised(sign * move, how, rng) @ move) / 50 for _ in range(releases)) for _ in range(tries)]
            for sign in (1, -1)
        ]
    )
    # The logarithm of the likelihood ratio of N(2, 10^2) and N(-2, 10^2), three times, is 2 * 2 * sum / 10^2.
    guessed = (evidence * 4 / 100 > epsilon).double().mean(dim=1)
    assert float(guessed[0] - math.exp(epsilon) * guessed[1]) == pytest.approx(how.delta, abs=0.03)


def test_epsilon_grows_with_releases_and_falls_with_noise() -> None:
    grown = [spent(Privacy(clip=1.0, noise=8.0), releases) for releases in (0, 1, 2, 20, 10_000)]
    fallen = [spent(Privacy(clip=1.0, noise=noise), 20) for noise in (0.0, 0.01, 1.0, 8.0, 1e6)]
    assert grown == sorted(grown)
    assert fallen == sorted(fallen, reverse=True)
    assert len(set(grown)) == len(set(fallen)) == 5
    assert (grown[0], fallen[0]) == (0, math.inf)


def test_nothing_is_private_when_off() -> None:
    assert spent(Privacy(), 1) == math.inf
    assert spent(Privacy(), 0) == 0


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(ValueError, match="releases must be >= 0; got -1"):
        spent(Privacy(clip=1.0), -1)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"clip": -1.0}, "`clip` of privacy must be a number >= 0; got -1"),
        ({"clip": math.nan}, "`clip`"),
        ({"clip": math.inf}, "`clip`"),
        ({"noise": -0.1}, "`noise`"),
        ({"noise": math.inf}, "`noise`"),
        ({"delta": 0.0}, "`delta` of privacy is a probability between 0 and 1"),
        ({"delta": 1.0}, "`delta`"),
        ({"delta": math.nan}, "`delta`"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Privacy(**wrong)


def test_a_missing_library_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ImportError, match=r'pip install "f2cto\[privacy\]"'):
        Privacy(clip=1.0)
    assert not Privacy().on  # who wants none needs no library


def test_the_library_is_imported_only_when_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f2cto, "privacy", sys.modules["f2cto.privacy"])  # put back afterwards, like the modules
    for name in [name for name in sys.modules if name.startswith(("f2cto.privacy", "dp_accounting"))]:
        monkeypatch.delitem(sys.modules, name)
    module = import_module("f2cto.privacy")
    assert module.spent(module.Privacy(), 1) == math.inf
    assert "dp_accounting" not in sys.modules
