"""The Ray engine: `methods.running.run(…, gather=ray_fleet())` runs any method on a cluster."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Self

import torch

from f2cto.cluster.host import Origin
from f2cto.cluster.hosts import Cluster, Hosts
from f2cto.federation.engine import Traffic, WorkerFailedError
from f2cto.federation.exchange import Exchange
from f2cto.federation.faults import Absence, Faults, OnFailure
from f2cto.message import Message
from f2cto.methods.base import Coreset, Selector
from f2cto.methods.running import Gather

HERE = Cluster()
CORESET = "coreset"  # the last thing that workers are asked for


class RayFleet:
    """Workers in the processes of a cluster, until it is closed, left as a context or forgotten.

    Args:
        selector: the method.
        shards: one per worker, each a shard or what opens it in the worker's own process.
        faults: what to do about workers that fail.
        cluster: where they run.
        hosts: the processes, where they have started already; whoever started them ends them.

    """

    def __init__(
        self,
        selector: Selector,
        shards: Sequence[Origin],
        faults: Faults | None = None,
        cluster: Cluster = HERE,
        hosts: Hosts | None = None,
    ) -> None:
        """Start one worker per shard."""
        self._hosts = hosts or Hosts(len(shards), cluster)
        self.close = weakref.finalize(self, self._hosts.close if hosts is None else lambda: None)
        try:
            self.exchange = Exchange(self._hosts, faults or Faults(), getattr(selector.program(), "entries", ()))
            self._hosts.start(selector, shards)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the processes."""
        self.close()

    @property
    def traffic(self) -> Traffic:
        """What was exchanged so far."""
        return self.exchange.traffic

    @property
    def absences(self) -> list[Absence]:
        """Who was missing when."""
        return self.exchange.absences

    def ask(self, phase: str, message: Message) -> list[Message]:
        """Put a message to every worker."""
        return self.exchange.ask(phase, message)

    def coresets(self, selector: Selector) -> list[Coreset]:
        """What each worker keeps; nothing for one that was lost, unless the run is to stop at failures."""
        found = self._hosts.coresets(selector)
        for worker, error in sorted(found.items()):
            if isinstance(error, Exception):
                if self.exchange.faults.on_failure is OnFailure.STOP:
                    raise WorkerFailedError(worker, CORESET, error) from error
                self.absences.append(Absence(self.exchange.serial, CORESET, worker, str(error)))
        nothing = Coreset(torch.empty(0, dtype=torch.long), torch.empty(0))
        return [coreset if isinstance(coreset, Coreset) else nothing for _, coreset in sorted(found.items())]


def ray_fleet(cluster: Cluster = HERE, faults: Faults | None = None) -> Gather:
    """What makes workers of shards on a cluster."""
    return partial(RayFleet, faults=faults, cluster=cluster)
