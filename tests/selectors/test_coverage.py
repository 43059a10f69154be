from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from f2cto.randomness import generator
from f2cto.selectors import facility, herding, kcenter
from f2cto.selectors.base import Given, Selector, Shard
from f2cto.selectors.by_class import class_by_class
from f2cto.selectors.coverage import (
    cluster_sizes,
    facility_location,
    gram,
    herd,
    k_center,
    similarities,
    squared_distances,
)
from f2cto.selectors.lifted import Pretraining
from f2cto.selectors.running import Result, run
from f2cto.selectors.spaces import CoverSettings, Space
from f2cto.training import Training
from testing.shards import federation

quick = settings(max_examples=40, deadline=None)
seeds = st.integers(0, 10**6)


def scattered(seed: int, count: int = 8) -> Tensor:
    return torch.randn(count, 2, generator=generator(seed), dtype=torch.float64)


def line(*points: float) -> Tensor:
    return squared_distances(gram(torch.tensor(points)[:, None])).sqrt()


@given(seeds)
@quick
def test_squared_distances(seed: int) -> None:
    points = scattered(seed)
    plain = (points[:, None] - points[None]).square().sum(dim=2)
    assert torch.allclose(squared_distances(gram(points)), plain, atol=1e-12)


def radius(distances: Tensor, chosen: list[int]) -> float:
    return float(distances[:, chosen].min(dim=1).values.max())


@given(seeds, st.integers(1, 8))
@quick
def test_k_center_has_at_most_twice_the_best_radius(seed: int, count: int) -> None:
    distances = squared_distances(gram(scattered(seed))).sqrt()
    best = min(radius(distances, list(chosen)) for chosen in combinations(range(8), count))
    assert radius(distances, k_center(distances, count).tolist()) <= 2 * best + 1e-6


def test_k_center_by_hand() -> None:
    # 5 is nearest to all on average; 20 is 15 away from it, then 0 is 5 away; 4 and 6 are 1 away, the first is taken.
    assert k_center(line(0, 4, 5, 6, 20), 5).tolist() == [2, 4, 0, 1, 3]


def test_k_center_takes_doubles_once_each() -> None:
    assert sorted(k_center(line(1, 1, 1, 1), 4).tolist()) == [0, 1, 2, 3]


def test_herding_by_hand() -> None:
    # The mean is 2: 1 is nearest; with 1, 5 makes the mean 3 and 0 makes it 0.5, so that 5 is next.
    points = torch.tensor([[0.0], [1.0], [5.0]], dtype=torch.float64)
    assert herd(gram(points), 3).tolist() == [1, 2, 0]
    assert herd(gram(points), 2).tolist() == [1, 2]


def covered(similarity: Tensor, chosen: list[int]) -> float:
    return float(similarity[:, chosen].max(dim=1).values.sum())


@given(seeds, st.integers(1, 8))
@quick
def test_facility_location_is_near_the_best(seed: int, count: int) -> None:
    similarity = similarities(squared_distances(gram(scattered(seed))).sqrt())
    best = max(covered(similarity, list(chosen)) for chosen in combinations(range(8), count))
    assert covered(similarity, facility_location(similarity, count).tolist()) >= (1 - 1 / math.e) * best


def plain_greedy(similarity: Tensor, count: int) -> list[int]:
    chosen: list[int] = []
    for _ in range(count):
        left = [k for k in range(len(similarity)) if k not in chosen]
        chosen.append(max(left, key=lambda k: covered(similarity, [*chosen, k])))
    return chosen


@given(seeds, st.integers(1, 10), st.integers(2, 30))
@quick
def test_lazy_greedy_is_plain_greedy(seed: int, count: int, values: int) -> None:
    """Small whole numbers: sums are exact and ties are many."""
    similarity = torch.randint(values, (10, 10), generator=generator(seed)).double()
    assert facility_location(similarity, count).tolist() == plain_greedy(similarity, count)


def test_cluster_sizes_by_hand() -> None:
    similarity = similarities(line(0, 1, 2, 10, 11))
    assert cluster_sizes(similarity, torch.tensor([1, 4])).tolist() == [3, 2]


def test_each_of_two_doubles_stands_for_itself() -> None:
    similarity = similarities(line(0, 0, 5))
    assert cluster_sizes(similarity, torch.tensor([1, 0])).tolist() == [2, 1]  # 5 goes to the first of the two


