"""How often a learner collapses, and what the cure costs: the former recipe of training against today's.

A cell is a data set and a seed: two tasks, or as many as --tasks says, are learned one after the other, with coresets
of former ones replayed. Methods take turns over the seeds, so that no two cells train the same learner. Both recipes
have the same cells, and judge on validation samples. Cells that are written are not computed again.

Examples:
    F2CTO_DATA=data python benchmarks/stability.py --shared ../shared/data      # both recipes, 100 cells each
    python benchmarks/stability.py --sets fsdd --recipes "warm_up=0.2,ramp=0.5" --seeds 4

"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from f2cto.comparison import cell, contender, stream
from f2cto.config import assignment, build, merged, plain
from f2cto.data.folder import data_folder
from f2cto.presets import read_preset
from f2cto.records import Row, provenance
from f2cto.run_settings import RunSettings
from f2cto.training import FORMER

COMMAND = ["python", "benchmarks/stability.py", *sys.argv[1:]]
METHODS = ("random", "balanced", "herding", "facility")
PERMUTED = {"kind": "permuted"}
JUDGED = {"data": {"scenario": {"validation": 0.3, "judged": 300}}}
QUICK = {"evaluation": {"part": "validation", "strong_steps": 0, "draws": 1}}
SETS: Mapping[str, tuple[str, Mapping[str, Any]]] = {  # a preset and what differs; radii are the preset's
    "digits": ("digits", {"data": {"scenario": PERMUTED}}),
    "mnist": ("mnist-rehearsal", {"data": {"scenario": PERMUTED}}),
    "kmnist": ("mnist-rehearsal", {"data": {"source": "kmnist/kmnist10k.npz", "scenario": PERMUTED}}),
    "fsdd": ("mnist-rehearsal", {"data": {"source": "fsdd/fsdd_mel32.npz", "scenario": PERMUTED}}),
    "letter": (
        "mnist-rehearsal",  # with the radius of tables
        {
            "data": {
                "source": "letter/letter.parquet",
                "label": "label",
                "scenario": {"kind": "split", "classes": 5},
            },
            "evaluation": {"radius": 0.05, "fgsm_radius": 0.05, "pgd_step": 0.0},
        },
    ),
}
RECIPES: Mapping[str, Mapping[str, Any]] = {"former": FORMER, "present": {}}


def main() -> None:
    """Compute the cells that are missing, write after each, print what they say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--recipes", nargs="*", default=list(RECIPES), help="names, or key=value,key=value")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1000, help="comparisons are made on 0, 1, ...")
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"), help="where the files of others are")
    parser.add_argument("--out", type=Path, default=Path("results/stability"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    files = {name: Cells(chosen.out, name) for name in chosen.sets.split(",")}
    for seed in range(chosen.first_seed, chosen.first_seed + chosen.seeds):
        for name, file in files.items():
            for recipe in chosen.recipes:
                if not file.has(seed, recipe):
                    file.add(measured(name, recipe, seed, chosen.shared, chosen.tasks))
                    print(name, file.cells[-1], flush=True)
    for name, file in files.items():
        print(name, *(said(file.cells, recipe) for recipe in chosen.recipes), sep="\n  ")


class Cells:
    """A data set's cells in a file of their own."""

    def __init__(self, folder: Path, name: str) -> None:
        """Go on with what is there."""
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}.json"
        self.cells: list[dict[str, Any]] = json.loads(self.path.read_text())["cells"] if self.path.exists() else []

    def has(self, seed: int, recipe: str) -> bool:
        """Whether a cell is there."""
        return any((cell["seed"], cell["recipe"]) == (seed, recipe) for cell in self.cells)

    def recipes(self) -> list[str]:
        """The recipes that there are cells of."""
        return list(dict.fromkeys(cell["recipe"] for cell in self.cells))

    def add(self, found: Mapping[str, Any]) -> None:
        """One more cell, on the disk before this returns."""
        self.cells.append(dict(found))
        seeds = sorted({cell["seed"] for cell in self.cells})
        origin = provenance(COMMAND) | {"processor": processor(), "seeds": seeds}
        summary = [said(self.cells, recipe) for recipe in self.recipes()]
        lines = ",\n".join(f"  {json.dumps(cell)}" for cell in self.cells)
        training = {recipe: plain(configured(self.path.stem, recipe, Path()).training) for recipe in self.recipes()}
        head = json.dumps(origin | {"training": training, "summary": summary}, indent=1).removesuffix("\n}")
        self.path.write_text(f'{head},\n "cells": [\n{lines}\n ]\n}}\n')


def measured(name: str, recipe: str, seed: int, shared: Path, tasks: int) -> dict[str, Any]:
    """One cell."""
    settings, method = configured(name, recipe, shared, tasks), METHODS[seed % len(METHODS)]
    stages, began = stream(settings, seed, data_folder()), time.process_time()
    rows = cell(stages, contender(method, settings))
    return {
        "recipe": recipe,
        "method": method,
        "seed": seed,
        "collapsed": [row.collapsed for row in rows if row.attack == "clean"],  # after each task
        **{attack: round(accuracy(rows, attack), 4) for attack in ("clean", "pgd")},
        "cpu_seconds": round(time.process_time() - began, 1),
    }


def configured(name: str, recipe: str, shared: Path, tasks: int = 2) -> RunSettings:
    """The settings of a data set's cells under a recipe."""
    preset, changes = SETS[name]
    judged = merged(JUDGED, {"data": {"scenario": {"tasks": tasks}}})
    values = merged(merged(merged(read_preset(preset), changes), judged), QUICK)
    if "/" in (source := values["data"]["source"]):
        values = merged(values, {"data": {"source": str(shared / source)}})
    training = dict(RECIPES[recipe]) if recipe in RECIPES else {}
    for part in recipe.split(",") if recipe not in RECIPES else []:
        training |= assignment(part)
    return build(RunSettings, merged(values, {"training": training}))


def accuracy(rows: Sequence[Row], attack: str) -> float:
    """The mean over tasks."""
    return fmean(row.accuracy for row in rows if row.attack == attack)


def said(cells: Sequence[Mapping[str, Any]], recipe: str) -> str:
    """What the cells of a recipe say, and how they differ from the former recipe on the same seeds."""
    own = {cell["seed"]: cell for cell in cells if cell["recipe"] == recipe}
    former = {cell["seed"]: cell for cell in cells if cell["recipe"] == "former"}
    fell = sum(any(cell["collapsed"]) for cell in own.values())
    words = [f"{recipe}: {fell} of {len(own)} collapsed"]
    for attack in ("clean", "pgd"):
        words.append(f"{attack} {100 * fmean(cell[attack] for cell in own.values()):.1f}")
        if recipe != "former" and len(common := sorted(own.keys() & former.keys())) > 1:
            differences = [100 * (own[seed][attack] - former[seed][attack]) for seed in common]
            error = stdev(differences) / len(common) ** 0.5
            words[-1] += f" ({fmean(differences):+.1f}, standard error {error:.1f}, {len(common)} seeds)"
    return ", ".join(words)


def processor() -> str:
    """The processor's name."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0].partition(": ")[2] if names else platform.processor()


if __name__ == "__main__":
    main()
