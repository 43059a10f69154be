"""Workers that send garbage, for tests and for `benchmarks/garbage.py`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from f2cto.federation.engine import Program
from f2cto.message import Ask, Message
from f2cto.methods.base import Coreset, OnRound, Selector, Shard
from f2cto.trilevel.master import Solution

Spoil = Callable[[Tensor, Tensor], Tensor]  # what is sent instead of a vector, and what the master had sent before

GARBAGE: dict[str, Spoil] = {
    "large": lambda v, _: v * 1e6,
    "NaN": lambda v, _: torch.full_like(v, float("nan")),
    "sign-flipped": lambda v, _: -v,
    "moves reversed tenfold": lambda v, before: before - 10 * (v - before),
}


@dataclass(frozen=True)
class Spoiled:
    """A selector some of whose workers send garbage; what they keep for themselves is sound."""

    inner: Selector
    bad: Collection[int]
    spoil: Spoil

    def program(self) -> SpoiledProgram:
        return SpoiledProgram(self.inner.program(), self.bad, self.spoil)

    def lead(self, ask: Ask, w: Tensor, on_round: OnRound) -> Solution:
        return self.inner.lead(ask, w, on_round)

    def coreset(self, shard: Shard, state: Any) -> Coreset:  # noqa: ANN401
        return self.inner.coreset(shard, state)


@dataclass(frozen=True)
class SpoiledProgram:
    """A program whose answers are spoiled at some workers."""

    inner: Program[Shard, Any]
    bad: Collection[int]
    spoil: Spoil

    @property
    def entries(self) -> tuple[str, ...]:
        return tuple(getattr(self.inner, "entries", ()))

    def start(self, shard: Shard) -> Any:  # noqa: ANN401
        return self.inner.start(shard)

    def run(self, phase: str, shard: Shard, state: Any, message: Message) -> tuple[Any, Message]:  # noqa: ANN401
        state, reply = self.inner.run(phase, shard, state, message)
        if shard.worker not in self.bad:
            return state, reply
        before = next(iter(message.vectors.values()))  # what the master sent, be it w or w^
        return state, Message(
            {n: self.spoil(v, message.vectors.get(n, before)) for n, v in reply.vectors.items()}, reply.scalars
        )
