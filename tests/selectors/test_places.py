"""Weights that move place by place."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import jacrev

from f2cto.federation.in_process import InProcess
from f2cto.selectors.base import Shard
from f2cto.selectors.f2cto import F2cto
from f2cto.selectors.f2cto_settings import F2ctoSettings, Form, Perturbation, Proxy, Screening, Weighting, WeightRule
from f2cto.selectors.f2cto_stages import Team
from f2cto.selectors.places import PlaceByPlace, Turn, phases, turn_of
from f2cto.selectors.running import run
from f2cto.selectors.variants import placed
from f2cto.trilevel.coreset import RobustCoreset
from f2cto.trilevel.problem import Point, Refined
from f2cto.trilevel.settings import Stopping
from f2cto.trilevel.worker import WorkerState
from testing.choices import chosen
from testing.shards import federation

SETTINGS = replace(placed(F2ctoSettings()), screening=Screening(rounds=2, least=1.0), stopping=Stopping(iterations=22))


def doubles(workers: int = 3, count: int = 30, size: int = 6) -> list[Shard]:
    return [replace(shard, x=shard.x.double()) for shard in federation(workers=workers, count=count, size=size)]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 8])
def test_all_places_are_filled_in_even_portions(count: int) -> None:
    for rounds in (1, 2, 3, 7):
        filled = [0, *(Turn(0, r, rounds).filled(count) for r in range(rounds))]
        assert filled[-1] == count
        assert all(0 <= after - before <= -(-count // rounds) for before, after in pairwise(filled))


def test_turns_come_at_the_end_of_windows_after_the_screening() -> None:
    turns = {t: turn_of(t, since=3, window=2, phases=2, rounds=2) for t in range(16)}
    # Windows end at 1, 3, 5, …; the first whole one after iteration 3 ends at 5.
    assert {t: (turn.phase, turn.round) for t, turn in turns.items() if turn} == {
        5: (0, 0),
        7: (1, 0),
        9: (0, 1),
        11: (1, 1),
    }


def test_blocks_have_their_turn_where_the_stored_order_comes_to_them() -> None:
    shards = federation(workers=3, count=24, size=4)
    # Three classes; golden multiples let the workers begin at classes 0, 1 and 0.
    assert phases(shards, 10, 3, classwise=True).tolist() == [0, 1, 2, 2, 0, 1, 0, 1, 2, -1]
    assert phases(shards, 3, 2, classwise=False).tolist() == [0, 1, 0]


def test_a_place_goes_to_the_sample_that_leaves_least_of_what_is_missing() -> None:
    """Against every candidate tried in turn, with gradients by autograd and the error they leave written out."""
    (shard,) = doubles(workers=1, count=12, size=3)
    settings = replace(SETTINGS, weighting=replace(SETTINGS.weighting, turns=1, probe=1e-6))
    method, team = F2cto(settings, radius=1e6), Team((shard,))
    stage = method.stages()(team, 3)
    problem, move = stage.problem, stage.settings.rules.move
    assert isinstance(problem, RobustCoreset)
    assert isinstance(move, PlaceByPlace)
    move = replace(move, turns=8)
    w = shard.model.own().double()
    gradients = jacrev(lambda v: problem.losses(v, torch.zeros_like(shard.x)))(w)
    missing = torch.randn(len(w), generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 0.3
    alpha = method.stages().sets(team, 1.0, problem.topk.blocks).A.project(torch.zeros(12, dtype=torch.float64))
    at = Point(alpha=alpha, q=torch.zeros_like(shard.x), w=w, p=torch.zeros_like(shard.x))
    known = Refined(p_star=at.p, q_star=at.q, w_hat=w + move.apart * missing, p_hat=at.p)
    for workers in (1, 5):
        left = missing.clone()
        after = move(at, known, workers) * 3
        for c in range(3):  # a class has one place of a third; all blocks see the same `missing`
            rows = (shard.y == c).nonzero().flatten()
            change = (gradients[rows] - gradients[rows].mean(dim=0)) / 3 / workers
            best = rows[(left - change).square().sum(dim=1).argmin()]
            assert after[rows].argmax() == (rows == best).nonzero()
            torch.testing.assert_close(after[best], torch.tensor(1.0, dtype=torch.float64))
        assert int((after > 0.5).sum()) == 3


def test_those_who_move_at_the_same_time_are_taken_to_do_alike() -> None:
    """With more workers than turns a place weighs as if there were as many workers as turns."""
    (shard,) = doubles(workers=1, count=24, size=3)
    method, team = F2cto(replace(SETTINGS, weighting=replace(SETTINGS.weighting, turns=1)), radius=1e6), Team((shard,))
    move = method.stages()(team, 3).settings.rules.move
    assert isinstance(move, PlaceByPlace)
    w, none = shard.model.own().double(), torch.zeros_like(shard.x)
    missing = torch.randn(len(w), generator=torch.Generator().manual_seed(5), dtype=torch.float64) * 0.05
    at = Point(alpha=torch.full((24,), 1 / 24, dtype=torch.float64), q=none, w=w, p=none)
    known = Refined(p_star=none, q_star=none, w_hat=w + move.apart * missing, p_hat=none)
    many = [replace(move, turns=turns)(at, known, 200) for turns in (1, 4, 200)]
    assert torch.equal(many[1], replace(move, turns=4)(at, known, 4))
    assert not torch.equal(many[0], many[2])


def test_what_is_missing_is_read_off_the_two_models() -> None:
    """After a window w^ - w is `apart` times grad F - grad G, up to how far both have moved."""
    (shard,) = doubles(workers=1)
    proxy = replace(SETTINGS.proxy, step=1e-5, hat_step=2e-5)
    method, team = F2cto(replace(SETTINGS, proxy=proxy), radius=1e6), Team((shard,))
    stages = method.stages()
    engine = InProcess(method.program(), [shard])
    seen: list[WorkerState] = []
    method.lead(engine.ask, shard.model.own().double(), lambda _: seen.append(engine.states[0]))
    state = seen[5]  # after iteration 5, in which places were filled
    stage = stages(team, 5, state.heard)
    problem, move = stage.problem, stage.settings.rules.move
    assert isinstance(problem, RobustCoreset)
    assert isinstance(move, PlaceByPlace)
    weights = problem.every - seen[3].at.alpha  # of iteration 4, in which both models stepped
    w = state.at.w.detach().requires_grad_()
    (wanted,) = torch.autograd.grad(problem.losses(w, seen[4].refined.p_star) @ weights, w)
    found = (state.refined.w_hat - state.at.w) / move.apart
    torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-2 * float(wanted.abs().max()))


def test_places_stay_filled_and_the_coreset_is_what_they_hold() -> None:
    shards = doubles()
    method = F2cto(SETTINGS, radius=20.0)
    engine = InProcess(method.program(), shards)
    seen: list[list[WorkerState]] = []
    method.lead(engine.ask, shards[0].model.own().double(), lambda _: seen.append(list(engine.states)))
    for worker, shard in enumerate(shards):
        held = [frozenset((states[worker].at.alpha * shard.size > 0.9).nonzero().flatten().tolist()) for states in seen]
        assert all(before <= after for before, after in pairwise(held))
        assert len(held[1]) == 0
        assert 0 < len(held[12]) < shard.size
        chosen = method.coreset(shard, seen[-1][worker]).indices.tolist()
        assert set(chosen) == held[-1]
        # Within a class what was held first is stored first.
        when = {k: next(t for t, some in enumerate(held) if k in some) for k in chosen}
        for c in range(3):
            times = [when[k] for k in chosen if int(shard.y[k]) == c]
            assert times == sorted(times)


def test_who_missed_turns_makes_up_for_them() -> None:
    (shard,) = doubles(workers=1, count=12, size=9)
    settings = replace(SETTINGS, weighting=replace(SETTINGS.weighting, turns=1))
    method, team = F2cto(settings, radius=1e6), Team((shard,))
    move = method.stages()(team, 3).settings.rules.move
    assert isinstance(move, PlaceByPlace)
    w, none = shard.model.own().double(), torch.zeros_like(shard.x)
    at = Point(alpha=torch.full((12,), 1 / 12, dtype=torch.float64), q=none, w=w, p=none)
    last = replace(move, turn=Turn(phase=0, round=2, rounds=3))  # the first that this worker takes part in
    after = last(at, Refined(p_star=none, q_star=none, w_hat=w, p_hat=none), 1) * shard.size
    assert after.round().sort().values.tolist() == [0.0] * 3 + [1.0] * 9


@pytest.mark.parametrize("exchanges", [1, 2])
def test_workers_as_one_choose_as_workers_apart(exchanges: int) -> None:
    shards = doubles()
    method = F2cto(replace(SETTINGS, sharing=replace(SETTINGS.sharing, exchanges=exchanges)), radius=1e6)
    assert chosen(method, shards, together=True) == chosen(method, shards, together=False)


def test_it_matches_better_than_chance() -> None:
    """What it is for: the coreset's mean gradient is nearer to that of all than a random coreset's mostly is."""
    shards = doubles(workers=4, count=60, size=3)
    result = run(F2cto(SETTINGS, radius=20.0), shards, shards[0].model.own().double())
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


@pytest.mark.parametrize(
    "wrong",
    [
        {"perturbation": Perturbation(form=Form.PENALTY)},
        {"proxy": Proxy(step=0.1, hat_step=0.1)},
        {"proxy": Proxy(waits=False)},
        {"stopping": Stopping(iterations=30)},
    ],
    ids=["penalty", "out of step", "no waiting", "too short"],
)
def test_what_it_needs_is_said(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"places|must exceed"):
        replace(F2ctoSettings(weighting=Weighting(rule=WeightRule.PLACES)), **wrong)
