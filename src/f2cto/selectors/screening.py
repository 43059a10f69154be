"""Setting samples aside that a robust model does not learn: mislabelled ones, outliers, and what is too hard.

Matching gradients is drawn to such samples, for theirs are large; a model trained on a few samples cannot afford them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from f2cto.trilevel.coreset import Blocks


def passing(losses: Tensor, blocks: Blocks, classes: int, least: float) -> Tensor:
    """Which samples stay: losses better than chance, and in any case the lower ones of each block.  (M,).

    Args:
        losses: the mean robust loss of each sample.               (M,)
        blocks: who competes with whom; no block runs short of samples for its places.
        classes: among how many a guess would choose.
        least: the share of each block that stays in any case.

    """
    stays = losses < math.log(max(2, classes))
    for block, places in enumerate(blocks.sizes.tolist()):
        rows = blocks.members(block)
        stays[rows[losses[rows].argsort(stable=True)[: max(places, math.ceil(least * len(rows)))]]] = True
    return stays


def narrowed(blocks: Blocks, stays: Tensor) -> Blocks:
    """The blocks of those who stay; the others share a last one, which has no places and so no weight."""
    groups = torch.where(stays, blocks.groups, len(blocks.sizes))
    return Blocks(groups, torch.cat([blocks.sizes, blocks.sizes.new_zeros(1)]))


def passed_on(weights: Tensor, blocks: Blocks, stays: Tensor) -> Tensor:
    """The weights of those who stay, with what the others of their block had spread over them in proportion."""
    count = len(blocks.sizes)
    total, left = (weights.new_zeros(count).index_add(0, blocks.groups, w) for w in (weights, weights * stays))
    ratio = torch.where(left > 0, total / left.clamp(min=torch.finfo(weights.dtype).tiny), 0.0)
    return weights * stays * ratio[blocks.groups]
