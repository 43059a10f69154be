"""One selection on the master's machine: it greets the sites, leads, and lets them write what they selected."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from flwr.serverapp import Grid
from torch import Tensor

from f2cto.config import SettingsError, differences, plain
from f2cto.experiment import row
from f2cto.federation.carrier import Call
from f2cto.federation.engine import Traffic
from f2cto.federation.exchange import Exchange, TooFewWorkersError
from f2cto.federation.faults import Faults, OnFailure
from f2cto.federation.wire import Frame
from f2cto.flower.grid import GridCarrier
from f2cto.flower.ledger import Ledger
from f2cto.flower.master_folder import Account, MasterFolder, plain_account
from f2cto.flower.post import Post, RefusedBySiteError
from f2cto.message import Ask, Message
from f2cto.methods.base import OnRound
from f2cto.methods.f2cto_settings import F2ctoSettings
from f2cto.privacy import spent
from f2cto.run_settings import RunSettings
from f2cto.selection import loaded
from f2cto.site.job import Job, Prepared, job_of, job_text, prepared
from f2cto.site.schema import Schema
from f2cto.trilevel.master import OnProgress, Progress, Round, Solution

Tell = Callable[[str], None]  # is given a line for people
BEGIN = "begin"  # what comes before a master's first question


class UnfinishedError(ConnectionError):
    """All is done but that some sites have not written what they selected."""


@runtime_checkable
class Resumes(Protocol):
    """A method whose master can go on where a former one was."""

    def lead_from(self, ask: Ask, start: Tensor | Progress, on_round: OnRound, on_progress: OnProgress) -> Solution:
        """The master's side from where a former run got to, or from initial parameters."""
        ...


@dataclass(frozen=True)
class Orders:
    """What a master is told."""

    settings: RunSettings
    schema: Schema
    out: Path
    seconds: float = 600.0  # that a message may take, there and back and the work in between
    poll: float = 0.2  # seconds between two looks for answers

    def __post_init__(self) -> None:
        """Refuse to wait for nothing."""
        if not 0 < self.seconds < math.inf or not 0 < self.poll < math.inf:
            msg = f"A master needs seconds > 0 and poll > 0; got {self.seconds} and {self.poll}."
            raise SettingsError(msg)


def run(orders: Orders, grid: Grid, tell: Tell = lambda _: None) -> dict[str, Any]:
    """Run a job, or go on with the one in the folder; the summary of how it went.

    A method that cannot go on (only F2CTO and its variants can) starts again. Where everything is done but that some
    sites have not written what they selected, only they are asked.
    """
    folder = MasterFolder(orders.out)
    with folder.claimed():
        job = opened(folder, orders)
        carrier = GridCarrier(Post(grid, orders.seconds, orders.poll), job)
        faults = orders.settings.federation.faults
        summary = folder.summary()
        if summary is None:
            summary = led(folder, orders, carrier, prepared(job, orders.schema), tell)
            folder.write_summary(summary)
        return finished(folder, carrier, faults, summary)


def opened(folder: MasterFolder, orders: Orders) -> Job:
    """The job: that of the folder where it can be gone on with, else a new one."""
    former = folder.job()
    job = job_of(orders.settings, orders.schema, secrets.token_hex(8) if former is None else former.id)
    if former is not None:
        changed = differences(json.loads(job_text(former)), json.loads(job_text(job)))
        if changed:
            msg = f"{folder.path} holds a job with other settings ({', '.join(changed[:5])}); give another folder."
            raise SettingsError(msg)
        if folder.summary() is not None or isinstance(prepared(job, orders.schema).selector, Resumes):
            return job
        job = job_of(orders.settings, orders.schema, secrets.token_hex(8))
    folder.begin(job, plain(orders.settings))
    return job


def led(folder: MasterFolder, orders: Orders, carrier: GridCarrier, made: Prepared, tell: Tell) -> dict[str, Any]:
    """The whole exchange with the sites; how it went."""

    def on_round(last: Round) -> None:
        folder.add_row(row(last))
        tell(_told(last))

    program, faults = made.selector.program(), orders.settings.federation.faults
    exchange = Exchange(carrier, faults, getattr(program, "entries", ()))
    ledger = Ledger(folder, exchange, on_round, carrier.lost)
    folder.write_rows([row(last) for last in ledger.start.history] if ledger.start else [])
    carrier.went_on(ledger.answered)
    assembled(carrier, faults, tell, Call(BEGIN, Message(), exchange.serial + 1))
    ledger.keep()
    began = time.monotonic()
    if isinstance(made.selector, Resumes):
        start = made.w if ledger.start is None else ledger.start
        solution = made.selector.lead_from(ledger.ask, start, ledger.on_round, ledger.on_progress)
    else:
        solution = made.selector.lead(exchange.ask, made.w, ledger.on_round)
    folder.write_model(loaded(made.network, made.model, solution.w).state_dict())
    seconds = solution.history[-1].seconds if solution.history else time.monotonic() - began
    return summed_up(orders, carrier, solution, ledger.account()) | {"seconds": round(seconds, 3)}


