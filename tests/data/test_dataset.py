from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from f2cto.data.dataset import LabelledData, as_labelled, check_alike, labels_in, numbered, output_labels
from f2cto.data.sources import digits

X, Y = np.random.default_rng(0).random((6, 3)), np.array([0, 1, 2, 0, 1, 2])


def with_nan() -> np.ndarray[Any, Any]:
    x = X.copy()
    x[4, 1] = np.nan
    return x


@pytest.mark.parametrize(
    "source",
    [
        (X, Y),
        [X.tolist(), Y.tolist()],
        (torch.from_numpy(X), torch.from_numpy(Y)),
        (X.astype(np.float64), Y.astype(np.int32)),
        TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)),
        LabelledData(torch.from_numpy(X), torch.from_numpy(Y)),
        (X[::-1][::-1], Y),  # negative strides
    ],
)
def test_forms_of_data(source: Any) -> None:
    data = as_labelled(source, "Shard 0")
    assert data.x.dtype == torch.float32
    assert torch.allclose(data.x, torch.from_numpy(X).float())
    assert data.y.tolist() == Y.tolist()


def test_bytes_become_fractions() -> None:
    pixels = np.array([[0, 51, 255]], dtype=np.uint8)
    assert torch.allclose(as_labelled((pixels, [1]), "S").x, torch.tensor([[0.0, 0.2, 1.0]]))


@pytest.mark.parametrize(
    ("source", "kind", "complaint"),
    [
        ((with_nan(), Y), ValueError, "Shard 3 has 1 samples with NaN or infinite features, the first in row 4"),
        ((np.where(X > 0.5, np.inf, X), Y), ValueError, "NaN or infinite"),
        ((X, Y[:5]), ValueError, "Shard 3 has 6 samples but 5 labels"),
        ((X[:0], Y[:0]), ValueError, "Shard 3 is empty"),
        (TensorDataset(torch.zeros(0, 3), torch.zeros(0)), ValueError, "Shard 3 is empty"),
        ((X, Y.astype(np.uint64) + np.uint64(2**63)), ValueError, "labels of Shard 3 are numbers beyond 63 bits"),
        ((X, Y + 0.5), TypeError, "must be whole numbers"),
        ((X, Y.reshape(2, 3)), ValueError, "must be a vector"),
        ((X[:, 0], Y), ValueError, r"must have shape \(count, features…\)"),
        ((X * 1j, Y), TypeError, "complex"),
        ((np.array([["a"]]), [0]), TypeError, "array of numbers"),
        ("data.csv", TypeError, "a pair .* got str"),
        ((X, Y, Y), TypeError, "a pair"),
    ],
)
def test_bad_data_is_named(source: Any, kind: type[Exception], complaint: str) -> None:
    with pytest.raises(kind, match=complaint):
        as_labelled(source, "Shard 3")


def test_parts_must_fit_together() -> None:
    part = as_labelled((X, Y), "a")
    wider = as_labelled((np.hstack([X, X]), Y), "b")
    with pytest.raises(ValueError, match=r"one shape; got \(3,\), \(6,\)"):
        check_alike([part, wider])
    check_alike([part, part])


def test_labels_are_those_of_all_parts() -> None:
    parts = [as_labelled((X, labels), "a") for labels in ([7, 7, -1, 7, -1, 7], [10**9] * 6)]
    assert labels_in(parts).tolist() == [-1, 7, 10**9]
    assert numbered(parts[0], labels_in(parts)).y.tolist() == [1, 1, 0, 1, 0, 1]
    with pytest.raises(ValueError, match="All samples have label 1000000000"):
        labels_in(parts[1:])


def test_labels_of_outputs() -> None:
    assert output_labels(torch.tensor([0, 2]), 3).tolist() == [0, 1, 2]
    assert output_labels(torch.tensor([1, 2, 3]), 3).tolist() == [1, 2, 3]
    with pytest.raises(
        ValueError, match="the model has 2 outputs and the data 3 classes, 0 to 2; give a model with 3 outputs"
    ):
        output_labels(torch.tensor([0, 1, 2]), 2)


def test_digits() -> None:
    found = digits.load(Path("not/needed"))
    data = found.train
    assert isinstance(data.x, torch.Tensor)
    assert found.test is None
    assert data.x.shape == (1797, 1, 8, 8)
    assert (float(data.x.min()), float(data.x.max())) == (0.0, 1.0)
    assert torch.bincount(data.y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
