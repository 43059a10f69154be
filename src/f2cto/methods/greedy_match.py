"""Greedy gradient matching: which few samples stand for the weighted ones; with even weights this is LBV's choice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from f2cto.methods.base import Shard
from f2cto.methods.coverage import herding
from f2cto.methods.last_layer import last_layer


def greedy_match(shard: Shard, w: Tensor, p: Tensor, weights: Tensor, stays: Tensor, count: int) -> Tensor:  # noqa: PLR0913
    """Samples in the order in which their mean robust gradient stays closest to the weighted one of their class.

    Of each class so many that `count` of those who stay are among them.

    The largest weights are not it: samples that would each lower the same error have large weights together, and
    overshoot together. Gradients are those of the last layer.
    """
    gradients = last_layer(shard.model, w, shard.x + p, shard.y)
    members = [(shard.y == c).nonzero().flatten() for c in shard.y.bincount().nonzero().flatten()]
    return torch.cat(
        [rows[_until(herding(gradients.take(rows), weights[rows]), stays[rows].tolist(), count)] for rows in members]
    )


def _until(picks: Iterator[int], stays: Sequence[bool], count: int) -> list[int]:
    """Picks up to the `count`-th of those who stay."""
    order: list[int] = []
    for pick in picks:
        if count <= 0:
            break
        order.append(pick)
        count -= stays[pick]
    return order
