"""`f2cto compare`: methods on the same data, seeds, budget and training, side by side."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from f2cto.cli.processes import as_they_end, stages
from f2cto.config import SettingsError, assignments, build, merged, plain
from f2cto.presets import read_preset

if TYPE_CHECKING:
    from f2cto.comparison_folder import ComparisonFolder
    from f2cto.preparation import Prepared
    from f2cto.records import Row
    from f2cto.run_settings import RunSettings

EXAMPLES = """examples:
  f2cto compare --preset digits --methods f2cto,herding,random --seeds 3 --out runs/compared
  f2cto compare --preset mnist-rehearsal --seeds 10 --jobs 2 --out runs/table --data-dir data
  f2cto compare --preset mnist-rehearsal --methods f2cto,f2cto:local_rounds=5,none,all --out runs/rounds
  f2cto compare --preset mnist-rehearsal --set rehearsal.memory=50 --set evaluation.auto_samples=200 --out runs/auto

A comparison that was interrupted goes on where it stopped: give the same command again. `none` and `all` are bounds:
nothing is rehearsed, or all former samples are.
"""


class Job(NamedTuple):
    """One contender on one seed."""

    settings: RunSettings
    label: str
    seed: int
    data: Path
    out: Path


def add_to(commands: Any) -> None:  # noqa: ANN401  (argparse keeps the type to itself)
    """Add the command to the parser."""
    parser = commands.add_parser(
        "compare",
        help="methods side by side",
        description="Compare methods: coresets of the same size, models trained and attacked in the same way.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--preset", default="digits", help="a preset's name or a settings file (default: digits)")
    parser.add_argument("--methods", help="names of `f2cto list`, by commas (default: all, and the bounds)")
    parser.add_argument("--seeds", type=int, default=5, help="how many (default: 5)")
    parser.add_argument("--first-seed", type=int, default=0, metavar="N", help="count them from N on (default: 0)")
    parser.add_argument("--out", type=Path, required=True, help="folder for records.jsonl and the tables")
    parser.add_argument("--jobs", type=int, default=1, help="how many to run at a time (default: 1)")
    parser.add_argument("--data-dir", type=Path, help="the folder with the named data sets; see `f2cto data`")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any setting, e.g. workers=3")
    parser.add_argument("--quiet", action="store_true", help="show no progress and no table")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Compute what is missing, then write the tables."""
    from f2cto.comparison import contender, former_defaults, stream  # noqa: PLC0415
    from f2cto.comparison_folder import ComparisonFolder  # noqa: PLC0415
    from f2cto.data.folder import data_folder  # noqa: PLC0415
    from f2cto.run_settings import RunSettings  # noqa: PLC0415

    if min(chosen.seeds, chosen.jobs) < 1 or chosen.first_seed < 0:
        msg = f"--seeds and --jobs must be at least 1, --first-seed at least 0; got {chosen.seeds}, {chosen.jobs} and "
        msg += f"{chosen.first_seed}."
        raise SettingsError(msg)
    said = assignments(chosen.set)
    settings, data = build(RunSettings, merged(read_preset(chosen.preset), said)), data_folder(chosen.data_dir)
    tasks = stream(settings, chosen.first_seed, data)
    labels = list(dict.fromkeys(chosen.methods.split(",") if chosen.methods is not None else every_method(tasks)))
    check(labels, tasks)
    for label in labels:
        contender(label, settings, said)
    folder = ComparisonFolder(chosen.out)
    folder.claim(plain(settings), former_defaults())
    expected = len(tasks) * attacks(tasks)
    done = folder.rows(expected)
    known = {(row.method, row.seed) for row in done}
    jobs = [
        Job(settings, label, seed, data, chosen.out)
        for seed in range(chosen.first_seed, chosen.first_seed + chosen.seeds)
        for label in labels
        if (label, seed) not in known
    ]
    console = Console(quiet=chosen.quiet, markup=False)
    failed = compute(jobs, chosen.jobs, folder, console)
    show(folder, folder.rows(expected), console, command_line(chosen), settings)
    for job, reason in failed:
        print(f"f2cto: {job.label} failed on seed {job.seed}: {reason}", file=sys.stderr)
    return 1 if failed else 0


