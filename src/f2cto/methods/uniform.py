"""Random choice, plain and class by class: the floor of every table."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from f2cto.methods.base import Local, Shard
from f2cto.methods.quotas import in_turn, quotas


def uniform(shard: Shard, rng: Generator) -> Tensor:
    """Any samples, each as likely as the other."""
    return _shuffled(shard, rng)[: shard.size]


def balanced(shard: Shard, rng: Generator) -> Tensor:
    """The same number of every class, at random within it."""
    shuffled = _shuffled(shard, rng)
    places = quotas(shard.y, shard.size, shard.worker * shard.size)
    return in_turn([shuffled[shard.y[shuffled] == c][:n] for c, n in enumerate(places.tolist())], shard.worker)


def _shuffled(shard: Shard, rng: Generator) -> Tensor:
    return torch.randperm(len(shard.y), generator=rng).to(shard.y.device)


RANDOM, BALANCED = Local(uniform), Local(balanced)
