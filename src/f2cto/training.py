"""Adversarial training: how a model is made out of samples, the same way for every method."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, Final

import torch
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy

from f2cto.attacks import Pgd
from f2cto.attacks.base import Logits
from f2cto.descent import gradient
from f2cto.hardware import Precision
from f2cto.models import FlatModel

CHUNK = 500  # samples that go through the model at a time where nothing is learned from them

# The recipe of former results, which results/README.md lists.
FORMER: Final[Mapping[str, Any]] = {"ramp": 0.2, "warm_up": 0.0, "clip": 0.0, "restarts": 0}


@dataclass(frozen=True)
class Training:
    """SGD with momentum on PGD-perturbed batches; the rate grows at first and then falls by a cosine.

    A training that ends in a model that only guesses begins anew from where it began, at half the rate.
    """

    steps: int = 300
    batch: int = 50
    rate: float = 0.1
    momentum: float = 0.9
    attack_steps: int = 5
    ramp: float = 0.35  # the share of steps over which the attack grows to its full radius
    precision: Precision = Precision.AUTO  # the numbers that attacks are computed with
    warm_up: float = 0.1  # the share of steps over which the rate grows to its full height
    clip: float = 4.0  # the largest norm of a gradient, longer ones are scaled down to it; 0: any
    restarts: int = 3  # how often a training that collapsed may begin anew

    def __post_init__(self) -> None:
        """Refuse training that would do nothing or never end."""
        if self.steps < 1 or self.batch < 1 or self.attack_steps < 0:
            msg = f"Training needs steps >= 1, batch >= 1 and attack_steps >= 0; got {self}."
            raise ValueError(msg)
        if not (self.rate > 0 and 0 <= self.momentum < 1 and 0 <= self.ramp <= 1):
            msg = f"Training needs rate > 0, momentum in [0, 1) and ramp in [0, 1]; got {self}."
            raise ValueError(msg)
        if not (0 <= self.warm_up <= 1 and self.clip >= 0 and self.restarts >= 0):
            msg = f"Training needs warm_up in [0, 1], clip >= 0 and restarts >= 0; got {self}."
            raise ValueError(msg)

    def rate_at(self, number: int) -> float:
        """The rate of a step, counted from 0."""
        cosine = 0.5 * (1 + math.cos(math.pi * number / self.steps))
        return self.rate * cosine * grown(number, self.warm_up * self.steps)


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
        return grown(number, self.ramp * steps)

    def take(self, rows: Tensor) -> Portion:
        """Some of the samples."""
        return replace(
            self, x=self.x[rows], y=self.y[rows], outputs=None if self.outputs is None else self.outputs[rows]
        )


def grown(number: int, steps: float) -> float:
    """The share of its full height that something has in a step, counted from 0, if it grows evenly over `steps`."""
    return min(1.0, (number + 1) / steps) if steps else 1.0


def train_robust(  # noqa: PLR0913
    model: FlatModel, w: Tensor, x: Tensor, y: Tensor, attack: Pgd, settings: Training, rng: Generator
) -> Tensor:
    """The parameters after adversarial training on (x, y) from `w` against `attack`."""
    return train_on(model, w, [Portion(x, y, settings.batch, ramp=settings.ramp)], attack, settings, rng)


def train_on(  # noqa: PLR0913
    model: FlatModel, w: Tensor, portions: Sequence[Portion], attack: Pgd, settings: Training, rng: Generator
) -> Tensor:
    """The parameters after adversarial training from `w` in which every step takes a batch of every portion.

    Where that ends in a collapse on the first portion, the training begins anew from `w` at half the rate. If the last
    attempt collapses too, its parameters are returned: `collapsed` says so.
    """
    found = _trained(model, w, portions, attack, settings, rng)
    for attempt in range(1, settings.restarts + 1):
        if not collapsed(model, found, portions[0]):
            break
        slower = replace(settings, rate=settings.rate / 2**attempt)
        found = _trained(model, w, portions, attack, slower, rng)
    return found


def collapsed(model: FlatModel, w: Tensor, portion: Portion) -> bool:
    """Whether a model only guesses on samples that it was trained on.

    Its mean loss is not finite or at least that of even guesses, log C, or its answer is the same for all samples. Of
    samples that are all of one class only the first is asked.
    """
    with torch.no_grad():
        parts = [portion.take(rows) for rows in torch.arange(len(portion.y)).chunk(math.ceil(len(portion.y) / CHUNK))]
        logits = torch.cat([_in_play(model.logits(w, part.x), part.outputs) for part in parts])
    loss = float(cross_entropy(logits, portion.y))
    if not math.isfinite(loss) or _alike(portion.y):
        return not math.isfinite(loss)
    classes = logits.shape[1] if portion.outputs is None else int(portion.outputs[0].sum())
    return loss >= math.log(classes) or _alike(logits.argmax(dim=1))


def _alike(values: Tensor) -> bool:
    return bool((values == values[0]).all())


def _trained(  # noqa: PLR0913
    model: FlatModel, w: Tensor, portions: Sequence[Portion], attack: Pgd, settings: Training, rng: Generator
) -> Tensor:
    """The parameters after one training.

    Batches are drawn from all workers' samples, and the gradient of a batch is the sum of what each worker computes on
    its part of it: this is federated SGD.
    """
    velocity = torch.zeros_like(w)
    batches = [_batches(len(portion.y), portion.batch, settings.steps, rng) for portion in portions]
    for number, rows in enumerate(zip(*batches, strict=True)):
        taken = [portion.take(some) for portion, some in zip(portions, rows, strict=True)]
        attacks = [_weaker(attack, portion.growth(number, settings.steps)) for portion in taken]
        attacked = _attacked(partial(model.logits_to_attack, w, precision=settings.precision), taken, attacks, rng)
        velocity = settings.momentum * velocity + clipped(_slope(model, w, attacked), settings.clip)
        w = w - settings.rate_at(number) * velocity
    return w


def clipped(gradient: Tensor, most: float) -> Tensor:
    """A gradient whose norm is at most `most`; 0: as it is."""
    return gradient * (most / gradient.norm()).clamp(max=1) if most else gradient


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
