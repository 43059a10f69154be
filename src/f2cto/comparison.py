"""Comparing methods: who takes part, and what one of them is worth on one seed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from f2cto.config import SettingsError, assignments, build, merged, plain
from f2cto.counting import Tally, counted
from f2cto.methods.catalogue import METHODS, method
from f2cto.methods.f2cto_settings import F2ctoSettings
from f2cto.preparation import Prepared, prepare_stream
from f2cto.randomness import derived_seed
from f2cto.records import Row
from f2cto.rehearsal import EVERYTHING, NOTHING, Memory, Picked, rehearse
from f2cto.run_settings import Federation, RunSettings
from f2cto.selection import select
from f2cto.training import FORMER

BOUNDS = {"none": NOTHING, "all": EVERYTHING}  # what no method can be worse or better than, about


@dataclass(frozen=True)
class Contender:
    """A method, or a bound, with what differs from its settings."""

    label: str  # as it is called in tables: `f2cto:local_rounds=5`
    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    def configured(self, settings: RunSettings) -> RunSettings:
        """The settings with this contender's own in their place."""
        if not self.changes:
            return settings
        if METHODS[self.name].settings is F2ctoSettings:
            return replace(settings, f2cto=build(F2ctoSettings, merged(plain(settings.f2cto), self.changes), "f2cto."))
        return replace(settings, methods=merged(settings.methods, {self.name: self.changes}))


class Store(Protocol):
    """Remembers coresets that were found, so that a comparison goes on where it was cut off."""

    def find(self, label: str, seed: int, task: int) -> Picked | None:
        """What was found before."""

    def keep(self, label: str, seed: int, task: int, picked: Picked) -> None:
        """Remember."""


class Forgetful:
    """Remembers nothing."""

    def find(self, label: str, seed: int, task: int) -> Picked | None:  # noqa: ARG002
        """Nothing."""
        return None

    def keep(self, label: str, seed: int, task: int, picked: Picked) -> None:
        """Nothing is kept."""


def contender(label: str, settings: RunSettings | None = None, said: Mapping[str, Any] | None = None) -> Contender:
    """Who takes part under a label: a method's name, `none`, `all`, or `name:setting=value:setting=value`.

    `said` is what the user asked for among the settings; a method that would override it is refused.
    """
    name, *changes = label.split(":")
    if name in BOUNDS:
        if changes:
            msg = f"`{name}` has no settings; got `{label}`."
            raise SettingsError(msg)
        return Contender(label, name)
    method(name)
    values = assignments(changes)
    found = Contender(label, name, values)
    changed = found.configured(settings or RunSettings())  # what cannot be built is refused here, not hours later
    changed.check_said(name, merged(said or {}, {"f2cto": values}))
    if isinstance(own := changed.of(name), Mapping):
        build(method(name).settings, own, f"methods.{name}.")
    return found


def former_defaults() -> dict[str, Any]:
    """What settings stand for in a folder that was made before they existed."""
    return merged(plain(RunSettings()), {"training": FORMER})


def stream(settings: RunSettings, seed: int, folder: Path) -> list[Prepared]:
    """The tasks of one seed, the same for every contender."""
    if settings.evaluation.draws == 0:
        msg = "A comparison judges models, so `evaluation.draws` must be at least 1; got 0."
        raise SettingsError(msg)
    stages = prepare_stream(replace(settings, seed=seed), folder)
    memory = settings.rehearsal.memory
    if len(stages) - 1 > memory:
        msg = f"{len(stages)} tasks need room for {len(stages) - 1} samples; got `rehearsal.memory` = {memory}."
        raise SettingsError(msg)
    return stages


def cell(stages: Sequence[Prepared], who: Contender, store: Store | None = None) -> list[Row]:
    """What one contender reaches on one seed: a row for every task and attack."""
    if who.name in BOUNDS:
        return rehearse(stages, who.label, BOUNDS[who.name])
    saved = store or Forgetful()

    def pick(task: int, on: Prepared, budgets: Sequence[int], proxy: nn.Module) -> Picked:
        seed = on.settings.seed
        found = saved.find(who.label, seed, task) or picked(who, on, budgets, proxy, derived_seed(seed, 11, task))
        saved.keep(who.label, seed, task, found)
        return found

    return rehearse(stages, who.label, Memory(pick))


def picked(who: Contender, on: Prepared, budgets: Sequence[int], proxy: nn.Module, seed: int) -> Picked:
    """A contender's coresets of one task, with the count of what they cost."""
    settings, tally, began = who.configured(on.settings), Tally(), time.monotonic()
    if settings.federation != Federation():
        msg = "Comparisons run in this process; leave out `federation`."
        raise SettingsError(msg)
    found = select(
        on.shards,
        budgets,
        model=counted(proxy, tally),
        settings=settings.of(who.name),
        seed=seed,
        method=who.name,
        valid=on.valid,
        radius=settings.radius,
        balance=settings.data.balance,
        training=settings.training,
        device=settings.network.device,
    )
    return Picked(
        [rows.tolist() for rows in found.indices],
        seconds=time.monotonic() - began,
        floats=round(found.traffic.floats_per_worker),
        passes=tally.forward + tally.backward + tally.second,
    )
