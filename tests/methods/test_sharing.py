"""What F2CTO's workers send and what its master makes of it: weights, robust means, privacy, missing workers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from f2cto.constraints import L2Ball
from f2cto.experiment import row
from f2cto.federation.engine import Program, WorkerFailedError
from f2cto.federation.faults import Faults, OnFailure
from f2cto.federation.in_process import InProcess
from f2cto.message import Message
from f2cto.methods.base import Shard
from f2cto.methods.f2cto_private import PrivateProgram
from f2cto.methods.f2cto_settings import Choice, F2ctoSettings, Proxy, Sharing, Weighting, WorkerWeights
from f2cto.methods.lockstep import F2cto
from f2cto.methods.running import Here, Result, run
from f2cto.privacy import Privacy, spent
from f2cto.randomness import generator
from f2cto.trilevel.aggregation import Aggregation, Rule
from f2cto.trilevel.master import Master, _weights
from f2cto.trilevel.settings import Stopping
from testing.garbage import GARBAGE, Spoiled
from testing.shards import federation

SHORT = F2ctoSettings(Weighting(draws=5), Proxy(sync_every=4), stopping=Stopping(iterations=6), choice=Choice.AVERAGE)
GO_ON = partial(Here, faults=Faults(OnFailure.CONTINUE))


def method(**sharing: Any) -> F2cto:
    return F2cto(replace(SHORT, sharing=Sharing(**sharing)), radius=100.0)


def chosen(selector: F2cto | Spoiled, shards: list[Shard], gather: Any = Here) -> Result:
    return run(selector, shards, shards[0].model.own(), gather=gather)


@dataclass
class Listening:
    """Hears all that crosses."""

    program: Program[Shard, Any]
    heard: list[tuple[Message, Message]] = field(default_factory=list)

    def start(self, shard: Shard) -> Any:
        return self.program.start(shard)

    def run(self, phase: str, shard: Shard, state: Any, message: Message) -> tuple[Any, Message]:
        state, reply = self.program.run(phase, shard, state, message)
        self.heard.append((message, reply))
        return state, reply


def test_workers_weigh_as_much_as_they_have_samples() -> None:
    shards = [federation(count=9, size=2)[0], *federation(count=30, size=2)[1:]]
    by_samples = method(exchanges=1, weights=WorkerWeights.SAMPLES)
    ear = Listening(by_samples.program())
    once = replace(by_samples, settings=replace(by_samples.settings, stopping=Stopping(iterations=1)))
    found = once.lead(InProcess(ear, shards).ask, shards[0].model.own(), lambda _: None)
    counts = [9.0, 30.0, 30.0]
    assert [reply.scalars["weight"] for _, reply in ear.heard] == counts
    wanted = sum(c * reply.vectors["w"] for c, (_, reply) in zip(counts, ear.heard, strict=True)) / 69
    torch.testing.assert_close(found.w, wanted)
    objective = sum(c * r.scalars["objective"] for c, (_, r) in zip(counts, ear.heard, strict=True)) / 69
    assert found.history[0].objective == pytest.approx(objective)
    assert "weight" not in found.history[0].metrics


def test_by_default_nothing_is_told_about_samples() -> None:
    ear = Listening(method().program())
    F2cto(SHORT, 100.0).lead(InProcess(ear, federation()).ask, federation()[0].model.own(), lambda _: None)
    assert not any("weight" in reply.scalars for _, reply in ear.heard)


def test_nobody_can_outweigh_the_others_by_saying_so() -> None:
    """Where workers count alike, what one says about its weight is not heeded."""
    shards, w = federation(workers=5), federation()[0].model.own()
    selector = method(exchanges=1, aggregation=Aggregation(Rule.MEDIAN))
    once = replace(selector, settings=replace(selector.settings, stopping=Stopping(iterations=1)))
    program = selector.program()

    def honest(phase: str, message: Message) -> list[Message]:
        return [program.run(phase, shard, program.start(shard), message)[1] for shard in shards]

    def boasting(phase: str, message: Message) -> list[Message]:
        first, *others = honest(phase, message)
        return [Message({n: v + 100 for n, v in first.vectors.items()}, {**first.scalars, "weight": 1e12}), *others]

    found, sound = (once.lead(ask, w, lambda _: None).w for ask in (boasting, honest))
    assert float((found - sound).abs().max()) < 1


def test_with_weights_of_their_own_one_counts_for_three_at_most_where_the_rule_is_to_be_robust() -> None:
    told = [Message({}, {"weight": value}) for value in (10.0, 20.0, 1e12)]
    how = Master(L2Ball(1.0), 0.1, Stopping(1), aggregation=Aggregation(Rule.TRIMMED), weighted=True)
    assert _weights(told, how) == [10.0, 20.0, 60.0]
    assert _weights(told, replace(how, aggregation=Aggregation())) == [10.0, 20.0, 1e12]
    assert _weights(told, replace(how, weighted=False)) == [1.0, 1.0, 1.0]


def ten() -> list[Shard]:
    return federation(workers=10)


@pytest.mark.parametrize("kind", ["large", "sign-flipped", "moves reversed tenfold"])
@pytest.mark.parametrize("rule", [Rule.TRIMMED, Rule.MEDIAN])
def test_a_fifth_of_liars_cannot_bend_a_robust_mean(kind: str, rule: Rule) -> None:
    robust, plain = method(aggregation=Aggregation(rule)), method()
    sound = chosen(plain, ten()).solution.w
    start = ten()[0].model.own()
    bent = chosen(Spoiled(plain, (3, 7), GARBAGE[kind]), ten()).solution.w
    held = chosen(Spoiled(robust, (3, 7), GARBAGE[kind]), ten()).solution.w
    way = float((sound - start).norm())
    assert float((held - sound).norm()) < 0.5 * way
    assert float((bent - sound).norm()) > 1.2 * float((held - sound).norm())


def test_who_sends_nan_is_named_and_left_out() -> None:
    found = chosen(Spoiled(method(exchanges=1), (3, 7), GARBAGE["NaN"]), ten(), GO_ON)
    assert [r.absent for r in found.solution.history] == [(3, 7)] * 6
    assert {a.why for a in found.absences} == {"sent NaN or infinite numbers in `w`"}
    assert row(found.solution.history[0])["absent"] == [3, 7]
    with pytest.raises(WorkerFailedError, match="Worker 3 failed in phase `iterate`: sent NaN"):
        chosen(Spoiled(method(exchanges=1), (3, 7), GARBAGE["NaN"]), ten())


def test_missing_workers_leave_the_mean_of_the_others() -> None:
    """With two of ten silent the master goes where the other eight alone would take it."""
    found = chosen(Spoiled(method(exchanges=1), (8, 9), GARBAGE["NaN"]), ten(), GO_ON)
    alone = chosen(method(exchanges=1), ten()[:8], partial(Here, faults=Faults(OnFailure.CONTINUE)))
    torch.testing.assert_close(found.solution.w, alone.solution.w, rtol=0, atol=1e-6)


PRIVATE = Privacy(clip=0.01, noise=0.0)


def private(noise: float) -> tuple[F2cto, Listening]:
    selector = method(exchanges=1, privacy=replace(PRIVATE, noise=noise))
    inner = method(exchanges=1).program()
    assert not isinstance(inner, PrivateProgram)
    rngs = iter(generator(5, i) for i in range(1000))
    return selector, Listening(PrivateProgram(inner, selector.settings.sharing.privacy, lambda: next(rngs)))


def moved(message: Message, reply: Message) -> Tensor:
    around = {name: message.vectors.get(name, message.vectors["w"]) for name in reply.vectors}
    return torch.cat([reply.vectors[name] - around[name] for name in reply.vectors])


def test_private_answers_are_short_and_hold_no_scalars() -> None:
    selector, ear = private(noise=0.0)
    selector.lead(InProcess(ear, federation()).ask, federation()[0].model.own(), lambda _: None)
    assert all(reply.scalars == {} for _, reply in ear.heard)
    assert {tuple(reply.vectors) for _, reply in ear.heard} == {("w", "w_hat"), ("w",)}
    lengths = [float(moved(*pair).norm()) for pair in ear.heard]
    assert max(lengths) == pytest.approx(0.01, rel=1e-3)  # w and w^ together, not each


def test_private_answers_are_noised_by_as_much_as_they_may_differ() -> None:
    (_, quiet), (_, loud) = private(noise=0.0), private(noise=2.0)
    shards, w = federation(), federation()[0].model.own()
    for ear in (quiet, loud):
        for i, shard in enumerate(shards):
            ear.run("iterate", shard, ear.start(shard), Message({"w": w}, {"t": float(i)}))
    noise = torch.cat([moved(*b) - moved(*a) for a, b in zip(quiet.heard, loud.heard, strict=True)])
    assert float(noise.std()) == pytest.approx(2 * 0.01, rel=0.1)


def test_a_private_run_has_a_history_without_what_was_not_told() -> None:
    found = chosen(method(exchanges=1, privacy=Privacy(clip=1.0, noise=0.5)), federation())
    again = chosen(method(exchanges=1, privacy=Privacy(clip=1.0, noise=0.5)), federation())
    assert not torch.equal(found.solution.w, again.solution.w)  # nobody who knows the seed knows the noise
    assert all(math.isnan(r.objective) for r in found.solution.history)
    assert set(row(found.solution.history[0])) == {"iteration", "gap", "seconds", "epsilon"}
    how = Privacy(clip=1.0, noise=0.5)
    assert [r.metrics["epsilon"] for r in found.solution.history] == [spent(how, n) for n in range(1, 7)]
    assert [len(c.indices) for c in found.coresets] == [4, 4, 4]


def test_private_messages_need_one_exchange_and_equal_weights() -> None:
    with pytest.raises(ValueError, match="exchanges = 1"):
        Sharing(privacy=PRIVATE)
    with pytest.raises(ValueError, match='weights = "equal"'):
        Sharing(exchanges=1, privacy=PRIVATE, weights=WorkerWeights.SAMPLES)
