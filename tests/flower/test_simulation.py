"""Simulated sites: called directly, and by `flwr run` on Ray."""

from __future__ import annotations

import csv
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, RecordDict
from safetensors.torch import load_file

from f2cto.config import build, read_toml
from f2cto.federation.wire import Frame
from f2cto.flower.context_store import ContextStore
from f2cto.flower.master import run
from f2cto.flower.packing import frame_of
from f2cto.flower.server_app import orders
from f2cto.flower.simulation import answer, simulated
from f2cto.methods.running import Here
from f2cto.models import fresh
from f2cto.preparation import prepare
from f2cto.randomness import generator
from f2cto.run_settings import RunSettings
from f2cto.selection import Selection, select
from testing.grids import MemoryGrid, Node

SETTINGS = """workers = 3
size = 6
seed = 3
network.hidden = [12]
f2cto.stopping.iterations = 4
f2cto.choice = "average"
f2cto.sharing.exchanges = 1
data.scenario.samples = 180
"""


def preset(tmp_path: Path, more: str = "") -> str:
    (tmp_path / "preset.toml").write_text(SETTINGS + more)
    return str(tmp_path / "preset.toml")


def config(tmp_path: Path, more: str = "") -> dict[str, Any]:
    return {"preset": preset(tmp_path, more), "out": str(tmp_path / "out"), "poll": 0.01}


def nodes(run_config: dict[str, Any], count: int) -> MemoryGrid:
    grid = MemoryGrid()
    for i in range(count):
        grid.nodes[50 - i] = Node(answer, Context(1, 50 - i, {"partition-id": i}, RecordDict(), run_config))
    return grid


def in_process(path: str) -> tuple[Selection, list[list[int]]]:
    """The same selection by `select`, its workers in turn as sites are, in the rows of the source."""
    settings = build(RunSettings, read_toml(Path(path)))
    made = prepare(settings, Path())
    chosen = select(
        made.shards,
        int(settings.size),
        model=fresh(made.network, generator(settings.seed, 1)),
        settings=settings.of(settings.method),
        seed=settings.seed,
        method=settings.method,
        radius=settings.radius,
        gather=partial(Here, together=False),
    )
    return chosen, [rows[indices].tolist() for rows, indices in zip(made.rows, chosen.indices, strict=True)]


def kept(out: Path, site: int) -> list[int]:
    with (out / f"site-{site}" / "coreset.csv").open() as file:
        return [int(row["row"]) for row in csv.DictReader(file)]


def check_as_in_process(path: str, out: Path, workers: int) -> None:
    chosen, rows = in_process(path)
    assert [kept(out, i) for i in range(workers)] == rows
    found = load_file(out / "model.safetensors")
    for name, value in chosen.model.state_dict().items():
        assert float((found[name] - value).abs().max()) <= 1e-5


def test_a_preset_is_a_federation(tmp_path: Path) -> None:
    of = config(tmp_path)
    grid = nodes(of, 4)  # one more than the preset has sites
    summary = run(orders(of), grid)
    assert [site["kept"] for site in summary["sites"].values()] == [6, 6, 6]
    check_as_in_process(of["preset"], tmp_path / "out", 3)


def test_state_stays_with_the_node_and_is_no_more_than_arrays_and_texts(tmp_path: Path) -> None:
    of = config(tmp_path)
    grid = nodes(of, 3)
    run(orders(of), grid)
    for node in grid.nodes.values():
        assert set(node.context.state) == {"job", "state", "aliases"}
        assert isinstance(node.context.state["state"], ArrayRecord)
    sizes = {array.shape for content in grid.crossed for array in frame_of(content).arrays.values()}
    assert sizes == {(64 * 12 + 12 + 12 * 10 + 10,)}


def test_methods_whose_state_cannot_be_kept_are_simulated_too(tmp_path: Path) -> None:
    of = config(tmp_path, 'method = "fedcs"\nmethods.fedcs.pretraining.rounds = 2\n')
    run(orders(of), nodes(of, 3))
    check_as_in_process(of["preset"], tmp_path / "out", 3)


