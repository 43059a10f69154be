"""One selection as the master orders it: a text of settings and nothing else, and what both sides make of it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from f2cto.attacks.base import Range
from f2cto.config import SettingsError, build, plain
from f2cto.methods.base import Given, Selector
from f2cto.methods.catalogue import make_selector, method
from f2cto.methods.f2cto_settings import Choice, F2ctoSettings
from f2cto.methods.quotas import Balance
from f2cto.models import FlatModel, fresh
from f2cto.randomness import generator
from f2cto.run_settings import Network, RunSettings
from f2cto.site.schema import Schema

LONGEST = 2**18  # characters of a job's text
LAYERS, UNITS = 100, 1_000_000  # of a perceptron at most, so that what is counted can be counted


@dataclass(frozen=True)
class Job:
    """What the master has to say before its first question; the same job, the same selection."""

    id: str
    method: str
    schema: str  # its digest
    workers: int
    size: float  # samples each site keeps: a count, or a fraction below 1
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the method
    network: Network = field(default_factory=Network)
    seed: int = 0
    balance: Balance = Balance.EVEN
    range: Range = field(default_factory=Range)
    radius: float = 0.1  # of attacks, unless the method's settings say another

    def __post_init__(self) -> None:
        """Refuse what no site could start with. The id becomes part of a file's name."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", self.id):
            msg = f"A job's id is up to 64 letters, digits, - and _; got `{self.id[:80]}`."
            raise ValueError(msg)
        if not self.workers >= 1 or not 0 <= self.seed < 2**63:
            msg = f"A job needs workers >= 1 and a seed from 0 on; got {self.workers} and {self.seed}."
            raise ValueError(msg)
        whole = self.size < 1 or self.size == round(self.size)
        if not 0 < self.size < math.inf or not whole or not 0 <= self.radius < math.inf:
            msg = f"A job needs a size, a count or a fraction, and a radius >= 0; got {self.size} and {self.radius}."
            raise ValueError(msg)
        units = (*self.network.hidden, self.network.width)
        if len(units) > LAYERS or max(units) > UNITS:
            msg = (
                f"A network has at most {LAYERS} layers of at most {UNITS:,} units; got {len(units)} and {max(units)}."
            )
            raise ValueError(msg)
        build(method(self.method).settings, self.settings, "settings.")


@dataclass(frozen=True, eq=False)
class Prepared:
    """What master and sites both need, and have alike."""

    selector: Selector
    model: FlatModel
    w: Tensor  # the initial parameters
    network: nn.Module  # that they belong to
    valid: Range


def job_of(settings: RunSettings, schema: Schema, name: str) -> Job:
    """The job that settings ask for; its id is `name`. Where sites compute is their own affair."""
    own = settings.of(settings.method)
    if isinstance(own, F2ctoSettings) and own.reads_places:
        own = replace(own, choice=Choice.AVERAGE)  # places would tell the master too much; sites refuse it
    return Job(
        id=name,
        method=settings.method,
        schema=schema.digest,
        workers=settings.workers,
        size=settings.size,
        settings=plain(own) if is_dataclass(own) else dict(own),  # type: ignore[call-overload]
        network=replace(settings.network, device="cpu"),
        seed=settings.seed,
        balance=settings.data.balance,
        range=settings.data.range,
        radius=settings.radius,
    )


def job_text(job: Job) -> str:
    """A job as JSON."""
    return json.dumps(plain(job), sort_keys=True)


def job_from_text(text: object) -> Job:
    """A job out of what the master sent; whatever that is, a job or a `SettingsError` comes of it."""
    if not isinstance(text, str) or len(text) > LONGEST:
        msg = f"A job is a text of JSON of at most {LONGEST:,} characters."
        raise SettingsError(msg)
    try:
        values = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        msg = f"The job is not JSON: {error}."
        raise SettingsError(msg) from error
    needed = {"id", "method", "schema", "workers", "size"}
    if not isinstance(values, Mapping) or not needed <= values.keys():
        msg = f"A job needs {', '.join(sorted(needed))}."
        raise SettingsError(msg)
    return build(Job, values)


def parameters(job: Job, schema: Schema) -> int:
    """How many parameters the network has, without making them."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in _network(job, schema).parameters())


def prepared(job: Job, schema: Schema) -> Prepared:
    """The method, the network and its initial parameters: the same bits at the master and at every site."""
    if job.schema != schema.digest:
        msg = f"The job was made for the schema {job.schema[:12]}…, and the one here is {schema.digest[:12]}…."
        raise SettingsError(msg)
    network = fresh(partial(_network, job, schema), generator(job.seed, 1))
    model = FlatModel(network)
    valid = replace(job.range, fixed=tuple(sorted({*job.range.fixed, *schema.fixed})))
    if valid.fixed and valid.fixed[-1] >= math.prod(schema.sample):
        msg = f"Feature {valid.fixed[-1]} is said to be fixed, but samples have {math.prod(schema.sample)} features."
        raise SettingsError(msg)
    w = model.own()
    # Built here: a job holds all settings, most of which nobody asked for, so that its variant may override them.
    settings = build(method(job.method).settings, job.settings, "settings.")
    selector = make_selector(
        job.method, settings, Given(w, valid, job.radius, job.balance, sizes=model.sizes, seed=job.seed)
    )
    return Prepared(selector, model, w, network, valid)


def _refuse(constant: str) -> NoReturn:
    msg = f"there is no number {constant}"
    raise ValueError(msg)


def _network(job: Job, schema: Schema) -> nn.Module:
    return job.network.built(schema.sample, len(schema.classes))
