"""Every method once on a preset: seconds, floats and what its coreset is worth. A look, not the comparison.

Settings are each method's defaults, untuned; models are trained without the coresets' weights, the same way for all.

Examples:
    F2CTO_DATA=data python benchmarks/methods.py                            # all methods on mnist-small
    F2CTO_DATA=data python benchmarks/methods.py --methods herding,facility --seeds 3

"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import torch

from f2cto.config import build, merged
from f2cto.data.folder import data_folder
from f2cto.evaluation import Judge
from f2cto.experiment import choose, gather
from f2cto.methods.catalogue import METHODS
from f2cto.preparation import Prepared, prepare
from f2cto.presets import read_preset
from f2cto.records import provenance
from f2cto.run_settings import RunSettings

COMMAND = ["python", "benchmarks/methods.py", *sys.argv[1:]]


def main() -> None:
    """Run, print and write after every method, so that nothing is lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="mnist-small")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--draws", type=int, default=3, help="trainings of each coreset")
    parser.add_argument("--out", type=Path, default=Path("results/methods"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for seed in range(chosen.seeds):
        values = merged(read_preset(chosen.preset), {"seed": seed, "evaluation": {"draws": chosen.draws}})
        on = prepare(build(RunSettings, values), data_folder())
        for method in chosen.methods.split(","):
            rows.append(row(method, on))
            print(line(rows[-1]), flush=True)
            write(chosen.out, chosen.preset, rows)


def row(method: str, on: Prepared) -> dict[str, Any]:
    """One method: its time, its traffic, and the accuracy of models trained on what it keeps."""
    s = on.settings
    assert on.test is not None  # noqa: S101  (draws >= 1)
    began = time.monotonic()
    picked = choose(method, on, s.seed)
    seconds = time.monotonic() - began
    judge = Judge(on.network, on.test, s.training, s.evaluation, on.valid, s.seed)
    scores = judge.scores([gather(on.shards, picked)] * s.evaluation.draws, lambda: None)
    return {
        "method": method,
        "seed": s.seed,
        "seconds": round(seconds, 1),
        "floats_per_worker": round(picked.traffic.floats_per_worker),
        **{attack: score.mean for attack, score in scores.items()},
    }


def line(found: dict[str, Any]) -> str:
    """A row of the table."""
    scores = " | ".join(f"{100 * found[attack]:.1f}" for attack in ("clean", "fgsm", "pgd"))
    return f"| {found['method']} | {found['seed']} | {found['seconds']} | {found['floats_per_worker']:,} | {scores} |"


def write(out: Path, preset: str, rows: list[dict[str, Any]]) -> None:
    """All rows so far."""
    out.mkdir(parents=True, exist_ok=True)
    head = "| method | seed | seconds | floats a worker | clean % | FGSM % | PGD % |\n|---|---|---|---|---|---|---|"
    table = "\n".join([head, *map(line, rows)])
    (out / f"{preset}.md").write_text(f"`{shlex.join(COMMAND)}`\n\n{table}\n")
    (out / f"{preset}.json").write_text(json.dumps(provenance(COMMAND) | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
