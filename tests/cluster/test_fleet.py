from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits

from f2cto.cluster import connection
from f2cto.cluster.connection import library
from f2cto.cluster.fleet import RayFleet, ray_fleet
from f2cto.cluster.hosts import Cluster, Hosts, processor_share
from f2cto.cluster.packing import packed, unpacked
from f2cto.config import SettingsError
from f2cto.federation.engine import WorkerFailedError
from f2cto.federation.faults import Faults, OnFailure
from f2cto.fleets import gather_of
from f2cto.message import Ask, Message
from f2cto.methods.base import Coreset, Given, OnRound, Selector, Shard
from f2cto.methods.catalogue import make_selector
from f2cto.methods.running import Here, Result, run
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from f2cto.run_settings import Engine, Federation
from f2cto.trilevel.master import Round, Solution, Stopped


def digits(least: int = 80) -> list[Shard]:
    x, y = load_digits(return_X_y=True)
    model = FlatModel(fresh(lambda: mlp(64, (32,), 10), generator(0)))
    parts = [slice(100 * i, 100 * i + least + 10 * i) for i in range(5)]
    return [
        Shard(torch.tensor(x[part] / 16).float(), torch.tensor(y[part]), 10, model, i, 0)
        for i, part in enumerate(parts)
    ]


SHARDS = digits()
W = SHARDS[0].model.own()
IN_TURN = partial(Here, together=False)
SHORT: dict[str, Any] = {"stopping": {"iterations": 8}, "weighting": {"draws": 10}}


def selector(method: str = "f2cto", **settings: Any) -> Selector:
    return make_selector(method, settings, Given(W))


def close_to(one: Result, other: Result) -> None:
    torch.testing.assert_close(one.solution.w, other.solution.w, rtol=0, atol=1e-5)
    for a, b in zip(one.coresets, other.coresets, strict=True):
        assert torch.equal(a.indices, b.indices)
        torch.testing.assert_close(a.weights, b.weights, rtol=0, atol=1e-5)
    assert one.traffic == other.traffic


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("f2cto", {"stopping": {"iterations": 20}, "sharing": {"exchanges": 1}}),
        ("f2cto", {"stopping": {"iterations": 20}, "sharing": {"exchanges": 2, "weights": "samples"}}),
        ("f2cto", {"stopping": {"iterations": 20}}),
        ("gcfl", {"pretraining": {"rounds": 2, "local": {"steps": 5}}}),
    ],
    ids=["one exchange", "by samples", "two exchanges", "gcfl"],
)
def test_the_same_as_in_one_process(method: str, settings: dict[str, Any], hosts: Hosts) -> None:
    chosen = selector(method, **settings)
    there = run(chosen, SHARDS, W, gather=partial(RayFleet, hosts=hosts))
    close_to(there, run(chosen, SHARDS, W, gather=IN_TURN))


def kill(hosts: Hosts, worker: int) -> None:
    pid = hosts.call({worker: os.getpid})[worker]
    assert isinstance(pid, int)
    assert pid != os.getpid()
    os.kill(pid, signal.SIGKILL)


def killed(hosts: Hosts, faults: Faults, settings: dict[str, Any], at: int = 4) -> Result:
    """A run in which the process of workers 1 and 3 is killed after an iteration."""

    def strike(now: Round) -> None:
        if now.iteration == at:
            kill(hosts, 1)

    return run(selector(**settings), SHARDS, W, strike, gather=partial(RayFleet, faults=faults, hosts=hosts))


def test_a_dead_process_ends_the_run_where_it_is_to_stop(hosts: Hosts) -> None:
    with pytest.raises(WorkerFailedError, match="Worker 1 failed in phase `refine`: its process died"):
        killed(hosts, Faults(), SHORT)


@pytest.mark.parametrize("exchanges", [1, 2])
def test_the_others_go_on_and_those_who_died_come_back(hosts: Hosts, exchanges: int) -> None:
    result = killed(hosts, Faults(OnFailure.CONTINUE), SHORT | {"sharing": {"exchanges": exchanges}})
    assert len(result.solution.history) == 8
    assert [r.absent for r in result.solution.history] == [(), (), (), (), (1, 3), (), (), ()]
    asked = [(5, "iterate", 1), (5, "iterate", 3)] if exchanges == 1 else [(9, "refine", 1), (9, "refine", 3)]
    assert [(a.serial, a.phase, a.worker) for a in result.absences][:2] == asked
    assert "its process died" in result.absences[0].why
    assert [len(c.indices) for c in result.coresets] == [10] * 5


