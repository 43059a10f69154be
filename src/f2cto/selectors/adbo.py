"""ADBO: asynchronous distributed bilevel optimisation by cutting planes.

Yang Jiao, Kai Yang, Tiancheng Wu, Dongjin Song, Chengtao Jian: Asynchronous Distributed Bilevel Optimization, ICLR
2023.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from f2cto.selectors.base import Given, Shard
from f2cto.selectors.consensus import Rounds
from f2cto.selectors.cutting import Cuts, Cutting, CuttingPlanes, Duals
from f2cto.selectors.levels import Task
from f2cto.selectors.soft_levels import Weighing, Weights, folded_task
from f2cto.selectors.turns import Asynchrony


@dataclass(frozen=True)
class AdboSettings:
    """All of ADBO."""

    iterations: int = 100
    model_step: float = 0.1
    shared_step: float = 0.1
    attack_steps: int = 3
    project: bool = False
    weights: Weights = field(default_factory=Weights)
    rounds: Rounds = field(default_factory=Rounds)
    cuts: Cuts = field(default_factory=Cuts)
    duals: Duals = field(default_factory=lambda: Duals(step=10.0))
    asynchrony: Asynchrony = field(default_factory=Asynchrony)


def adbo(settings: AdboSettings, given: Given) -> CuttingPlanes:
    """ADBO as a selector."""
    s = settings

    def weighing(shard: Shard) -> Weighing:
        return Weighing(shard, s.weights, s.project)

    def task(shard: Shard) -> Task:
        return folded_task(shard, given, weighing(shard), s.model_step, s.attack_steps)

    how = Cutting(s.iterations, s.shared_step, 1, s.rounds, s.cuts, s.duals, s.asynchrony)
    return CuttingPlanes(how, task, lambda shard, a: weighing(shard).coreset(a))
