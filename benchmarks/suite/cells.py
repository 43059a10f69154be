"""The tasks of the suite. A cell states facts only: nothing of a method may differ from cell to cell.

Sizes are small, about 5 workers x 200 samples, so that a cheap method takes seconds to a minute on one core. Radii,
networks and training of the learner are those of the presets where there is one for the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from f2cto.config import merged

Facts = Mapping[str, Any]  # nested settings, as `f2cto.run_settings.RunSettings` takes them

FACTS: Final = frozenset(
    {"data", "workers", "partition", "size", "selection_radius", "network", "training", "rehearsal", "evaluation"}
)


@dataclass(frozen=True)
class Cell:
    """One task of the suite, or a sequence of tasks that are learned one after the other."""

    facts: Facts

    def __post_init__(self) -> None:
        """Validate that no method is configured."""
        if other := set(self.facts) - FACTS:
            msg = f"A cell states facts of its task ({', '.join(sorted(FACTS))}); leave out {', '.join(sorted(other))}."
            raise ValueError(msg)

    @property
    def continual(self) -> bool:
        """Whether several tasks are learned, with coresets of former ones replayed."""
        return bool(self.facts.get("rehearsal"))


def on(base: Facts, *changes: Facts) -> Cell:
    """The cell of a data set's own facts and what is changed."""
    facts = dict(base)
    for change in changes:
        facts = merged(facts, change)
    return Cell(facts)


def data(source: str, **scenario: Any) -> Facts:  # noqa: ANN401  (whatever a scenario can be told)
    """A data set and how samples are drawn from it."""
    return {"source": source, "scenario": {"judged": 1000, **scenario}}


def table(source: str, **scenario: Any) -> Facts:  # noqa: ANN401  (whatever a scenario can be told)
    """A user's table, its classes in the column `label`."""
    return {**data(source, **scenario), "label": "label"}


# The class shares of the training samples hold where the task is judged, too (f2cto.methods.quotas.Balance).
SAME_SHARES: Final[Facts] = {"data": {"balance": "proportional"}}
SITES: Final[Facts] = {"partition": "site"}
SKEWED: Final[Facts] = {"partition": "dirichlet:0.3"}
WRONG_LABELS: Final[Facts] = {"data": {"damage": {"labels": 0.2}}}
IMBALANCED: Final[Facts] = {"data": {"damage": {"imbalance": 10}}}
ONE_WORKER: Final[Facts] = {"workers": 1, "size": 50}

DIGITS: Final[Facts] = {
    "data": data("digits", validation=0.3),
    "network": {"hidden": [64, 64]},
    "evaluation": {"radius": 0.15},
}
MNIST: Final[Facts] = {"data": data("mnist", samples=1000, validation=0.8), "evaluation": {"radius": 40 / 255}}
KMNIST: Final[Facts] = {
    "data": data("kmnist/kmnist10k.npz", samples=1000, validation=0.8),
    "evaluation": {"radius": 0.1},
}
SPOKEN: Final[Facts] = {"data": data("fsdd/fsdd_mel32.npz", validation=0.4), "evaluation": {"radius": 0.05}}
CIFAR100: Final[Facts] = {
    "data": data("cifar100", kind="split", classes=5, tasks=1, samples=1000, validation=0.6),
    "network": {"kind": "resnet18", "width": 8, "stride": 2},
    "size": 20,
    "training": {"batch": 32, "rate": 0.05, "attack_steps": 2},
    "evaluation": {"radius": 4 / 255},
}
TINY_IMAGENET: Final[Facts] = merged(
    CIFAR100, {"data": {"source": "tiny-imagenet"}, "network": {"stride": 4}, "training": {"rate": 0.1}}
)
UNSW: Final[Facts] = {
    "data": {**data("unsw-nb15"), **SAME_SHARES["data"]},
    "network": {"hidden": [128, 128]},
    "selection_radius": 0.05,
    "evaluation": {"radius": 0.1},
}
GAS_DRIFT: Final[Facts] = {
    "data": {
        **table("gas_drift/gas_drift.parquet", samples=1600, validation=0.6),
        "site": "site",
        **SAME_SHARES["data"],
    },
    "evaluation": {"radius": 0.03},
}
LETTERS: Final[Facts] = {
    "data": table("letter/letter.parquet", samples=1000, validation=0.8),
    "size": 30,
    "evaluation": {"radius": 0.03},
}
HAPT: Final[Facts] = {
    "data": {**data("hapt", samples=3000, validation=0.25), **SAME_SHARES["data"]},
    "size": 2,
    "network": {"kind": "signals", "width": 16},
    "training": {"steps": 1200, "rate": 0.03},
    "evaluation": {"radius": 0.01},
}
SHUTTLE: Final[Facts] = {
    "data": {**table("shuttle/shuttle.parquet", samples=5000, validation=0.2), **SAME_SHARES["data"]},
    "evaluation": {"radius": 0.03},
}


def in_turn(tasks: int, memory: int, **scenario: Any) -> Facts:  # noqa: ANN401  (whatever a scenario can be told)
    """Tasks that are learned one after the other."""
    return {
        "data": {"scenario": {"judged": 500, "tasks": tasks, **scenario}},
        "rehearsal": {"memory": memory},
    }


PERMUTED: Final = in_turn(5, 20, kind="permuted")
FROM_THE_LEARNER: Final[Facts] = {"rehearsal": {"batch": 32, "proxy": "learner"}}

CELLS: Final[Mapping[str, Cell]] = MappingProxyType(
    {
        "digits": on(DIGITS),
        "digits-one-worker": on(DIGITS, ONE_WORKER),
        "mnist": on(MNIST),
        "mnist-dirichlet": on(MNIST, SKEWED),
        "mnist-imbalanced": on(MNIST, IMBALANCED),
        "kmnist": on(KMNIST),
        "kmnist-wrong-labels": on(KMNIST, WRONG_LABELS),
        "kmnist-one-worker": on(KMNIST, ONE_WORKER),
        "spoken-speakers": on(SPOKEN, SITES),
        "cifar100": on(CIFAR100),
        "tiny-imagenet": on(TINY_IMAGENET),
        "unsw-10": on(UNSW, {"workers": 10, "data": {"scenario": {"samples": 2000, "validation": 0.5}}}),
        "unsw-200": on(UNSW, {"workers": 200, "size": 5, "data": {"scenario": {"samples": 10000}}}),
        "gas-drift-periods": on(GAS_DRIFT, SITES),
        "gas-drift-wrong-labels": on(GAS_DRIFT, SITES, WRONG_LABELS),
        "letters": on(LETTERS),
        "letters-dirichlet": on(LETTERS, SKEWED),
        "hapt-people": on(HAPT, SITES),
        "shuttle-rare": on(SHUTTLE),
        "mnist-continual": on(MNIST, PERMUTED),
        "kmnist-continual": on(KMNIST, PERMUTED),
        "spoken-continual": on(SPOKEN, in_turn(6, 10, kind="by_domain")),  # a speaker after the other
        "cifar100-continual": on(CIFAR100, in_turn(3, 40), FROM_THE_LEARNER),
        "tiny-imagenet-continual": on(TINY_IMAGENET, in_turn(3, 40), FROM_THE_LEARNER),
    }
)
