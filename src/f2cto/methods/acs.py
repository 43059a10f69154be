"""ACS: adversarial coreset selection, coresets of gradients at attacked samples.

Dolatabadi, Erfani, Leckie: Adversarial Coreset Selection for Efficient Robust Training, International Journal of
Computer Vision 131, 2023. As in the authors' code, every class by itself: GRAD-MATCH fits the sum of the class's
gradients, of the last layer's row of that class; CRAIG covers the gradients of the logits, squared distances, and
weighs by cluster sizes. Different here: classes get equal places instead of proportional ones, places that GRAD-MATCH
cannot use go to what hurts least with weight 0 instead of to random samples, the coreset is chosen once, and the
objective is that of adversarial training (TRADES and perceptual attacks are left out).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

import torch
from torch import Generator, Tensor

from f2cto.methods.attacked import attacked
from f2cto.methods.base import Coreset, Given, Selector, Shard
from f2cto.methods.by_class import Picks, class_by_class
from f2cto.methods.coverage import cluster_sizes, facility_location
from f2cto.methods.last_layer import LastLayer, last_layer
from f2cto.methods.lifted import Lifted, Pretraining
from f2cto.methods.omp import matching_pursuit


class Variant(StrEnum):
    """The coreset method that gradients are handed to."""

    CRAIG = "craig"
    GRADMATCH = "gradmatch"  # picks large gradients first, so that few places a class go to hard samples only


@dataclass(frozen=True)
class AcsSettings:
    """Which coreset of which gradients."""

    variant: Variant = Variant.CRAIG
    attack_steps: int = 10
    ridge: float = 0.0  # on the weights of GRAD-MATCH
    # An early model: the authors' warm start is fraction x kappa of all epochs, 6 of 120 for a tenth of the data.
    pretraining: Pretraining = field(default_factory=lambda: Pretraining(rounds=3))

    def __post_init__(self) -> None:
        """Refuse what no method could work with."""
        if self.attack_steps < 0 or not self.ridge >= 0:
            msg = f"`attack_steps` and `ridge` must be >= 0; got {self.attack_steps} and {self.ridge}."
            raise ValueError(msg)


def make(settings: AcsSettings, given: Given) -> Selector:
    """The method, ready to run."""
    return Lifted(partial(_choose, settings, given), settings.pretraining, given)


def _choose(settings: AcsSettings, given: Given, shard: Shard, w: Tensor, rng: Generator) -> Coreset:
    gradients = last_layer(shard.model, w, attacked(shard, w, given, settings.attack_steps, rng), shard.y)
    if settings.variant is Variant.CRAIG:
        return class_by_class(shard, partial(craig, gradients.bias_only(), rng))
    return class_by_class(shard, partial(gradmatch, gradients.own_row(shard.y), ridge=settings.ridge))


def gradmatch(gradients: LastLayer, rows: Tensor, count: int, *, ridge: float = 0.0) -> Picks:
    """The samples, and weights, whose gradients add up to the sum over all rows."""
    atoms = gradients.take(rows)
    return matching_pursuit(atoms, atoms.along(torch.ones_like(atoms.squares())), count, ridge=ridge)


def craig(gradients: LastLayer, rng: Generator, rows: Tensor, count: int) -> Picks:
    """The samples whose gradients are near all others', weighted by how many they stand for."""
    atoms = gradients.take(rows)
    chosen = facility_location(atoms, count, rng, squared=True)
    return chosen, cluster_sizes(atoms, chosen)
