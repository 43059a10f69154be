from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from torch import Generator, Tensor

from f2cto.attacks import Logits, Pgd, Restarted, robust_accuracy
from f2cto.attacks.base import Range
from f2cto.randomness import generator


@dataclass
class Script:
    """Moves each sample as written down for its try; samples are known by their first feature."""

    moves: list[dict[float, float]]
    asked: list[list[float]] = field(default_factory=list)
    radius: float = 1.0

    def perturb(self, logits: Logits, x: Tensor, y: Tensor, rng: Generator) -> Tensor:  # noqa: ARG002
        move = self.moves[len(self.asked)]
        self.asked.append(x[:, 0].tolist())
        return torch.stack([x[:, 0], torch.tensor([move[name] for name in x[:, 0].tolist()])], dim=1)


def second_feature(x: Tensor) -> Tensor:
    """Label 0 is right below 0, and the cross-entropy grows with the feature."""
    return torch.stack([torch.zeros(len(x)), x[:, 1]], dim=1)


def test_the_first_success_is_kept_or_the_highest_loss() -> None:
    script = Script([{1.0: 2.0, 2.0: -3.0, 3.0: -1.0}, {2.0: 0.5, 3.0: -2.0}, {3.0: -1.5}])
    x = torch.tensor([[1.0, -5.0], [2.0, -5.0], [3.0, -5.0]])
    attacked = Restarted(script, 3).perturb(second_feature, x, torch.zeros(3, dtype=torch.long), generator(0))
    assert script.asked == [[1.0, 2.0, 3.0], [2.0, 3.0], [3.0]]
    assert attacked.tolist() == [[1.0, 2.0], [2.0, 0.5], [3.0, -1.0]]
    assert x[:, 1].tolist() == [-5.0] * 3


def test_a_success_counts_more_than_a_high_loss() -> None:
    """For label 0 logits (10, 10, 9) are right with a loss of about 0.86, (0, 0.1, -9) wrong with 0.74."""
    table = {0.0: [10.0, 10.0, 9.0], 1.0: [0.0, 0.1, -9.0]}
    logits = lambda x: torch.tensor([table[value] for value in x[:, 1].tolist()])  # noqa: E731
    script = Script([{1.0: 0.0}, {1.0: 1.0}])
    attacked = Restarted(script, 2).perturb(logits, torch.tensor([[1.0, 0.0]]), torch.tensor([0]), generator(0))
    assert attacked.tolist() == [[1.0, 1.0]]


def test_no_try_is_made_for_nothing() -> None:
    script = Script([{1.0: 2.0}])
    x = torch.tensor([[1.0, -5.0]])
    Restarted(script, 5).perturb(second_feature, x, torch.tensor([0]), generator(0))
    assert script.asked == [[1.0]]


@pytest.mark.parametrize("times", [1, 2, 8])
def test_random_guesses_by_hand(times: int) -> None:
    """0.5 ± 0.1, and wrong from 0.55 on: a uniform guess fails three times of four, `times` of them by its power."""
    logits = lambda x: torch.cat([torch.full_like(x, 0.55), x], dim=1)  # noqa: E731
    x, y = torch.full((10_000, 1), 0.5), torch.zeros(10_000, dtype=torch.long)
    left = robust_accuracy(logits, Restarted(Pgd(0.1, steps=0), times), x, y, Range(), generator(1, times))
    assert left == pytest.approx(0.75**times, abs=0.02)


@pytest.mark.parametrize("seed", range(5))
def test_never_weaker_than_one_try(seed: int) -> None:
    x, weights = torch.rand(150, 6, generator=generator(seed)), torch.randn(6, 3, generator=generator(seed, 1))
    logits: Logits = lambda v: (v - 0.5) @ weights  # noqa: E731
    y, weak = logits(x).argmax(dim=1), Pgd(0.1, steps=1, step=0.02)
    one, ten = (robust_accuracy(logits, a, x, y, Range(), generator(seed)) for a in (weak, Restarted(weak, 10)))
    assert ten < one < 1


def test_no_times_are_refused() -> None:
    with pytest.raises(ValueError, match="at least once; got times = 0"):
        Restarted(Pgd(0.1), 0)


def test_the_radius_is_the_inner_attacks() -> None:
    assert Restarted(Pgd(0.3), 2).radius == 0.3
