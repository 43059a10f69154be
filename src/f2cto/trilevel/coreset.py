"""Distributed robust coreset selection: worker i's share of Eq. (1), one implementation of `LocalProblem`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from f2cto.constraints import Box, ConstraintSet
from f2cto.trilevel.problem import Sets
from f2cto.trilevel.sample_slopes import SampleSlopes

# (w, x, y) -> the loss of each sample, and whether it was classified correctly
Evaluate = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def smoothed_topk(alpha: Tensor, noise: Tensor, size: int) -> Tensor:
    """The smoothed top-K term of Eq. (1): the mean over draws z of the sum of the `size` largest entries of alpha + z.

    Noise comes before ranking. The gradient in alpha is then the share of draws in which an entry is among the
    largest: its inclusion probability, by Monte Carlo.

    Args:
        alpha: the weights.         (M,)
        noise: draws of z.          (S, M)
        size: K.

    """
    return (alpha + noise).topk(size, dim=-1).values.sum(dim=-1).mean()


@dataclass(frozen=True, eq=False)
class Blocks:
    """Samples that compete with each other for places: all of a worker's, or those of one class."""

    groups: Tensor  # the block 0..B-1 of each sample, (M,)
    sizes: Tensor  # the places in each block, (B,)

    def members(self, block: int) -> Tensor:
        """The samples of a block, in their own order."""
        return (self.groups == block).nonzero().flatten()

    @cached_property
    def places(self) -> Tensor:
        """The places of the blocks that have any.  (B',)."""
        return self.sizes[self.sizes > 0]

    @cached_property
    def most(self) -> int:
        """The places of the block that has most."""
        return int(self.sizes.max())

    @cached_property
    def table(self) -> Tensor:
        """The samples of every block that has places, filled up with -1.  (B', longest)."""
        counts = torch.bincount(self.groups, minlength=len(self.sizes))
        order = self.groups.argsort(stable=True)
        place = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[self.groups[order]]
        table = order.new_full((len(counts), int(counts.max())), -1)
        table[self.groups[order], place] = order
        return table[self.sizes > 0]


@dataclass(frozen=True, eq=False)
class TopK:
    """The regulariser of level 1: lambda times the smoothed top-K sums of all blocks."""

    weight: float  # lambda
    blocks: Blocks
    draw: Callable[[], Tensor]  # the noise, (S, M); always the same, which makes f1 a function and not a lottery

    @cached_property
    def noise(self) -> Tensor:
        """The draws of z, made when they are first needed.  (S, M)."""
        return self.draw()

    def __call__(self, alpha: Tensor) -> Tensor:
        """The regulariser's value: the definition, block by block."""
        blocks = [(self.blocks.members(b), size) for b, size in enumerate(self.blocks.sizes.tolist()) if size]
        terms = [smoothed_topk(alpha[members], self.noise[:, members], size) for members, size in blocks]
        return self.weight * sum(terms, start=alpha.new_zeros(()))

    def value(self, alpha: Tensor) -> Tensor:
        """The same by one ranking for all blocks."""
        ordered, _, on_top = self._ranked(alpha)
        return self.weight * ordered[on_top.expand_as(ordered)].sum() / len(self.noise)

    def inclusion(self, alpha: Tensor) -> Tensor:
        """Its gradient: lambda times the share of draws in which each sample is among the largest of its block."""
        _, members, on_top = self._ranked(alpha)
        counts = torch.bincount(members[on_top.expand_as(members)], minlength=len(alpha))
        return counts.to(alpha.dtype) * (self.weight / len(self.noise))

    def _ranked(self, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The largest noisy weights of each block, whose they are, and which places count.  (S, B', most)."""
        table, most = self.blocks.table, self.blocks.most
        noisy = (alpha + self.noise)[:, table].masked_fill(table < 0, -torch.inf)
        ordered, order = noisy.topk(most, dim=-1)
        on_top = torch.arange(most, device=alpha.device) < self.blocks.places[:, None]
        return ordered, table.expand_as(noisy).gather(-1, order), on_top


@dataclass(frozen=True, eq=False)
class RobustCoreset:
    """Weigh samples so that a model trained robustly on them has a small robust loss on all of them.

    The paper sums f1 and f2_eval over samples while f2_train is a weighted mean. `every` is the weight of each sample
    in f1 and f2_eval: ones are the letter, 1/M makes them means, so that the penalties need not grow with the shard.
    """

    evaluate: Evaluate
    x: Tensor  # (M, *features)
    y: Tensor  # (M,)
    sets: Sets
    topk: TopK
    every: Tensor  # (M,)
    chunk: int = 0  # samples in one pass of the fast form; 0: all
    keeps_graphs: bool = True  # whether the graph of a pass over all samples fits into memory
    evaluate_roughly: Evaluate | None = None  # for gradients in perturbations; none: `evaluate`

    def f1(self, alpha: Tensor, q: Tensor, w: Tensor, p: Tensor) -> Tensor:  # noqa: ARG002  (the protocol's signature)
        """The robust loss on all samples minus the smoothed top-K term: level 1 of Eq. (1)."""
        return self.every @ self.losses(w, q) - self.topk(alpha)

    def f2_eval(self, alpha: Tensor, q: Tensor, w: Tensor) -> Tensor:  # noqa: ARG002
        """Minus the loss on all samples, so that q attacks: level 2 of Eq. (1), first problem."""
        return -self.every @ self.losses(w, q)

    def f2_train(self, alpha: Tensor, w: Tensor, p: Tensor) -> Tensor:
        """The weighted robust training loss: level 2 of Eq. (1), second problem."""
        return alpha @ self.losses(w, p)

    def f3(self, alpha: Tensor, w: Tensor, p: Tensor) -> Tensor:
        """Minus the weighted loss, so that p attacks: level 3 of Eq. (1)."""
        return -self.f2_train(alpha, w, p)

    def losses(self, w: Tensor, perturbation: Tensor) -> Tensor:
        """The loss of each perturbed sample.  (M,)."""
        return self.evaluate(w, self.x + perturbation, self.y)[0]

    def slopes(self) -> SampleSlopes:
        """The short way to the gradients."""
        return SampleSlopes(self)

    def parts(self) -> list[tuple[slice, RobustCoreset]]:
        """The same problem for `chunk` samples at a time: all but the top-K term separates over samples."""
        size, count = self.chunk or len(self.y), len(self.y)
        if size >= count:
            return [(slice(0, count), self)]
        return [(rows, self._part(rows)) for rows in (slice(at, at + size) for at in range(0, count, size))]

    def _part(self, rows: slice) -> RobustCoreset:
        sets = replace(self.sets, Q=rows_of(self.sets.Q, rows), P=rows_of(self.sets.P, rows))
        return replace(self, x=self.x[rows], y=self.y[rows], sets=sets, every=self.every[rows])


def rows_of(onto: ConstraintSet, rows: slice) -> ConstraintSet:
    """The set of some samples' perturbations; a ball is the same for all."""
    return onto.rows(rows) if isinstance(onto, Box) else onto
