"""Level 2 over a federation: rounds between workers and master towards a model they agree on, and back through them.

Worker j has a model y_j, the master has z; y_j = z is enforced by multipliers phi_j and a quadratic pull kappa, planes
a_l.z + c_l <= 0 on z by multipliers gamma_l and a penalty rho, slacks minimised out. One round:

    worker   y_j'   = y_j - eta (grad f2_j(y_j) + phi_j + kappa (y_j - z)),     phi_j' = phi_j + sigma (y_j' - z)
    master   z'     = z + eta_z (mean_j (phi_j' + kappa (y_j' - z)) - sum_l max(0, gamma_l + rho (a_l.z + c_l)) a_l / N)
             gamma' = max(0, gamma + rho (a.z' + c))

A cut needs the derivative of what comes out after K rounds in what each worker keeps to itself. Rounds are therefore
gone through a second time, backwards: the master sends what its z has to say about the models, the workers answer with
what their models have to say about the z before.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from f2cto.constraints import ConstraintSet, WholeSpace
from f2cto.methods.cuts import Values
from f2cto.methods.levels import Levels

Local = tuple[Tensor, Tensor]  # y_j and phi_j
Shared = tuple[Tensor, Tensor]  # z and gamma
ANYWHERE = WholeSpace()


@dataclass(frozen=True)
class Rounds:
    """How level 2 is solved where a cut is made."""

    rounds: int = 1  # K
    step: float = 0.1  # eta
    pull: float = 1.0  # kappa
    dual_step: float = 0.1  # sigma
    shared_step: float = 0.1  # eta_z
    penalty: float = 1.0  # rho

    def __post_init__(self) -> None:
        """Refuse rounds that do nothing or go backwards."""
        if self.rounds < 1 or min(self.step, self.pull, self.dual_step, self.shared_step, self.penalty) < 0:
            msg = f"Level 2 needs rounds >= 1 and steps, pull and penalty >= 0; got {self}."
            raise ValueError(msg)


@dataclass(frozen=True, eq=False)
class Floor:
    """The planes that level 2 has to respect: a_l.z + c_l <= 0."""

    slopes: Tensor  # (L, d)
    heights: Tensor  # (L,)


def local_round(  # noqa: PLR0913  (what a round depends on, each of it differentiated in)
    levels: Levels, own: Values, before: Local, z: Tensor, how: Rounds, onto: ConstraintSet = ANYWHERE
) -> Local:
    """The worker's part of a round; `own` are its upper and lower variables."""
    y, phi = before
    (slope,) = torch.autograd.grad(levels.f2(own[0], y, own[1:]), y, create_graph=True)
    y_next = onto.project(y - how.step * (slope + phi + how.pull * (y - z)))
    return y_next, phi + how.dual_step * (y_next - z)


def shared_round(before: Shared, means: Local, floor: Floor, workers: int, how: Rounds) -> Shared:
    """The master's part of a round; `means` are those of y_j' and phi_j'."""
    z, gamma = before
    y, phi = means
    hold = (gamma + how.penalty * (floor.slopes @ z + floor.heights)).relu()
    z_next = z + how.shared_step * (phi + how.pull * (y - z) - hold @ floor.slopes / workers)
    return z_next, (gamma + how.penalty * (floor.slopes @ z_next + floor.heights)).relu()


@dataclass(frozen=True, eq=False)
class LocalPull:
    """What comes back through a worker's round."""

    own: Values
    before: Local
    z: Tensor


@torch.enable_grad()
def local_back(  # noqa: PLR0913
    levels: Levels, own: Values, before: Local, z: Tensor, how: Rounds, after: Local, onto: ConstraintSet = ANYWHERE
) -> LocalPull:
    """The derivative of <after, what the round gives> in all that goes into the round."""
    leaves = _leaves((*own, *before, z))
    outputs = local_round(levels, leaves[: len(own)], (leaves[-3], leaves[-2]), leaves[-1], how, onto)
    slopes = torch.autograd.grad(outputs, leaves, after, materialize_grads=True)
    return LocalPull(tuple(slopes[: len(own)]), (slopes[-3], slopes[-2]), slopes[-1])


@dataclass(frozen=True, eq=False)
class SharedPull:
    """What comes back through the master's round."""

    before: Shared
    phi: Tensor  # for each worker's phi_j'; kappa times it is for y_j'
    heights: Tensor


@torch.enable_grad()
def shared_back(  # noqa: PLR0913
    before: Shared, means: Local, floor: Floor, workers: int, how: Rounds, after: Shared
) -> SharedPull:
    """The derivative of <after, what the round gives> in all that goes into the round."""
    z, gamma, y, phi, heights = leaves = _leaves((*before, *means, floor.heights))
    outputs = shared_round((z, gamma), (y, phi), Floor(floor.slopes, heights), workers, how)
    slopes = torch.autograd.grad(outputs, leaves, after, materialize_grads=True)
    return SharedPull((slopes[0], slopes[1]), slopes[3] / workers, slopes[4])


def _leaves(values: Values) -> Values:
    """The same values, to be differentiated in."""
    return tuple(value.detach().requires_grad_() for value in values)
