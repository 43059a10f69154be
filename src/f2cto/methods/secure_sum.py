"""Vectors that travel through the master without the master reading them: one-time masks between workers.

After Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, 2017. Numbers are
fixed-point integers modulo 2^44, so that what is masked is uniformly distributed whatever it hides, and taking the mask
off again is exact. A sum over workers is hidden by a ring of masks: worker i adds one that it shares with worker i + 1
and subtracts the one it shares with worker i - 1. All cancel in the sum, and only there.

In one process all masks follow from the run's seed. Over a network each pair of workers has to agree on a key of its
own, which the master does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from f2cto.randomness import generator

STEP = 2.0**-32  # what the last digit stands for
MODULUS = 2.0**44  # digits and the sum of two of them stay below 2^53, where float64 is exact


@dataclass(frozen=True)
class Keys:
    """The keys of one worker: one with every worker, itself included."""

    worker: int
    workers: int
    seed: int

    def mask(self, other: int, use: int, like: Tensor) -> Tensor:
        """What this worker adds and `other` takes off in use number `use`; every use has a mask of its own."""
        return self._drawn(self.worker, other, use, like)

    def masked_by(self, other: int, use: int, like: Tensor) -> Tensor:
        """What `other` adds and this worker takes off."""
        return self._drawn(other, self.worker, use, like)

    def ring(self, use: int, like: Tensor) -> Tensor:
        """The worker's part of a set of masks whose sum over all workers is zero."""
        after, before = (self.worker + 1) % self.workers, (self.worker - 1) % self.workers
        return self.mask(after, use, like) - self.masked_by(before, use, like)

    def _drawn(self, owner: int, other: int, use: int, like: Tensor) -> Tensor:
        rng = generator(self.seed, owner, other, use, 5, device=like.device)
        return torch.randint(int(MODULUS), like.shape, generator=rng, device=like.device).double()


def digits(values: Tensor) -> Tensor:
    """Numbers as fixed-point integers modulo 2^44."""
    limit = MODULUS * STEP / 2
    if not bool((values.abs() < limit).all()):
        msg = f"A hidden vector must have entries below {limit:g} in size; got {float(values.abs().max()):g}."
        raise ArithmeticError(msg)
    return wrapped((values.double() / STEP).round())


def numbers(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """What the integers stand for, once no mask is left on them."""
    return (wrapped(hidden + MODULUS / 2) - MODULUS / 2).mul(STEP).to(dtype)


def wrapped(hidden: Tensor) -> Tensor:
    """Integers modulo 2^44."""
    return hidden.remainder(MODULUS)


def total(shares: Sequence[Tensor]) -> Tensor:
    """The sum of integers modulo 2^44."""
    return reduce(lambda a, b: wrapped(a + b), shares)
