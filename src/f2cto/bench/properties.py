"""The properties of every method, measured on a small federation: the paper's Table I with numbers.

A probe knows nothing about a method. It runs it with a model that counts and an engine that counts, and looks at what
the workers end with. Variables are found by name and shape: weights are called `alpha` or `weights` and have one number
per sample, perturbations have the shape of the samples and a name that begins with `p` or `q`, and w is the master's.
Initial parameters are small, so that whoever trains a model without a bound leaves the ball of twice their norm.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from f2cto.attacks.base import perturbations
from f2cto.counting import Tally, counted
from f2cto.federation.joint import in_this_process
from f2cto.message import Message
from f2cto.methods.base import Coreset, Given, Selector, Shard
from f2cto.methods.catalogue import METHODS, make_selector
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator

WORKERS, SAMPLES, FEATURES, HIDDEN, CLASSES, KEPT = 3, 20, 7, 6, 3, 4
SMALLER = 0.25  # initial parameters beside torch's
SHORT = {"stopping": {"iterations": 20}, "proxy": {"step": 0.5, "hat_step": 1.0}}
# What makes a method quick, with steps that go far all the same; the defaults of all others are quick enough here.
QUICK: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        **dict.fromkeys(("f2cto", "f2cto-literal", "f2cto-places", "f2cto-top", "ubv", "lbv", "f2cto+p"), SHORT),
        "tsg": {"iterations": 10, "levels": {"middle": 1.0}},
        "f2cto-ef": {"filtering": {"rounds": 20, "since": 10}},
    }
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


class Passes(NamedTuple):
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
        passes = {name: getattr(self, name)._asdict() for name in ("passes", "passes_outside")}
        return asdict(self) | passes | {"federated": self.federated}


def properties(quick: Mapping[str, object] = QUICK) -> list[Properties]:
    """The rows of all methods; `quick` are settings by name, the defaults where there are none."""
    return [
        probe(name, method.levels, partial(make_selector, name, quick.get(name, {})))
        for name, method in METHODS.items()
    ]


def probe(name: str, levels: int, make: Callable[[Given], Selector]) -> Properties:
    """One method's row: all but its name and its levels comes from a run."""
    shards, tally = federation()
    w = SMALLER * shards[0].model.own()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # small models and short runs are what a probe is about
        seen = observed(make(Given(w)), shards, w, tally)
    samples, iterations = sum(len(shard.y) for shard in shards), max(1, seen.iterations)
    return Properties(
        name=name,
        levels=levels,
        constraints=constraints(seen, shards, w),
        order=order(tally),
        exchanges=seen.exchanges,
        iterations=seen.iterations,
        passes=passes(seen.during, samples * iterations),
        passes_outside=passes(tally - seen.during, samples),
        floats=seen.floats / shards[0].model.size / iterations,
    )


def federation() -> tuple[list[Shard], Tally]:
    """A small problem: noisy class centres in the unit cube. Samples, features and parameters differ in number."""
    tally = Tally()
    model = FlatModel(counted(fresh(lambda: mlp(FEATURES, (HIDDEN,), CLASSES), generator(0)), tally))
    centres = torch.rand(CLASSES, FEATURES, generator=generator(1))
    y = torch.arange(SAMPLES) % CLASSES
    noise = [0.15 * torch.randn(SAMPLES, FEATURES, generator=generator(2, i)) for i in range(WORKERS)]
    return [Shard((centres[y] + z).clamp(0, 1), y, KEPT, model, i, 0) for i, z in enumerate(noise)], tally


@dataclass(frozen=True, eq=False)
class Observed:
    """What a run left to look at."""

    w: Tensor
    states: list[Any]
    coresets: list[Coreset]
    exchanges: int
    iterations: int  # 0: the method has none, and the whole run counts as one
    during: Tally  # the passes of the iterations
    floats: float  # of the iterations, per worker


