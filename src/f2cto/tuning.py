"""Searching a method's settings on validation samples: searches, draws and trials as values.

The rule is equal effort: every method may have as many trials in as many minutes on the same seeds; slow ones get to
fewer. Trial 0 is always what is set at present, so that a search cannot end below it unnoticed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import torch

from f2cto.comparison import Contender, cell
from f2cto.config import SettingsError, build, merged, nested, plain
from f2cto.evaluation import Part
from f2cto.methods.catalogue import METHODS, method
from f2cto.methods.f2cto_settings import F2ctoSettings
from f2cto.preparation import Prepared
from f2cto.randomness import derived_seed, generator
from f2cto.records import Row
from f2cto.run_settings import RunSettings
from f2cto.tuning_spaces import SPACES, Dimension, Value

ATTEMPTS = 100  # draws of one trial before the space is taken to be impossible

Propose = Callable[[Sequence[Dimension], int], list[Value]]  # from a space and a seed: a value in every dimension
Point = tuple[list[Value], float]  # what was tried, and its score


@dataclass(frozen=True)
class Trial:
    """Some settings and what they are worth."""

    number: int
    changes: Mapping[str, Value]  # what differs from the present settings, by dotted keys
    score: float  # the mean over seeds; 0 where it failed
    scores: Sequence[float]  # of each seed
    seconds: float
    failed: str = ""  # why
    ended: float = 0.0  # seconds since the search began, without breaks


@dataclass(frozen=True)
class Search:
    """All that draws and scores depend on."""

    settings: RunSettings  # as `on_validation` gives them
    method: str
    objective: str = "pgd"  # the attack whose accuracy counts
    first_seed: int = 1000  # far from 0, 1, …, on which comparisons are made
    seeds: int = 1

    def __post_init__(self) -> None:
        """Refuse to choose settings by test samples, and what no search can start with."""
        method(self.method)
        judged = self.settings.evaluation
        if judged.part is not Part.VALIDATION:
            msg = f"Settings are chosen on validation samples; got `evaluation.part` = {judged.part}."
            raise SettingsError(msg)
        if not self.settings.data.scenario.validation > 0:
            msg = "Settings are chosen on validation samples, and `data.scenario.validation` = 0 leaves none; set 0.1."
            raise SettingsError(msg)
        if self.first_seed < 0 or self.seeds < 1:
            msg = f"A search needs first_seed >= 0 and seeds >= 1; got {self.first_seed} and {self.seeds}."
            raise SettingsError(msg)
        strong = {"pgd-strong": judged.strong_steps, "autoattack": judged.auto_samples}
        known = [*judged.attacks(self.settings.data.range), *(name for name, asked in strong.items() if asked)]
        if self.objective not in known:
            msg = f"No attack `{self.objective}` judges these models; there are {', '.join(known)}."
            raise SettingsError(msg)

    @property
    def space(self) -> Sequence[Dimension]:
        """What may change; not how a first model is trained where none is, as where methods choose with the learner."""
        untrained = "pretraining" in (own := self.own()) and own["pretraining"]["rounds"] == 0
        return [d for d in SPACES[self.method] if not (untrained and d.key.startswith("pretraining."))]

    def contender(self, changes: Mapping[str, Value]) -> Contender:
        """The method with changed settings."""
        return Contender(self.method, self.method, self.changed(changes) if changes else {})

    def changed(self, changes: Mapping[str, Value]) -> dict[str, Any]:
        """All settings of the method, some of them changed."""
        values = self.own()
        for key, value in changes.items():
            values = merged(values, nested(key, value))
        return values

    def own(self) -> dict[str, Any]:
        """All settings of the method."""
        given = self.settings.of(self.method)
        return plain(build(METHODS[self.method].settings, given) if isinstance(given, Mapping) else given)

    def started_from(self, own: Mapping[str, Any]) -> Search:
        """The same search with the method's settings as they once were."""
        return replace(self, settings=Contender(self.method, self.method, own).configured(self.settings))


