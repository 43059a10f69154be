"""A real federation on loopback: SuperLink, three SuperNodes and three sites, with TLS and node authentication.

One selection, in the midst of which a site's process is killed (kill -9), is looked at from all sides: minutes.
"""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from f2cto.cli import main
from f2cto.cli.federation_runs import read_settings
from f2cto.data.dataset import LabelledData
from f2cto.flower.keys import site_keys
from f2cto.selection import Selection, select
from f2cto.site.job import Prepared, job_of, prepared
from f2cto.site.schema import read_schema
from testing.deployment import SITE, SITES, Deployment, deployed, free_port, listens, split_digits, until, written
from testing.taps import Crossed, Floats, arrays, crossed, heads, leaks, tap

pytestmark = pytest.mark.federation

SETTINGS = f"""
workers = {SITES}
size = 5
seed = 7
[network]
hidden = [16]
[f2cto]
local_rounds = 2
[f2cto.stopping]
iterations = 4
[f2cto.sharing]
exchanges = 1
[federation.faults]
on_failure = "wait"
patience = 300.0
"""
PARAMETERS = 64 * 16 + 16 + 16 * 10 + 10
COUNTS = (100, 97, 91)  # samples of the sites: none is the length of anything else
KILLED = 1


@dataclass(frozen=True)
class Ended:
    """A federation after its selection."""

    at: Deployment
    samples: list[LabelledData]
    code: int  # of `f2cto federation run`
    seen: list[Crossed]

    @property
    def out(self) -> Path:
        return self.at.root / "out"

    def coreset(self, number: int) -> list[str]:
        return (self.at.folder / f"site-{number}/work/coreset.csv").read_text().splitlines()


@pytest.fixture(scope="module")
def ended() -> Iterator[Ended]:
    root, samples = (
        Path(tempfile.mkdtemp(prefix="f2cto-", dir="/tmp")),
        split_digits(COUNTS),
    )  # sockets' paths are short
    try:
        schema = root / "schema.json"
        assert main(["federation", "schema", "--shape", "64", "--classes", "10", "--out", str(schema)]) == 0
        (root / "settings.toml").write_text(SETTINGS)
        with deployed(root, written(root, samples), schema) as at:
            tap(at.folder / "master/state.db")
            yield Ended(at, samples, run_with_a_kill(at), crossed(at.folder / "master/state.db"))
    finally:
        shutil.rmtree(root)


def run_with_a_kill(at: Deployment) -> int:
    """A selection; after its first exchange a site's process is killed, missed, and started again."""
    out, options = at.root / "out", ["--settings", str(at.root / "settings.toml"), "--out", str(at.root / "out")]
    code = "import sys; from f2cto.cli import main; sys.exit(main())"
    with (at.root / "run.log").open("wb") as log:
        command = [sys.executable, "-c", code, "federation", "run", str(at.folder), *options]
        run = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603
    try:
        until(lambda: (out / "metrics.jsonl").exists() and (out / "metrics.jsonl").read_text(), 120, "an iteration")
        at.kill(SITE, f"site-{KILLED}")
        until(lambda: missed(at), 120, "the site is missed")
        at.site(KILLED)
        return run.wait(180)
    finally:
        run.kill()
        run.wait()


def missed(at: Deployment) -> bool:
    return any(b"does not answer" in one.content for one in crossed(at.folder / "master/state.db"))


@pytest.fixture(scope="module")
def here(ended: Ended) -> tuple[Prepared, Selection]:
    """The same selection in this process, undisturbed."""
    settings, schema = read_settings(ended.at.root / "settings.toml"), read_schema(ended.at.root / "schema.json")
    job = job_of(settings, schema, "here")
    made = prepared(job, schema)
    own = {"valid": made.valid, "radius": job.radius}
    return made, select(ended.samples, 5, model=made.network, settings=job.settings, seed=job.seed, **own)  # type: ignore[arg-type]


