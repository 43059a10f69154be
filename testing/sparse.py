"""A short search on the K-sparse face, and workers that are asked, stopped and put back in ways a run may see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from f2cto.federation.carrier import Call
from f2cto.federation.engine import Program
from f2cto.federation.worker import Worker
from f2cto.message import Ask, Message
from f2cto.methods.base import Given, Shard
from f2cto.methods.f2cto import method, program
from f2cto.methods.f2cto.method import Sparse
from f2cto.methods.f2cto.proposers import Proposal, Space
from f2cto.methods.f2cto.settings import Effort, Plan, Rung, SparseSettings
from f2cto.training import Training
from f2cto.trilevel.master import Solution

PROPOSALS = (
    Proposal("herding"),
    Proposal("medoids", Space.GRADIENTS, 0.8),
    Proposal("random"),
    Proposal("easiest"),
    Proposal("spread", Space.FEATURES),
)
SHORT = Plan(PROPOSALS, (Rung(5, 6, 2, 60, 1), Rung(3, 6, 2, 60, 2), Rung(2, 8, 3, 200, 2)))
SETTINGS = SparseSettings(effort=Effort.QUICK, epochs=2, rounds=3)


def shortened(monkeypatch: pytest.MonkeyPatch, plan: Plan = SHORT) -> None:
    """Let every effort be the short plan, at the master and at its workers."""
    for module in (method, program):
        monkeypatch.setattr(module, "PLANS", dict.fromkeys(Effort, plan))


Exchanged = tuple[str, Message, list[Message]]  # phase, question, answers


def sparse(shards: Sequence[Shard], settings: SparseSettings = SETTINGS) -> Sparse:
    """The method on a small task."""
    model = shards[0].model
    training = Training(steps=20, batch=30)
    return Sparse(settings, Given(model.own(), radius=0.05, training=training, sizes=model.sizes))


def heard(made: Sparse, shards: Sequence[Shard], ask: Ask) -> tuple[Solution, list[Exchanged]]:
    """A run, and all that crossed."""
    crossed: list[Exchanged] = []

    def listening(phase: str, message: Message) -> list[Message]:
        replies = ask(phase, message)
        crossed.append((phase, message, replies))
        return replies

    return made.lead(listening, shards[0].model.own(), lambda _: None), crossed


@dataclass
class OneByOne:
    """Workers as they are in processes of their own, asked one after the other.

    `between` is called after every answer, with the number of who gave it.
    """

    program: Program[Any, Any]
    shards: Sequence[Shard]
    between: Callable[[OneByOne, int], object]
    workers: list[Worker] = field(default_factory=list)
    serial: int = 0

    def __post_init__(self) -> None:
        """Start everybody."""
        self.workers = [Worker(self.program, shard) for shard in self.shards]

    def ask(self, phase: str, message: Message) -> list[Message]:
        self.serial += 1
        replies = []
        for i in range(len(self.workers)):
            replies.append(self.workers[i].answer(Call(phase, message, self.serial)))
            self.between(self, i)
        return replies


@dataclass(frozen=True)
class Absent:
    """A program that some workers cannot run at some questions."""

    inner: Program[Shard, Any]
    when: Callable[[int, str, Message], bool]  # of worker, phase and question

    @property
    def entries(self) -> tuple[str, ...]:
        return tuple(getattr(self.inner, "entries", ()))

    def start(self, shard: Shard) -> Any:  # noqa: ANN401
        return self.inner.start(shard)

    def run(self, phase: str, shard: Shard, state: Any, message: Message) -> tuple[Any, Message]:  # noqa: ANN401
        if self.when(shard.worker, phase, message):
            msg = "away"
            raise ConnectionError(msg)
        return self.inner.run(phase, shard, state, message)
