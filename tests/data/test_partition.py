from __future__ import annotations

from itertools import pairwise
from math import nextafter

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from f2cto.data.partition import by_site, classes, dirichlet, iid, label_skew, partitioned, split
from f2cto.randomness import generator

TEN_OF_EACH = torch.arange(10).repeat(10)
LARGE = torch.arange(10).repeat(600)
labels = st.lists(st.integers(0, 5), min_size=1, max_size=60).map(torch.tensor)
specs = st.sampled_from(["iid", "dirichlet:0.05", "dirichlet:0.3", "dirichlet:1000", "classes:1", "classes:2"])


def members(y: Tensor, part: Tensor) -> set[int]:
    return set(y[part].tolist())


@given(specs, labels, st.integers(0, 5), st.data())
def test_disjoint_complete_reproducible_and_none_empty(spec: str, y: Tensor, seed: int, data: st.DataObject) -> None:
    workers = data.draw(st.integers(1, len(y)))
    try:
        parts = partitioned(spec, y, workers, generator(seed))
    except ValueError:
        assume(not spec.startswith("classes"))  # the only kind that not every labelling allows
        raise
    again = partitioned(spec, y, workers, generator(seed))
    assert torch.cat(parts).sort().values.tolist() == list(range(len(y)))
    assert len(parts) == workers
    assert all(len(part) > 0 for part in parts)
    assert all(torch.equal(one, two) for one, two in zip(parts, again, strict=True))


@pytest.mark.parametrize("spec", ["iid", "dirichlet:0.3", "classes:2"])
def test_another_seed_is_another_partition(spec: str) -> None:
    one, two = (partitioned(spec, LARGE, 5, generator(seed)) for seed in (0, 1))
    assert not all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@given(st.integers(1, 40), st.integers(0, 5), st.data())
def test_iid_is_even(count: int, seed: int, data: st.DataObject) -> None:
    workers = data.draw(st.integers(1, count))
    sizes = [len(part) for part in iid(torch.zeros(count, dtype=torch.long), workers, generator(seed))]
    assert max(sizes) - min(sizes) <= 1


@given(labels, st.integers(1, 12), st.integers(1, 6), st.integers(0, 3))
def test_classes_per_worker(y: Tensor, workers: int, per_worker: int, seed: int) -> None:
    """Where it can be done it is: each worker has that many classes, and no class has fewer holders without cause."""
    counts = [int(n) for n in y.bincount() if n > 0]
    room = [min(n, workers) for n in counts]
    possible = per_worker <= len(counts) <= workers * per_worker <= sum(room) and workers <= len(y)
    if not possible:
        with pytest.raises(ValueError, match="worker"):
            classes(y, workers, generator(seed), per_worker=per_worker)
        return
    parts = classes(y, workers, generator(seed), per_worker=per_worker)
    assert all(len(members(y, part)) == per_worker for part in parts)
    held = [sum(label in members(y, part) for part in parts) for label in sorted(members(y, torch.arange(len(y))))]
    assert all(n >= max(held) - 1 or r == n for n, r in zip(held, room, strict=True))
    for label in sorted(members(y, torch.arange(len(y)))):
        shares = [int((y[part] == label).sum()) for part in parts if label in members(y, part)]
        assert max(shares) - min(shares) <= 1


def test_skew_of_known_partitions() -> None:
    alike = [torch.arange(0, 50), torch.arange(50, 100)]
    assert label_skew(TEN_OF_EACH, alike) == pytest.approx(0)
    halves = [(TEN_OF_EACH < 5).nonzero().flatten(), (TEN_OF_EACH >= 5).nonzero().flatten()]
    assert label_skew(TEN_OF_EACH, halves) == pytest.approx(0.5)  # 5 classes: (5 |1/5 - 1/10| + 5 |0 - 1/10|) / 2
    one_class_each = classes(TEN_OF_EACH, 10, generator(0), per_worker=1)
    assert label_skew(TEN_OF_EACH, one_class_each) == pytest.approx(0.9)  # (|1 - 1/10| + 9 |0 - 1/10|) / 2


