"""ADBO: asynchronous distributed bilevel optimisation by cutting planes.

Yang Jiao, Kai Yang, Tiancheng Wu, Dongjin Song, Chengtao Jian: Asynchronous Distributed Bilevel Optimization, ICLR 2023.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from f2cto.attacks import Pgd
from f2cto.randomness import generator
from f2cto.selectors.base import Coreset, Given, Shard
from f2cto.selectors.consensus import Rounds
from f2cto.selectors.cutting import Cuts, Cutting, CuttingPlanes, Duals
from f2cto.selectors.levels import Levels, Task
from f2cto.selectors.soft_levels import SoftLevels, Weighing, Weights, largest, model_onto
from f2cto.selectors.turns import Asynchrony


@dataclass(frozen=True)
class AdboSettings:
    iterations: int = 200
    model_step: float = 0.1
    shared_step: float = 0.1
    attack_steps: int = 3
    project: bool = False
    weights: Weights = field(default_factory=Weights)
    rounds: Rounds = field(default_factory=Rounds)
    cuts: Cuts = field(default_factory=Cuts)
    duals: Duals = field(default_factory=lambda: Duals(step=10.0))
    asynchrony: Asynchrony = field(default_factory=Asynchrony)


def folded(shard: Shard, w: Tensor, given: Given, steps: int) -> Tensor:
    attack = Pgd(given.radius, steps, 2.5 * given.radius / max(steps, 1), random_start=False, valid=given.valid)
    return attack.perturb(lambda x: shard.model.logits(w, x), shard.x, shard.y, generator(0))


def adbo(settings: AdboSettings, given: Given) -> CuttingPlanes:
    s = settings
    how = Cutting(s.iterations, s.shared_step, 1, s.rounds, s.cuts, s.duals, s.asynchrony)

    def task(shard: Shard) -> Task:
        weighing = Weighing(shard, s.weights, s.project)
        weigh = weighing.weigh()

        def levels(t: int, w: Tensor) -> Levels:
            x = folded(shard, w, given, s.attack_steps)
            return SoftLevels(shard.model.losses, x, shard.y, weigh, weighing.topk(t))

        return Task(
            number=shard.worker,
            start=(weighing.start(),),
            levels=levels,
            steps=(weighing.step(), s.model_step),
            sets=(weighing.onto(), model_onto(given, project=s.project)),
        )

    def choose(shard: Shard, a: Tensor) -> Coreset:
        weights = Weighing(shard, s.weights, s.project).weigh()(a)
        return largest(shard, a, weights, classwise=s.weights.classwise)

    return CuttingPlanes(how, task, choose)
