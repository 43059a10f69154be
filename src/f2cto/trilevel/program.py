"""The worker's side of Algorithm 1 as named phases over a private state: what an engine runs at each worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import torch
from torch import Generator, Tensor

from f2cto.message import Message
from f2cto.trilevel.master import REFINE, UPDATE
from f2cto.trilevel.problem import LocalProblem, Point
from f2cto.trilevel.settings import Settings
from f2cto.trilevel.worker import WorkerState, local_round, refine, start, update

Shard_contra = TypeVar("Shard_contra", contravariant=True)


@dataclass(frozen=True)
class Stage:
    """What one worker faces in one iteration: noise is drawn, schedules are resolved, nothing is left to chance."""

    problem: LocalProblem
    settings: Settings
    rng: Generator


@dataclass(frozen=True)
class TrilevelProgram(Generic[Shard_contra]):
    """Answers `refine` and `update` for any problem of the paper's shape.

    Args:
        stage: the worker's problem and settings in iteration t.
        initial: where its alpha, q and p start; `w` of the point is ignored, the master sends it.
        local_rounds: I, the iterations between two exchanges.

    """

    stage: Callable[[Shard_contra, int], Stage]
    initial: Callable[[Shard_contra], Point]
    local_rounds: int = 1

    def start(self, shard: Shard_contra) -> WorkerState:
        """The private state before the first message."""
        return start(self.stage(shard, 0).problem, self.initial(shard))

    def run(self, phase: str, shard: Shard_contra, state: WorkerState, message: Message) -> tuple[WorkerState, Message]:
        """Answer one message."""
        match phase:
            case "refine":
                return self._refine(shard, state, message.vectors["w"])
            case "update":
                return self._update(shard, state, message.vectors["w_hat"])
        msg = f"A trilevel worker knows the phases `{REFINE}` and `{UPDATE}`; got `{phase}`."
        raise ValueError(msg)

    def _refine(self, shard: Shard_contra, state: WorkerState, w: Tensor) -> tuple[WorkerState, Message]:
        state = replace(state, at=replace(state.at, w=w))
        for _ in range(self.local_rounds - 1):
            here = self.stage(shard, state.t)
            state = local_round(here.problem, state, here.settings, here.rng)
        here = self.stage(shard, state.t)
        state = refine(here.problem, state, here.settings, here.rng)
        return state, Message({"w_hat": state.refined.w_hat})

    def _update(self, shard: Shard_contra, state: WorkerState, w_hat: Tensor) -> tuple[WorkerState, Message]:
        here = self.stage(shard, state.t)
        done = update(here.problem, state, w_hat, here.settings)
        scalars = {
            "objective": done.objective,
            "alpha_move": done.moves.alpha,
            "q_move": done.moves.q,
            "p_move": done.moves.p,
            **done.metrics,
        }
        return done.state, Message({"w": done.w}, scalars)


def no_parameters(like: Tensor) -> Tensor:
    """What stands for w before the master has sent it."""
    return torch.empty(0, dtype=like.dtype, device=like.device)
