"""Setting samples aside that a robust model does not learn: mislabelled ones, outliers, and what is too hard.

Matching gradients is drawn to such samples, for theirs are large; a model trained on a few samples cannot afford them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from f2cto.trilevel.coreset import Blocks


@dataclass(frozen=True)
class Screening:
    """Before samples are chosen: a model trains, and those it cannot learn to classify under attack are set aside."""

    rounds: int = 0  # of training in which nothing is chosen; 0: no screening
    since: int = 0  # the first of them whose losses count
    least: float = 0.4  # the share of each class on each worker that passes in any case
    most: float = 1.0  # the share that passes at the most, the easiest; at least `least`, and as many as are kept

    def __post_init__(self) -> None:
        """Refuse a screening that no round speaks for, and shares that are none."""
        if self.rounds < 0 or (self.rounds and not 0 <= self.since < self.rounds):
            msg = f"Screening needs 0 <= since < rounds, or rounds = 0; got since {self.since} of {self.rounds}."
            raise ValueError(msg)
        if not (0 <= self.least <= 1 and 0 <= self.most <= 1):
            msg = f"`least` and `most` are shares of a class, from 0 to 1; got {self.least} and {self.most}."
            raise ValueError(msg)


def passing(losses: Tensor, blocks: Blocks, classes: int, rule: Screening) -> Tensor:
    """Which samples stay: losses better than chance, in any case and at the most the lower ones of each block.  (M,).

    Args:
        losses: the mean robust loss of each sample.               (M,)
        blocks: who competes with whom; no block runs short of samples for its places.
        classes: among how many a guess would choose.
        rule: the shares of each block that stay in any case and at the most.

    """
    stays = losses < math.log(max(2, classes))
    for block, places in enumerate(blocks.sizes.tolist()):
        rows = blocks.members(block)
        rows = rows[losses[rows].argsort(stable=True)]
        least, most = (max(places, math.ceil(share * len(rows))) for share in (rule.least, rule.most))
        stays[rows[most:]] = False
        stays[rows[:least]] = True
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
