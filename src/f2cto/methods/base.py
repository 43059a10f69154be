"""What a selector is: a program for the workers, a part for the master, and a coreset that each worker keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Generator, Tensor

from f2cto.attacks.base import Range
from f2cto.federation.engine import Program
from f2cto.message import Ask, Message
from f2cto.methods.quotas import Balance, dealt
from f2cto.models import FlatModel
from f2cto.randomness import generator
from f2cto.training import Training
from f2cto.trilevel.master import Round, Solution, Stopped

OnRound = Callable[[Round], None]


@dataclass(frozen=True, eq=False)
class Shard:
    """All a worker has."""

    x: Tensor
    y: Tensor
    size: int  # how many samples its coreset holds
    model: FlatModel
    worker: int  # its number in the federation
    seed: int
    balance: Balance = Balance.EVEN

    def places(self, groups: Tensor | None = None, size: int | None = None) -> Tensor:
        """How many of its `size` places go to each class, or to each of some other groups of samples."""
        return dealt(self.y if groups is None else groups, size or self.size, self.worker, self.balance)


@dataclass(frozen=True, eq=False)
class Given:
    """What every method is told about its task."""

    w: Tensor  # the proxy's initial parameters
    valid: Range = field(default_factory=Range)  # the values features can take
    radius: float = 0.1  # the attacks that models are to withstand, in the l-infinity norm
    balance: Balance = Balance.EVEN
    training: Training = field(default_factory=Training)  # of the models that the coreset is for
    sizes: tuple[int, ...] = ()  # of the tensors in w
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Coreset:
    """What one worker keeps: positions in its own shard, best first, and their weights, which sum to one."""

    indices: Tensor
    weights: Tensor


class Selector(Protocol):
    """A method of choosing coresets over a federation."""

    def program(self) -> Program[Shard, Any]:
        """What runs at each worker."""
        ...

    def lead(self, ask: Ask, w: Tensor, on_round: OnRound) -> Solution:
        """The master's side, from the initial parameters `w` of the proxy model."""
        ...

    def coreset(self, shard: Shard, state: Any) -> Coreset:  # noqa: ANN401  (each program has its own state)
        """The worker's choice, once the master has finished. It stays at the worker."""
        ...


LocalChoice = Callable[[Shard, Generator], Tensor]  # the chosen positions of one shard


@dataclass(frozen=True)
class Local:
    """A method that every worker can carry out alone, lifted to a federation; weights are uniform."""

    choose: LocalChoice

    def program(self) -> Local:
        """Itself: it answers nothing and remembers nothing."""
        return self

    def start(self, shard: Shard) -> None:
        """No state."""

    def run(self, phase: str, shard: Shard, state: None, message: Message) -> tuple[None, Message]:  # noqa: ARG002
        """There is nothing to ask a local method."""
        msg = f"A local method exchanges nothing; got phase `{phase}`."
        raise ValueError(msg)

    def lead(self, ask: Ask, w: Tensor, on_round: OnRound) -> Solution:  # noqa: ARG002
        """The master does nothing."""
        return Solution(w=w, history=(), stopped=Stopped.ITERATIONS)

    def coreset(self, shard: Shard, state: None) -> Coreset:  # noqa: ARG002
        """The worker's own choice."""
        return evenly(self.choose(shard, generator(shard.seed, shard.worker)))


def evenly(indices: Tensor) -> Coreset:
    """A coreset in which all weigh the same."""
    return Coreset(indices, torch.full((len(indices),), 1 / len(indices), device=indices.device))
