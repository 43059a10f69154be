"""Workers that miss a part of the search, whatever part it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from f2cto.federation.faults import Faults, OnFailure
from f2cto.federation.in_process import InProcess
from f2cto.message import Message
from testing.shards import federation
from testing.sparse import Absent, heard, shortened, sparse

short = pytest.fixture(shortened)
Missing = Callable[[int, str, Message], bool]
AWAY: dict[str, Missing] = {
    "all of training on everything": lambda i, phase, _: i == 1 and phase == "everything",
    "a part of it": lambda i, phase, m: i == 1 and phase == "everything" and m.scalars["round"] == 1,
    "its end": lambda i, phase, _: i == 2 and phase == "propose",
    "both": lambda i, phase, _: i == 1 and phase in {"everything", "propose"},
    "a round on candidates": lambda i, phase, m: i == 0 and phase == "candidates" and m.scalars["round"] == 1,
    "the last value": lambda i, phase, m: i == 2 and phase == "value" and m.scalars["rung"] == 2,
    "all but the end": lambda i, phase, _: i == 1 and phase != "keep",
}


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("when", AWAY.values(), ids=AWAY)
def test_who_was_away_keeps_the_winner_all_the_same(when: Missing) -> None:
    shards = federation()
    made = sparse(shards)
    engine = InProcess(Absent(made.program(), when), shards, Faults(OnFailure.CONTINUE))
    _, crossed = heard(made, shards, engine.ask)
    assert engine.exchange.absences
    winner = int(crossed[-1][1].scalars["candidate"])
    assert [state.kept for state in engine.states] == [winner] * 3
    for shard, state in zip(shards, engine.states, strict=True):
        assert len(set(made.coreset(shard, state).indices.tolist())) == shard.size


@pytest.mark.usefixtures("short")
def test_who_is_never_reached_keeps_its_first_candidate() -> None:
    shards = federation()

    made = sparse(shards)
    engine = InProcess(Absent(made.program(), lambda i, *_: i == 1), shards, Faults(OnFailure.CONTINUE))
    heard(made, shards, engine.ask)
    found = [made.coreset(shard, state).indices for shard, state in zip(shards, engine.states, strict=True)]
    assert [len(set(rows.tolist())) for rows in found] == [4] * 3
    assert len(engine.states[1].candidates) == 0


@pytest.mark.usefixtures("short")
def test_who_was_away_for_all_of_training_is_asked_for_candidates_again() -> None:
    shards = federation()
    made = sparse(shards)
    engine = InProcess(Absent(made.program(), AWAY["both"]), shards, Faults(OnFailure.CONTINUE))
    _, crossed = heard(made, shards, engine.ask)
    assert {len(replies) for phase, _, replies in crossed if phase in {"everything", "propose"}} == {2}
    assert {len(replies) for phase, _, replies in crossed if phase in {"candidates", "value", "keep"}} == {3}
