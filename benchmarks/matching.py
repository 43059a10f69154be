"""How well coresets stand for all samples: their robust gradients beside those of their classes, and how hard they are.

For the first task of a preset and a model trained robustly on all of it for a short while: the mean over classes of
|grad F_c - grad G_c|^2, where F_c is the mean robust loss of the class and G_c that of its kept samples on all workers,
for whole coresets and for the quarter of each that is stored first; and where the kept samples stand within their
classes by robust loss, from 0 (lowest) to 1. Nothing is learned from this by any method: it looks at the choices.

Examples:
    F2CTO_DATA=data python benchmarks/matching.py --methods balanced,herding,f2cto,f2cto-ef --seeds 3

"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from f2cto.attacks import Pgd
from f2cto.comparison import contender, picked, stream
from f2cto.config import build
from f2cto.data.dataset import LabelledData, concat
from f2cto.data.folder import data_folder
from f2cto.methods.matching import weighted_slope
from f2cto.models import FlatModel, fresh
from f2cto.preparation import Prepared
from f2cto.presets import read_preset
from f2cto.randomness import derived_seed, generator
from f2cto.records import provenance
from f2cto.rehearsal import new_proxy
from f2cto.run_settings import RunSettings
from f2cto.training import FORMER, Training, train_robust

COMMAND = ["python", "benchmarks/matching.py", *sys.argv[1:]]
METHODS = "random,balanced,herding,facility,easy,lbv,f2cto-top,f2cto,f2cto-places,f2cto-ef"
EARLY = Training(steps=30, batch=1000, rate=0.1, attack_steps=3, **{**FORMER, "ramp": 0.5})


@dataclass(frozen=True, eq=False)
class Observer:
    """All samples of a task, attacked, as one model sees them. It is no method's proxy: its seed is its own."""

    model: FlatModel
    w: Tensor
    x: Tensor
    y: Tensor
    rank: Tensor  # of each sample's robust loss within its class, from 0 to 1

    def distance(self, kept: Tensor) -> float:
        """The mean over classes of the squared distance between gradients; a class without samples has none."""
        return statistics.fmean(
            float((self._slope(self.y == c) - self._slope((self.y == c) & kept)).square().sum())
            for c in range(int(self.y.max()) + 1)
        )

    def hardness(self, kept: Tensor) -> float:
        """The mean rank of the kept samples."""
        return float(self.rank[kept].mean())

    def _slope(self, rows: Tensor) -> Tensor:
        count = int(rows.sum())
        return weighted_slope(
            self.model, self.w, self.x[rows], self.y[rows], self.x.new_full((count,), 1 / max(1, count))
        )[1]


def observer(on: Prepared) -> Observer:
    """A model after a short robust training on all samples of the task."""
    data: LabelledData = concat(list(on.shards))
    model, rng = FlatModel(fresh(on.network, generator(on.settings.seed, 77))), generator(on.settings.seed, 78)
    attack = Pgd(radius := on.settings.evaluation.radius, 3, 2.5 * radius / 3, random_start=False, valid=on.valid)
    w = train_robust(model, model.own(), data.x, data.y, attack, EARLY, rng)
    x = attack.perturb(lambda v: model.logits(w, v), data.x, data.y, rng)
    with torch.no_grad():
        losses = model.losses(w, x, data.y)
    lower = (data.y[:, None] == data.y) & (losses[:, None] > losses)
    rank = lower.sum(dim=1) / ((data.y[:, None] == data.y).sum(dim=1) - 1).clamp(min=1)
    return Observer(model, w, x, data.y, rank)


def kept(on: Prepared, indices: Sequence[Sequence[int]], share: float) -> Tensor:
    """Which of all samples the first `share` of each coreset holds."""
    marks = [torch.zeros(len(shard), dtype=torch.bool) for shard in on.shards]
    for mark, own in zip(marks, indices, strict=True):
        mark[torch.tensor(list(own[: round(share * len(own))]), dtype=torch.long)] = True
    return torch.cat(marks)


def measured(label: str, on: Prepared, seen: Observer, seed: int) -> dict[str, float | str]:
    """One method on the first task of one seed."""
    budgets = [on.settings.rehearsal.memory] * len(on.shards)
    who, proxy = contender(label, on.settings), new_proxy(on)
    indices = picked(who, on, budgets, proxy, derived_seed(seed, 11, 1)).indices
    whole, first = kept(on, indices, 1.0), kept(on, indices, 0.25)
    return {
        "method": label,
        "distance": seen.distance(whole),
        "first_quarter": seen.distance(first),
        "hardness": seen.hardness(whole),
    }


def main() -> None:
    """Run, then print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="mnist-rehearsal")
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/matching"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    settings, rows = build(RunSettings, read_preset(chosen.preset)), []
    for seed in range(chosen.seeds):
        on = stream(settings, seed, data_folder())[0]
        seen = observer(on)
        rows += [{"seed": seed, **measured(label, on, seen, seed)} for label in chosen.methods.split(",")]
    page = table(chosen.methods.split(","), rows)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / f"{chosen.preset}.md").write_text(f"{page}\n\nMade by `{shlex.join(COMMAND)}`.\n")
    (chosen.out / f"{chosen.preset}.json").write_text(json.dumps(provenance(COMMAND) | {"rows": rows}, indent=1) + "\n")
    print(page)


def table(methods: Sequence[str], rows: Sequence[dict[str, float | str]]) -> str:
    """Means over seeds, the best match first."""
    keys = ("distance", "first_quarter", "hardness")
    means = {
        name: [statistics.fmean(float(row[key]) for row in rows if row["method"] == name) for key in keys]
        for name in methods
    }
    lines = [f"| {n} | {m[0]:.3f} | {m[1]:.3f} | {m[2]:.2f} |" for n, m in sorted(means.items(), key=lambda i: i[1])]
    head = "| coresets by | distance | of their first quarter | hardness |\n|---|---|---|---|"
    return "\n".join([head, *lines])


if __name__ == "__main__":
    main()
