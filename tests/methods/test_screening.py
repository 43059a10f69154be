"""Samples that a robust model does not learn are set aside before weights move."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from f2cto.descent import gradient
from f2cto.federation.in_process import InProcess
from f2cto.methods.base import Shard
from f2cto.methods.f2cto_settings import Choice, F2ctoSettings, Weighting
from f2cto.methods.f2cto_stages import Team
from f2cto.methods.lockstep import F2cto
from f2cto.methods.running import run
from f2cto.methods.screening import Screening, narrowed, passed_on, passing
from f2cto.methods.variants import literal, lower_bilevel
from f2cto.trilevel.coreset import Blocks, RobustCoreset
from f2cto.trilevel.settings import Stopping
from f2cto.trilevel.worker import Heard, WorkerState
from testing.choices import chosen
from testing.shards import federation

BLOCKS = Blocks(torch.tensor([0, 0, 0, 1, 1, 1, 1]), torch.tensor([1, 2]))
CHANCE = math.log(3)
LOSSES = torch.tensor([0.5, 2.0, CHANCE - 0.01, 9.0, 7.0, 8.0, CHANCE + 0.01])


def test_who_is_better_than_chance_stays_and_no_block_runs_short() -> None:
    # Block 0: samples 0 and 2 are better than chance. Block 1: none is, but it has two places, for the two lowest.
    stays = passing(LOSSES, BLOCKS, 3, Screening(least=0.0))
    assert stays.tolist() == [True, False, True, False, True, False, True]


@pytest.mark.parametrize(("least", "kept"), [(0.5, 2), (0.51, 3), (1.0, 4)])
def test_a_share_of_each_block_stays_in_any_case(least: float, kept: int) -> None:
    assert int(passing(LOSSES, BLOCKS, 3, Screening(least=least))[3:].sum()) == kept


@pytest.mark.parametrize(
    ("most", "staying"),
    # Block 0 has one place and two samples better than chance, block 1 two places and none better than chance.
    [(0.0, [0, 4, 6]), (1 / 3, [0, 4, 6]), (2 / 3, [0, 2, 4, 6]), (1.0, [0, 2, 4, 6])],
)
def test_more_than_a_share_of_a_block_never_stay_but_as_many_as_it_has_places(most: float, staying: list[int]) -> None:
    stays = passing(LOSSES, BLOCKS, 3, Screening(least=0.0, most=most))
    assert stays.nonzero().flatten().tolist() == staying


def test_what_stays_in_any_case_stays_whatever_the_most() -> None:
    assert passing(LOSSES, BLOCKS, 3, Screening(least=1.0, most=0.2)).all()


def test_the_others_have_a_block_without_places() -> None:
    stays = passing(LOSSES, BLOCKS, 3, Screening(least=0.0))
    left = narrowed(BLOCKS, stays)
    assert left.groups.tolist() == [0, 2, 0, 2, 1, 2, 1]
    assert left.sizes.tolist() == [1, 2, 0]


def test_their_weight_goes_to_those_who_stay_in_their_block() -> None:
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0, 1.0, 1.0, 1.0])
    stays = passing(LOSSES, BLOCKS, 3, Screening(least=0.0))
    # Block 0: 6 in all, of which 1 and 3 stay; block 1: 7 in all, of which 1 and 1 stay.
    torch.testing.assert_close(passed_on(weights, BLOCKS, stays), torch.tensor([1.5, 0, 4.5, 0, 3.5, 0, 3.5]))


SCREENED = F2ctoSettings(screening=Screening(rounds=4, since=1, least=0.3), stopping=Stopping(iterations=12))


def made(settings: F2ctoSettings) -> F2cto:
    return F2cto(settings, radius=20.0)


def mislabelled() -> tuple[Shard, torch.Tensor]:
    """Two classes, far apart; eight of sixty samples have the other's label."""
    (shard,) = federation(workers=1, count=60, size=6)
    truth, wrong = torch.arange(60) % 2, torch.arange(60) < 8
    x = torch.where(truth[:, None] == 0, 0.1, 0.9).expand_as(shard.x).clone()
    return replace(shard, x=x, y=torch.where(wrong, 1 - truth, truth)), wrong


