"""The answers of a site: it holds the data and the worker's state, and gives out nothing but the method's messages.

Requests are frames whose head has a `kind`; so are answers, with `error`, one sentence, where there is none.

    hello                                         -> number, samples, schema
    start   job                                   -> samples
    ask     job, phase, serial, scalars + arrays  -> scalars + arrays
    finish  job                                   -> kept

An answer is sent only after it was kept, so that a process killed at any moment loses at most one that the master has
not got, and asks for again by the same serial number.
"""

from __future__ import annotations

import hashlib
import math
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from f2cto.config import SettingsError
from f2cto.federation.carrier import Call
from f2cto.federation.snapshots import SnapshotError
from f2cto.federation.wire import DTYPES, Array, Frame
from f2cto.federation.worker import Worker
from f2cto.message import Message
from f2cto.methods.base import Shard
from f2cto.site.budget import Price, check_budget, price
from f2cto.site.job import Job, Prepared, job_from_text, job_text, prepared
from f2cto.site.reading import SiteData
from f2cto.site.rules import RefusedError, Rules, check_answer, check_job, check_question, check_reading
from f2cto.site.schema import Schema
from f2cto.site.store import Charge, Store, StoreError


@dataclass
class Running:
    """A job in hand."""

    job: Job
    made: Prepared
    shard: Shard
    worker: Worker
    entries: tuple[str, ...]  # the phases at which a worker that missed others may join again
    price: Price | None = None  # what its answers cost, where the site has a bound
    kept: int = 0  # the serial number of the last answer that a restart would know
    lost: bool = False  # whether a checkpoint could not be used


