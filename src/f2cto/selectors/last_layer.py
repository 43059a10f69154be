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

    def gram(self, rows: Tensor) -> Tensor:
        """The inner products of the gradients of some samples.  (len(rows), len(rows))."""
        residual, inputs = self.residual[rows], self.inputs[rows]
        return (residual @ residual.T) * (inputs @ inputs.T)

    def along(self, rows: Tensor, direction: Tensor) -> Tensor:
        """The inner products of the gradients of some samples with one (outputs, width + 1).  (len(rows),)."""
        return ((self.residual[rows] @ direction) * self.inputs[rows]).sum(dim=1)

    def total(self, rows: Tensor) -> Tensor:
        """The sum of the gradients of some samples.  (outputs, width + 1)."""
        return self.residual[rows].T @ self.inputs[rows]

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
