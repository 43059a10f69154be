from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from f2cto.federation.carrier import Call
from f2cto.federation.snapshots import SnapshotError, file_of, flattened, read_file, rebuilt
from f2cto.federation.worker import MissedError, Worker
from f2cto.message import Message
from f2cto.methods.f2cto_settings import F2ctoSettings, Sharing, Weighting
from f2cto.methods.lockstep import F2cto
from testing.shards import federation


@dataclass(frozen=True)
class Inner:
    alpha: Tensor
    seen: bool


@dataclass(frozen=True)
class State:
    t: int
    rate: float
    inner: Inner
    nothing: None = None


STATE = State(7, 0.25, Inner(torch.arange(4.0), seen=True))


def test_a_state_comes_back_as_it_was() -> None:
    flat = flattened(STATE)
    assert set(flat) == {"t", "rate", "inner.alpha", "inner.seen"}
    empty = State(0, 0.0, Inner(torch.empty(0), seen=False))
    again = rebuilt(empty, flat)
    assert (again.t, again.rate, again.inner.seen) == (7, 0.25, True)
    assert isinstance(again.t, int)
    assert torch.equal(again.inner.alpha, STATE.inner.alpha)


def test_what_cannot_be_kept_is_refused() -> None:
    with pytest.raises(SnapshotError, match="`inner` is a list"):
        flattened(replace(STATE, inner=[1]))  # type: ignore[arg-type]
    with pytest.raises(SnapshotError, match=r"no `inner\.alpha`"):
        rebuilt(STATE, {"t": torch.tensor(1.0), "rate": torch.tensor(1.0)})


def test_what_grew_since_the_start_cannot_be_put_back() -> None:
    grown = {**flattened(STATE), "nothing": torch.ones(2)}
    with pytest.raises(SnapshotError, match="`nothing`, and a fresh state has nothing there"):
        rebuilt(STATE, grown)


def test_what_is_one_tensor_comes_back_as_one(tmp_path: Path) -> None:
    p = torch.arange(5.0)
    (tmp_path / "state").write_bytes(file_of({"p": p, "q": p, "half": p[:2], "none": torch.empty(0)}, {"of": "me"}))
    state, about = read_file(tmp_path / "state")
    assert about == {"of": "me"}
    assert state["q"] is state["p"]
    assert torch.equal(state["half"], p[:2])
    assert state["half"].data_ptr() != state["p"].data_ptr()


def calls(w: Tensor) -> list[Call]:
    return [Call("iterate", Message({"w": w + t}, {"t": float(t)}), t + 1) for t in range(4)]


@pytest.fixture
def method() -> F2cto:
    return F2cto(F2ctoSettings(Weighting(draws=5), sharing=Sharing(exchanges=1)), radius=1e3)


def test_a_repeated_call_gets_the_same_answer_and_moves_nothing(method: F2cto) -> None:
    shard = federation(workers=1)[0]
    worker = Worker(method.program(), shard)
    first, second = calls(shard.model.own())[:2]
    worker.answer(first)
    reply, t = worker.answer(second), worker.state.t
    assert worker.answer(second) is reply
    assert worker.state.t == t


def test_a_worker_that_missed_questions_answers_only_what_needs_none_of_them(method: F2cto) -> None:
    shard = federation(workers=1)[0]
    worker = Worker(method.program(), shard)
    late = calls(shard.model.own())[3]
    with pytest.raises(MissedError, match="answered question 0 last and cannot answer 4 now; it can join again at"):
        worker.answer(replace(late, phase="update"))
    assert "w" in worker.answer(late).vectors


def test_a_restored_worker_goes_on_as_if_nothing_had_happened(method: F2cto, tmp_path: Path) -> None:
    shard = federation(workers=1)[0]
    whole, first = Worker(method.program(), shard), Worker(method.program(), shard)
    asked = calls(shard.model.own())
    replies = [whole.answer(call) for call in asked]
    for call in asked[:2]:
        first.answer(call)
    save_file({n: v.contiguous().clone() for n, v in first.snapshot().items()}, tmp_path / "state.safetensors")
    second = Worker(method.program(), shard)
    second.restore(load_file(tmp_path / "state.safetensors"))
    for call, reply in zip(asked[1:], replies[1:], strict=True):  # the last one before comes again
        again = second.answer(call)
        assert all(torch.equal(again.vectors[name], reply.vectors[name]) for name in reply.vectors)
        assert again.scalars == reply.scalars
    assert torch.equal(method.coreset(shard, second.state).indices, method.coreset(shard, whole.state).indices)
