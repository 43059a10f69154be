"""TSG as a selector: weights by adjoint (hyper)gradients through three levels.

Tommaso Giovannelli, Griffin Dean Kent, Luis Nunes Vicente: A stochastic gradient method for trilevel optimization,
2025.

x = alpha, y = w, z = (p, q), on the problem of `hypergradient.coreset`: balls around samples are penalties, because the
published method knows no constraints. It is also centralised. Here every worker runs it on its own shard, with alpha, p
and q of its own, and the middle variable w is shared: after each iteration the master averages it, 2d floats per worker
and iteration. Averaging the adjoint systems instead would send d floats for every Neumann term and make another method.
What is left out: mini-batches, and the numbers of inner steps that grow as progress slows.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean

import torch
from torch import Tensor

from f2cto.attacks.base import perturbations
from f2cto.constraints import L2Ball, Simplices
from f2cto.hypergradient.adjoint import Adjoints
from f2cto.hypergradient.coreset import SoftRobustCoreset
from f2cto.hypergradient.levels import Hessian
from f2cto.hypergradient.linear import Adjoint, Solver
from f2cto.hypergradient.method import Sets, Settings, State, StepSizes, start, step
from f2cto.hypergradient.problem import Point
from f2cto.message import Ask, Message
from f2cto.methods.base import Coreset, Given, OnRound, Shard
from f2cto.methods.by_class import Picks, class_by_class
from f2cto.methods.f2cto_stages import blocks_of
from f2cto.randomness import generator
from f2cto.trilevel.coreset import TopK
from f2cto.trilevel.master import DivergedError, Round, Solution, Stopped, average

ITERATE = "iterate"


@dataclass(frozen=True)
class Levels:
    """The steps of the three levels."""

    upper: float = 0.05  # of alpha, in units of 1/M: its initial entries
    middle: float = 0.1
    lower: float = 0.5  # in units of 1/c, the inverse of the penalty's curvature
    middle_steps: int = 1  # J
    lower_steps: int = 3  # I


@dataclass(frozen=True)
class Systems:
    """How adjoint systems are solved: two textbook Neumann terms, as published, or conjugate gradients."""

    solver: Solver = Solver.NEUMANN
    terms: int = 2
    middle_eta: float = 0.05
    lower_eta: float = 0.5  # in units of 1/c
    hessian: Hessian = Hessian.FROZEN


@dataclass(frozen=True)
class Softness:
    """What makes the lower levels strongly convex."""

    attack: float = 1.0  # attacks are this times radius x sqrt(features) x the sample's gradient, if alpha_k = 1/M
    ridge: float = 1e-3  # on w

    def __post_init__(self) -> None:
        """Refuse attacks without length."""
        if not self.attack > 0 or not self.ridge >= 0:
            msg = f"TSG needs an attack of length > 0 and a ridge >= 0; got {self.attack} and {self.ridge}."
            raise ValueError(msg)


@dataclass(frozen=True)
class TsgSettings:
    """All of TSG. `project = true` keeps every variable in the paper's sets, which the published method does not."""

    iterations: int = 50
    levels: Levels = field(default_factory=Levels)
    systems: Systems = field(default_factory=Systems)
    softness: Softness = field(default_factory=Softness)
    topk: float = 0.0  # lambda, the pull of the smoothed top-K term of Eq. (1)
    draws: int = 16  # for it
    noise: float = 0.1  # for it, in units of 1/K
    classwise: bool = True
    project: bool = False

    def __post_init__(self) -> None:
        """Refuse a run that does nothing."""
        if self.iterations < 1 or self.draws < 1:
            msg = f"TSG needs iterations >= 1 and draws >= 1; got {self.iterations} and {self.draws}."
            raise ValueError(msg)


@dataclass(frozen=True, eq=False)
class TsgState:
    """What a worker keeps between two messages."""

    t: int
    alpha: Tensor
    p: Tensor
    q: Tensor


