"""An attack tried again where it failed: what one random start misses another may find."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy

from f2cto.attacks.base import Attack, Logits


@dataclass(frozen=True)
class Restarted:
    """Up to `times` runs of an attack with random starts, each on the samples that all before left correct.

    A sample keeps the first version that is misclassified, or the one with the highest cross-entropy if none is.
    """

    inner: Attack
    times: int

    def __post_init__(self) -> None:
        """Refuse an attack that never runs."""
        if self.times < 1:
            msg = f"An attack runs at least once; got times = {self.times}."
            raise ValueError(msg)

    @property
    def radius(self) -> float:
        """The inner attack's."""
        return self.inner.radius

    def perturb(self, logits: Logits, x: Tensor, y: Tensor, rng: Generator) -> Tensor:
        """The attacked samples."""
        worst, highest = x.clone(), x.new_full((len(x),), -torch.inf)
        correct = torch.arange(len(x), device=x.device)
        for _ in range(self.times):
            if not len(correct):
                break
            labels = y[correct]
            attacked = self.inner.perturb(logits, x[correct], labels, rng)
            with torch.no_grad():
                outputs = logits(attacked)
            losses = cross_entropy(outputs, labels, reduction="none").to(x.dtype)
            fooled = outputs.argmax(dim=1) != labels
            # With three classes and more a correct sample can have a higher loss than a misclassified one.
            better = fooled | (losses > highest[correct])
            worst[correct[better]], highest[correct[better]] = attacked[better], losses[better]
            correct = correct[~fooled]
        return worst
