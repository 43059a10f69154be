"""What a scenario is made of: tasks, and how their samples are drawn.

Test samples are set apart before anything else is drawn; validation samples are cut from training samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from f2cto.data.errors import DataError
from f2cto.data.partition import split
from f2cto.data.samples import DataSet, Samples
from f2cto.randomness import generator


@dataclass(frozen=True, eq=False)
class Task:
    """What is learned at a time."""

    name: str
    train: Samples
    validation: Samples
    test: Samples
    classes: tuple[int, ...]  # the outputs in play

    def __post_init__(self) -> None:
        """Refuse what nobody could learn from or be judged on."""
        for part, samples in {"training": self.train, "test": self.test}.items():
            if len(samples) == 0:
                msg = f"The task `{self.name}` has no {part} samples; leave it out or make fewer, larger tasks."
                raise DataError(msg)


@dataclass(frozen=True)
class Cut:
    """How samples are drawn: the same cut, the same samples."""

    seed: int = 0
    samples: int | None = None  # at most so many training samples a task, drawn without replacement
    validation: float = 0.1  # share of a task's training samples, cut off before `samples` are drawn; 0 for none
    test: float = 0.3  # share of all samples, where the data set comes without test samples

    def __post_init__(self) -> None:
        """Refuse shares that leave nothing."""
        if not (0 <= self.validation < 1 and 0 < self.test < 1):
            msg = f"Shares must lie between 0 and 1; got validation {self.validation:g} and test {self.test:g}."
            raise ValueError(msg)
        if self.samples is not None and self.samples < 1:
            msg = f"A task needs at least one training sample; got samples = {self.samples}."
            raise ValueError(msg)


def held_out(data: DataSet, cut: Cut) -> tuple[Samples, Samples]:
    """Training and test samples: the publisher's, else a share of every class is set apart for the test."""
    if data.test is not None:
        return data.train, data.test
    first, second = split(data.train.y, cut.test, generator(cut.seed, 0))
    return data.train.take(first), data.train.take(second)


def drawn(pool: Samples, cut: Cut, rng: Generator) -> tuple[Samples, Samples]:
    """Training and validation samples of a task; a cap on the former holds for the latter in proportion."""
    first, second = torch.arange(len(pool)), torch.empty(0, dtype=torch.long)
    if cut.validation:
        first, second = split(pool.y, cut.validation, rng)
    if cut.samples is not None:
        first = _some(first, cut.samples, rng)
        second = _some(second, math.ceil(cut.validation * cut.samples), rng)
    return pool.take(first), pool.take(second)


def only(samples: Samples, kinds: Tensor, wanted: Sequence[int]) -> Samples:
    """The samples whose kind, a number each, is among those wanted."""
    return samples.take(torch.isin(kinds, torch.tensor(wanted)).nonzero().flatten())


def _some(rows: Tensor, count: int, rng: Generator) -> Tensor:
    return rows[torch.randperm(len(rows), generator=rng)[:count].sort().values]
