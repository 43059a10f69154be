"""Carrying a search out: trials one after the other or several at a time, for as long as there is time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from f2cto.cli.processes import executor, stages

if TYPE_CHECKING:
    from f2cto.tuning import Search, Trial
    from f2cto.tuning_spaces import Value


@dataclass(frozen=True)
class Plan:
    """How a search is carried out."""

    search: Search
    data: Path
    trials: int
    seconds: float  # after which no trial starts
    jobs: int
    estimated: bool  # by TPE, not at random


def finished(plan: Plan, done: dict[int, Trial], missing: Sequence[int]) -> Iterator[Trial]:
    """The missing trials in the order in which they end. None but the very first starts when the time is up."""
    former = max((trial.ended for trial in done.values()), default=0.0)
    began, left = time.monotonic() - former, list(missing)
    with executor(plan.jobs) as pool:
        waiting: set[Future[Trial]] = set()
        while True:
            while left and len(waiting) < plan.jobs and may_draw(plan, done, left[0]):
                if left[0] and time.monotonic() - began >= plan.seconds:
                    left = []
                    break
                number = left.pop(0)
                waiting.add(pool.submit(_tried, plan.search, number, changes(plan, done, number), plan.data))
            if not waiting:
                return
            ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for trial in (future.result() for future in ended):
                done[trial.number] = replace(trial, ended=round(time.monotonic() - began, 3))
                yield done[trial.number]


def may_draw(plan: Plan, done: Mapping[int, Trial], number: int) -> bool:
    """Whether all trials that a draw depends on have ended."""
    return not plan.estimated or all(former in done for former in range(number - plan.jobs + 1))


def changes(plan: Plan, done: Mapping[int, Trial], number: int) -> dict[str, Value]:
    """What a trial changes. TPE knows the trials that must have ended, and no others, so that draws can be repeated."""
    from f2cto.tuning import at_random, draw, points  # noqa: PLC0415

    if not plan.estimated:
        return draw(plan.search, number, at_random)
    from f2cto.tuning_tpe import by_estimator  # noqa: PLC0415

    known = points(plan.search, [done[former] for former in range(number - plan.jobs + 1)])
    return draw(plan.search, number, partial(by_estimator, known))


def _tried(search: Search, number: int, changes: Mapping[str, Value], data: Path) -> Trial:
    """One trial, in whatever process."""
    from f2cto.tuning import tried  # noqa: PLC0415

    return tried(search, number, changes, lambda seed: stages(search.settings, seed, data))
