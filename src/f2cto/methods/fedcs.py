"""FedCS: samples about as far from their class as from the next one, classes being the federation's.

Hao et al.: FedCS: Coreset Selection for Federated Learning, CVPR 2025. A sample's distance contrast is its distance to
the nearest centre of another class less that to its own; centres are medians over workers of the mean features. As in
the authors' code samples with the largest absolute contrast are pruned in two stages, first within the classes that
dominate, then among all, and about half of the data is kept. Different here: the first stage prunes as many as it
takes, the largest classes first, until the second has only its share `last` left to do; K are kept exactly.

A worker's mean over a class with one sample is that sample, and its input can be recovered from the features. Means of
fewer than `minimum` samples are therefore not sent; where a class has no centre for that reason, workers use their own
mean, which stays with them. What is left of the price: means of few samples are still near them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Generator, Tensor

from f2cto.message import Message
from f2cto.methods.base import Coreset, Given, Selector, Shard, evenly
from f2cto.methods.lifted import Pretraining
from f2cto.methods.pooled import Pooled, check_minimum
from f2cto.methods.quotas import in_turn
from f2cto.methods.spaces import Space, in_space


@dataclass(frozen=True)
class FedcsSettings:
    """How much is pruned when and what of the features is sent."""

    last: float = 0.1  # the share of what the first stage leaves that the second prunes
    minimum: int = 3  # samples of a class, for their mean to be sent
    # A model that is warm, no more, as the authors' after four rounds: in a late one only outliers lie between classes.
    pretraining: Pretraining = field(default_factory=lambda: Pretraining(rounds=4))

    def __post_init__(self) -> None:
        """Refuse a second stage that leaves nothing and means that give samples away."""
        check_minimum(self.minimum)
        if not 0 <= self.last < 1:
            msg = f"`last` is a share in [0, 1) of the samples that the first stage leaves; got {self.last}."
            raise ValueError(msg)


def make(settings: FedcsSettings, given: Given) -> Selector:
    """The method, ready to run."""
    summarise, choose = partial(class_means, settings.minimum), partial(_choose, settings)
    return Pooled(summarise, median_centres, choose, settings.pretraining, given)


def class_means(minimum: int, shard: Shard, w: Tensor) -> Message:
    """The mean features of every class with enough samples, zeros for the others; and which they are."""
    means, counts = _means(in_space(Space.FEATURES, shard, w), shard, w)
    known = counts >= minimum
    return Message({"centres": (means * known[:, None]).flatten(), "known": known.to(w)})


def median_centres(summaries: Sequence[Message]) -> Message:
    """The median over workers, number by number, of the means that were sent."""
    known = torch.stack([summary.vectors["known"] for summary in summaries]) > 0  # (N, classes)
    means = torch.stack([summary.vectors["centres"] for summary in summaries]).view(*known.shape, -1)
    centres = torch.zeros_like(means[0])
    for label in known.any(dim=0).nonzero().flatten().tolist():
        centres[label] = means[known[:, label], label].quantile(0.5, dim=0)
    return Message({"centres": centres.flatten(), "known": known.any(dim=0).to(means)})


def distance_contrast(features: Tensor, y: Tensor, centres: Tensor, known: Tensor) -> Tensor:
    """The distance to the nearest centre of another class less that to the own one; where no other is known, that."""
    distances = torch.cdist(features, centres).masked_fill(~known, torch.inf)
    own = distances.gather(1, y[:, None]).squeeze(1)
    other = distances.scatter(1, y[:, None], torch.inf).min(dim=1).values
    return torch.where(other.isinf(), own, other - own)


def _choose(settings: FedcsSettings, pooled: Message, shard: Shard, w: Tensor, rng: Generator) -> Coreset:  # noqa: ARG001
    features = in_space(Space.FEATURES, shard, w)
    means, counts = _means(features, shard, w)
    given = pooled.vectors["known"] > 0
    centres = torch.where(given[:, None], pooled.vectors["centres"].view_as(means), means)
    contrast = distance_contrast(features, shard.y, centres, given | (counts > 0)).abs()
    left = min(len(shard.y), round(shard.size / (1 - settings.last)))
    first = _lowest(contrast, shard, shard.places(size=left))
    kept = first[contrast[first].argsort(stable=True)[: shard.size]]
    return evenly(in_turn([kept[shard.y[kept] == c] for c in range(len(counts))], shard.worker))


def _lowest(contrast: Tensor, shard: Shard, places: Tensor) -> Tensor:
    """The samples of every class with the lowest contrast."""
    order = contrast.argsort(stable=True)
    return torch.cat([order[shard.y[order] == c][:n] for c, n in enumerate(places.tolist())])


def _means(features: Tensor, shard: Shard, w: Tensor) -> tuple[Tensor, Tensor]:
    """The mean features of every class the model knows, zeros where there is no sample, and the number of samples."""
    with torch.no_grad():
        outputs = shard.model.logits(w, shard.x[:1]).shape[1]
    counts = shard.y.bincount(minlength=outputs)
    sums = features.new_zeros(outputs, features.shape[1]).index_add_(0, shard.y, features)
    return sums / counts.clamp(min=1)[:, None], counts
