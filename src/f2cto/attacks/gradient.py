"""Projected gradient descent attacks: Madry et al., Deep Learning Models Resistant to Adversarial Attacks, 2018.

One loop: FGSM (Goodfellow et al., 2015) is one full step of it, no attack at all is none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from torch import Generator, Tensor
from torch.nn.functional import cross_entropy

from f2cto.attacks.base import Logits, Range, perturbations
from f2cto.descent import gradient, projected_descent, sign
from f2cto.randomness import anywhere


@dataclass(frozen=True)
class Pgd:
    """Sign steps up the cross-entropy, each followed by a projection on the ball and the valid range.

    The gradient is taken at x + perturbation and the range is enforced after the step: differentiating through a
    clamp would hide the gradient of every feature that sits on the border.
    """

    radius: float
    steps: int = 10
    step: float = 0.0  # 0: a quarter of the radius
    random_start: bool = True
    valid: Range = field(default_factory=Range)

    def perturb(self, logits: Logits, x: Tensor, y: Tensor, rng: Generator) -> Tensor:
        """The attacked samples."""
        ball = perturbations(x, self.radius, self.valid)
        start = anywhere(ball, x, rng) if self.random_start else x.new_zeros(x.shape)
        step = self.step or self.radius / 4
        # The sum, not the mean: samples do not influence each other, and signs do not care.
        loss = lambda d: -cross_entropy(logits(x + d), y, reduction="sum")  # noqa: E731
        return x + projected_descent(partial(gradient, loss), start, ball, step, self.steps, sign)


def fgsm(radius: float, valid: Range | None = None) -> Pgd:
    """The fast gradient sign method: one PGD step as long as the ball allows."""
    return Pgd(radius, steps=1, step=radius, random_start=False, valid=valid or Range())


@dataclass(frozen=True)
class Clean:
    """No attack."""

    radius: float = 0.0

    def perturb(self, logits: Logits, x: Tensor, y: Tensor, rng: Generator) -> Tensor:  # noqa: ARG002
        """The samples as they are."""
        return x