def assembled(carrier: GridCarrier, faults: Faults, tell: Tell, first: Call) -> None:
    """Wait until all sites are there and at the job; in the end, those that a round needs will do.

    `first` stands for the question that comes next: where there were others before it, a site may have lost its state.
    """
    deadline, left, said = time.monotonic() + faults.patience, set(range(carrier.workers)), ""
    why: dict[int, Exception] = {}
    while left:
        why = dict(carrier.look_for(left))
        if misfits := carrier.misfits():
            raise SettingsError(" ".join(misfits))
        for i, error in carrier.prepare(first, [i for i in sorted(left) if i not in why]).items():
            if isinstance(error, RefusedBySiteError):
                msg = f"Site {i} does not take the job: {error}"
                raise SettingsError(msg) from error
            why[i] = error
        left = set(why)
        if not left or time.monotonic() >= deadline:
            break
        if said != (said := f"Waiting for site {', '.join(map(str, sorted(left)))}: {why[min(left)]}"):
            tell(said)
        time.sleep(faults.pause)
    there = carrier.workers - len(left)
    tell(f"{there} of {carrier.workers} sites are there.")
    for lost in carrier.lost:
        if lost.phase == BEGIN and lost.serial == first.serial:
            tell(f"Site {lost.worker} {lost.why}.")
    if there < faults.needed(carrier.workers):
        msg = f"Only {there} of {carrier.workers} sites are there after {faults.patience:g} s; {_reasons(why)}"
        raise TooFewWorkersError(msg)


def summed_up(orders: Orders, carrier: GridCarrier, solution: Solution, account: Account) -> dict[str, Any]:
    """What is known of a run before the sites have finished: counts, never anything of their data."""
    settings, last = orders.settings, solution.history[-1] if solution.history else None
    traffic = Traffic(carrier.workers, account.down, account.up)
    return {
        "method": settings.method,
        "seed": settings.seed,
        "iterations": last.iteration if last else 0,
        "stopped": str(solution.stopped),
        "gap": last.gap if last else 0.0,
        "floats_per_worker": round(traffic.floats_per_worker),
        **{key: value for key, value in plain_account(account).items() if key != "serial"},
        "questions": account.serial,
        **privacy_spent(settings, account.serial),
        "sites": {str(i): {"samples": carrier.samples.get(i)} for i in range(carrier.workers)},
    }


def privacy_spent(settings: RunSettings, questions: int) -> dict[str, float | None]:
    """What (epsilon, delta) the answers to so many questions are worth, where noise is added to them."""
    own = settings.of(settings.method)
    if not isinstance(own, F2ctoSettings) or not own.sharing.privacy.on:
        return {}
    epsilon = spent(own.sharing.privacy, questions)
    return {"epsilon": epsilon if math.isfinite(epsilon) else None, "delta": own.sharing.privacy.delta}


def finished(folder: MasterFolder, carrier: GridCarrier, faults: Faults, summary: dict[str, Any]) -> dict[str, Any]:
    """Let every site write what it selected, those that have done so already not again."""
    sites, deadline = summary["sites"], time.monotonic() + faults.patience
    why: dict[int, Exception] = {}
    while left := [int(i) for i, site in sites.items() if site.get("kept") is None]:
        replies = carrier.finish(left)
        why = {i: reply for i, reply in replies.items() if isinstance(reply, Exception)}
        for i, reply in replies.items():
            sites[str(i)] = {"samples": carrier.samples.get(i, sites[str(i)]["samples"]), **_kept(reply)}
        folder.write_summary(summary)
        hopeless = all(isinstance(error, RefusedBySiteError) for error in why.values())
        if hopeless or faults.on_failure is not OnFailure.WAIT or time.monotonic() >= deadline:
            break
        time.sleep(faults.pause)
    if sum(site.get("kept") is not None for site in sites.values()) < faults.needed(carrier.workers):
        msg = f"The model is trained, but not all have written their coresets; run again to ask them. {_reasons(why)}"
        raise UnfinishedError(msg)
    return summary


def _kept(reply: Frame | Exception) -> dict[str, Any]:
    if isinstance(reply, Exception):
        return {"kept": None, "why": str(reply)}
    kept = reply.head.get("kept")
    return {"kept": kept} if isinstance(kept, int) else {"kept": None, "why": "its answer has no count"}


def _reasons(why: Mapping[int, Exception]) -> str:
    return " ".join(f"Site {i}: {error}." for i, error in sorted(why.items()))


def _told(last: Round) -> str:
    absent = f", without {', '.join(map(str, last.absent))}" if last.absent else ""
    return f"iteration {last.iteration}: gap {last.gap:.3g}, {last.seconds:.1f} s{absent}"
