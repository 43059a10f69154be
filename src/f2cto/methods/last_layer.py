"""Gradients of the last linear layer, sample by sample, without ever forming them.

The gradient of the cross-entropy of a sample is the outer product of (softmax - onehot) and what goes into the layer,
its features and a one for the bias: inner products of gradients are products of two inner products.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from f2cto.models import FlatModel


@dataclass(frozen=True, eq=False)
class LastLayer:
    """The gradients of M samples, as factors."""

    residual: Tensor  # (M, outputs)
    inputs: Tensor  # (M, width + 1)

    def __len__(self) -> int:
        """M."""
        return len(self.residual)

    def take(self, rows: Tensor) -> LastLayer:
        """The gradients of some samples."""
        return replace(self, residual=self.residual[rows], inputs=self.inputs[rows])

    def products(self, others: LastLayer) -> Tensor:
        """The inner product of each gradient with each of the others.  (M, others)."""
        return (self.residual @ others.residual.T) * (self.inputs @ others.inputs.T)

    def squares(self) -> Tensor:
        """Their squared norms.  (M,)."""
        return self.residual.square().sum(dim=1) * self.inputs.square().sum(dim=1)

    def along(self, weights: Tensor) -> Tensor:
        """The inner product of each gradient with their weighted sum.  (M,)."""
        return self.towards(self.total(weights))

    def towards(self, direction: Tensor) -> Tensor:
        """The inner product of each gradient with one (outputs, width + 1).  (M,)."""
        return ((self.residual @ direction) * self.inputs).sum(dim=1)

    def total(self, weights: Tensor) -> Tensor:
        """The weighted sum of the gradients.  (outputs, width + 1)."""
        return (self.residual * weights[:, None]).T @ self.inputs

    def own_row(self, y: Tensor) -> LastLayer:
        """Only what belongs to the output of the sample's own class."""
        return replace(self, residual=self.residual.gather(1, y[:, None]))

    def bias_only(self) -> LastLayer:
        """Only the gradient of the biases, which is that of the logits."""
        return replace(self, inputs=torch.ones_like(self.inputs[:, :1]))


def last_layer(model: FlatModel, w: Tensor, x: Tensor, y: Tensor) -> LastLayer:
    """The gradients at (x, y) of the last layer of the model with parameters `w`, in double precision.

    A bias is taken to be there whether the layer has one or not.
    """
    with torch.no_grad():
        residual = model.logits(w, x).double().softmax(dim=1)
        residual[torch.arange(len(y), device=y.device), y] -= 1
        features = model.features(w, x).flatten(1).double()
    return LastLayer(residual, torch.cat([features, torch.ones_like(features[:, :1])], dim=1))
