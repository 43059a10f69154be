"""`kill -9` in the midst of a selection, on a real federation on this machine: what becomes of the run.

Three sites share scikit-learn's digits; SuperLink, SuperNodes and sites are started by the scripts of `f2cto federation
init`, with TLS and node authentication. After the first iteration one part is killed: a site's process, a site's node,
or the master. A site's process is started again after a while, as a service would be; nodes are started again by their
own script; for the master, and for runs that end early, the same command is given again. Each under each policy,
against the same run undisturbed. About three minutes each.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `testing` is not installed with the package

from f2cto.cli import main as f2cto
from f2cto.records import provenance
from testing.deployment import MASTER, NODE, SITE, SITES, Deployment, deployed, split_digits, until, written

POLICIES = ("stop", "continue", "wait")
KILLED = 1  # the site
AWAY = 25.0  # seconds until a killed site's process is started again: about two messages
SETTINGS = """
workers = {sites}
size = 10
seed = 7
[network]
hidden = [32]
[f2cto.stopping]
iterations = {iterations}
[f2cto.sharing]
exchanges = 1
[federation.faults]
on_failure = "{policy}"
patience = 300.0
"""


@dataclass(frozen=True)
class Run:
    """One selection: where it writes, and the command's process."""

    at: Deployment
    name: str
    policy: str
    iterations: int

    @property
    def out(self) -> Path:
        """The master's folder."""
        return self.at.root / self.name

    def start(self) -> subprocess.Popen[bytes]:
        """`f2cto federation run`, the same command each time."""
        settings = self.at.root / f"{self.name}.toml"
        settings.write_text(SETTINGS.format(sites=SITES, iterations=self.iterations, policy=self.policy))
        code = "import sys; from f2cto.cli import main; sys.exit(main())"
        options = ["--settings", str(settings), "--out", str(self.out), "--quiet"]
        with (self.at.root / f"{self.name}.log").open("ab") as log:
            command = [sys.executable, "-c", code, "federation", "run", str(self.at.folder), *options]
            return subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603

    def rows(self) -> list[dict[str, Any]]:
        """The iterations so far."""
        path = self.out / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def said(self) -> str:
        """The last line of the command."""
        lines = (self.at.root / f"{self.name}.log").read_text().strip().splitlines()
        return lines[-1].replace(str(self.at.root), "…") if lines else ""

    def result(self) -> dict[str, Any]:
        """What the sites have selected for this job, and the model; what is missing is None."""
        job = json.loads((self.out / "job.json").read_text())["id"]
        files = [self.at.folder / f"site-{i}/work/coreset.{job}.csv" for i in range(SITES)]
        model = self.out / "model.safetensors"
        return {
            "coresets": [file.read_text() if file.exists() else None for file in files],
            "model": load_file(model) if model.exists() else None,
        }


def disturbed(run: Run, victim: str, kill: Callable[[], None], back: Callable[[], float]) -> dict[str, Any]:
    """A run with a kill after its first iteration, and what came of it; `back` brings the part back."""
    process = run.start()
    until(run.rows, 200, "an iteration")
    before, killed = len(run.rows()), time.monotonic()
    kill()
    with ThreadPoolExecutor(1) as meanwhile:
        returned = meanwhile.submit(back)
        code, noticed = ended(run, process, before)
        back_after = returned.result()
    took = time.monotonic() - killed
    found = {"victim": victim, "policy": run.policy, "next_row_or_end_s": round(noticed, 1), "first_end": code}
    found |= {"first_said": run.said() if code else "", "ended_s": round(took, 1)}
    found |= {"back_s": round(back_after, 1), "again": None}
    if code:
        found["again"] = run.start().wait(900)  # the same command
    rows = run.rows()
    absent = {str(row["iteration"]): row["absent"] for row in rows if row.get("absent")}
    summary = run.out / "summary.json"
    absences = json.loads(summary.read_text())["absences"] if summary.exists() else []
    return found | {"iterations": len(rows), "absent": absent, "absences": absences}


def ended(run: Run, process: subprocess.Popen[bytes], before: int) -> tuple[int, float]:
    """The command's exit code, and after how many seconds there was a sign: the next row after `before`, or the end."""
    sign = until(lambda: process.poll() is not None or len(run.rows()) > before, 400, "the kill is noticed")
    return process.wait(900), sign


def killing(at: Deployment, victim: str) -> tuple[Callable[[], None], Callable[[], float]]:
    """How a part is killed, and how it comes back; the second says after how many seconds."""
    if victim == "site":
        return lambda: at.kill(SITE, f"site-{KILLED}"), lambda: _site_back(at)
    if victim == "node":
        return lambda: at.kill(NODE, f"site-{KILLED}"), lambda: _node_back(at)
    return lambda: at.kill(MASTER, "master"), lambda: 0.0


