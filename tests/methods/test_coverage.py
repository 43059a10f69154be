from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from f2cto.methods import coverage, facility, herding, kcenter, vectors
from f2cto.methods.base import Given, Selector, Shard
from f2cto.methods.by_class import class_by_class
from f2cto.methods.coverage import cluster_sizes, facility_location, herd, k_center
from f2cto.methods.lifted import Pretraining
from f2cto.methods.running import Result, run
from f2cto.methods.spaces import CoverSettings, Space
from f2cto.methods.vectors import Points, points
from f2cto.randomness import generator
from f2cto.training import Training
from testing import all_pairs
from testing.all_pairs import gram, similarities, squared_distances
from testing.shards import federation

quick = settings(max_examples=40, deadline=None)
seeds = st.integers(0, 10**6)


def scattered(seed: int, count: int = 8) -> Tensor:
    return torch.randn(count, 2, generator=generator(seed), dtype=torch.float64)


def line(*places: float) -> Points:
    return points(torch.tensor(places)[:, None])


def similarity_of(seen: Points) -> Tensor:
    return similarities(squared_distances(gram(seen.rows)).sqrt())


@given(seeds)
@quick
def test_squared_distances(seed: int) -> None:
    some, others = scattered(seed), scattered(seed + 1, 5)
    plain = (some[:, None] - others[None]).square().sum(dim=2)
    assert torch.allclose(vectors.distances(points(some), points(others), squared=True), plain, atol=1e-12)
    assert torch.allclose(vectors.distances(points(some), points(others), squared=False), plain.sqrt(), atol=1e-6)
    assert torch.allclose(squared_distances(gram(some)), (some[:, None] - some[None]).square().sum(dim=2), atol=1e-12)


def radius(distances: Tensor, chosen: list[int]) -> float:
    return float(distances[:, chosen].min(dim=1).values.max())


@given(seeds, st.integers(1, 8))
@quick
def test_k_center_has_at_most_twice_the_best_radius(seed: int, count: int) -> None:
    distances = squared_distances(gram(scattered(seed))).sqrt()
    best = min(radius(distances, list(chosen)) for chosen in combinations(range(8), count))
    centres = k_center(points(scattered(seed)), count, generator(0))
    assert radius(distances, centres.tolist()) <= 2 * best + 1e-6


def test_k_center_by_hand() -> None:
    # 5 is nearest to all on average; 20 is 15 away from it, then 0 is 5 away; 4 and 6 are 1 away, the first is taken.
    assert k_center(line(0, 4, 5, 6, 20), 5, generator(0)).tolist() == [2, 4, 0, 1, 3]


def test_k_center_takes_doubles_once_each() -> None:
    assert sorted(k_center(line(1, 1, 1, 1), 4, generator(0)).tolist()) == [0, 1, 2, 3]


def test_herding_by_hand() -> None:
    # The mean is 2: 1 is nearest; with 1, 5 makes the mean 3 and 0 makes it 0.5, so that 5 is next.
    assert herd(line(0, 1, 5), 3).tolist() == [1, 2, 0]
    assert herd(line(0, 1, 5), 2).tolist() == [1, 2]


def covered(similarity: Tensor, chosen: list[int]) -> float:
    return float(similarity[:, chosen].max(dim=1).values.sum())


@given(seeds, st.integers(1, 8))
@quick
def test_facility_location_is_near_the_best(seed: int, count: int) -> None:
    similarity = similarities(squared_distances(gram(scattered(seed))).sqrt())
    best = max(covered(similarity, list(chosen)) for chosen in combinations(range(8), count))
    chosen = facility_location(points(scattered(seed)), count, generator(0))
    assert covered(similarity, chosen.tolist()) >= (1 - 1 / math.e) * best


def plain_greedy(similarity: Tensor, count: int) -> list[int]:
    chosen: list[int] = []
    for _ in range(count):
        left = [k for k in range(len(similarity)) if k not in chosen]
        chosen.append(max(left, key=lambda k: covered(similarity, [*chosen, k])))
    return chosen


@given(seeds, st.integers(1, 10), st.integers(2, 30))
@quick
def test_lazy_greedy_is_plain_greedy(seed: int, count: int, values: int) -> None:
    """Small whole numbers on a line: sums are exact and ties are many."""
    seen = line(*torch.randint(values, (10,), generator=generator(seed)).tolist())
    assert facility_location(seen, count, generator(0)).tolist() == plain_greedy(similarity_of(seen), count)
    assert all_pairs.facility_location(similarity_of(seen), count).tolist() == plain_greedy(similarity_of(seen), count)


def gains_most_at_each_pick(similarity: Tensor, chosen: list[int]) -> None:
    """Not that picks are the same: where two points have only each other left, either gains as much."""
    assert len(set(chosen)) == len(chosen)
    for taken in range(len(chosen)):
        left = [k for k in range(len(similarity)) if k not in chosen[:taken]]
        best = max(covered(similarity, [*chosen[:taken], k]) for k in left)
        assert covered(similarity, chosen[: taken + 1]) >= best - 1e-6


