"""One selection on every engine: what carries the messages changes nothing."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from flwr.app import Context, RecordDict
from safetensors.torch import load_file
from torch import Tensor

from f2cto.config import build, merged
from f2cto.experiment import choose
from f2cto.fleets import gather_of
from f2cto.flower import simulation
from f2cto.flower.master import run
from f2cto.flower.server_app import orders
from f2cto.preparation import Prepared, prepare
from f2cto.presets import read_preset
from f2cto.run_settings import Federation, RunSettings
from testing.grids import MemoryGrid, Node
from testing.sites import federation

Found = tuple[dict[str, Tensor], list[list[int]]]  # the model, and the rows that each worker keeps

LINES = "\n[f2cto.stopping]\niterations = 20\n"


@pytest.fixture(scope="module")
def digits() -> Prepared:
    return prepare(
        build(RunSettings, merged(read_preset("digits"), {"f2cto": {"stopping": {"iterations": 20}}})), Path()
    )


@pytest.fixture(scope="module")
def in_turn(digits: Prepared) -> Found:
    return found("f2cto", digits)


@pytest.fixture(scope="module")
def by_weight(digits: Prepared) -> Found:
    """Sites take their largest weights: they do not read coresets off together."""
    return found("f2cto-top", digits)


def found(method: str, digits: Prepared) -> Found:
    torch.set_num_threads(1)
    kept = choose(method, digits, digits.settings.seed, gather=gather_of(Federation(together=False)))
    return kept.model.state_dict(), [rows[i].tolist() for rows, i in zip(digits.rows, kept.indices, strict=True)]


def written(out: Path, folders: str) -> Found:
    """What a Flower federation left behind."""
    rows = list[list[int]]()
    for i in range(5):
        with (out.parent / folders.format(i) / "coreset.csv").open() as file:
            rows.append([int(row["row"]) for row in csv.DictReader(file)])
    return load_file(out / "model.safetensors"), rows


def check_same(seen: Found, expected: Found) -> None:
    assert seen[1] == expected[1]
    for name, value in expected[0].items():
        assert float((seen[0][name] - value).abs().max()) <= 1e-5


@pytest.mark.federation
def test_ray(in_turn: Found, tmp_path: Path) -> None:
    """In a program of its own: other tests' workers may have taken all processors of this one's cluster."""
    program, out = Path(sys.executable).parent / "f2cto", tmp_path / "out"
    short = ["--iterations", "20", "--set", "evaluation.draws=1", "--set", "training.steps=1"]
    command = [str(program), "select", "--engine", "ray", "--threads", "1", *short, "--quiet", "--out", str(out)]
    subprocess.run(command, check=True, timeout=300)  # noqa: S603
    rows: list[list[int]] = [[] for _ in in_turn[1]]
    with (out / "coreset.csv").open() as file:
        for row in csv.DictReader(file):
            rows[int(row["worker"])].append(int(row["row"]))
    model = load_file(out / "model.safetensors")
    check_same((model, rows), in_turn)
    assert all(torch.equal(model[name], value) for name, value in in_turn[0].items())


def test_sites_of_their_own(digits: Prepared, by_weight: Found, tmp_path: Path) -> None:
    with federation(tmp_path, 5, digits.settings) as made:
        run(made.orders(), made.grid)
    check_same(written(tmp_path / "master", "site-{}"), by_weight)


def test_simulated_sites(by_weight: Found, tmp_path: Path) -> None:
    source = Path(simulation.__file__).parent.parent / "presets" / "digits.toml"
    (tmp_path / "preset.toml").write_text(source.read_text() + LINES)
    config: dict[str, str | float] = {
        "preset": str(tmp_path / "preset.toml"),
        "out": str(tmp_path / "out"),
        "poll": 0.01,
    }
    grid = MemoryGrid()
    for i in range(5):
        grid.nodes[i] = Node(simulation.answer, Context(1, i, {"partition-id": i}, RecordDict(), {**config}))
    run(orders(config), grid)
    check_same(written(tmp_path / "out", "out/site-{}"), by_weight)
