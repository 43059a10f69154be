"""The worker's side of Algorithm 1 as named phases over a private state: what an engine runs at each worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import torch
from torch import Generator, Tensor

from f2cto.message import Message
from f2cto.trilevel.master import ITERATE, REFINE, UPDATE
from f2cto.trilevel.problem import LocalProblem, Point
from f2cto.trilevel.settings import Settings
from f2cto.trilevel.worker import NOTHING, Heard, Update, WorkerState, iterate, local_round, refine, start, update

Shard_contra = TypeVar("Shard_contra", contravariant=True)


@dataclass(frozen=True)
class Stage:
    """What one worker faces in one iteration: noise is drawn, schedules are resolved, nothing is left to chance."""

    problem: LocalProblem
    settings: Settings
    rng: Generator


@dataclass(frozen=True)
class TrilevelProgram(Generic[Shard_contra]):
    """Answers `refine` and `update`, or `iterate` for both in one, for any problem of the paper's shape.

    The master says which iteration it is: a worker that missed some is at the right one when it is back.

    Args:
        stage: the worker's problem and settings in iteration t, given what it has heard so far.
        initial: where its alpha, q and p start; `w` of the point is ignored, the master sends it.
        local_rounds: I, the iterations between two exchanges.
        weight: how much the worker counts in means; 0: as much as any other, and nothing is sent about it.

    """

    stage: Callable[[Shard_contra, int, Heard], Stage]
    initial: Callable[[Shard_contra], Point]
    local_rounds: int = 1
    weight: Callable[[Shard_contra], float] = lambda _: 0.0

    entries = (REFINE, ITERATE)  # what tells a worker all it has to know; see `federation.exchange`

    def start(self, shard: Shard_contra) -> WorkerState:
        """The private state before the first message."""
        return start(self.stage(shard, 0, NOTHING).problem, self.initial(shard))

    def run(self, phase: str, shard: Shard_contra, state: WorkerState, message: Message) -> tuple[WorkerState, Message]:
        """Answer one message."""
        weighs = self.weighs(shard)
        match phase:
            case "refine":
                state, w_hat = self._refine(shard, state, message)
                return state, Message({"w_hat": w_hat}, weighs)
            case "update":
                here = self.stage(shard, state.t, state.heard)
                done = update(here.problem, state, message.vectors["w_hat"], here.settings)
                return done.state, Message({"w": done.w}, _scalars(done) | weighs)
            case "iterate":
                state, reply = self._iterate(shard, state, message)
                return state, replace(reply, scalars={**reply.scalars, **weighs})
        msg = f"A trilevel worker knows the phases `{REFINE}`, `{UPDATE}` and `{ITERATE}`; got `{phase}`."
        raise ValueError(msg)

    def weighs(self, shard: Shard_contra) -> dict[str, float]:
        """What a worker says of how much it counts, if anything."""
        weight = self.weight(shard)
        return {"weight": weight} if weight else {}

    def _refine(self, shard: Shard_contra, state: WorkerState, message: Message) -> tuple[WorkerState, Tensor]:
        w, t = message.vectors["w"], _iteration(message, state)
        # A worker that was away, or begins in the middle, has no w^ of the last iteration; w is nearer to it than what
        # it had long ago.
        known = state.refined if t == state.t and len(state.refined.w_hat) else replace(state.refined, w_hat=w)
        state = replace(state, t=t, at=replace(state.at, w=w), refined=known)
        for _ in range(self.local_rounds - 1):
            here = self.stage(shard, state.t, state.heard)
            state = local_round(here.problem, state, here.settings, here.rng)
        here = self.stage(shard, state.t, state.heard)
        state = refine(here.problem, state, here.settings, here.rng)
        return state, state.refined.w_hat

    def _iterate(self, shard: Shard_contra, state: WorkerState, message: Message) -> tuple[WorkerState, Message]:
        w = message.vectors["w"]
        known = replace(state.refined, w_hat=message.vectors.get("w_hat", w))
        state = replace(state, t=_iteration(message, state), at=replace(state.at, w=w), refined=known)
        for left in reversed(range(self.local_rounds)):
            here = self.stage(shard, state.t, state.heard)
            done = iterate(here.problem, state, here.settings, here.rng)
            state = done.state
            if left:  # the worker's own w goes on; at the end the point stays where the last step was taken
                state = replace(state, at=replace(state.at, w=here.problem.sets.W.project(done.w)))
        sent = {"w": done.w}
        if not here.settings.hat.syncs(state.t):
            sent["w_hat"] = state.refined.w_hat
        return state, Message(sent, _scalars(done))


def _iteration(message: Message, state: WorkerState) -> int:
    """The iteration that the master is at; the worker's own where it does not say."""
    return int(message.scalars.get("t", state.t))


def _scalars(done: Update) -> dict[str, float]:
    moved = {"alpha_move": done.moves.alpha, "q_move": done.moves.q, "p_move": done.moves.p}
    return {"objective": done.objective, **moved, **done.metrics}


def no_parameters(like: Tensor) -> Tensor:
    """What stands for w before the master has sent it."""
    return torch.empty(0, dtype=like.dtype, device=like.device)
