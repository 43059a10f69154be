"""Vectors that are known by their inner products, which are computed when they are needed and not all at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor

BLOCK_BYTES = 4 * 2**20  # of inner products held at a time: they stay in the cache


class Vectors(Protocol):
    """Some vectors, in double precision: distances are small differences of inner products."""

    def __len__(self) -> int:
        """How many they are, n."""
        ...

    def take(self, rows: Tensor) -> Self:
        """Some of them."""
        ...

    def products(self, others: Self) -> Tensor:
        """The inner product of each with each of the others.  (n, m)."""
        ...

    def squares(self) -> Tensor:
        """Their squared norms.  (n,)."""
        ...

    def along(self, weights: Tensor) -> Tensor:
        """The inner product of each with their weighted sum.  (n,)."""
        ...


@dataclass(frozen=True, eq=False)
class Points:
    """Vectors as they are."""

    rows: Tensor  # (n, d)

    def __len__(self) -> int:
        """How many they are."""
        return len(self.rows)

    def take(self, rows: Tensor) -> Points:
        """Some of them."""
        return Points(self.rows[rows])

    def products(self, others: Points) -> Tensor:
        """Inner products of rows."""
        return self.rows @ others.rows.T

    def squares(self) -> Tensor:
        """Of rows."""
        return self.rows.square().sum(dim=1)

    def along(self, weights: Tensor) -> Tensor:
        """Rows with their weighted sum."""
        return self.rows @ (weights @ self.rows)


def points(samples: Tensor) -> Points:
    """Samples as vectors."""
    return Points(samples.flatten(1).double())


def distances(some: Vectors, others: Vectors, *, squared: bool) -> Tensor:
    """||a - b||, or its square, of each with each of the others.  (n, m)."""
    apart = some.products(others).mul_(-2).add_(some.squares()[:, None]).add_(others.squares()).clamp_(min=0)
    return apart if squared else apart.sqrt_()


def blocks(count: int, each: int) -> Iterator[Tensor]:
    """The numbers 0..count - 1 in blocks that keep `each` doubles a number within bounds."""
    size = max(1, BLOCK_BYTES // (8 * max(each, 1)))
    return (torch.arange(at, min(at + size, count)) for at in range(0, count, size))
