"""The processes of the cluster that hold the workers, seen from the master: the carrier of the Ray engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from f2cto.cluster.connection import Connection, library
from f2cto.cluster.host import Host, Job, Origin
from f2cto.cluster.packing import ElsewhereError, Failure, Packed, packed, unpacked
from f2cto.federation.carrier import Answers, Call
from f2cto.federation.engine import WorkerFailedError
from f2cto.methods.base import Coreset, Selector

T = TypeVar("T")
STARTING = 300.0  # seconds more where a process has to start first, which may have to wait for others to do so


@dataclass(frozen=True)
class Cluster:
    """Where workers run, and how long they are waited for."""

    address: str = ""  # empty: a cluster of its own on this machine; "auto" or HOST:PORT: one that is there
    processes: int = 0  # that share the workers; 0: one a processor, never more than workers
    threads: int = 1  # of each process
    seconds: float = 3600.0  # that an answer may take; a process that died is noticed at once
    folder: str = ""  # where each worker keeps its state; empty: the state dies with the process

    def __post_init__(self) -> None:
        """Refuse what no cluster could do."""
        if self.processes < 0 or self.threads < 1 or not self.seconds > 0:
            msg = (
                f"A cluster needs processes >= 0, threads >= 1 and seconds > 0; "
                f"got {self.processes}, {self.threads} and {self.seconds}."
            )
            raise ValueError(msg)


class Hosts:
    """Workers in processes: worker i lives in process i modulo their number, where its data and its state stay."""

    def __init__(self, workers: int, cluster: Cluster) -> None:
        """Connect to the cluster; processes start when they are first needed."""
        self._workers, self._cluster = workers, cluster
        self._connection = Connection(cluster.address)
        processors = self._connection.processors
        count = min(workers, cluster.processes or max(1, int(processors)))
        self._share = processor_share(processors / count, cluster.threads)
        self._actors: list[Any] = [None] * count
        self._job: Job | None = None

    @property
    def workers(self) -> int:
        """How many there are."""
        return self._workers

    def call(self, tasks: Mapping[int, Callable[[], T]]) -> dict[int, T | Exception]:
        """What tasks give that are run where workers are."""
        asked = {
            process: self._actor(process).call.remote({i: tasks[i] for i in mine})
            for process, mine in self._grouped(sorted(tasks)).items()
        }
        return self._told(asked, self._grouped(sorted(tasks)), STARTING)

    def start(self, selector: Selector, origins: Sequence[Origin]) -> None:
        """Give every worker its shard, or the way to it."""
        self._job = Job(selector, dict(enumerate(origins)), self._cluster.folder)
        mine = self._grouped(range(self._workers))
        asked = {process: self._started(process, again=False) for process in mine}
        for worker, told in sorted(self._told(asked, mine, STARTING).items()):
            if isinstance(told, Exception):
                raise WorkerFailedError(worker, "start", told) from told

    def carry(self, call: Call, to: Sequence[int]) -> Answers:
        """Put a question to some workers; processes that died are started anew first."""
        mine = self._grouped(to)
        dead = [process for process in mine if self._actors[process] is None]
        for process in dead:
            self._started(process, again=True)
        sent = library().put(packed(call.message))  # once, for all
        head = (call.phase, call.serial)
        asked = {process: self._actor(process).answer.remote(head, sent, group) for process, group in mine.items()}
        device = next((v.device for v in call.message.vectors.values()), torch.device("cpu"))
        told = self._told(asked, mine, STARTING if dead else 0.0)
        replies = {i: unpacked(said, device) for i, said in told.items() if isinstance(said, Packed)}
        return {i: said for i, said in told.items() if i not in replies} | replies

    def coresets(self, selector: Selector) -> dict[int, Coreset | Exception]:
        """What each worker keeps, or why it is not known."""
        mine = self._grouped(range(self._workers))
        for process in mine:
            if self._actors[process] is None and self._cluster.folder:
                self._started(process, again=True)
        asked = {p: self._actors[p].coresets.remote(selector) for p in mine if self._actors[p] is not None}
        found = self._told(asked, mine, STARTING)
        lost = ElsewhereError("its process died, and its state with it")
        return {i: found.get(i, lost) for i in range(self._workers)}

    def close(self) -> None:
        """End the processes and leave the cluster."""
        if library().is_initialized():
            for process in range(len(self._actors)):
                self._end(process)
        self._connection.close()

    def _grouped(self, workers: Sequence[int]) -> dict[int, list[int]]:
        count = len(self._actors)
        groups = {process: [i for i in workers if i % count == process] for process in range(count)}
        return {process: group for process, group in groups.items() if group}

    def _actor(self, process: int) -> Any:  # noqa: ANN401  (Ray's handle)
        if self._actors[process] is None:
            wanted = {"num_cpus": self._share, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
            self._actors[process] = library().remote(Host).options(**wanted).remote(self._cluster.threads)
        return self._actors[process]

    def _started(self, process: int, *, again: bool) -> Any:  # noqa: ANN401
        """Its share of the job on its way to a process; calls are answered in their order, so nobody has to wait."""
        job = self._job
        assert job is not None  # noqa: S101  (`start` comes before all else)
        mine = {i: job.origins[i] for i in range(process, self._workers, len(self._actors))}
        return self._actor(process).start.remote(replace(job, origins=mine, again=again))

    def _told(self, asked: Mapping[int, Any], groups: Mapping[int, Sequence[int]], more: float) -> dict[int, Any]:
        """What processes said, by worker; an exception for every worker of a process that said nothing."""
        if asked:
            library().wait(list(asked.values()), num_returns=len(asked), timeout=self._cluster.seconds + more)
        told = dict[int, Any]()
        for process, reference in asked.items():
            said = self._said(process, reference)
            each = dict.fromkeys(groups[process], said) if isinstance(said, Exception) else said
            told |= {i: value.error() if isinstance(value, Failure) else value for i, value in each.items()}
        return told

    def _said(self, process: int, reference: Any) -> Any:  # noqa: ANN401
        errors = library().exceptions
        try:
            return library().get(reference, timeout=0)
        except errors.GetTimeoutError:
            return TimeoutError(f"no answer within {self._cluster.seconds:g} s; it may be late, or wait for processors")
        except errors.RayTaskError as error:
            return ElsewhereError(str(error.cause))
        except errors.RayError as error:
            self._end(process)
            said = str(error).strip().splitlines()[0]
            return ElsewhereError(f"its process died ({said})")

    def _end(self, process: int) -> None:
        actor, self._actors[process] = self._actors[process], None
        if actor is not None:
            library().kill(actor)


def processor_share(each: float, threads: int) -> float:
    """What of a processor a process asks for: as many as it has threads if there are enough, else a fraction."""
    return min(threads, math.floor(each)) if each >= 1 else max(1e-4, math.floor(each * 1e4) / 1e4)