def test_a_selection_ends_though_a_site_was_killed(ended: Ended) -> None:
    assert ended.code == 0, (ended.at.root / "run.log").read_text()
    log = ended.at.log(f"site-{KILLED}")
    assert log.count("is ready") == 2
    assert re.search("At job `[0-9a-f]+` again, after question 1", log)


def test_sites_keep_what_one_process_would_keep(ended: Ended, here: tuple[Prepared, Selection]) -> None:
    for number, (indices, weights) in enumerate(zip(here[1].indices, here[1].weights, strict=True)):
        labels = ended.samples[number].y[indices]
        rows = zip(indices.tolist(), labels.tolist(), weights.tolist(), strict=True)
        assert ended.coreset(number) == ["row,label,weight", *(f"{r},{y},{w:.9g}" for r, y, w in rows)]


def test_the_master_ends_with_the_model_of_one_process(ended: Ended, here: tuple[Prepared, Selection]) -> None:
    found = load_file(ended.out / "model.safetensors")
    wanted = here[1].model.state_dict()
    assert found.keys() == wanted.keys()
    assert max(float((found[name] - wanted[name]).abs().max()) for name in wanted) <= 1e-5


def test_the_master_has_no_coreset(ended: Ended) -> None:
    kept = {line.split(",")[0] for number in range(SITES) for line in ended.coreset(number)[1:]}
    assert len(kept) > 5
    assert not list(ended.out.glob("**/coreset*"))
    everything = b"".join(one.content for one in ended.seen) + (ended.out / "summary.json").read_bytes()
    for number in range(SITES):
        rows = [int(line.split(",")[0]) for line in ended.coreset(number)[1:]]
        for kind in ("<i8", "<i4", "<f4"):
            assert np.array(rows).astype(kind).tobytes() not in everything
        assert ", ".join(map(str, rows)).encode() not in everything


def test_everything_was_captured(ended: Ended, here: tuple[Prepared, Selection]) -> None:
    """Else what follows would show nothing: the parameters that the master begins with are among what crossed."""
    w = here[0].w.numpy()
    assert any(array.shape == w.shape and np.array_equal(array, w) for array in arrays(ended.seen))
    kinds = [head.get("kind") for head in heads(ended.seen)]
    assert {"hello", "start", "ask", "finish"} <= set(kinds)
    assert len([head for head in heads(ended.seen) if "scalars" in head and "kind" not in head]) >= 2 * SITES


def test_only_parameters_and_a_few_numbers_cross(ended: Ended) -> None:
    assert {one.kind for one in ended.seen} <= {
        "Message",
        "RecordDict",
        "ConfigRecord",
        "ArrayRecord",
        "Array",
        "ArrayChunk",
    }
    assert {array.shape for array in arrays(ended.seen)} == {(PARAMETERS,)}
    for head in heads(ended.seen):
        if "kind" in head:
            assert head.keys() <= {"kind", "job", "phase", "serial", "scalars"}
        elif "error" in head:
            # The killed site was away; when it was back, it was asked first whether it still knew the job.
            probed = {"error": "A question needs a phase and a serial number from 1 on."}
            assert head in ({"error": head["error"], "away": True}, probed)
        else:
            assert head.keys() in ({"number", "samples", "schema"}, {"samples"}, {"scalars"}, {"kept"})
            assert all(isinstance(value, float) for value in head.get("scalars", {}).values())
            assert len(head.get("scalars", {})) <= 8


def test_no_row_of_the_data_crosses(ended: Ended) -> None:
    rows = torch.cat([part.x for part in ended.samples]).numpy()
    assert list(leaks(ended.seen, rows)) == []


def test_a_row_would_have_been_found(ended: Ended) -> None:
    row: Floats = ended.samples[0].x[3].numpy()
    npy = ended.at.root / "leak.npy"
    np.save(npy, np.concatenate([np.zeros(7), row + 1e-6, np.zeros(5)]))
    made = [*ended.seen[:20], Crossed(b"ArrayChunk  0\0" + npy.read_bytes())]
    assert list(leaks(made, row[None])) == ["the numbers of row 0 in an array of shape (76,)"]
    assert list(leaks([Crossed(b"ConfigRecord  0\0xx" + row.tobytes())], row[None])) == ["row 0 as <f4"]


