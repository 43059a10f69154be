"""GCFL: every worker matches the federation's gradient, class by class.

Sivasubramanian, Nagalapatti, Iyer, Ramakrishnan: Gradient Coreset for Federated Learning, WACV 2024. As in the authors'
code, gradients are those of the last layer's row of the class, at clean samples; the target is the mean over the class;
what is picked next is nearest to what is left of it; the fit has a ridge. Different here: the target is the mean over
all workers' samples, as there is no validation set at the master; picks are not randomised and come one at a time;
weights are the fitted ones, >= 0, where the code adds one and never uses them; classes get equal places.

Workers send one sum of gradients, and a count, for each class: as many numbers as the last layer has, and labels'
frequencies. From the gradient of a single sample its features could be read off, so that classes with fewer than
`minimum` samples are not sent (the authors leave out those with fewer than 3). Where no worker has as many, each
matches its own mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Generator, Tensor

from f2cto.message import Message
from f2cto.methods.base import Coreset, Given, Selector, Shard
from f2cto.methods.by_class import Picks, class_by_class
from f2cto.methods.last_layer import last_layer
from f2cto.methods.lifted import Pretraining
from f2cto.methods.omp import Pick, matching_pursuit
from f2cto.methods.pooled import Pooled, check_minimum


@dataclass(frozen=True)
class GcflSettings:
    """How gradients are matched and what of them is sent."""

    pick: Pick = Pick.NEAREST
    ridge: float = 0.5
    minimum: int = 3  # samples of a class, for its sum to be sent
    pretraining: Pretraining = field(default_factory=Pretraining)

    def __post_init__(self) -> None:
        """Refuse a fit without solution and summaries that give samples away."""
        check_minimum(self.minimum)
        if not self.ridge >= 0:
            msg = f"`ridge` must be >= 0; got {self.ridge}."
            raise ValueError(msg)


def make(settings: GcflSettings, given: Given) -> Selector:
    """The method, ready to run."""
    summarise, choose = partial(class_gradients, settings.minimum), partial(_choose, settings)
    return Pooled(summarise, mean_gradients, choose, settings.pretraining, given)


def class_gradients(minimum: int, shard: Shard, w: Tensor) -> Message:
    """The sum of the last-layer gradients of every class, in its own row, and the number of its samples."""
    gradients = last_layer(shard.model, w, shard.x, shard.y)
    outputs = gradients.residual.shape[1]
    own = gradients.own_row(shard.y)
    counts = shard.y.bincount(minlength=outputs)
    sent = counts * (counts >= minimum)
    sums = torch.zeros(outputs, own.inputs.shape[1], dtype=own.inputs.dtype, device=w.device)
    sums.index_add_(0, shard.y, own.residual * own.inputs)
    return Message({"gradients": (sums * (sent > 0)[:, None]).to(w).flatten(), "counts": sent.to(w)})


def mean_gradients(summaries: Sequence[Message]) -> Message:
    """The mean gradient of every class over all workers' samples, and how many they are."""
    counts = torch.stack([summary.vectors["counts"] for summary in summaries]).sum(dim=0)
    sums = torch.stack([summary.vectors["gradients"] for summary in summaries]).sum(dim=0).view(len(counts), -1)
    return Message({"gradients": (sums / counts.clamp(min=1)[:, None]).flatten(), "counts": counts})


def _choose(settings: GcflSettings, pooled: Message, shard: Shard, w: Tensor, rng: Generator) -> Coreset:  # noqa: ARG001
    own = last_layer(shard.model, w, shard.x, shard.y).own_row(shard.y)
    counts = pooled.vectors["counts"]
    targets = pooled.vectors["gradients"].to(own.inputs).view(len(counts), -1)

    def pick(rows: Tensor, count: int) -> Picks:
        label = int(shard.y[rows[0]])
        atoms, even = own.take(rows), own.residual.new_full((len(rows),), 1 / len(rows))
        target = targets[label][None] if counts[label] > 0 else atoms.total(even)
        return matching_pursuit(atoms, atoms.towards(target), count, ridge=settings.ridge, pick=settings.pick)

    return class_by_class(shard, pick)
