from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from f2cto.methods.cuts import Values
from f2cto.methods.zeroth_order import Smoothing, two_point
from f2cto.randomness import generator

DRAWS = 4000


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def test_on_a_quadratic_the_mean_is_the_gradient() -> None:
    """G = (g'u + r/2 u'Hu) u. Odd moments vanish, so E G = g; E|G|^2 = (n + 2)|g|^2 + r^2/4 E(u'Hu)^2 |u|^2, and the
    last mean is at most |H|^2 n (n + 2)(n + 4). The mean of S draws is off by sqrt(E|G|^2 / S) at most, in the mean.
    """
    n, r = 5, 0.1
    h, b, v = draw(1, n, n), draw(2, n), draw(3, n)
    h = (h + h.T) / 2
    gradient, norm = h @ v + b, float(torch.linalg.matrix_norm(h, 2))

    def f(x: Values) -> Tensor:
        return x[0] @ h @ x[0] / 2 + b @ x[0]

    value, (mean,) = two_point(f, (v,), Smoothing(r, DRAWS), generator(4))
    second = (n + 2) * float(gradient.square().sum()) + r**2 / 4 * norm**2 * n * (n + 2) * (n + 4)
    assert float(value) == pytest.approx(float(f((v,))))
    assert float((mean - gradient).norm()) <= 3 * math.sqrt(second / DRAWS)
    # The tolerance tells the gradient from nothing and from twice itself.
    assert 3 * math.sqrt(second / DRAWS) < float(gradient.norm()) / 2


def test_otherwise_it_is_the_gradient_of_the_smoothed_function() -> None:
    """Cos smoothed by noise of deviation r is exp(-r^2/2) cos: with r = 1, the slope shrinks to 0.607 of itself.

    |G| <= 2 |u| / r, so that E|G|^2 <= 4 n.
    """
    v = torch.tensor([math.pi / 2, -math.pi / 2, 1.0], dtype=torch.float64)
    _, (mean,) = two_point(lambda x: x[0].cos().sum() / 3, (v,), Smoothing(1.0, DRAWS), generator(5))
    expected, tolerance = -math.exp(-0.5) * v.sin() / 3, 3 * math.sqrt(4 * 3 / DRAWS) / 3
    assert float((mean - expected).norm()) <= tolerance
    assert float((mean + v.sin() / 3).norm()) > tolerance


def test_rows_have_differences_of_their_own() -> None:
    """Row k of the sum's gradient is then estimated from row k alone: E|G_k|^2 = (n + 2)|g_k|^2 with n per row."""
    weights, v = torch.tensor([0.0, 1.0, 100.0], dtype=torch.float64), draw(6, 3, 2)

    def rows(x: Values) -> Tensor:
        return weights * x[0].square().sum(dim=1) / 2

    _, (mean,) = two_point(rows, (v,), Smoothing(1e-6, DRAWS), generator(7))
    gradient = weights[:, None] * v
    assert float(mean[0].abs().max()) == 0
    for k in (1, 2):
        assert float((mean[k] - gradient[k]).norm()) <= 3 * math.sqrt(4 / DRAWS) * float(gradient[k].norm())
    # Summed first, the third row's difference is all that the first row hears.
    _, (summed,) = two_point(lambda x: rows(x).sum(), (v,), Smoothing(1e-6, 1), generator(7))
    assert float(summed[0].abs().max()) > 0


def test_blocks_share_a_direction() -> None:
    def f(v: Values) -> Tensor:
        return 2 * v[0].sum() + 3 * v[1].sum()

    v = (torch.zeros(2, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    _, mean = two_point(f, v, Smoothing(1e-3, DRAWS), generator(8))
    gradient = torch.tensor([2.0, 2.0, 3.0], dtype=torch.float64)
    assert float((torch.cat(mean) - gradient).norm()) <= 3 * math.sqrt(5 * 17 / DRAWS)


@pytest.mark.parametrize(("radius", "directions"), [(0.0, 1), (1e-3, 0)])
def test_estimates_out_of_nothing_are_refused(radius: float, directions: int) -> None:
    with pytest.raises(ValueError, match="directions >= 1 and a radius > 0"):
        Smoothing(radius, directions)
