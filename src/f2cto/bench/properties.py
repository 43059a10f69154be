"""The properties of every method, measured on a small federation: the paper's Table I with numbers.

A probe knows nothing about a method. It runs it with a model that counts and an engine that counts, and looks at what
the workers end with. Variables are found by name and shape: weights are `alpha` or `weights` with one number per sample,
perturbations have the shape of the samples and a name that begins with `p` or `q`, and w is the master's. Initial
parameters are small, so that whoever trains a model without a bound leaves the ball of twice their norm.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from f2cto.bench.counting import CountedModel, Tally
from f2cto.federation.joint import in_this_process
from f2cto.message import Message
from f2cto.models import fresh, mlp
from f2cto.randomness import generator
from f2cto.selectors.base import Given, Shard
from f2cto.selectors.catalogue import METHODS, make_selector, method
from f2cto.trilevel.master import Round

WORKERS, SAMPLES, FEATURES, HIDDEN, CLASSES, KEPT = 3, 20, 7, 6, 3, 4
SMALLER = 0.25  # initial parameters beside torch's
SHORT = {"stopping": {"iterations": 20}}
# What makes a method quick; the defaults of all others are quick enough here.
QUICK: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {name: SHORT for name in ("f2cto", "f2cto-literal", "ubv", "lbv", "f2cto+p")}
    | {"tsg": {"iterations": 10}, "f2cto-ef": {"filtering": {"rounds": 20, "since": 10}}}
)


class Order(StrEnum):
    """The derivatives of the model that were taken."""

    NONE = "none"  # the model was not asked at all
    ZEROTH = "zeroth"
    FIRST = "first"
    SECOND = "second"


class Bound(StrEnum):
    """How a variable ended with respect to its set."""

    ABSENT = "none"  # there is no such variable, or it never left where it began
    HELD = "held"  # in the set, at its border: the constraint was at work
    INSIDE = "inside"  # in the set, and not at its border: the constraint was not put to the test
    LEFT = "left"  # outside


@dataclass(frozen=True)
class Constraints:
    """The paper's four sets: A, Q, W and P."""

    alpha: Bound
    q: Bound
    w: Bound
    p: Bound


@dataclass(frozen=True)
class Passes:
    """Passes through the model, in units of one pass over all samples."""

    forward: float
    backward: float
    second: float


@dataclass(frozen=True)
class Properties:
    """One row of the table."""

    name: str
    levels: int
    constraints: Constraints
    order: Order
    exchanges: int  # messages from the master to all workers
    iterations: int
    passes: Passes  # per iteration
    passes_outside: Passes  # before the first iteration and after the last
    floats: float  # per iteration and worker, both ways, in units of the model's parameters

    @property
    def federated(self) -> bool:
        """Whether master and workers talk more than once."""
        return self.exchanges > 1

    def plain(self) -> dict[str, Any]:
        """The row as JSON has it."""
        return asdict(self) | {"federated": self.federated}


def properties(names: Sequence[str] = (), quick: Mapping[str, Any] = QUICK) -> list[Properties]:
    """The rows of some methods, or of all; `quick` are settings by name, the defaults where there are none."""
    return [probe(name, quick.get(name, {})) for name in names or METHODS]


def probe(name: str, settings: object) -> Properties:
    """One method's row."""
    shards, tally = federation()
    w = SMALLER * shards[0].model.own()
    given = Given(w)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # small models and short runs are what the probe is about
        run = Run(make_selector(name, settings, given), shards, w, tally)
    return Properties(
        name=name,
        levels=method(name).levels,
        constraints=constraints(run, shards, given),
        order=order(tally),
        exchanges=run.exchanges,
        iterations=run.iterations,
        passes=run.passes(),
        passes_outside=run.passes_outside(),
        floats=run.floats / shards[0].model.size / max(1, run.iterations),
    )
