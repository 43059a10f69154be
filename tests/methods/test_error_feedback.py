from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from f2cto.federation.in_process import InProcess
from f2cto.message import Message
from f2cto.methods.base import Coreset, Given, Shard
from f2cto.methods.error_feedback import ErrorFeedback
from f2cto.methods.error_feedback_settings import (
    Attacks,
    ErrorFeedbackSettings,
    Feedback,
    Filtering,
    Proxies,
    Target,
)
from f2cto.methods.error_feedback_worker import FeedbackProgram, reshuffled
from f2cto.methods.running import Result, run
from f2cto.methods.secure_sum import numbers, total
from f2cto.randomness import generator
from testing.shards import federation

# No filter, no attack, one proxy that is not trained: what is matched can be written down.
BARE = ErrorFeedbackSettings(
    filtering=Filtering(rounds=0),
    proxies=Proxies(count=1, steps=0),
    feedback=Feedback(sweeps=2),
    attacks=Attacks(radius=0.0, steps=0),
)
SHORT = ErrorFeedbackSettings(filtering=Filtering(rounds=6, since=3), proxies=Proxies(count=2, steps=2))


def selected(settings: ErrorFeedbackSettings, shards: list[Shard]) -> Result:
    w = shards[0].model.own()
    return run(ErrorFeedback(settings, Given(w)), shards, w)


@cache
def gradients(shard: Shard) -> Tensor:
    """The gradient of every sample's loss.  (M, d)."""
    leaf = shard.model.own().requires_grad_()
    losses = shard.model.losses(leaf, shard.x, shard.y)
    return torch.stack([torch.autograd.grad(loss, leaf, retain_graph=True)[0] for loss in losses])


def left(shards: list[Shard], picks: list[Tensor]) -> list[float]:
    """The squared error of each class: its places' share of its mean gradient, minus the gradients in the places."""
    places, errors = sum(shard.size for shard in shards), []
    for c in range(3):
        every = torch.cat([gradients(shard)[shard.y == c] for shard in shards])
        chosen = torch.cat([gradients(s)[rows[s.y[rows] == c]] for s, rows in zip(shards, picks, strict=True)])
        error = (len(chosen) * every.mean(dim=0) - chosen.sum(dim=0)) / places
        errors.append(float(error.square().sum()))
    return errors


def rows_of(coresets: list[Coreset]) -> list[Tensor]:
    return [coreset.indices for coreset in coresets]


def test_the_error_that_is_passed_on_is_what_the_coreset_leaves() -> None:
    """Through all masks and hands, against the definition."""
    shards = federation(size=6)
    result = selected(BARE, shards)
    # Six turns of each of three workers' two places, twice over, class by class.
    assert len(result.solution.history) == 3 * 2 * 6
    told = [result.solution.history[12 * (c + 1) - 1].objective for c in range(3)]
    assert told == pytest.approx(left(shards, rows_of(result.coresets)), rel=1e-3, abs=1e-9)


def test_a_prefix_of_what_one_sweep_stores_is_what_a_smaller_memory_would_hold() -> None:
    settings = replace(BARE, feedback=Feedback(sweeps=1))
    small, large = (rows_of(selected(settings, federation(size=size)).coresets) for size in (3, 6))
    assert [rows.tolist() for rows in small] == [rows[:3].tolist() for rows in large]


def test_picks_match_better_than_chance() -> None:
    shards = federation(size=6)
    ours = sum(left(shards, rows_of(selected(BARE, shards).coresets)))
    rng, by_chance = generator(5), list[float]()
    for _ in range(50):
        rows = [torch.randperm(24, generator=rng) for _ in shards]
        picks = [torch.cat([r[s.y[r] == c][:2] for c in range(3)]) for s, r in zip(shards, rows, strict=True)]
        by_chance.append(sum(left(shards, picks)))
    assert ours < min(by_chance)
    assert ours < sum(by_chance) / 50 / 4


