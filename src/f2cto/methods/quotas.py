"""How many samples of each class a worker keeps."""

from __future__ import annotations

from enum import StrEnum

import torch
from torch import Tensor

GOLDEN = (5**0.5 - 1) / 2


class Balance(StrEnum):
    """How many samples of each class are worth keeping: a matter of the task, not of the method."""

    EVEN = "even"  # the same number of every class
    PROPORTIONAL = "proportional"  # as many as the class has samples, in proportion: what comes later is alike


def dealt(y: Tensor, size: int, worker: int, balance: Balance) -> Tensor:
    """A worker's places per class 0..max(y)."""
    return quotas(y, size, worker * size) if balance is Balance.EVEN else shares(y, size, worker)


def shares(y: Tensor, size: int, worker: int = 0) -> Tensor:
    """Places per class 0..max(y) in proportion to its samples, rounded up or down.

    Systematic sampling: every (M/size)-th of the samples in the order of their classes is counted. Workers begin at
    different ones, so that a class too rare for a place on every worker has places on some.
    """
    # Double: in single precision large shards would be counted past their end.
    steps = (torch.arange(size, device=y.device, dtype=torch.float64) + worker * GOLDEN % 1) * len(y) / size
    return torch.bincount(y.sort().values[steps.long()], minlength=int(y.max()) + 1)


def quotas(y: Tensor, size: int, first: int = 0) -> Tensor:
    """Places per class 0..max(y), dealt out in turn over the classes that still have samples.

    Args:
        y: the worker's labels.
        size: places in all, at most `len(y)`.
        first: the class that gets the first place. Starting each worker elsewhere keeps a class from missing in all
            coresets at once where there are fewer places than classes.

    """
    counts = torch.bincount(y)
    order = torch.arange(len(counts), device=y.device).roll(-(first % len(counts)))
    dealt = torch.zeros_like(counts)
    while int(dealt.sum()) < size:
        open_ = order[(dealt < counts)[order]]
        dealt[open_[: size - int(dealt.sum())]] += 1
    return dealt


def first_turn(worker: int, classes: int) -> int:
    """The class that a worker's stored order begins with.

    Workers begin at different ones, so that the union of their prefixes is balanced, whatever their number and length:
    multiples of the golden ratio, taken modulo one, are spread evenly however many they are.
    """
    return int(classes * (worker * GOLDEN % 1))


def in_turn(chosen: list[Tensor], worker: int = 0) -> Tensor:
    """The picks of each class, best first, merged in turn, so that every prefix is as balanced as can be."""
    first = first_turn(worker, len(chosen))
    lists = chosen[first:] + chosen[:first]
    rounds = max(len(picks) for picks in lists)
    return torch.stack([picks[r] for r in range(rounds) for picks in lists if r < len(picks)])
