"""DTZO: distributed trilevel optimisation from function values alone, by quadratic cuts and an exterior penalty.

Yang Jiao, Kai Yang, Chengtao Jian: DTZO: Distributed Trilevel Zeroth Order Learning with Provable Non-Asymptotic
Convergence, ICML 2025 (arXiv 2412.07138). There is no public code. It minimises

    sum_j f1_j + lambda sum_l max(0, cut_l)^2

over everybody's variables, mapped as for `afto`, from values of the objectives alone: gradients are two-point estimates
(`zeroth_order`), cuts are the quadratic ones of `cuts`. Cuts that hold are dropped when new ones are made.

Differences: where a slope is known without differentiating an objective it is not estimated, and blocks of variables
have directions of their own; an attack's difference is taken on its own sample's loss. `smoothing.joint = true` and
`smoothing.per_sample = false` are the letter. Computed in double precision, as differences of nearly equal numbers are
divided by a small one.

How it grows. An estimate in n dimensions has n + 1 times the variance of the gradient's square, so that steps must be
shorter and iterations more by n. A network of 270,000 parameters does not train in the iterations one can wait for;
weights then follow noise, and the choice is close to a class-balanced draw. A plain iteration takes 2 Q + 2 forward
passes with Q directions; making cuts about 2 Q of the order of K (Q + 1) passes. In floats per worker: 2d a plain
iteration; cuts (2 Q + 1)d down for level 3, and 2 K (2 Q + 1)d for level 2.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch import Tensor

from f2cto.message import Ask
from f2cto.methods.base import Coreset, Given, OnRound, Shard
from f2cto.methods.consensus import Rounds
from f2cto.methods.dtzo_master import QuadraticCuts, ZerothOrder, solve
from f2cto.methods.dtzo_worker import State, ZerothOrderProgram
from f2cto.methods.levels import Task
from f2cto.methods.soft_levels import Attacks, Weighing, Weights, soft_task
from f2cto.methods.zeroth_order import Smoothing
from f2cto.trilevel.master import Solution


@dataclass(frozen=True)
class DtzoSettings:
    """All of DTZO."""

    iterations: int = 60
    model_step: float = 1e-6
    shared_step: float = 0.1
    project: bool = False  # keep all variables in their sets, which the published method does not
    seed: int = 0  # of the master's directions
    weights: Weights = field(default_factory=lambda: Weights(topk=0.01))
    attacks: Attacks = field(default_factory=lambda: Attacks(step=1e-7, answer_step=1e-3))
    smoothing: Smoothing = field(default_factory=Smoothing)
    rounds: Rounds = field(default_factory=lambda: Rounds(step=1e-3, penalty=1e-6))
    cuts: QuadraticCuts = field(default_factory=lambda: QuadraticCuts(penalty=1e-3))


@dataclass(frozen=True)
class Dtzo:
    """DTZO as a selector: the largest weights of every class are kept."""

    settings: DtzoSettings
    given: Given

    def program(self) -> ZerothOrderProgram[Shard]:
        """What runs at each worker."""
        s = self.settings
        return ZerothOrderProgram(self._task, s.rounds, s.smoothing, s.cuts.bend)

    def lead(self, ask: Ask, w: Tensor, on_round: OnRound) -> Solution:
        """The master's side."""
        s = self.settings
        how = ZerothOrder(s.iterations, s.shared_step, s.seed, s.smoothing, s.rounds, s.cuts)
        found = solve(ask, w.double(), how, on_round)
        return replace(found, w=found.w.to(w))

    def coreset(self, shard: Shard, state: State) -> Coreset:
        """The worker's choice."""
        return self._weighing(shard).coreset(state.at[0])

    def _weighing(self, shard: Shard) -> Weighing:
        return Weighing(shard, self.settings.weights, self.settings.project)

    def _task(self, shard: Shard) -> Task:
        s, exact = self.settings, replace(shard, x=shard.x.double())
        return soft_task(exact, self.given, self._weighing(exact), s.model_step, s.attacks)
