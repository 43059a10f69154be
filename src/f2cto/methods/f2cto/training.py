"""Levels 2 and 3: robust training in rounds, many networks side by side.

Every sample has one perturbation that lives as long as the training. A step takes one pass: its backward gives the
gradient in the parameters, and that in the samples, along which the perturbations climb for the next step. That is one
projected step of Eq. (14) for each of Eq. (13), both on a batch, with the penalties at one: p stays at its refinement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from f2cto.attacks.base import Range
from f2cto.methods.f2cto.stacked import Stacked
from f2cto.training import Training


@dataclass(frozen=True)
class Ball:
    """Where perturbed samples may be: within a radius of each, and within the valid range."""

    radius: float
    valid: Range

    def scaled(self, share: float) -> Ball:
        """The same with a share of the radius."""
        return replace(self, radius=self.radius * share)

    def around(self, x: Tensor, moved: Tensor) -> Tensor:
        """Samples (P, n, *features) after moves, which are cut to what the ball allows."""
        reach = self.valid.reach(x[0], self.radius)
        return (x + torch.maximum(torch.minimum(moved, reach), -reach)).clamp(self.valid.low, self.valid.high)


@dataclass(frozen=True, eq=False)
class Sets:
    """One set of samples for each of P networks, and the perturbations they have now."""

    x: Tensor  # (P, n, *features)
    y: Tensor  # (P, n)
    p: Tensor  # (P, n, *features)

    @staticmethod
    def fresh(x: Tensor, y: Tensor) -> Sets:
        """Unperturbed."""
        return Sets(x, y, torch.zeros_like(x))

    def network(self, rows: slice) -> Sets:
        """Those of some networks."""
        return Sets(self.x[rows], self.y[rows], self.p[rows])


@dataclass(frozen=True)
class Schedule:
    """One training, spread over rounds: what the task's training is, and how much of it is made here."""

    training: Training
    rounds: int
    steps: int  # at one worker, in all rounds
    batch: int  # samples of one worker in a step
    climb: float = 0.5  # how far a perturbation moves in a step, in radii

    def span(self, number: int) -> range:
        """The steps of a round, counted from 0."""
        return range(number * self.steps // self.rounds, (number + 1) * self.steps // self.rounds)

    def rate(self, step: int) -> float:
        """The rate of a step: up over the first tenth, then down by a cosine."""
        return replace(self.training, steps=self.steps).rate_at(step)

    def growth(self, step: int) -> float:
        """The share of the radius in a step."""
        return min(1.0, (step + 1) / (self.training.ramp * self.steps)) if self.training.ramp else 1.0


@dataclass(frozen=True, eq=False)
class Trained:
    """What a round of local steps leaves."""

    w: Tensor  # (P, d)
    p: Tensor  # (P, n, *features)
    losses: Tensor  # (P, n), added up over the visits of this round
    visits: Tensor  # (n,)


def local_round(  # noqa: PLR0913
    networks: Stacked, w: Tensor, sets: Sets, ball: Ball, schedule: Schedule, number: int, rng: Generator
) -> Trained:
    """One round of a worker: local steps of heavy ball from w, the same batches for all networks."""
    count = sets.y.shape[1]
    span = schedule.span(number)
    batches = _batches(count, schedule.batch, len(span), rng, sets.y.device)
    p, losses, visits = sets.p.clone(), torch.zeros_like(sets.y, dtype=sets.x.dtype), sets.y.new_zeros(count)
    after = torch.empty_like(w)
    for some in networks.groups(len(w), w.shape[1]):
        mine, velocity, here = sets.network(some), torch.zeros_like(w[some]), w[some]
        for step, rows in zip(span, batches, strict=True):
            wider = ball.scaled(schedule.growth(step))
            x, y = mine.x[:, rows], mine.y[:, rows]
            attacked = wider.around(x, p[some][:, rows])
            weights = x.new_full(y.shape, 1 / len(rows))
            each, in_w, in_x = networks.gradients(here, attacked, y, weights)
            velocity = schedule.training.momentum * velocity + shortened(in_w, schedule.training.clip)
            here = here - schedule.rate(step) * velocity
            p[some, rows] = wider.around(attacked, schedule.climb * wider.radius * in_x.sign()) - x
            losses[some, rows] += each
        after[some] = here
    for rows in batches:
        visits[rows] += 1
    return Trained(after, p, losses, visits)


def shortened(gradients: Tensor, most: float) -> Tensor:
    """Each row with a norm of at most `most`; 0: as they are."""
    if not most:
        return gradients
    norms: Tensor = torch.linalg.vector_norm(gradients, dim=1, keepdim=True)
    return gradients * (most / norms.clamp(min=1e-12)).clamp(max=1)


def _batches(count: int, size: int, steps: int, rng: Generator, device: torch.device) -> list[Tensor]:
    """Rows of every step: permutations of all, cut; a rest shorter than a batch is left out."""
    size = min(size, count)
    each = count // size
    orders = [torch.randperm(count, generator=rng, device=rng.device) for _ in range(math.ceil(steps / each))]
    batches = [rows for order in orders for rows in torch.split(order.to(device), size) if len(rows) == size]
    return batches[:steps]


def attacked(  # noqa: PLR0913
    networks: Stacked, w: Tensor, x: Tensor, y: Tensor, ball: Ball, steps: int, rng: Generator
) -> Tensor:
    """Samples under PGD from random starts, 2.5 radii in all, each network's own.  (P, n, *features)."""
    start = (2 * torch.rand(x.shape, generator=rng, dtype=x.dtype, device=x.device) - 1) * ball.radius
    found = ball.around(x, start) if steps else x
    for _ in range(steps):
        climbed = found + 2.5 * ball.radius / steps * networks.in_samples(w, found, y).sign()
        found = ball.around(x, climbed - x)
    return found
