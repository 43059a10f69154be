"""Adversarial training: how a model is made out of samples, the same way for every method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

import torch
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy

from f2cto.attacks import Pgd
from f2cto.attacks.base import Logits
from f2cto.descent import gradient
from f2cto.hardware import Precision
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
    precision: Precision = Precision.AUTO  # the numbers that attacks are computed with

    def __post_init__(self) -> None:
        """Refuse training that would do nothing or never end."""
        if self.steps < 1 or self.batch < 1 or self.attack_steps < 0:
            msg = f"Training needs steps >= 1, batch >= 1 and attack_steps >= 0; got {self}."
            raise ValueError(msg)
        if not (self.rate > 0 and 0 <= self.momentum < 1 and 0 <= self.ramp <= 1):
            msg = f"Training needs rate > 0, momentum in [0, 1) and ramp in [0, 1]; got {self}."
            raise ValueError(msg)


@dataclass(frozen=True, eq=False)
class Portion:
    """Samples of which every step of a training takes a batch."""

    x: Tensor
    y: Tensor
    batch: int
    weight: float = 1.0  # of the batch's mean loss
    ramp: float = 0.0  # the share of steps over which the attack on it grows to its full radius
    outputs: Tensor | None = None  # (M, classes): which outputs of the model are in play for a sample; none: all

    def growth(self, number: int, steps: int) -> float:
        """The share of the full radius in a step."""
        return min(1.0, (number + 1) / (self.ramp * steps)) if self.ramp else 1.0

    def take(self, rows: Tensor) -> Portion:
        """Some of the samples."""
        return replace(
            self, x=self.x[rows], y=self.y[rows], outputs=None if self.outputs is None else self.outputs[rows]
        )


def train_robust(  # noqa: PLR0913
    model: FlatModel, w: Tensor, x: Tensor, y: Tensor, attack: Pgd, settings: Training, rng: Generator
) -> Tensor:
    """The parameters after adversarial training on (x, y) from `w` against `attack`."""
    return train_on(model, w, [Portion(x, y, settings.batch, ramp=settings.ramp)], attack, settings, rng)


def train_on(  # noqa: PLR0913
    model: FlatModel, w: Tensor, portions: Sequence[Portion], attack: Pgd, settings: Training, rng: Generator
) -> Tensor:
    """The parameters after adversarial training from `w` in which every step takes a batch of every portion.

    Batches are drawn from all workers' samples, and the gradient of a batch is the sum of what each worker computes on
    its part of it: this is federated SGD.
    """
    velocity = torch.zeros_like(w)
    batches = [_batches(len(portion.y), portion.batch, settings.steps, rng) for portion in portions]
    for number, rows in enumerate(zip(*batches, strict=True)):
        taken = [portion.take(some) for portion, some in zip(portions, rows, strict=True)]
        attacks = [_weaker(attack, portion.growth(number, settings.steps)) for portion in taken]
        attacked = _attacked(partial(model.logits_to_attack, w, precision=settings.precision), taken, attacks, rng)
        velocity = settings.momentum * velocity + _slope(model, w, attacked)
        rate = settings.rate * 0.5 * (1 + math.cos(math.pi * number / settings.steps))
        w = w - rate * velocity
    return w


def _weaker(attack: Pgd, growth: float) -> Pgd:
    return replace(attack, radius=attack.radius * growth, step=attack.step * growth)


def _attacked(logits: Logits, taken: Sequence[Portion], attacks: Sequence[Pgd], rng: Generator) -> list[Portion]:
    """The batches with their samples perturbed; those that are attacked alike are attacked together."""
    found: list[Portion] = []
    for attack, group in groupby(zip(taken, attacks, strict=True), key=lambda pair: pair[1]):
        parts = [portion for portion, _ in group]
        all_ = joined(parts)
        x = attack.perturb(lambda v: _in_play(logits(v), all_.outputs), all_.x, all_.y, rng)  # noqa: B023
        pieces = torch.split_with_sizes(x, [len(part.y) for part in parts])
        found += [replace(part, x=piece) for part, piece in zip(parts, pieces, strict=True)]
    return found


def _slope(model: FlatModel, w: Tensor, batches: Sequence[Portion]) -> Tensor:
    """The gradient of the weighted sum of the batches' mean losses."""
    all_, sizes = joined(batches), [len(batch.y) for batch in batches]

    def loss(v: Tensor) -> Tensor:
        each = cross_entropy(_in_play(model.logits(v, all_.x), all_.outputs), all_.y, reduction="none")
        means = [part.mean() for part in torch.split_with_sizes(each, sizes)]
        return torch.stack([batch.weight * mean for batch, mean in zip(batches, means, strict=True)]).sum()

    return gradient(loss, w)


def _in_play(logits: Tensor, outputs: Tensor | None) -> Tensor:
    """The model's outputs; those out of play have no say."""
    return logits if outputs is None else logits.masked_fill(~outputs, -math.inf)


def joined(parts: Sequence[Portion]) -> Portion:
    """The samples of all parts in one; in all else it is like the first."""
    if len(parts) == 1:
        return parts[0]
    outputs = [part.outputs for part in parts if part.outputs is not None]
    return replace(
        parts[0],
        x=torch.cat([part.x for part in parts]),
        y=torch.cat([part.y for part in parts]),
        outputs=torch.cat(outputs) if outputs else None,
    )


def _batches(count: int, batch: int, steps: int, rng: Generator) -> list[Tensor]:
    """`steps` batches of row numbers: epochs of shuffled rows, cut into equal parts."""
    size = min(batch, count)
    per_epoch = count // size
    epochs = math.ceil(steps / per_epoch)
    rows = [torch.randperm(count, generator=rng, device=rng.device)[: per_epoch * size] for _ in range(epochs)]
    return list(torch.cat(rows).view(-1, size)[:steps])