METHODS = {"kcenter": kcenter.make, "herding": herding.make, "facility": facility.make}
every_method = pytest.mark.parametrize("name", METHODS)


def make(name: str, shards: list[Shard], chosen: CoverSettings) -> Selector:
    return METHODS[name](chosen, Given(shards[0].model.own()))


def result(name: str, shards: list[Shard], chosen: CoverSettings) -> Result:
    return run(make(name, shards, chosen), shards, shards[0].model.own())


def expected(name: str, points: Tensor, count: int) -> Tensor:
    products = gram(points)
    distances = squared_distances(products).sqrt()
    picks = {
        "kcenter": lambda: k_center(distances, count),
        "herding": lambda: herd(products, count),
        "facility": lambda: facility_location(similarities(distances), count),
    }
    return picks[name]()


@every_method
@pytest.mark.parametrize("space", Space)
def test_every_class_is_covered_by_itself(name: str, space: Space) -> None:
    shards = federation(size=7)
    untrained = CoverSettings(space=space, pretraining=Pretraining(rounds=0))
    for shard, coreset in zip(shards, result(name, shards, untrained).coresets, strict=True):
        points = shard.x if space is Space.INPUTS else shard.model.features(shard.model.own(), shard.x).detach()
        for label in range(3):
            rows = (shard.y == label).nonzero().flatten()
            mine = coreset.indices[shard.y[coreset.indices] == label]
            assert len(mine) in {2, 3}  # 7 places over 3 classes
            assert mine.tolist() == rows[expected(name, points[rows], len(mine))].tolist()


@every_method
def test_without_classes_all_samples_are_one(name: str) -> None:
    shards = federation(size=5)
    for shard, coreset in zip(shards, result(name, shards, CoverSettings(classwise=False)).coresets, strict=True):
        assert coreset.indices.tolist() == expected(name, shard.x, 5).tolist()


@every_method
def test_features_are_those_of_the_shared_model(name: str) -> None:
    shards = federation(size=7)
    trained = CoverSettings(space=Space.FEATURES, pretraining=Pretraining(rounds=2, local=Training(steps=2)))
    done = result(name, shards, trained)
    assert len(done.solution.history) == 2
    points = shards[0].model.features(done.solution.w, shards[0].x).detach()
    rows = (shards[0].y == 0).nonzero().flatten()
    mine = done.coresets[0].indices[shards[0].y[done.coresets[0].indices] == 0]
    assert mine.tolist() == rows[expected(name, points[rows], len(mine))].tolist()


@every_method
def test_inputs_need_no_training(name: str) -> None:
    shards = federation()
    done = result(name, shards, CoverSettings(pretraining=Pretraining(rounds=5)))
    assert done.solution.history == ()
    assert done.traffic.up.floats == 0


def test_facility_weighs_by_how_many_a_sample_stands_for() -> None:
    # First the median of all, 0.12, then what is far from it; all others are nearer to 0.12 than to 0.9.
    x = torch.tensor([0.1, 0.11, 0.12, 0.13, 0.9])[:, None].expand(5, 6).contiguous()
    shard = replace(federation(workers=1, size=2)[0], x=x, y=torch.zeros(5, dtype=torch.long))
    coreset = result("facility", [shard], CoverSettings()).coresets[0]
    weight = dict(zip(coreset.indices.tolist(), coreset.weights.tolist(), strict=True))
    assert weight == {2: pytest.approx(4 / 5), 4: pytest.approx(1 / 5)}


def first_of_each(_: Tensor, count: int) -> tuple[Tensor, Tensor]:
    return torch.arange(count), torch.zeros(count)


@pytest.mark.parametrize(("worker", "classes"), [(0, [0, 1, 2, 0]), (1, [1, 2, 0, 1]), (2, [0, 1, 2, 2])])
def test_classes_take_turns_and_workers_begin_with_different_ones(worker: int, classes: list[int]) -> None:
    shard = federation(size=4)[worker]
    coreset = class_by_class(shard, first_of_each)
    assert shard.y[coreset.indices].tolist() == classes


def test_weights_of_zero_become_even() -> None:
    assert class_by_class(federation(size=4)[0], first_of_each).weights.tolist() == [0.25] * 4
