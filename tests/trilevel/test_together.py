"""One exchange an iteration instead of two: the same numbers in half the messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from f2cto.federation.in_process import InProcess
from f2cto.message import Message
from f2cto.methods.base import Shard
from f2cto.methods.f2cto_settings import F2ctoSettings, Form, Perturbation, Proxy, Sharing, Weighting
from f2cto.methods.lockstep import CoresetProgram, F2cto
from f2cto.methods.running import Result, run
from f2cto.trilevel.master import Progress, Solution
from f2cto.trilevel.settings import Penalties, Start, Stopping
from f2cto.trilevel.worker import WorkerState
from testing.shards import federation

TWO = F2ctoSettings(Weighting(draws=5, step=0.5), Proxy(sync_every=4), stopping=Stopping(iterations=11))
ONE = Sharing(exchanges=1)
VARIANTS: dict[str, F2ctoSettings] = {
    "lock-step": TWO,
    "synchronised once": replace(TWO, proxy=Proxy(sync_every=0)),
    "several steps of w^": replace(TWO, proxy=Proxy(sync_every=4, hat_steps=3)),
    "random starts": replace(TWO, perturbation=Perturbation(start=Start.RANDOM)),
    "other radii": replace(TWO, perturbation=Perturbation(eval_radius=0.1, train_radius=0.05)),
    "frozen weights": replace(TWO, weighting=Weighting(draws=5, frozen=True)),
}


def chosen(settings: F2ctoSettings, shards: list[Shard]) -> Result:
    return run(F2cto(settings, radius=100.0), shards, shards[0].model.own())


def apart(settings: F2ctoSettings, shards: list[Shard]) -> tuple[Solution, InProcess[Shard, WorkerState]]:
    """Every worker for itself, as over a network."""
    method = F2cto(settings, radius=100.0)
    engine = InProcess(CoresetProgram(method.stages(), together=False), shards)
    return method.lead_from(engine.ask, shards[0].model.own(), lambda _: None, lambda _: None), engine


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("solved", [apart, lambda s, shards: (chosen(s, shards).solution, None)], ids=["apart", "team"])
def test_one_exchange_gives_the_result_of_two(
    settings: F2ctoSettings, solved: Callable[[F2ctoSettings, list[Shard]], tuple[Solution, object]]
) -> None:
    two, _ = solved(settings, federation())
    one, _ = solved(replace(settings, sharing=ONE), federation())
    torch.testing.assert_close(one.w, two.w, rtol=0, atol=1e-6)
    assert [r.objective for r in one.history] == pytest.approx([r.objective for r in two.history], rel=1e-5)
    assert [r.gap for r in one.history] == pytest.approx([r.gap for r in two.history], rel=1e-4)


def test_the_coresets_are_the_same() -> None:
    two, one = chosen(TWO, federation()), chosen(replace(TWO, sharing=ONE), federation())
    assert all(torch.equal(a.indices, b.indices) for a, b in zip(two.coresets, one.coresets, strict=True))


def test_messages_are_halved_and_w_hat_is_spared_where_it_restarts() -> None:
    d = federation()[0].model.size
    (_, two), (_, one) = apart(TWO, federation()), apart(replace(TWO, sharing=ONE), federation())
    workers = two.traffic.workers
    assert two.traffic.down.messages == 2 * 11 * workers
    assert one.traffic.down.messages == 11 * workers
    assert two.traffic.floats_per_worker == 4 * d * 11
    # In iterations 0, 4 and 8 the master sends no w^, and before 4 and 8 nobody sends it to the master.
    assert one.traffic.down.floats == workers * d * (2 * 11 - 3)
    assert one.traffic.up.floats == workers * d * (2 * 11 - 2)


def test_local_rounds_divide_the_messages() -> None:
    settings = replace(TWO, sharing=ONE, local_rounds=5, stopping=Stopping(iterations=20))
    solution, engine = apart(settings, federation())
    assert engine.traffic.down.messages == 4 * engine.traffic.workers
    assert solution.history[-1].iteration == 20
    assert bool(torch.isfinite(solution.w).all())


def test_a_worker_that_was_away_is_told_all_it_needs() -> None:
    """Skipped iterations leave nothing behind but the weights that did not move."""
    shard = federation(workers=1)[0]
    method = F2cto(replace(TWO, sharing=ONE), radius=100.0)
    program, w = method.program(), shard.model.own()
    fresh = program.start(shard)
    stale = fresh
    for t in range(2):
        stale, _ = program.run("iterate", shard, stale, Message({"w": w + 1, "w_hat": w - 1}, {"t": float(t)}))
    stale = replace(stale, at=replace(stale.at, alpha=fresh.at.alpha))
    now = Message({"w": w, "w_hat": w * 0.9}, {"t": 6.0})
    (_, a), (_, b) = program.run("iterate", shard, stale, now), program.run("iterate", shard, fresh, now)
    assert all(torch.equal(a.vectors[name], b.vectors[name]) for name in ("w", "w_hat"))


def test_with_two_exchanges_a_worker_that_was_away_starts_w_hat_from_w() -> None:
    shard = federation(workers=1)[0]
    program, w = F2cto(TWO, radius=100.0).program(), shard.model.own()
    state, _ = program.run("refine", shard, program.start(shard), Message({"w": w}, {"t": 0.0}))
    state, _ = program.run("update", shard, state, Message({"w_hat": w + 5}))
    _, next_one = program.run("refine", shard, state, Message({"w": w}, {"t": 1.0}))
    _, much_later = program.run("refine", shard, state, Message({"w": w}, {"t": 6.0}))
    far = 5 * len(w) ** 0.5
    assert float((next_one.vectors["w_hat"] - w).norm()) > 0.5 * far
    assert float((much_later.vectors["w_hat"] - w).norm()) < 0.1 * far


@pytest.mark.parametrize("sharing", [Sharing(), ONE], ids=["two", "one"])
def test_a_master_goes_on_where_it_was_killed(sharing: Sharing) -> None:
    settings = replace(TWO, sharing=sharing)
    whole, _ = apart(settings, federation())
    method, shards, saved = F2cto(settings, radius=100.0), federation(), list[Progress]()
    engine = InProcess(CoresetProgram(method.stages(), together=False), shards)

    def killed(progress: Progress) -> None:
        saved.append(progress)
        if len(saved) == 6:
            raise KeyboardInterrupt

    start = Progress(shards[0].model.own())
    with pytest.raises(KeyboardInterrupt):
        method.lead_from(engine.ask, start, lambda _: None, killed)
    again = method.lead_from(engine.ask, saved[-1], lambda _: None, lambda _: None)
    assert torch.equal(again.w, whole.w)
    assert [r.iteration for r in again.history] == list(range(1, 12))
    assert [r.gap for r in again.history] == [r.gap for r in whole.history]
    done = method.lead_from(engine.ask, Progress(again.w, None, again.history), lambda _: None, lambda _: None)
    assert done.history == again.history  # a run that has ended does not go on


def test_one_exchange_is_refused_where_it_would_not_be_the_same() -> None:
    penalty = Perturbation(form=Form.PENALTY)
    with pytest.raises(ValueError, match='form = "exact"'):
        replace(TWO, perturbation=penalty, penalties=Penalties(2.0, 1.0, 2.0, 2.0), sharing=ONE)
    with pytest.raises(ValueError, match="waits = true"):
        replace(TWO, proxy=Proxy(sync_every=1, waits=False), sharing=ONE)
    with pytest.raises(ValueError, match="2 exchanges, or 1; got 3"):
        Sharing(exchanges=3)