def command_line(chosen: argparse.Namespace) -> list[str]:
    """The command as it can be given again."""
    methods = ["--methods", chosen.methods] if chosen.methods else []
    settings = [part for text in chosen.set for part in ("--set", text)]
    first = ["--first-seed", str(chosen.first_seed)] if chosen.first_seed else []
    out = ["--out", str(chosen.out)]
    return [
        "f2cto",
        "compare",
        "--preset",
        chosen.preset,
        *methods,
        "--seeds",
        str(chosen.seeds),
        *first,
        *out,
        *settings,
    ]


def every_method(tasks: Sequence[Prepared]) -> list[str]:
    """All methods, and the bounds that there are."""
    from f2cto.methods.catalogue import METHODS  # noqa: PLC0415

    return [*METHODS, "all", *(["none"] if len(tasks) > 1 else [])]


def check(labels: Sequence[str], tasks: Sequence[Prepared]) -> None:
    """Refuse what has no meaning here."""
    if len(tasks) == 1 and "none" in labels:
        msg = "With one task there is nothing to rehearse, hence no bound `none`; leave it out of --methods."
        raise SettingsError(msg)


def attacks(tasks: Sequence[Prepared]) -> int:
    """How many attacks judge a final model; those that cannot be run are found here."""
    judged, first = tasks[0].settings.evaluation, tasks[0]
    try:
        return len(judged.attacks(first.valid)) + len(judged.strong_attacks(first.valid, len(first.classes)))
    except (ValueError, ImportError) as error:
        raise SettingsError(str(error)) from error


def compute(jobs: Sequence[Job], count: int, folder: ComparisonFolder, console: Console) -> list[tuple[Job, str]]:
    """Run all jobs, write each as it ends; gives those that failed and why."""
    failed = []
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        bar = progress.add_task("comparing", total=len(jobs))
        for job, rows in as_they_end(_tried, jobs, count):
            if isinstance(rows, str):
                failed.append((job, rows))
            else:
                folder.add(rows)
            progress.update(bar, advance=1, description=f"{job.label}, seed {job.seed}")
    return failed


def _tried(job: Job) -> list[Row] | str:
    """The rows of a job, or why there are none: one that fails must not stop the others."""
    from f2cto.comparison import cell, contender  # noqa: PLC0415
    from f2cto.comparison_folder import ComparisonFolder  # noqa: PLC0415

    try:
        who = contender(job.label, job.settings)
        return cell(stages(job.settings, job.seed, job.data), who, ComparisonFolder(job.out))
    except (ValueError, TypeError, LookupError, ArithmeticError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"


def radii(settings: RunSettings) -> str:
    """The radii of the attacks, which need not be the same; that of choosing where it is another."""
    judged = settings.evaluation
    found = {"PGD": judged.radius, "FGSM": judged.fgsm_radius or judged.radius}
    if judged.auto_samples:
        found["AutoAttack"] = judged.auto_radius or judged.radius
    if settings.radius != judged.radius:
        found["while choosing"] = settings.radius
    return ", ".join(f"{name} {radius:.4g} ({255 * radius:.3g}/255)" for name, radius in found.items())


def show(
    folder: ComparisonFolder, rows: Sequence[Row], console: Console, command: Sequence[str], settings: RunSettings
) -> None:
    """Write the tables and the picture, and show what they say."""
    from f2cto.records import provenance  # noqa: PLC0415
    from f2cto.report.comparison import compare  # noqa: PLC0415
    from f2cto.report.comparison_plot import picture  # noqa: PLC0415
    from f2cto.report.comparison_text import csv_text, latex, markdown  # noqa: PLC0415

    if not rows:
        console.print("There is nothing to compare yet.")
        return
    found, origin = compare(rows), provenance(command)
    versions = ", ".join(f"{name} {number}" for name, number in origin["versions"].items())
    head = (
        f"All that this folder holds; the last command was `{origin['command']}`,  \n"
        f"{origin['date']}, {versions}; all settings: settings.toml. Radii: {radii(settings)}.\n\n"
    )
    folder.write("table.md", head + markdown(found))
    folder.write("table.csv", csv_text(found))
    folder.write("table.tex", latex(found))
    folder.write("table.svg", picture(found))
    console.print(markdown(found), highlight=False, soft_wrap=True)
    console.print(f"Written to {folder.path}: records.jsonl, table.md, .csv, .tex, .svg.", highlight=False)
