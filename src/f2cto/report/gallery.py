"""What each worker keeps, sorted for showing."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from f2cto.records import Kept
from f2cto.report.pictures import data_uri

TALLEST = 8  # samples of a class in one column before the next column begins


@dataclass(frozen=True)
class Sample:
    """A kept sample as the page shows it."""

    index: int
    caption: str
    picture: str | None  # a data URI
    share: int  # its weight in per cent of the worker's largest


@dataclass(frozen=True)
class Kind:
    """A worker's samples of one class, heaviest first."""

    label: str
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class Worker:
    """A worker's samples, by class: all classes of the run, also those it keeps nothing of."""

    number: int
    kinds: tuple[Kind, ...]

    @property
    def size(self) -> int:
        """How many samples it keeps."""
        return sum(len(kind.samples) for kind in self.kinds)

    @property
    def height(self) -> int:
        """How many samples high its columns are."""
        return min(TALLEST, max(len(kind.samples) for kind in self.kinds))


def workers(kept: Sequence[Kept]) -> list[Worker]:
    """The workers that keep anything, by number."""
    labels = sorted({sample.label for sample in kept}, key=_numbers_first)
    groups: dict[int, list[Kept]] = {}
    for sample in kept:
        groups.setdefault(sample.worker, []).append(sample)
    return [_worker(number, groups[number], labels) for number in sorted(groups)]


def _numbers_first(label: str) -> tuple[int, str]:
    """Labels that are numbers by their size, then names by the alphabet."""
    return (int(label), "") if label.isdecimal() else (sys.maxsize, label)


def _worker(number: int, kept: Sequence[Kept], labels: Sequence[str]) -> Worker:
    heaviest = max((sample.weight for sample in kept if math.isfinite(sample.weight)), default=0.0)
    groups: dict[str, list[Sample]] = {label: [] for label in labels}
    for sample in sorted(kept, key=lambda one: (-one.weight, one.index)):
        groups[sample.label].append(_sample(sample, heaviest))
    return Worker(number, tuple(Kind(label, tuple(samples)) for label, samples in groups.items()))


def _sample(sample: Kept, heaviest: float) -> Sample:
    known = math.isfinite(sample.weight) and heaviest > 0
    return Sample(
        index=sample.row,
        caption=f"{sample.file or f'row {sample.row}'}, label {sample.label}, weight {sample.weight:.4g}",
        picture=None if sample.picture is None else data_uri(sample.picture),
        share=round(100 * max(sample.weight, 0.0) / heaviest) if known else 0,
    )
