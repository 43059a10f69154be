from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from f2cto.data.encoding import Encoded, Options, encode, vocabulary
from f2cto.data.errors import DataError
from f2cto.data.samples import Samples, numbered
from f2cto.data.scaling import DEPTH, HEAVY, PERCENTS, Array, Scaling, Statistics, column_statistics, merged


def part(**columns: Sequence[object]) -> Samples:
    frame = pl.DataFrame(columns)
    return numbered(frame, torch.arange(len(frame)) % 2)


def scaling_of(*columns: Sequence[float] | Array, logarithm: bool = True) -> Scaling:
    """The scaling of one column, dealt out to as many workers as there are arguments."""
    return merged([column_statistics(pl.DataFrame({"a": list(values)})) for values in columns], logarithm=logarithm)


def column(encoded: Encoded, name: str, shard: int = 0) -> list[float]:
    return encoded.shards[shard].x[:, encoded.names.index(name)].tolist()


# Tensors


def test_bytes_and_numbers_in_tensors() -> None:
    pixels = numbered(torch.tensor([[[0, 51, 255]]], dtype=torch.uint8), torch.tensor([1]))
    encoded = encode([pixels], [pixels])
    assert torch.allclose(encoded.shards[0].x, torch.tensor([[[0.0, 0.2, 1.0]]]))
    assert encoded.others[0].y.tolist() == [1]
    floats = numbered(torch.tensor([[-3.5, 7.0]]), torch.tensor([0]))
    assert encode([floats], []).shards[0].x.tolist() == [[-3.5, 7.0]]


# Numbers


def test_the_range_is_that_of_the_quantiles() -> None:
    """Of 1, …, 200 the smallest value with at least 1 % of all up to it is 2, and with 99 % it is 198."""
    values = np.arange(1.0, 201)
    scaling = scaling_of(values)
    assert (scaling.low[0], scaling.high[0], scaling.unit[0]) == (2, 198, 0)
    scaled, clipped = scaling.apply(values[:, None])
    assert np.allclose(scaled[:, 0], ((values - 2) / 196).clip(0, 1))
    assert clipped.tolist() == [3]  # 1, 199 and 200


def test_equal_workers_give_what_one_gives() -> None:
    values = np.random.default_rng(0).normal(size=500)
    one, many = scaling_of(values), scaling_of(*[values] * 7)
    assert (one.low, one.high) == (many.low, many.high)


def test_workers_count_by_their_samples() -> None:
    """A worker with 0.5 % of all samples is beyond the quantiles, however odd its meter is; one with 2 % is not."""
    usual = np.linspace(0, 1, 4000)
    assert scaling_of(usual, np.full(20, 1e9)).high[0] <= 1
    assert scaling_of(usual, np.full(80, 4.0)).high[0] == 4


@pytest.mark.parametrize("seed", [0, 1])
def test_the_range_hardly_depends_on_who_holds_what(seed: int) -> None:
    """Sorted samples are the most uneven partition there is."""
    values = np.random.default_rng(seed).normal(size=10_000)
    low, high = np.quantile(values, [0.01, 0.99])
    for shards in (np.array_split(values, 50), np.array_split(np.sort(values), 50)):
        scaling = scaling_of(*shards)
        assert abs(scaling.low[0] - low) < 0.1 * abs(low)
        assert abs(scaling.high[0] - high) < 0.1 * abs(high)


def test_only_scalars_are_exchanged() -> None:
    rng = np.random.default_rng(3)
    frames = [pl.DataFrame({"a": rng.normal(size=90), "b": rng.integers(0, 9, 90)}) for _ in range(4)]
    messages = [column_statistics(frame).vector() for frame in frames]
    assert [message.shape for message in messages] == [(1 + 2 * len(PERCENTS),)] * 4
    there, back = merged([column_statistics(f) for f in frames]), merged([Statistics.from_vector(m) for m in messages])
    for field in ("low", "high", "unit", "constant"):
        assert np.array_equal(getattr(there, field), getattr(back, field))


def test_a_rare_flag_is_no_constant() -> None:
    flag = [0.0] * 999 + [1.0]
    encoded = encode([part(flag=flag, size=range(1000))], [])
    assert encoded.names == ("flag", "size")
    assert column(encoded, "flag") == flag


