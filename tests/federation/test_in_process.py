from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from f2cto.federation.engine import WorkerFailedError
from f2cto.federation.in_process import InProcess
from f2cto.message import Message


@dataclass(frozen=True)
class Counter:
    """A program that adds what it is sent to its own shard's number."""

    def start(self, shard: int) -> int:
        return shard

    def run(self, phase: str, shard: int, state: int, message: Message) -> tuple[int, Message]:
        if phase == "break" and shard == 20:
            msg = "no power"
            raise RuntimeError(msg)
        state += int(message.vectors["w"].sum())
        return state, Message({"w": message.vectors["w"] * state}, {"state": float(state), "half": state / 2})


def test_replies_come_in_worker_order_and_state_stays() -> None:
    engine = InProcess(Counter(), [10, 20, 30])
    ones = Message({"w": torch.ones(4)})
    assert [r.scalars["state"] for r in engine.ask("add", ones)] == [14, 24, 34]
    assert [r.scalars["state"] for r in engine.ask("add", ones)] == [18, 28, 38]
    assert engine.states == [18, 28, 38]


def test_traffic_counts_both_ways() -> None:
    engine = InProcess(Counter(), [1, 2, 3])
    for _ in range(2):
        engine.ask("add", Message({"w": torch.ones(4)}))
    traffic = engine.traffic
    assert (traffic.down.messages, traffic.down.floats, traffic.down.scalars) == (6, 24, 0)
    assert (traffic.up.messages, traffic.up.floats, traffic.up.scalars) == (6, 24, 12)
    assert traffic.floats_per_worker == 16


def test_a_failing_worker_is_named_and_states_are_kept() -> None:
    engine = InProcess(Counter(), [10, 20, 30])
    with pytest.raises(WorkerFailedError, match="Worker 1 failed in phase `break`: no power") as caught:
        engine.ask("break", Message({"w": torch.ones(4)}))
    assert (caught.value.worker, caught.value.phase) == (1, "break")
    assert engine.states == [14, 20, 34]  # the others have done their part, the failed one has not moved
