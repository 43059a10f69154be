"""Robust gradients of single samples as vectors that are known by their inner products, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from f2cto.methods.last_layer import last_layer
from f2cto.methods.layerwise import Outer, by_layer
from f2cto.methods.vectors import Vectors
from f2cto.models import FlatModel


def gradient_vectors(model: FlatModel, w: Tensor, x: Tensor, y: Tensor) -> Vectors:
    """The gradients of the samples' losses in w; of a network that convolves, in its last layer only."""
    layers = None if model.convolves else by_layer(model, w, x, y)
    if layers is None or not all(isinstance(layer, Outer) for layer in layers):
        return last_layer(model, w, x, y)
    return Combined(tuple((1.0, Products(layer.slope.double(), layer.inputs.double())) for layer in layers))  # type: ignore[attr-defined]


@dataclass(frozen=True, eq=False)
class Products:
    """Vectors that are outer products d a', by their factors."""

    slope: Tensor  # (n, outputs)
    inputs: Tensor  # (n, width)

    def __len__(self) -> int:
        """How many they are."""
        return len(self.slope)

    def take(self, rows: Tensor) -> Products:
        """Some of them."""
        return Products(self.slope[rows], self.inputs[rows])

    def products(self, others: Products) -> Tensor:
        """<d, d'> <a, a'>."""
        return (self.slope @ others.slope.T) * (self.inputs @ others.inputs.T)

    def squares(self) -> Tensor:
        """|d|^2 |a|^2."""
        return self.slope.square().sum(dim=1) * self.inputs.square().sum(dim=1)

    def along(self, weights: Tensor) -> Tensor:
        """Of each with their weighted sum, the matrix of which is formed."""
        total = self.slope.T @ (weights[:, None] * self.inputs)
        return ((self.slope @ total) * self.inputs).sum(dim=1)


@dataclass(frozen=True, eq=False)
class Combined:
    """Vectors joined end to end, each part scaled: inner products are weighted sums."""

    parts: tuple[tuple[float, Vectors], ...]

    @staticmethod
    def even(parts: Sequence[Vectors]) -> Combined:
        """Parts of mean square one."""
        means = [float(part.squares().mean()) for part in parts]
        return Combined(tuple((1 / max(mean, 1e-30), part) for mean, part in zip(means, parts, strict=True)))

    def __len__(self) -> int:
        """How many they are."""
        return len(self.parts[0][1])

    def take(self, rows: Tensor) -> Combined:
        """Some of them."""
        return Combined(tuple((scale, part.take(rows)) for scale, part in self.parts))

    def products(self, others: Combined) -> Tensor:
        """Added up over parts."""
        pairs = zip(self.parts, others.parts, strict=True)
        return torch.stack([scale * mine.products(theirs) for (scale, mine), (_, theirs) in pairs]).sum(dim=0)

    def squares(self) -> Tensor:
        """Added up over parts."""
        return torch.stack([scale * part.squares() for scale, part in self.parts]).sum(dim=0)

    def along(self, weights: Tensor) -> Tensor:
        """Added up over parts."""
        return torch.stack([scale * part.along(weights) for scale, part in self.parts]).sum(dim=0)