def _site_back(at: Deployment) -> float:
    ready = at.log(f"site-{KILLED}").count("is ready")
    time.sleep(AWAY)
    at.site(KILLED)
    return AWAY + until(lambda: at.log(f"site-{KILLED}").count("is ready") > ready, 120, "the site is back")


def _node_back(at: Deployment) -> float:
    up = at.log(f"node-{KILLED}").count("SuperNode ID")
    return until(lambda: at.log(f"node-{KILLED}").count("SuperNode ID") > up, 200, "the node is back")


def compared(found: dict[str, Any], run: Run, sound: dict[str, Any]) -> dict[str, Any]:
    """Whether all sites have coresets, which are those of the undisturbed run, and how far the model is from its."""
    result = run.result()
    equal = [mine == theirs for mine, theirs in zip(result["coresets"], sound["coresets"], strict=True)]
    there = [mine is not None for mine in result["coresets"]]
    far = None
    if result["model"] is not None:
        far = max(float(abs(result["model"][name] - value).max()) for name, value in sound["model"].items())
    return found | {"coresets_there": there, "coresets_equal": equal, "model_apart": far}


def table(rows: Sequence[dict[str, Any]], about: str) -> str:
    """The rows as Markdown."""
    columns = ["killed", "policy", "the command ended with", "next row or end after", "part back after"]
    columns += ["missing in iterations", "coresets at sites", "equal to undisturbed", "model apart"]
    lines = [about, "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for r in rows:
        first = "0" if r["first_end"] == 0 else f"{r['first_end']}; again: {r['again']}"
        missing = ", ".join(f"{t}: {', '.join(map(str, who))}" for t, who in r["absent"].items()) or "none"
        apart = "–" if r["model_apart"] is None else f"{r['model_apart']:.1g}"
        cells = [r["victim"], r["policy"], first, f"{r['next_row_or_end_s']} s", f"{r['back_s']} s", missing]
        counts = [f"{sum(r['coresets_there'])} of {SITES}", f"{sum(r['coresets_equal'])} of {SITES}", apart]
        lines.append(f"| {' | '.join([*cells, *counts])} |")
    said = [f"- {r['victim']}, {r['policy']}: {r['first_said']}" for r in rows if r["first_said"]]
    return "\n".join([*lines, "", "What the command said where it ended early:", "", *(said or ["nothing"])]) + "\n"


def one(at: Deployment, name: str, iterations: int, sound: dict[str, Any]) -> dict[str, Any]:
    """One kind of kill under one policy."""
    victim, policy = name.split("-")
    run = Run(at, name, policy, iterations)
    try:
        return compared(disturbed(run, victim, *killing(at, victim)), run, sound)
    finally:
        if not at.processes(SITE, f"site-{KILLED}"):
            at.site(KILLED)
        until(lambda: _online(at) == SITES, 200, "all nodes are connected again")


def _online(at: Deployment) -> int:
    time.sleep(2)
    return [node["status"] for node in at.link.ask("supernode", "list", "here")["nodes"]].count("online")


def written_down(out: Path, rows: Sequence[dict[str, Any]], iterations: int) -> None:
    """Both files, after every row: hours of work are not to be lost to the last one."""
    made = provenance(["python", "benchmarks/kills.py", *sys.argv[1:]])
    out.mkdir(parents=True, exist_ok=True)
    (out / "kills.json").write_text(json.dumps({**made, "iterations": iterations, "rows": rows}, indent=1) + "\n")
    about = (
        f"`kill -9` after the first of {iterations} iterations, {SITES} sites. Made by `{made['command']}` "
        f"on {made['date']}."
    )
    (out / "kills.md").write_text(table(rows, about))


def main() -> None:
    """Run all and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--victims", nargs="+", default=["site", "node", "master"])
    parser.add_argument("--policies", nargs="+", default=list(POLICIES))
    parser.add_argument("--out", type=Path, default=Path("results/faults"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kills-", dir="/tmp") as root:
        measured(Path(root), given)


def measured(root: Path, given: argparse.Namespace) -> None:
    """All kills on one federation in a new folder."""
    rows, schema = list[dict[str, Any]](), root / "schema.json"
    f2cto(["federation", "schema", "--shape", "64", "--classes", "10", "--out", str(schema)])
    with deployed(root, written(root, split_digits((200, 200, 200))), schema) as at:
        undisturbed = Run(at, "undisturbed", "wait", given.iterations)
        began = time.monotonic()
        if undisturbed.start().wait(1800):
            raise SystemExit(undisturbed.said())
        print(f"undisturbed: {time.monotonic() - began:.0f} s", flush=True)
        for victim in given.victims:
            for policy in given.policies:
                rows.append(one(at, f"{victim}-{policy}", given.iterations, undisturbed.result()))
                print(rows[-1], flush=True)
                written_down(given.out, rows, given.iterations)


if __name__ == "__main__":
    main()