def test_workers_make_up_for_each_other() -> None:
    """The same samples on one worker or on three: the error is that of the union, not of each shard."""
    shards = federation(size=3)
    together = sum(left(shards, rows_of(selected(BARE, shards).coresets)))
    alone = [selected(BARE, [replace(shard, worker=0)]).coresets[0] for shard in shards]
    assert together < sum(left(shards, rows_of(alone)))


@pytest.mark.parametrize(("slots", "turns"), [(1, 4), (3, 2), (0, 1)])
def test_slots_are_places_filled_in_one_turn(slots: int, turns: int) -> None:
    """Four places of each class on each of three workers, two sweeps: count the messages."""
    shards = federation(size=12)
    settings = replace(SHORT, feedback=Feedback(slots=slots, sweeps=2))
    result = selected(settings, shards)
    fills = 3 * 2 * 3 * turns
    assert result.traffic.down.messages == 3 * (2 + 6 + 1 + 2 + 3 + fills)
    d, proxies = shards[0].model.size, 2
    # Down: w, the proxies' steps, opening and filling. Up: the other initialisation, slopes, terms, and from whose turn
    # it is what is left, except in the last turn of a class.
    assert result.traffic.down.floats == 3 * d * (6 + proxies * (2 + 3 + fills))
    assert result.traffic.up.floats == d * (3 * (proxies - 1 + 6 + proxies * (2 + 3)) + proxies * (fills - 3))


def crossed(shards: list[Shard]) -> list[tuple[str, Message, list[Message]]]:
    """Everything that crosses in a run without attacks."""
    selector = ErrorFeedback(BARE, Given(shards[0].model.own()))
    engine, seen = InProcess(selector.program(), shards), list[tuple[str, Message, list[Message]]]()

    def ask(phase: str, message: Message) -> list[Message]:
        replies = engine.ask(phase, message)
        seen.append((phase, message, replies))
        return replies

    selector.lead(ask, shards[0].model.own(), lambda _: None)
    return seen


def test_the_master_reads_no_gradients() -> None:
    """Neither in what workers send nor in its sum is a trace of any sample, and so of what it passes on."""
    shards = federation(size=6)
    every = torch.cat([gradients(shard) for shard in shards]).double()
    hidden = list[Tensor]()
    for phase, message, replies in crossed(shards):
        if phase == "open":
            hidden += [reply.vectors["error.0"] for reply in replies]
            hidden.append(total([reply.vectors["error.0"] for reply in replies]))
        if phase == "fill":
            hidden += [message.vectors["error.0"], *(v for reply in replies for v in reply.vectors.values())]
    assert len(hidden) == 3 * 4 + 2 * 36 - 3  # 3 openings, 36 turns, nothing to pass on after the last of a class
    for vector in hidden:
        seen = numbers(vector, torch.float64)
        assert float(seen.abs().mean()) == pytest.approx(1024, rel=0.3)  # uniform on +-2048
        assert float(torch.cosine_similarity(seen, every).abs().max()) < 0.6  # 83 numbers: a deviation is 0.11


