"""Coresets read off the weights, place by place."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.func import jacrev

from f2cto.counting import Tally, counted
from f2cto.federation.in_process import InProcess
from f2cto.message import Message
from f2cto.methods.base import Shard
from f2cto.methods.f2cto_settings import Choice, F2ctoSettings, Reading, Sharing
from f2cto.methods.f2cto_stages import Team
from f2cto.methods.lockstep import F2cto
from f2cto.methods.reading import OPENING, READ, Reader, Turn, in_order_taken, phase_of, reader_of
from f2cto.methods.running import run
from f2cto.methods.screening import Screening
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from f2cto.trilevel.settings import Stopping
from f2cto.trilevel.worker import WorkerState
from testing.choices import chosen
from testing.shards import federation

SETTINGS = F2ctoSettings(stopping=Stopping(iterations=12), screening=Screening(rounds=3, least=0.7))


def doubles(workers: int = 3, count: int = 30, size: int = 6) -> list[Shard]:
    return [replace(shard, x=shard.x.double()) for shard in federation(workers=workers, count=count, size=size)]


def weighed(shard: Shard, reading: Reading) -> tuple[Reader, Tensor, Tensor]:
    """A worker with weights of its own making, its w, and the gradient of every sample in it."""
    method, team = F2cto(replace(SETTINGS, screening=Screening(), reading=reading), radius=1e6), Team((shard,))
    w, count = shard.model.own().double(), len(shard.y)
    state = method.program().start(shard)
    raw = torch.rand(count, generator=torch.Generator().manual_seed(7), dtype=torch.float64) + 0.1
    mean = method.stages().sets(team, 1.0, method.stages().field(team, state.heard).blocks).A.project(raw)
    attack = 0.05 * torch.randn(shard.x.shape, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    state = replace(state, mean_alpha=mean, refined=replace(state.refined, p_star=attack))
    gradients = jacrev(lambda v: shard.model.losses(v, shard.x + attack, shard.y))(w)
    return reader_of(method.stages(), team, state), w, gradients


def turn_at(number: int, round_: int, phase: int, w: Tensor, w_hat: Tensor, workers: int = 1) -> Message:
    return Message({"w": w, "w_hat": w_hat}, Turn(number, round_, phase).scalars(workers))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 8])
def test_all_places_are_filled_in_even_portions(count: int) -> None:
    for rounds in (1, 2, 3, 7):
        filled = [0, *(Turn(0, r, 0).filled(count, rounds) for r in range(rounds))]
        assert filled[-1] == count
        assert all(0 <= after - before <= -(-count // rounds) for before, after in pairwise(filled))


def test_workers_have_their_turn_where_their_stored_order_comes_to_the_class() -> None:
    shards = federation(workers=3, count=24, size=4)
    # Three classes; golden multiples let the workers begin at classes 0, 1 and 0.
    assert [[phase_of(shard, c, 3, 3) for c in range(3)] for shard in shards] == [[0, 1, 2], [2, 0, 1], [0, 1, 2]]
    assert [phase_of(shard, 0, 1, 2) for shard in shards] == [0, 1, 0]


@pytest.mark.parametrize("workers", [1, 5])
def test_a_place_goes_to_the_sample_that_leaves_least_of_what_is_missing(workers: int) -> None:
    """Against every candidate tried in turn, with gradients by autograd and the error they leave written out."""
    (shard,) = doubles(workers=1, count=18, size=3)
    probe = 1e-6
    reader, w, gradients = weighed(shard, Reading(turns=8, rounds=1, probe=probe))
    missing = torch.randn(len(w), generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 0.3
    for number in range(3):  # a class has one place of a third
        phase = phase_of(shard, number, 3, 8)
        state, _ = reader.answer(turn_at(number, 0, phase, w, w - probe * missing, workers))
        rows = (shard.y == number).nonzero().flatten()
        weights = reader.state.mean_alpha[rows] / reader.state.mean_alpha[rows].sum()
        change = (gradients[rows] - weights @ gradients[rows]) / 3 / workers
        best = rows[(missing - change).square().sum(dim=1).argmin()]
        assert state.taken.nonzero().flatten().tolist() == [int(best)]


def test_the_answer_is_what_the_places_leave_of_the_weighted_gradient() -> None:
    (shard,) = doubles(workers=1, count=30, size=6)
    reader, w, gradients = weighed(shard, Reading(turns=1, rounds=2, probe=0.25))
    state, reply = reader.answer(turn_at(1, 0, 0, w, w))
    rows = (shard.y == 1).nonzero().flatten()
    (first,) = state.taken.nonzero().flatten().tolist()
    assert shard.y[first] == 1
    alpha = reader.state.mean_alpha[rows]
    # Two places of a sixth each: one is taken, the other still stands for the weights.
    left = alpha @ gradients[rows] - gradients[first] / 6 - alpha @ gradients[rows] / 2
    torch.testing.assert_close(reply.vectors["w_hat"], w - 0.25 * left)
    assert reply.scalars == {"classes": 3.0, "empty": 1.0}
    state, reply = replace(reader, state=state).answer(turn_at(1, 1, 0, w, reply.vectors["w_hat"]))
    held = state.taken.nonzero().flatten()
    left = alpha @ gradients[rows] - gradients[held].sum(dim=0) / 6
    torch.testing.assert_close(reply.vectors["w_hat"], w - 0.25 * left)
    assert reply.scalars["empty"] == 0
    assert int(state.taken[first]) == 1


def test_the_opening_forgets_what_a_former_reading_took() -> None:
    (shard,) = doubles(workers=1)
    reader, w, _ = weighed(shard, Reading(turns=1))
    state, _ = reader.answer(turn_at(0, 0, 0, w, w))
    assert int(state.taken.sum()) > 0
    state, reply = replace(reader, state=state).answer(turn_at(0, 0, OPENING, w, w))
    assert int(state.taken.sum()) == 0
    assert reply.scalars == {"classes": 3.0}
    assert torch.equal(reply.vectors["w_hat"], w)


def test_those_who_move_at_the_same_time_are_taken_to_do_alike() -> None:
    """With more workers than turns a place weighs as if there were as many workers as turns."""
    (shard,) = doubles(workers=1, count=30, size=3)
    taken = {}
    for turns, workers in ((1, 200), (1, 1), (4, 200), (4, 4), (200, 200)):
        reader, w, gradients = weighed(shard, Reading(turns=turns, rounds=1))
        message = turn_at(1, 0, phase_of(shard, 1, 3, turns), w, w - 0.1 * gradients[3], workers)
        taken[turns, workers] = reader.answer(message)[0].taken.tolist()
    assert taken[1, 200] == taken[1, 1]
    assert taken[4, 200] == taken[4, 4]
    assert taken[1, 200] != taken[200, 200]


def test_who_missed_turns_makes_up_for_them() -> None:
    (shard,) = doubles(workers=1, count=30, size=9)
    reader, w, _ = weighed(shard, Reading(turns=1, rounds=3))
    state, reply = reader.answer(turn_at(2, 2, 0, w, w))  # the last round is the first that this worker takes part in
    assert sorted(state.taken[state.taken > 0].tolist()) == [1, 2, 3]
    assert reply.scalars["empty"] == 0


@pytest.mark.parametrize(("candidates", "taken"), [(500, True), (3, False)])
def test_only_samples_with_most_weight_are_candidates(candidates: int, *, taken: bool) -> None:
    (shard,) = doubles(workers=1, count=30, size=3)
    reader, w, gradients = weighed(shard, Reading(turns=1, rounds=1, candidates=candidates, probe=1e-6))
    rows = (shard.y == 0).nonzero().flatten()
    least = rows[reader.state.mean_alpha[rows].argmin()]
    only = torch.linalg.pinv(gradients[rows])[:, rows == least].flatten()  # pulls at this one and at no other
    state, _ = reader.answer(turn_at(0, 0, 0, w, w - 1e-6 * 100 * only))
    assert (int(state.taken[least]) == 1) is taken
    most = rows[reader.state.mean_alpha[rows].argsort(descending=True)[:candidates]]
    assert set(state.taken.nonzero().flatten().tolist()) <= set(most.tolist())


def test_the_coreset_is_what_was_taken_in_the_order_it_was() -> None:
    shards, method = doubles(), F2cto(SETTINGS, radius=20.0)
    engine = InProcess(method.program(), shards)
    seen: list[list[WorkerState]] = []

    def ask(phase: str, message: Message) -> list[Message]:
        replies = engine.ask(phase, message)
        seen.append(list(engine.states))
        return replies

    method.lead(ask, shards[0].model.own().double(), lambda _: None)
    for worker, shard in enumerate(shards):
        held = [frozenset(states[worker].taken.nonzero().flatten().tolist()) for states in seen]
        assert all(before <= after for before, after in pairwise(held))
        coreset = method.coreset(shard, seen[-1][worker])
        assert set(coreset.indices.tolist()) == held[-1]
        assert len(held[-1]) == shard.size
        torch.testing.assert_close(coreset.weights, torch.full((shard.size,), 1 / shard.size))
        when = {k: next(t for t, some in enumerate(held) if k in some) for k in held[-1]}
        for c in range(3):
            times = [when[k] for k in coreset.indices.tolist() if int(shard.y[k]) == c]
            assert times == sorted(times)


def test_who_screening_set_aside_is_not_taken() -> None:
    shards, method = doubles(), F2cto(SETTINGS, radius=20.0)
    engine = InProcess(method.program(), shards)
    method.lead(engine.ask, shards[0].model.own().double(), lambda _: None)
    for shard, state in zip(shards, engine.states, strict=True):
        aside = state.mean_alpha == 0
        assert 0 < int(aside.sum()) < len(shard.y)
        assert int(state.taken[aside].sum()) == 0


def test_samples_taken_come_first_and_others_by_weight() -> None:
    weights = torch.tensor([0.1, 0.4, 0.2, 0.3])
    assert in_order_taken(weights, torch.tensor([2, 0, 1, 0])).tolist() == [2, 0, 1, 3]
    assert in_order_taken(weights, torch.empty(0)).tolist() == [1, 3, 2, 0]


@pytest.mark.parametrize("exchanges", [1, 2])
@pytest.mark.parametrize("classwise", [True, False])
def test_workers_as_one_choose_as_workers_apart(exchanges: int, *, classwise: bool) -> None:
    weighting = replace(SETTINGS.weighting, classwise=classwise)
    settings = replace(SETTINGS, sharing=Sharing(exchanges=exchanges), weighting=weighting)
    method, shards = F2cto(settings, radius=1e6), doubles()
    assert chosen(method, shards, together=True) == chosen(method, shards, together=False)


def test_it_matches_better_than_chance() -> None:
    """What it is for: the coreset's mean gradient is nearer to that of all than a random coreset's mostly is."""
    shards = doubles(workers=4, count=60, size=3)
    result = run(F2cto(replace(SETTINGS, screening=Screening()), radius=20.0), shards, shards[0].model.own().double())
    x, y = torch.cat([s.x for s in shards]), torch.cat([s.y for s in shards])
    w = shards[0].model.own().double()

    def distance(rows: Tensor) -> float:
        leaf = w.clone().requires_grad_()
        losses = shards[0].model.losses(leaf, x, y)
        return float(torch.autograd.grad(losses[rows].mean() - losses.mean(), leaf)[0].norm())

    ours = distance(torch.cat([c.indices + 60 * i for i, c in enumerate(result.coresets)]))
    rng = torch.Generator().manual_seed(0)
    by_class = [[(s.y == c).nonzero().flatten() + 60 * i for c in range(3)] for i, s in enumerate(shards)]
    draws = [
        torch.stack([rows[torch.randint(len(rows), (1,), generator=rng)][0] for own in by_class for rows in own])
        for _ in range(200)
    ]
    others = sorted(distance(rows) for rows in draws)
    assert ours < others[50]


def test_only_parameters_cross() -> None:
    shards, method = federation(), F2cto(SETTINGS, radius=20.0)
    engine, size = InProcess(method.program(), shards), len(shards[0].model.own())
    asked: list[tuple[str, Message]] = []

    def ask(phase: str, message: Message) -> list[Message]:
        replies = engine.ask(phase, message)
        asked.extend((phase, one) for one in (message, *replies))
        return replies

    method.lead(ask, shards[0].model.own(), lambda _: None)
    reading = [message for phase, message in asked if phase == READ]
    assert len(reading) >= (1 + 3 * SETTINGS.reading.turns) * 4
    assert {len(vector) for message in reading for vector in message.vectors.values()} == {size}
    assert max(len(message.scalars) for message in reading) <= 4


@pytest.mark.parametrize("choice", [Choice.TOP, Choice.AVERAGE, Choice.GREEDY])
def test_other_choices_ask_nothing_and_do_not_answer(choice: Choice) -> None:
    shards, method = federation(), F2cto(replace(SETTINGS, choice=choice), radius=20.0)
    engine, phases = InProcess(method.program(), shards), set[str]()

    def ask(phase: str, message: Message) -> list[Message]:
        phases.add(phase)
        return engine.ask(phase, message)

    w = method.lead(ask, shards[0].model.own(), lambda _: None).w
    assert READ not in phases
    with pytest.raises(ValueError, match="phases"):
        method.program().run(READ, shards[0], engine.states[0], turn_at(0, 0, 0, w, w))


@pytest.mark.parametrize("wrong", [{"turns": 0}, {"rounds": 0}, {"candidates": 0}, {"probe": 0.0}])
def test_senseless_readings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="Reading places"):
        Reading(**wrong)  # type: ignore[arg-type]


def test_w_stands_still_so_that_a_sample_is_differentiated_once_a_round() -> None:
    """Besides what is taken, and the gradients of candidates where it is their worker's turn."""
    shards, tally = doubles(workers=5, count=30, size=6), Tally()
    model = FlatModel(counted(fresh(lambda: mlp(6, (8,), 3), generator(0)), tally))
    shards = [replace(shard, model=model) for shard in shards]
    method = F2cto(replace(SETTINGS, screening=Screening(), stopping=Stopping(iterations=1)), radius=20.0)
    engine, before = InProcess(method.program(), shards), list[Tally]()

    def ask(phase: str, message: Message) -> list[Message]:
        if phase == READ and not before:
            before.append(tally.copy())
        return engine.ask(phase, message)

    method.lead(ask, model.own().double(), lambda _: None)
    samples, rounds, places = 5 * 30, SETTINGS.reading.rounds, 5 * 6
    assert (tally - before[0]).backward <= 2 * rounds * samples + places  # the sums, and candidates' own gradients
