"""Labels in Python: any whole numbers name classes, and how large they are costs nothing."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch

from f2cto import select
from f2cto.models import fresh, mlp
from f2cto.randomness import generator
from testing.shards import blobs

SHORT: dict[str, Any] = {"stopping": {"iterations": 3}, "proxy": {"sync_every": 2}}
SHARDS = [blobs(20, 3, 1), blobs(30, 3, 2)]
NAMED = ([0, 5, 900], [-1, 0, 1], [7, 10**9, 2**62])


def named(labels: list[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The same shards with other numbers for the three classes."""
    return [(x, torch.tensor(labels)[y]) for x, y in SHARDS]


def network(classes: int) -> torch.nn.Module:
    return fresh(lambda: mlp(6, (8,), classes), generator(0))


@pytest.mark.parametrize("labels", NAMED, ids=str)
def test_the_same_samples_whatever_classes_are_called(labels: list[int]) -> None:
    plain, found = (select(shards, size=4, settings=SHORT) for shards in (SHARDS, named(labels)))
    assert all(np.array_equal(a, b) for a, b in zip(plain.indices, found.indices, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(plain.weights, found.weights, strict=True))
    assert (plain.classes, found.classes) == ((0, 1, 2), tuple(labels))
    x, y = named(labels)[0]
    assert found.model(x).shape == (len(y), 3)


@pytest.mark.parametrize("labels", NAMED, ids=str)
def test_a_model_with_an_output_a_class_takes_them_in_their_order(labels: list[int]) -> None:
    plain, found = (select(shards, 4, settings=SHORT, model=network(3)) for shards in (SHARDS, named(labels)))
    assert all(np.array_equal(a, b) for a, b in zip(plain.indices, found.indices, strict=True))
    assert found.classes == tuple(labels)


def test_labels_that_number_a_models_outputs_stay_as_they_are() -> None:
    """A model of ten outputs, of which three occur: label 7 is output 7."""
    found = select(named([2, 5, 7]), 4, settings=SHORT | {"stopping": {"iterations": 40}}, model=network(10))
    assert found.classes == tuple(range(10))
    x, _ = SHARDS[0]
    assert set(found.model(x).argmax(dim=1).tolist()) <= {2, 5, 7}


@pytest.mark.parametrize("labels", [[0, 5, 900], [-1, 0, 1], [1, 2, 10]])
def test_a_model_with_outputs_to_spare_must_be_told_which(labels: list[int]) -> None:
    with pytest.raises(ValueError, match=r"the model has 10 outputs and the data 3 classes, .* number them 0 to 9"):
        select(named(labels), 4, settings=SHORT, model=network(10))


def test_labels_of_all_shards_count_together() -> None:
    """A class that one worker alone has is a class of all."""
    (x0, y0), (x1, y1) = named([0, 5, 900])
    found = select([(x0[y0 < 900], y0[y0 < 900]), (x1[y1 > 0], y1[y1 > 0])], 4, settings=SHORT)
    assert found.classes == (0, 5, 900)


def test_large_labels_take_no_longer() -> None:
    def seconds(labels: list[int]) -> float:
        began = time.perf_counter()
        select(named(labels), 4, settings=SHORT)
        return time.perf_counter() - began

    seconds([0, 1, 2])
    pairs = [(seconds([0, 1, 2]), seconds([0, 5, 90_000])) for _ in range(3)]
    assert min(long / short for short, long in pairs) < 1.5
