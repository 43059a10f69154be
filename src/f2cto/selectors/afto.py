"""AFTO: asynchronous federated trilevel optimisation by two layers of mu-cuts.

Yang Jiao, Kai Yang, Tiancheng Wu, Chengtao Jian, Jianwei Huang: Provably Convergent Federated Trilevel Learning, AAAI
2024 (arXiv 2312.11835).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from f2cto.selectors.base import Given, Shard
from f2cto.selectors.consensus import Rounds
from f2cto.selectors.cutting import Cuts, Cutting, CuttingPlanes, Duals
from f2cto.selectors.levels import Task
from f2cto.selectors.soft_levels import Attacks, Weighing, Weights, soft_task
from f2cto.selectors.turns import Asynchrony


@dataclass(frozen=True)
class AftoSettings:
    """All of AFTO."""

    iterations: int = 100
    model_step: float = 0.1
    shared_step: float = 0.1
    project: bool = False
    weights: Weights = field(default_factory=Weights)
    attacks: Attacks = field(default_factory=Attacks)
    rounds: Rounds = field(default_factory=Rounds)
    cuts: Cuts = field(default_factory=lambda: Cuts(mu=1e-8))
    duals: Duals = field(default_factory=lambda: Duals(step=10.0))
    asynchrony: Asynchrony = field(default_factory=Asynchrony)


def afto(settings: AftoSettings, given: Given) -> CuttingPlanes:
    """AFTO as a selector."""
    s = settings

    def weighing(shard: Shard) -> Weighing:
        return Weighing(shard, s.weights, s.project)

    def task(shard: Shard) -> Task:
        return soft_task(shard, given, weighing(shard), s.model_step, s.attacks)

    how = Cutting(s.iterations, s.shared_step, 2, s.rounds, s.cuts, s.duals, s.asynchrony)
    return CuttingPlanes(how, task, lambda shard, a: weighing(shard).coreset(a))
