"""AFTO: asynchronous federated trilevel optimisation by two layers of mu-cuts.

Yang Jiao, Kai Yang, Tiancheng Wu, Chengtao Jian, Jianwei Huang: Provably Convergent Federated Trilevel Learning, AAAI
2024 (arXiv 2312.11835). There is no public code; where the paper leaves a constant open, that of the same authors' ADBO
or one found here is taken.

How the published form is mapped. Its copies x1_j, x2_j, x3_j of three shared variables are a_j (weights), w_j (model)
and (p_j, q_j) (attacks) of `soft_levels`. Weights and attacks belong to the samples of one worker, so that only the
model has a consensus variable z, and the multipliers of x1_j = z1 fall away. Level 3 is replaced by a first layer of
cuts, in (a_j, p_j, q_j) and z; level 2 under these, with the attacks as parameters, by a second layer in everything:
`cuts`, `consensus`. The rest is `cutting`. As published, attacks are held to their level only by what that says about
z, which is loose. Unconstrained as published; `project` keeps all variables in their sets and is a variant of its own.

Differences: slacks of the first layer are minimised out; derivatives go through all rounds and through z; coefficients
of a worker's variables stay with it.

What crosses per worker: a plain iteration 2d floats (w_j up, z down) and a number per cut each way; making cuts
(4K + 1)d. The engine tells everybody whose turn it is, so that with S < N workers z is counted as received by all N,
where S would do; uploads are those of the S.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from f2cto.methods.base import Given, Shard
from f2cto.methods.consensus import Rounds
from f2cto.methods.cutting import Cuts, Cutting, CuttingPlanes, Duals
from f2cto.methods.levels import Task
from f2cto.methods.soft_levels import Attacks, Weighing, Weights, soft_task
from f2cto.methods.turns import Asynchrony


@dataclass(frozen=True)
class AftoSettings:
    """All of AFTO."""

    iterations: int = 100
    model_step: float = 0.1  # of the workers' w_j
    shared_step: float = 0.1  # of z
    project: bool = False  # keep all variables in their sets, which the published method does not
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
