"""AFTO: asynchronous federated trilevel optimisation by two layers of mu-cuts.

Yang Jiao, Kai Yang, Tiancheng Wu, Chengtao Jian, Jianwei Huang: Provably Convergent Federated Trilevel Learning, AAAI
2024 (arXiv 2312.11835).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from f2cto.selectors.base import Coreset, Given, Shard
from f2cto.selectors.consensus import Rounds
from f2cto.selectors.cutting import Cuts, Cutting, CuttingPlanes, Duals
from f2cto.selectors.levels import Levels, Task
from f2cto.selectors.soft_levels import (
    SoftLevels,
    Weighing,
    Weights,
    attacks_onto,
    largest,
    model_onto,
    reach,
)
from f2cto.selectors.turns import Asynchrony


@dataclass(frozen=True)
class Attacks:
    penalty: float = 1.0  # c, in units of the mean weight 1/M: attacks are about |grad l| / penalty long
    step: float = 0.1  # of p and q in a plain step, in the same units
    answer_step: float = 0.5  # of the steps towards the level's answer, in units of 1/c
    answer_steps: int = 1


@dataclass(frozen=True)
class AftoSettings:
    iterations: int = 200
    model_step: float = 0.1
    shared_step: float = 0.1
    project: bool = False
    weights: Weights = field(default_factory=Weights)
    attacks: Attacks = field(default_factory=Attacks)
    rounds: Rounds = field(default_factory=Rounds)
    cuts: Cuts = field(default_factory=lambda: Cuts(mu=1e-8))
    duals: Duals = field(default_factory=Duals)
    asynchrony: Asynchrony = field(default_factory=Asynchrony)


def afto(settings: AftoSettings, given: Given) -> CuttingPlanes:
    s = settings
    how = Cutting(s.iterations, s.shared_step, 2, s.rounds, s.cuts, s.duals, s.asynchrony)

    def task(shard: Shard) -> Task:
        weighing = Weighing(shard, s.weights, s.project)
        weigh, unit = weighing.weigh(), reach(shard, given.valid)

        def levels(t: int, w: Tensor) -> Levels:
            topk = weighing.topk(t)
            return SoftLevels(shard.model.losses, shard.x, shard.y, weigh, topk, s.attacks.penalty, unit)

        balls = attacks_onto(shard, given, project=s.project)
        none = shard.x.new_zeros(shard.x.shape)
        return Task(
            number=shard.worker,
            start=(weighing.start(), none, none),
            levels=levels,
            steps=(weighing.step(), s.model_step, s.attacks.step, s.attacks.step),
            sets=(weighing.onto(), model_onto(given, project=s.project), balls, balls),
            lower_step=s.attacks.answer_step / s.attacks.penalty,
            lower_steps=s.attacks.answer_steps,
        )

    def choose(shard: Shard, a: Tensor) -> Coreset:
        weights = Weighing(shard, s.weights, s.project).weigh()(a)
        return largest(shard, a, weights, classwise=s.weights.classwise)

    return CuttingPlanes(how, task, choose)