@dataclass
class Site:
    """What a site's process does with requests; one at a time."""

    data: SiteData
    schema: Schema
    number: int  # of the site in the federation, from 0
    store: Store
    rules: Rules = field(default_factory=Rules)

    def __post_init__(self) -> None:
        """Go on with the job that the folder holds."""
        self.notes: list[str] = []  # for the site's owner, a sentence each
        self.trouble = ""  # where the last unexpected failure was, for the site's own log
        self._running: Running | None = None
        try:
            self._resume()
        except (StoreError, SettingsError, RefusedError) as error:
            self.notes.append(f"The former job was not gone on with: {error}")

    @property
    def work(self) -> int:
        """About how many bytes a pass over all samples holds; 0 without a job."""
        if self._running is None:
            return 0
        return len(self.data) * self._running.made.model.pass_bytes(self.data.samples.x[:1])

    @property
    def limit(self) -> int:
        """The most bytes that a request needs: a job's text, or some vectors as long as the parameters."""
        size = self._running.made.model.size if self._running else 0
        return 2**22 + 16 * 8 * size

    def answer(self, request: Frame) -> Frame:
        """Answer a request; whatever it is, a frame comes back, and never anything of the data in an error."""
        kinds = {"hello": self._hello, "start": self._start, "ask": self._ask, "finish": self._finish}
        kind, self.trouble = request.head.get("kind"), ""
        try:
            if not isinstance(kind, str) or kind not in kinds:
                msg = f"A site answers {', '.join(kinds)}; got another kind of request."
                raise RefusedError(msg)  # noqa: TRY301  (one way out for all that is refused)
            return kinds[kind](request)
        except (RefusedError, SettingsError, ImportError) as error:
            return Frame({"error": str(error)})
        except Exception as error:  # noqa: BLE001  (a site outlives whatever it is asked)
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.trouble = f"{type(error).__name__} in {place.filename}, line {place.lineno}"
            return Frame({"error": f"Site {self.number} failed ({type(error).__name__}); its own log says where."})

    def _hello(self, _: Frame) -> Frame:
        return Frame({"number": self.number, "samples": len(self.data), "schema": self.schema.digest})

    def _start(self, request: Frame) -> Frame:
        job = job_from_text(request.head.get("job"))
        if self._running is None or self._running.job.id != job.id:
            running = self._made(job)
            self._charge(running)
            self.store.begin({"text": job_text(job), **self._about(job)})
            self._running = running
        elif job != self._running.job:
            msg = f"This site is at another job that is called `{job.id}` too; give the new one another id."
            raise RefusedError(msg)
        return Frame({"samples": len(self.data)})

    def _ask(self, request: Frame) -> Frame:
        running = self._current(request)
        call = _call(request)
        worker, size = running.worker, running.made.model.size
        check_question(call.message, running.job, size)
        # Each number is answered once, so that the last one bounds how many answers there are.
        if running.price and call.serial > running.price.answers:
            msg = f"This site gives the {running.price.answers} answers that the job's iterations need, and no more."
            raise RefusedError(msg)
        ahead = call.serial - worker.serial  # below 0: a question of long ago that was lost on its way until now
        if ahead < 0 or (ahead > 1 and call.phase not in running.entries):
            where = f"; it can join again at {' or '.join(running.entries)}" if running.entries else ""
            msg = f"This site has answered question {worker.serial} last and cannot answer {call.serial} now{where}."
            raise RefusedError(msg)
        reply = worker.answer(call)
        check_answer(reply, running.job, size, len(self.data))
        if running.kept != worker.serial:
            self._keep(running, request)
        # Sorted, so that an answer is the same bytes after a restart.
        scalars, vectors = sorted(reply.scalars.items()), sorted(reply.vectors.items())
        return Frame({"scalars": dict(scalars)}, {name: _array(name, vector) for name, vector in vectors})

    def _finish(self, request: Frame) -> Frame:
        running = self._current(request)
        if running.worker.serial == 0 and (running.lost or running.entries):
            msg = f"This site has answered no question of job `{running.job.id}` that it knows of; it selects nothing."
            raise RefusedError(msg)
        chosen = running.made.selector.coreset(running.shard, running.worker.state)
        picks = zip(chosen.indices.tolist(), chosen.weights.tolist(), strict=True)
        self.store.write_coreset(running.job.id, (self._row(index, weight) for index, weight in picks))
        return Frame({"kept": len(chosen.indices)})

    def _row(self, index: int, weight: float) -> tuple[int, str, float, str]:
        row, label = int(self.data.rows[index]), self.schema.classes[int(self.data.samples.y[index])]
        return row, label, weight, self.data.files[row] if self.data.files else ""

    def _current(self, request: Frame) -> Running:
        if self._running is None or request.head.get("job") != self._running.job.id:
            msg = "This site is not at that job; send `start` first."
            raise RefusedError(msg)
        return self._running

    def _made(self, job: Job) -> Running:
        """A worker that was not asked anything yet."""
        if self.number >= job.workers:
            msg = f"The job is for {job.workers} sites, counted from 0, and this one is number {self.number}."
            raise RefusedError(msg)
        size = check_job(job, self.schema, len(self.data), self.rules)
        made = prepared(job, self.schema)
        check_reading(made.selector)
        cost, samples = price(made.selector, self.rules), self.data.samples
        shard = Shard(samples.x, samples.y, size, made.model, self.number, job.seed, job.balance)
        program = made.selector.program()
        return Running(job, made, shard, Worker(program, shard), tuple(getattr(program, "entries", ())), cost)

    def _charge(self, running: Running) -> None:
        """Put down what a job that begins may cost, before anything of it is answered."""
        if running.price:
            former = self.store.charges()
            check_budget(running.price, [charge.epsilon for charge in former], self.rules)
            digest = self._about(running.job)["job"]
            self.store.write_charges([*former, Charge(digest, running.price.epsilon, self.rules.delta)])

    def _about(self, job: Job) -> dict[str, str]:
        """What a checkpoint must belong to."""
        text = hashlib.sha256(job_text(job).encode()).hexdigest()
        return {"job": text, "data": self.data.digest, "number": str(self.number)}

    def _keep(self, running: Running, request: Frame) -> None:
        """The state, where a worker may join again with what is left of it; else the questions that led to it."""
        serial = running.worker.serial
        if running.entries:
            self.store.save_state(running.worker.snapshot(), self._about(running.job))
        else:
            self.store.add_call(request, serial)
        running.kept = serial

    def _resume(self) -> None:
        found = self.store.job()
        if not found:
            return
        job = job_from_text(found.get("text"))
        running, about = self._made(job), self._about(job)
        if running.price and about["job"] not in {charge.job for charge in self.store.charges()}:
            msg = f"What job `{job.id}` costs is not in {self.store.folder}: it was begun without a bound on epsilon."
            raise RefusedError(msg)
        try:
            if {key: found.get(key) for key in about} != about:
                msg = "The folder's job was begun with other data or by another site."
                raise StoreError(msg)  # noqa: TRY301  (all that cannot be used is set aside alike)
            self._restore(running, about)
        except (StoreError, SnapshotError, RefusedError, KeyError, ValueError, RuntimeError) as error:
            self._charge(running)  # first: where it is refused, all stays as it is
            there = self.store.set_aside()
            self.store.begin({"text": job_text(job), **about})
            running = self._made(job)
            running.lost = True
            self.notes.append(f"{error} It is set aside in {there}, and the site starts job `{job.id}` afresh.")
        self._running = running
        self.notes.append(f"At job `{job.id}` again, after question {running.worker.serial}.")

    def _restore(self, running: Running, about: Mapping[str, str]) -> None:
        if state := self.store.state(about):
            running.worker.restore(state)
        for request in self.store.calls():
            running.worker.answer(_call(request))
        running.kept = running.worker.serial


def _call(request: Frame) -> Call:
    """A question out of what came."""
    phase, serial, scalars = (request.head.get(key) for key in ("phase", "serial", "scalars"))
    if not isinstance(phase, str) or isinstance(serial, bool) or not isinstance(serial, int) or not 1 <= serial < 2**53:
        msg = "A question needs a phase and a serial number from 1 on."
        raise RefusedError(msg)
    scalars = {} if scalars is None else scalars
    if not isinstance(scalars, Mapping) or not all(_is_number(value) for value in scalars.values()):
        msg = "The scalars of a question are finite numbers by name."
        raise RefusedError(msg)
    # Copied by torch, whose memory is aligned: sums over memory that is not may differ in the last bit.
    vectors = {name: torch.from_numpy(array).clone() for name, array in request.arrays.items()}
    return Call(phase, Message(vectors, {str(name): float(value) for name, value in scalars.items()}), serial)


def _is_number(value: Any) -> bool:  # noqa: ANN401  (whatever came)
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def _array(name: str, vector: Tensor) -> Array:
    array: Array = vector.detach().cpu().numpy()
    if array.dtype.name not in DTYPES:
        msg = f"The answer was held back: its vector `{name}` is of {array.dtype}."
        raise RefusedError(msg)
    return array
