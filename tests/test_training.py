from __future__ import annotations

import pytest
import torch

from f2cto.attacks import Pgd, robust_accuracy
from f2cto.attacks.base import Range
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from f2cto.training import Training, _batches, train_robust
from testing.shards import blobs


def test_adversarial_training_makes_a_model_more_robust() -> None:
    x, y = blobs(200, 3, 1, (20,))
    flat = FlatModel(fresh(lambda: mlp(20, (32,), 3), generator(1)))
    attack = Pgd(0.25)
    plain, robust = (
        train_robust(flat, flat.own(), x, y, Pgd(radius, 5), Training(steps=200), generator(2))
        for radius in (0.0, 0.15)
    )
    accuracy = [
        robust_accuracy(lambda v, w=w: flat.logits(w, v), attack, x, y, Range(), generator(3))  # type: ignore[misc]
        for w in (plain, robust)
    ]
    assert accuracy[1] > accuracy[0] + 0.05


def test_batches_are_epochs_of_shuffled_rows() -> None:
    batches = _batches(10, 4, 7, generator(0))
    assert [len(b) for b in batches] == [4] * 7
    assert len(set(torch.cat(batches[:2]).tolist())) == 8  # no row twice in an epoch
    assert [len(b) for b in _batches(3, 50, 2, generator(0))] == [3, 3]


@pytest.mark.parametrize("bad", [{"steps": 0}, {"batch": 0}, {"rate": 0.0}, {"momentum": 1.0}, {"ramp": 1.5}])
def test_senseless_training_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="Training needs"):
        Training(**bad)  # type: ignore[arg-type]
