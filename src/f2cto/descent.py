"""The one primitive the solver is written in: a step against a slope, then a projection."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from f2cto.constraints import ConstraintSet

Objective = Callable[[Tensor], Tensor]  # to a number
Slope = Callable[[Tensor], Tensor]  # to the gradient there, in a tensor of its own
Rule = Callable[[Tensor], Tensor]  # from a gradient, which it may write over, to the direction to step against


def plain(gradient: Tensor) -> Tensor:
    """The gradient as it is: the steps Theorem 1 speaks of."""
    return gradient


def sign(gradient: Tensor) -> Tensor:
    """The steepest direction in the l-infinity norm: the steps of PGD attacks. Written over the gradient."""
    return gradient.sign_()


def value_and_gradient(fn: Objective, x: Tensor) -> tuple[Tensor, Tensor]:
    """The value of `fn` at `x` and its gradient there; zeros where `fn` does not depend on `x`."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        value = fn(x)
    if not value.requires_grad:
        return value, torch.zeros_like(x)
    (slope,) = torch.autograd.grad(value, x, materialize_grads=True)
    return value.detach(), slope


def gradient(fn: Objective, x: Tensor) -> Tensor:
    """The gradient of `fn` at `x`; zeros where `fn` does not depend on `x`."""
    return value_and_gradient(fn, x)[1]


def projected_step(slope: Tensor, x: Tensor, onto: ConstraintSet, eta: float, rule: Rule = plain) -> Tensor:
    """One step of projected gradient descent, P(x - eta * rule(slope))."""
    return onto.project(torch.sub(x, rule(slope), alpha=eta))


def projected_descent(  # noqa: PLR0913  (what a loop of steps needs, and no more)
    slope: Slope, x: Tensor, onto: ConstraintSet, eta: float, steps: int, rule: Rule = plain
) -> Tensor:
    """`steps` steps of projected gradient descent from the projection of `x`."""
    x = onto.project(x)
    for _ in range(steps):
        direction = rule(slope(x))  # nobody else holds it, so that the step may be made in its place
        x = onto.project(torch.sub(x, direction, alpha=eta, out=direction))
    return x
