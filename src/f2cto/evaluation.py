"""How good a coreset is: train a model robustly on it, then attack that model on test data."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Generator, nn

from f2cto.attacks import Attack, Clean, Pgd, fgsm, robust_accuracy
from f2cto.attacks.base import Range
from f2cto.data.dataset import LabelledData
from f2cto.models import FlatModel, fresh
from f2cto.randomness import generator
from f2cto.records import Score
from f2cto.training import Training, train_robust


class Part(StrEnum):
    """The samples that coresets are judged on."""

    TEST = "test"
    VALIDATION = "validation"  # cut from the training part: what settings may be chosen by


@dataclass(frozen=True)
class Evaluation:
    """The attacks that judge a model, and how often each baseline is drawn."""

    radius: float = 0.1
    fgsm_radius: float = 0.0  # 0: the same
    pgd_steps: int = 20
    draws: int = 5  # 0: nothing is judged, and nothing set apart for it
    part: Part = Part.TEST

    def __post_init__(self) -> None:
        """Refuse an evaluation that would judge nothing."""
        if not min(self.radius, self.fgsm_radius) >= 0 or self.pgd_steps < 1 or self.draws < 0:
            msg = f"Evaluation needs radii >= 0, pgd_steps >= 1 and draws >= 0; got {self}."
            raise ValueError(msg)


@dataclass(frozen=True)
class Judge:
    """Trains and attacks models on given data, every method alike.

    Draw number n has the same initial parameters and the same training randomness for every method: comparisons
    are paired.
    """

    make_network: Callable[[], nn.Module]
    test: LabelledData
    training: Training
    evaluation: Evaluation
    valid: Range
    seed: int
    device: torch.device = torch.device("cpu")  # noqa: RUF009  (a value, never changed)

    def scores(self, data: Sequence[LabelledData], on_draw: Callable[[], None]) -> dict[str, Score]:
        """Mean and deviation over draws of the accuracy under each attack."""
        rows = []
        for draw, part in enumerate(data):
            rows.append(self.accuracies(part, draw))
            on_draw()
        return {name: _score([row[name] for row in rows]) for name in rows[0]}

    def accuracies(self, data: LabelledData, draw: int) -> dict[str, float]:
        """The accuracy under each attack of one model trained on `data`."""
        flat = FlatModel(fresh(self.make_network, generator(self.seed, 2, draw)).to(self.device))
        data, test = data.to(self.device), self.test.to(self.device)
        attack = Pgd(self.evaluation.radius, self.training.attack_steps, self._training_step(), valid=self.valid)
        w = train_robust(flat, flat.own(), data.x, data.y, attack, self.training, self._rng(3, draw))
        return {
            name: robust_accuracy(lambda x: flat.logits(w, x), attack, test.x, test.y, self.valid, self._rng(4, draw))
            for name, attack in self.attacks().items()
        }

    def attacks(self) -> dict[str, Attack]:
        """The judging attacks by name."""
        radius, steps = self.evaluation.radius, self.evaluation.pgd_steps
        one_step = fgsm(self.evaluation.fgsm_radius or radius, self.valid)
        return {"clean": Clean(), "fgsm": one_step, "pgd": Pgd(radius, steps, valid=self.valid)}

    def _rng(self, *key: int) -> Generator:
        return generator(self.seed, *key, device=self.device)

    def _training_step(self) -> float:
        return 2.5 * self.evaluation.radius / max(self.training.attack_steps, 1)


def _score(values: Sequence[float]) -> Score:
    return Score(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0, len(values))
