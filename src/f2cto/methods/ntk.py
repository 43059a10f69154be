"""The neural tangent kernel of infinitely wide fully connected ReLU networks, in closed form.

Arthur Jacot, Franck Gabriel, Clement Hongler: Neural Tangent Kernel: Convergence and Generalization in Neural Networks,
NeurIPS 2018; the Gaussian averages over a ReLU layer are the arc-cosine kernels of Youngmin Cho, Lawrence Saul: Kernel
Methods for Deep Learning, NIPS 2009.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Ntk:
    """The kernel of the networks h -> weight W h / sqrt(inputs) + bias b, with W and b standard normal in every layer.

    S is the covariance of two samples' outputs at the start, T the inner product of their gradients. Both are
    weight^2 x.x'/inputs + bias^2 without hidden layers. A hidden layer makes of them, t being the angle between the
    samples as S sees it and s the geometric mean of their variances,

        S <- weight^2 s (sin t + (pi - t) cos t) / 2 pi + bias^2
        T <- S + weight^2 T (pi - t) / 2 pi                        with the new S.
    """

    hidden: int = 2  # layers
    weight: float = 1.0
    bias: float = 0.05

    def __post_init__(self) -> None:
        """Refuse networks that do not exist."""
        if self.hidden < 0 or not self.weight > 0 or self.bias < 0:
            msg = f"The tangent kernel needs hidden >= 0, weight > 0 and bias >= 0; got {self}."
            raise ValueError(msg)

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """The kernel of every row of `a` (A, inputs) with every row of `b` (B, inputs).  (A, B)."""
        gain, shift, inputs = self.weight**2, self.bias**2, a.shape[1]
        variance_a, variance_b = (gain * v.square().sum(dim=1) / inputs + shift for v in (a, b))
        covariance = tangent = gain * (a @ b.T) / inputs + shift
        for _ in range(self.hidden):
            # Samples of variance zero have no angle; whichever they are given, s is zero there.
            s = torch.outer(variance_a, variance_b).sqrt().clamp(min=torch.finfo(a.dtype).tiny)
            cosine = (covariance / s).clamp(-1, 1)
            angle = cosine.arccos()
            rest = math.pi - angle
            covariance = gain * s * (angle.sin() + rest * cosine) / (2 * math.pi) + shift
            tangent = covariance + gain * tangent * rest / (2 * math.pi)
            variance_a, variance_b = (gain * v / 2 + shift for v in (variance_a, variance_b))
        return tangent