def on_validation(settings: RunSettings, objective: str) -> RunSettings:
    """The settings with validation samples to judge on, and without the long attacks that do not count."""
    judged = settings.evaluation
    return replace(
        settings,
        evaluation=replace(
            judged,
            part=Part.VALIDATION,
            strong_steps=judged.strong_steps if objective == "pgd-strong" else 0,
            auto_samples=judged.auto_samples if objective == "autoattack" else 0,
        ),
    )


def shares_settings(name: str) -> bool:
    """Whether a method's settings are those of F2CTO."""
    return METHODS[name].settings is F2ctoSettings


def at_random(space: Sequence[Dimension], seed: int) -> list[Value]:
    """Random search: every dimension on its own."""
    shares = torch.rand(len(space), generator=generator(seed), dtype=torch.float64).tolist()
    return [dimension.at(share) for dimension, share in zip(space, shares, strict=True)]


def draw(search: Search, number: int, propose: Propose = at_random) -> dict[str, Value]:
    """What a trial changes: nothing in the first; what cannot be built is drawn again.

    It depends on the first seed, the method and the number of the trial, and on what `propose` knows.
    """
    if number == 0:
        return {}
    for attempt in range(ATTEMPTS):
        seed = derived_seed(search.first_seed, *search.method.encode(), number, attempt)
        values = zip(search.space, propose(search.space, seed), strict=True)
        changes = {key: given for dimension, value in values for key, given in dimension.changes(value).items()}
        try:
            search.contender(changes).configured(search.settings)
        except SettingsError as error:
            reason = error
        else:
            return changes
    msg = f"None of {ATTEMPTS} draws for `{search.method}` can be built on these settings; the last one: {reason}"
    raise SettingsError(msg)


def points(search: Search, trials: Sequence[Trial]) -> list[Point]:
    """The trials as points of the space; what is set at present may lie outside, and is then left out."""
    found: list[Point] = []
    for trial in trials:
        at: list[Any] = present(search) if trial.number == 0 else [trial.changes.get(d.key) for d in search.space]
        if all(d.holds(value) for d, value in zip(search.space, at, strict=True)):
            found.append((at, trial.score))
    return found


def present(search: Search) -> list[Any]:
    """What is set at present, in every dimension."""
    values = search.own()
    return [_at(values, dimension.key) for dimension in search.space]


def _at(values: Any, path: str) -> Any:  # noqa: ANN401
    for part in path.split("."):
        values = values[part]
    return values


def tried(
    search: Search, number: int, changes: Mapping[str, Value], stages: Callable[[int], Sequence[Prepared]]
) -> Trial:
    """One trial; `stages` gives the tasks of a seed. Settings under which a method fails are a result, too."""
    prepared = [stages(search.first_seed + i) for i in range(search.seeds)]
    began, who = time.monotonic(), search.contender(changes)
    try:
        scores = [value(cell(tasks, who), search.objective) for tasks in prepared]
    except (ValueError, TypeError, LookupError, ArithmeticError, RuntimeError) as error:
        failed = f"{type(error).__name__}: {error}"
        return Trial(number, changes, 0.0, (), round(time.monotonic() - began, 3), failed)
    return Trial(number, changes, fmean(scores), scores, round(time.monotonic() - began, 3))


def value(rows: Sequence[Row], attack: str) -> float:
    """The mean accuracy over tasks under an attack."""
    return fmean(row.accuracy for row in rows if row.attack == attack)


def best(trials: Sequence[Trial]) -> Trial:
    """The trial with the highest score, the earlier of equals."""
    whole = [trial for trial in trials if not trial.failed]
    if not whole:
        msg = f"None of {len(trials)} trials could be carried out, so that none is best."
        raise ValueError(msg)
    return max(whole, key=lambda trial: (trial.score, -trial.number))


def settled(search: Search, trial: Trial) -> dict[str, Any]:
    """What a trial had set, in all groups that the space speaks of; whole groups, so that defaults may change later."""
    values = search.changed(trial.changes)
    keys = [key for dimension in search.space for key in (dimension.key, *dimension.follows)]
    return {group: values[group] for group in dict.fromkeys(key.split(".")[0] for key in keys)}
