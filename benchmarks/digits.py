"""F2CTO against random choices on digits over several seeds, on validation or test data.

Examples:
    python benchmarks/digits.py                                             # the README's setting, five seeds
    python benchmarks/digits.py --part validation --set f2cto.proxy.step=0.25 --name step-0.25

"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from f2cto.config import assignments, build, merged
from f2cto.data.folder import data_folder
from f2cto.experiment import Silent, run
from f2cto.preparation import prepare
from f2cto.presets import read_preset
from f2cto.records import RunRecord, provenance
from f2cto.run_settings import RunSettings

COMMAND = ["python", "benchmarks/digits.py", *sys.argv[1:]]


def main() -> None:
    """Run all seeds, print a table, write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--part", default="test", choices=["test", "validation"])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--name", default="", help="name of the result file; default: the part")
    parser.add_argument("--out", type=Path, default=Path("results/digits"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    records = []
    for seed in range(chosen.seeds):
        records.append(run(prepare(settings_for(chosen, seed), data_folder()), Silent()))
        print(seed, {name: f"{scores['pgd'].mean:.3f}" for name, scores in records[-1].accuracy.items()}, flush=True)
    table = markdown(records)
    print(table)
    chosen.out.mkdir(parents=True, exist_ok=True)
    name = chosen.name or chosen.part
    (chosen.out / f"{name}.json").write_text(json.dumps(document(records), indent=1) + "\n")
    (chosen.out / f"{name}.md").write_text(f"`{shlex.join(COMMAND)}`\n\n{table}\n")


def settings_for(chosen: argparse.Namespace, seed: int) -> RunSettings:
    """The preset with the command line's settings on top."""
    values = merged(read_preset("digits"), {"seed": seed, "evaluation": {"part": chosen.part}})
    return build(RunSettings, merged(values, assignments(chosen.set)))


def markdown(records: Sequence[RunRecord]) -> str:
    """Mean and standard deviation over seeds of each seed's mean."""
    lines = ["| trained on | clean % | FGSM % | PGD % | PGD % by seed |", "|---|---|---|---|---|"]
    for name in records[0].accuracy:
        cells = []
        for attack in ("clean", "fgsm", "pgd"):
            values = [100 * record.accuracy[name][attack].mean for record in records]
            cells.append(f"{fmean(values):.1f} ± {stdev(values) if len(values) > 1 else 0:.1f}")
        seeds = ", ".join(f"{100 * record.accuracy[name]['pgd'].mean:.1f}" for record in records)
        lines.append(f"| {name} | {' | '.join(cells)} | {seeds} |")
    return "\n".join(lines)


def document(records: Sequence[RunRecord]) -> dict[str, Any]:
    """All runs, with what is needed to repeat them."""
    return {
        **provenance(COMMAND),
        "runs": [record.summary() for record in records],
        "settings": records[0].settings,
    }


if __name__ == "__main__":
    main()
