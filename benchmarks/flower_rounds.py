"""Seconds per message round over Flower, with the thin forwarder and with a naive ClientApp that imports torch.

Flower starts the ClientApp anew for every message, so that what it imports is paid for in every round. The naive one
is the same forwarder, after `import torch`. Both take turns on one real federation on this machine: three sites, TLS
and node authentication, so that whatever else the machine does hits both alike.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `testing` is not installed with the package

from f2cto.cli import main as f2cto
from f2cto.flower.commands import Status
from f2cto.records import provenance
from testing.deployment import SITES, Deployment, deployed, split_digits, written

SETTINGS = """
workers = {sites}
size = 10
[network]
hidden = [32]
[f2cto.stopping]
iterations = {iterations}
[f2cto.sharing]
exchanges = 1
"""
# Flower looks for an assignment to the app's name.
NAIVE = "import torch  # noqa: F401\nfrom f2cto.flower.client_app import app as thin\n\napp = thin\n"


def naive_app(master: Path) -> None:
    """An app like the usual one, with a module of its own for sites."""
    shutil.copytree(master / "app", master / "naive")
    (master / "naive/naive.py").write_text(NAIVE)
    text = (master / "naive/pyproject.toml").read_text()
    text = text.replace("f2cto.flower.client_app:app", "naive:app").replace("f2cto-federation", "f2cto-naive")
    (master / "naive/pyproject.toml").write_text(text)


def rounds(at: Deployment, app: str, turn: int) -> list[float]:
    """The seconds of each round of a selection but the first, which begins before all are ready."""
    out = at.root / f"{app}-{turn}"
    paths = {"settings": at.root / "settings.toml", "schema": at.root / "schema.json", "out": out}
    run = at.link.begin({key: str(path) for key, path in paths.items()}, app)
    status = ended(at, run)
    if not status.completed:
        raise SystemExit(at.link.log(run))
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [round(after["seconds"] - before["seconds"], 2) for before, after in pairwise(rows)]


def ended(at: Deployment, run: str) -> Status:
    """How a run ended. Asking takes seconds of computing, which the rounds would be measured with: seldom."""
    while (status := at.link.status(run)) is not None and not status.ended:
        time.sleep(30)
    return status or Status(run, "unknown")


def summary(name: str, seconds: Sequence[float]) -> dict[str, Any]:
    """One kind's rounds."""
    return {"client_app": name, "median_s": statistics.median(seconds), "rounds_s": list(seconds)}


def main() -> None:
    """Take turns and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=6)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/engines"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rounds-", dir="/tmp") as root:
        found = measured(Path(root), given.iterations, given.turns)
    made = provenance(["python", "benchmarks/flower_rounds.py", *sys.argv[1:]])
    where = {"sites": SITES, "processors": os.cpu_count(), "load_average": [round(x, 1) for x in os.getloadavg()]}
    rows = [summary("thin forwarder", found["app"]), summary("naive, imports torch", found["naive"])]
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "flower.json").write_text(json.dumps({**made, **where, "rows": rows}, indent=1) + "\n")
    print(json.dumps(rows, indent=1))


def measured(root: Path, iterations: int, turns: int) -> dict[str, list[float]]:
    """The rounds of each app, on one federation in a new folder."""
    found = dict[str, list[float]](app=[], naive=[])
    f2cto(["federation", "schema", "--shape", "64", "--classes", "10", "--out", str(root / "schema.json")])
    (root / "settings.toml").write_text(SETTINGS.format(sites=SITES, iterations=iterations))
    with deployed(root, written(root, split_digits((200, 200, 200))), root / "schema.json") as at:
        naive_app(at.folder / "master")
        for turn in range(turns):
            for app in found:
                found[app] += rounds(at, app, turn)
                print(app, found[app], flush=True)
    return found


if __name__ == "__main__":
    main()
