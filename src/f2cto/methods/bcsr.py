"""BCSR: weights on the simplex by bilevel optimisation, drawn towards K of them by a smoothed top-K term.

Jie Hao, Kaiyi Ji, Mingrui Liu: Bilevel Coreset Selection in Continual Learning: A New Formulation and Algorithm,
NeurIPS 2023. A worker alone with M samples solves

    min over w in the simplex of  mean_k loss_k(theta(w)) - lambda E_z[sum of the K largest of w + delta z]
    where theta(w) minimises      g(theta, w) = sum_k w_k loss_k(theta)

by projected steps of w, each after some gradient steps of theta, and keeps the K largest weights. Losses are clean, as
published. Theta starts from a model that all workers trained together, and only briefly: from one that has learnt all
samples a few inner steps never lead to theta(w), and the weights go to what it still gets wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Generator, Tensor

from f2cto.constraints import Simplex, WholeSpace
from f2cto.descent import gradient, projected_descent, projected_step
from f2cto.hypergradient.linear import Adjoint, Blocks, solve
from f2cto.methods.base import Coreset, Given, Shard
from f2cto.methods.by_class import Picks, alike, class_by_class
from f2cto.methods.f2cto_stages import blocks_of
from f2cto.methods.lifted import Lifted, Pretraining
from f2cto.trilevel.coreset import TopK
from f2cto.trilevel.master import DivergedError

Losses = Callable[[Tensor], Tensor]  # from theta to the loss of each sample, (M,)
Weighting = Callable[[Tensor], Tensor]  # from w to the weight of each loss in g, (M,)

# What the authors' main.py comes to run with: 5 by default, overridden by 10 whatever the data set.
RELEASED_STEP = 10.0


@dataclass(frozen=True)
class BcsrSettings:
    """What the paper leaves to be chosen.

    `as_released` is what the authors' code does instead. Its regulariser, whose noise comes after the ranking, is only
    differentiated in theta, on which it does not depend, so that it has no effect. The hypergradient is that of a g
    with softmax(w) for w, without the Neumann series' leading step. g is divided by M; both steps are 10; `inner_step`,
    `weight_step`, `topk`, `noise` and `draws` have no say. K samples are drawn with the weights as probabilities, and
    then weigh the same.
    """

    outer_steps: int = 5
    inner_steps: int = 1
    inner_step: float = 0.1
    weight_step: float = 0.02
    neumann: int = 3  # products with the Hessian of g in one hypergradient
    topk: float = 0.1  # lambda
    noise: float = 1e-3  # delta
    draws: int = 50  # of z, in every step
    classwise: bool = True  # as many of each class, ranked within it; the paper has one ranking
    as_released: bool = False
    pretraining: Pretraining = field(default_factory=lambda: Pretraining(rounds=2, robust=False))

    def __post_init__(self) -> None:
        """Refuse what cannot be carried out."""
        if min(self.outer_steps, self.inner_steps, self.neumann) < 0 or self.draws < 1:
            msg = (
                "`outer_steps`, `inner_steps` and `neumann` must be >= 0 and `draws` >= 1; "
                f"got {self.outer_steps}, {self.inner_steps}, {self.neumann} and {self.draws}."
            )
            raise ValueError(msg)
        if not self.inner_step > 0 or min(self.weight_step, self.topk, self.noise) < 0:
            msg = (
                "`inner_step` must be > 0 and `weight_step`, `topk` and `noise` >= 0; "
                f"got {self.inner_step}, {self.weight_step}, {self.topk} and {self.noise}."
            )
            raise ValueError(msg)


def hypergradient(losses: Losses, at: tuple[Tensor, Tensor], weighting: Weighting, how: Adjoint) -> Tensor:
    """The gradient in w of mean_k loss_k(theta(w)), at theta and w: -g_w,theta [g_theta,theta]^-1 mean_k loss_k'.

    It is that gradient only where theta minimises g and the Neumann series has converged.
    """
    theta, w = (v.detach().requires_grad_() for v in at)
    with torch.enable_grad():
        each = losses(theta)
        (wanted,) = torch.autograd.grad(each.mean(), theta, retain_graph=True)
        (slope,) = torch.autograd.grad(weighting(w) @ each, theta, create_graph=True)

    def product(v: Blocks) -> Blocks:
        return {0: torch.autograd.grad(slope, theta, v[0], retain_graph=True)[0]}

    return -torch.autograd.grad(slope, w, solve(product, {0: wanted}, how)[0])[0]


def weigh(s: BcsrSettings, shard: Shard, theta: Tensor, rng: Generator) -> Tensor:
    """The weights of a shard's samples."""
    count, blocks = len(shard.y), blocks_of(shard, classwise=s.classwise)
    w = Simplex().project(shard.x.new_zeros(count))
    losses: Losses = lambda v: shard.model.losses(v, shard.x, shard.y)  # noqa: E731
    inner, outer = (RELEASED_STEP / count, RELEASED_STEP) if s.as_released else (s.inner_step, s.weight_step)
    for number in range(s.outer_steps):
        train = partial(gradient, lambda v: w @ losses(v))  # noqa: B023
        theta = projected_descent(train, theta, WholeSpace(), inner, s.inner_steps)
        if s.as_released:
            slope = released_slope(losses, (theta, w), s.neumann)
        else:
            z = torch.randn(s.draws, count, generator=rng).to(w) * s.noise
            topk = TopK(s.topk, blocks, lambda: z)  # noqa: B023
            slope = hypergradient(losses, (theta, w), _as_it_is, Adjoint(terms=s.neumann, eta=inner))
            slope = slope - topk.inclusion(w)
        _check_finite(slope, shard, number)
        w = projected_step(slope, w, Simplex(), outer)
    return w


def released_slope(losses: Losses, at: tuple[Tensor, Tensor], neumann: int) -> Tensor:
    """The step direction of the authors' code: see `BcsrSettings`."""
    how = Adjoint(terms=neumann, eta=RELEASED_STEP)
    return hypergradient(losses, at, lambda w: w.softmax(dim=0) / len(w), how) / RELEASED_STEP


def choose(settings: BcsrSettings, shard: Shard, theta: Tensor, rng: Generator) -> Coreset:
    """One worker's coreset: the largest weights, or a draw as the authors' code has it."""
    w = weigh(settings, shard, theta, rng)
    # Largest w/e first, with e exponential, is a draw without replacement with probabilities w. Zeros come last.
    race = torch.empty(len(w), dtype=torch.float64).exponential_(generator=rng).to(w.device)
    scores = w / race if settings.as_released else w

    def pick(rows: Tensor, places: int) -> Picks:
        order = scores[rows].argsort(descending=True, stable=True)[:places]
        return alike(order) if settings.as_released else (order, w[rows][order])

    return class_by_class(shard, pick, classwise=settings.classwise)


def make(settings: BcsrSettings, given: Given) -> Lifted:
    """The method, ready to run."""
    return Lifted(partial(choose, settings), settings.pretraining, given)


def _as_it_is(w: Tensor) -> Tensor:
    return w


def _check_finite(slope: Tensor, shard: Shard, number: int) -> None:
    if not bool(torch.isfinite(slope).all()):
        msg = (
            f"The weights of worker {shard.worker} became infinite or NaN in outer step {number + 1}; "
            "lower `inner_step` or `inner_steps`."
        )
        raise DivergedError(msg)
