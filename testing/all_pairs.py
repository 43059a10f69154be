"""k-center, herding and facility location by their definitions, on matrices of all pairs.

A matrix of n points takes n^2 numbers. Tests hold the forms of `f2cto.methods.coverage` to these.
"""

from __future__ import annotations

import heapq

import torch
from torch import Tensor


def gram(points: Tensor) -> Tensor:
    """The inner products of all pairs of rows, in double precision: distances are small differences of them."""
    points = points.flatten(1).double()
    return points @ points.T


def squared_distances(gram: Tensor) -> Tensor:
    """||a - b||^2 of all pairs, from their inner products."""
    own = gram.diagonal()
    return (own[:, None] + own[None, :] - 2 * gram).clamp(min=0).fill_diagonal_(0)


def k_center(distances: Tensor, count: int) -> Tensor:
    """The first `count` points of a farthest-first traversal (Gonzalez, 1985), in that order.

    No choice of as many centres has less than half the radius max_i min_{s chosen} d(i, s), whatever the first centre
    is. It is the point with the smallest mean distance to all here: a typical one, the same for every seed.
    """
    order = [int(distances.mean(dim=1).argmin())]
    nearest = distances[order[0]]
    left = torch.ones_like(nearest, dtype=torch.bool)
    while len(order) < count:
        left[order[-1]] = False
        # Masked: among doubles of the centres the farthest point may be one that was taken.
        order.append(int(torch.where(left, nearest, -1.0).argmax()))
        nearest = torch.minimum(nearest, distances[order[-1]])
    return torch.tensor(order, device=distances.device)


def herd(gram: Tensor, count: int, weights: Tensor | None = None) -> Tensor:
    """Herding (Welling, 2009): next comes what brings the mean of the chosen nearest to the mean of all.

    `weights` >= 0 make it a weighted mean of all; where they are all zero they say nothing.
    """
    if weights is None or not bool(weights.any()):
        wanted = gram.mean(dim=1)
    else:
        wanted = gram @ (weights / weights.sum()).to(gram)
    own, chosen_sum = gram.diagonal(), gram.new_zeros(len(gram))
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


def facility_location(similarity: Tensor, count: int) -> Tensor:
    """Greedy maximisation of sum_i max_{s chosen} similarity(i, s), at least 1 - 1/e of the best; best first.

    Lazy (Minoux, 1978): gains only shrink as more is chosen, so that what a point gained when last looked at bounds
    what it gains now, and most points need not be looked at again. Similarities must be >= 0; ties go to the first.
    """
    covered = similarity.new_zeros(len(similarity))
    bounds = [(-gain, point) for point, gain in enumerate(similarity.sum(dim=0).tolist())]
    heapq.heapify(bounds)
    order: list[int] = []
    while len(order) < count:
        _, point = heapq.heappop(bounds)
        gain = float((similarity[:, point] - covered).clamp(min=0).sum())
        if bounds and (-gain, point) > bounds[0]:
            heapq.heappush(bounds, (-gain, point))
        else:
            order.append(point)
            covered = torch.maximum(covered, similarity[:, point])
    return torch.tensor(order, device=similarity.device)


def similarities(distances: Tensor) -> Tensor:
    """Distances turned round: the largest becomes 0."""
    return distances.max() - distances


def cluster_sizes(similarity: Tensor, chosen: Tensor) -> Tensor:
    """For how many points each of the chosen is the most similar one; each stands for itself at least."""
    nearest = similarity[:, chosen].argmax(dim=1)
    nearest[chosen] = torch.arange(len(chosen), device=chosen.device)
    return nearest.bincount(minlength=len(chosen)).to(similarity)