def test_columns_constant_at_all_workers_are_left_out() -> None:
    one, two = part(a=[1, 1], b=[5, 5], c=["x", "x"], d=[0, 1]), part(a=[1, 1], b=[6, 6], c=["x", "x"], d=[1, 0])
    encoded = encode([one, two], [part(a=[2, 1], b=[5, 5], c=["y", "x"], d=[0, 0])])
    assert encoded.names == ("b", "d")
    assert column(encoded, "b") == [0, 0]
    assert column(encoded, "b", shard=1) == [1, 1]


def test_heavy_tails_are_spread() -> None:
    """Of 1, 10, …, 1e6 the largest is far beyond the median; the logarithm's unit is 1/30 of it."""
    values = np.repeat(10.0 ** np.arange(7), 100)
    scaling = scaling_of(values)
    assert scaling.unit[0] == 1e6 / DEPTH
    scaled, _ = scaling.apply(values[::100, None])
    expected = np.log1p(values[::100] / scaling.unit[0])
    assert np.allclose(scaled[:, 0], (expected - expected[0]) / (expected[-1] - expected[0]))
    linear, _ = scaling_of(values, logarithm=False).apply(values[::100, None])
    assert np.allclose(linear[:, 0], (values[::100] - 1) / (1e6 - 1))
    assert (scaled[1:-1] > linear[1:-1]).all()


@pytest.mark.parametrize("values", [[-1e4, -1.0, -1.0, 0.0, 1.0, 1.0, 1e4], [-1e4, -1.0, -1.0, -1.0, 0.0]])
def test_logarithms_keep_sign_and_order(values: list[float]) -> None:
    scaling = scaling_of(values)
    assert scaling.unit[0] > 0
    scaled, _ = scaling.apply(np.array(values)[:, None])
    assert (np.diff(scaled[:, 0]) >= 0).all()
    assert (np.diff(scaled[:, 0]) > 0).tolist() == (np.diff(values) > 0).tolist()


@pytest.mark.parametrize(
    "values",
    [
        np.linspace(1, HEAVY, 101),  # no tail
        np.linspace(1.6e9, 1.6e9 + 3600, 101),  # times: large, but all alike
        np.linspace(-1, 1, 101),  # centred: the median is 0, without a tail
    ],
)
def test_other_columns_are_not(values: Array) -> None:
    assert scaling_of(values).unit[0] == 0


# Words


def test_categories_of_all_workers_are_known_to_all() -> None:
    encoded = encode([part(p=["tcp", "udp"], n=[0, 1]), part(p=["arp", "udp"], n=[0, 1])], [part(p=["icmp"], n=[0])])
    assert encoded.names == ("p=arp", "p=tcp", "p=udp", "n")
    assert encoded.shards[0].x[:, :3].tolist() == [[0, 1, 0], [0, 0, 1]]
    assert encoded.shards[1].x[:, :3].tolist() == [[1, 0, 0], [0, 0, 1]]
    assert encoded.others[0].x[:, :3].tolist() == [[0, 0, 0]]  # none of those known


def test_rare_and_unseen_categories_are_other() -> None:
    words = ["a"] * 3 + ["b"] * 2 + ["c", "d"]
    encoded = encode([part(w=words)], [part(w=["z", "a"])], options=Options(categories=2))
    assert encoded.names == ("w=a", "w=b", "w: other")
    assert encoded.shards[0].x.sum(dim=0).tolist() == [3, 2, 2]
    assert encoded.others[0].x.tolist() == [[0, 0, 1], [1, 0, 0]]


def test_a_category_may_be_called_other() -> None:
    encoded = encode([part(w=["other", "other", "a", "a", "b"])], [], options=Options(categories=2))
    assert encoded.names == ("w=a", "w=other", "w: other")
    assert encoded.shards[0].x.sum(dim=0).tolist() == [2, 2, 1]


def test_ordinal_categories() -> None:
    encoded = encode([part(w=["b", "a", "c", "a"])], [part(w=["new"])], options=Options(one_hot=False))
    assert encoded.names == ("w",)
    assert torch.allclose(encoded.shards[0].x[:, 0], torch.tensor([1 / 3, 0, 2 / 3, 0]))
    assert encoded.others[0].x.tolist() == [[1.0]]  # after the last


def test_the_most_frequent_win_and_ties_go_by_name() -> None:
    counts = [Counter({"a": 1, "c": 1}), Counter({"b": 1, "c": 1, "d": 1})]
    assert vocabulary(counts, 2) == (("a", "c"), True)
    assert vocabulary(counts, 4) == (("a", "b", "c", "d"), False)


