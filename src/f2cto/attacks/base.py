"""What an attack is, and the accuracy that remains under one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Generator, Tensor

from f2cto.constraints import Box

Logits = Callable[[Tensor], Tensor]  # x (M, *features) -> logits (M, classes)


@dataclass(frozen=True)
class Range:
    """The values a feature can take; perturbed samples stay inside.

    `fixed` are the features that no attacker can change (a protocol, a flag), as positions in a flattened sample.
    """

    low: float = 0.0
    high: float = 1.0
    fixed: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a range without values."""
        if not self.low < self.high:
            msg = f"A valid range needs low < high; got [{self.low}, {self.high}]."
            raise ValueError(msg)
        if any(position < 0 for position in self.fixed):
            msg = f"Fixed features are positions 0, 1, … in a flattened sample; got {min(self.fixed)}."
            raise ValueError(msg)

    def reach(self, x: Tensor, radius: float) -> Tensor:
        """How far each feature of the samples `x` may move: the radius, or nothing.  (*features) or ()."""
        if not self.fixed:
            return x.new_tensor(radius)
        count = x[0].numel()
        if max(self.fixed) >= count:
            msg = f"Feature {max(self.fixed)} is said to be fixed, but samples have features 0 to {count - 1}."
            raise ValueError(msg)
        reach = x.new_full((count,), radius)
        reach[list(self.fixed)] = 0
        return reach.view(x.shape[1:])


def perturbations(x: Tensor, radius: float, valid: Range) -> Box:
    """All perturbations of `x` within an l-infinity ball that keep every feature in its range, or where it is fixed."""
    reach, zero = valid.reach(x, radius), x.new_zeros(())
    return Box((valid.low - x).clamp(-reach, zero), (valid.high - x).clamp(zero, reach))


class Attack(Protocol):
    """Finds samples near the given ones on which the model fails."""

    @property
    def radius(self) -> float:
        """The largest change of a feature."""
        ...

    def perturb(self, logits: Logits, x: Tensor, y: Tensor, rng: Generator) -> Tensor:
        """The attacked samples, shaped like `x`."""
        ...


def robust_accuracy(  # noqa: PLR0913
    logits: Logits, attack: Attack, x: Tensor, y: Tensor, valid: Range, rng: Generator
) -> float:
    """The share of samples still classified correctly."""
    return float(withstood(logits, attack, x, y, valid, rng).double().mean())


def withstood(  # noqa: PLR0913
    logits: Logits, attack: Attack, x: Tensor, y: Tensor, valid: Range, rng: Generator
) -> Tensor:
    """Which samples are still classified correctly; the result of the attack is clipped here, not trusted.  (M,)."""
    attacked = x + perturbations(x, attack.radius, valid).project(attack.perturb(logits, x, y, rng) - x)
    with torch.no_grad():
        return logits(attacked).argmax(dim=1) == y
