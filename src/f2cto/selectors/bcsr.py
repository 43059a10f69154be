"""BCSR: weights on the simplex by bilevel optimisation, drawn to K of them by a smoothed top-K term.

Jie Hao, Kaiyi Ji, Mingrui Liu: Bilevel Coreset Selection in Continual Learning: A New Formulation and Algorithm,
NeurIPS 2023. A worker alone with M samples solves

    min over w in the simplex of   F(w) = mean_k l_k(theta(w)) - lambda E_z[sum of the K largest of w + delta z]
    where theta(w) minimises       g(theta, w) = sum_k w_k l_k(theta)

by projected steps of w, each after a few gradient steps of theta, and keeps the K largest weights. Losses are clean, as
published. Theta starts from the model that all workers trained together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from f2cto.hypergradient.linear import Adjoint, solve
from f2cto.selectors.lifted import Pretraining

RELEASED_STEP = 10.0
Losses = Callable[[Tensor], Tensor]
Weighting = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class BcsrSettings:
    outer_steps: int = 20
    inner_steps: int = 1
    inner_step: float = 0.1
    weight_step: float = 0.02
    neumann: int = 3
    topk: float = 0.1
    noise: float = 1e-3
    draws: int = 50
    classwise: bool = True
    as_released: bool = False
    pretraining: Pretraining = field(default_factory=Pretraining)


def hypergradient(losses: Losses, theta: Tensor, weights: Tensor, how: Adjoint, weighting: Weighting) -> Tensor:
    theta, weights = theta.detach().requires_grad_(), weights.detach().requires_grad_()
    with torch.enable_grad():
        each = losses(theta)
        (target,) = torch.autograd.grad(each.mean(), theta, retain_graph=True)
        (slope,) = torch.autograd.grad(weighting(weights) @ each, theta, create_graph=True)
    u = solve(lambda v: {0: torch.autograd.grad(slope, theta, v[0], retain_graph=True)[0]}, {0: target}, how)[0]
    return -torch.autograd.grad(slope, weights, u)[0]
