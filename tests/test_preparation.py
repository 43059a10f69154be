from __future__ import annotations

from pathlib import Path

import pytest
import torch

from f2cto.config import build
from f2cto.preparation import prepare, prepare_stream
from f2cto.run_settings import RunSettings


def settings(**damage: float) -> RunSettings:
    scenario = {"kind": "permuted", "tasks": 2, "samples": 200}
    return build(RunSettings, {"data": {"scenario": scenario | {"task": 2}, "damage": damage}})


@pytest.mark.parametrize("damage", [{"labels": 0.2}, {"outliers": 0.2}])
def test_only_training_samples_are_damaged_and_the_same_way_alone_and_in_a_stream(damage: dict[str, float]) -> None:
    sound, found = prepare(settings(), Path()), prepare(settings(**damage), Path())
    assert found.test is not None
    assert sound.test is not None
    assert torch.equal(found.test.x, sound.test.x)
    assert torch.equal(found.test.y, sound.test.y)
    wrong = (found.train.y != sound.train.y) | (found.train.x != sound.train.x).flatten(1).any(dim=1)
    assert int(wrong.sum()) == 40
    assert all(torch.equal(a, b) for a, b in zip(found.rows, sound.rows, strict=True))
    first, second = prepare_stream(settings(**damage), Path())
    assert torch.equal(second.train.x, found.train.x)
    assert torch.equal(second.train.y, found.train.y)
    assert not torch.equal(first.train.y, found.train.y)
