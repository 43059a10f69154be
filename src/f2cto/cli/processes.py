"""Work spread over processes, and the tasks that each of them keeps at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from f2cto.preparation import Prepared
    from f2cto.run_settings import RunSettings

J = TypeVar("J")
R = TypeVar("R")

SEEDS = 8  # whose tasks a process keeps


class _Here(Executor):
    """Computes at once, in this process."""

    def submit(self, fn: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:  # noqa: ANN401
        """A future that is already there."""
        future: Future[Any] = Future()
        future.set_result(fn(*given, **named))
        return future


@contextmanager
def executor(count: int) -> Iterator[Executor]:
    """Runs so many at a time: here, or in processes of their own."""
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


def as_they_end(work: Callable[[J], R], jobs: Sequence[J], count: int) -> Iterator[tuple[J, R]]:
    """All jobs with what became of them, so many at a time, in the order in which they end."""
    with executor(count) as pool:
        left, waiting = list(jobs), dict[Future[R], J]()
        while left or waiting:
            while left and len(waiting) < count:
                job = left.pop(0)
                waiting[pool.submit(work, job)] = job
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                yield waiting.pop(future), future.result()


def one_process(count: int) -> None:
    """Share the cores: small passes are slower on many threads, and other jobs have their own."""
    import torch  # noqa: PLC0415

    from f2cto import hardware  # noqa: PLC0415

    torch.set_num_threads(max(1, hardware.cores() // max(count, 2)))


_kept: dict[str, list[Prepared]] = {}


def stages(settings: RunSettings, seed: int, data: Path) -> list[Prepared]:
    """The tasks of a seed; the same few seeds are asked for again and again."""
    from f2cto.comparison import stream  # noqa: PLC0415

    key = repr((settings, seed, data))
    if key not in _kept:
        if len(_kept) == SEEDS:
            del _kept[next(iter(_kept))]
        _kept[key] = stream(settings, seed, data)
    return _kept[key]