def test_skew_grows_as_the_concentration_falls() -> None:
    skews = [
        sum(label_skew(LARGE, dirichlet(LARGE, 10, generator(seed), concentration=c)) for seed in range(5)) / 5
        for c in (1000.0, 10.0, 1.0, 0.3, 0.1, 0.01)
    ]
    assert all(b > a + 0.02 for a, b in pairwise(skews))
    assert skews[0] < 0.02
    assert skews[-1] > 0.8  # nearly every class sits with one worker


def test_a_large_concentration_is_near_iid() -> None:
    """No worker's share of a class strays: its standard deviation is 1/10 √(9/1000/10) of the whole, about 0.3 %."""
    parts = dirichlet(LARGE, 10, generator(0), concentration=1000.0)
    for part in parts:
        assert torch.allclose(LARGE[part].bincount(minlength=10) / 60, torch.ones(10), atol=5 * 0.03)
    chance = label_skew(LARGE, iid(LARGE, 10, generator(0)))
    assert label_skew(LARGE, parts) < chance


@pytest.mark.parametrize("concentration", [nextafter(0, 1), 1e-9])
def test_all_classes_with_few_workers_leaves_nobody_empty(concentration: float) -> None:
    """Ten classes with twenty workers, one worker for each: at least ten workers are given a sample by the largest."""
    parts = dirichlet(TEN_OF_EACH, 20, generator(0), concentration=concentration)
    sizes = sorted(len(part) for part in parts)
    assert sizes[0] == 1
    assert sum(sizes) == 100
    assert sizes.count(1) >= 10


def test_by_site() -> None:
    parts = by_site(torch.tensor([7, 2, 7, 2, 4]))
    assert [part.tolist() for part in parts] == [[1, 3], [4], [0, 2]]


@pytest.mark.parametrize(
    ("spec", "workers", "complaint"),
    [
        ("iid", 101, "100 samples can be dealt out to 1 to 100 workers; got 101"),
        ("dirichlet:0.3", 101, "1 to 100 workers; got 101"),
        ("classes:2", 0, "1 to 100 workers; got 0"),
        ("even", 5, r"A partition is iid, dirichlet:0.3 or classes:2; got `even`"),
        ("iid:3", 5, "got `iid:3`"),
        ("dirichlet", 5, "got `dirichlet`"),
        ("dirichlet:much", 5, "with a number after the colon; got `dirichlet:much`"),
        ("dirichlet:", 5, "with a number after the colon"),
        ("dirichlet:0", 5, "must be a number above 0; got 0"),
        ("dirichlet:-1", 5, "must be a number above 0; got -1"),
        ("dirichlet:nan", 5, "must be a number above 0; got nan"),
        ("dirichlet:inf", 5, "must be a number above 0; got inf"),
        ("classes:2.5", 5, "a whole number of classes; got `classes:2.5`"),
        ("classes:inf", 5, "a whole number of classes"),
        ("classes:0", 5, "a worker can have 1 to 10 of them; got 0"),
        ("classes:11", 5, "a worker can have 1 to 10 of them; got 11"),
        ("classes:1", 5, "leave some of the 10 classes to nobody; give each at least 2"),
        ("classes:2", 60, "60 workers cannot have samples of 2 classes each, because the smallest class has 10"),
    ],
)
def test_what_cannot_be_is_said(spec: str, workers: int, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        partitioned(spec, TEN_OF_EACH, workers, generator(0))


def test_split_takes_a_share_of_every_class() -> None:
    y = torch.tensor([0] * 20 + [1] * 8 + [3] * 2 + [4])
    rest, part = split(y, 0.25, generator(0))
    assert y[part].bincount(minlength=5).tolist() == [5, 2, 0, 1, 0]
    assert sorted([*rest.tolist(), *part.tolist()]) == list(range(31))