def test_what_was_lost_at_the_very_end_is_said(hosts: Hosts) -> None:
    with pytest.raises(WorkerFailedError, match="Worker 1 failed in phase `coreset`: its process died"):
        killed(hosts, Faults(), SHORT | {"choice": "average"}, at=8)
    settings = SHORT | {"sharing": {"exchanges": 1}, "choice": "average"}
    result = killed(hosts, Faults(OnFailure.CONTINUE), settings, at=8)
    assert [len(c.indices) for c in result.coresets] == [10, 0, 10, 0, 10]
    assert [(a.phase, a.worker) for a in result.absences] == [("coreset", 1), ("coreset", 3)]


def test_who_dies_before_the_reading_comes_back_for_it(hosts: Hosts) -> None:
    with pytest.raises(WorkerFailedError, match="Worker 1 failed in phase `read`: its process died"):
        killed(hosts, Faults(), SHORT, at=8)
    result = killed(hosts, Faults(OnFailure.CONTINUE), SHORT, at=8)
    assert [len(c.indices) for c in result.coresets] == [10] * 5
    assert [(a.phase, a.worker) for a in result.absences][:2] == [("read", 1), ("read", 3)]


def test_with_kept_states_nothing_is_lost(hosts: Hosts, tmp_path: Path) -> None:
    settings = SHORT | {"sharing": {"exchanges": 1}}
    faults = Faults(OnFailure.WAIT, pause=0.1)
    with kept_in(hosts, tmp_path):
        result = killed(hosts, faults, settings)
    whole = run(selector(**settings), SHARDS, W, gather=IN_TURN)
    assert torch.equal(result.solution.w, whole.solution.w)
    assert all(torch.equal(a.indices, b.indices) for a, b in zip(result.coresets, whole.coresets, strict=True))
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"worker-{i}.safetensors" for i in range(5)]


def test_killed_in_the_midst_of_an_iteration_nothing_is_lost_either(hosts: Hosts, tmp_path: Path) -> None:
    """Shards are large enough for sums to depend on their order: a state whose parts were one tensor is to stay so."""

    class Struck(RayFleet):
        def ask(self, phase: str, message: Message) -> list[Message]:
            replies = super().ask(phase, message)
            if phase == "refine" and self.exchange.serial == 9:
                kill(hosts, 1)
            return replies

    shards, chosen = digits(250), selector(stopping={"iterations": 8}, sharing={"exchanges": 2})
    with kept_in(hosts, tmp_path):
        there = partial(Struck, faults=Faults(OnFailure.WAIT, pause=0.1), hosts=hosts)
        result = run(chosen, shards, W, gather=there)
    whole = run(chosen, shards, W, gather=IN_TURN)
    assert torch.equal(result.solution.w, whole.solution.w)
    assert all(torch.equal(a.indices, b.indices) for a, b in zip(result.coresets, whole.coresets, strict=True))


@contextmanager
def kept_in(hosts: Hosts, folder: Path) -> Iterator[None]:
    before = hosts._cluster
    hosts._cluster = replace(before, folder=str(folder))
    yield
    hosts._cluster = before


@dataclass(frozen=True)
class Counting:
    """Adds what it is sent to what it has; fails or sleeps if told so. A state that can be seen through its answers."""

    entries = ("add", "break", "sleep")

    def program(self) -> Counting:
        return self

    def start(self, shard: Shard) -> float:
        return float(shard.worker)

    def run(self, phase: str, shard: Shard, state: float, message: Message) -> tuple[float, Message]:
        if phase == "break" and shard.worker == 2:
            msg = "no power"
            raise OSError(msg)
        if phase == "sleep" and shard.worker % 2 == 1:
            time.sleep(30)
        state += float(message.vectors["w"].sum())
        return state, Message({"w": message.vectors["w"]}, {"state": state, "pid": float(os.getpid())})

    def lead(self, ask: Ask, w: torch.Tensor, on_round: OnRound) -> Solution:  # noqa: ARG002
        return Solution(w, (), Stopped.ITERATIONS)

    def coreset(self, shard: Shard, state: float) -> Coreset:  # noqa: ARG002
        return Coreset(torch.tensor([int(state)]), torch.ones(1))


ONES = Message({"w": torch.ones(4)})


@pytest.fixture
def counting(hosts: Hosts) -> Iterator[RayFleet]:
    pickled = library().cloudpickle
    pickled.register_pickle_by_value(sys.modules[__name__])
    yield RayFleet(Counting(), SHARDS, hosts=hosts)
    pickled.unregister_pickle_by_value(sys.modules[__name__])


