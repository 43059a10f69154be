from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from f2cto.methods.quotas import Balance, dealt, in_turn, quotas, shares


def test_dealt_in_turn() -> None:
    y = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2])
    assert quotas(y, 4).tolist() == [2, 1, 1]
    assert quotas(y, 4, first=1).tolist() == [1, 2, 1]
    assert quotas(y, 2, first=2).tolist() == [1, 0, 1]


def test_a_class_gets_no_more_than_it_has() -> None:
    assert quotas(torch.tensor([0, 1, 1, 1, 3]), 4).tolist() == [1, 2, 0, 1]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.data())
def test_all_places_are_dealt_and_fairly(labels: list[int], data: st.DataObject) -> None:
    y = torch.tensor(labels)
    size = data.draw(st.integers(1, len(labels)))
    places, counts = quotas(y, size, data.draw(st.integers(0, 50))), torch.bincount(y)
    assert int(places.sum()) == size
    assert bool((places <= counts).all())
    open_ = places[places < counts]  # classes that could still give have at least as many as any other, less one
    assert len(open_) == 0 or int(places.max()) - int(open_.min()) <= 1


def test_picks_merge_in_turn() -> None:
    lists = [torch.tensor([1, 2, 3]), torch.tensor([], dtype=torch.long), torch.tensor([7])]
    assert in_turn(lists).tolist() == [1, 7, 2, 3]
    assert in_turn(lists, worker=1).tolist() == [7, 1, 2, 3]  # 3 x 0.618 is list 1, which is empty, then list 2


@pytest.mark.parametrize(("workers", "classes"), [(5, 10), (3, 10), (10, 5), (8, 3), (50, 10), (4, 2)])
def test_prefixes_of_all_workers_together_miss_no_class_that_they_have_room_for(workers: int, classes: int) -> None:
    picks = [torch.full((4,), c) for c in range(classes)]
    for length in range(1, classes + 1):
        union = torch.cat([in_turn(picks, worker)[:length] for worker in range(workers)]).bincount(minlength=classes)
        even = workers * length / classes
        assert even - 2 < int(union.min())
        assert int(union.max()) < even + 2


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.data())
def test_shares_are_proportional_to_the_classes(labels: list[int], data: st.DataObject) -> None:
    y, size, worker = torch.tensor(labels), data.draw(st.integers(1, len(labels))), data.draw(st.integers(0, 9))
    found, exact = shares(y, size, worker), y.bincount() * size / len(y)
    assert int(found.sum()) == size
    assert bool((found <= y.bincount()).all())
    assert float((found - exact).abs().max()) < 1 + 1e-5


def test_a_rare_class_has_places_on_some_workers() -> None:
    y = torch.tensor([0] * 90 + [1] * 10)
    union = torch.stack([shares(y, 5, worker) for worker in range(20)]).sum(dim=0)
    assert union.tolist() == [90, 10]


def test_places_are_dealt_out_as_the_task_wants_it() -> None:
    y = torch.tensor([0] * 90 + [1] * 10)
    assert dealt(y, 10, 0, Balance.EVEN).tolist() == [5, 5]
    assert dealt(y, 10, 0, Balance.PROPORTIONAL).tolist() == [9, 1]


@pytest.mark.parametrize(("count", "size", "worker"), [(100_003, 33_334, 377), (100_003, 100_002, 55), (10_007,) * 3])
def test_shares_of_large_shards_stay_within_them(count: int, size: int, worker: int) -> None:
    y = torch.arange(count)  # a class each: no place may be given twice
    assert int(shares(y, size, worker).max()) == 1
    assert int(shares(y, size, worker).sum()) == size
