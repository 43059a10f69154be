"""Greedy gradient matching: which few samples stand for the weighted ones; with even weights this is LBV's choice."""

from __future__ import annotations

import torch
from torch import Tensor

from f2cto.selectors.base import Shard
from f2cto.selectors.coverage import herd
from f2cto.selectors.last_layer import last_layer


def greedy_match(shard: Shard, w: Tensor, p: Tensor, weights: Tensor) -> Tensor:
    """All samples in the order in which their mean robust gradient stays closest to the weighted one of their class.

    The largest weights are not it: samples that would each lower the same error have large weights together, and
    overshoot together. Gradients are those of the last layer.
    """
    gradients = last_layer(shard.model, w, shard.x + p, shard.y)
    members = [(shard.y == c).nonzero().flatten() for c in shard.y.bincount().nonzero().flatten()]
    return torch.cat([rows[herd(gradients.gram(rows), len(rows), weights[rows])] for rows in members])