def stranger(at: Deployment, name: str, **conf: str) -> str:
    """What a node says that is no site's; its settings are those of site 0 but for `conf`."""
    folder = at.folder / name
    shutil.copytree(at.folder / "site-0", folder, ignore=shutil.ignore_patterns("work", "*.sock", "flwr"))
    text = (folder / "federation.conf").read_text() + f"NODE_PORT={free_port(1)}\n"
    (folder / "federation.conf").write_text(text + "".join(f"{key}={value}\n" for key, value in conf.items()))
    if name == "unregistered":
        (folder / "site.key").write_bytes(site_keys().private)
    at.start(name, f"{name}/start-supernode.sh", "--max-retries", "1", env={"RETRY": "0"})
    assert at.running[name].wait(60) == 1
    return at.log(name)


def test_a_node_with_an_unregistered_key_is_refused(ended: Ended) -> None:
    said = stranger(ended.at, "unregistered")
    assert "Failed to activate SuperNode" in said
    assert "SuperNode ID" not in said
    assert "No SuperNode found with the given public key" in ended.at.log("superlink")


def test_who_speaks_plain_http_is_refused(ended: Ended) -> None:
    # Somebody is there: what follows is refused, and not merely unheard.
    assert ended.at.running["superlink"].poll() is None
    assert listens(ended.at.port)
    assert "SuperNode ID" not in stranger(ended.at, "plain", SECURE="no")
    with pytest.raises(httpx.HTTPError):
        httpx.post(f"http://127.0.0.1:{ended.at.port}/v1/fleet/pull-messages", timeout=10)


def test_through_the_gate_come_nodes_and_nothing_else(ended: Ended) -> None:
    """A site's own node comes in by the gate; who wants to start a run, or look at runs, does not."""
    at, port = ended.at, free_port(1)
    code = "import sys; from f2cto.cli import main; sys.exit(main())"
    options = ["--listen", "127.0.0.1", "--port", str(port), "--to", str(at.port)]
    gate = subprocess.Popen([sys.executable, "-c", code, "federation", "gate", str(at.folder), *options])  # noqa: S603
    try:
        until(lambda: listens(port), 30, "the gate is open")
        secure = ssl.create_default_context(cafile=str(at.folder / "ca/ca.crt"))
        with httpx.Client(base_url=f"https://localhost:{port}", verify=secure, trust_env=False) as client:
            paths = ("control/list-runs", "control/start-run", "runtime/acquire-task", "fleet/%2e%2e/control/list-runs")
            for path in paths:
                assert client.post(f"/v1/{path}").status_code == 403
            assert client.get("/v1/fleet/pull-messages").status_code == 403
            assert client.post("/v1/fleet/pull-messages").status_code not in {200, 403, 502}  # the SuperLink refused it
        at.running["node-0"].terminate()
        assert at.running["node-0"].wait(30) == 0
        conf = at.folder / "site-0/federation.conf"
        conf.write_text(f"{conf.read_text()}SUPERLINK=localhost:{port}\n")
        seen = at.log("node-0").count("SuperNode ID")
        at.node(0)
        until(lambda: at.log("node-0").count("SuperNode ID") > seen, 60, "the node is in")
        until(lambda: online(at) == SITES, 20, "the SuperLink sees it")
    finally:
        gate.kill()
        gate.wait()


def online(at: Deployment) -> int:
    time.sleep(1)
    return [node["status"] for node in at.link.ask("supernode", "list", "here")["nodes"]].count("online")


def test_the_run_wrote_down_its_settings(ended: Ended) -> None:
    assert tomllib.loads((ended.out / "settings.toml").read_text())["workers"] == SITES
