"""What becomes of a round when workers fail, over a carrier that fails as it is told to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from f2cto.federation.carrier import Answers, Call
from f2cto.federation.engine import WorkerFailedError
from f2cto.federation.exchange import Exchange, TooFewWorkersError
from f2cto.federation.faults import Faults, OnFailure
from f2cto.federation.in_process import Workers
from f2cto.message import Message

W = torch.arange(3.0)
Fails = Callable[[int, int], "Message | Exception | None"]  # of worker and attempt; none: it answers


@dataclass
class Shaky:
    """Three workers that answer with their number; some attempts go wrong."""

    fails: Fails
    workers: int = 3
    asked: list[tuple[str, int, tuple[int, ...]]] = field(default_factory=list)

    def carry(self, call: Call, to: Sequence[int]) -> Answers:
        attempt = len(self.asked)
        self.asked.append((call.phase, call.serial, tuple(to)))
        found = {i: self.fails(i, attempt) or Message({"w": W + i}, {"number": float(i)}) for i in to}
        return {i: reply for i, reply in found.items() if not isinstance(reply, TimeoutError)}


def engine(fails: Fails, policy: str, least: int = 0, patience: float = 5.0) -> tuple[Shaky, Exchange]:
    carrier = Shaky(fails)
    return carrier, Exchange(carrier, Faults(OnFailure(policy), least, patience, pause=0.01), entries=("refine",))


def numbers(replies: Sequence[Message]) -> list[float]:
    return [reply.scalars["number"] for reply in replies]


def vector(value: float) -> Tensor:
    return torch.tensor([value, 0.0, 0.0])


FAILURES: dict[str, tuple[Message | Exception, str]] = {
    "dies": (RuntimeError("no power"), "no power"),
    "keeps silent": (TimeoutError(), "no answer"),
    "sends NaN": (Message({"w": vector(float("nan"))}, {"number": 1.0}), "sent NaN or infinite numbers in `w`"),
    "sends an infinite scalar": (Message({"w": W}, {"number": float("inf")}), "sent inf for `number`"),
    "sends another shape": (
        Message({"w": torch.ones(4)}, {"number": 1.0}),
        "sent w of length 4 and the numbers number, and most sent w of length 3 and the numbers number",
    ),
    "sends nothing": (
        Message(),
        "sent no vectors and no numbers, and most sent w of length 3 and the numbers number",
    ),
    "has no weight": (Message({"w": W}, {"number": 1.0, "weight": 0.0}), "sent 0.0 for `weight`"),
}


@pytest.mark.parametrize(("failure", "why"), FAILURES.values(), ids=FAILURES)
def test_one_failing_worker_under_each_policy(failure: Message | Exception, why: str) -> None:
    def once(worker: int, attempt: int) -> Message | Exception | None:
        return failure if (worker, attempt) == (1, 0) else None

    _, stops = engine(once, "stop")
    with pytest.raises(WorkerFailedError, match="Worker 1 failed in phase `refine`") as caught:
        stops.ask("refine", Message({"w": W}))
    assert why in str(caught.value)

    _, goes_on = engine(once, "continue")
    assert numbers(goes_on.ask("refine", Message({"w": W}))) == [0, 2]
    assert [(a.serial, a.phase, a.worker, a.why) for a in goes_on.absences] == [(1, "refine", 1, why)]

    carrier, waits = engine(once, "wait")
    if isinstance(failure, Message):  # who has answered repeats its answer: there is nothing to wait for
        with pytest.raises(TooFewWorkersError, match="Worker 1: sent"):
            waits.ask("refine", Message({"w": W}))
        assert len(carrier.asked) == 1
        return
    assert numbers(waits.ask("refine", Message({"w": W}))) == [0, 1, 2]
    assert waits.absences == []
    assert carrier.asked == [("refine", 1, (0, 1, 2)), ("refine", 1, (1,))]  # the same question, to the one alone


def test_who_missed_a_phase_sits_out_until_the_next_entry() -> None:
    carrier, exchange = engine(lambda i, n: RuntimeError("gone") if (i, n) == (2, 0) else None, "continue")
    for phase in ("refine", "update", "refine", "update"):
        exchange.ask(phase, Message({"w": W}))
    assert [to for _, _, to in carrier.asked] == [(0, 1, 2), (0, 1), (0, 1, 2), (0, 1, 2)]
    assert [(a.serial, a.why) for a in exchange.absences] == [(1, "gone"), (2, "sat out the rest of the round")]


def test_too_few_workers_end_the_run() -> None:
    _, exchange = engine(lambda i, _: RuntimeError("gone") if i else None, "continue")
    with pytest.raises(TooFewWorkersError, match=r"Only 1 of 3 workers answered `refine`, and 2 are needed.*1, 2"):
        exchange.ask("refine", Message())
    _, modest = engine(lambda i, _: RuntimeError("gone") if i else None, "continue", least=1)
    assert numbers(modest.ask("refine", Message())) == [0]


def test_waiting_ends_when_patience_does() -> None:
    carrier, exchange = engine(lambda i, _: RuntimeError("gone") if i == 0 else None, "wait", patience=0.1)
    with pytest.raises(TooFewWorkersError, match="Worker 0: gone"):
        exchange.ask("refine", Message())
    assert len(carrier.asked) > 2
    assert {to for _, _, to in carrier.asked[1:]} == {(0,)}


def test_waiting_for_fewer_goes_on_without_the_rest() -> None:
    carrier, exchange = engine(lambda i, _: RuntimeError("gone") if i == 0 else None, "wait", least=2)
    assert numbers(exchange.ask("refine", Message())) == [1, 2]
    assert len(carrier.asked) == 1
    assert [a.worker for a in exchange.absences] == [0]


def test_nobody_is_blamed_where_all_diverge() -> None:
    _, exchange = engine(lambda *_: Message({"w": vector(float("nan"))}), "stop")
    assert len(exchange.ask("refine", Message())) == 3


def test_a_method_that_needs_everyone_refuses_to_continue_without() -> None:
    with pytest.raises(ValueError, match="needs every worker in every round"):
        Exchange(Shaky(lambda *_: None), Faults(OnFailure.CONTINUE))
    with pytest.raises(ValueError, match="needs every worker in every round"):
        Exchange(Shaky(lambda *_: None), Faults(OnFailure.WAIT, least=2))
    with pytest.raises(ValueError, match="at least 4 workers, and there are 3"):
        engine(lambda *_: None, "wait", least=4)


def test_traffic_counts_what_was_really_sent() -> None:
    _, exchange = engine(lambda i, n: TimeoutError() if (i, n) == (1, 0) else None, "wait")
    exchange.ask("refine", Message({"w": W}))
    assert (exchange.traffic.down.messages, exchange.traffic.up.messages) == (4, 3)
    assert (exchange.traffic.down.floats, exchange.traffic.up.floats) == (12, 9)


def test_of_two_that_differ_the_one_like_the_question_is_right() -> None:
    carrier = Shaky(lambda i, _: Message({"w": torch.ones(4)}, {"number": 0.0}) if i == 0 else None, workers=2)
    exchange = Exchange(carrier, Faults(OnFailure.CONTINUE, least=1), entries=("refine",))
    assert numbers(exchange.ask("refine", Message({"w": W}))) == [1]


@dataclass(frozen=True)
class Counting:
    """Counts how often it was asked."""

    entries = ("add",)

    def start(self, shard: int) -> int:
        return shard

    def run(self, phase: str, shard: int, state: int, message: Message) -> tuple[int, Message]:  # noqa: ARG002
        return state + 1, Message({}, {"number": state + 1.0})


def test_workers_in_this_process_repeat_their_answers_too() -> None:
    carrier = Workers(Counting(), [0])
    call = Call("add", Message(), 1)
    assert [carrier.carry(call, [0])[0] for _ in range(2)] == [Message({}, {"number": 1.0})] * 2
    assert carrier.states == [1]
