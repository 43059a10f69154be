from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from f2cto.attacks.base import Range
from f2cto.config import build
from f2cto.data.dataset import LabelledData
from f2cto.federation.in_process import InProcess
from f2cto.federation.wire import Array, Frame, pack, unpack
from f2cto.message import Message
from f2cto.methods.base import Coreset, Shard
from f2cto.methods.catalogue import METHODS, method
from f2cto.run_settings import RunSettings
from f2cto.selection import select
from f2cto.site.host import Site
from f2cto.site.job import Job, job_of, job_text, prepared
from f2cto.site.reading import read_site
from f2cto.site.rules import Allowance, RefusedError, Rules, check_answer
from f2cto.site.schema import Schema
from f2cto.site.store import Store
from testing.quick import quick

Open = Callable[..., Site]
LENIENT = Rules(frozenset({Allowance.CLASS_SUMS}))
METHOD_SETTINGS = quick(rounds=2)


def job_for(name: str, schema: Schema, **others: Any) -> Job:
    quick = {
        "size": 4,
        "workers": 1,
        "network": {"hidden": [8]},
        "seed": 5,
        "method": name,
        "f2cto": {"weighting": {"draws": 5}, "stopping": {"iterations": 3}},
    }
    own = METHOD_SETTINGS.get(name)
    return job_of(build(RunSettings, quick | ({"methods": {name: own}} if own else {}) | others), schema, "a-job")


def asked(site: Site, head: dict[str, Any], arrays: dict[str, Array] | None = None) -> Frame:
    """Through the bytes, as over a socket."""
    return unpack(pack(site.answer(unpack(pack(Frame(head, arrays or {}))))))


def error(site: Site, head: dict[str, Any], arrays: dict[str, Array] | None = None) -> str:
    return str(asked(site, head, arrays).head["error"])


@dataclass
class Master:
    """Leads a job at one site; `restart` gives the site anew before each question, as if it had been killed."""

    site: Site
    job: Job
    restart: Callable[[], Site] | None = None
    serial: int = 0

    def __call__(self, phase: str, message: Message) -> list[Message]:
        self.serial += 1
        head = {"kind": "ask", "job": self.job.id, "phase": phase, "serial": self.serial}
        question = head | {"scalars": dict(message.scalars)}
        reply = asked(self.site, question, {n: v.numpy() for n, v in message.vectors.items()})
        if self.restart:
            self.site = self.restart()
            again = asked(self.site, question, {n: v.numpy() for n, v in message.vectors.items()})
            assert pack(again) == pack(reply)
        assert "error" not in reply.head, reply.head["error"]
        vectors: dict[str, Tensor] = {n: torch.from_numpy(a).clone() for n, a in reply.arrays.items()}
        return [Message(vectors, reply.head["scalars"])]

    def run(self) -> Tensor:
        assert asked(self.site, {"kind": "start", "job": job_text(self.job)}).head == {"samples": len(self.site.data)}
        made = prepared(self.job, self.site.schema)
        w = made.selector.lead(self, made.w, lambda _: None).w
        assert asked(self.site, {"kind": "finish", "job": self.job.id}).head == {"kept": 4}
        return w


def in_process(job: Job, data: LabelledData, schema: Schema) -> tuple[Coreset, Tensor]:
    """The same selection by `select`, which is what `f2cto select` calls."""
    made = prepared(job, schema)
    chosen = select(
        [data],
        int(job.size),
        model=made.network,
        settings=build(method(job.method).settings, job.settings),
        seed=job.seed,
        method=job.method,
        valid=made.valid,
        radius=job.radius,
        balance=job.balance,
    )
    w = torch.cat([p.detach().flatten() for p in chosen.model.parameters()])
    return Coreset(torch.from_numpy(chosen.indices[0]), torch.from_numpy(chosen.weights[0])), w


def kept(path: Path) -> list[tuple[int, str, float]]:
    with path.open() as file:
        return [(int(r["row"]), r["label"], float(np.float32(r["weight"]))) for r in csv.DictReader(file)]


def expected(coreset: Coreset, site: Site) -> list[tuple[int, str, float]]:
    pairs = zip(coreset.indices.tolist(), coreset.weights.tolist(), strict=True)
    rows, y = site.data.rows, site.data.samples.y
    return [(int(rows[i]), site.schema.classes[int(y[i])], weight) for i, weight in pairs]


