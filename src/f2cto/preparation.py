"""From settings to shards: open the data, make the tasks, deal one out to the workers, encode what they hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from f2cto import hardware
from f2cto.attacks.base import Range
from f2cto.config import SettingsError
from f2cto.data.damage import damaged
from f2cto.data.dataset import LabelledData, check_range, concat
from f2cto.data.encoding import encode
from f2cto.data.errors import DataError
from f2cto.data.files import open_data
from f2cto.data.partition import by_site, partitioned
from f2cto.data.samples import DataSet, Samples
from f2cto.data.scenarios import by_domain, permuted, split, whole
from f2cto.data.sources import SOURCES
from f2cto.data.tasks import Cut, Task
from f2cto.evaluation import Part
from f2cto.models import FlatModel, fresh
from f2cto.randomness import generator
from f2cto.run_settings import DataSettings, Kind, RunSettings
from f2cto.selection import coreset_sizes

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Prepared:
    """Settings with the data they name, dealt out: what can be wrong with them has been found."""

    settings: RunSettings
    shards: list[LabelledData]
    test: LabelledData | None  # none where nothing is to be judged
    rows: list[Tensor]  # per worker: each sample's row in its source
    classes: tuple[str, ...]
    files: tuple[str, ...]  # of the source's rows, where they are files
    valid: Range
    notes: tuple[str, ...]

    @property
    def train(self) -> LabelledData:
        """All workers' samples. Only an experiment may do this: in a federation they stay where they are."""
        return concat(self.shards)

    def threads(self, samples: int = 0) -> int:
        """How many threads passes over so many samples should have; 0: over all of them, as selection does."""
        each = FlatModel(fresh(self.network, generator(0))).pass_bytes(self.shards[0].x[:1])
        return hardware.threads(each * (samples or sum(len(shard) for shard in self.shards)))

    def network(self) -> nn.Module:
        """A new network for these samples."""
        return self.settings.network.built(tuple(self.shards[0].x.shape[1:]), len(self.classes))


def prepare(settings: RunSettings, folder: Path) -> Prepared:
    """Load the data from their folder, choose the task, set apart what to judge on, deal the rest out."""
    data = opened(settings.data, folder)
    (prepared,) = _prepared(data, [chosen_task(data, settings)], settings)
    _or_settings_error(lambda: coreset_sizes(settings.size, [len(shard) for shard in prepared.shards]))
    return prepared


def prepare_stream(settings: RunSettings, folder: Path) -> list[Prepared]:
    """All tasks of the scenario in their order, each dealt out to the workers; features mean the same in all."""
    data = opened(settings.data, folder)
    stages = _prepared(data, scenario(data, settings), settings)
    if len(stages) == 1:
        _or_settings_error(lambda: coreset_sizes(settings.size, [len(shard) for shard in stages[0].shards]))
    return stages


def _prepared(data: DataSet, tasks: Sequence[Task], settings: RunSettings) -> list[Prepared]:
    """Deal out and encode the samples of tasks. What scaling needs is fitted on all of their training samples."""
    _or_settings_error(lambda: hardware.device(settings.network.device))
    first = tasks[0].train.x
    settings.network.check(first.ndim - 1 if isinstance(first, Tensor) else 1)
    dealt_out = [_or_settings_error(partial(dealt, task.train, settings)) for task in tasks]
    judged = [part for task in tasks for part in _judged(task, settings)]
    fixed = (*data.fixed, *settings.data.fixed)
    encoded = encode([part for parts in dealt_out for part in parts], judged, fixed, settings.data.columns)
    valid = settings.data.range
    for part in (*encoded.shards, *encoded.others):
        check_range(part, valid.low, valid.high, settings.data.source)
    shards, tests = iter(encoded.shards), iter(encoded.others)
    return [
        Prepared(
            settings=settings,
            shards=[renumbered(next(shards), task.classes) for _ in parts],
            test=renumbered(next(tests), task.classes) if judged else None,
            rows=[part.rows for part in parts],
            classes=tuple(data.classes[label] for label in task.classes),
            files=data.files,
            valid=replace(valid, fixed=tuple(sorted({*valid.fixed, *encoded.fixed}))),
            notes=data.notes,
        )
        for task, parts in zip(tasks, dealt_out, strict=True)
    ]


