"""Carrying a search out: trials one after the other or several at a time, for as long as there is time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from f2cto.cli.comparing import one_process

if TYPE_CHECKING:
    from f2cto.preparation import Prepared
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
    with _executor(plan.jobs) as pool:
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


class _Here(Executor):
    """Computes at once, in this process."""

    def submit(self, fn: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:  # noqa: ANN401
        """A future that is already there."""
        future: Future[Any] = Future()
        future.set_result(fn(*given, **named))
        return future


@contextmanager
def _executor(count: int) -> Iterator[Executor]:
    if count == 1:
        one_process(1)
        yield _Here()
        return
    # Spawned, not forked: torch's threads do not survive a fork.
    with ProcessPoolExecutor(count, get_context("spawn"), one_process, (count,)) as pool:
        try:
            yield pool
        except BrokenProcessPool as error:
            msg = "A process was killed, perhaps for want of memory; give the command again, with fewer --jobs."
            raise OSError(msg) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


_kept: dict[str, list[Prepared]] = {}  # a search goes over the same few seeds again and again


def _tried(search: Search, number: int, changes: Mapping[str, Value], data: Path) -> Trial:
    """One trial, in whatever process."""
    from f2cto.comparison import stream  # noqa: PLC0415
    from f2cto.tuning import tried  # noqa: PLC0415

    def stages(seed: int) -> list[Prepared]:
        key = repr((search.settings, seed, data))
        if key not in _kept:
            _kept[key] = stream(search.settings, seed, data)
        return _kept[key]

    return tried(search, number, changes, stages)
