"""Every rule, the same laws; and each against a second way to compute it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from f2cto.randomness import generator
from f2cto.trilevel.aggregation import PIECE, Aggregation, Rule, combined

RULES = [Aggregation(rule) for rule in Rule]
ROBUST = [Aggregation(rule) for rule in Rule if rule is not Rule.MEAN]
# Ties and outliers; all in 64ths, so that moving the origin rounds no two values to one: the trimmed mean of unequal
# weights jumps where two values change places at the cut.
ENTRIES = st.one_of(st.integers(-128, 128).map(lambda i: i / 64), st.sampled_from([0.0, 1.0, -1.0, 1e4]))


@st.composite
def federations(draw: st.DrawFn) -> tuple[list[Tensor], list[int]]:
    """A vector and a number of samples for each of some workers; now and then all have equally many samples."""
    workers, size = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    table = draw(st.lists(st.lists(ENTRIES, min_size=size, max_size=size), min_size=workers, max_size=workers))
    equal = st.integers(1, 5).map(lambda count: [count] * workers)
    weights = draw(st.one_of(equal, st.lists(st.integers(1, 5), min_size=workers, max_size=workers)))
    return [vector(*row) for row in table], weights


def vector(*entries: float) -> Tensor:
    return torch.tensor(entries, dtype=torch.float64)


def scatter(workers: int, size: int, seed: int = 0) -> list[Tensor]:
    return list(torch.rand(workers, size, generator=generator(seed, workers, size)) * 2 - 1)


def one(ws: Sequence[Tensor], how: Aggregation, weights: Sequence[float] | None = None) -> Tensor:
    """The workers' vectors in one, moved from the origin."""
    return combined(ws, weights or [1.0] * len(ws), torch.zeros_like(ws[0]), how)


def spelt_out(values: Sequence[float], weights: Sequence[int], how: Aggregation) -> float:
    """One coordinate, every worker's value written down once for each of its samples."""
    pairs = sorted(zip(values, weights, strict=True))
    if how.rule is Rule.TRIMMED:
        pairs = pairs[how.cut(len(pairs)) : len(pairs) - how.cut(len(pairs))]
    samples = [value for value, weight in pairs for _ in range(weight)]
    return statistics.median(samples) if how.rule is Rule.MEDIAN else statistics.fmean(samples)


@pytest.mark.parametrize("how", [how for how in RULES if how.rule is not Rule.CLIPPED], ids=lambda how: how.rule)
@given(federation=federations())
@settings(max_examples=200, deadline=None)
def test_every_coordinate_by_counting_samples(how: Aggregation, federation: tuple[list[Tensor], list[int]]) -> None:
    ws, weights = federation
    expected = [spelt_out(values, weights, how) for values in torch.stack(ws).T.tolist()]
    assert torch.allclose(one(ws, how, weights), vector(*expected), rtol=0, atol=1e-10)


