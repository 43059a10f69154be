"""Real sites that listen at real sockets, each in a thread of this process, over a grid that stays within it."""

from __future__ import annotations

import csv
import io
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from f2cto.cli.site import End, listening, serve_one
from f2cto.config import build
from f2cto.data.folder import data_folder
from f2cto.federation.in_process import InProcess
from f2cto.flower.client_app import forward
from f2cto.flower.master import Orders
from f2cto.message import Message
from f2cto.methods.base import Coreset, Shard
from f2cto.methods.quotas import Balance
from f2cto.preparation import prepare
from f2cto.run_settings import RunSettings
from f2cto.site.host import Site
from f2cto.site.job import Job, prepared
from f2cto.site.reading import SiteData
from f2cto.site.rules import Rules
from f2cto.site.schema import Schema
from f2cto.site.store import Store
from f2cto.trilevel.master import Solution
from testing.grids import MemoryGrid

Threads = tuple[threading.Event, threading.Thread]


@dataclass
class Served:
    """A site whose process can be killed and started again; its folder stays."""

    data: SiteData
    schema: Schema
    number: int
    folder: Path
    socket: Path
    _running: list[Threads] = field(default_factory=list)

    def start(self) -> None:
        """Start the process."""
        self.folder.mkdir(exist_ok=True)
        site = Site(self.data, self.schema, self.number, Store(self.folder), Rules())
        stack = ExitStack()
        server = stack.enter_context(listening(self.socket))
        server.settimeout(0.02)
        told = threading.Event()

        def serve() -> None:
            with stack:
                while not told.is_set():
                    try:
                        connection, _ = server.accept()
                    except TimeoutError:
                        continue
                    with connection, redirect_stderr(io.StringIO()):
                        serve_one(connection, site, lambda _: None, End())

        thread = threading.Thread(target=serve)
        thread.start()
        self._running.append((told, thread))

    def kill(self) -> None:
        """End it; what it has not written is lost."""
        while self._running:
            told, thread = self._running.pop()
            told.set()
            thread.join()

    def coreset(self) -> list[tuple[int, str, float]]:
        """What it wrote: rows, labels and weights."""
        with (self.folder / "coreset.csv").open() as file:
            return [(int(r["row"]), r["label"], float(r["weight"])) for r in csv.DictReader(file)]


@dataclass
class Federation:
    """Sites, the grid between them and a master, and what the master is told."""

    sites: Sequence[Served]
    grid: MemoryGrid
    orders: Callable[..., Orders]


def told(values: Mapping[str, Any], workers: int) -> RunSettings:
    """Quick settings on scikit-learn's digits."""
    quick = {"workers": workers, "size": 6, "seed": 3, "network": {"hidden": [12]}}
    judged = {"data": {"scenario": {"samples": 60 * workers}}}
    return build(RunSettings, quick | judged | dict(values))


def digits(settings: RunSettings) -> tuple[Schema, list[SiteData]]:
    """The digits, dealt out."""
    made = prepare(settings, data_folder())
    schema = Schema(made.classes, shape=tuple(made.shards[0].x.shape[1:]))
    return schema, [SiteData(shard, rows) for shard, rows in zip(made.shards, made.rows, strict=True)]


@contextmanager
def federation(out: Path, workers: int, settings: RunSettings | None = None) -> Iterator[Federation]:
    """A running federation; every node's app is the forwarder. Sockets need short paths."""
    schema, data = digits(settings or told({}, workers))
    with tempfile.TemporaryDirectory() as short:
        sites = [Served(part, schema, i, out / f"site-{i}", Path(short) / f"{i}") for i, part in enumerate(data)]
        grid = MemoryGrid()
        for site in sites:
            site.start()
            grid.connect(1000 + 7 * site.number, forward, socket=str(site.socket))
        try:
            made = partial(Orders, schema=schema, out=out / "master", seconds=5.0, poll=0.01)
            yield Federation(sites, grid, lambda **values: made(settings or told(values, workers)))
        finally:
            for site in sites:
                site.kill()


def expected(job: Job, federation: Federation) -> tuple[Solution, list[Coreset]]:
    """The same selection by the engine that keeps all workers in this process, and not as one."""
    made = prepared(job, federation.sites[0].schema)
    shards = [
        Shard(s.data.samples.x, s.data.samples.y, int(job.size), made.model, i, job.seed, Balance.EVEN)
        for i, s in enumerate(federation.sites)
    ]
    engine = InProcess(made.selector.program(), shards)

    def ask(phase: str, message: Message) -> list[Message]:
        # Answers are tensors of their own, as over any wire: the mean of three equal vectors is not one of them to the
        # last bit, and the sign of a gradient may hang on that.
        replies = engine.ask(phase, message)
        return [Message({name: v.clone() for name, v in r.vectors.items()}, r.scalars) for r in replies]

    solution = made.selector.lead(ask, made.w, lambda _: None)
    chosen = [made.selector.coreset(s, state) for s, state in zip(shards, engine.states, strict=True)]
    return solution, chosen
