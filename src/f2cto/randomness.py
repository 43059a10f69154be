"""Generators made from keys: the same key, the same stream, whatever anybody drew before."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from f2cto.constraints import ConstraintSet


def generator(*key: int, device: torch.device | str = "cpu") -> Generator:
    """A generator of its own for a key such as (seed, worker, iteration)."""
    return torch.Generator(device=device).manual_seed(derived_seed(*key))


def derived_seed(*key: int) -> int:
    """One seed for a key of non-negative integers; different keys give unrelated seeds."""
    # The mixer of Steele, Lea and Flood's SplitMix64: thousands of generators are made in a run, and numpy's seed
    # sequences take longer than what is drawn from them. The length belongs to the key.
    state = len(key)
    for part in key:
        state = (state + 0x9E3779B97F4A7C15 * (part + 1)) % 2**64
        state = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) % 2**64
        state = ((state ^ state >> 27) * 0x94D049BB133111EB) % 2**64
        state ^= state >> 31
    return state >> 1


def anywhere(onto: ConstraintSet, like: Tensor, rng: Generator) -> Tensor:
    """A random point of a bounded set, shaped `like`: uniform for balls and boxes in the l-infinity norm."""
    far = torch.full_like(like, 1e30)
    low, high = onto.project(-far), onto.project(far)
    u = torch.rand(like.shape, generator=rng, dtype=like.dtype, device=like.device)
    return onto.project(low + u * (high - low))
