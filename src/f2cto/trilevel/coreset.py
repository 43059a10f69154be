"""Distributed robust coreset selection: worker i's share of Eq. (1), one implementation of `LocalProblem`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from f2cto.trilevel.problem import Sets

SampleLosses = Callable[[Tensor, Tensor, Tensor], Tensor]  # (w, x, y) -> one loss per sample, (M,)


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
        """The regulariser's value."""
        terms = [smoothed_topk(alpha[b.members], self.noise[:, b.members], b.size) for b in self.blocks if b.size]
        return self.weight * sum(terms, start=alpha.new_zeros(()))


@dataclass(frozen=True, eq=False)
class RobustCoreset:
    """Weigh samples so that a model trained robustly on them has a small robust loss on all of them.

    The paper sums f1 and f2_eval over samples while f2_train is a weighted mean. `sums=False` takes means instead, so
    that the penalties need not grow with the shard.
    """

    losses: SampleLosses
    x: Tensor  # (M, *features)
    y: Tensor  # (M,)
    sets: Sets
    topk: TopK
    sums: bool = False

    def f1(self, alpha: Tensor, q: Tensor, w: Tensor, p: Tensor) -> Tensor:  # noqa: ARG002  (the protocol's signature)
        """The robust loss on all samples minus the smoothed top-K term: level 1 of Eq. (1)."""
        return self._total(self.losses(w, self.x + q, self.y)) - self.topk(alpha)

    def f2_eval(self, alpha: Tensor, q: Tensor, w: Tensor) -> Tensor:  # noqa: ARG002
        """Minus the loss on all samples, so that q attacks: level 2 of Eq. (1), first problem."""
        return -self._total(self.losses(w, self.x + q, self.y))

    def f2_train(self, alpha: Tensor, w: Tensor, p: Tensor) -> Tensor:
        """The weighted robust training loss: level 2 of Eq. (1), second problem."""
        return alpha @ self.losses(w, self.x + p, self.y)

    def f3(self, alpha: Tensor, w: Tensor, p: Tensor) -> Tensor:
        """Minus the weighted loss, so that p attacks: level 3 of Eq. (1)."""
        return -self.f2_train(alpha, w, p)

    def _total(self, losses: Tensor) -> Tensor:
        return losses.sum() if self.sums else losses.mean()
