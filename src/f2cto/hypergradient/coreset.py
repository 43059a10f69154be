"""Robust coreset selection as a plain trilevel problem: one objective per level.

x = alpha, y = w, z = (p, q). The evaluation-side attack q depends on w alone and does not meet p, so both attacks can
share the lower level. Balls around the samples become penalties c/2 |p|^2, c/2 |q|^2, as an adjoint needs: f3_zz exists
and is positive definite where c exceeds alpha_k times the largest curvature of sample k's loss in its input. It is then
close to c, so that lower steps and Neumann terms of 1/c suit it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from f2cto.hypergradient.problem import Lowers

SampleLosses = Callable[[Tensor, Tensor, Tensor], Tensor]  # (w, x, y) -> one loss per sample, (M,)


def nothing(alpha: Tensor) -> Tensor:
    """No regulariser."""
    return alpha.new_zeros(())


@dataclass(frozen=True, eq=False)
class SoftRobustCoreset:
    """Weigh samples so that a model trained robustly on them has a small robust loss on all of them.

    For several workers stack their samples, and let each worker's weights sum to 1/N.
    """

    losses: SampleLosses
    x: Tensor  # (M, *features)
    y: Tensor  # (M,)
    penalty: float  # c: attacks are about alpha_k |grad l_k| / c long in training, |grad l_k| / (M c) in evaluation
    ridge: float = 0.0  # mu: makes the middle level strongly convex where the loss is flat
    regulariser: Callable[[Tensor], Tensor] = nothing  # of alpha, subtracted as in Eq. (1)

    def f1(self, alpha: Tensor, w: Tensor, z: Lowers) -> Tensor:
        """The mean robust loss on all samples minus the regulariser."""
        _, q = z
        return self.losses(w, self.x + q, self.y).mean() - self.regulariser(alpha)

    def f2(self, alpha: Tensor, w: Tensor, z: Lowers) -> Tensor:
        """The weighted robust training loss: sum_k alpha_k l_k(w; x + p) + mu/2 |w|^2."""
        p, _ = z
        return alpha @ self.losses(w, self.x + p, self.y) + self.ridge / 2 * w.square().sum()

    def f3(self, alpha: Tensor, w: Tensor, z: Lowers) -> Tensor:
        """What both attacks minimise: minus their losses, plus c/2 times their squared lengths."""
        p, q = z
        return (
            -(alpha @ self.losses(w, self.x + p, self.y))
            - self.losses(w, self.x + q, self.y).mean()
            + self.penalty / 2 * (p.square().sum() + q.square().sum())
        )
