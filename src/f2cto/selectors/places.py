"""Weights that move place by place: our alternative to the projected steps of Eq. (11).

A coreset of K samples is a vertex of the weights' set: K places of mass 1/K. Projected steps end between vertices, and
the largest weights, samples that would each lower the same error, overshoot when they are all taken. Here a place is
empty, and then stands for the mean of its block, or holds one sample. Blocks have turns. In its turn a block fills its
next places, each with the sample k that most lowers |D|^2 / 2, where

    D = grad F - grad G_alpha     the mean over workers, under attack: what training on the coreset leaves to be wished

is read off the two models: after n steps from the same point w^ - w = n eta/(1 + rho_2) D. Both are means that the
master sent, so that workers make up for each other's choices, and nothing but parameters crosses. The pull of D on a
sample is a difference of losses as in Eq. (11), -[l_k(w - h D) - l_k(w)] / h; what one more place changes in D itself
comes from the inner products of the block's own gradients, which stay where they are.

What it costs in privacy. A worker's own w^_i - w_i is its own share of D, and what changes in it from one turn to the
next are the gradients of the few samples that it took: a master that keeps all answers can estimate them, up to how far
the models moved meanwhile. With projected steps all weights change a little at a time. Where the master must not learn
that much, take F2CTO's own steps, or private messages (`sharing.privacy`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from f2cto.models import FlatModel
from f2cto.selectors.base import Shard
from f2cto.selectors.matching import EMPTY, gradient_gram, refill
from f2cto.selectors.quotas import first_turn
from f2cto.trilevel.coreset import Blocks, RobustCoreset
from f2cto.trilevel.problem import Point, Refined


@dataclass(frozen=True)
class Turn:
    """Where the filling is: in which phase of which round of turns."""

    phase: int
    round: int
    rounds: int

    def filled(self, count: int) -> int:
        """How many of a block's places are filled after this round; after the last all are."""
        return -(-(self.round + 1) * count // self.rounds)


def turn_of(t: int, since: int, window: int, phases: int, rounds: int) -> Turn | None:
    """Whose turn it is in iteration t, if anyone's: at the end of every window in which w and w^ go apart."""
    number = (t + 1) // window - 1 - -(-since // window)
    if (t + 1) % window or number < 0 or number >= phases * rounds:
        return None
    return Turn(number % phases, number // phases, rounds)


def phases(shards: Sequence[Shard], blocks: int, turns: int, *, classwise: bool) -> Tensor:
    """When each block has its turn: the earlier, the sooner the worker's stored order comes to its class.  (B,).

    Prefixes of coresets are then what an earlier end would have chosen. Blocks beyond the workers' own have no turn.
    """
    found: list[int] = []
    for shard in shards:
        if classwise:
            count = int(shard.y.max()) + 1
            found += [(c - first_turn(shard.worker, count)) % count * turns // count for c in range(count)]
        else:
            found.append(shard.worker % turns)
    return torch.tensor(found + [-1] * (blocks - len(found)))


@dataclass(frozen=True, eq=False)
class PlaceByPlace:
    """How a team's weights move in one iteration."""

    problem: RobustCoreset
    model: FlatModel
    blocks: Blocks
    phases: Tensor  # when each block has its turn, (B,)
    turn: Turn | None
    place: float  # the weight of a place in the team's weights
    share: int  # of how many workers the team is made
    turns: int  # in a round
    apart: float  # w^ - w in units of D
    probe: float  # h

    def __call__(self, at: Point, known: Refined, workers: int) -> Tensor:
        """The next weights."""
        alpha = torch.zeros_like(at.alpha)
        pull = None
        for block, count in enumerate(self.blocks.sizes.tolist()):
            rows = self.blocks.members(block)
            places = self._held(at.alpha[rows], count)
            if count and self.turn is not None and int(self.phases[block]) == self.turn.phase:
                pull = self._pull(at, known) if pull is None else pull
                gram = gradient_gram(self.model, at.w, self.problem.x[rows] + at.p[rows], self.problem.y[rows])
                # What one place weighs in the mean over all workers, if those who move at the same time do alike.
                mass = self.place * self.share / min(max(workers, self.share), self.turns)
                # From the first that is empty: a worker that was away makes up for the turns it missed.
                open_ = range(int((places != EMPTY).sum()), self.turn.filled(count))
                places = refill(gram, pull[rows], places, open_, mass)
            alpha[rows] = self._weights(places, alpha[rows])
        return alpha

    def _held(self, alpha: Tensor, count: int) -> Tensor:
        """The samples in a block's places, read off its weights: they stand out by one place."""
        held = (alpha > alpha.min() + self.place / 2).nonzero().flatten() if count else alpha[:0].long()
        return torch.cat([held, held.new_full((count - len(held),), EMPTY)])

    def _weights(self, places: Tensor, none: Tensor) -> Tensor:
        """A block's weights: a place's where it holds a sample, and its share of those that are empty."""
        held = places[places != EMPTY]
        weights = none + (len(places) - len(held)) * self.place / max(1, len(none))
        weights[held] += self.place
        return weights

    def _pull(self, at: Point, known: Refined) -> Tensor:
        """<D, grad l_k> of every sample, by how much a step along -D lowers its loss."""
        missing = (known.w_hat - at.w) / self.apart
        with torch.no_grad():
            before, after = (self.problem.losses(w, at.p) for w in (at.w, at.w - self.probe * missing))
        return (before - after) / self.probe
