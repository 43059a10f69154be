"""Shards too large for matrices of all pairs: picked within bounds, or one sentence before anything is computed."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from f2cto import select
from f2cto.config import SettingsError
from f2cto.methods import greedy
from f2cto.methods.base import Given
from f2cto.methods.running import run
from testing.quick import quick
from testing.shards import federation

COUNT = 30_000  # of one class: a matrix of all pairs in double precision takes 7.2 GB
SCRIPT = """
import json, resource, sys
import torch
from f2cto import select
from f2cto.randomness import generator
name, settings = sys.argv[1], json.loads(sys.argv[2])
x = torch.rand({count}, 6, generator=generator(0))
resource.setrlimit(resource.RLIMIT_DATA, (3 * 2**30, 3 * 2**30))
chosen = select([(x, (torch.arange({count}) < 2).long())], 4, method=name, settings=settings)
print(len(set(chosen.indices[0].tolist())))
"""
TRAINED = '{"pretraining": {"rounds": 1, "local": {"steps": 2}}}'
METHODS = {
    "herding": "{}",
    "kcenter": "{}",
    "facility": "{}",
    "gcfl": TRAINED,
    "acs": TRAINED,
    "acs, gradmatch": '{"variant": "gradmatch", "attack_steps": 1, "pretraining": {"rounds": 0}}',
    "lbv": '{"stopping": {"iterations": 1}}',
    "f2cto": '{"stopping": {"iterations": 1}}',
}


@pytest.mark.parametrize("name", METHODS)
def test_no_matrix_of_all_pairs_is_made(name: str) -> None:
    command = [sys.executable, "-c", SCRIPT.format(count=COUNT), name.split(",", maxsplit=1)[0], METHODS[name]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)  # noqa: S603  (our own program)
    assert done.stdout.split() == ["4"], done.stderr[-500:]


def test_ef_says_before_it_begins_what_it_cannot_do() -> None:
    x, y = torch.zeros(14_002, 2), (torch.arange(14_002) < 2).long()
    rounds: list[object] = []
    with pytest.raises(
        SettingsError, match=r"fits 11,585 of them, and worker 0 has 14,000 of class 0; use more workers"
    ):
        select(
            [(x, y)],
            4,
            method="f2cto-ef",
            settings={**quick()["f2cto-ef"], "proxies": {"count": 2}},
            on_round=rounds.append,
        )
    assert rounds == []


def test_greedy_picks_the_same_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    shards = federation(count=24, size=5)
    method, w = greedy.make(greedy.GreedySettings(), Given(shards[0].model.own())), shards[0].model.own()
    whole = [coreset.indices.tolist() for coreset in run(method, shards, w).coresets]
    monkeypatch.setattr(greedy, "PART_BYTES", 8 * 24 * 3)  # three candidates
    assert [coreset.indices.tolist() for coreset in run(method, shards, w).coresets] == whole