@pytest.mark.parametrize("name", sorted({*METHODS} - {"f2cto-places"}))  # which no site runs
def test_every_method_survives_a_restart_after_every_question(
    name: str, opened: Open, schema: Schema, folder: Path
) -> None:
    """A site that is killed and started again after each answer selects, bit by bit, what one process selects."""
    job = job_for(name, schema)
    site = opened(LENIENT)
    w = Master(site, job, restart=lambda: opened(LENIENT)).run()
    coreset, theirs = in_process(job, site.data.samples, schema)
    assert kept(folder / "coreset.csv") == expected(coreset, site)
    assert (folder / "coreset.a-job.csv").read_bytes() == (folder / "coreset.csv").read_bytes()
    assert torch.equal(w, theirs)


def test_three_sites_are_a_federation(
    tmp_path: Path, schema: Schema, table: Callable[[int, int], pl.DataFrame]
) -> None:
    """Each with its own file, folder and number; the same as three workers of one process, bit by bit."""
    job, sites = job_for("f2cto", schema, workers=3), list[Site]()
    for number in range(3):
        (folder := tmp_path / str(number)).mkdir()
        table(number, 30 + number).write_parquet(folder / "own.parquet")
        sites.append(Site(read_site(folder / "own.parquet", "y", schema), schema, number, Store(folder)))
    masters = [Master(site, job) for site in sites]
    made = prepared(job, schema)
    for site in sites:
        asked(site, {"kind": "start", "job": job_text(job)})
    w = made.selector.lead(lambda *call: [m(*call)[0] for m in masters], made.w, lambda _: None).w
    parts = [(site.data.samples.x, site.data.samples.y) for site in sites]
    shards = [Shard(x, y, 4, made.model, i, job.seed, job.balance) for i, (x, y) in enumerate(parts)]
    engine = InProcess(made.selector.program(), shards)
    solution = made.selector.lead(lambda *call: list(map(copied, engine.ask(*call))), made.w, lambda _: None)
    assert torch.equal(w, solution.w)
    for site, shard, state in zip(sites, shards, engine.states, strict=True):
        assert asked(site, {"kind": "finish", "job": job.id}).head == {"kept": 4}
        assert kept(site.store.folder / "coreset.csv") == expected(made.selector.coreset(shard, state), site)


def copied(reply: Message) -> Message:
    """As if it had come over a wire: the mean of three copies of w is w up to rounding, that of w thrice is w."""
    return replace(reply, vectors={name: vector.clone() for name, vector in reply.vectors.items()})


def test_one_exchange_an_iteration_and_private_messages(opened: Open, schema: Schema, folder: Path) -> None:
    """Noise is not drawn again when an answer was lost: `Master` compares the bytes."""
    sharing = {"exchanges": 1, "privacy": {"clip": 1.0, "noise": 0.1}}
    quick = {"weighting": {"draws": 5}, "stopping": {"iterations": 3}, "sharing": sharing}
    Master(opened(), job_for("f2cto", schema, f2cto=quick), restart=opened).run()
    assert len(kept(folder / "coreset.csv")) == 4


def test_hello(opened: Open, schema: Schema) -> None:
    head = {"number": 2, "samples": 40, "schema": schema.digest}
    assert asked(opened(number=2), {"kind": "hello"}).head == head


