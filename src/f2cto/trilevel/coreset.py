"""Distributed robust coreset selection: worker i's share of Eq. (1), one implementation of `LocalProblem`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

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
class Block:
    """Samples that compete with each other for `size` places: all of a worker's, or those of one class."""

    members: Tensor  # indices into the shard
    size: int


@dataclass(frozen=True, eq=False)
class TopK:
    """The regulariser of level 1: lambda times the smoothed top-K sums of all blocks."""

    weight: float  # lambda
    blocks: tuple[Block, ...]
    noise: Tensor  # (S, M): drawn outside, which makes f1 a function and not a lottery

    def __call__(self, alpha: Tensor) -> Tensor:
        """The regulariser's value: the definition, block by block."""
        terms = [smoothed_topk(alpha[b.members], self.noise[:, b.members], b.size) for b in self.blocks if b.size]
        return self.weight * sum(terms, start=alpha.new_zeros(()))

    def value(self, alpha: Tensor) -> Tensor:
        """The same by one sort for all blocks."""
        ordered, _, on_top = self._ranked(alpha)
        return self.weight * ordered[on_top.expand_as(ordered)].sum() / len(self.noise)

    def inclusion(self, alpha: Tensor) -> Tensor:
        """Its gradient: lambda times the share of draws in which each sample is among the largest of its block."""
        _, members, on_top = self._ranked(alpha)
        counts = torch.bincount(members[on_top.expand_as(members)], minlength=len(alpha))
        return counts.to(alpha.dtype) * (self.weight / len(self.noise))

    def _ranked(self, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Noisy weights sorted downwards in each block, whose they are, and which places count.  (S, B, longest)."""
        longest = max(len(b.members) for b in self.blocks)
        members = torch.stack(
            [torch.nn.functional.pad(b.members, (0, longest - len(b.members)), value=-1) for b in self.blocks]
        )
        noisy = (alpha + self.noise)[:, members].masked_fill(members < 0, -torch.inf)
        ordered, order = noisy.sort(dim=-1, descending=True)
        sizes = torch.tensor([b.size for b in self.blocks], device=alpha.device)
        on_top = torch.arange(longest, device=alpha.device) < sizes[:, None]
        return ordered, members.expand_as(order).gather(-1, order), on_top


@dataclass(frozen=True, eq=False)
class RobustCoreset:
    """Weigh samples so that a model trained robustly on them has a small robust loss on all of them.

    The paper sums f1 and f2_eval over samples while f2_train is a weighted mean. `sums=False` takes means instead, so
    that the penalties need not grow with the shard.
    """

    evaluate: Evaluate
    x: Tensor  # (M, *features)
    y: Tensor  # (M,)
    sets: Sets
    topk: TopK
    sums: bool = False
    chunk: int = 0  # samples in one pass of the fast form; 0: all

    def f1(self, alpha: Tensor, q: Tensor, w: Tensor, p: Tensor) -> Tensor:  # noqa: ARG002  (the protocol's signature)
        """The robust loss on all samples minus the smoothed top-K term: level 1 of Eq. (1)."""
        return self._total(self.losses(w, q)) - self.topk(alpha)

    def f2_eval(self, alpha: Tensor, q: Tensor, w: Tensor) -> Tensor:  # noqa: ARG002
        """Minus the loss on all samples, so that q attacks: level 2 of Eq. (1), first problem."""
        return -self._total(self.losses(w, q))

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

    def _total(self, losses: Tensor) -> Tensor:
        return losses.sum() if self.sums else losses.mean()
