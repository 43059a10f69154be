"""What the comparison of methods leaves open, a page each. Every run is one call of `f2cto compare`, and resumes.

    scale           does the lead last with many workers?
    communication   what do local rounds save, and what do they cost?
    regimes         where must it help that workers know about each other?
    budget          what is reached for how much work, selection and training together?

Examples:
    F2CTO_DATA=data python benchmarks/questions.py regimes --seeds 3 --jobs 2
    F2CTO_DATA=data python benchmarks/questions.py scale --preset edge-iiotset-small --out results/scale-edge

"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `benchmarks`, which is not installed

from benchmarks.question_pages import Answer, Exchanges, Trained, budget, communication, picture, regimes, scale
from f2cto.cli import main as f2cto
from f2cto.config import assignment, build, merged
from f2cto.data.folder import data_folder
from f2cto.experiment import choose
from f2cto.preparation import prepare
from f2cto.presets import read_preset
from f2cto.randomness import derived_seed
from f2cto.records import Row, provenance
from f2cto.report.comparison import Comparison, compare
from f2cto.run_settings import RunSettings

LOCAL = ("random", "balanced", "herding", "facility", "easy")
OURS = ("f2cto", "f2cto-places", "f2cto-ef")
WORKERS = (10, 50, 100, 200)
KEPT = 200  # samples kept by all workers together, however many: 2 %, where they do not do for all yet
LOCAL_ROUNDS = (1, 2, 5, 10)
SIZES = ("0.01", "0.02", "0.05", "0.1", "0.2", "0.5")
ALL_STEPS = (300, 1500, 6000)
REGIMES = {
    "dirichlet:0.3": ("partition=dirichlet:0.3",),
    "imbalance 10": ("data.damage.imbalance=10",),
    "wrong labels 20 %": ("data.damage.labels=0.2",),
    "outliers 20 %": ("data.damage.outliers=0.2",),
}
COMMAND = ["python", "benchmarks/questions.py"]


@dataclass(frozen=True)
class Run:
    """One call of `f2cto compare`."""

    label: str  # how tables call it
    preset: str
    methods: tuple[str, ...]
    changes: tuple[str, ...] = ()

    def folder(self, out: Path) -> Path:
        """Where it is written."""
        return out / re.sub(r"[^\w.]+", "-", f"{self.preset} {self.label}").strip("-")

    def arguments(self, out: Path, seeds: int, jobs: int) -> list[str]:
        """What `f2cto` is called with."""
        given = ["--preset", self.preset, "--methods", ",".join(self.methods), "--seeds", str(seeds)]
        changes = [word for change in self.changes for word in ("--set", change)]
        return ["compare", *given, "--jobs", str(jobs), "--out", str(self.folder(out)), *changes]

    def settings(self, *more: str) -> RunSettings:
        """What it runs with, and further changes."""
        values = read_preset(self.preset)
        for change in (*self.changes, *more):
            values = merged(values, assignment(change))
        return build(RunSettings, values)


@dataclass(frozen=True)
class Question:
    """Which runs answer it, and how their results become a page."""

    preset: str
    runs: Callable[[str], list[Run]]  # from the name of the preset
    answer: Callable[[Mapping[Run, Comparison]], Answer]


def scale_runs(preset: str) -> list[Run]:
    """The same data over more and more workers; with the standard preset also people with a telephone each."""
    methods = (*LOCAL, *OURS)
    runs = [Run(str(n), preset, methods, (f"workers={n}", f"size={KEPT // n}")) for n in WORKERS]
    return [*runs, Run("HAPT, 30 people", "hapt-small", methods)] if preset == QUESTIONS["scale"].preset else runs


def budget_runs(preset: str) -> list[Run]:
    """Coresets of all sizes, and all data: trained on as long as a coreset, and so much longer as selection takes."""
    methods = (*OURS, "random", "herding")
    longer = [Run(f"all, {n} steps", preset, ("all",), (f"training.steps={n}",)) for n in ALL_STEPS]
    # Steps and noise of the weights are in units of 1/K; what suits them is the mean weight 1/M (docs/settings.md).
    steps = {size: (f"f2cto.weighting.step={size}", f"f2cto.weighting.noise={2 * float(size):g}") for size in SIZES}
    return [*(Run(size, preset, methods, (f"size={size}", *steps[size])) for size in SIZES), *longer]


def answer_budget(found: Mapping[Run, Comparison]) -> Answer:
    """With what training costs, which no record says."""
    trained = {run.label: training_passes(run.settings(), everything=run.methods == ("all",)) for run in found}
    return budget({run.label: Trained(comparison, trained[run.label]) for run, comparison in found.items()})


def answer_communication(found: Mapping[Run, Comparison]) -> Answer:
    """With a look at the exchanges of the first task, which no record keeps."""
    ((run, comparison),) = found.items()
    return communication(comparison, [exchanges(run, rounds) for rounds in LOCAL_ROUNDS])


def exchanges(run: Run, local_rounds: int) -> Exchanges:
    """F2CTO's choice for the first task and seed, the very one of the comparison, looked at from the master."""
    memory = run.settings().rehearsal.memory  # all of it is the first task's
    settings = run.settings(f"f2cto.local_rounds={local_rounds}", f"size={memory}", "seed=0", "data.scenario.task=1")
    history = choose("f2cto", prepare(settings, data_folder()), derived_seed(0, 11, 1)).history
    return Exchanges(f"f2cto:local_rounds={local_rounds}", local_rounds, tuple(r.gap for r in history))