def question(job: Job, schema: Schema, serial: int = 1, **others: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    head = {"kind": "ask", "job": job.id, "phase": "refine", "serial": serial, "scalars": {"t": 0.0}} | others
    return head, {"w": prepared(job, schema).w.numpy()}


@pytest.fixture
def started(opened: Open, job: Job) -> Site:
    site = opened()
    assert "error" not in asked(site, {"kind": "start", "job": job_text(job)}).head
    return site


def test_the_same_job_again_goes_on_and_another_starts_afresh(started: Site, job: Job, schema: Schema) -> None:
    first = asked(started, *question(job, schema))
    assert asked(started, {"kind": "start", "job": job_text(job)}).head == {"samples": 40}
    update, _ = question(job, schema, serial=2, phase="update")
    assert "w" in asked(started, update, {"w_hat": first.arrays["w_hat"]}).arrays
    assert "called `a-job` too" in error(started, {"kind": "start", "job": job_text(replace(job, seed=9))})
    other = replace(job, id="b-job")
    asked(started, {"kind": "start", "job": job_text(other)})
    assert "not at that job" in error(started, *question(job, schema))
    assert pack(asked(started, *question(other, schema))) == pack(first)


def test_a_site_that_missed_questions_joins_at_an_entry(started: Site, job: Job, schema: Schema) -> None:
    asked(started, *question(job, schema))
    late, arrays = question(job, schema, serial=9)
    assert error(started, late | {"phase": "update"}, {"w_hat": arrays["w"]}) == (
        "This site has answered question 1 last and cannot answer 9 now; it can join again at refine or iterate."
    )
    assert "w_hat" in asked(started, late, arrays).arrays


def test_a_question_of_long_ago_moves_nothing(started: Site, job: Job, schema: Schema) -> None:
    asked(started, *question(job, schema, serial=5))
    before = pack(asked(started, *question(job, schema, serial=5)))
    assert "has answered question 5 last and cannot answer 3 now" in error(started, *question(job, schema, serial=3))
    assert pack(asked(started, *question(job, schema, serial=5))) == before


@pytest.mark.parametrize(
    ("change", "arrays", "complaint"),
    [
        ({"phase": "dump"}, None, "Site 0 failed (ValueError); its own log says where."),
        ({"phase": 5}, None, "needs a phase and a serial number"),
        ({"serial": 0}, None, "needs a phase and a serial number"),
        ({"serial": True}, None, "needs a phase and a serial number"),
        ({"serial": 1.5}, None, "needs a phase and a serial number"),
        ({"scalars": [1]}, None, "finite numbers by name"),
        ({"scalars": {"t": "0"}}, None, "finite numbers by name"),
        ({"scalars": {"t": float("nan")}}, None, "finite numbers by name"),
        ({"scalars": {"t": 10**400}}, None, "finite numbers by name"),
        ({"job": "other"}, None, "not at that job"),
        ({"kind": "eval"}, None, "answers hello, start, ask, finish"),
        ({"kind": ["ask"]}, None, "answers hello, start, ask, finish"),
        ({}, {"w": np.zeros(3, np.float32)}, "the model has"),
        ({}, {"w": np.zeros((75, 1), np.float32)}, "the model has"),
        ({}, {"w": np.full(75, np.nan, np.float32)}, "NaN or infinite"),
        ({}, {}, "Site 0 failed (KeyError)"),
        ({}, {"w": np.zeros(75, np.int64)}, "Site 0 failed"),
    ],
)
def test_refused_questions_move_nothing(
    started: Site, job: Job, schema: Schema, change: dict[str, Any], arrays: dict[str, Array] | None, complaint: str
) -> None:
    head, usual = question(job, schema)
    assert len(usual["w"]) == 75
    assert complaint in error(started, head | change, usual if arrays is None else arrays)
    assert "error" not in asked(started, head, usual).head


def test_requests_are_as_large_as_the_job_needs(opened: Open, started: Site) -> None:
    assert started.limit - opened().limit == 0  # a restarted site is at the job again
    assert 2**22 < started.limit < 2**22 + 16 * 1024


def test_failures_are_told_to_the_owner_only(started: Site, job: Job, schema: Schema) -> None:
    head, arrays = question(job, schema)
    asked(started, head | {"phase": "dump"}, arrays)
    assert started.trouble.startswith("ValueError in ")
    asked(started, {"kind": "hello"})
    assert started.trouble == ""


def test_refused_jobs(opened: Open, job: Job, schema: Schema) -> None:
    site = opened(Rules(most=0.05))
    assert "keeps 4 of this site's 40 samples" in error(site, {"kind": "start", "job": job_text(job)})
    assert "counted from 0, and this one is number 3" in error(
        opened(number=3), {"kind": "start", "job": job_text(job)}
    )
    places = replace(job, method="f2cto", settings={"choice": "places"})
    assert "place by place" in error(opened(LENIENT), {"kind": "start", "job": job_text(places)})
    sums = {"kind": "start", "job": job_text(job_for("fedcs", schema))}
    assert "sends sums over classes" in error(opened(), sums)
    assert "error" not in asked(opened(LENIENT), sums).head


@pytest.mark.parametrize(("low", "high"), [(0.4, 0.5), (-1.0, 2.0), (0.0, 1.1), (-0.1, 1.0)])
def test_a_range_is_held_against_the_sites_own_and_not_the_data(
    low: float, high: float, opened: Open, job: Job
) -> None:
    """Else a master that asks for one range after the other would find the largest value."""
    order = {"kind": "start", "job": job_text(replace(job, range=Range(low, high, (1,))))}
    said = f"The job's range is [{low:g}, {high:g}], and this site was started with [0, 1]."
    assert error(opened(), order) == said
    assert "error" not in asked(opened(Rules(range=Range(low, high))), order).head


def test_nothing_is_selected_before_anything_was_asked(started: Site, job: Job) -> None:
    assert "has answered no question" in error(started, {"kind": "finish", "job": job.id})


@pytest.mark.parametrize(
    "reply",
    [
        Message({"x": torch.zeros(40)}),
        Message({"x": torch.zeros(75, 1)}),
        Message({"x": torch.zeros(40, 5)}),
        Message({"w": torch.zeros(75), "y": torch.zeros(3)}),
        Message({}, {f"alpha.{i}": 0.0 for i in range(40)}),
    ],
)
def test_answers_that_are_none_of_the_method_are_held_back(
    started: Site, job: Job, schema: Schema, folder: Path, reply: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = started._running
    assert running is not None
    monkeypatch.setattr(running.worker, "_program", Leaking(reply))
    for _ in range(2):  # asked again, it is held back again
        assert "held back" in error(started, *question(job, schema))
    assert not (folder / "state.safetensors").exists()


class Leaking:
    """A method with a mistake in it."""

    def __init__(self, reply: Message) -> None:
        self.reply = reply

    def start(self, shard: object) -> None:
        pass

    def run(self, phase: str, shard: object, state: object, message: Message) -> tuple[object, Message]:  # noqa: ARG002
        return state, self.reply


def test_sums_over_classes_are_not_as_long_as_the_data(schema: Schema) -> None:
    job = job_for("gcfl", schema)
    check_answer(Message({"counts": torch.zeros(3), "w": torch.zeros(75)}), job, 75, 40)
    with pytest.raises(RefusedError, match="held back"):
        check_answer(Message({"counts": torch.zeros(40)}), job, 75, 40)


# Checkpoints


def spoil_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


SPOILT: dict[str, Callable[[Path], object]] = {
    "cut short": lambda folder: spoil_half(folder / "state.safetensors"),
    "empty": lambda folder: (folder / "state.safetensors").write_bytes(b""),
    "text": lambda folder: (folder / "state.safetensors").write_bytes(b"hello" * 100),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_broken_checkpoint_is_set_aside(
    spoil: Callable[[Path], object], started: Site, opened: Open, job: Job, schema: Schema, folder: Path
) -> None:
    first = asked(started, *question(job, schema))
    spoil(folder)
    site = opened()
    assert any("is broken" in note and "aside-1" in note and "afresh" in note for note in site.notes)
    assert (folder / "aside-1" / "state.safetensors").exists()
    assert "has answered no question" in error(site, {"kind": "finish", "job": job.id})
    assert pack(asked(site, *question(job, schema))) == pack(first)
    assert opened().notes == ["At job `a-job` again, after question 1."]


def test_a_checkpoint_of_other_data_is_set_aside(
    started: Site, opened: Open, job: Job, schema: Schema, file: Path, tmp_path: Path
) -> None:
    asked(started, *question(job, schema))
    frame, changed = pl.read_parquet(file), tmp_path / "changed.parquet"
    frame.with_columns(pl.col("size").reverse()).write_parquet(changed)
    site = opened(data=changed)
    assert any("with other data or by another site" in note for note in site.notes)
    assert "cannot answer 2 now" in error(site, *question(job, schema, serial=2, phase="update"))


def test_a_checkpoint_of_another_site_or_job_is_foreign(started: Site, job: Job, schema: Schema, folder: Path) -> None:
    asked(started, *question(job, schema))
    store, about = Store(folder), started._about(job)
    assert store.state(about)
    for key in about:
        with pytest.raises(ValueError, match="belongs to another job, other data or another site"):
            store.state(about | {key: "other"})


def test_broken_questions_are_set_aside(opened: Open, schema: Schema, folder: Path) -> None:
    job = job_for("easy", schema)
    site = opened()
    master = Master(site, job)
    asked(site, {"kind": "start", "job": job_text(job)})
    w = prepared(job, schema).w
    master("train", Message({"w": w}))
    master("train", Message({"w": w}))
    spoil_half(folder / "calls" / "000000002.frame")
    site = opened()
    assert any("000000002.frame is broken" in note for note in site.notes)
    assert "has answered question 0 last and cannot answer 3 now." in error(
        site, {"kind": "ask", "job": job.id, "phase": "train", "serial": 3}, {"w": w.numpy()}
    )
    assert "has answered no question" in error(site, {"kind": "finish", "job": job.id})


@pytest.mark.parametrize("name", ["easy", "f2cto"])
def test_nothing_of_a_former_job_is_in_the_next(name: str, opened: Open, schema: Schema, folder: Path) -> None:
    job = job_for(name, schema)
    Master(opened(), job).run()
    before = (folder / "coreset.csv").read_bytes()
    site = opened()
    asked(site, {"kind": "start", "job": job_text(replace(job, id="b-job", seed=8))})
    site = opened()
    assert site.notes == ["At job `b-job` again, after question 0."]
    Master(site, replace(job, id="b-job", seed=8)).run()
    assert (folder / "coreset.csv").read_bytes() != before
    assert (folder / "coreset.a-job.csv").read_bytes() == before


def test_a_broken_job_is_none(started: Site, opened: Open, job: Job, schema: Schema, folder: Path) -> None:
    asked(started, *question(job, schema))
    for text in ("", "[]", "{}", '{"text": "{}"}'):
        (folder / "job.json").write_text(text)
        site = opened()
        assert "not at that job" in error(site, *question(job, schema))
    assert "error" not in asked(site, {"kind": "start", "job": job_text(job)}).head
    assert "error" not in asked(site, *question(job, schema)).head


def test_rules_hold_for_former_jobs_too(started: Site, opened: Open, job: Job, schema: Schema) -> None:
    asked(started, *question(job, schema))
    site = opened(Rules(most=0.05))
    assert any("was not gone on with: The job keeps 4" in note for note in site.notes)
    assert "not at that job" in error(site, *question(job, schema))
    assert opened().notes == ["At job `a-job` again, after question 1."]


def test_tensors_that_share_memory_come_back(folder: Path) -> None:
    a, store = torch.arange(6.0), Store(folder)
    state = {"a": a, "same": a, "view": a[2:4], "other": a.view(2, 3), "t": a.view(2, 3).T, "none": torch.empty(0)}
    store.save_state(state, {"job": "x"})
    back = store.state({"job": "x"})
    assert set(back) == set(state)
    assert all(torch.equal(back[name], state[name]) for name in state)
    large = torch.zeros(100_000)
    store.save_state({"p": large, "q": large, "r": large}, {})
    assert (folder / "state.safetensors").stat().st_size < 500_000


def test_nothing_selected_is_lost(folder: Path) -> None:
    store = Store(folder)
    for weight in (0.25, 0.5, 0.5, 1.0):
        store.write_coreset("a", [(7, "good", weight, "")])
    store.write_coreset("b", [(3, "bad", 1 / 3, "bad/1.png")])
    found = {path.name: path.read_text() for path in folder.glob("coreset*")}
    assert found == {
        "coreset.a.csv": "row,label,weight\n7,good,1\n",
        "coreset.a.1.csv": "row,label,weight\n7,good,0.25\n",
        "coreset.a.2.csv": "row,label,weight\n7,good,0.5\n",
        "coreset.b.csv": "row,label,weight,file\n3,bad,0.333333333,bad/1.png\n",
        "coreset.csv": "row,label,weight,file\n3,bad,0.333333333,bad/1.png\n",
    }


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
FLAT = LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(st.text(max_size=5), LEAVES, max_size=3)
JSON = FLAT | st.lists(FLAT, max_size=2) | st.dictionaries(st.text(max_size=5), FLAT, max_size=2)
KINDS = st.sampled_from(["hello", "start", "ask", "finish"]) | JSON


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.fixed_dictionaries(
        {"kind": KINDS},
        optional={
            "job": st.just("a-job") | JSON,
            "phase": st.sampled_from(["refine", "update", "iterate"]) | JSON,
            "serial": st.integers(1, 3) | JSON,
            "scalars": JSON,
        },
    ),
    st.dictionaries(
        st.sampled_from(["w", "w_hat", "x"]),
        st.sampled_from([np.zeros(75, np.float32), np.zeros(75), np.zeros(0), np.zeros((2, 2)), np.array(1.0)]),
    ),
)
def test_whatever_is_asked_gets_an_answer(started: Site, head: dict[str, Any], arrays: dict[str, Array]) -> None:
    reply = started.answer(Frame(head, arrays))
    pack(reply)
    said = json.dumps(dict(reply.head))
    assert all(array.shape == (75,) for array in reply.arrays.values())
    assert "parquet" not in said
    assert not {"good", "bad", "ugly", "tcp"} & set(said.split())
