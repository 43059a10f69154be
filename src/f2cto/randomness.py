"""Generators made from keys: the same key, the same stream, whatever anybody drew before."""

from __future__ import annotations

import numpy as np
import torch
from torch import Generator, Tensor

from f2cto.constraints import ConstraintSet


def generator(*key: int, device: torch.device | str = "cpu") -> Generator:
    """A generator of its own for a key such as (seed, worker, iteration)."""
    return torch.Generator(device=device).manual_seed(derived_seed(*key))


def derived_seed(*key: int) -> int:
    """One seed for a key of non-negative integers; different keys give unrelated seeds."""
    # The length belongs to the key: numpy alone maps (7,) and (7, 0) to the same entropy.
    state = np.random.SeedSequence((len(key), *key)).generate_state(2, np.uint32)
    return int(state[0]) << 31 ^ int(state[1])


def anywhere(onto: ConstraintSet, like: Tensor, rng: Generator) -> Tensor:
    """A random point of a bounded set, shaped `like`: uniform for balls and boxes in the l-infinity norm."""
    far = torch.full_like(like, 1e30)
    low, high = onto.project(-far), onto.project(far)
    u = torch.rand(like.shape, generator=rng, dtype=like.dtype, device=like.device)
    return onto.project(low + u * (high - low))
