"""Greedy gradient matching: how the lower-bilevel variant picks samples, its weights being frozen."""

from __future__ import annotations

import torch
from torch import Tensor

from f2cto.selectors.base import Shard


def greedy_match(shard: Shard, w: Tensor, p: Tensor) -> Tensor:
    """All samples in the order in which their mean robust gradient stays closest to the class's mean, class by class.

    Gradients are those of the last layer, (softmax - onehot) x features, so that their inner products factorise and
    the gradients themselves are never formed.
    """
    with torch.no_grad():
        attacked = shard.x + p
        residual = shard.model.logits(w, attacked).softmax(dim=1)
        residual[torch.arange(len(shard.y), device=shard.y.device), shard.y] -= 1
        features = shard.model.features(w, attacked).flatten(1)
        gram = (residual @ residual.T) * (features @ features.T + 1)
    members = [(shard.y == c).nonzero().flatten() for c in shard.y.bincount().nonzero().flatten()]
    return torch.cat([rows[_herd(gram[rows][:, rows])] for rows in members])


def _herd(gram: Tensor) -> Tensor:
    """Herding on a Gram matrix: next comes what brings the mean of the chosen nearest to the mean of all."""
    count = len(gram)
    wanted, own, chosen_sum = gram.mean(dim=1), gram.diagonal(), gram.new_zeros(count)
    left = torch.ones_like(wanted, dtype=torch.bool)
    order = []
    for n in range(1, count + 1):
        # ||mean of chosen and k - mean of all||^2, without what does not depend on k
        cost = (own + 2 * chosen_sum) / n**2 - 2 * wanted / n
        pick = int(torch.where(left, cost, torch.inf).argmin())
        order.append(pick)
        left[pick] = False
        chosen_sum = chosen_sum + gram[pick]
    return torch.tensor(order, device=gram.device)
