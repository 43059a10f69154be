"""Where the workers of `f2cto select` run, as the settings have it."""

from __future__ import annotations

from functools import partial

from f2cto.methods.running import Gather, Here
from f2cto.run_settings import Engine, Federation


def gather_of(wanted: Federation, threads: int | None = None) -> Gather:
    """What makes workers of shards; `threads` are those of each process, where it is not this one."""
    if wanted.engine is Engine.PROCESS:
        return partial(Here, faults=wanted.faults, together=wanted.together)
    from f2cto.cluster.fleet import ray_fleet  # noqa: PLC0415  (an extra)
    from f2cto.cluster.hosts import Cluster  # noqa: PLC0415

    return ray_fleet(Cluster(wanted.address, threads=threads or 1, folder=wanted.folder), wanted.faults)
