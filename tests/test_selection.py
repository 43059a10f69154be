from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from f2cto import F2ctoSettings, Range, select
from f2cto.config import SettingsError
from f2cto.models import fresh, mlp
from f2cto.randomness import generator
from f2cto.selection import coreset_sizes
from f2cto.trilevel.master import DivergedError, Stopped
from testing.shards import blobs

SHORT = {"stopping": {"iterations": 3}, "proxy": {"sync_every": 2}}
SHARDS = [blobs(20, 3, 1), blobs(30, 3, 2)]


def small(classes: int = 3, inputs: int = 6) -> nn.Module:
    return fresh(lambda: mlp(inputs, (8,), classes), generator(0))


def test_three_lines_of_python() -> None:
    chosen = select(SHARDS, size=4, settings=SHORT)
    assert [len(rows) for rows in chosen.indices] == [4, 4]
    assert all(weights.sum() == pytest.approx(1) for weights in chosen.weights)
    assert len(chosen.history) == 3
    assert chosen.stopped is Stopped.ITERATIONS
    assert chosen.model(SHARDS[0][0]).shape == (20, 3)
    assert {row.metrics["robust_accuracy"] <= 1 for row in chosen.history} == {True}


def test_traffic_is_four_vectors_an_iteration() -> None:
    model = small()
    d = sum(p.numel() for p in model.parameters())
    chosen = select(SHARDS, size=4, model=model, settings=SHORT | {"choice": "average"})
    assert chosen.traffic.floats_per_worker == 4 * d * 3
    rounds = {"stopping": {"iterations": 6}, "local_rounds": 3, "choice": "average"}
    periodic = select(SHARDS, size=4, model=model, settings=rounds)
    assert periodic.traffic.floats_per_worker == 4 * d * 6 / 3
    assert [r.iteration for r in periodic.history] == [3, 6]


@pytest.mark.parametrize("form", ["arrays", "float64", "bytes", "dataset"])
def test_forms_of_shards(form: str) -> None:
    pixels = [((x * 255).round().to(torch.uint8), y) for x, y in SHARDS]
    floats = [(x.double() / 255, y) for x, y in pixels]
    forms: dict[str, list[Any]] = {
        "arrays": [(x.numpy(), y.numpy()) for x, y in floats],
        "float64": floats,
        "bytes": pixels,
        "dataset": [TensorDataset(x, y) for x, y in floats],
    }
    expected = select([(x.float(), y) for x, y in floats], size=4, settings=SHORT)
    for a, b in zip(select(forms[form], size=4, settings=SHORT).indices, expected.indices, strict=True):
        assert a.tolist() == b.tolist()


def test_the_users_model_is_left_alone() -> None:
    model = small()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    chosen = select(SHARDS, size=4, model=model, settings=SHORT)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert any(not torch.equal(before[name], value) for name, value in chosen.model.state_dict().items())


def test_seeds_matter_and_repeat() -> None:
    settings = {"stopping": {"iterations": 12}}
    one, two, other = (select(SHARDS, size=4, settings=settings, seed=seed) for seed in (1, 1, 2))
    assert [r.objective for r in one.history] == [r.objective for r in two.history]
    assert all(np.array_equal(a, b) for a, b in zip(one.weights, two.weights, strict=True))
    assert [r.objective for r in one.history] != [r.objective for r in other.history]


def test_methods_by_name() -> None:
    assert len(select(SHARDS, size=0.1, method="random").indices[1]) == 3
    with pytest.raises(SettingsError, match=r"no method `magic`; there are f2cto, f2cto\+p, .*random, balanced"):
        select(SHARDS, size=4, method="magic")


def test_stops_when_stationary_or_out_of_time() -> None:
    still = select(SHARDS, size=4, settings={"stopping": {"iterations": 50, "tolerance": 1e9}})
    assert (still.stopped, len(still.history)) == (Stopped.STATIONARY, 1)
    late = select(SHARDS, size=4, settings={"stopping": {"iterations": 10**6, "seconds": 0.05}})
    assert late.stopped is Stopped.TIME


