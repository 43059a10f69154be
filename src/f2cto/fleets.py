"""Where the workers of `f2cto select` run, as the settings have it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from f2cto.federation.engine import Traffic
from f2cto.federation.faults import Absence, Faults
from f2cto.federation.in_process import InProcess
from f2cto.run_settings import Engine, Federation
from f2cto.selectors.base import Coreset, Selector, Shard
from f2cto.selectors.running import Gather, Here


class Apart:
    """A fleet in this process whose workers take turns: slower than as one, and the same bits as on other engines."""

    def __init__(self, selector: Selector, shards: Sequence[Shard], faults: Faults | None = None) -> None:
        """Start one worker per shard."""
        self._shards = shards
        self._engine = InProcess(selector.program(), shards, faults)
        self.ask = self._engine.ask

    @property
    def traffic(self) -> Traffic:
        """What was exchanged so far."""
        return self._engine.traffic

    @property
    def absences(self) -> list[Absence]:
        """Who was missing when."""
        return self._engine.exchange.absences

    def close(self) -> None:
        """There is nothing to let go of."""

    def coresets(self, selector: Selector) -> list[Coreset]:
        """What each worker keeps."""
        return [selector.coreset(shard, state) for shard, state in zip(self._shards, self._engine.states, strict=True)]


def gather_of(wanted: Federation, threads: int | None = None) -> Gather:
    """What makes workers of shards; `threads` are those of each process, where it is not this one."""
    if wanted.engine is Engine.PROCESS:
        return partial(Here if wanted.together else Apart, faults=wanted.faults)
    from f2cto.cluster.fleet import ray_fleet  # noqa: PLC0415  (an extra)
    from f2cto.cluster.hosts import Cluster  # noqa: PLC0415

    return ray_fleet(Cluster(wanted.address, threads=threads or 1, folder=wanted.folder), wanted.faults)
