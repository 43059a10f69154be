"""Robust coreset selection as general trilevel and bilevel solvers take it: one smooth objective per level.

    level 1   f1 = mean_k l_k(w; x + q) - lambda top-K(alpha)            over alpha
    level 2   f2 = sum_k alpha_k l_k(w; x + p)                           over w, shared by all workers
    level 3   f3 = - sum_k alpha_k l_k(w; x + p) - mean_k l_k(w; x + q)
                   + c/2 mean_k (|p_k|^2 + |q_k|^2)                      over (p, q)

q depends on w alone and does not meet p, so that both attacks can share the third level. Alpha, p and q belong to the
samples of one worker and stay with it: only w has to agree over workers. The solvers know no constraints: a penalty
stands for the balls around the samples, as in their own experiments, and alpha = 2 base sigmoid(a) with a free a for
the simplex, as the authors of ADBO weigh samples. `base` spreads the mass of a class evenly over its samples. Bilevel
solvers have no (p, q): samples come attacked already, and the min-max is folded into f1 and f2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from f2cto.attacks.base import Range, perturbations
from f2cto.constraints import Box, ConstraintSet, L2Ball, Simplices, WholeSpace
from f2cto.methods.attacked import attacked
from f2cto.methods.base import Coreset, Given, Shard
from f2cto.methods.by_class import Picks, class_by_class
from f2cto.methods.cuts import Values
from f2cto.methods.f2cto_stages import blocks_of
from f2cto.methods.levels import Task
from f2cto.randomness import generator
from f2cto.trilevel.coreset import Blocks, TopK

Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class SoftLevels:
    """One worker's share of the problem; terms of single samples are at hand for those that may not differentiate."""

    losses: Callable[[Tensor, Tensor, Tensor], Tensor]  # (w, x, y) -> one loss per sample, (M,)
    x: Tensor  # (M, *features)
    y: Tensor  # (M,)
    weigh: Map  # from a to alpha
    topk: Map  # of alpha, lambda included
    penalty: float = 0.0  # c
    reach: Tensor | None = None  # the attack per unit of z: sqrt(M), so that |z|^2 is a mean, or 0 for fixed features

    def f1(self, a: Tensor, w: Tensor, z: Values) -> Tensor:
        """The robust loss on all samples minus the top-K term."""
        return self.judged(w, z).sum() + self.own(a)

    def f2(self, a: Tensor, w: Tensor, z: Values) -> Tensor:
        """The weighted robust training loss."""
        return self.trained(a, w, z).sum()

    def f3(self, a: Tensor, w: Tensor, z: Values) -> Tensor:
        """What both attacks minimise."""
        return self.attacked(a, w, z).sum()

    def own(self, a: Tensor) -> Tensor:
        """The term of f1 in a alone."""
        return -self.topk(self.weigh(a))

    def judged(self, w: Tensor, z: Values) -> Tensor:
        """The other terms of f1, sample by sample; sample k's depends on row k of z only.  (M,)."""
        return self._losses(w, z, 1) / len(self.y)

    def trained(self, a: Tensor, w: Tensor, z: Values) -> Tensor:
        """The terms of f2.  (M,)."""
        return self.weigh(a) * self._losses(w, z, 0)

    def attacked(self, a: Tensor, w: Tensor, z: Values) -> Tensor:
        """The terms of f3; sample k's depends on row k of z only.  (M,)."""
        lengths = sum(block.square().flatten(1).sum(dim=1) for block in z)
        return self.penalty / 2 * lengths - self.trained(a, w, z) - self.judged(w, z)

    def _losses(self, w: Tensor, z: Values, which: int) -> Tensor:
        if not z:
            return self.losses(w, self.x, self.y)
        return self.losses(w, self.x + (z[which] if self.reach is None else z[which] * self.reach), self.y)


@dataclass(frozen=True)
class Weights:
    """Level 1: the weights of the samples."""

    step: float = 1.0  # in units of the mean weight 1/M
    topk: float = 0.1  # lambda
    noise: float = 0.1  # deviation of the smoothing noise, in units of the mean weight 1/M
    draws: int = 50
    classwise: bool = True

    def __post_init__(self) -> None:
        """Refuse values the level cannot work with."""
        if self.draws < 1 or min(self.step, self.topk, self.noise) < 0:
            msg = f"Weights need draws >= 1 and step, topk and noise >= 0; got {self}."
            raise ValueError(msg)


