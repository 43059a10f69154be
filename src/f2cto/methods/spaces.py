"""Where distances between samples are measured, and the settings of the methods that go by nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

import torch
from torch import Generator, Tensor

from f2cto.methods.base import Coreset, Given, Shard
from f2cto.methods.by_class import PickAmong, Picks, class_by_class
from f2cto.methods.lifted import Lifted, Pretraining
from f2cto.methods.vectors import Vectors, points

PickByDistance = Callable[[Vectors, int, Generator], Picks]  # from samples, and how many of them to keep


class Space(StrEnum):
    """What a sample is to a method that covers a space."""

    INPUTS = "inputs"  # its features as they are: no model, nothing exchanged
    FEATURES = "features"  # what the shared model makes of it before its last layer


@dataclass(frozen=True)
class CoverSettings:
    """Of methods that choose by distances."""

    space: Space = Space.INPUTS
    classwise: bool = True
    pretraining: Pretraining = field(default_factory=Pretraining)  # of the shared model, if there is one


def covering(pick: PickByDistance, settings: CoverSettings, given: Given) -> Lifted:
    """The selector that picks by distances in the space wanted."""
    pretraining = settings.pretraining
    if settings.space is Space.INPUTS:
        pretraining = replace(pretraining, rounds=0)
    return Lifted(partial(_choose, pick, settings), pretraining, given)


def _choose(pick: PickByDistance, settings: CoverSettings, shard: Shard, w: Tensor, rng: Generator) -> Coreset:
    seen = in_space(settings.space, shard, w)
    among: PickAmong = lambda rows, count: pick(points(seen[rows]), count, rng)  # noqa: E731
    return class_by_class(shard, among, classwise=settings.classwise)


def in_space(space: Space, shard: Shard, w: Tensor) -> Tensor:
    """The samples as vectors.  (M, n)."""
    if space is Space.INPUTS:
        return shard.x.flatten(1)
    with torch.no_grad():
        return shard.model.features(w, shard.x).flatten(1)
