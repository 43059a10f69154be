"""One method on one cell and seed: the very computation of `f2cto compare`, and what is noted of it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.stability import processor
from benchmarks.suite.cells import Cell
from benchmarks.suite.files import located
from benchmarks.suite.records import Key, Record
from f2cto.cli.processes import stages
from f2cto.comparison import cell as compared
from f2cto.comparison import contender
from f2cto.config import build, merged
from f2cto.preparation import Prepared
from f2cto.records import Row, provenance
from f2cto.run_settings import RunSettings


@dataclass(frozen=True)
class Setup:
    """What all jobs of a run share."""

    part: str  # of the data that models are judged on
    data: Path  # the folder in which the data lie
    command: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """What is to be measured."""

    key: Key
    cell: Cell
    setup: Setup


def settings_of(job: Job) -> RunSettings:
    """What a job runs with. `METHOD@even` and `METHOD@proportional` have other quotas of classes than the cell."""
    _, at, balance = job.key.method.partition("@")
    source = located(job.cell.facts["data"]["source"], job.setup.data)
    judged = {"draws": 1, "part": job.key.part}
    values = merged(job.cell.facts, {"data": {"source": source}, "evaluation": judged})
    return build(RunSettings, merged(values, {"data": {"balance": balance}}) if at else values)


def fingerprint(cell: Cell) -> str:
    """Short for the facts of a cell: a record of other facts is no record of this cell."""
    return hashlib.sha256(json.dumps(cell.facts, sort_keys=True).encode()).hexdigest()[:12]


def measured(job: Job) -> Record:
    """The record of a job."""
    began, settings = time.monotonic(), settings_of(job)
    tasks = stages(settings, job.key.seed, job.setup.data)
    rows = compared(tasks, contender(job.key.method.partition("@")[0], settings))
    return Record(
        key=job.key,
        facts=fingerprint(job.cell),
        accuracy={name: round(100 * of(rows, name), 3) for name in ("clean", "fgsm", "pgd")},
        collapsed=sum(row.collapsed is True for row in rows if row.attack == "pgd"),
        passes=round(passes(rows, tasks), 2),
        seconds=round(sum(row.seconds for row in rows if row.attack == "pgd"), 3),
        total_seconds=round(time.monotonic() - began, 1),
        origin=provenance(job.setup.command) | {"processor": processor()},
    )


def of(rows: Sequence[Row], attack: str) -> float:
    """The accuracy under an attack, in the mean over tasks."""
    return fmean(row.accuracy for row in rows if row.attack == attack)


def passes(rows: Sequence[Row], tasks: Sequence[Prepared]) -> float:
    """Samples through the network for each that was chosen from; nobody chooses from the last of several tasks."""
    chosen_from = tasks[:-1] or tasks
    samples = sum(len(shard) for task in chosen_from for shard in task.shards)
    return sum(row.passes for row in rows if row.attack == "pgd") / samples


def tried(job: Job) -> Record | str:
    """A job that fails must not stop the others."""
    try:
        return measured(job)
    except (ValueError, TypeError, LookupError, ArithmeticError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"


def planned(cells: Mapping[str, Cell], methods: Sequence[str], seeds: Sequence[int], setup: Setup) -> list[Job]:
    """All jobs; those that share their samples come after each other."""
    return [
        Job(Key(name, method, seed, setup.part), cell, setup)
        for name, cell in cells.items()
        for seed in seeds
        for method in methods
    ]
