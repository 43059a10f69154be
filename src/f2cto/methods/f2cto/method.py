"""F2CTO on the K-sparse face, the master's side: train on everything, let workers propose, keep what level 1 values.

At dense weights level 1 of the paper has nothing to say, for even weights are its minimum (docs/paper.md). On the
K-sparse face it does: train on a candidate, measure the robust accuracy on what it leaves out. What crosses is
parameters and sums of scores.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from f2cto.message import Ask, Message
from f2cto.methods.base import Coreset, Given, OnRound, Shard, evenly
from f2cto.methods.f2cto.program import CANDIDATES, EVERYTHING, HELLO, KEEP, PROPOSE, VALUE, SparseProgram, WorkerState
from f2cto.methods.f2cto.settings import PLANS, Rung, SparseSettings
from f2cto.methods.f2cto.training import Ball
from f2cto.randomness import generator
from f2cto.trilevel.aggregation import Aggregation, combined
from f2cto.trilevel.master import Round, Solution, Stopped

Values = Mapping[int, float]  # of candidates


@dataclass(frozen=True)
class Sparse:
    """The method as a selector."""

    settings: SparseSettings
    given: Given

    def program(self) -> SparseProgram:
        """What runs at each worker."""
        radius = self.given.radius if self.settings.attacked else 0.0
        return SparseProgram(self.settings, Ball(radius, self.given.valid), self.given.training)

    def lead(self, ask: Ask, w: Tensor, on_round: OnRound) -> Solution:
        """The master's side, from the initial parameters `w`."""
        return Lead(self.settings, self.given, ask, on_round).solution(w)

    def coreset(self, shard: Shard, state: WorkerState) -> Coreset:
        """The candidate that won; it stays at the worker. One that was never reached keeps its first candidate."""
        if not len(state.candidates):
            state, _ = self.program().run(KEEP, shard, state, Message({}, {"candidate": 0.0, "workers": 1.0}))
        return evenly(state.candidates[state.kept])


class Lead:
    """One run of the master."""

    def __init__(self, settings: SparseSettings, given: Given, ask: Ask, on_round: OnRound) -> None:
        """Nothing done yet."""
        self._settings, self._given, self._ask, self._on_round = settings, given, ask, on_round
        self._plan = PLANS[settings.effort]
        self._began, self._history = time.monotonic(), list[Round]()

    def solution(self, w: Tensor) -> Solution:
        """All phases in turn."""
        self._workers = len(self._ask(HELLO, Message()))
        trained = self._train_on_everything(w)
        self._ask(PROPOSE, Message({"w": trained}, self._said()))
        values = dict.fromkeys(range(len(self._plan.proposals)), 0.0)
        for number, rung in enumerate(self._plan.rungs):
            best = sorted(values, key=lambda k: -values[k])[: rung.candidates]
            found = self._climbed(number, rung, best, w)
            values = {k: values[k] + rung.steps * found[k] for k in best}
        self._ask(KEEP, Message({}, self._said(candidate=max(values, key=lambda k: values[k]))))
        return Solution(trained, tuple(self._history), Stopped.ITERATIONS)

    def _train_on_everything(self, w: Tensor) -> Tensor:
        """Levels 2 and 3: federated averaging of robust training."""
        for number in range(self._settings.rounds):
            replies = self._ask(EVERYTHING, Message({"w": w}, self._said(round=number)))
            before, w = w, mean(replies, "w", w)
            loss = sum(r.scalars["count"] * r.scalars["loss"] for r in replies) / sum(
                r.scalars["count"] for r in replies
            )
            self._note(loss, float((w - before).square().sum()), {})
        return w

    def _climbed(self, number: int, rung: Rung, best: Sequence[int], w: Tensor) -> Values:
        """Level 1 on one rung: the value of every candidate that is left."""
        w = reordered(w, self._given.sizes, generator(self._given.seed, 24, number))
        each = dict.fromkeys(best, w)
        for round_ in range(rung.rounds):
            replies = self._ask(CANDIDATES, Message(named(each), self._said(rung=number, round=round_)))
            each = {k: mean(replies, f"w{k}", each[k]) for k in best}
        replies = self._ask(VALUE, Message(named(each), self._said(rung=number)))
        values = {k: share(replies, k) for k in best}
        self._note(-max(values.values()), 0.0, {self._plan.proposals[k].name: values[k] for k in best})
        return values

    def _said(self, **more: int) -> dict[str, float]:
        return {"workers": float(self._workers)} | {name: float(value) for name, value in more.items()}

    def _note(self, objective: float, gap: float, metrics: dict[str, float]) -> None:
        self._history.append(Round(len(self._history) + 1, objective, gap, time.monotonic() - self._began, metrics))
        self._on_round(self._history[-1])


def named(each: Mapping[int, Tensor]) -> dict[str, Tensor]:
    """The parameters of candidates as a message has them."""
    return {f"w{k}": w for k, w in each.items()}


def mean(replies: Sequence[Message], name: str, around: Tensor) -> Tensor:
    """The mean over workers, each counting as many samples as it trained on; a sum over workers each way."""
    counts = [reply.scalars["count"] for reply in replies]
    some = [(reply.vectors[name], count) for reply, count in zip(replies, counts, strict=True) if count]
    if not some:  # those whose turn it was are missing
        return around
    return combined([w for w, _ in some], [count for _, count in some], around, Aggregation())


def share(replies: Sequence[Message], candidate: int) -> float:
    """The share of left-out samples that a candidate's model gets right, over all workers."""
    right, of = (sum(reply.scalars[f"{name}{candidate}"] for reply in replies) for name in ("right", "of"))
    return right / of if of else 0.0


def reordered(w: Tensor, sizes: Sequence[int], rng: Generator) -> Tensor:
    """Initial parameters with the entries of every tensor in another order: as good as drawn anew."""
    if sum(sizes) != len(w):
        return w
    return torch.cat(
        [part[torch.randperm(len(part), generator=rng).to(w.device)] for part in torch.split(w, list(sizes))]
    )