def test_fixed_columns_are_all_their_features() -> None:
    shard = part(size=[1, 2, 3], proto=["a", "b", "c"], flag=[0, 1, 0], same=[1, 1, 1])
    encoded = encode([shard], [], fixed=("proto", "flag", "same"))
    assert encoded.names == ("size", "proto=a", "proto=b", "proto=c", "flag")
    assert encoded.fixed == (1, 2, 3, 4)


# All together


def test_only_training_samples_are_fitted() -> None:
    shard = part(n=list(range(100)), w=["a", "b"] * 50)
    plain, odd = encode([shard], []), encode([shard], [part(n=[-1e6, 50.0], w=["z", "a"])])
    assert torch.equal(plain.shards[0].x, odd.shards[0].x)
    assert odd.others[0].x[0].tolist() == [0, 0, 0]
    assert odd.names == plain.names == ("n", "w=a", "w=b")
    # 0, 99 and -1e6 lie outside; of 0, …, 99 the range is 0, …, 98.
    assert (plain.clipped, odd.clipped) == ((1, 0, 0), (2, 0, 0))


@settings(deadline=None, max_examples=40)
@given(st.permutations(range(4)), st.integers(0, 1000))
def test_laws(order: list[int], seed: int) -> None:
    """Features are numbers in [0, 1]; the order of the workers is only that of the results."""
    rng = np.random.default_rng(seed)
    shards = [
        part(
            a=rng.standard_cauchy(count) * 10.0 ** rng.integers(-6, 9),
            b=rng.integers(-3, 4, count),
            c=rng.choice(["x", "y", "z"], count).tolist(),
            d=rng.random(count) < 0.5,
        )
        for count in rng.integers(2, 30, len(order))
    ]
    one, two = encode(shards, []), encode([shards[i] for i in order], [])
    assert one.names == two.names
    assert one.clipped == two.clipped
    for place, i in enumerate(order):
        assert torch.equal(two.shards[place].x, one.shards[i].x)
        assert torch.equal(two.shards[place].y, shards[i].y)
    for shard in one.shards:
        assert shard.x.dtype == torch.float32
        assert shard.x.isfinite().all()
        assert float(shard.x.min()) >= 0
        assert float(shard.x.max()) <= 1


def test_a_table_of_words_only() -> None:
    assert encode([part(w=["a", "b"])], []).shards[0].x.tolist() == [[1, 0], [0, 1]]


def test_the_order_of_columns_is_that_of_the_first_shard() -> None:
    encoded = encode([part(a=[0, 1], b=[0, 1])], [part(b=[1], a=[0])])
    assert encoded.others[0].x.tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("shards", "fixed", "complaint"),
    [
        ([part(a=[1, 2]), numbered(torch.zeros(2, 1), torch.zeros(2))], (), "Some parts are tables and some tensors"),
        ([part(a=[1, 2]), part(b=[1, 2])], (), "Shard 1 differs from Shard 0 in column `a`"),
        ([part(a=[1, 2]), part(a=["1", "2"])], (), "Shard 1 differs from Shard 0 in column `a`; .* types"),
        ([part(a=[1, 2]), part(a=[1, None])], (), "Shard 1 has 1 empty or infinite cells in column `a`"),
        ([part(a=[1.0, float("nan")])], (), "Shard 0 has 1 empty or infinite cells in column `a`"),
        ([part(a=["x", None])], (), "Shard 0 has 1 empty"),
        ([part(a=[[1], [2]])], (), r"The column `a` of Shard 0 holds List\(Int64\); give numbers or words"),
        ([part(a=[1, 1]), part(a=[1, 1])], (), "Every column has the same value at all workers"),
        ([part(proto=["a", "b"])], ("prot",), r"The table has no column `prot`; did you mean proto\?"),
        ([numbered(torch.zeros(2, 1), torch.zeros(2).long())], ("a",), "Only columns can be fixed by name"),
        ([part(a=[1, 2]), part(a=[1, 2]).take(torch.tensor([], dtype=torch.long))], (), "Shard 1 is empty"),
    ],
)
def test_what_cannot_be_encoded(shards: list[Samples], fixed: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        encode(shards, [], fixed)


def test_one_category_is_none() -> None:
    with pytest.raises(ValueError, match="at least 2 categories; got categories = 1"):
        Options(categories=1)
