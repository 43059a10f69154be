from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from f2cto.methods.turns import Asynchrony, called, is_called


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 6), st.integers(0, 5))
def test_enough_workers_report_and_nobody_is_late(workers: int, active: int, stale: int, seed: int) -> None:
    rounds = list(islice(Asynchrony(active, stale, seed).turns(workers), 40))
    assert all(len(set(now)) == len(now) >= min(active, workers) for now in rounds)
    for worker in range(workers):
        for start in range(40 - stale + 1):
            assert any(worker in now for now in rounds[start : start + stale])
    assert rounds == list(islice(Asynchrony(active, stale, seed).turns(workers), 40))


def test_the_default_waits_for_all() -> None:
    assert list(islice(Asynchrony().turns(3), 5)) == [(0, 1, 2)] * 5


def test_workers_take_turns() -> None:
    rounds = list(islice(Asynchrony(active=2, stale=10).turns(6), 60))
    assert len(set(rounds)) > 10
    assert all(len(now) == 2 for now in rounds[:5])


def test_a_message_says_whose_turn_it_is() -> None:
    scalars = called((1, 12))
    assert [is_called(worker, scalars) for worker in (0, 1, 2, 12)] == [False, True, False, True]


@pytest.mark.parametrize(("active", "stale"), [(-1, 5), (2, 0)])
def test_impossible_asynchrony_is_refused(active: int, stale: int) -> None:
    with pytest.raises(ValueError, match="active >= 0 and stale >= 1"):
        Asynchrony(active, stale)
