"""A worker's samples as an attacker of the shared model would have them."""

from __future__ import annotations

from functools import partial

import torch
from torch import Generator, Tensor

from f2cto.attacks import Pgd
from f2cto.methods.base import Given, Shard
from f2cto.methods.matching import parts_of


def attacked(shard: Shard, w: Tensor, given: Given, steps: int, rng: Generator) -> Tensor:
    """All samples after PGD of so many steps on the model with parameters `w`; part by part, to bound memory.

    Without steps there is no attack, nor a random start.
    """
    step = 2.5 * given.radius / max(steps, 1)
    attack = Pgd(given.radius, steps, step, random_start=steps > 0, valid=given.valid)
    parts = parts_of(shard.model, shard.x)
    pairs = zip(shard.x.chunk(parts), shard.y.chunk(parts), strict=True)
    return torch.cat([attack.perturb(partial(shard.model.logits_to_attack, w), x, y, rng) for x, y in pairs])