@given(federation=federations(), clip=st.floats(0.3, 4))
@settings(max_examples=200, deadline=None)
def test_clipping_is_the_mean_of_points_in_a_ball(federation: tuple[list[Tensor], list[int]], clip: float) -> None:
    ws, weights = federation
    around = torch.full_like(ws[0], 0.5)
    lengths = [math.hypot(*(w - around).tolist()) for w in ws]
    radius = clip * sorted(lengths)[(len(ws) - 1) // 2]
    nearest = [
        around + (w - around) * (radius / length if length > radius else 1)
        for w, length in zip(ws, lengths, strict=True)
    ]
    expected = [spelt_out(values, weights, Aggregation()) for values in torch.stack(nearest).T.tolist()]
    result = combined(ws, weights, around, Aggregation(Rule.CLIPPED, clip=clip))
    assert torch.allclose(result, vector(*expected), rtol=0, atol=1e-10)


@pytest.mark.parametrize("how", RULES, ids=lambda how: how.rule)
@given(federation=federations(), data=st.data())
@settings(max_examples=100, deadline=None)
def test_laws(how: Aggregation, federation: tuple[list[Tensor], list[int]], data: st.DataObject) -> None:
    ws, weights = federation
    around, before = torch.full_like(ws[0], 0.25), [w.clone() for w in ws]
    result = combined(ws, weights, around, how)
    # The order of the workers does not matter.
    order = data.draw(st.permutations(range(len(ws))))
    shuffled = combined([ws[i] for i in order], [weights[i] for i in order], around, how)
    assert torch.allclose(shuffled, result, rtol=0, atol=1e-10)
    # Nor does the place of the origin, nor the unit of the weights.
    moved = combined([w + 3 for w in ws], [weight / 7 for weight in weights], around + 3, how)
    assert torch.allclose(moved, result + 3, rtol=0, atol=1e-10)
    # Workers who agree are believed.
    agreed = combined([ws[0].clone() for _ in ws], weights, around, how)
    assert torch.allclose(agreed, ws[0], rtol=1e-14, atol=0)
    assert torch.equal(around, torch.full_like(ws[0], 0.25))
    assert all(torch.equal(w, old) for w, old in zip(ws, before, strict=True))


@pytest.mark.parametrize("how", RULES, ids=lambda how: how.rule)
@pytest.mark.parametrize("weights", [[1.0] * 3, [1.0, 2.0, 3.0]])
def test_workers_that_work_as_one_have_one_vector(how: Aggregation, weights: list[float]) -> None:
    w = vector(0.1, 0.7)
    assert combined([w] * 3, weights, vector(0, 0), how) is w


def test_alike_workers_are_still_shortened_where_the_limit_is_below_the_median() -> None:
    w = vector(3, 4)
    assert torch.allclose(one([w] * 3, Aggregation(Rule.CLIPPED, clip=0.5)), w / 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("workers", "size"), [(1, 9), (2, 1), (5, 1000), (7, PIECE // 3), (200, 20_011)])
def test_the_plain_mean_to_the_bit(workers: int, size: int, dtype: torch.dtype) -> None:
    ws = [w.to(dtype) for w in scatter(workers, size)]
    result = one(ws, Aggregation(), [31.0] * workers)
    assert result.dtype == dtype
    assert torch.equal(result, torch.stack(ws).mean(dim=0))


@pytest.mark.parametrize("workers", [7, 10])
@pytest.mark.parametrize("equal", [True, False])
def test_vectors_of_many_pieces(workers: int, equal: bool) -> None:  # noqa: FBT001
    ws = scatter(workers, PIECE // 4 + 5)
    weights = [1.0 if equal else 1 + i * 1e-6 for i in range(workers)]
    table = torch.stack(ws).sort(dim=0).values
    assert torch.allclose(one(ws, RULES[1], weights), table[2:-2].mean(dim=0), atol=1e-5)
    if equal:
        middle = (table[(workers - 1) // 2] + table[workers // 2]) / 2
        assert torch.equal(one(ws, RULES[2], weights), middle)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("weights", [[1] * 5, [1, 2, 1, 2, 2]])
def test_one_worker_far_away(sign: int, weights: list[float]) -> None:
    ws = [w.double() for w in scatter(5, 40)]
    honest = torch.stack(ws[:4])
    bad = [*ws[:4], torch.full_like(ws[4], sign * 1e6)]
    assert float(one(bad, Aggregation(), weights).abs().min()) > 1e5
    for rule in (Rule.TRIMMED, Rule.MEDIAN):
        result = one(bad, Aggregation(rule), weights)
        assert bool((result <= honest.max(dim=0).values).all())
        assert bool((result >= honest.min(dim=0).values).all())
    # No move is longer than twice the median, so neither is their mean.
    assert float(one(bad, Aggregation(Rule.CLIPPED), weights).norm()) <= 2 * float(honest.norm(dim=1).median()) * 1.001


@pytest.mark.parametrize("how", ROBUST, ids=lambda how: how.rule)
def test_far_or_farther_makes_no_difference(how: Aggregation) -> None:
    ws = [w.double() for w in scatter(4, 40)]
    near, far = (one([*ws, torch.full_like(ws[0], size)], how) for size in (1e6, 1e100))
    assert torch.allclose(near, far, rtol=1e-12)
    assert torch.isfinite(one([*ws, torch.full_like(ws[0], 1e300)], how)).all()  # its square is no number


@pytest.mark.parametrize(("workers", "bad"), [(3, 1), (4, 1), (5, 1), (6, 2), (9, 2), (10, 2), (15, 3), (200, 40)])
def test_a_fifth_of_the_workers_is_always_cut(workers: int, bad: int) -> None:
    ws = scatter(workers, 30)
    honest = torch.stack(ws[bad:])
    flipped = [torch.full_like(w, (-1) ** i * 1e9) for i, w in enumerate(ws[:bad])]
    for garbage in (flipped, [w.abs() for w in flipped], [-w.abs() for w in flipped]):
        for rule in (Rule.TRIMMED, Rule.MEDIAN):
            assert float(one([*garbage, *ws[bad:]], Aggregation(rule)).abs().max()) <= float(honest.abs().max())


@pytest.mark.parametrize(
    ("trim", "workers", "cut"),
    [
        *[(0.2, 1, 0), (0.2, 2, 0), (0.2, 3, 1), (0.2, 4, 1), (0.2, 5, 1), (0.2, 6, 2), (0.2, 10, 2), (0.2, 200, 40)],
        *[(0.0, 10, 0), (0.07, 100, 7), (0.49, 1, 0), (0.49, 2, 0), (0.49, 3, 1), (0.49, 4, 1), (0.49, 10, 4)],
    ],
)
def test_how_many_are_cut(trim: float, workers: int, cut: int) -> None:
    how = Aggregation(Rule.TRIMMED, trim=trim)
    assert how.cut(workers) == cut
    # In numbers 0, 1, 4, 9, ... seen from the middle of those that stay.
    squares = [vector(i * i) for i in range(workers)]
    assert float(one(squares, how)) == pytest.approx(statistics.fmean(i * i for i in range(cut, workers - cut)))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Rule.MEAN, [4.0, 0.25]),
        (Rule.TRIMMED, [2.5, 0.5]),  # of 1, 2, 3, 10 the middle two; of -5, 0, 1, 5 too
        (Rule.MEDIAN, [2.5, 0.5]),
        # Lengths sqrt(26), 2, sqrt(10), sqrt(125): the lower median is sqrt(10), and only (10, 5) is longer than twice.
        (Rule.CLIPPED, [(1 + 2 + 3 + 10 * math.sqrt(40 / 125)) / 4, (-5 + 0 + 1 + 5 * math.sqrt(40 / 125)) / 4]),
    ],
)
def test_four_workers_by_hand(rule: Rule, expected: list[float]) -> None:
    ws = [vector(1, -5), vector(2, 0), vector(3, 1), vector(10, 5)]
    assert one(ws, Aggregation(rule)).tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Rule.MEAN, (1 * 5 + 2 * 1 + 3 * 1 + 10 * 3) / 10),
        (Rule.TRIMMED, (2 * 1 + 3 * 1) / 2),
        (Rule.MEDIAN, 1.5),  # the first worker has half of all samples: between it and the next
        (Rule.CLIPPED, (1 * 5 + 2 * 1 + 3 * 1 + 4 * 3) / 10),
    ],
)
def test_weights_by_hand(rule: Rule, expected: float) -> None:
    ws = [vector(1), vector(2), vector(3), vector(10)]
    assert float(one(ws, Aggregation(rule), [5, 1, 1, 3])) == pytest.approx(expected)


@pytest.mark.parametrize(
    "weights",
    [
        [0.1, 0.2, 0.2, 0.3, 0.2],  # the shares of the first three add up to a little less than a half
        [9.0, 18.0, 1.0, 1.0, 27.0],  # to a little more
    ],
)
def test_a_weighted_median_that_rounding_would_miss(weights: list[float]) -> None:
    assert float(one([vector(i) for i in range(5)], Aggregation(Rule.MEDIAN), weights)) == 2.5


def test_of_two_workers_clipping_believes_the_shorter_move() -> None:
    result = one([vector(1, 0), vector(0, 1e6)], Aggregation(Rule.CLIPPED))
    assert result.tolist() == pytest.approx([0.5, 1.0])


def test_where_most_stand_still_clipping_does_too() -> None:
    around = vector(7, 7)
    result = combined([around, around.clone(), vector(8, 9)], [1, 1, 1], around, Aggregation(Rule.CLIPPED))
    assert torch.equal(result, around)
    assert result is not around


def test_lengths_of_millions_of_small_numbers() -> None:
    wide = torch.full((4_000_000,), 0.1)  # of length 200; torch's sum of squares in float32 is off by a percent
    narrow = torch.zeros_like(wide)
    narrow[0] = 600
    result = one([wide, wide.clone(), narrow], Aggregation(Rule.CLIPPED, clip=1))
    assert float(result[0]) == pytest.approx((0.1 + 0.1 + 200) / 3, rel=1e-5)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"trim": 0.5}, r"from 0 to below 0\.5; got 0\.5"),
        ({"trim": -0.1}, "from 0 to below"),
        ({"trim": math.nan}, "from 0 to below"),
        ({"clip": 0.0}, r"number > 0; got 0\.0.*`mean`"),
        ({"clip": -1.0}, "number > 0"),
        ({"clip": math.inf}, "number > 0"),
        ({"clip": math.nan}, "number > 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Aggregation(**wrong)


@pytest.mark.parametrize(
    ("workers", "weights", "complaint"),
    [
        (0, [], "at least one worker"),
        (2, [1.0], "got 2 and 1"),
        (2, [1.0, 0.0], "weights must be numbers > 0"),
        (2, [1.0, math.inf], "weights must be"),
    ],
)
def test_workers_without_vector_or_weight_are_refused(workers: int, weights: list[float], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        combined([vector(1)] * workers, weights, vector(0), Aggregation())