@dataclass(frozen=True, eq=False)
class Tsg:
    """The method at the workers and at the master."""

    settings: TsgSettings
    given: Given

    def program(self) -> Tsg:
        """Itself."""
        return self

    def start(self, shard: Shard) -> TsgState:
        """Even weights, no perturbations."""
        zeros = torch.zeros_like(shard.x)
        return TsgState(0, shard.x.new_full((len(shard.y),), 1 / len(shard.y)), zeros, zeros)

    def run(self, phase: str, shard: Shard, state: TsgState, message: Message) -> tuple[TsgState, Message]:
        """One iteration from the shared parameters."""
        if phase != ITERATE:
            msg = f"TSG knows the phase `{ITERATE}`; got `{phase}`."
            raise ValueError(msg)
        problem, how = self.problem(shard, state.t), self.solver_settings(shard)
        before = Point(state.alpha, message.vectors["w"], (state.p, state.q))
        at = step(problem, start(before, how) if state.t == 0 else State(state.t, before), how).at
        with torch.no_grad():
            objective = float(problem.f1(at.x, at.y, at.z))
        move = float((at.x - state.alpha).square().sum())
        return TsgState(state.t + 1, at.x, *at.z), Message({"w": at.y}, {"objective": objective, "alpha_move": move})

    def lead(self, ask: Ask, w: Tensor, on_round: OnRound) -> Solution:
        """Average w after every iteration. A round's gap is how far weights and parameters moved."""
        began, history = time.monotonic(), list[Round]()
        for number in range(1, self.settings.iterations + 1):
            replies = ask(ITERATE, Message({"w": w}))
            before, w = w, average([reply.vectors["w"] for reply in replies])
            objective, moved = (fmean(r.scalars[name] for r in replies) for name in ("objective", "alpha_move"))
            gap = moved + float((before - w).square().sum())
            if not (math.isfinite(objective) and math.isfinite(gap)):
                msg = f"TSG left the numbers in iteration {number}; lower its steps, or set `project`."
                raise DivergedError(msg)
            history.append(Round(number, objective, gap, time.monotonic() - began, {}))
            on_round(history[-1])
        return Solution(w=w, history=tuple(history), stopped=Stopped.ITERATIONS)

    def coreset(self, shard: Shard, state: TsgState) -> Coreset:
        """The largest weights of each class."""
        alpha = state.alpha

        def largest(rows: Tensor, places: int) -> Picks:
            order = alpha[rows].argsort(descending=True, stable=True)[:places]
            return order, alpha[rows[order]].clamp(min=0)

        return class_by_class(shard, largest, classwise=self.settings.classwise)

    def problem(self, shard: Shard, t: int) -> SoftRobustCoreset:
        """The worker's three objectives in iteration t."""
        s = self.settings
        noise = partial(self._noise, shard, t)
        topk = TopK(s.topk, blocks_of(shard, classwise=s.classwise), noise)
        problem = SoftRobustCoreset(shard.model.losses, shard.x, shard.y, self.penalty(shard), s.softness.ridge)
        return replace(problem, regulariser=topk) if s.topk else problem

    def penalty(self, shard: Shard) -> float:
        """The weight c of the attacks' squared lengths."""
        length = self.given.radius * math.sqrt(shard.x[0].numel())
        return 1 / (len(shard.y) * self.settings.softness.attack * length)

    def solver_settings(self, shard: Shard) -> Settings:
        """The settings in words as the solver's."""
        levels, systems, c = self.settings.levels, self.settings.systems, self.penalty(shard)
        return Settings(
            eta=StepSizes(x=levels.upper / len(shard.y), y=levels.middle, z=levels.lower / c),
            adjoints=Adjoints(
                lower=Adjoint(systems.solver, systems.terms, systems.lower_eta / c),
                middle=Adjoint(systems.solver, systems.terms, systems.middle_eta),
                hessian=systems.hessian,
            ),
            middle_steps=levels.middle_steps,
            lower_steps=levels.lower_steps,
            sets=self._sets(shard) if self.settings.project else Sets(),
        )

    def _sets(self, shard: Shard) -> Sets:
        blocks = blocks_of(shard, classwise=self.settings.classwise)
        box = perturbations(shard.x, self.given.radius, self.given.valid)
        ball = L2Ball(2 * float(self.given.w.norm()))
        return Sets(Simplices(blocks.groups, blocks.sizes.double() / shard.size), ball, (box, box))

    def _noise(self, shard: Shard, t: int) -> Tensor:
        rng = generator(shard.seed, shard.worker, t, device=shard.x.device)
        draws = torch.randn((self.settings.draws, len(shard.y)), generator=rng, device=shard.x.device)
        return draws.to(shard.x.dtype) * (self.settings.noise / shard.size)
