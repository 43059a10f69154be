"""A choice among samples, carried out class by class."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from f2cto.methods.base import Coreset, Shard, evenly
from f2cto.methods.quotas import in_turn

Picks = tuple[Tensor, Tensor]  # positions among the rows given, best first, and a weight >= 0 for each
PickAmong = Callable[[Tensor, int], Picks]  # from rows of a shard, and how many of them to keep


def class_by_class(shard: Shard, pick: PickAmong, *, classwise: bool = True) -> Coreset:
    """What `pick` keeps of every class, the places dealt out as the task wants it; or of all samples at once."""
    groups = shard.y if classwise else torch.zeros_like(shard.y)
    weights = shard.x.new_zeros(len(groups))
    kept = []
    for group, places in enumerate(shard.places(groups).tolist()):
        rows = (groups == group).nonzero().flatten()
        picked, given = pick(rows, places) if places else (rows[:0], weights[:0])
        kept.append(rows[picked])
        weights[kept[-1]] = given.to(weights)
    indices = in_turn(kept, shard.worker)
    return weighted(indices, weights[indices])


def alike(order: Tensor) -> Picks:
    """Picks that weigh the same."""
    return order, torch.ones(len(order), device=order.device)


def weighted(indices: Tensor, weights: Tensor) -> Coreset:
    """A coreset with weights scaled to sum to one; even ones where all are zero."""
    total = weights.sum()
    return Coreset(indices, weights / total) if total > 0 else evenly(indices)
