"""Small federations for tests."""

from __future__ import annotations

import torch
from torch import Tensor

from f2cto.methods.base import Shard
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator


def blobs(count: int, classes: int, seed: int, shape: tuple[int, ...] = (6,)) -> tuple[Tensor, Tensor]:
    """Noisy class centres in [0, 1]; every class is present."""
    # The centres are the same for all seeds: shards of one federation are of one problem.
    centres = torch.rand(classes, *shape, generator=generator(99))
    y = (torch.arange(count) % classes)[torch.randperm(count, generator=generator(seed, 1))]
    noise = 0.15 * torch.randn(count, *shape, generator=generator(seed, 2))
    return (centres[y] + noise).clamp(0, 1), y


def federation(
    workers: int = 3, count: int = 24, size: int = 4, seed: int = 0, shape: tuple[int, ...] = (6,)
) -> list[Shard]:
    """Workers with `count` samples of three classes each, to keep `size` of them."""
    model = FlatModel(fresh(lambda: mlp(torch.Size(shape).numel(), (8,), 3), generator(seed)))
    return [Shard(*blobs(count, 3, 100 * seed + i, shape), size, model, i, seed) for i in range(workers)]
