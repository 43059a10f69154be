"""What one worker does with each message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from f2cto.attacks.base import Range
from f2cto.message import Message
from f2cto.methods.base import Shard
from f2cto.methods.f2cto.method import share
from f2cto.methods.f2cto.program import SparseProgram, WorkerState, batch_of
from f2cto.methods.f2cto.settings import Plan, Rung
from f2cto.methods.f2cto.stacked import Stacked
from f2cto.methods.f2cto.training import Ball, Schedule, Sets, local_round
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from f2cto.training import Training
from testing.shards import federation
from testing.sparse import PROPOSALS, SETTINGS, shortened

TRAINING = Training(steps=20, batch=30)
PROGRAM = SparseProgram(SETTINGS, Ball(0.05, Range()), TRAINING)
ALL_JUDGED = Plan(PROPOSALS, (Rung(5, 6, 2, 10**6, 2),))


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    shortened(monkeypatch)


def said(**scalars: float) -> dict[str, float]:
    return {"workers": 3.0} | scalars


def drawn(shard: Shard, key: int) -> Tensor:
    return shard.model.own() + 0.3 * torch.randn(shard.model.size, generator=generator(key))


def proposed(shard: Shard) -> WorkerState:
    """After the phases before any candidate is trained on."""
    state = PROGRAM.start(shard)
    for number in range(SETTINGS.rounds):
        message = Message({"w": drawn(shard, number)}, said(round=number))
        state, _ = PROGRAM.run("everything", shard, state, message)
    return PROGRAM.run("propose", shard, state, Message({"w": drawn(shard, 9)}, said()))[0]


def candidates_message(shard: Shard, left: list[int], **scalars: float) -> Message:
    said_ = said(**({"rung": 0, "round": 0} | scalars))
    return Message({f"w{k}": drawn(shard, 50 + k) for k in left}, said_)


def test_a_worker_says_how_many_samples_it_has_and_no_more() -> None:
    shard = federation(count=17)[0]
    _, reply = PROGRAM.run("hello", shard, PROGRAM.start(shard), Message())
    assert reply == Message({}, {"count": 17.0})


def test_an_unknown_phase_is_refused() -> None:
    shard = federation()[0]
    with pytest.raises(ValueError, match="hello, everything, propose, candidates, value and keep; got `dance`"):
        PROGRAM.run("dance", shard, PROGRAM.start(shard), Message())


def test_a_batch_is_the_workers_part_of_the_tasks() -> None:
    training = Training(batch=100)
    sizes = [batch_of(training, Message({}, {"workers": n}), 60) for n in (1.0, 2.0, 3.0, 50.0)]
    assert sizes == [60, 50, 34, 10]
    assert batch_of(training, Message({}, {"workers": 50.0}), 4) == 4


def test_a_round_on_everything_is_a_local_round_from_the_masters_parameters() -> None:
    shard, w = federation()[0], drawn(federation()[0], 1)
    start = PROGRAM.start(shard)
    state, reply = PROGRAM.run("everything", shard, start, Message({"w": w}, said(round=0)))
    schedule = Schedule(TRAINING, 3, 2 * (24 // 10), 10)
    sets, rng = Sets.fresh(shard.x[None], shard.y[None]), generator(shard.seed, 0, 20, 0)
    expected = local_round(Stacked(shard.model), w[None], sets, PROGRAM.ball, schedule, 0, rng)
    assert torch.equal(reply.vectors["w"], expected.w[0])
    assert torch.equal(state.p, expected.p[0])
    assert reply.scalars["count"] == 24
    assert reply.scalars["loss"] == pytest.approx(float(expected.losses.sum() / expected.visits.sum()))
    assert not start.p.any()  # the state before is left alone
    assert not start.visits.any()


def test_losses_and_visits_add_up_over_rounds() -> None:
    shard = federation()[0]
    state, total = PROGRAM.start(shard), 0.0
    for number in range(3):
        before = int(state.visits.sum())
        message = Message({"w": drawn(shard, number)}, said(round=number))
        state, reply = PROGRAM.run("everything", shard, state, message)
        total += reply.scalars["loss"] * (int(state.visits.sum()) - before)
    assert float(state.losses.sum()) == pytest.approx(total, rel=1e-5)
    assert int(state.visits.sum()) == 4 * 10  # two epochs of two batches of ten
    never = state.visits == 0
    assert torch.equal(state.mean_losses[~never], (state.losses / state.visits)[~never])
    assert not state.mean_losses[never].any()


def test_snapshots_are_what_the_master_sent_at_the_marks_and_at_the_end() -> None:
    """A quarter of three rounds is after the first, a half after the second, all is what `propose` brings."""
    shard = federation()[0]
    expected = torch.stack([drawn(shard, key) for key in (1, 2, 9)])
    assert torch.equal(proposed(shard).snapshots, expected)


def test_training_on_candidates_sees_their_samples_only() -> None:
    shard = federation()[0]
    state, message = proposed(shard), candidates_message(shard, [0, 3])
    elsewhere = ~torch.isin(torch.arange(24), state.candidates[[0, 3]])
    assert elsewhere.any()
    other = replace(shard, x=torch.where(elsewhere[:, None], 1 - shard.x, shard.x))
    here, there = (PROGRAM.run("candidates", s, state, message)[1] for s in (shard, other))
    for name, vector in here.vectors.items():
        assert torch.equal(vector, there.vectors[name])
        assert not torch.equal(vector, message.vectors[name])
    assert here.scalars == {"count": 4.0}


def test_a_candidate_is_trained_the_same_alone_and_beside_others() -> None:
    shard = federation()[0]
    state = proposed(shard)
    together = PROGRAM.run("candidates", shard, state, candidates_message(shard, [0, 2, 4]))
    for k in (0, 2, 4):
        alone = PROGRAM.run("candidates", shard, state, candidates_message(shard, [k]))
        torch.testing.assert_close(together[1].vectors[f"w{k}"], alone[1].vectors[f"w{k}"], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(together[0].moved[k], alone[0].moved[k], rtol=1e-5, atol=1e-6)


def test_perturbations_of_candidates_last_for_one_rung() -> None:
    shard = federation()[0]
    state, _ = PROGRAM.run("candidates", shard, proposed(shard), candidates_message(shard, [1, 3]))
    assert state.moved[[1, 3]].flatten(1).any(dim=1).all()
    assert not state.moved[[0, 2, 4]].any()
    fresh_ = replace(state, moved=torch.zeros_like(state.moved))
    later, anew = (
        [
            PROGRAM.run("candidates", shard, s, candidates_message(shard, [1], rung=rung, round=1))[1]
            for s in (state, fresh_)
        ]
        for rung in (0, 1)
    )
    assert not torch.equal(later[0].vectors["w1"], later[1].vectors["w1"])
    assert torch.equal(anew[0].vectors["w1"], anew[1].vectors["w1"])


def test_a_worker_that_sits_out_sends_back_what_came_and_counts_nothing() -> None:
    """Nine workers of which four may train at once: three turns."""
    shard = federation(workers=2)[1]
    few = replace(PROGRAM, settings=replace(SETTINGS, turn=4))
    state, trained = proposed(shard), []
    for number in range(6):
        message = candidates_message(shard, [0, 2], round=number, workers=9)
        if (number + 1) % 3 == 0:
            trained.append(few.run("candidates", shard, state, message)[1].scalars["count"])
            continue
        after, reply = few.run("candidates", shard, state, message)
        assert after is state
        assert reply.scalars == {"count": 0.0}
        assert all(torch.equal(reply.vectors[name], w) for name, w in message.vectors.items())
    assert trained == [4, 4]


def flat_federation(counts: list[list[int]]) -> list[Shard]:
    """Workers with samples of two classes in a given order, and a model that is linear."""
    model = FlatModel(fresh(lambda: mlp(2, (), 2), generator(3)))
    return [
        Shard(torch.full((len(labels), 2), 0.5), torch.tensor(labels), 2, model, i, 0)
        for i, labels in enumerate(counts)
    ]


def test_a_candidates_value_by_hand_with_two_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Model 0 says class 0 with certainty, model 2 class 1: a left-out sample scores 1 or 0.

    Candidate 0 leaves out [1, 1] and [0, 0, 1, 1]: 2 of 6. Candidate 2 leaves out [0, 1] and [0, 0, 0, 1]: 2 of 6 as
    well; with the models exchanged both have 4 of 6. A mean of the workers' own shares would be 1/4, 3/8, 3/4 and 5/8.
    """
    shortened(monkeypatch, ALL_JUDGED)
    shards = flat_federation([[0, 0, 1, 1], [0, 0, 0, 1, 1, 0]])
    rows = [torch.tensor([[0, 1], [0, 1], [0, 2]]), torch.tensor([[2, 5], [0, 1], [3, 5]])]
    says = {0: torch.tensor([0.0, 0, 0, 0, 50, -50]), 1: torch.tensor([0.0, 0, 0, 0, -50, 50])}

    def values(w0: Tensor, w2: Tensor) -> tuple[float, float]:
        message = Message({"w0": w0, "w2": w2}, {"rung": 0.0, "workers": 2.0})
        replies = [
            PROGRAM.run("value", shard, replace(PROGRAM.start(shard), candidates=own), message)[1]
            for shard, own in zip(shards, rows, strict=True)
        ]
        assert [reply.scalars["of0"] for reply in replies] == [2, 4]
        assert not any(reply.vectors for reply in replies)
        return share(replies, 0), share(replies, 2)

    assert values(says[0], says[1]) == pytest.approx((2 / 6, 2 / 6))
    assert values(says[1], says[0]) == pytest.approx((4 / 6, 4 / 6))


