"""A fifth of the workers send garbage: what becomes of the model and of the coresets under each rule of averaging.

Ten workers share scikit-learn's digits, two of them send garbage in every message. Each row is a selection with F2CTO;
beside it stands the same without garbage. Judged are the proxy model that the master ends with, and models trained
adversarially on what the eight honest workers keep. Both under PGD, mean and deviation over seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `testing` is not installed with the package

from f2cto.attacks.base import robust_accuracy
from f2cto.config import build, merged, nested
from f2cto.evaluation import Judge
from f2cto.experiment import choose, gather
from f2cto.federation.exchange import TooFewWorkersError
from f2cto.federation.faults import Faults, OnFailure
from f2cto.methods.running import Here
from f2cto.preparation import Prepared, prepare
from f2cto.presets import read_preset
from f2cto.randomness import generator
from f2cto.records import provenance
from f2cto.run_settings import RunSettings
from f2cto.selection import Selection
from f2cto.trilevel.aggregation import Rule
from f2cto.trilevel.master import DivergedError
from testing.garbage import GARBAGE, Spoiled

WORKERS, BAD = 10, (3, 7)
DRAWS = 3  # models trained on each union of coresets
GO_ON = Faults(OnFailure.CONTINUE)


def settings(seed: int, rule: Rule, iterations: int) -> RunSettings:
    """The digits preset over ten workers."""
    values = read_preset("digits")
    for key, value in {
        "workers": WORKERS,
        "seed": seed,
        "f2cto.sharing.aggregation.rule": str(rule),
        "f2cto.stopping.iterations": iterations,
        "evaluation.draws": 1,
    }.items():
        values = merged(values, nested(key, value))
    return build(RunSettings, values)


def judged(on: Prepared, chosen: Selection) -> dict[str, float]:
    """The accuracy under PGD of the proxy, and of a model trained on what honest workers keep."""
    assert on.test is not None  # noqa: S101  (draws = 1)
    s = on.settings
    pgd = s.evaluation.attacks(on.valid)["pgd"]
    proxy = robust_accuracy(chosen.model, pgd, on.test.x, on.test.y, on.valid, generator(s.seed, 4))
    honest = [i for i in range(WORKERS) if i not in BAD]
    kept = gather([on.shards[i] for i in honest], _only(chosen, honest))
    judge = Judge(on.network, on.test, s.training, s.evaluation, on.valid, s.seed)
    trained = statistics.fmean(judge.judged(kept, draw).accuracy["pgd"] for draw in range(DRAWS))
    return {"proxy": 100 * proxy, "trained": 100 * trained}


def _only(chosen: Selection, workers: Sequence[int]) -> Selection:
    return replace(chosen, indices=[chosen.indices[i] for i in workers], weights=[chosen.weights[i] for i in workers])


def measured(kind: str, rule: Rule, seed: int, iterations: int) -> dict[str, float] | str:
    """One run's accuracies, or why there are none."""
    on = prepare(settings(seed, rule, iterations), Path())
    fleet = partial(Here, faults=GO_ON)
    spoilt = fleet if kind == "none" else lambda sel, shards: fleet(Spoiled(sel, BAD, GARBAGE[kind]), shards)
    try:
        return judged(on, choose("f2cto", on, seed, gather=spoilt))
    except (DivergedError, TooFewWorkersError) as error:
        return str(error)


def row(kind: str, rule: Rule, seeds: int, iterations: int) -> dict[str, Any]:
    """One line of the table."""
    runs = [measured(kind, rule, seed, iterations) for seed in range(seeds)]
    done = [run for run in runs if isinstance(run, dict)]
    found: dict[str, Any] = {"garbage": kind, "rule": str(rule), "failed": [r for r in runs if isinstance(r, str)]}
    for name in ("proxy", "trained"):
        values = [run[name] for run in done]
        found[name] = statistics.fmean(values) if values else None
        found[f"{name}_std"] = statistics.stdev(values) if len(values) > 1 else 0.0
    return found


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The table as Markdown, each row with its loss against the mean without garbage."""
    sound = next(r for r in rows if r["garbage"] == "none" and r["rule"] == "mean")
    lines = [
        "| garbage | rule | proxy, PGD % | trained on coresets, PGD % | lost by the proxy | lost by the trained |",
        "|---|---|---|---|---|---|",
    ]
    for r in rows:
        if r["proxy"] is None:
            lines.append(f"| {r['garbage']} | {r['rule']} | no result: {r['failed'][0]} | | | |")
            continue
        cells = [f"{r[n]:.1f} ± {r[f'{n}_std']:.1f}" for n in ("proxy", "trained")]
        lost = [f"{sound[n] - r[n]:.1f}" for n in ("proxy", "trained")]
        lines.append(f"| {r['garbage']} | {r['rule']} | {' | '.join(cells)} | {' | '.join(lost)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run all rows and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=150)
    parser.add_argument("--out", type=Path, default=Path("results/faults"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for kind in ("none", *GARBAGE):
        for rule in Rule:
            rows.append(row(kind, rule, given.seeds, given.iterations))
            print(rows[-1], flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    made = provenance(["python", "benchmarks/garbage.py", *sys.argv[1:]])
    (given.out / "garbage.json").write_text(json.dumps({**made, "rows": rows}, indent=1) + "\n")
    about = f"Two of ten workers send garbage; {given.seeds} seeds. Made by `{made['command']}` on {made['date']}."
    (given.out / "garbage.md").write_text(f"{about}\n\n{page(rows)}")
    print(page(rows))


if __name__ == "__main__":
    main()
