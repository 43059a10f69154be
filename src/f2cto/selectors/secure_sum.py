"""Sums over workers whose terms nobody sees: masks that cancel around the ring of workers.

After Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, 2017, with the sparsest
graph of masks there is. Worker i adds a mask that it shares with worker i + 1 and subtracts the one it shares with
worker i - 1. Numbers are fixed-point integers modulo 2^44, so that a share is uniformly distributed whatever it hides,
and the sum is exact. The master learns the sum, and more only in league with both neighbours of a worker. One worker
alone has nobody to hide behind, and of two each knows the other's term once it knows the sum.

In one process all masks follow from the run's seed. Over a network a pair of neighbours has to agree on a key that the
master does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from f2cto.randomness import generator

STEP = 2.0**-32  # what the last digit stands for
MODULUS = 2.0**44  # below 2^53 even when two shares are added: float64 holds them all exactly


@dataclass(frozen=True)
class Ring:
    """A worker's place among all workers, and the seed its keys follow from."""

    worker: int
    workers: int
    seed: int

    def mask(self, owner: int, key: int, like: Tensor) -> Tensor:
        """The mask of turn `key` that the worker `owner` shares with the next."""
        rng = generator(self.seed, owner % self.workers, key, 5, device=like.device)
        drawn = torch.randint(int(MODULUS), like.shape, generator=rng, device=like.device)
        return drawn.double()


def share(values: Tensor, ring: Ring, key: int) -> Tensor:
    """A worker's term of a sum, under masks that are used once: never hand in a `key` twice."""
    if not bool(values.abs().max() < MODULUS * STEP / 2):
        msg = f"A term of a hidden sum must be below {MODULUS * STEP / 2:g}; got {float(values.abs().max()):g}."
        raise ArithmeticError(msg)
    digits = (values.double() / STEP).round()
    masks = ring.mask(ring.worker, key, values) - ring.mask(ring.worker - 1, key, values)
    return (digits + masks).remainder(MODULUS)


def total(shares: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """The sum that the shares of all workers hide."""
    digits = reduce(lambda a, b: (a + b).remainder(MODULUS), shares)
    return ((digits + MODULUS / 2).remainder(MODULUS) - MODULUS / 2).mul(STEP).to(dtype)