def test_a_worker_sees_only_what_others_did_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two of its turns in the first sweep what is missing changed by two other workers' picks, not by one."""
    readings, original = list[Tensor](), FeedbackProgram._read

    def read(self: FeedbackProgram, *arguments: object) -> Tensor:
        readings.append(original(self, *arguments))  # type: ignore[arg-type]
        return readings[-1]

    monkeypatch.setattr(FeedbackProgram, "_read", read)
    shards = federation(size=6)
    picks = rows_of(selected(replace(BARE, feedback=Feedback(sweeps=1)), shards).coresets)
    assert len(readings) == 3 * 3 * 2
    g = [gradients(shard) for shard in shards]
    # Class 0, first places: workers 0, 1, 2 in turn; then worker 0 again.
    first = [int(rows[shard.y[rows] == 0][0]) for shard, rows in zip(shards, picks, strict=True)]
    changes = [g[i][k] - g[i][shards[i].y == 0].mean(dim=0) for i, k in enumerate(first)]
    torch.testing.assert_close(readings[3], readings[0] - torch.stack(changes).sum(dim=0) / 18, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("target", Target)
def test_mislabelled_samples_are_set_aside(target: Target) -> None:
    def flipped(shard: Shard) -> Shard:
        wrong = torch.arange(len(shard.y)) % 4 == 0
        return replace(shard, y=torch.where(wrong, (shard.y + 1) % 3, shard.y))

    shards = [flipped(shard) for shard in federation(count=60, size=9)]
    settings = ErrorFeedbackSettings(target=target, filtering=Filtering(rounds=60, since=40), proxies=Proxies(count=1))
    picks = torch.cat([coreset.indices for coreset in selected(settings, shards).coresets])
    assert float((picks % 4 == 0).double().mean()) < 0.1  # a quarter of all samples


def test_the_variants_differ_in_what_they_match() -> None:
    """A keeps the samples that did not pass in its target, B does not: the error of A is that of all samples."""
    shards = federation(count=30, size=6)
    settings = replace(BARE, filtering=Filtering(rounds=3, since=1, least=0.3))
    a, b = (selected(replace(settings, target=target), shards) for target in (Target.ALL, Target.KEPT))
    assert a.solution.history[-1].objective == pytest.approx(left(shards, rows_of(a.coresets))[2], rel=1e-3)
    assert b.solution.history[-1].objective != pytest.approx(left(shards, rows_of(b.coresets))[2], rel=0.1)


def test_classes_are_even_over_all_workers() -> None:
    """The first worker has class 0 only. Each for itself would keep most of that class."""
    shards = federation(size=6)
    shards[0] = replace(shards[0], y=torch.zeros_like(shards[0].y))
    for together in (True, False):
        coresets = selected(replace(SHORT, balanced_union=together), shards).coresets
        kept = torch.cat([shard.y[coreset.indices] for shard, coreset in zip(shards, coresets, strict=True)])
        assert (kept.bincount().tolist() == [6, 6, 6]) is together


def test_another_initialisation_has_the_same_numbers_elsewhere() -> None:
    shard = federation()[0]
    w = shard.model.own()
    other = reshuffled(shard.model, w, 0, 1)
    assert not torch.equal(other, w)
    for name, part in shard.model.unflatten(other).items():
        before = shard.model.unflatten(w)[name]
        assert torch.equal(part.flatten().sort().values, before.flatten().sort().values)


def test_parameters_stay_in_their_ball() -> None:
    shards = federation()
    settings = replace(SHORT, filtering=Filtering(rounds=20, since=3, rate=1.0), proxies=Proxies(radius=1.5))
    assert float(selected(settings, shards).solution.w.norm()) == pytest.approx(1.5, rel=1e-4)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Filtering(rounds=5, since=5), "0 <= since < rounds, or rounds = 0; got since 5 of 5"),
        (lambda: Filtering(least=1.5), "from 0 to 1; got 1.5"),
        (lambda: Proxies(count=0), "at least 1 proxy"),
        (lambda: Feedback(sweeps=0), "sweeps >= 1, slots >= 0 and probe > 0; got 0, 1, 0.5"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Callable[[], object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        make()


def test_phases_out_of_order_are_named() -> None:
    shard = federation()[0]
    program = ErrorFeedback(SHORT, Given(shard.model.own())).program()
    state = program.start(shard)
    with pytest.raises(ValueError, match="knows the phases count, plan, filter, keep, train, open, fill; got `refine`"):
        program.run("refine", shard, state, Message())
    with pytest.raises(ValueError, match="needs the phase `plan` before this one"):
        program.run("keep", shard, state, Message())
    with pytest.raises(ValueError, match="needs the phase `open` before `fill`"):
        program.run("fill", shard, state, Message({}, {"worker": 0.0}))