def training_passes(settings: RunSettings, *, everything: bool = False) -> int:
    """Samples passed through the network in training: each step of the attack and of SGD goes forwards and backwards.

    Batches are as large as the coreset where that is smaller. The look for a collapse and restarts do not count.
    """
    training, pool = settings.training, settings.data.scenario.samples
    kept = round(settings.size * (pool if settings.size < 1 else settings.workers))
    batch = training.batch if everything or not kept else min(training.batch, kept)
    return 2 * training.steps * batch * (training.attack_steps + 1)


QUESTIONS = {
    "scale": Question(
        "unsw-nb15-small",
        scale_runs,
        lambda found: scale({run.label: comparison for run, comparison in found.items()}),
    ),
    "communication": Question(
        "mnist-rehearsal",
        lambda preset: [Run("local rounds", preset, tuple(f"f2cto:local_rounds={n}" for n in LOCAL_ROUNDS))],
        answer_communication,
    ),
    "regimes": Question(
        "mnist-rehearsal",
        lambda preset: [Run(label, preset, (*LOCAL, *OURS), changes) for label, changes in REGIMES.items()],
        lambda found: regimes({run.label: comparison for run, comparison in found.items()}),
    ),
    "budget": Question("mnist-budget", budget_runs, answer_budget),
}


def read(folder: Path) -> Comparison:
    """What a run found."""
    lines = (folder / "records.jsonl").read_text().splitlines()
    return compare([Row(**json.loads(line)) for line in lines])


def write(out: Path, name: str, answer: Answer, command: Sequence[str]) -> None:
    """The page, its figures and its picture."""
    out.mkdir(parents=True, exist_ok=True)
    made = provenance(command)
    about = f"Made by `{made['command']}` on {made['date']}, {made['versions']}."
    (out / f"{name}.md").write_text(f"{answer.page}\n![{name}]({name}.svg)\n\n{about}\n")
    (out / f"{name}.json").write_text(json.dumps({**made, **answer.figures}, indent=1) + "\n")
    (out / f"{name}.svg").write_bytes(picture(answer.panels))


def main(argv: Sequence[str] | None = None) -> None:
    """Run what is missing, then write the page."""
    given = sys.argv[1:] if argv is None else list(argv)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", choices=QUESTIONS)
    parser.add_argument("--preset", help="instead of the question's own")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting in all runs")
    parser.add_argument("--out", type=Path, help="default: results/QUESTION")
    chosen = parser.parse_args(given)
    question, out = QUESTIONS[chosen.question], chosen.out or Path("results") / chosen.question
    runs = [replace(r, changes=(*r.changes, *chosen.set)) for r in question.runs(chosen.preset or question.preset)]
    codes = {run: f2cto(run.arguments(out, chosen.seeds, chosen.jobs)) for run in runs}
    if found := {run: read(run.folder(out)) for run, code in codes.items() if code == 0}:
        answer = question.answer(found)
        write(out, chosen.question, answer, [*COMMAND, *given])
        print(answer.page)
    sys.exit(max(codes.values()))  # where one failed, the command has said why


if __name__ == "__main__":
    main()
