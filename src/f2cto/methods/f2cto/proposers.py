"""Candidate coresets: rules that order a worker's samples of one class, in spaces that show different sides of them.

A proposal is a rule in a space, applied class by class to the share of samples with the lowest robust losses. To add a
rule is an entry in `RULES`, to add a candidate one in `settings.MANY`.

Workers cannot see each other's choices. `spread` coordinates them all the same: each worker herds for the places of all
workers, and keeps the picks of its own turn. Where workers' data are alike so are their orders, and what they keep
complement each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

import torch
from torch import Generator, Tensor

from f2cto.methods.coverage import facility_location, herd
from f2cto.methods.f2cto.gradients import Combined, gradient_vectors
from f2cto.methods.quotas import Balance, dealt, in_turn
from f2cto.methods.vectors import Vectors, points
from f2cto.models import FlatModel

POOL = 2000  # samples of a class that rules choose from on a worker, or four for each that is kept: some at random


class Space(StrEnum):
    """What a sample is to a rule."""

    INPUTS = "inputs"
    FEATURES = "features"  # what the robust model makes of the attacked sample before its last layer
    GRADIENTS = "gradients"  # of its robust loss in the parameters, at all snapshots
    BOTH = "both"  # gradients and inputs


@dataclass(frozen=True)
class Proposal:
    """One candidate: how every worker orders its samples."""

    rule: str
    space: Space = Space.INPUTS
    share: float = 1.0  # of each class that stays; those with the highest losses are set aside
    balance: Balance = Balance.PROPORTIONAL
    draw: int = 0  # tells random ones apart

    @property
    def name(self) -> str:
        """As reports show it."""
        where = [] if self.rule in {"easiest", "random"} else [str(self.space)]
        share = [] if self.share == 1 else [f"{self.share:.0%}"]
        draw = [str(self.draw)] if self.draw else []
        return " ".join([self.rule, *where, *share, *draw, str(self.balance)])


@dataclass(frozen=True, eq=False)
class Observed:
    """What a worker knows of its samples once the federation has trained on everything."""

    model: FlatModel
    snapshots: tuple[Tensor, ...]  # parameters on the way
    x: Tensor  # (M, *features)
    attacked: Tensor  # (M, *features)
    y: Tensor  # (M,)
    losses: Tensor  # (M,), mean robust loss while the model was trained
    worker: int
    workers: int


@dataclass(frozen=True, eq=False)
class Group:
    """The samples of one class; spaces are computed when a rule first asks for them."""

    seen: Observed
    label: int
    rows: Tensor
    _spaces: dict[Space, Vectors] = field(default_factory=dict)

    @property
    def losses(self) -> Tensor:
        """Of its samples."""
        return self.seen.losses[self.rows]

    def easiest(self, share: float, least: int) -> Tensor:
        """The positions with the lowest losses, in their own order; at least so many."""
        most = max(least, math.ceil(share * len(self.rows)))
        return self.losses.argsort(stable=True)[:most].sort().values

    def vectors(self, space: Space) -> Vectors:
        """Its samples in a space."""
        if space not in self._spaces:
            self._spaces[space] = self._computed(space)
        return self._spaces[space]

    def _computed(self, space: Space) -> Vectors:
        seen, x = self.seen, self.seen.attacked[self.rows]
        match space:
            case Space.INPUTS:
                return points(seen.x[self.rows])
            case Space.FEATURES:
                with torch.no_grad():
                    return points(seen.model.features(seen.snapshots[-1], x))
            case Space.GRADIENTS:
                return Combined.even([gradient_vectors(seen.model, w, x, seen.y[self.rows]) for w in seen.snapshots])
            case Space.BOTH:
                inputs = seen.x[self.rows].flatten(1)
                return Combined.even([self.vectors(Space.GRADIENTS), points(inputs - inputs.mean(dim=0))])


Rule = Callable[[Group, Space, Tensor, int, Generator], Tensor]  # among positions, how many -> picks, best first


def herding(group: Group, space: Space, some: Tensor, count: int, rng: Generator) -> Tensor:  # noqa: ARG001
    """The mean of what is kept stays near the mean of all."""
    return some[herd(group.vectors(space).take(some), count)]


def spread(group: Group, space: Space, some: Tensor, count: int, rng: Generator) -> Tensor:
    """Herding for all workers, of which this one keeps its turn."""
    turns = max(1, min(group.seen.workers, len(some) // count))
    mine = (group.seen.worker + group.label) % turns
    return herding(group, space, some, turns * count, rng)[mine::turns]


def medoids(group: Group, space: Space, some: Tensor, count: int, rng: Generator) -> Tensor:
    """Every sample is near one that is kept: greedy k-medoids, in squared distances."""
    return some[facility_location(group.vectors(space).take(some), count, rng, squared=True)]


def easiest(group: Group, space: Space, some: Tensor, count: int, rng: Generator) -> Tensor:  # noqa: ARG001
    """The lowest robust losses."""
    return some[group.losses[some].argsort(stable=True)[:count]]


def anyone(group: Group, space: Space, some: Tensor, count: int, rng: Generator) -> Tensor:  # noqa: ARG001
    """At random."""
    return some[torch.randperm(len(some), generator=rng, device=rng.device)[:count].to(some.device)]


RULES: Mapping[str, Rule] = MappingProxyType(
    {"herding": herding, "spread": spread, "medoids": medoids, "easiest": easiest, "random": anyone}
)


def candidates(seen: Observed, size: int, proposals: Sequence[Proposal], rng: Generator) -> list[Tensor]:
    """One worker's coreset for every proposal: so many rows, best first, every prefix as balanced as can be."""
    places = {balance: dealt(seen.y, size, seen.worker, balance).tolist() for balance in Balance}
    picks: list[list[Tensor]] = [[] for _ in proposals]
    for label in range(int(seen.y.max()) + 1):
        most = max(POOL, *(4 * own[label] for own in places.values()))
        group = Group(seen, label, _some((seen.y == label).nonzero().flatten(), most, rng))
        for own, proposal in zip(picks, proposals, strict=True):
            own.append(_picks(group, proposal, places[proposal.balance][label], rng))
    return [in_turn(own, seen.worker) for own in picks]


def _some(rows: Tensor, most: int, rng: Generator) -> Tensor:
    """All rows, or so many of them at random in their own order."""
    if len(rows) <= most:
        return rows
    return rows[torch.randperm(len(rows), generator=rng, device=rng.device)[:most].sort().values.to(rows.device)]


def _picks(group: Group, proposal: Proposal, count: int, rng: Generator) -> Tensor:
    """The rows of one class that one proposal keeps."""
    if not count:
        return group.rows[:0]
    some = group.easiest(proposal.share, count)
    return group.rows[RULES[proposal.rule](group, proposal.space, some, count, rng)]
