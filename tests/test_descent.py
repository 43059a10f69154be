from __future__ import annotations

import torch

from f2cto.constraints import LinfBall, WholeSpace
from f2cto.descent import gradient, projected_descent, projected_step, sign, value_and_gradient

X = torch.tensor([2.0, -1.0], dtype=torch.float64)


def square(x: torch.Tensor) -> torch.Tensor:
    return x.square().sum()


def slope(x: torch.Tensor) -> torch.Tensor:
    return gradient(square, x)


def test_gradient_and_value_of_a_square() -> None:
    value, found = value_and_gradient(square, X)
    assert float(value) == 5.0
    assert torch.equal(found, 2 * X)


def test_gradient_is_zero_where_nothing_depends_on_x() -> None:
    assert torch.equal(gradient(lambda _: torch.ones(()), X), torch.zeros_like(X))
    w = torch.ones(2, dtype=torch.float64, requires_grad=True)
    assert torch.equal(gradient(lambda _: w.sum(), X), torch.zeros_like(X))


def test_gradient_works_under_no_grad() -> None:
    with torch.no_grad():
        assert torch.equal(gradient(square, X), 2 * X)


def test_steps_plain_and_sign() -> None:
    assert torch.allclose(projected_step(2 * X, X, WholeSpace(), 0.25), X / 2)
    assert torch.allclose(projected_step(2 * X, X, LinfBall(1.0), 0.1, sign), torch.tensor([1.0, -0.9]).double())


def test_descent_starts_inside_and_takes_all_steps() -> None:
    assert torch.equal(projected_descent(slope, X, LinfBall(1.0), 0.5, 0), torch.tensor([1.0, -1.0]).double())
    assert torch.allclose(projected_descent(slope, X, WholeSpace(), 0.25, 3), X / 8)
