"""Runs of Algorithm 1 through the real program and engine that remember what crossed, and Lemma 1 read off them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from f2cto.constraints import ConstraintSet
from f2cto.federation.engine import Traffic
from f2cto.federation.in_process import InProcess
from f2cto.message import Ask, Message
from f2cto.randomness import generator
from f2cto.trilevel.master import REFINE, Master, Solution, solve
from f2cto.trilevel.problem import LocalProblem, Point
from f2cto.trilevel.program import Stage, TrilevelProgram
from f2cto.trilevel.settings import Settings, Stopping
from f2cto.trilevel.worker import Heard


@dataclass
class Recorder:
    """An `ask` that keeps the parameters it carried: w^t downwards, the workers' w_i^{t+1} upwards."""

    ask: Ask
    sent: list[Tensor] = field(default_factory=list)  # w^0, w^1, ...          each (d,)
    steps: list[Tensor] = field(default_factory=list)  # of all workers: w_i^1, w_i^2, ...  each (N, d)

    def __call__(self, phase: str, message: Message) -> list[Message]:
        """Put the message, remember both sides."""
        replies = self.ask(phase, message)
        if phase == REFINE:
            self.sent.append(message.vectors["w"])
        else:
            self.steps.append(torch.stack([reply.vectors["w"] for reply in replies]))
        return replies


@dataclass(frozen=True)
class Run:
    """All that one run leaves to look at."""

    solution: Solution
    points: list[Point]  # where each worker ended, with the final shared w
    record: Recorder
    traffic: Traffic

    @property
    def gaps(self) -> list[float]:
        """||G^t||^2 of each exchange, Eq. (16)."""
        return [row.gap for row in self.solution.history]


def run(
    problems: Sequence[LocalProblem],
    starts: Sequence[Point],
    settings: Settings,
    stopping: Stopping,
    local_rounds: int = 1,
) -> Run:
    """Algorithm 1 from the given points, all workers in this process."""
    rng = generator(0)

    def stage(worker: int, t: int, heard: Heard) -> Stage:  # noqa: ARG001  (the same in every iteration)
        return Stage(problems[worker], settings, rng)

    program = TrilevelProgram[int](stage, lambda worker: starts[worker], local_rounds=local_rounds)
    engine = InProcess(program, range(len(problems)))
    record = Recorder(engine.ask)
    master = Master(problems[0].sets.W, settings.eta.w, stopping, local_rounds)
    solution = solve(record, starts[0].w, master)
    return Run(solution, [replace(state.at, w=solution.w) for state in engine.states], record, engine.traffic)


def lemma_ratios(ended: Run, onto: ConstraintSet, eta_w: float) -> list[float]:
    """How much of Lemma 1's bound each iteration uses; the lemma says at most 1.

    max_i |P_W(w_i^{t+1}) - w^{t+1}| / (2 eta_w B_t), where B_t is the largest gradient norm over the workers in this
    iteration alone, read off the messages as |w^t - w_i^{t+1}| / eta_w. The lemma's B_w bounds all of them.
    """
    after = [*ended.record.sent[1:], ended.solution.w]
    return [
        _lemma_ratio(*exchange, onto, eta_w)
        for exchange in zip(ended.record.sent, ended.record.steps, after, strict=True)
    ]


def _lemma_ratio(before: Tensor, steps: Tensor, after: Tensor, onto: ConstraintSet, eta_w: float) -> float:
    largest = float(torch.linalg.vector_norm((before - steps) / eta_w, dim=1).max())
    apart = max(float(torch.linalg.vector_norm(onto.project(step) - after)) for step in steps)
    return apart / (2 * eta_w * largest) if largest else 0.0
