"""Many networks of one architecture side by side: one pass for all, each with parameters and samples of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from f2cto.models import FlatModel

GROUP_BYTES = 2**21  # of parameters in one pass: what stays in a processor's cache


@dataclass(frozen=True, eq=False)
class Stacked:
    """P networks as functions of a matrix of parameters, one row a network."""

    model: FlatModel

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """The outputs of every network on its own samples: w (P, d), x (P, n, *features) -> (P, n, classes)."""
        return self.model.stacked_logits(w, x)

    def gradients(self, w: Tensor, x: Tensor, y: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Per-sample losses, and the gradients of their weighted sum in w and in x, from one backward pass.

        Args:
            w: parameters.                 (P, d)
            x: samples.                    (P, n, *features)
            y: labels.                     (P, n)
            weights: of the losses.        (P, n)

        """
        w, x = w.detach().requires_grad_(), x.detach().requires_grad_()
        with torch.enable_grad():
            losses = self.losses(w, x, y)
            in_w, in_x = torch.autograd.grad((losses * weights).sum(), (w, x))
        return losses.detach(), in_w, in_x

    def in_samples(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """The gradients of the losses in the samples alone.  (P, n, *features)."""
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(self.losses(w.detach(), x, y).sum(), x)[0]

    def losses(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """The cross-entropy of every sample under its network.  (P, n)."""
        return cross_entropy(self.logits(w, x).flatten(0, 1), y.flatten(), reduction="none").view(y.shape)

    def groups(self, count: int, size: int) -> Iterator[slice]:
        """Networks in groups whose parameters, `size` numbers each, stay in the cache."""
        step = max(1, GROUP_BYTES // (4 * size))
        return (slice(at, min(at + step, count)) for at in range(0, count, step))