@pytest.mark.parametrize(
    ("size", "counts", "expected"),
    [
        (10, [20, 30], [10, 10]),
        (0.1, [20, 34], [2, 3]),
        (0.01, [20], [1]),
        (1, [5], [1]),
        (5.0, [5], [5]),
        ([np.int64(2), 3], [4, 4], [2, 3]),
    ],
)
def test_sizes(size: Any, counts: list[int], expected: list[int]) -> None:
    assert coreset_sizes(size, counts) == expected


nan = float("nan")
X, Y = SHARDS[0]


@pytest.mark.parametrize(
    ("call", "kind", "complaint"),
    [
        (lambda: select(SHARDS, size=25), ValueError, "Worker 0 has 20 samples but is to keep 25; lower `size`"),
        (lambda: select(SHARDS, size=0), ValueError, "`size` must be a count"),
        (lambda: select(SHARDS, size=2.5), ValueError, "`size` must be a count"),
        (lambda: select(SHARDS, size=nan), ValueError, "`size` must be a count"),
        (lambda: select(SHARDS, size=float("inf")), ValueError, "`size` must be a count"),
        (lambda: select(SHARDS, size=4, model=nn.Linear), TypeError, "`model` must be a torch network"),  # type: ignore[arg-type]
        (lambda: select(SHARDS, size=4, valid=(0, 1)), TypeError, r"`valid` must be a range.*got \(0, 1\)"),  # type: ignore[arg-type]
        (lambda: select(SHARDS, size=4, seed=1.5), TypeError, "`seed` must be a whole number; got 1.5"),  # type: ignore[arg-type]
        (lambda: select([], size=4), ValueError, "`shards` is empty"),
        (lambda: select((X, Y), size=4), TypeError, r"for one worker give \[\(x, y\)\]"),
        (lambda: select([(X, Y), (X[:0], Y[:0])], size=4), ValueError, "Shard 1 is empty"),
        (lambda: select([(X, Y), (X[:, :5], Y)], size=4), ValueError, "one shape"),
        (lambda: select([(X, Y * 0)], size=4), ValueError, "at least two classes"),
        (lambda: select([(X * nan, Y)], size=4), ValueError, "Shard 0 has 20 samples with NaN"),
        (lambda: select([(X * 3, Y)], size=4), ValueError, r"outside the valid range \[0, 1\]"),
        (lambda: select(SHARDS, size=4, model=small(2)), ValueError, "2 outputs and the data 3 classes"),
        (lambda: select(SHARDS, size=4, model=small(3, 7)), ValueError, r"cannot take samples of shape \(6,\)"),
        (lambda: select(SHARDS, size=4, settings={"proxi": {}}), SettingsError, "did you mean `proxy`"),
        (
            lambda: select(SHARDS, 4, settings={"choice": "greedy"}, method="f2cto-top"),
            SettingsError,
            "`f2cto-top` stands",
        ),
        (lambda: select(SHARDS, size=4, settings={"proxy": {"step": "big"}}), SettingsError, "must be a number"),
    ],
)
def test_bad_input_is_one_clear_error(call: Any, kind: type[Exception], complaint: str) -> None:
    with pytest.raises(kind, match=complaint):
        call()


def test_another_range_can_be_valid() -> None:
    shards = [(2 * x - 1, y) for x, y in SHARDS]
    assert len(select(shards, size=4, settings=SHORT, valid=Range(-1, 1)).indices[0]) == 4


def test_a_run_that_diverges_says_so() -> None:
    settings = {"proxy": {"step": 1e38, "hat_step": 1e38, "radius": 1e38}, "stopping": {"iterations": 20}}
    with pytest.raises(DivergedError, match=r"became infinite or NaN in iteration \d+; lower the step sizes"):
        select(SHARDS, size=4, settings=settings)


def test_settings_may_be_an_object() -> None:
    assert len(select(SHARDS, 4, settings=F2ctoSettings(local_rounds=250)).history) == 1
