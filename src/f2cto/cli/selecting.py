"""`f2cto select`: pick the samples worth keeping and show what they are worth."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from f2cto.config import assignment, build, merged, plain
from f2cto.presets import read_preset

if TYPE_CHECKING:
    from f2cto.experiment import RunSettings
    from f2cto.folder import RunFolder
    from f2cto.records import Kept, RunRecord
    from f2cto.selection import Selection
    from f2cto.trilevel.master import Round

EXAMPLES = """examples:
  f2cto select --preset digits --out runs/demo
  f2cto select --workers 10 --size 0.05 --iterations 100 --seed 3 --out runs/five-percent
  f2cto select --set f2cto.weighting.topk=0.5 --set training.steps=500 --quiet --json
  f2cto select --preset runs/demo/settings.toml --out runs/again
"""


def add_to(commands: Any) -> None:  # noqa: ANN401  (argparse keeps the type to itself)
    """Add the command to the parser."""
    parser = commands.add_parser(
        "select",
        help="pick the samples worth keeping",
        description="Pick the samples worth keeping, then compare models trained on them with random choices.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--preset", default="digits", help="a preset's name or a settings file (default: digits)")
    parser.add_argument("--workers", type=int, help="how many workers share the data")
    parser.add_argument("--size", type=float, help="samples each worker keeps: a count, or a fraction below 1")
    parser.add_argument("--iterations", type=int, help="iterations of the solver")
    parser.add_argument("--seed", type=int, help="the same seed gives the same result")
    parser.add_argument("--out", type=Path, help="folder for coreset.csv, report.html and more")
    parser.add_argument("--force", action="store_true", help="overwrite a former run in --out")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any setting, e.g. workers=3")
    parser.add_argument("--quiet", action="store_true", help="show no progress and no table")
    parser.add_argument("--json", action="store_true", help="end with one JSON object on standard output")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Select, show and write."""
    # Imported here because torch takes seconds, and `f2cto --help` needs none of it.
    import torch  # noqa: PLC0415

    from f2cto import experiment  # noqa: PLC0415
    from f2cto.folder import RunFolder  # noqa: PLC0415
    from f2cto.report import render  # noqa: PLC0415

    settings = build(experiment.RunSettings, requested(chosen))
    prepared = experiment.prepare(settings)  # before the folder is claimed: what cannot run overwrites nothing
    folder = RunFolder(chosen.out, force=chosen.force) if chosen.out else None
    if folder:
        folder.write_settings(plain(settings))
    # Small matrices are slower on many threads than on one.
    torch.set_num_threads(1)
    console = Console(quiet=chosen.quiet)
    with Screen(settings, console, folder) as screen:
        record = experiment.run(prepared, screen)
    if folder:
        folder.write_report(record, render(record))
    show(record, console, folder)
    if chosen.json:
        print(json.dumps(record.summary()))
    return 0


def requested(chosen: argparse.Namespace) -> dict[str, Any]:
    """The preset with the command line's options on top."""
    values = read_preset(chosen.preset)
    for name in ("workers", "size", "seed"):
        if getattr(chosen, name) is not None:
            values[name] = getattr(chosen, name)
    if chosen.iterations is not None:
        values = merged(values, {"f2cto": {"stopping": {"iterations": chosen.iterations}}})
    for text in chosen.set:
        values = merged(values, assignment(text))
    return values


class Screen:
    """A live progress bar, and a writer of what is known so far."""

    def __init__(self, settings: RunSettings, console: Console, folder: RunFolder | None) -> None:
        """Prepare two bars: selecting and judging."""
        self._folder = folder
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}"),
            console=console,
        )
        self._select = self._progress.add_task("selecting", total=settings.f2cto.stopping.iterations, note="")
        self._judge = self._progress.add_task("judging", total=4 * settings.evaluation.draws, note="", visible=False)

    def __enter__(self) -> Self:
        """Show the bars."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the bars as they stand."""
        self._progress.stop()

    def on_round(self, last: Round) -> None:
        """Show and write one iteration."""
        from f2cto.experiment import row  # noqa: PLC0415

        accuracy = last.metrics.get("robust_accuracy", 0.0)
        note = f"objective {last.objective:.3f}  gap {last.gap:.2e}  robust accuracy {accuracy:.1%}"
        self._progress.update(self._select, completed=last.iteration, note=note)
        if self._folder:
            self._folder.add_row(row(last))

    def on_selected(self, selection: Selection, kept: Sequence[Kept]) -> None:
        """Write the coreset before anything else can go wrong."""
        self._progress.update(self._judge, visible=True)
        if self._folder:
            self._folder.write_coreset(kept)
            self._folder.write_model(selection.model)

    def on_draw(self, name: str) -> None:
        """Show one trained model."""
        self._progress.update(self._judge, advance=1, note=f"robust training on {name}")


def show(record: RunRecord, console: Console, folder: RunFolder | None) -> None:
    """The table, and where the files are."""
    from f2cto.report.tables import accuracy_header, accuracy_rows  # noqa: PLC0415

    table = Table(title="A model trained robustly on…  (test accuracy, %)", title_justify="left")
    for number, name in enumerate(accuracy_header(record)):
        table.add_column(name, justify="left" if number == 0 else "right")
    for cells in accuracy_rows(record):
        table.add_row(*cells)
    console.print(table)
    if folder:
        console.print(f"Written to {folder.path}: open {folder.path / 'report.html'} in a browser.", highlight=False)