def changed(shard: Shard, rows: Tensor) -> Shard:
    """With other samples and labels at some rows."""
    return replace(
        shard,
        x=shard.x.index_copy(0, rows, 1 - shard.x[rows]),
        y=shard.y.index_copy(0, rows, (shard.y[rows] + 1) % 3),
    )


def test_a_value_rests_on_no_sample_of_the_candidate_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    shortened(monkeypatch, ALL_JUDGED)
    shard = federation()[0]
    state, message = proposed(shard), candidates_message(shard, [0, 1, 2])
    before = PROGRAM.run("value", shard, state, message)[1].scalars
    for k in (0, 1, 2):
        after = PROGRAM.run("value", changed(shard, state.candidates[k]), state, message)[1].scalars
        assert after[f"right{k}"] == pytest.approx(before[f"right{k}"])
        assert after[f"of{k}"] == before[f"of{k}"] == 20
    left_out = torch.tensor([i for i in range(24) if i not in state.candidates[0]])
    after = PROGRAM.run("value", changed(shard, left_out), state, message)[1].scalars
    assert after["right0"] != pytest.approx(before["right0"])


def test_only_as_many_are_judged_as_the_rung_says(monkeypatch: pytest.MonkeyPatch) -> None:
    shortened(monkeypatch, Plan(PROPOSALS, (Rung(5, 6, 2, 31, 2),)))
    shard = federation()[0]
    reply = PROGRAM.run("value", shard, proposed(shard), candidates_message(shard, [0]))[1]
    assert 11 - 4 <= reply.scalars["of0"] <= 11


