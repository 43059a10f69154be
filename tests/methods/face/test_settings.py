"""What can be told, and that every effort is a plan that can be carried out; its numbers are for tuning."""

from __future__ import annotations

import pytest

from f2cto.methods.base import Given
from f2cto.methods.catalogue import METHODS, make_selector
from f2cto.methods.f2cto.method import Sparse
from f2cto.methods.f2cto.proposers import RULES
from f2cto.methods.f2cto.settings import PLANS, Effort, Plan, SparseSettings
from testing.shards import federation

every_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


def test_every_effort_has_a_plan() -> None:
    assert set(PLANS) == set(Effort)


@every_plan
def test_candidates_have_names_of_their_own_and_rules_that_exist(plan: Plan) -> None:
    assert len({proposal.name for proposal in plan.proposals}) == len(plan.proposals)
    assert {proposal.rule for proposal in plan.proposals} <= set(RULES)


@every_plan
def test_halving_begins_with_every_candidate_and_only_narrows(plan: Plan) -> None:
    entering = [rung.candidates for rung in plan.rungs]
    assert entering[0] == len(plan.proposals)
    assert entering == sorted(set(entering), reverse=True)
    assert entering[-1] >= 2  # or the last rung would decide nothing


@every_plan
def test_every_round_of_a_rung_has_a_step(plan: Plan) -> None:
    assert all(1 <= rung.rounds <= rung.steps and rung.judged >= 1 for rung in plan.rungs)


@pytest.mark.parametrize("said", [{"epochs": 0}, {"rounds": 0}, {"turn": 0}, {"snapshots": ()}])
def test_a_search_that_would_do_nothing_is_refused(said: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"epochs, rounds and turn >= 1 and at least one snapshot"):
        SparseSettings(**said)  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [0.0, 1.5, -0.1])
def test_snapshots_outside_the_training_are_refused(share: float) -> None:
    with pytest.raises(ValueError, match="shares of the training"):
        SparseSettings(snapshots=(0.5, share))


def test_the_catalogue_makes_it_from_what_a_user_says() -> None:
    assert METHODS["f2cto-sparse"].settings is SparseSettings
    given = Given(federation()[0].model.own())
    made = make_selector("f2cto-sparse", {"effort": "quick", "snapshots": [0.5], "turn": 3}, given)
    assert made == Sparse(SparseSettings(effort=Effort.QUICK, snapshots=(0.5,), turn=3), given)
