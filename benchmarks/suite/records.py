"""What was measured: a line of JSON each, on the disk before the next is begun, and the summary of all lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypedDict

from f2cto.writing import write_whole

ATTACK = "pgd"  # what the summary is about


@dataclass(frozen=True)
class Key:
    """What a record is of."""

    cell: str
    method: str
    seed: int
    part: str  # of the data that the models are judged on: validation or test


@dataclass(frozen=True)
class Record:
    """One method on one cell and seed."""

    key: Key
    facts: str  # fingerprint of the cell
    accuracy: Mapping[str, float]  # percent by attack, in the mean over tasks
    collapsed: int  # tasks after which the learner only guessed
    passes: float  # samples through the network for each sample that was chosen from
    seconds: float  # of selection
    total_seconds: float  # with data, training and attacks
    origin: Mapping[str, Any]  # command, date, versions, commit, processor


class Entry(TypedDict):
    """What the seeds of one method on one cell say."""

    mean: float
    std: float
    seeds: int
    passes: float
    seconds: float
    collapsed: int  # seeds on which a learner only guessed


Summary = Mapping[str, Mapping[str, Entry]]  # by cell and method


class Records:
    """A file that grows by a line a record; two processes may write to it."""

    def __init__(self, folder: Path) -> None:
        """Go on with what is there."""
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "records.jsonl"

    def read(self) -> list[Record]:
        """All whole records, the last of each key, facts included."""
        lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        found = [record for line in lines if (record := _parsed(line))]
        return list({(record.key, record.facts): record for record in found}.values())

    def add(self, record: Record) -> None:
        """One more, on the disk before this returns; half a line of a killed process is ended first."""
        with self.path.open("ab+") as file:
            whole = file.tell() == 0 or self.path.read_bytes()[-1:] == b"\n"
            file.write((b"" if whole else b"\n") + json.dumps(asdict(record)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _parsed(line: bytes) -> Record | None:
    """A record, or nothing where a killed process left half a line."""
    try:
        values = json.loads(line)
        return Record(**{**values, "key": Key(**values["key"])})
    except (ValueError, TypeError, KeyError):
        return None


def summary(records: Iterable[Record]) -> dict[str, dict[str, Entry]]:
    """What the records of one part of the data say, by cell and method."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.key.cell, record.key.method), []).append(record)
    cells: dict[str, dict[str, Entry]] = {}
    for (cell, method), group in groups.items():
        cells.setdefault(cell, {})[method] = entry(group)
    return cells


def entry(group: Sequence[Record]) -> Entry:
    """Mean and deviation over seeds."""
    scores = [record.accuracy[ATTACK] for record in group]
    return Entry(
        mean=round(fmean(scores), 3),
        std=round(stdev(scores), 3) if len(scores) > 1 else 0.0,
        seeds=len(group),
        passes=round(fmean(record.passes for record in group), 2),
        seconds=round(fmean(record.seconds for record in group), 2),
        collapsed=sum(record.collapsed > 0 for record in group),
    )


def write_summary(path: Path, cells: Summary) -> None:
    """The summary as a file."""
    write_whole(path, (json.dumps({"cells": cells}, indent=1) + "\n").encode())
