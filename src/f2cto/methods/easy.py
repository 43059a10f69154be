"""Easy samples: those with the lowest robust loss under a robust model that all workers trained on all data.

The mirror image of keeping the hardest; cf. Jiang, Zhou, Leung, Li, Fei-Fei: MentorNet, ICML 2018, and Han et al.:
Co-teaching, NeurIPS 2018, where a small loss tells clean labels from wrong ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Generator, Tensor

from f2cto.methods.attacked import attacked
from f2cto.methods.base import Coreset, Given, Selector, Shard
from f2cto.methods.by_class import alike, class_by_class
from f2cto.methods.lifted import Lifted, Pretraining


@dataclass(frozen=True)
class EasySettings:
    """How losses come about."""

    attack_steps: int = 10
    classwise: bool = True
    pretraining: Pretraining = field(default_factory=Pretraining)

    def __post_init__(self) -> None:
        """Refuse a negative number of steps."""
        if self.attack_steps < 0:
            msg = f"`attack_steps` must be >= 0; got {self.attack_steps}."
            raise ValueError(msg)


def make(settings: EasySettings, given: Given) -> Selector:
    """The method, ready to run."""
    return Lifted(partial(_choose, settings, given), settings.pretraining, given)


def _choose(settings: EasySettings, given: Given, shard: Shard, w: Tensor, rng: Generator) -> Coreset:
    x = attacked(shard, w, given, settings.attack_steps, rng)
    with torch.no_grad():
        losses = shard.model.losses(w, x, shard.y)
    pick = lambda rows, count: alike(losses[rows].argsort(stable=True)[:count])  # noqa: E731
    return class_by_class(shard, pick, classwise=settings.classwise)