@dataclass(frozen=True, eq=False)
class Weighing:
    """How one worker's weights come out of free variables, or out of themselves where they are projected."""

    shard: Shard
    settings: Weights
    project: bool

    @cached_property
    def blocks(self) -> Blocks:
        """The samples that compete with each other."""
        return blocks_of(self.shard, classwise=self.settings.classwise)

    def start(self) -> Tensor:
        """The variables of even weights."""
        return self.base() if self.project else torch.zeros_like(self.base())

    def base(self) -> Tensor:
        """Even weights: every block's mass is its share of the places."""
        return self.simplices().project(self.shard.x.new_zeros(len(self.shard.y)))

    def weigh(self) -> Map:
        """From variables to weights."""
        if self.project:
            return lambda alpha: alpha
        twice = 2 * self.base()
        return lambda a: twice * a.sigmoid()

    def step(self) -> float:
        """The step of the variables: a step of 1/M in alpha is about one of M in a."""
        count = len(self.shard.y)
        return self.settings.step * (1 / count if self.project else count)

    def simplices(self) -> Simplices:
        """Where projected weights live."""
        return Simplices(self.blocks.groups, self.blocks.sizes.double() / self.shard.size)

    def onto(self) -> ConstraintSet:
        """Where the variables live."""
        return self.simplices() if self.project else WholeSpace()

    def coreset(self, a: Tensor) -> Coreset:
        """The samples with the largest variables, class by class, and their weights."""
        weights = self.weigh()(a)

        def pick(rows: Tensor, places: int) -> Picks:
            order = a[rows].argsort(descending=True, stable=True)[:places]
            return order, weights[rows][order]

        return class_by_class(self.shard, pick, classwise=self.settings.classwise)

    def topk(self, t: int) -> TopK:
        """The regulariser with the noise of iteration t."""
        return TopK(self.settings.topk, self.blocks, lambda: self._noise(t))

    def _noise(self, t: int) -> Tensor:
        shard = self.shard
        rng = generator(shard.seed, shard.worker, t, device=shard.x.device)
        shape = (self.settings.draws, len(shard.y))
        drawn = torch.randn(shape, generator=rng, dtype=shard.x.dtype, device=shard.x.device)
        return drawn * (self.settings.noise / len(shard.y))


def reach(shard: Shard, valid: Range) -> Tensor:
    """The attack per unit of a lower variable: nothing on features that no attacker can change."""
    return valid.reach(shard.x, math.sqrt(len(shard.y)))


def attacks_onto(shard: Shard, given: Given, *, project: bool) -> ConstraintSet:
    """Where lower variables live: anywhere, or where attacks stay in the ball around the samples."""
    if not project:
        return WholeSpace()
    ball, unit = perturbations(shard.x, given.radius, given.valid), math.sqrt(len(shard.y))
    return Box(ball.lower / unit, ball.upper / unit)


def model_onto(given: Given, *, project: bool) -> ConstraintSet:
    """Where parameters live: anywhere, or within twice their initial norm."""
    return L2Ball(2 * float(given.w.norm())) if project else WholeSpace()


@dataclass(frozen=True)
class Attacks:
    """Level 3: the attacks p and q, with a penalty for their length."""

    penalty: float = 1.0  # c; an attack is about |gradient of its sample's loss| / c long
    step: float = 0.01  # in a plain step
    answer_step: float = 0.5  # towards the level's answer, in units of 1/c
    answer_steps: int = 1

    def __post_init__(self) -> None:
        """Refuse attacks without a bound."""
        if not self.penalty > 0 or min(self.step, self.answer_step) < 0 or self.answer_steps < 1:
            msg = f"Attacks need a penalty > 0, steps of length >= 0 and answer_steps >= 1; got {self}."
            raise ValueError(msg)


def soft_task(shard: Shard, given: Given, weighing: Weighing, step: float, attacks: Attacks) -> Task:
    """The trilevel form: lower variables are p and q."""
    weigh, unit, none = weighing.weigh(), reach(shard, given.valid), shard.x.new_zeros(shard.x.shape)
    balls = attacks_onto(shard, given, project=weighing.project)

    def levels(t: int, _: Tensor) -> SoftLevels:
        return SoftLevels(shard.model.losses, shard.x, shard.y, weigh, weighing.topk(t), attacks.penalty, unit)

    return Task(
        number=shard.worker,
        start=(weighing.start(), none, none),
        levels=levels,
        steps=(weighing.step(), step, attacks.step, attacks.step),
        sets=(weighing.onto(), model_onto(given, project=weighing.project), balls, balls),
        lower_step=attacks.answer_step / attacks.penalty,
        lower_steps=attacks.answer_steps,
        seed=shard.seed,
    )


def folded_task(shard: Shard, given: Given, weighing: Weighing, step: float, attack_steps: int) -> Task:
    """The bilevel form: no lower variables, samples attacked anew wherever objectives are asked for."""
    weigh = weighing.weigh()

    def levels(t: int, w: Tensor) -> SoftLevels:
        rng = generator(shard.seed, shard.worker, t, 1, device=shard.x.device)
        x = attacked(shard, w, given, attack_steps, rng)
        return SoftLevels(shard.model.losses, x, shard.y, weigh, weighing.topk(t))

    return Task(
        number=shard.worker,
        start=(weighing.start(),),
        levels=levels,
        steps=(weighing.step(), step),
        sets=(weighing.onto(), model_onto(given, project=weighing.project)),
        seed=shard.seed,
    )
