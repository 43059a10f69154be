"""What runs in a process of the cluster: some of the workers, with their data and their states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch

from f2cto.cluster.packing import Failure, Packed, attempted, packed, unpacked
from f2cto.federation.carrier import Call
from f2cto.federation.snapshots import file_of, read_file
from f2cto.federation.worker import Worker
from f2cto.methods.base import Coreset, Selector, Shard
from f2cto.writing import write_whole

T = TypeVar("T")
Origin = Shard | Callable[[], Shard]  # a shard, or what opens it in the worker's own process


@dataclass(frozen=True, eq=False)
class Job:
    """All that a process has to know to be some of the workers."""

    selector: Selector
    origins: Mapping[int, Origin]  # by worker
    folder: str = ""  # where states are kept; empty: nowhere
    again: bool = False  # the process stands for one that died: states are taken up where they were kept


class Host:
    """Some of the workers. What fails, fails for one of them and is told in words."""

    def __init__(self, threads: int) -> None:
        """No worker yet."""
        torch.set_num_threads(threads)
        self._workers: dict[int, tuple[Shard, Worker]] = {}

    def call(self, tasks: Mapping[int, Callable[[], T]]) -> dict[int, T | Failure]:
        """Whatever is to be found out in the worker's own process."""
        return {number: attempted(task) for number, task in tasks.items()}

    def start(self, job: Job) -> dict[int, int | Failure]:
        """Start the workers; how many samples each has."""
        self._job, self._program = job, job.selector.program()
        self._workers.clear()
        return {number: attempted(lambda n=number: len(self._worker(n)[0].y)) for number in job.origins}  # type: ignore[misc]

    def answer(self, call: tuple[str, int], sent: Packed, to: Sequence[int]) -> dict[int, Packed | Failure]:
        """The replies of some of the workers to a question: its phase and serial number, and the message."""
        return {number: attempted(partial(self._answer, number, call, sent)) for number in to}

    def coresets(self, selector: Selector) -> dict[int, Coreset | Failure]:
        """What each of the workers keeps."""
        return {number: attempted(partial(self._coreset, number, selector)) for number in self._job.origins}

    def _answer(self, number: int, call: tuple[str, int], sent: Packed) -> Packed:
        shard, worker = self._worker(number)
        reply = worker.answer(Call(call[0], unpacked(sent, shard.x.device), call[1]))
        self._keep(number, worker)
        return packed(reply)

    def _coreset(self, number: int, selector: Selector) -> Coreset:
        shard, worker = self._worker(number)
        found = selector.coreset(shard, worker.state)
        return Coreset(found.indices.cpu(), found.weights.cpu())

    def _worker(self, number: int) -> tuple[Shard, Worker]:
        """A worker, started if it is not yet: what could not be opened may be there the next time."""
        if number not in self._workers:
            origin = self._job.origins[number]
            shard = origin if isinstance(origin, Shard) else origin()
            worker, kept = Worker(self._program, shard), self._file(number)
            if self._job.again and self._job.folder and kept.exists():
                worker.restore(read_file(kept, shard.x.device)[0])
            self._keep(number, worker)  # also before the first answer, over what a former run left there
            self._workers[number] = shard, worker
        return self._workers[number]

    def _keep(self, number: int, worker: Worker) -> None:
        if self._job.folder:
            self._file(number).parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._file(number), file_of(worker.snapshot()))

    def _file(self, number: int) -> Path:
        return Path(self._job.folder) / f"worker-{number}.safetensors"
