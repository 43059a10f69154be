"""The carrier against nodes that behave as nodes can: they come and go, lie, fail and keep silent."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo

from f2cto.config import build
from f2cto.federation.carrier import Call
from f2cto.federation.faults import Absence
from f2cto.federation.wire import Array, Frame
from f2cto.flower import post
from f2cto.flower.grid import AFRESH, GridCarrier
from f2cto.flower.post import AwayError, LostNodeError, Post, RefusedBySiteError, SuperLinkError, UnreadableError
from f2cto.message import Message as Vectors
from f2cto.run_settings import RunSettings
from f2cto.site.job import Job, job_from_text, job_of
from f2cto.site.schema import Schema
from testing.grids import SILENT, FailedError, MemoryGrid, app_of

SCHEMA = Schema(("a", "b"), shape=(4,))
JOB = job_of(build(RunSettings, {"workers": 3, "size": 2}), SCHEMA, "this-job")
CALL = Call("refine", Vectors({"w": torch.arange(4.0)}, {"t": 2.0}), 5)


class Played:
    """A site that answers as one would: its number in every vector, and only if it knows the job."""

    def __init__(self, number: int, *, schema: str = SCHEMA.digest, started: bool = True) -> None:
        self.number, self.schema, self.started = number, schema, started
        self.kinds = list[str]()
        self.asked = list[Frame]()

    def __call__(self, request: Frame) -> Frame:
        kind = request.head["kind"]
        self.kinds.append(kind)
        self.asked.append(request)
        if kind == "hello":
            return Frame({"number": self.number, "samples": 10 + self.number, "schema": self.schema})
        if kind == "start":
            assert job_from_text(request.head["job"]) == JOB
            self.started = True
            return Frame({"samples": 10})
        if not self.started:
            return Frame({"error": "This site is not at that job; send `start` first."})
        if kind == "ask" and "phase" not in request.head:
            return Frame({"error": "A question needs a phase and a serial number from 1 on."})
        if kind == "finish":
            return Frame({"kept": 2})
        return Frame({"scalars": {"gap": 0.5}}, {"w": request.arrays["w"] + np.float32(self.number)})


def federation(*sites: Played, first: int = 100) -> MemoryGrid:
    """Nodes in the opposite order of their sites."""
    grid = MemoryGrid()
    for place, site in enumerate(sites):
        grid.connect(first - place, app_of(site))
    return grid


def carrier_of(grid: MemoryGrid, seconds: float = 5.0, pause: float = 0.0, job: Job = JOB) -> GridCarrier:
    return GridCarrier(Post(grid, seconds, 0.01), job, pause)


def test_questions_go_to_the_sites_by_their_numbers() -> None:
    sites = [Played(i) for i in range(3)]
    carrier = carrier_of(federation(*sites))
    answers = carrier.carry(CALL, [0, 2])
    assert set(answers) == {0, 2}
    for i, answer in answers.items():
        assert isinstance(answer, Vectors)
        assert answer.scalars == {"gap": 0.5}
        assert answer.vectors["w"].tolist() == [i, 1 + i, 2 + i, 3 + i]
    assert carrier.workers == 3
    assert carrier.samples == {0: 10, 1: 11, 2: 12}
    assert [site.kinds for site in sites] == [["hello", "start", "ask"], ["hello"], ["hello", "start", "ask"]]
    expected = {"kind": "ask", "job": "this-job", "phase": "refine", "serial": 5, "scalars": {"t": 2.0}}
    assert sites[0].asked[-1].head == expected


def test_nobody_is_greeted_twice_while_all_are_there() -> None:
    sites = [Played(i) for i in range(3)]
    carrier = carrier_of(federation(*sites))
    for _ in range(3):
        carrier.carry(CALL, [0, 1, 2])
    assert [site.kinds.count("hello") for site in sites] == [1, 1, 1]


def test_every_message_has_an_end() -> None:
    grid = federation(*[Played(i) for i in range(3)])
    carrier_of(grid, seconds=7.0).carry(CALL, [0, 1, 2])
    assert {message.metadata.ttl for message in grid.sent} == {7.0}


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (2, AwayError, "boom"),
        (3, LostNodeError, "in time"),
        (4, LostNodeError, "in time"),
        (5, LostNodeError, "not connected"),
        (8, AwayError, "error 8"),
        (SILENT, LostNodeError, "within 0.1 s"),
    ],
)
def test_errors_are_those_of_the_one_that_was_asked(code: int, kind: type[Exception], said: str) -> None:
    grid = federation(*[Played(i) for i in range(3)])
    carrier = carrier_of(grid, seconds=0.1)
    carrier.start(range(3))

    def fails(*_: object) -> Message:
        raise FailedError(code, "boom")

    grid.nodes[99].app = fails
    answers = carrier.carry(CALL, [0, 1, 2])
    assert [type(answers[i]) for i in range(3)] == [Vectors, kind, Vectors]
    assert said in str(answers[1])


def test_the_deadline_holds_and_late_answers_are_not_mixed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = [Played(i) for i in range(3)]
    grid = federation(*sites)
    carrier = carrier_of(grid, seconds=0.2)
    carrier.start(range(3))
    late = dict[str, Message]()
    prompt = grid.pull_messages

    def slow(numbers: Iterable[str]) -> Iterable[Message]:
        got = list(prompt(numbers))
        late.update({m.metadata.reply_to_message_id: m for m in got if m.metadata.src_node_id == 99})
        return [m for m in got if m.metadata.src_node_id != 99]

    monkeypatch.setattr(grid, "pull_messages", slow)
    began = time.monotonic()
    answers = carrier.carry(CALL, [0, 1, 2])
    assert 0.2 <= time.monotonic() - began < 2
    assert isinstance(answers[1], LostNodeError)
    monkeypatch.setattr(grid, "pull_messages", lambda numbers: [*late.values(), *prompt(numbers)])
    again = carrier.carry(CALL, [0, 1, 2])
    assert all(isinstance(again[i], Vectors) for i in range(3))


def test_a_node_that_comes_back_as_another_is_found() -> None:
    sites = [Played(i) for i in range(3)]
    grid = federation(*sites)
    carrier = carrier_of(grid)
    carrier.carry(CALL, [0, 1, 2])
    del grid.nodes[99]
    gone = carrier.carry(CALL, [0, 1, 2])
    assert isinstance(gone[1], LostNodeError)
    still = carrier.carry(CALL, [0, 1, 2])
    assert "no connected node has site 1" in str(still[1])
    assert isinstance(still[0], Vectors)
    grid.connect(7, app_of(sites[1]))
    assert all(isinstance(answer, Vectors) for answer in carrier.carry(CALL, [0, 1, 2]).values())
    assert sites[0].kinds.count("hello") == 1


def test_the_same_node_is_found_again() -> None:
    sites = [Played(i) for i in range(3)]
    grid = federation(*sites)
    carrier = carrier_of(grid)
    carrier.carry(CALL, [0, 1, 2])
    node = grid.nodes.pop(99)
    carrier.carry(CALL, [0, 1, 2])
    grid.nodes[99] = node
    assert all(isinstance(answer, Vectors) for answer in carrier.carry(CALL, [0, 1, 2]).values())


def test_a_node_whose_site_is_away_is_not_greeted_in_every_round() -> None:
    def nobody(_: Frame) -> Frame:
        greetings.append(1)
        return Frame({"error": "The site's process does not answer.", "away": True})

    greetings = list[int]()
    grid = federation(Played(0), Played(2))
    grid.connect(5, app_of(nobody))
    carrier = carrier_of(grid, pause=60)
    for _ in range(3):
        answers = carrier.carry(CALL, [0, 1, 2])
        assert "node 5: The site's process does not answer." in str(answers[1])
    assert len(greetings) == 1


def test_a_site_that_is_away_keeps_its_node() -> None:
    sites = [Played(i) for i in range(3)]
    grid = federation(*sites)
    carrier = carrier_of(grid)
    carrier.carry(CALL, [0, 1, 2])
    there = grid.nodes[99].app
    grid.nodes[99].app = app_of(lambda _: Frame({"error": "Nobody listens.", "away": True}))
    answer = carrier.carry(CALL, [0, 1, 2])[1]
    assert isinstance(answer, AwayError)
    assert str(answer) == "Nobody listens."
    grid.nodes[99].app = there
    assert isinstance(carrier.carry(CALL, [1])[1], Vectors)
    assert sites[1].kinds.count("hello") == 1


def test_a_site_that_lost_the_job_is_told_before_it_is_asked_again() -> None:
    sites = [Played(0), Played(1), Played(2)]
    carrier = carrier_of(federation(*sites))
    carrier.start(range(3))
    sites[1].started = False
    answers = carrier.carry(CALL, [0, 1, 2])
    assert isinstance(answers[1], Vectors)
    assert sites[1].kinds == ["hello", "start", "ask", "start", "ask"]
    assert sites[0].kinds == ["hello", "start", "ask"]
    assert carrier.lost == [Absence(5, "refine", 1, "had lost its state and started afresh")]


def test_a_site_that_was_never_told_the_job_is_told_before_it_is_asked_and_has_lost_nothing() -> None:
    sites = [Played(0), Played(1, started=False)]
    carrier = carrier_of(federation(*sites))
    carrier.start([0])
    assert isinstance(carrier.carry(CALL, [0, 1])[1], Vectors)
    assert [site.kinds for site in sites] == [["hello", "start", "ask"]] * 2
    assert carrier.lost == []


@pytest.mark.parametrize("forgot", [True, False])
def test_a_site_that_failed_is_not_sent_parameters_until_it_knows_the_job(*, forgot: bool) -> None:
    sites = [Played(0), Played(1)]
    grid = federation(*sites)
    carrier = carrier_of(grid)
    carrier.carry(replace(CALL, serial=4), [0, 1])
    there = grid.nodes[99].app
    grid.nodes[99].app = app_of(lambda _: Frame({"error": "Nobody listens.", "away": True}))
    assert isinstance(carrier.carry(CALL, [0, 1])[1], AwayError)
    grid.nodes[99].app, sites[1].started, seen = there, not forgot, len(sites[1].asked)
    assert isinstance(carrier.carry(CALL, [1])[1], Vectors)
    after = sites[1].asked[seen:]
    assert [frame.head["kind"] for frame in after] == (["ask", "start", "ask"] if forgot else ["ask", "ask"])
    assert not after[0].arrays
    assert carrier.lost == ([Absence(5, "refine", 1, AFRESH)] if forgot else [])
    seen = len(sites[1].asked)
    carrier.carry(CALL, [1])
    assert len(sites[1].asked) == seen + 1  # it is trusted again


def test_before_the_second_question_there_is_no_state_to_lose() -> None:
    sites = [Played(0)]
    carrier = carrier_of(federation(*sites))
    carrier.start([0])
    sites[0].started = False
    assert isinstance(carrier.carry(replace(CALL, serial=1), [0])[0], Vectors)
    assert carrier.lost == []


def test_refusals_are_the_sites_own_words() -> None:
    grid = federation(Played(0))
    carrier = carrier_of(grid)
    carrier.start([0])
    grid.nodes[100].app = app_of(lambda _: Frame({"error": "The vector `w` holds NaN."}))
    answer = carrier.carry(CALL, [0])[0]
    assert isinstance(answer, RefusedBySiteError)
    assert str(answer) == "The vector `w` holds NaN."


def test_two_nodes_that_claim_one_number_are_named_and_none_is_taken() -> None:
    grid = federation(Played(0), Played(1), Played(1))
    carrier = carrier_of(grid)
    missing = carrier.look_for(range(3))
    assert set(missing) == {1, 2}
    assert all("Site 1 is claimed by the nodes 98 and 99" in said for said in carrier.misfits())
    assert len(carrier.misfits()) == 2


def test_who_claims_a_taken_number_later_does_not_get_it() -> None:
    sites = [Played(i) for i in range(2)]
    grid = federation(*sites)
    carrier = carrier_of(grid)
    carrier.carry(CALL, [0, 1])
    intruder = Played(0)
    grid.connect(7, app_of(intruder))
    assert set(carrier.look_for(range(3))) == {2}
    assert "claimed by the nodes 7 and 100" in carrier.misfits()[0]
    carrier.carry(CALL, [0, 1])
    assert intruder.kinds == ["hello"]
    assert sites[0].kinds.count("ask") == 2


def test_another_schema_is_a_misfit_and_another_number_none() -> None:
    carrier = carrier_of(federation(Played(0), Played(1, schema="f" * 64), Played(9)))
    missing = carrier.look_for(range(3))
    assert set(missing) == {1, 2}
    assert len(carrier.misfits()) == 1
    assert "schema ffffffffffff" in carrier.misfits()[0]
    assert "it has site 9" in str(missing[2])


@pytest.mark.parametrize(
    ("names", "fit"),
    [
        ({100: "site-0", 99: "site-1"}, {0, 1}),
        ({100: "site-0", 99: "site-0"}, {0}),
        ({100: "a", 99: ""}, {0, 1}),
        ({99: "site-10"}, {0}),
    ],
)
def test_a_node_has_the_site_that_it_is_registered_as(
    names: dict[int, str], fit: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = federation(Played(0), Played(1))
    monkeypatch.setattr(grid, "get_nodes", lambda: [NodeInfo(node_id=node, name=name) for node, name in names.items()])
    carrier = carrier_of(grid)
    assert set(carrier.look_for(range(2))) == {0, 1} - fit
    assert len(carrier.misfits()) == 2 - len(fit)
    if 1 not in fit:
        assert f"The node 99 is registered as {names[99]} and has site 1" in carrier.misfits()[0]


def test_who_claims_anothers_number_does_not_keep_the_other_out(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = federation(Played(1), Played(1))
    named = [NodeInfo(node_id=100, name="site-1"), NodeInfo(node_id=99, name="site-0")]
    monkeypatch.setattr(grid, "get_nodes", lambda: named)
    carrier = carrier_of(grid)
    assert carrier.look_for([1]) == {}
    assert len(carrier.misfits()) == 1


ODD: dict[str, tuple[dict[str, Any], dict[str, Array]]] = {
    "no scalars": ({}, {}),
    "scalars in a list": ({"scalars": [1]}, {}),
    "texts": ({"scalars": {"gap": "small"}}, {}),
    "truth": ({"scalars": {"gap": True}}, {}),
    "nothing": ({"scalars": {"gap": None}}, {}),
    "no float": ({"scalars": {"gap": 10**400}}, {}),
}


@pytest.mark.parametrize(("head", "arrays"), ODD.values(), ids=ODD)
def test_odd_answers_are_errors(head: dict[str, Any], arrays: dict[str, Array]) -> None:
    grid = federation(Played(0))
    carrier = carrier_of(grid)
    carrier.start([0])
    grid.nodes[100].app = app_of(lambda _: Frame(head, arrays))
    assert isinstance(carrier.carry(CALL, [0])[0], UnreadableError)


def test_numbers_that_are_not_finite_are_for_the_engine_to_judge() -> None:
    grid = federation(Played(0))
    carrier = carrier_of(grid)
    carrier.start([0])
    grid.nodes[100].app = app_of(lambda _: Frame({"scalars": {"gap": float("nan")}}, {}))
    answer = carrier.carry(CALL, [0])[0]
    assert isinstance(answer, Vectors)
    assert math.isnan(answer.scalars["gap"])


def test_content_that_is_no_frame_is_an_error() -> None:
    grid = federation(Played(0))
    carrier = carrier_of(grid)
    carrier.start([0])
    grid.nodes[100].app = lambda m, _: Message(RecordDict({"rows": ConfigRecord({"x": 1})}), reply_to=m)
    assert isinstance(carrier.carry(CALL, [0])[0], UnreadableError)


@pytest.mark.parametrize("head", [{"number": "0"}, {"number": True}, {"number": -1}, {"schema": 3}, {"samples": None}])
def test_odd_greetings_are_no_sites(head: dict[str, Any]) -> None:
    grid = MemoryGrid()
    usual = {"number": 0, "samples": 3, "schema": SCHEMA.digest}
    grid.connect(4, app_of(lambda _: Frame(usual | head)))
    assert "node 4: its site introduced itself" in str(carrier_of(grid).look_for([0])[0])


def test_what_the_superlink_does_not_take_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = federation(*[Played(i) for i in range(3)])
    carrier = carrier_of(grid, seconds=30)
    carrier.start(range(3))
    usual = grid.push_messages
    monkeypatch.setattr(grid, "push_messages", lambda messages: [None, *list(usual(messages))[1:]])
    began = time.monotonic()
    answers = carrier.carry(CALL, [0, 1, 2])
    assert time.monotonic() - began < 5
    assert isinstance(answers[0], LostNodeError)
    assert isinstance(answers[2], Vectors)


@pytest.mark.parametrize("call", ["push_messages", "pull_messages", "get_node_ids", "get_nodes"])
def test_a_superlink_that_is_gone_is_said_to_be(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        msg = "connection refused"
        raise httpx.ConnectError(msg)

    grid = federation(Played(0))
    monkeypatch.setattr(grid, call, gone)
    with pytest.raises(SuperLinkError, match="SuperLink cannot be reached: connection refused"):
        carrier_of(grid).carry(CALL, [0])


def test_a_message_that_a_killed_node_took_with_it_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = federation(*[Played(i) for i in range(3)])
    carrier = carrier_of(grid, seconds=30)
    carrier.start(range(3))

    def silent(*_: object) -> Message:
        raise FailedError(SILENT)

    grid.nodes[99].app = silent
    monkeypatch.setattr(post, "LOOK", 0.05)
    monkeypatch.setattr(post, "GRACE", 0.3)
    soon = datetime.now(UTC) + timedelta(seconds=0.1)
    activated = {100: "2020-01-01T00:00:00+00:00", 98: "", 99: soon.isoformat()}
    infos = [NodeInfo(node_id=node, last_activated_at=moment) for node, moment in activated.items()]
    monkeypatch.setattr(grid, "get_nodes", lambda: infos)
    answers = carrier.carry(CALL, [0, 1])
    assert datetime.now(UTC) - soon >= timedelta(seconds=0.3)  # it had its chance
    assert "started anew" in str(answers[1])
    assert isinstance(answers[1], LostNodeError)
    assert isinstance(answers[0], Vectors)


def test_start_and_finish() -> None:
    carrier = carrier_of(federation(*[Played(i) for i in range(3)]))
    assert {i: dict(r.head) for i, r in carrier.start([0, 1, 2]).items() if isinstance(r, Frame)} == {
        i: {"samples": 10} for i in range(3)
    }
    finish = carrier.finish([1])[1]
    assert isinstance(finish, Frame)
    assert finish.head == {"kept": 2}


def test_a_node_that_was_started_before_the_message_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = federation(Played(0))
    carrier = carrier_of(grid, seconds=0.5)
    carrier.start([0])

    def silent(*_: object) -> Message:
        raise FailedError(SILENT)

    grid.nodes[100].app = silent
    monkeypatch.setattr(post, "LOOK", 0.05)
    monkeypatch.setattr(post, "GRACE", 0.0)
    before = (datetime.now(UTC) - timedelta(seconds=0.01)).isoformat()
    monkeypatch.setattr(grid, "get_nodes", lambda: [NodeInfo(node_id=100, last_activated_at=before)])
    assert "no answer within 0.5 s" in str(carrier.carry(CALL, [0])[0])
