"""Damage is exact, reproducible and touches nothing that it does not name."""

from __future__ import annotations

from collections import Counter

import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from f2cto.config import SettingsError, build
from f2cto.data.damage import Damage, damaged
from f2cto.data.errors import DataError
from f2cto.data.samples import Samples
from f2cto.randomness import generator
from f2cto.run_settings import RunSettings

seeds = st.integers(0, 20)
shares = st.floats(0, 1)
labels = st.lists(st.sampled_from([0, 2, 3, 7]), min_size=2, max_size=60).map(torch.tensor)
mixed_labels = labels.filter(lambda y: len(set(y.tolist())) > 1)


def floats(y: Tensor) -> Samples:
    """Samples whose features, row numbers and sites can all be told from each other."""
    number = torch.arange(len(y))
    x = torch.stack([number, number + 1000], dim=1).float()
    return Samples(x, y, rows=1000 - number, sites=number + 300)


def table(count: int) -> Samples:
    """Rows whose cells all name the row, in columns of several types."""
    number = list(range(count))
    frame = pl.DataFrame(
        {
            "a": number,
            "b": [f"w{n}" for n in number],
            "c": [None if n == 3 else n / 2 for n in number],
            "d": pl.Series([f"k{n}" for n in number], dtype=pl.Categorical),
        }
    )
    return Samples(frame, torch.arange(count) % 3, torch.arange(count))


def frame(samples: Samples) -> pl.DataFrame:
    assert isinstance(samples.x, pl.DataFrame)
    return samples.x


def tensor(samples: Samples) -> Tensor:
    assert isinstance(samples.x, Tensor)
    return samples.x


def same(one: Samples, two: Samples) -> bool:
    assert one.sites is not None
    assert two.sites is not None
    pairs = [(one.y, two.y), (one.rows, two.rows), (one.sites, two.sites), (tensor(one), tensor(two))]
    return all(torch.equal(a, b) for a, b in pairs)


def test_no_damage_gives_the_samples_themselves() -> None:
    samples = floats(torch.tensor([0, 1, 1]))
    assert damaged(samples, Damage(), generator(0)) is samples


@given(mixed_labels, shares, seeds)
def test_exactly_that_share_of_labels_is_wrong_and_nothing_else_changes(y: Tensor, share: float, seed: int) -> None:
    samples, before = floats(y), y.clone()
    found = damaged(samples, Damage(labels=share), generator(seed))
    assert int((found.y != y).sum()) == round(share * len(y))
    assert set(found.y.tolist()) <= set(y.tolist())
    assert torch.equal(y, before)
    assert found.x is samples.x
    assert found.rows is samples.rows
    assert found.sites is samples.sites


def test_wrong_labels_are_spread_evenly_over_all_other_classes() -> None:
    y = torch.tensor([0, 4, 5, 9]).repeat(3000)
    found = damaged(floats(y), Damage(labels=1.0), generator(0)).y
    moves = Counter(zip(y.tolist(), found.tolist(), strict=True))
    assert len(moves) == 4 * 3
    assert all(abs(count - 1000) < 120 for count in moves.values())  # over four deviations, each sqrt(3000 * 2/9)


def test_wrong_labels_are_drawn_from_all_samples() -> None:
    y = torch.tensor([0] * 5000 + [1] * 5000)
    wrong = (damaged(floats(y), Damage(labels=0.2), generator(0)).y != y).nonzero().flatten()
    assert abs(int((wrong < 5000).sum()) - 1000) < 120


def test_one_class_has_no_wrong_label() -> None:
    with pytest.raises(DataError, match="two classes or more"):
        damaged(floats(torch.zeros(5, dtype=torch.long)), Damage(labels=0.5), generator(0))


@given(labels, shares, seeds)
def test_exactly_that_share_are_outliers_within_the_range(y: Tensor, share: float, seed: int) -> None:
    samples = floats(y)
    before = tensor(samples).clone()
    found = damaged(samples, Damage(outliers=share), generator(seed))
    assert int((tensor(found) != before).any(dim=1).sum()) == round(share * len(y))
    assert 0 <= tensor(found).min() <= tensor(found).max() <= 999 + len(y)
    assert torch.equal(tensor(samples), before)
    assert found.y is y
    assert found.rows is samples.rows
    assert found.sites is samples.sites


@pytest.mark.parametrize(
    ("x", "low", "high"),
    [
        (torch.full((500, 2, 3), 7, dtype=torch.uint8), 0, 255),
        (torch.tensor([[-40], [60]]).repeat(250, 6), -40, 60),
        (torch.tensor([[-0.5], [1.5]]).repeat(250, 6), -0.5, 1.5),
    ],
)
def test_noise_is_uniform_over_the_range(x: Tensor, low: float, high: float) -> None:
    samples = Samples(x, torch.zeros(500, dtype=torch.long), torch.arange(500))
    noise = tensor(damaged(samples, Damage(outliers=1.0), generator(1)))
    assert noise.dtype == x.dtype
    assert noise.shape == x.shape
    values, width = noise.double(), high - low
    assert low <= values.min() <= low + 0.003 * width
    assert high - 0.003 * width <= values.max() <= high
    for quarter in (0.25, 0.5, 0.75):
        assert abs(float((values <= low + quarter * width).double().mean()) - quarter) < 0.05


