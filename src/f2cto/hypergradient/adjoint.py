"""The adjoint gradients of the middle and the upper level: formulas (A) and (B) of this folder."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import torch
from torch import Tensor

from f2cto.hypergradient.levels import Hessian, Lower, derivatives, lower_level, middle_level
from f2cto.hypergradient.linear import Adjoint, Blocks, solve
from f2cto.hypergradient.problem import Point, Trilevel


@dataclass(frozen=True)
class Adjoints:
    """How the formulas are evaluated."""

    lower: Adjoint = field(default_factory=Adjoint)  # systems with f3_zz
    middle: Adjoint = field(default_factory=Adjoint)  # the system with fbar_yy
    hessian: Hessian = Hessian.EXACT


@torch.enable_grad()
def middle_gradient(problem: Trilevel, at: Point, how: Adjoint) -> Tensor:
    """The gradient of fbar in y, formula (A): f2_y - f3_yz [f3_zz]^-1 f2_z."""
    x, y, z = at.x.detach(), _leaf(at.y), tuple(map(_leaf, at.z))
    (f2_y,), f2_z = derivatives(problem.f2(x, y, z), [y], z)
    f3 = problem.f3(x, y, z)

    def slopes(keys: Collection[int]) -> Blocks:
        blocks = tuple(z[k] for k in keys)
        return dict(zip(keys, derivatives(f3, blocks, (), graph=True)[0], strict=True))

    lower = lower_level(slopes, z, f2_z.keys(), how)
    return f2_y - lower.mixed(lower.solve(f2_z), [y])[0]


@torch.enable_grad()
def hypergradient(problem: Trilevel, at: Point, how: Adjoints) -> Tensor:
    """The gradient of f in x, formula (B): a_x - fbar_xy [fbar_yy]^-1 a_y.

    Here a_x = f1_x - f3_xz [f3_zz]^-1 f1_z and a_y = f1_y - f3_yz [f3_zz]^-1 f1_z. It is the gradient of f only where y
    and z solve their levels.
    """
    x, y, z = _leaf(at.x), _leaf(at.y), tuple(map(_leaf, at.z))
    (f1_x, f1_y), f1_z = derivatives(problem.f1(x, y, z), [x, y], z)
    (f3_y,), f3_z = derivatives(problem.f3(x, y, z), [y], z, graph=True)

    def below(seen: Blocks) -> Lower:
        return lower_level(lambda keys: {k: f3_z[k] for k in keys if k in f3_z}, z, seen.keys(), how.lower)

    lower = below(f1_z)
    through_x, through_y = lower.mixed(lower.solve(f1_z), [x, y])
    (f2_y,), f2_z = derivatives(problem.f2(x, y, z), [y], z, graph=True)
    middle = middle_level(below(f2_z), y, f3_y, (f2_y, f2_z), how.hessian)
    v = solve(lambda v: {0: middle.product(v[0], y)}, {0: f1_y - through_y}, how.middle)[0]
    return f1_x - through_x - middle.product(v, x)


def _leaf(x: Tensor) -> Tensor:
    """The same values, to be differentiated in."""
    return x.detach().requires_grad_()