@given(seeds, st.integers(3, 40), st.integers(2, 12), st.booleans())  # on a line two medians may tie
@quick
def test_picks_are_those_of_the_definition(seed: int, count: int, width: int, squared: bool) -> None:  # noqa: FBT001
    """Against matrices of all pairs, however small the blocks."""
    x = torch.randn(count, width, generator=generator(seed), dtype=torch.float64)
    seen, products, kept = points(x), gram(x), min(count, 12)
    apart = squared_distances(products) if squared else squared_distances(products).sqrt()
    weights = torch.rand(count, generator=generator(seed, 1), dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "BLOCK_BYTES", 8 * count * 7)
        patch.setattr(coverage, "LOOKED_AT", 3)
        similarity, chosen = similarities(apart), facility_location(seen, kept, generator(0), squared=squared)
        gains_most_at_each_pick(similarity, chosen.tolist())
        assert cluster_sizes(seen, chosen).tolist() == all_pairs.cluster_sizes(similarity, chosen).tolist()
        centres = k_center(seen, kept, generator(0)).tolist()
    assert centres == all_pairs.k_center(squared_distances(products).sqrt(), kept).tolist()
    assert herd(seen, kept).tolist() == all_pairs.herd(products, kept).tolist()
    assert herd(seen, kept, weights).tolist() == all_pairs.herd(products, kept, weights).tolist()


def test_where_points_are_too_many_a_sample_stands_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of the module's text at delta = 1 %, and the same seed the same picks."""
    monkeypatch.setattr(coverage, "EXACT", 500)
    monkeypatch.setattr(coverage, "DEMANDS", 400)
    x, kept = torch.rand(1500, 2, generator=generator(1), dtype=torch.float64), 5
    apart = squared_distances(gram(x)).sqrt()
    chosen = facility_location(points(x), kept, generator(7)).tolist()
    assert chosen == facility_location(points(x), kept, generator(7)).tolist()
    best = all_pairs.facility_location(similarities(apart), kept).tolist()
    bound = float(apart.max()) * math.sqrt((kept * math.log(1500) + math.log(200)) / 800)
    means = [float(apart[:, some].min(dim=1).values.mean()) for some in (chosen, best)]
    assert means[0] <= means[1] + 2 * bound
    assert means[0] <= 1.1 * means[1]  # in fact far nearer
    assert k_center(points(x), kept, generator(7)).tolist() != best


def test_cluster_sizes_by_hand() -> None:
    assert cluster_sizes(line(0, 1, 2, 10, 11), torch.tensor([1, 4])).tolist() == [3, 2]


def test_each_of_two_doubles_stands_for_itself() -> None:
    assert cluster_sizes(line(0, 0, 5), torch.tensor([1, 0])).tolist() == [2, 1]  # 5 goes to the first of the two


METHODS = {"kcenter": kcenter.make, "herding": herding.make, "facility": facility.make}
every_method = pytest.mark.parametrize("name", METHODS)


def make(name: str, shards: list[Shard], chosen: CoverSettings) -> Selector:
    return METHODS[name](chosen, Given(shards[0].model.own()))


def result(name: str, shards: list[Shard], chosen: CoverSettings) -> Result:
    return run(make(name, shards, chosen), shards, shards[0].model.own())


def expected(name: str, seen: Tensor, count: int) -> Tensor:
    products = gram(seen)
    apart = squared_distances(products).sqrt()
    picks = {
        "kcenter": lambda: all_pairs.k_center(apart, count),
        "herding": lambda: all_pairs.herd(products, count),
        "facility": lambda: all_pairs.facility_location(similarities(apart), count),
    }
    return picks[name]()


@every_method
@pytest.mark.parametrize("space", Space)
def test_every_class_is_covered_by_itself(name: str, space: Space) -> None:
    shards = federation(size=7)
    untrained = CoverSettings(space=space, pretraining=Pretraining(rounds=0))
    for shard, coreset in zip(shards, result(name, shards, untrained).coresets, strict=True):
        seen = shard.x if space is Space.INPUTS else shard.model.features(shard.model.own(), shard.x).detach()
        for label in range(3):
            rows = (shard.y == label).nonzero().flatten()
            mine = coreset.indices[shard.y[coreset.indices] == label]
            assert len(mine) in {2, 3}  # 7 places over 3 classes
            assert mine.tolist() == rows[expected(name, seen[rows], len(mine))].tolist()


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
    seen = shards[0].model.features(done.solution.w, shards[0].x).detach()
    rows = (shards[0].y == 0).nonzero().flatten()
    mine = done.coresets[0].indices[shards[0].y[done.coresets[0].indices] == 0]
    assert mine.tolist() == rows[expected(name, seen[rows], len(mine))].tolist()


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
