"""Selection with shared knowledge: workers train one model, pool a summary of their data, then each selects.

Summaries are sums and means over samples that the master combines over workers. A mean over one sample is that sample:
methods leave out of their summaries every class with fewer samples than a minimum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from torch import Generator, Tensor

from f2cto.message import Ask, Message
from f2cto.methods.base import Coreset, Given, OnRound, Shard
from f2cto.methods.lifted import Lifted, Pretraining
from f2cto.trilevel.master import Solution

SUMMARISE, POOLED = "summarise", "pooled"

Summarise = Callable[[Shard, Tensor], Message]  # from a shard and the shared parameters
Pool = Callable[[Sequence[Message]], Message]  # the master's part, from all summaries
PooledChoice = Callable[[Message, Shard, Tensor, Generator], Coreset]  # from what was pooled


@dataclass(frozen=True)
class Informed:
    """A worker's state: that of the training, and what was pooled."""

    trained: tuple[int, Tensor]
    pooled: Message


@dataclass(frozen=True)
class Pooled:
    """A choice that needs a shard, the shared model and pooled summaries, as a selector."""

    summarise: Summarise
    pool: Pool
    choose: PooledChoice
    pretraining: Pretraining
    given: Given

    def program(self) -> Pooled:
        """Itself."""
        return self

    def start(self, shard: Shard) -> Informed:
        """Nothing known yet."""
        return Informed(self._lifted(Message()).start(shard), Message())

    def run(self, phase: str, shard: Shard, state: Informed, message: Message) -> tuple[Informed, Message]:
        """Summarise, take what was pooled, or train."""
        if phase == SUMMARISE:
            return state, self.summarise(shard, state.trained[1])
        if phase == POOLED:
            return replace(state, pooled=message), Message()
        trained, reply = self._lifted(Message()).run(phase, shard, state.trained, message)
        return replace(state, trained=trained), reply

    def lead(self, ask: Ask, w: Tensor, on_round: OnRound) -> Solution:
        """Federated averaging, then one exchange of summaries."""
        solution = self._lifted(Message()).lead(ask, w, on_round)
        ask(POOLED, self.pool(ask(SUMMARISE, Message())))
        return solution

    def coreset(self, shard: Shard, state: Informed) -> Coreset:
        """The worker's choice with the final parameters and what was pooled."""
        return self._lifted(state.pooled).coreset(shard, state.trained)

    def _lifted(self, pooled: Message) -> Lifted:
        return Lifted(partial(self.choose, pooled), self.pretraining, self.given)


def check_minimum(minimum: int) -> None:
    """Refuse summaries that would hold single samples."""
    if minimum < 2:
        msg = f"`minimum` must be at least 2, or the mean of a class with one sample would give it away; got {minimum}."
        raise ValueError(msg)