def test_states_stay_where_the_workers_are(counting: RayFleet) -> None:
    replies = [counting.ask("add", ONES) for _ in range(2)]
    assert [[r.scalars["state"] for r in round_] for round_ in replies] == [[4, 5, 6, 7, 8], [8, 9, 10, 11, 12]]
    pids = [r.scalars["pid"] for r in replies[0]]
    assert pids[0] == pids[2] == pids[4] != pids[1] == pids[3]
    assert os.getpid() not in pids
    assert pids == [r.scalars["pid"] for r in replies[1]]
    assert [int(c.indices) for c in counting.coresets(Counting())] == [8, 9, 10, 11, 12]


def test_a_worker_that_raises_is_named_and_the_others_have_moved(counting: RayFleet) -> None:
    with pytest.raises(WorkerFailedError, match="Worker 2 failed in phase `break`: OSError: no power") as caught:
        counting.ask("break", ONES)
    assert "in run" in "".join(caught.value.__cause__.__notes__)  # type: ignore[union-attr]  # where it was raised
    assert [r.scalars["state"] for r in counting.ask("add", ONES)] == [8, 9, 6, 11, 12]


def test_a_state_that_cannot_be_kept_is_said_at_the_start(hosts: Hosts, tmp_path: Path) -> None:
    with kept_in(hosts, tmp_path), pytest.raises(WorkerFailedError, match="Worker 0 failed in phase `start`: Snapshot"):
        run(selector("gcfl"), SHARDS, W, gather=partial(RayFleet, hosts=hosts))


def test_death_is_noticed_at_once_and_lateness_in_time(counting: RayFleet, hosts: Hosts) -> None:
    pid = int(counting.ask("add", ONES)[1].scalars["pid"])
    threading.Timer(0.5, os.kill, (pid, signal.SIGKILL)).start()
    began = time.monotonic()
    with pytest.raises(WorkerFailedError, match="Worker 1 failed in phase `sleep`: its process died"):
        counting.ask("sleep", ONES)
    assert time.monotonic() - began < 10  # two workers would have slept for 30 seconds, one after the other
    hosts.start(Counting(), SHARDS)
    before, hosts._cluster = hosts._cluster, replace(hosts._cluster, seconds=0.5)
    with pytest.raises(WorkerFailedError, match=r"Worker 1 failed in phase `sleep`: no answer within 0\.5 s"):
        counting.ask("sleep", ONES)
    hosts._cluster = before
    hosts._end(1)  # who sleeps is not to be waited for


@pytest.mark.parametrize(("threads", "each"), [(2, 2), (None, 1)])
def test_processes_get_the_threads_that_were_asked_for(threads: int | None, each: int) -> None:
    gather = gather_of(Federation(Engine.RAY, "auto", "states"), threads)
    assert isinstance(gather, partial)
    assert gather.keywords["cluster"] == Cluster("auto", threads=each, folder="states")


def test_vectors_cross_unchanged() -> None:
    sent = Message({"w": torch.tensor([1.5, -2.0]), "keys": torch.tensor([2**62 + 1])}, {"t": 3.0})
    came = unpacked(packed(sent))
    assert all(torch.equal(came.vectors[n], v) and came.vectors[n].dtype == v.dtype for n, v in sent.vectors.items())
    assert came.scalars == {"t": 3.0}


@pytest.mark.parametrize(
    ("each", "threads", "share"), [(2 / 200, 1, 0.01), (2 / 3, 1, 0.6666), (4.5, 2, 2), (1.5, 4, 1)]
)
def test_processes_ask_for_what_there_is(each: float, threads: int, share: float) -> None:
    assert processor_share(each, threads) == share


def test_without_the_library_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("f2cto.cluster.connection.find_spec", lambda _: None)
    with pytest.raises(SettingsError, match=r'pip install "f2cto\[ray\]"'):
        ray_fleet()(selector(), SHARDS)


@pytest.mark.parametrize(
    ("address", "said"),
    [("127.0.0.1:1", "no Ray cluster at `127.0.0.1:1`"), ("head", "`auto` or HOST:PORT; got `head`")],
)
def test_where_no_cluster_is(address: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        connection._check(address)


@pytest.mark.parametrize("wrong", [{"processes": -1}, {"threads": 0}, {"seconds": 0.0}])
def test_senseless_clusters(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="processes >= 0, threads >= 1 and seconds > 0"):
        Cluster(**wrong)
