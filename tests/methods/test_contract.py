"""What every selector must do, whatever its method."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from f2cto.federation.in_process import InProcess
from f2cto.message import Message
from f2cto.methods.base import Coreset, Given, Selector, Shard
from f2cto.methods.catalogue import METHODS, make_selector
from f2cto.methods.f2cto_settings import (
    F2ctoSettings,
    Form,
    Perturbation,
    Proxy,
    StepRule,
    Weighting,
    WeightRule,
)
from f2cto.methods.running import run
from f2cto.trilevel.settings import Penalties, Start, Stopping
from testing.quick import quick, shared_model
from testing.shards import blobs, federation

SHORT = F2ctoSettings(Weighting(draws=5), Proxy(sync_every=2), stopping=Stopping(iterations=2))
PENALTY = Perturbation(form=Form.PENALTY, start=Start.PREVIOUS)
LETTER = replace(
    SHORT,
    weighting=Weighting(rule=WeightRule.PLAIN, classwise=False),
    proxy=Proxy(sync_every=1, waits=False, sums=True, step=0.01, hat_step=0.01, radius=100.0),
    perturbation=Perturbation(form=Form.PENALTY, rule=StepRule.PLAIN, step=0.1),
    penalties=Penalties(2.0, 10.0, 20.0, 2.0),
)
VARIANTS = {
    "f2cto letter": LETTER,
    "f2cto penalty form": replace(SHORT, perturbation=PENALTY, penalties=Penalties(2.0, 1.0, 2.0, 2.0)),
    "f2cto random start": replace(SHORT, perturbation=Perturbation(start=Start.RANDOM)),
}
SHARED_MODEL = shared_model()
QUICK: dict[str, object] = {
    **dict.fromkeys(("f2cto", "f2cto+p", "f2cto-places", "f2cto-top", "f2cto-literal", "ubv", "lbv"), SHORT),
    **quick(),
}
SELECTORS: dict[str, tuple[str, object]] = {
    **{name: (name, QUICK.get(name, {})) for name in METHODS},
    **{name: ("f2cto", settings) for name, settings in VARIANTS.items()},
    "acs, gradmatch": ("acs", {"variant": "gradmatch", **SHARED_MODEL}),
    "facility, features": ("facility", {"space": "features", **SHARED_MODEL}),
    "kcenter, all classes": ("kcenter", {"classwise": False}),
    "bcsr, as released": ("bcsr", {"as_released": True, "outer_steps": 2, **SHARED_MODEL}),
}
SUMS_OVER_CLASSES = {"f2cto-ef", "gcfl", "fedcs"}
every_selector = pytest.mark.parametrize(("name", "settings"), SELECTORS.values(), ids=SELECTORS)


def make(name: str, settings: object, shards: list[Shard]) -> Selector:
    return make_selector(name, settings, Given(shards[0].model.own()))


def choose(name: str, settings: object, shards: list[Shard]) -> list[Coreset]:
    return run(make(name, settings, shards), shards, shards[0].model.own()).coresets


def check(shards: list[Shard], coresets: list[Coreset]) -> None:
    assert len(coresets) == len(shards)
    for shard, coreset in zip(shards, coresets, strict=True):
        picks = coreset.indices.tolist()
        assert len(picks) == len(set(picks)) == shard.size
        assert set(picks) <= set(range(len(shard.y)))
        assert bool(torch.isfinite(coreset.weights).all())
        assert bool((coreset.weights >= 0).all())
        assert float(coreset.weights.sum()) == pytest.approx(1, abs=1e-5)


FEDERATIONS: dict[str, Callable[[], list[Shard]]] = {
    "plain": federation,
    "one worker": lambda: federation(workers=1),
    "fifty workers": lambda: federation(workers=50, count=6, size=2),
    "keep one": lambda: federation(size=1),
    "keep all": lambda: federation(size=24),
    "images": lambda: federation(shape=(1, 4, 4)),
    "a class with one sample": lambda: lonely(federation()),
    "a shard of one class": lambda: [*federation(workers=1), *one_class(federation(workers=2)[1:])],
    "shards of different size": lambda: [federation(count=9, size=2)[0], *federation(count=30, size=7)[1:]],
}


def lonely(shards: list[Shard]) -> list[Shard]:
    y = shards[0].y.clone()
    y[y == 2] = 1
    y[0] = 2
    return [replace(shards[0], y=y), *shards[1:]]


def one_class(shards: list[Shard]) -> list[Shard]:
    return [replace(shard, y=torch.ones_like(shard.y)) for shard in shards]


@every_selector
@pytest.mark.parametrize("shards", FEDERATIONS.values(), ids=FEDERATIONS)
def test_exactly_k_distinct_samples(name: str, settings: object, shards: Callable[[], list[Shard]]) -> None:
    check(shards(), choose(name, settings, shards()))


@every_selector
def test_same_seed_same_bits(name: str, settings: object) -> None:
    one = choose(name, settings, federation(seed=7))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        two = choose(name, settings, federation(seed=7))
    for a, b in zip(one, two, strict=True):
        assert torch.equal(a.indices, b.indices)
        assert torch.equal(a.weights, b.weights)


@every_selector
def test_inputs_are_left_alone(name: str, settings: object) -> None:
    shards = federation()
    before = copy.deepcopy([(shard.x, shard.y) for shard in shards])
    choose(name, settings, shards)
    for shard, (x, y) in zip(shards, before, strict=True):
        assert torch.equal(shard.x, x)
        assert torch.equal(shard.y, y)


@every_selector
def test_only_parameter_vectors_and_numbers_cross(name: str, settings: object) -> None:
    """Every message of a run: vectors as long as w, plain numbers, and no row of the data in any of them.

    A few methods send sums over classes beside them, of gradients or features; their modules say so.
    """
    shards = federation(count=25)
    engine, seen = InProcess(make(name, settings, shards).program(), shards), list[Message]()

    def ask(phase: str, message: Message) -> list[Message]:
        replies = engine.ask(phase, message)
        seen.extend([message, *replies])
        return replies

    d = shards[0].model.size
    make(name, settings, shards).lead(ask, shards[0].model.own(), lambda _: None)
    assert len(seen) == engine.traffic.down.messages // len(shards) + engine.traffic.up.messages
    rows = torch.cat([shard.x.flatten(1) for shard in shards])
    for message in seen:
        assert all(isinstance(value, float) for value in message.scalars.values())
        for vector in message.vectors.values():
            assert vector.ndim == 1
            assert vector.shape == (d,) or name in SUMS_OVER_CLASSES
            assert not contains_a_row(vector.float(), rows)


def contains_a_row(vector: Tensor, rows: Tensor) -> bool:
    if len(vector) < rows.shape[1]:
        return False
    windows = vector.unfold(0, rows.shape[1], 1)
    return bool(torch.cdist(windows, rows).min() < 1e-6)


def test_the_search_for_rows_finds_one() -> None:
    x, _ = blobs(5, 3, 0)
    assert contains_a_row(torch.cat([torch.zeros(3), x[2], torch.zeros(4)]), x)
    assert not contains_a_row(torch.zeros(20), x)