def _or_settings_error(check: Callable[[], T]) -> T:
    """What a check gives; what it refuses is the user's to mend."""
    try:
        return check()
    except DataError:
        raise
    except ValueError as error:
        raise SettingsError(str(error)) from error


def opened(wanted: DataSettings, folder: Path) -> DataSet:
    """A named source from its folder, or the user's own file."""
    if wanted.source in SOURCES:
        if wanted.label or wanted.site:
            msg = f"`{wanted.source}` knows its own labels and sites; leave out `data.label` and `data.site`."
            raise SettingsError(msg)
        return SOURCES[wanted.source].load(folder)
    return open_data(Path(wanted.source), label=wanted.label or None, site=wanted.site or None)


def scenario(data: DataSet, settings: RunSettings) -> list[Task]:
    """The tasks that the settings ask for. Validation samples are set apart only where settings are chosen by them."""
    wanted = settings.data.scenario
    validates = settings.evaluation.part is Part.VALIDATION
    cut = Cut(
        seed=settings.seed,
        samples=wanted.samples or None,
        validation=wanted.validation if validates else 0.0,
        test=wanted.test,
    )
    kinds: dict[Kind, Callable[[], list[Task]]] = {
        Kind.WHOLE: partial(whole, data, cut),
        Kind.PERMUTED: partial(permuted, data, wanted.tasks, cut),
        Kind.SPLIT: partial(split, data, wanted.classes, cut, tasks=wanted.tasks or None),
        Kind.BY_DOMAIN: partial(by_domain, data, wanted.column or None, cut, tasks=wanted.tasks or None),
    }
    return [_damaged(task, settings, number) for number, task in enumerate(kinds[wanted.kind](), start=1)]


def chosen_task(data: DataSet, settings: RunSettings) -> Task:
    """The task that is looked at; where nothing is judged, nothing is set apart either."""
    if settings.evaluation.draws == 0 and settings.data.scenario.kind is Kind.WHOLE:
        task = Task("all", data.train, data.train, data.train, tuple(range(len(data.classes))))
        return _damaged(task, settings, 1)
    tasks, number = scenario(data, settings), settings.data.scenario.task
    if not 1 <= number <= len(tasks):
        msg = f"The scenario has tasks 1 to {len(tasks)}; got `data.scenario.task` = {number}."
        raise SettingsError(msg)
    return tasks[number - 1]


def _damaged(task: Task, settings: RunSettings, number: int) -> Task:
    """The task with its training samples damaged as the settings ask; what it is judged on stays sound."""
    return replace(task, train=damaged(task.train, settings.data.damage, generator(settings.seed, 10, number)))


def dealt(samples: Samples, settings: RunSettings) -> list[Samples]:
    """Each worker's samples."""
    if settings.partition != "site":
        rng = generator(settings.seed, 5)
        return [samples.take(rows) for rows in partitioned(settings.partition, samples.y, settings.workers, rng)]
    if samples.sites is None:
        msg = f"`{settings.data.source}` does not say whose its samples are; name a column with `data.site`."
        raise ValueError(msg)
    return [samples.take(rows) for rows in by_site(samples.sites)]


def renumbered(data: LabelledData, classes: tuple[int, ...]) -> LabelledData:
    """Labels as positions among the task's classes."""
    place = torch.zeros(max(classes) + 1, dtype=torch.long)
    place[list(classes)] = torch.arange(len(classes))
    return LabelledData(data.x, place[data.y])


def _judged(task: Task, settings: RunSettings) -> list[Samples]:
    if settings.evaluation.draws == 0:
        return []
    samples = task.validation if settings.evaluation.part is Part.VALIDATION else task.test
    most = settings.data.scenario.judged or len(samples)
    return [samples.take(torch.randperm(len(samples), generator=generator(settings.seed, 9))[:most].sort().values)]