@given(st.integers(8, 40), st.floats(0.3, 1), seeds)
def test_outliers_of_a_table_mix_their_cells(count: int, share: float, seed: int) -> None:
    samples = table(count)
    found = damaged(samples, Damage(outliers=share), generator(seed))
    x = frame(found)
    assert x.schema == frame(samples).schema
    for name in x.columns:
        assert Counter(x[name].to_list()) == Counter(frame(samples)[name].to_list())
    touched = [n for n, (one, two) in enumerate(zip(x.rows(), frame(samples).rows(), strict=True)) if one != two]
    assert len(touched) <= round(share * count)
    assert {x["a"][n] for n in touched} <= set(touched)
    assert found.y is samples.y
    assert found.rows is samples.rows


def test_columns_of_a_table_are_mixed_independently() -> None:
    x = frame(damaged(table(400), Damage(outliers=0.5), generator(0)))
    number = pl.Series(range(400))
    words = x["b"].str.strip_chars("w").cast(pl.Int64)
    assert 190 <= int((x["a"] != number).sum()) <= 200
    assert 190 <= int((words != number).sum()) <= 200
    assert int(((x["a"] != number) & (x["a"] == words)).sum()) <= 8


def test_imbalance_by_hand() -> None:
    """Ratio 4 over three classes of 8: shares 1, 1/2, 1/4."""
    y = torch.tensor([1, 3, 6]).repeat(8)
    orders = set()
    for seed in range(30):
        counts = Counter(damaged(floats(y), Damage(imbalance=4.0), generator(seed)).y.tolist())
        assert sorted(counts.values()) == [2, 4, 8]
        orders.add(tuple(label for label, _ in counts.most_common()))
    assert len(orders) == 6  # every order occurs


def test_imbalance_over_ten_classes_is_exponential() -> None:
    found = damaged(floats(torch.arange(10).repeat(100)), Damage(imbalance=10.0), generator(0))
    expected = [100, 77, 60, 46, 36, 28, 22, 17, 13, 10]  # 100 * 10^(-r/9)
    assert sorted(found.y.bincount().tolist(), reverse=True) == expected


@given(labels, st.floats(1, 1e6), seeds)
def test_imbalance_only_leaves_out(y: Tensor, imbalance: float, seed: int) -> None:
    samples = floats(y)
    found = damaged(samples, Damage(imbalance=imbalance), generator(seed))
    places = 1000 - found.rows
    assert set(found.y.tolist()) == set(y.tolist())
    assert torch.equal(places, places.unique())  # type: ignore[no-untyped-call]  # in order, each once
    assert same(found, samples.take(places))


def test_imbalance_keeps_any_sample_of_a_class() -> None:
    y = torch.arange(2).repeat(10)
    kept = {tuple(damaged(floats(y), Damage(imbalance=5.0), generator(seed)).rows.tolist()) for seed in range(20)}
    assert len(kept) > 15


@given(mixed_labels, shares, shares, st.floats(1, 50), seeds)
def test_all_at_once(y: Tensor, wrong: float, odd: float, imbalance: float, seed: int) -> None:
    samples, damage = floats(y), Damage(labels=wrong, outliers=odd, imbalance=imbalance)
    found = damaged(samples, damage, generator(seed))
    sound = samples.take(1000 - found.rows)
    assert found.sites is not None
    assert torch.equal(found.sites, 1300 - found.rows)
    assert int((found.y != sound.y).sum()) == round(wrong * len(found))
    assert int((tensor(found) != tensor(sound)).any(dim=1).sum()) == round(odd * len(found))
    assert same(found, damaged(samples, damage, generator(seed)))


def test_wrong_labels_and_outliers_are_independent() -> None:
    y = torch.arange(2).repeat(5000)
    samples = floats(y)
    found = damaged(samples, Damage(labels=0.5, outliers=0.5), generator(0))
    both = (found.y != y) & (tensor(found) != tensor(samples)).any(dim=1)
    assert abs(int(both.sum()) - 2500) < 150


def test_another_seed_is_another_damage() -> None:
    samples = floats(torch.arange(2).repeat(50))
    for damage in (Damage(labels=0.5), Damage(outliers=0.5), Damage(imbalance=3.0)):
        one, two = (damaged(samples, damage, generator(seed)) for seed in (0, 1))
        assert not same(one, two)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"labels": -0.1}, "shares between 0 and 1; got -0.1"),
        ({"labels": 1.5}, "shares between 0 and 1"),
        ({"outliers": float("nan")}, "shares between 0 and 1"),
        ({"imbalance": 0.5}, "at least 1"),
        ({"imbalance": float("inf")}, "at least 1"),
    ],
)
def test_what_is_no_damage_is_refused(values: dict[str, float], sentence: str) -> None:
    with pytest.raises(SettingsError, match=rf"In `data.damage`: .*{sentence}"):
        build(RunSettings, {"data": {"damage": values}})


def test_damage_is_a_group_of_settings() -> None:
    assert build(RunSettings, {}).data.damage == Damage()
    assert build(RunSettings, {"data": {"damage": {"labels": 0.2}}}).data.damage == Damage(labels=0.2)
