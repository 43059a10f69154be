"""Who reports when: a seeded stand-in for workers of different speed.

The master goes on as soon as S workers have reported and nobody's last report is more than tau iterations old. Real
delays are not reproducible; here the S are drawn at random, and whoever would become too old is waited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Generator

from f2cto.randomness import generator

TURN = "turn"


@dataclass(frozen=True)
class Asynchrony:
    """How many workers the master waits for. The default is all: the synchronous method."""

    active: int = 0  # S; 0: all
    stale: int = 15  # tau: everybody reports at least once in so many iterations
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a master that waits for nobody, or for ever."""
        if self.active < 0 or self.stale < 1:
            msg = f"Asynchrony needs active >= 0 and stale >= 1; got {self.active} and {self.stale}."
            raise ValueError(msg)

    def turns(self, workers: int) -> Iterator[tuple[int, ...]]:
        """The workers that report in each iteration, without end."""
        return turns(workers, self.active or workers, self.stale, generator(self.seed, workers))


def turns(workers: int, active: int, stale: int, rng: Generator) -> Iterator[tuple[int, ...]]:
    """At least `active` workers an iteration, and each of them at least once in `stale` iterations."""
    age = torch.zeros(workers)
    while True:
        due = age >= stale - 1
        count = max(min(active, workers), int(due.sum()))
        # Those that are due come first, the rest in any order.
        order = (due + torch.rand(workers, generator=rng)).argsort(descending=True)
        now = order[:count]
        age += 1
        age[now] = 0
        yield tuple(sorted(now.tolist()))


def called(workers: tuple[int, ...]) -> dict[str, float]:
    """The scalars by which a message says whose turn it is."""
    return {f"{TURN}.{worker}": 1.0 for worker in workers}


def is_called(worker: int, scalars: Mapping[str, float]) -> bool:
    """Whether it is this worker's turn."""
    return f"{TURN}.{worker}" in scalars