def observed(selector: Selector, shards: list[Shard], w: Tensor, tally: Tally) -> Observed:
    """Run a method with all workers in this process, and look on."""
    engine = in_this_process(selector.program(), shards)
    phases, marks, began = list[str](), list[tuple[int, Tally, float]](), tally.copy()

    def ask(phase: str, message: Message) -> list[Message]:
        phases.append(phase)
        return engine.ask(phase, message)

    def mark(iteration: int) -> None:
        marks.append((iteration, tally - began, engine.traffic.floats_per_worker))

    solution = selector.lead(ask, w, lambda last: mark(last.iteration))
    coresets = [selector.coreset(shard, state) for shard, state in zip(shards, engine.states, strict=True)]
    if not marks:
        mark(0)
    return Observed(solution.w, list(engine.states), coresets, len(phases), *marks[-1])


def passes(tally: Tally, samples: int) -> Passes:
    """A tally in passes over so many samples."""
    return Passes(tally.forward / samples, tally.backward / samples, tally.second / samples)


def order(tally: Tally) -> Order:
    """The highest derivative that was taken."""
    if tally.second:
        return Order.SECOND
    if tally.backward:
        return Order.FIRST
    return Order.ZEROTH if tally.forward else Order.NONE


def constraints(seen: Observed, shards: list[Shard], w: Tensor) -> Constraints:
    """Where the variables ended; of all tensors that could be meant, the one that is worst off speaks."""
    weights, q, p = list[Bound](), list[Bound](), list[Bound]()
    for shard, state, coreset in zip(shards, seen.states, seen.coresets, strict=True):
        found = list(tensors(state))
        alphas = [t for name, t in found if name in {"alpha", "weights"} and t.shape == shard.y.shape]
        uneven = not torch.allclose(coreset.weights, coreset.weights.mean())
        weights += map(on_simplex, alphas or ([coreset.weights] if uneven else []))
        for bounds, letter in ((q, "q"), (p, "p")):
            bounds += [in_box(t, shard) for name, t in found if name.startswith(letter) and t.shape == shard.x.shape]
    return Constraints(alpha=worst(weights), q=worst(q), w=in_ball(seen.w, w), p=worst(p))


def tensors(value: object, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """All tensors in a state, each with the name of the field that holds it."""
    if isinstance(value, Tensor):
        yield name, value
    elif is_dataclass(value) and not isinstance(value, type):
        for f in fields(value):
            yield from tensors(getattr(value, f.name), f.name)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors(item, str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item, name)


def on_simplex(alpha: Tensor) -> Bound:
    """Weights: non-negative, and a sum of one, which no method keeps by chance."""
    return Bound.HELD if bool((alpha >= -1e-6).all()) and abs(float(alpha.sum()) - 1) <= 1e-4 else Bound.LEFT


def in_box(perturbation: Tensor, shard: Shard) -> Bound:
    """Perturbations, or the perturbed samples: in the ball and in the range of the features."""
    moved = min(perturbation, perturbation - shard.x, key=lambda d: float(d.abs().max()))
    given = Given(moved)
    inside = perturbations(shard.x, given.radius, given.valid).contains(moved, atol=1e-5)
    return by_size(float(moved.abs().max()), given.radius) if inside else Bound.LEFT


def in_ball(w: Tensor, before: Tensor) -> Bound:
    """Parameters: at most twice their initial norm."""
    return Bound.ABSENT if torch.equal(w, before) else by_size(float(w.norm()), 2 * float(before.norm()))


def by_size(size: float, limit: float) -> Bound:
    """Where something of a size is, seen from a limit."""
    if size == 0:
        return Bound.ABSENT
    if size > limit * (1 + 1e-4):
        return Bound.LEFT
    return Bound.HELD if size >= limit * (1 - 1e-4) else Bound.INSIDE


def worst(bounds: Sequence[Bound]) -> Bound:
    """The one that says most against a method, or most about it."""
    return max(bounds, key=[Bound.ABSENT, Bound.INSIDE, Bound.HELD, Bound.LEFT].index, default=Bound.ABSENT)
