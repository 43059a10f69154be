"""What runs at a worker: train on everything, propose candidates, train on them, judge them on what they leave out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from f2cto.message import Message
from f2cto.methods.base import Shard
from f2cto.methods.f2cto.proposers import Observed, candidates
from f2cto.methods.f2cto.settings import PLANS, Plan, Rung, SparseSettings
from f2cto.methods.f2cto.stacked import Stacked
from f2cto.methods.f2cto.training import Ball, Schedule, Sets, attacked, local_round
from f2cto.randomness import generator
from f2cto.training import Training

HELLO, EVERYTHING, PROPOSE, CANDIDATES, VALUE, KEEP = "hello", "everything", "propose", "candidates", "value", "keep"
LEAST_BATCH = 10  # samples of one worker in a step
ROWS = 200  # samples judged at a time


@dataclass(frozen=True, eq=False)
class WorkerState:
    """All a worker remembers between two messages. It never leaves the worker."""

    p: Tensor  # perturbations of all samples, (M, *features)
    losses: Tensor  # added up over visits, (M,)
    visits: Tensor  # (M,)
    snapshots: Tensor  # parameters on the way, one row each
    candidates: Tensor  # rows of each, best first, (P, K); none yet: (0, K)
    moved: Tensor  # perturbations of the candidates' samples, (P, K, *features)
    rung: int = -1  # that these perturbations belong to
    kept: int = 0  # the candidate that won

    @property
    def mean_losses(self) -> Tensor:
        """The mean robust loss of each sample over its visits.  (M,)."""
        return self.losses / self.visits.clamp(min=1)


@dataclass(frozen=True, eq=False)
class SparseProgram:
    """Pure functions over a worker's state."""

    settings: SparseSettings
    ball: Ball
    training: Training

    @property
    def entries(self) -> tuple[str, ...]:
        """The phases that say all a worker has to know."""
        return EVERYTHING, CANDIDATES, KEEP

    @property
    def plan(self) -> Plan:
        """Candidates and rungs."""
        return PLANS[self.settings.effort]

    def start(self, shard: Shard) -> WorkerState:
        """Nothing seen."""
        return WorkerState(
            p=torch.zeros_like(shard.x),
            losses=shard.x.new_zeros(len(shard.y)),
            visits=torch.zeros_like(shard.y),
            snapshots=shard.x.new_zeros(0, shard.model.size),
            candidates=shard.y.new_zeros(0, shard.size),
            moved=shard.x.new_zeros(0, shard.size, *shard.x.shape[1:]),
        )

    def run(self, phase: str, shard: Shard, state: WorkerState, message: Message) -> tuple[WorkerState, Message]:
        """Answer one message."""
        match phase:
            case "hello":
                return state, Message({}, {"count": float(len(shard.y))})
            case "everything":
                return self._everything(shard, state, message)
            case "propose":
                state = replace(state, snapshots=torch.cat([state.snapshots, message.vectors["w"][None]]))
                return self._proposed(shard, state, message), Message()
            case "candidates":
                return self._train(shard, self._proposed(shard, state, message), message)
            case "value":
                state = self._proposed(shard, state, message)
                return state, self._judge(shard, state, message)
            case "keep":
                state = self._proposed(shard, state, message)
                return replace(state, kept=int(message.scalars["candidate"])), Message()
        msg = (
            f"F2CTO on the face knows the phases hello, everything, propose, candidates, value and keep; got `{phase}`."
        )
        raise ValueError(msg)

    def _everything(self, shard: Shard, state: WorkerState, message: Message) -> tuple[WorkerState, Message]:
        """Levels 2 and 3: one round of robust training on all samples, their losses tallied on the way."""
        number, w = int(message.scalars["round"]), message.vectors["w"]
        batch = batch_of(self.training, message, len(shard.y))
        steps = max(self.settings.rounds, self.settings.epochs * (len(shard.y) // batch))
        schedule = Schedule(self.training, self.settings.rounds, steps, batch)
        sets = Sets(shard.x[None], shard.y[None], state.p[None])
        rng = generator(shard.seed, shard.worker, 20, number, device=shard.x.device)
        done = local_round(Stacked(shard.model), w[None], sets, self.ball, schedule, number, rng)
        marks = {max(1, round(share * self.settings.rounds)) for share in self.settings.snapshots}
        state = replace(
            state,
            p=done.p[0],
            losses=state.losses + done.losses[0],
            visits=state.visits + done.visits,
            snapshots=torch.cat([state.snapshots, w[None]]) if number in marks else state.snapshots,
        )
        loss = float(done.losses.sum() / done.visits.sum())
        return state, Message({"w": done.w[0]}, {"count": float(len(shard.y)), "loss": loss})

    def _proposed(self, shard: Shard, state: WorkerState, message: Message) -> WorkerState:
        """With every candidate's rows; a worker that missed the end of training goes by what it has seen."""
        if len(state.candidates):
            return state
        seen = Observed(
            model=shard.model,
            snapshots=tuple(state.snapshots) or (shard.model.own().to(shard.x),),
            x=shard.x,
            attacked=self.ball.around(shard.x[None], state.p[None])[0],
            y=shard.y,
            losses=state.mean_losses,
            worker=shard.worker,
            workers=int(message.scalars["workers"]),
        )
        rng = generator(shard.seed, shard.worker, 21)
        found = torch.stack(candidates(seen, shard.size, self.plan.proposals, rng))
        return replace(state, candidates=found, moved=torch.zeros_like(shard.x[found]))

    def _train(self, shard: Shard, state: WorkerState, message: Message) -> tuple[WorkerState, Message]:
        """One round of training on the candidates that are left, all side by side."""
        rung, number, workers = (int(message.scalars[name]) for name in ("rung", "round", "workers"))
        left, w = stacked_of(message)
        turns = -(-workers // self.settings.turn)
        if (number + shard.worker) % turns:
            return state, parted(left, w, {"count": 0.0})
        rows = state.candidates[left]
        moved = state.moved if state.rung == rung else torch.zeros_like(state.moved)
        size = self.plan.rungs[rung]
        training = replace(self.training, rate=self.training.rate * math.sqrt(self.training.steps / size.steps))
        schedule = Schedule(training, size.rounds, size.steps, batch_of(self.training, message, rows.shape[1]))
        rng = generator(shard.seed, shard.worker, 22, rung, number, device=shard.x.device)
        sets = Sets(shard.x[rows], shard.y[rows], moved[left])
        done = local_round(Stacked(shard.model), w, sets, self.ball, schedule, number, rng)
        moved = moved.index_copy(0, torch.tensor(left, device=moved.device), done.p)
        return replace(state, rung=rung, moved=moved), parted(left, done.w, {"count": float(rows.shape[1])})

    def _judge(self, shard: Shard, state: WorkerState, message: Message) -> Message:
        """Level 1: for every candidate, how right its model is under attack on left-out samples, and of how many."""
        rung, workers = int(message.scalars["rung"]), int(message.scalars["workers"])
        left, w = stacked_of(message)
        size = self.plan.rungs[rung]
        rng = generator(shard.seed, shard.worker, 23, rung, device=shard.x.device)
        rows = torch.randperm(len(shard.y), generator=rng, device=rng.device)[: -(-size.judged // workers)]
        out = torch.stack([~torch.isin(rows, state.candidates[k]) for k in left])
        sums, totals = (out * self._right(shard, w, rows, size, rng)).sum(dim=1), out.sum(dim=1)
        scalars = {f"right{k}": float(value) for k, value in zip(left, sums, strict=True)}
        return Message({}, scalars | {f"of{k}": float(value) for k, value in zip(left, totals, strict=True)})

    def _right(self, shard: Shard, w: Tensor, rows: Tensor, size: Rung, rng: torch.Generator) -> Tensor:
        """How right every model is on each sample under attack, from 0 to 1.  (P, n).

        The mean of being right and of the probability of the right class: the first is what counts in the end, the
        second is finer where models were trained for a short time.
        """
        networks, found = Stacked(shard.model), []
        for some in torch.split(rows, ROWS):
            x, y = (part[some].expand(len(w), *part[some].shape) for part in (shard.x, shard.y))
            moved = attacked(networks, w, x, y, self.ball, size.attack, rng)
            with torch.no_grad():
                odds = networks.logits(w, moved).softmax(dim=2)
            found.append((odds.gather(2, y[..., None])[..., 0] + (odds.argmax(dim=2) == y)) / 2)
        return torch.cat(found, dim=1)


def batch_of(training: Training, message: Message, count: int) -> int:
    """A worker's part of a batch, so that all workers together make about one of the task's."""
    workers = int(message.scalars["workers"])
    return min(count, max(LEAST_BATCH, -(-training.batch // workers)))


def stacked_of(message: Message) -> tuple[list[int], Tensor]:
    """The candidates in a message, and their parameters.  (P, d)."""
    left = sorted(int(name[1:]) for name in message.vectors)
    return left, torch.stack([message.vectors[f"w{k}"] for k in left])


def parted(left: list[int], w: Tensor, scalars: Mapping[str, float]) -> Message:
    """A message with the parameters of every candidate."""
    return Message({f"w{k}": row for k, row in zip(left, w, strict=True)}, scalars)
