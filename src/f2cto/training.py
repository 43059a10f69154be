"""Adversarial training: how a model is made out of a coreset, the same way for every method."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from f2cto.attacks import Pgd
from f2cto.descent import gradient
from f2cto.models import FlatModel


@dataclass(frozen=True)
class Training:
    """SGD with momentum and a cosine schedule on PGD-perturbed batches."""

    steps: int = 300
    batch: int = 50
    rate: float = 0.1
    momentum: float = 0.9
    attack_steps: int = 5
    ramp: float = 0.2  # the share of steps over which the attack grows to its full radius

    def __post_init__(self) -> None:
        """Refuse training that would do nothing or never end."""
        if self.steps < 1 or self.batch < 1 or self.attack_steps < 0:
            msg = f"Training needs steps >= 1, batch >= 1 and attack_steps >= 0; got {self}."
            raise ValueError(msg)
        if not (self.rate > 0 and 0 <= self.momentum < 1 and 0 <= self.ramp <= 1):
            msg = f"Training needs rate > 0, momentum in [0, 1) and ramp in [0, 1]; got {self}."
            raise ValueError(msg)


def train_robust(  # noqa: PLR0913
    model: FlatModel, w: Tensor, x: Tensor, y: Tensor, attack: Pgd, settings: Training, rng: Generator
) -> Tensor:
    """The parameters after adversarial training on (x, y) from `w` against `attack`."""
    velocity = torch.zeros_like(w)
    for number, rows in enumerate(_batches(len(y), settings, rng)):
        grown = min(1.0, (number + 1) / (settings.ramp * settings.steps)) if settings.ramp else 1.0
        weaker = replace(attack, radius=attack.radius * grown, step=attack.step * grown)
        here, labels = w, y[rows]
        attacked = weaker.perturb(lambda v: model.logits(here, v), x[rows], labels, rng)  # noqa: B023
        slope = gradient(lambda v: model.losses(v, attacked, labels).mean(), w)  # noqa: B023
        velocity = settings.momentum * velocity + slope
        rate = settings.rate * 0.5 * (1 + math.cos(math.pi * number / settings.steps))
        w = w - rate * velocity
    return w


def _batches(count: int, settings: Training, rng: Generator) -> list[Tensor]:
    """`steps` batches of row numbers: epochs of shuffled rows, cut into equal parts."""
    size = min(settings.batch, count)
    per_epoch = count // size
    epochs = math.ceil(settings.steps / per_epoch)
    rows = [torch.randperm(count, generator=rng, device=rng.device)[: per_epoch * size] for _ in range(epochs)]
    return list(torch.cat(rows).view(-1, size)[: settings.steps])
