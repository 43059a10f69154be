from __future__ import annotations

import pytest
import torch

from f2cto.bench.engines import IDLE, Idling, idle, iterate
from f2cto.bench.measure import random_shards
from f2cto.federation.in_process import InProcess
from f2cto.message import Message
from f2cto.methods.base import Shard
from f2cto.methods.f2cto_settings import F2ctoSettings, Perturbation, Weighting
from f2cto.methods.lockstep import F2cto
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator


@pytest.fixture
def shards() -> list[Shard]:
    return random_shards(FlatModel(fresh(lambda: mlp(6, (8,), 3), generator(0))), (6,), [12] * 2, 3)


@pytest.fixture
def method() -> F2cto:
    return F2cto(F2ctoSettings(Weighting(draws=3), perturbation=Perturbation(steps=1, ramp=0)), radius=1e6)


class Recorded:
    """An engine that notes what goes both ways."""

    def __init__(self, engine: InProcess[Shard, object]) -> None:
        self._engine, self.phases, self.floats = engine, list[str](), list[int]()

    def ask(self, phase: str, message: Message) -> list[Message]:
        replies = self._engine.ask(phase, message)
        self.phases.append(phase)
        self.floats += [message.floats, *(r.floats for r in replies)]
        return replies


def test_idle_rounds_carry_as_much_as_an_iteration_and_move_nothing(shards: list[Shard], method: F2cto) -> None:
    engine = InProcess(Idling(method).program(), shards)
    before, w = list(engine.states), shards[0].model.own()
    empty, full = Recorded(engine), Recorded(engine)  # type: ignore[arg-type]
    idle(empty.ask, w)
    assert engine.states == before
    moved = iterate(full.ask, w)
    assert empty.floats == full.floats == [w.numel()] * 6
    assert empty.phases == [IDLE, IDLE]
    assert full.phases == ["refine", "update"]
    assert not torch.equal(moved, w)


def test_an_iteration_is_the_methods_own(shards: list[Shard], method: F2cto) -> None:
    one = iterate(InProcess(Idling(method).program(), shards).ask, shards[0].model.own())
    assert torch.equal(one, iterate(InProcess(method.program(), shards).ask, shards[0].model.own()))