def test_rows_do_not_change_once_they_are_proposed() -> None:
    shard = federation()[0]
    state = proposed(shard)
    assert state.candidates.shape == (5, 4)
    for phase, message in [
        ("candidates", candidates_message(shard, [0])),
        ("value", candidates_message(shard, [0])),
        ("keep", Message({}, said(candidate=3))),
    ]:
        state_, _ = PROGRAM.run(phase, shard, state, message)
        assert torch.equal(state_.candidates, state.candidates)


def seen_nothing(shard: Shard) -> WorkerState:
    return PROGRAM.start(shard)


def seen_the_beginning(shard: Shard) -> WorkerState:
    return PROGRAM.run("everything", shard, PROGRAM.start(shard), Message({"w": drawn(shard, 1)}, said(round=0)))[0]


@pytest.mark.parametrize("before", [seen_nothing, seen_the_beginning])
@pytest.mark.parametrize("phase", ["candidates", "value", "keep"])
def test_a_worker_that_missed_the_end_of_training_proposes_when_it_is_asked_again(before: Any, phase: str) -> None:
    shard = federation()[0]
    message = candidates_message(shard, [0, 2], candidate=2)
    state, reply = PROGRAM.run(phase, shard, before(shard), message)
    assert state.candidates.shape == (5, 4)
    assert all(len(set(rows)) == 4 for rows in state.candidates.tolist())
    assert all(bool(torch.isfinite(vector).all()) for vector in reply.vectors.values())


def test_entries_tell_a_worker_all_it_has_to_know() -> None:
    """Whoever may join at a phase can answer it from a fresh state."""
    shard = federation()[0]
    assert {"everything", "candidates", "keep"} == set(PROGRAM.entries)
    for phase in PROGRAM.entries:
        message = candidates_message(shard, [1], candidate=1)
        if phase == "everything":
            message = Message({"w": drawn(shard, 1)}, said(round=2))
        PROGRAM.run(phase, shard, PROGRAM.start(shard), message)
