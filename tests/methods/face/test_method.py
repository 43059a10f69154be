"""The whole search: what the master keeps, what crosses, and that it matters not where workers are or who is late."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from f2cto.federation.in_process import InProcess
from f2cto.federation.snapshots import file_of, read_file
from f2cto.federation.worker import Worker
from f2cto.message import Message
from f2cto.methods.base import Shard
from f2cto.methods.f2cto.method import mean, reordered, share
from f2cto.methods.f2cto.program import SparseProgram
from f2cto.methods.f2cto.settings import PLANS, Effort, Plan, SparseSettings
from f2cto.methods.running import run
from f2cto.randomness import generator
from f2cto.trilevel.master import Round, Solution
from testing.shards import federation
from testing.sparse import SETTINGS, SHORT, Exchanged, OneByOne, heard, shortened, sparse

short = pytest.fixture(shortened)


def here(shards: Sequence[Shard], settings: SparseSettings = SETTINGS) -> tuple[Solution, list[Exchanged], list[Any]]:
    made = sparse(shards, settings)
    engine = InProcess(made.program(), shards)
    return (*heard(made, shards, engine.ask), engine.states)


def values_of(crossed: Sequence[Exchanged]) -> list[dict[int, float]]:
    """The values of every rung, from what workers sent."""
    found = []
    for phase, asked, replies in crossed:
        if phase == "value":
            left = [int(name[1:]) for name in asked.vectors]
            sums = {k: [sum(r.scalars[f"{part}{k}"] for r in replies) for part in ("right", "of")] for k in left}
            found.append({k: right / of for k, (right, of) in sums.items()})
    return found


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("seed", range(3))
def test_halving_goes_on_with_the_best_and_the_best_of_all_is_kept(seed: int) -> None:
    shards = federation(seed=seed)
    _, crossed, states = here(shards)
    total: dict[int, float] = dict.fromkeys(range(len(SHORT.proposals)), 0.0)
    for rung, found in zip(SHORT.rungs, values_of(crossed), strict=True):
        best = sorted(total, key=lambda k: -total[k])[: rung.candidates]
        assert set(found) == set(best)
        total = {k: total[k] + rung.steps * found[k] for k in best}
    winner = max(total, key=lambda k: total[k])
    phase, asked, _ = crossed[-1]
    assert (phase, asked.scalars["candidate"]) == ("keep", winner)
    coresets = run(sparse(shards), shards, shards[0].model.own()).coresets
    for coreset, state in zip(coresets, states, strict=True):
        assert torch.equal(coreset.indices, state.candidates[winner])
        assert torch.equal(coreset.weights, torch.full((4,), 0.25))


class Scored(SparseProgram):
    """The program itself, but that the values of candidates are made up."""

    made_up: ClassVar[Mapping[int, Sequence[float]]] = {
        0: (0.2,),
        1: (0.9, 0.4, 0.5),
        2: (0.5, 0.6, 0.69),
        3: (0.1,),
        4: (0.6, 0.45),
    }

    def run(self, phase: str, shard: Shard, state: Any, message: Message) -> tuple[Any, Message]:
        if phase != "value":
            return super().run(phase, shard, state, message)
        rung = int(message.scalars["rung"])
        right = {f"right{name[1:]}": 10 * self.made_up[int(name[1:])][rung] for name in message.vectors}
        return state, Message({}, right | dict.fromkeys([f"of{name[1:]}" for name in message.vectors], 10.0))


@pytest.mark.usefixtures("short")
def test_values_of_all_rungs_count_by_their_steps() -> None:
    """By hand, with 6, 6 and 8 steps: 4 is out at 6.3, before 2 and 1 with 6.6 and 7.8; 2 wins by 12.12 to 11.8."""
    shards = federation()
    made = sparse(shards)
    program_ = Scored(made.settings, made.program().ball, made.given.training)
    engine = InProcess(program_, shards)
    solution, crossed = heard(made, shards, engine.ask)
    assert [sorted(asked.vectors) for phase, asked, _ in crossed if phase == "value"] == [
        ["w0", "w1", "w2", "w3", "w4"],
        ["w1", "w2", "w4"],
        ["w1", "w2"],
    ]
    assert [state.kept for state in engine.states] == [2] * 3
    assert solution.history[-1].metrics == {SHORT.proposals[1].name: 0.5, SHORT.proposals[2].name: 0.69}


@pytest.mark.usefixtures("short")
def test_everything_is_federated_averaging_of_what_workers_send() -> None:
    shards = [federation(count=12)[0], *federation(count=30)[1:]]
    solution, crossed, _ = here(shards)
    rounds = [(asked, replies) for phase, asked, replies in crossed if phase == "everything"]
    after = [asked.vectors["w"] for asked, _ in rounds[1:]] + [solution.w]
    assert torch.equal(rounds[0][0].vectors["w"], shards[0].model.own())
    for (_, replies), w in zip(rounds, after, strict=True):
        expected = sum(n / 72 * r.vectors["w"] for n, r in zip((12, 30, 30), replies, strict=True))
        torch.testing.assert_close(w, expected)
    (proposing,) = [asked for phase, asked, _ in crossed if phase == "propose"]
    assert torch.equal(proposing.vectors["w"], solution.w)


@pytest.mark.usefixtures("short")
def test_every_candidate_of_a_rung_begins_from_one_redrawn_start() -> None:
    shards = federation()
    _, crossed, _ = here(shards)
    starts = []
    for phase, asked, _ in crossed:
        if phase == "candidates" and not asked.scalars["round"]:
            first, *others = asked.vectors.values()
            assert all(torch.equal(first, other) for other in others)
            starts.append(first)
    assert len({tuple(w.tolist()) for w in (*starts, shards[0].model.own())}) == len(SHORT.rungs) + 1


def test_redrawn_parameters_have_each_tensors_numbers_in_another_order() -> None:
    sizes = federation()[0].model.sizes
    w = torch.randn(sum(sizes), generator=generator(1))
    found = reordered(w, sizes, generator(2))
    assert not torch.equal(found, w)
    for mine, own in zip(torch.split(found, list(sizes)), torch.split(w, list(sizes)), strict=True):
        assert torch.equal(mine.sort().values, own.sort().values)
    assert torch.equal(found, reordered(w, sizes, generator(2)))
    assert torch.equal(w, reordered(w, (), generator(2)))  # nothing known of its tensors


def reply(w: Tensor, count: float) -> Message:
    return Message({"w": w}, {"count": count})


def test_the_mean_counts_samples_and_leaves_out_who_sat_out() -> None:
    a, b, c = (torch.randn(5, generator=generator(k)) for k in range(3))
    torch.testing.assert_close(mean([reply(a, 2), reply(b, 0), reply(c, 6)], "w", b), (2 * a + 6 * c) / 8)
    assert torch.equal(mean([reply(a, 0), reply(c, 3)], "w", b), c)


def test_where_nobody_trained_parameters_stay() -> None:
    """Those whose turn it was are missing."""
    w = torch.arange(5.0)
    assert torch.equal(mean([reply(w + 1, 0), reply(w + 2, 0)], "w", w), w)


def test_a_share_is_over_all_workers_samples() -> None:
    replies = [Message({}, {"right0": 1.0, "of0": 2.0}), Message({}, {"right0": 1.0, "of0": 6.0})]
    assert share(replies, 0) == 0.25
    assert share([Message({}, {"right0": 0.0, "of0": 0.0})], 0) == 0


@pytest.mark.usefixtures("short")
def test_workers_take_turns_and_the_mean_is_that_of_those_who_trained() -> None:
    shards = federation(workers=5)
    _, crossed, _ = here(shards, replace(SETTINGS, turn=2))
    rounds = [(asked, replies) for phase, asked, replies in crossed if phase in {"candidates", "value"}]
    trained = Counter[int]()
    for (asked, replies), (after, _) in pairwise(rounds):
        if "round" not in asked.scalars:
            continue
        those = [i for i, r in enumerate(replies) if r.scalars["count"]]
        assert 1 <= len(those) <= 2
        trained.update(those)
        for name in asked.vectors:
            expected = torch.stack([replies[i].vectors[name] for i in those]).mean(dim=0)
            torch.testing.assert_close(after.vectors[name], expected)
    assert len(trained) == 5


def stopped_and_put_back(engine: OneByOne, i: int) -> None:
    """The worker ends; a new one goes on from the file that it left."""
    left = file_of(engine.workers[i].snapshot())
    engine.workers[i] = Worker(engine.program, engine.shards[i])
    with NamedTemporaryFile(suffix=".safetensors") as file:
        Path(file.name).write_bytes(left)
        engine.workers[i].restore(read_file(Path(file.name))[0])


def unharmed(engine: OneByOne, i: int) -> None:
    """Nothing happens to a worker."""


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("between", [unharmed, stopped_and_put_back])
def test_workers_apart_even_stopped_after_every_answer_choose_the_same(
    between: Callable[[OneByOne, int], None],
) -> None:
    shards = federation()
    made = sparse(shards)
    together = run(made, shards, shards[0].model.own())
    engine = OneByOne(made.program(), shards, between)
    solution = made.lead(engine.ask, shards[0].model.own(), lambda _: None)
    assert torch.equal(solution.w, together.solution.w)
    assert [r.metrics for r in solution.history] == [r.metrics for r in together.solution.history]
    for worker, shard, coreset in zip(engine.workers, shards, together.coresets, strict=True):
        assert torch.equal(made.coreset(shard, worker.state).indices, coreset.indices)


@pytest.mark.usefixtures("short")
def test_rounds_are_told_as_they_end() -> None:
    shards, told = federation(), list[Round]()
    engine = InProcess(sparse(shards).program(), shards)
    solution = sparse(shards).lead(engine.ask, shards[0].model.own(), told.append)
    assert told == list(solution.history)
    assert [r.iteration for r in told] == list(range(1, SETTINGS.rounds + len(SHORT.rungs) + 1))


def tiny(plan: Plan) -> Plan:
    """As many candidates, rungs and rounds, with a step a round: what crosses is the same."""
    return replace(plan, rungs=tuple(replace(r, steps=r.rounds, judged=30, attack=1) for r in plan.rungs))


@pytest.mark.parametrize("effort", Effort)
def test_what_crosses_is_parameters_and_numbers_within_bounds(effort: Effort, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 30 questions, and 60 vectors as long as w for a candidate that goes all the way and what comes before."""
    shortened(monkeypatch, tiny(PLANS[effort]))
    shards = federation(workers=2)
    d = shards[0].model.size
    _, crossed, _ = here(shards, SparseSettings(effort))
    assert len(crossed) <= 30
    for _, asked, replies in crossed:
        for message in (asked, *replies):
            assert all(vector.shape == (d,) for vector in message.vectors.values())
            assert all(isinstance(value, float) for value in message.scalars.values())
    floats: dict[str, int] = defaultdict(int)
    for _, asked, replies in crossed:
        for name, vector in [*asked.vectors.items(), *replies[0].vectors.items()]:
            floats[name] += vector.numel()
    finalist = max(n for name, n in floats.items() if name != "w")
    assert finalist + floats["w"] <= 60 * d
    assert sum(floats.values()) <= 60 * d * len(PLANS[effort].proposals)


@pytest.mark.usefixtures("short")
def test_without_attacks_nothing_is_moved() -> None:
    shards = federation()
    _, _, states = here(shards, replace(SETTINGS, attacked=False))
    assert not any(bool(state.p.any() or state.moved.any()) for state in states)
    _, _, states = here(shards)
    assert all(bool(state.p.any() and state.moved.any()) for state in states)