def test_a_simulation_that_goes_on_says_that_its_sites_begin_afresh(tmp_path: Path) -> None:
    of = config(tmp_path)

    class KilledError(BaseException):
        pass

    def killed(line: str) -> None:
        if line.startswith("iteration 3"):
            raise KilledError

    with pytest.raises(KilledError):
        run(orders(of), nodes(of, 3), killed)
    summary = run(orders(of), nodes(of, 3))  # as a new `flwr run` has them: Flower keeps no context from run to run
    noted = [(absence["worker"], absence["why"]) for absence in summary["absences"]]
    assert noted == [(i, "had lost its state and started afresh") for i in range(3)]


def test_data_are_read_once_in_a_process(tmp_path: Path) -> None:
    path = preset(tmp_path)
    assert simulated(path, "") is simulated(path, "")


def test_what_a_simulated_site_keeps_comes_back(tmp_path: Path) -> None:
    records = RecordDict()
    store = ContextStore(records, tmp_path / "site")
    assert store.job() == {}
    assert store.state({}) == {}
    store.begin({"text": "a"})
    state = {"a.b": torch.arange(3), "n": torch.tensor(2.0, dtype=torch.float64), "m": torch.ones(2, 0)}
    state["a.c"] = state["a.b"]
    store.save_state(state, {})
    calls = [Frame({"serial": i}, {"w": np.full(2, i, np.float32)}) for i in range(1, 12)]
    for i, call in enumerate(calls, 1):
        store.add_call(call, i)
    again = ContextStore(records, tmp_path / "site")
    assert again.job() == {"text": "a"}
    found = again.state({})
    assert all(torch.equal(found[name], value) and found[name].dtype == value.dtype for name, value in state.items())
    assert found["a.c"] is found["a.b"]
    assert [(call.head["serial"], call.arrays["w"][0]) for call in again.calls()] == [(i, i) for i in range(1, 12)]
    again.set_aside()
    assert again.state({}) == {}
    assert again.job() == {"text": "a"}
    records["more"] = ArrayRecord({"x": Array(np.zeros(1))})
    again.begin({"text": "b"})
    assert set(records) == {"job"}


APP = """[project]
name = "f2cto-simulation"
version = "1.0.0"

[tool.flwr.app]
publisher = "f2cto"

[tool.flwr.app.components]
serverapp = "f2cto.flower.server_app:app"
clientapp = "f2cto.flower.simulation:app"

[tool.flwr.app.config]
preset = ""
data-dir = ""
out = ""
seconds = 600.0
poll = 0.1
"""


@pytest.fixture
def flower(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of Flower's commands; whatever they leave running is ended, and nothing else."""
    home = tmp_path / "flwr"
    home.mkdir()
    (home / "config.toml").write_text('[superlink]\ndefault = "local"\n\n[superlink.local]\naddress = ":local:"\n')
    off = ("FLWR_DISABLE_UPDATE_CHECK", "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION")
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        ports = [str(one.getsockname()[1]), str(two.getsockname()[1])]
    yield {
        **os.environ,
        **dict.fromkeys(off, "1"),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": ports[0],
        "FLWR_LOCAL_CONTROL_API_PORT": ports[1],
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    ours = f"FLWR_HOME={home}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if ours in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)


@pytest.mark.federation
def test_flower_simulates_on_ray_what_one_process_selects(tmp_path: Path, flower: dict[str, str]) -> None:
    path, out = tmp_path / "preset.toml", tmp_path / "out"
    path.write_text(SETTINGS.replace("workers = 3", "workers = 5").replace("iterations = 4", "iterations = 20"))
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "pyproject.toml").write_text(APP)
    there = ["--federation-config", "num-supernodes=5 client-resources-num-cpus=1"]
    command = ["flwr", "run", str(tmp_path / "app"), "local", "--stream", *there]
    with (tmp_path / "log").open("w+") as log:
        subprocess.run(  # noqa: S603
            [*command, "--run-config", f'preset="{path}" out="{out}"'],
            env=flower,
            stdout=log,
            stderr=log,
            timeout=300,
            check=True,
        )
        log.seek(0)
        assert "f2cto: done: site 0 keeps 6" in log.read()
    summary = json.loads((out / "summary.json").read_text())
    assert summary["questions"] == summary["iterations"] == 20
    assert summary["absences"] == []
    check_as_in_process(str(path), out, 5)
