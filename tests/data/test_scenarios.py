from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from f2cto.data.errors import DataError
from f2cto.data.partition import split as cut_rows
from f2cto.data.samples import DataSet, Samples, numbered
from f2cto.data.scenarios import by_domain, permutation, permuted, split, whole
from f2cto.data.tasks import Cut, Task
from f2cto.randomness import generator

CLASSES, COUNT = 6, 120
NAMES, SITES, PROTOCOLS = tuple("abcdef"), ("north", "east", "south", "west"), ("tcp", "udp", "arp")


def images(count: int, first: int = 0) -> Samples:
    """Sample i has the features 8 i, 8 i + 1, … 8 i + 7, so that any of them tells which sample it was."""
    x = torch.arange(8 * first, 8 * (first + count)).view(count, 2, 2, 2)
    return numbered(x, torch.arange(count) % CLASSES, torch.arange(count) // CLASSES % 4)


def table(count: int) -> Samples:
    frame = pl.DataFrame({"n": range(0, 8 * count, 8), "proto": [PROTOCOLS[i // CLASSES % 3] for i in range(count)]})
    return numbered(frame, torch.arange(count) % CLASSES)


UNSPLIT = DataSet("unsplit", images(COUNT), None, NAMES, SITES)
PUBLISHED = DataSet("published", images(COUNT), images(48, first=COUNT), NAMES, SITES)
TABLE = DataSet("table", table(COUNT), None, NAMES)
SCENARIOS: dict[str, Callable[[Cut], list[Task]]] = {
    "whole": lambda cut: whole(UNSPLIT, cut),
    "whole, published test": lambda cut: whole(PUBLISHED, cut),
    "permuted": lambda cut: permuted(UNSPLIT, 3, cut),
    "permuted, published test": lambda cut: permuted(PUBLISHED, 3, cut),
    "split": lambda cut: split(UNSPLIT, 2, cut),
    "split, published test": lambda cut: split(PUBLISHED, 3, cut),
    "split, table": lambda cut: split(TABLE, 3, cut),
    "by site": lambda cut: by_domain(UNSPLIT, None, cut),
    "by two groups of sites": lambda cut: by_domain(PUBLISHED, None, cut, tasks=2),
    "by column": lambda cut: by_domain(TABLE, "proto", cut),
}
every_scenario = pytest.mark.parametrize("make", SCENARIOS.values(), ids=SCENARIOS)
Make = Callable[[Cut], list[Task]]


def features(samples: Samples) -> Tensor:
    assert isinstance(samples.x, Tensor)
    return samples.x.flatten(1)


def origin(samples: Samples) -> list[int]:
    """Which samples these were, told from the features alone; those of a published test part follow the others."""
    first = samples.x["n"].to_torch() if isinstance(samples.x, pl.DataFrame) else features(samples)[:, 0]
    return (first // 8).tolist()


def parts(task: Task) -> tuple[Samples, Samples, Samples]:
    return task.train, task.validation, task.test


@every_scenario
def test_no_sample_is_in_two_parts(make: Make) -> None:
    tasks = make(Cut(seed=3))
    tested = {i for task in tasks for i in origin(task.test)}
    for task in tasks:
        train, validation = origin(task.train), origin(task.validation)
        assert not set(train) & set(validation)
        assert not tested & {*train, *validation}
        assert all(len(part) > 0 for part in parts(task))


@every_scenario
def test_all_samples_are_used(make: Make) -> None:
    used = {i for task in make(Cut()) for part in parts(task) for i in origin(part)}
    assert used in ({*range(COUNT)}, {*range(COUNT + 48)})


@every_scenario
def test_rows_and_labels_stay_with_their_samples(make: Make) -> None:
    for task in make(Cut(seed=1, samples=20)):
        for part in parts(task):
            places = torch.tensor(origin(part))
            assert torch.equal(part.rows, places % COUNT)
            assert torch.equal(part.y, places % COUNT % CLASSES)
            assert set(part.y.tolist()) <= set(task.classes)


@every_scenario
def test_same_seed_same_tasks_other_seed_others(make: Make) -> None:
    for one, two, other in zip(make(Cut(seed=5)), make(Cut(seed=5)), make(Cut(seed=6)), strict=True):
        for a, b in zip(parts(one), parts(two), strict=True):
            assert torch.equal(a.rows, b.rows)
            assert origin(a) == origin(b)
        assert origin(one.validation) != origin(other.validation)


@every_scenario
def test_samples_caps_training_and_validation(make: Make) -> None:
    for task in make(Cut(samples=8, validation=0.25)):
        assert (len(task.train), len(task.validation)) == (8, 2)


@every_scenario
def test_validation_can_be_left_out(make: Make) -> None:
    for task, usual in zip(make(Cut(validation=0)), make(Cut()), strict=True):
        assert len(task.validation) == 0
        assert sorted(origin(task.train)) == sorted([*origin(usual.train), *origin(usual.validation)])


def test_shares_of_every_class() -> None:
    """20 of each class: 0.3 of 20 are 6 for the test; of the other 14, 0.25 are 3.5, an even 4, for validation."""
    (task,) = whole(UNSPLIT, Cut(validation=0.25))
    assert task.test.y.bincount().tolist() == [6] * CLASSES
    assert task.validation.y.bincount().tolist() == [4] * CLASSES
    assert task.train.y.bincount().tolist() == [10] * CLASSES


def test_whole_draws_what_earlier_versions_drew() -> None:
    """Committed results rest on these draws: the test part from (seed, 0), validation from (seed, 7)."""
    (task,) = whole(UNSPLIT, Cut(seed=2, validation=0.3))
    rest, test = cut_rows(UNSPLIT.train.y, 0.3, generator(2, 0))
    train, validation = cut_rows(UNSPLIT.train.y[rest], 0.3, generator(2, 7))
    for part, rows in zip(parts(task), (rest[train], rest[validation], test), strict=True):
        assert torch.equal(part.rows, rows)


@given(st.integers(1, 60), st.integers(0, 9), st.integers(0, 9))
def test_a_permutation_is_a_bijection(count: int, seed: int, task: int) -> None:
    order = permutation(count, seed, task)
    assert sorted(order.tolist()) == list(range(count))
    assert task or torch.equal(order, torch.arange(count))


def test_each_task_permutes_all_its_parts_alike() -> None:
    seen = set[tuple[int, ...]]()
    for number, task in enumerate(permuted(PUBLISHED, 4, Cut(seed=1))):
        order = features(task.train)[0] % 8
        seen.add(tuple(order.tolist()))
        assert torch.equal(order, permutation(8, 1, number))
        for part in parts(task):
            assert torch.equal(features(part) % 8, order.expand(len(part), 8))
            assert features(part).shape == (len(part), 8)
    assert len(seen) == 4


def test_tasks_draw_other_samples_and_do_not_depend_on_how_many_follow() -> None:
    few, many = permuted(PUBLISHED, 2, Cut(samples=30)), permuted(PUBLISHED, 4, Cut(samples=30))
    for one, two in zip(few, many, strict=False):
        assert torch.equal(one.train.rows, two.train.rows)
        assert torch.equal(features(one.train), features(two.train))
    assert len({tuple(task.train.rows.tolist()) for task in many}) == 4
    assert all(len(set(task.train.rows.tolist())) == 30 for task in many)


def test_split_takes_classes_in_order() -> None:
    assert [task.classes for task in split(UNSPLIT, 2)] == [(0, 1), (2, 3), (4, 5)]
    assert [task.name for task in split(UNSPLIT, 3)] == ["a, b, c", "d, e, f"]
    assert split(UNSPLIT, 5, tasks=1)[0].name == "a to e"
    ordered = split(UNSPLIT, 2, order=(5, 0, 3, 1), tasks=1)
    assert [task.classes for task in ordered] == [(5, 0)]
    assert set(ordered[0].train.y.tolist()) == {0, 5}


def test_split_passes_over_classes_without_samples() -> None:
    odd = UNSPLIT.train.take((UNSPLIT.train.y % 2 == 1).nonzero().flatten())
    (task,) = split(DataSet("odd", odd, None, NAMES), 3)
    assert task.classes == (1, 3, 5)


def test_domains_are_met_in_order() -> None:
    tasks = by_domain(UNSPLIT)
    assert [task.name for task in tasks] == ["north", "east", "south", "west"]
    for number, task in enumerate(tasks):
        assert all(set(part.sites.tolist()) == {number} for part in parts(task) if part.sites is not None)
        assert task.classes == tuple(range(CLASSES))
    assert [task.name for task in by_domain(UNSPLIT, tasks=3)] == ["north, east", "south", "west"]
    assert [task.name for task in by_domain(TABLE, "proto")] == ["arp", "tcp", "udp"]
    for task in by_domain(TABLE, "proto"):
        assert all(set(part.x["proto"]) == {task.name} for part in parts(task) if isinstance(part.x, pl.DataFrame))


HOLES = DataSet("holes", numbered(pl.DataFrame({"a": [1, None] * 4}), torch.tensor([0, 0, 1, 1] * 2)), None, ("x", "y"))


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: permuted(UNSPLIT, 0), "at least one task; got 0"),
        (lambda: permuted(TABLE, 2), "cannot change places; .* with `split` or `by_domain`"),
        (lambda: split(UNSPLIT, 2, tasks=4), "The 6 classes of unsplit make 1 to 3 tasks of 2 classes; got 4 tasks"),
        (lambda: split(UNSPLIT, 4), "6 classes of unsplit do not go up in tasks of 4; say how many tasks, up to 1"),
        (lambda: split(UNSPLIT, 1), "can have 2 to 6 classes; got 1"),
        (lambda: split(UNSPLIT, 7), "can have 2 to 6 classes; got 7"),
        (lambda: split(UNSPLIT, 2, order=(0, 0)), r"name each class once, out of \[0, 1, .*\]; got \[0, 0\]"),
        (lambda: split(UNSPLIT, 2, order=(0, 6)), r"got \[0, 6\]"),
        (lambda: by_domain(UNSPLIT, tasks=5), "The 4 domains of unsplit make 1 to 4 tasks; got 5"),
        (lambda: by_domain(TABLE), "table does not say whose its samples are"),
        (lambda: by_domain(TABLE, "port"), "table has no column `port`; it has n, proto"),
        (lambda: by_domain(UNSPLIT, "port"), "no column `port`; it has none, only arrays"),
        (lambda: by_domain(TABLE, "n"), "The task `0` has no .* samples"),
        (lambda: by_domain(HOLES, "a"), "column `a` of holes has empty cells"),
        (lambda: Cut(validation=1), "between 0 and 1; got validation 1 and test 0.3"),
        (lambda: Cut(test=0), "got validation 0.1 and test 0"),
        (lambda: Cut(samples=0), "at least one training sample; got samples = 0"),
    ],
)
def test_what_cannot_be_is_said(make: Callable[[], object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        make()


def test_a_class_that_only_training_knows_is_named() -> None:
    known = images(48).take((images(48).y < 4).nonzero().flatten())
    with pytest.raises(DataError, match="The task `e, f` has no test samples"):
        split(DataSet("partly", images(COUNT), known, NAMES), 2)