@pytest.mark.parametrize("frozen", [False, True])
def test_weights_stand_still_while_it_listens_and_the_rejected_never_have_any(frozen: bool) -> None:  # noqa: FBT001
    shard, wrong = mislabelled()
    settings = replace(
        SCREENED,
        screening=Screening(rounds=8, since=4, least=0.1),
        stopping=Stopping(iterations=20),
        weighting=Weighting(frozen=frozen),
    )
    method = made(settings)
    engine = InProcess(method.program(), [shard])
    seen: list[WorkerState] = []
    method.lead(engine.ask, shard.model.own(), lambda _: seen.append(engine.states[0]))
    assert all(torch.equal(state.at.alpha, seen[0].at.alpha) for state in seen[:8])
    assert seen[-1].heard.times == 4
    assert float(seen[7].at.alpha[wrong].sum()) > 0
    assert all(float(state.at.alpha[wrong].sum()) == 0 for state in seen[8:])
    assert not wrong[method.coreset(shard, seen[-1]).indices].any()


def test_without_screening_wrong_labels_are_weighed_like_others() -> None:
    """What the test above rests on: it is the screening that leaves them out."""
    shard, wrong = mislabelled()
    method = made(replace(SCREENED, screening=Screening(), stopping=Stopping(iterations=20)))
    engine = InProcess(method.program(), [shard])
    method.lead(engine.ask, shard.model.own(), lambda _: None)
    assert float(engine.states[0].at.alpha[wrong].sum()) > 0


def counts(problem: RobustCoreset, shard: Shard) -> torch.Tensor:
    """Which samples f1 depends on."""
    w, none = shard.model.own(), torch.zeros_like(shard.x)
    return gradient(lambda q: problem.f1(problem.every, q, w, none), none).any(dim=1)


def test_f1_is_that_of_those_who_stay() -> None:
    (shard,) = federation(workers=1, count=20, size=4)
    stages, team = made(SCREENED).stages(), Team((shard,))
    losses = torch.where(torch.arange(20) % 3 == 0, 50.0, 0.0)
    before, after = stages(team, 3, Heard(losses, 1)).problem, stages(team, 4, Heard(losses, 1)).problem
    assert isinstance(before, RobustCoreset)
    assert isinstance(after, RobustCoreset)
    torch.testing.assert_close(before.every, torch.full((20,), 1 / 20))
    for label in range(3):
        own = shard.y == label
        torch.testing.assert_close(after.every[own].sum(), before.every[own].sum())
    stays = after.topk.blocks.groups < 3
    assert not stays.all()
    assert counts(before, shard).all()
    assert torch.equal(counts(after, shard), stays)


@pytest.mark.parametrize("choice", list(Choice))
def test_one_exchange_two_and_a_team_choose_alike(choice: Choice) -> None:
    shards = [replace(s, x=s.x.double()) for s in federation(workers=3, count=30, size=4)]
    settings = replace(SCREENED, choice=choice)
    settings = lower_bilevel(settings) if choice is Choice.GREEDY else settings
    found = []
    for exchanges, together in ((1, False), (2, False), (1, True)):
        method = made(replace(settings, sharing=replace(settings.sharing, exchanges=exchanges)))
        found.append(chosen(method, shards, together=together))
    assert found[0] == found[1] == found[2]


def test_the_letter_has_no_screening() -> None:
    assert literal(SCREENED).screening == Screening()


@pytest.mark.parametrize("wrong", [{"rounds": -1}, {"rounds": 3, "since": 3}, {"least": 1.5}, {"most": -0.1}])
def test_senseless_screenings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"needs|least"):
        Screening(**wrong)  # type: ignore[arg-type]


def test_screening_must_leave_iterations_for_the_weights() -> None:
    with pytest.raises(ValueError, match="All 4 iterations"):
        F2ctoSettings(screening=Screening(rounds=4), stopping=Stopping(iterations=4))


def test_a_worker_that_heard_nothing_keeps_all() -> None:
    """One that joins after the screening has no losses to judge by."""
    (shard,) = federation(workers=1, count=20, size=4)
    result = run(made(replace(SCREENED, screening=Screening(rounds=1))), [shard], shard.model.own())
    assert len(result.coresets[0].indices) == 4
    stages, team = made(SCREENED).stages(), Team((shard,))
    problem = stages(team, 10).problem
    assert isinstance(problem, RobustCoreset)
    assert len(problem.topk.blocks.sizes) == int(shard.y.max()) + 1
