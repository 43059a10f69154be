"""ADBO: asynchronous distributed bilevel optimisation by cutting planes.

Yang Jiao, Kai Yang, Tiancheng Wu, Dongjin Song, Chengtao Jian: Asynchronous Distributed Bilevel Optimization, ICLR
2023. One layer of the cuts of `cutting`, with mu = 0: h is taken as convex.

The bilevel form of robust coresets: level 3 and the attack of level 1 are folded into the losses, which are taken at
samples attacked by PGD on the worker's present model. The upper variables a_j weigh the samples of one worker by
sigmoid(a_j), as in the authors' experiments, and are nobody else's, so that their consensus variable and its
multipliers fall away. The released code leaves out what a new cut owes to the way of z; here it is there.

What crosses per worker: a plain iteration 2d floats (w_j up, z down) and a number per cut each way; making a cut
(4K - 1)d. See `afto` for how turns are counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from f2cto.methods.base import Given, Shard
from f2cto.methods.consensus import Rounds
from f2cto.methods.cutting import Cuts, Cutting, CuttingPlanes, Duals
from f2cto.methods.levels import Task
from f2cto.methods.soft_levels import Weighing, Weights, folded_task
from f2cto.methods.turns import Asynchrony


@dataclass(frozen=True)
class AdboSettings:
    """All of ADBO."""

    iterations: int = 100
    model_step: float = 0.1  # of the workers' w_j
    shared_step: float = 0.1  # of z
    attack_steps: int = 3
    project: bool = False  # keep all variables in their sets, which the published method does not
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
