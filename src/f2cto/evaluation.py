"""How good a coreset is: train a model robustly on it, then attack that model on test data."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Generator, nn

from f2cto.attacks import Attack, AutoAttack, Clean, Pgd, Restarted, fgsm, robust_accuracy
from f2cto.attacks.base import Range
from f2cto.data.dataset import LabelledData
from f2cto.models import FlatModel, fresh
from f2cto.randomness import generator
from f2cto.records import Score
from f2cto.training import Portion, Training, collapsed, train_robust


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
    pgd_step: float = 0.0  # 0: a quarter of the radius
    random_start: bool = True  # of `pgd`
    strong_steps: int = 0  # of a second PGD, from random starts by quarters of the radius; 0: none
    restarts: int = 1  # of the second PGD
    auto_samples: int = 0  # how many samples of a task AutoAttack is run on; 0: it is not run
    auto_radius: float = 0.0  # 0: the same as the others
    draws: int = 5  # 0: nothing is judged, and nothing set apart for it
    part: Part = Part.TEST

    def __post_init__(self) -> None:
        """Refuse an evaluation that would judge nothing."""
        radii = (self.radius, self.fgsm_radius, self.auto_radius, self.pgd_step)
        if not min(radii) >= 0 or self.pgd_steps < 1 or self.restarts < 1:
            msg = f"Evaluation needs radii and pgd_step >= 0, pgd_steps >= 1 and restarts >= 1; got {self}."
            raise ValueError(msg)
        if min(self.draws, self.strong_steps, self.auto_samples) < 0:
            msg = f"Evaluation needs draws, strong_steps and auto_samples >= 0; got {self}."
            raise ValueError(msg)

    def attacks(self, valid: Range) -> dict[str, Attack]:
        """The attacks that are cheap, by name: they judge every model."""
        start = self.random_start
        return {
            "clean": Clean(),
            "fgsm": fgsm(self.fgsm_radius or self.radius, valid),
            "pgd": Pgd(self.radius, self.pgd_steps, self.pgd_step, random_start=start, valid=valid),
        }

    def strong_attacks(self, valid: Range, classes: int) -> dict[str, Attack]:
        """The attacks that take long, where they are asked for: they judge final models."""
        found: dict[str, Attack] = {}
        if self.strong_steps:
            found["pgd-strong"] = Restarted(Pgd(self.radius, self.strong_steps, valid=valid), self.restarts)
        if self.auto_samples:
            found["autoattack"] = AutoAttack(self.auto_radius or self.radius, classes, valid=valid)
        return found

    def training_attack(self, steps: int, valid: Range) -> Pgd:
        """What models are trained against: as many steps as training takes, 2.5 radii in all."""
        return Pgd(self.radius, steps, 2.5 * self.radius / max(steps, 1), valid=valid)


@dataclass(frozen=True)
class Judged:
    """What one model is worth."""

    accuracy: Mapping[str, float]  # by attack
    collapsed: bool  # whether it only guesses on the samples it was trained on


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
            rows.append(self.judged(part, draw))
            on_draw()
        fell = sum(row.collapsed for row in rows)
        return {name: _score([row.accuracy[name] for row in rows], fell) for name in rows[0].accuracy}

    def judged(self, data: LabelledData, draw: int) -> Judged:
        """One model trained on `data`: whether it collapsed, and its accuracy under each attack."""
        flat = FlatModel(fresh(self.make_network, generator(self.seed, 2, draw)).to(self.device))
        data, test = data.to(self.device), self.test.to(self.device)
        against = self.evaluation.training_attack(self.training.attack_steps, self.valid)
        w = train_robust(flat, flat.own(), data.x, data.y, against, self.training, self._rng(3, draw))
        accuracy = {
            name: robust_accuracy(lambda x: flat.logits(w, x), attack, test.x, test.y, self.valid, self._rng(4, draw))
            for name, attack in self.evaluation.attacks(self.valid).items()
        }
        return Judged(accuracy, collapsed(flat, w, Portion(data.x, data.y, 1)))

    def _rng(self, *key: int) -> Generator:
        return generator(self.seed, *key, device=self.device)


def _score(values: Sequence[float], collapsed: int) -> Score:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return Score(statistics.fmean(values), spread, len(values), collapsed)
