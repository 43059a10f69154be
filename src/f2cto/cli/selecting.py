"""`f2cto select`: pick the samples worth keeping and show what they are worth."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from f2cto.cli import shard_files
from f2cto.config import SettingsError, assignments, build, merged, nested, plain
from f2cto.presets import read_preset

if TYPE_CHECKING:
    from f2cto.folder import RunFolder
    from f2cto.preparation import Prepared
    from f2cto.records import Kept, RunRecord
    from f2cto.run_settings import RunSettings
    from f2cto.selection import Selection
    from f2cto.trilevel.master import Round

EXAMPLES = """examples:
  f2cto select --preset digits --out runs/demo
  f2cto select data.parquet --label y --out runs/mine --export coreset.parquet
  f2cto select data.csv --label y --worker-column site --fixed protocol --out runs/sites
  f2cto select photos/ --workers 4 --partition dirichlet:0.3 --no-judge --out runs/photos
  f2cto select --preset mnist-small --data-dir data --out runs/mnist
  f2cto select --workers 10 --size 0.05 --iterations 100 --seed 3 --out runs/five-percent
  f2cto select --set f2cto.weighting.topk=0.5 --set training.steps=500 --quiet --json
  f2cto select --preset runs/demo/settings.toml --out runs/again
  f2cto select 'shards/*.parquet' --label y --engine ray --size 0.05 --out runs/shards
  f2cto select --preset unsw-nb15-small --engine ray --set federation.faults.on_failure=continue --out runs/ray
"""

THREADS = 4096  # more than any machine has processors

BLIND = (
    "Note: the model that chose these samples is no better than one that always gives the same answer, so that it had "
    "little to choose by. Give it more iterations or other steps: shorter ones for deep networks, such as "
    "`--set f2cto.proxy.step=0.02 --set f2cto.proxy.hat_step=0.04` (docs/settings.md)."
)


def add_to(commands: Any) -> None:  # noqa: ANN401  (argparse keeps the type to itself)
    """Add the command to the parser."""
    parser = commands.add_parser(
        "select",
        help="pick the samples worth keeping",
        description="Pick the samples worth keeping, then compare models trained on them with random choices.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file", nargs="?", help="your data: a .parquet, .csv or .npz file, or a folder of images by class"
    )
    parser.add_argument("--label", help="the column with the classes")
    parser.add_argument("--worker-column", metavar="COLUMN", help="the column that says whose each sample is")
    parser.add_argument("--fixed", metavar="A,B", help="columns that no attacker can change")
    parser.add_argument("--preset", help="a preset's name or a settings file (default: digits, if no file is given)")
    parser.add_argument("--data-dir", type=Path, help="the folder with the named data sets; see `f2cto data`")
    parser.add_argument("--method", help="how to select; see `f2cto list` (default: f2cto)")
    parser.add_argument("--workers", type=int, help="how many workers share the data")
    parser.add_argument("--partition", help="how they share it: iid, dirichlet:0.3, classes:2 or site")
    parser.add_argument("--size", type=float, help="samples each worker keeps: a count, or a fraction below 1")
    parser.add_argument("--iterations", type=int, help="iterations of the solver")
    parser.add_argument("--seed", type=int, help="the same seed gives the same result")
    parser.add_argument("--engine", choices=["process", "ray"], help="where workers run (default: in this process)")
    parser.add_argument("--address", metavar="auto|HOST:PORT", help="a Ray cluster (default: one on this machine)")
    parser.add_argument("--out", type=Path, help="folder for coreset.csv, report.html and more")
    parser.add_argument("--export", type=Path, metavar="FILE", help="write the kept rows themselves, .parquet or .csv")
    parser.add_argument(
        "--no-judge", action="store_true", help="select from all samples and train no models to compare"
    )
    parser.add_argument("--threads", type=int, help="of each process (default: by the size of the work; 1 on Ray)")
    parser.add_argument("--device", help="where to compute, such as cuda (default: cpu)")
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
    from f2cto.data.folder import data_folder  # noqa: PLC0415
    from f2cto.folder import RunFolder  # noqa: PLC0415
    from f2cto.preparation import prepare  # noqa: PLC0415
    from f2cto.report import render  # noqa: PLC0415
    from f2cto.run_settings import RunSettings  # noqa: PLC0415

    settings = build(RunSettings, requested(chosen))
    settings.check_said(settings.method, assignments(chosen.set))
    if chosen.threads is not None and not 1 <= chosen.threads <= THREADS:
        msg = f"--threads must be at least 1 and at most {THREADS}; got {chosen.threads}."
        raise SettingsError(msg)
    if shard_files.is_pattern(settings.data.source):
        return shard_files.run(chosen, settings)
    check_export(chosen.export, settings)
    # Before the folder is claimed: what cannot run overwrites nothing.
    prepared = prepare(settings, data_folder(chosen.data_dir))
    folder = RunFolder(chosen.out, force=chosen.force) if chosen.out else None
    if folder:
        folder.write_settings(plain(settings))
    torch.set_num_threads(chosen.threads or prepared.threads())
    console = Console(quiet=chosen.quiet, markup=False)
    for note in prepared.notes:
        console.print(f"note: {note}", style="dim", highlight=False)
    with Screen(prepared, console, folder, chosen.threads) as screen:
        record = experiment.run(prepared, screen, chosen.threads)
    if folder:
        folder.write_report(record, render(record))
    show(record, console, folder)
    if chosen.export:
        export(chosen.export, settings, record)
        console.print(f"The kept rows are in {chosen.export}.", highlight=False)
    if chosen.json:
        print(json.dumps(record.summary()))
    return 0


def requested(chosen: argparse.Namespace) -> dict[str, Any]:
    """The preset with the command line's options on top."""
    values: dict[str, Any] = (
        {"size": 0.05} if chosen.file and not chosen.preset else read_preset(chosen.preset or "digits")
    )
    for path, value in {
        "data.source": chosen.file,
        "data.label": chosen.label,
        "data.site": chosen.worker_column,
        "data.fixed": chosen.fixed and [name.strip() for name in chosen.fixed.split(",")],
        "partition": chosen.partition or (chosen.worker_column and "site"),
        "workers": chosen.workers,
        "size": chosen.size,
        "seed": chosen.seed,
        "method": chosen.method,
        "network.device": chosen.device,
        "federation.engine": chosen.engine,
        "federation.address": chosen.address,
        "f2cto.stopping.iterations": chosen.iterations,
        "evaluation.draws": 0 if chosen.no_judge else None,
    }.items():
        if value is not None:
            values = merged(values, nested(path, value))
    return merged(values, assignments(chosen.set))


def check_export(path: Path | None, settings: RunSettings) -> None:
    """Refuse, before anything is computed, what could not be written in the end."""
    from f2cto.data.sources import SOURCES  # noqa: PLC0415

    if path is None:
        return
    if path.suffix not in {".parquet", ".csv"}:
        msg = f"--export writes .parquet or .csv; got {path}."
        raise SettingsError(msg)
    if settings.data.source in SOURCES:
        msg = f"--export gives back rows of your own file; `{settings.data.source}` is none, see coreset.csv in --out."
        raise SettingsError(msg)


def export(path: Path, settings: RunSettings, record: RunRecord) -> None:
    """Write the kept rows as they stand in the user's file, with worker and weight."""
    import polars as pl  # noqa: PLC0415
    import torch  # noqa: PLC0415

    from f2cto.data.files import export_rows  # noqa: PLC0415

    rows = export_rows(Path(settings.data.source), torch.tensor([k.row for k in record.kept]))
    frame = rows.with_columns(
        pl.Series("f2cto_row", [k.row for k in record.kept]),
        pl.Series("f2cto_worker", [k.worker for k in record.kept]),
        pl.Series("f2cto_weight", [k.weight for k in record.kept]),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        frame.write_csv(path)
    else:
        frame.write_parquet(path)


class Screen:
    """A live progress bar, and a writer of what is known so far."""

    def __init__(
        self, prepared: Prepared, console: Console, folder: RunFolder | None, threads: int | None = None
    ) -> None:
        """Prepare two bars: selecting and judging."""
        self._folder, self._prepared, self._threads = folder, prepared, threads
        settings = prepared.settings
        iterations = settings.f2cto.stopping.iterations if settings.method == "f2cto" else None
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}"),
            console=console,
        )
        self._select = self._progress.add_task("selecting", total=iterations, note="")
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

        note = f"objective {last.objective:.3f}  gap {last.gap:.2e}"
        if "robust_accuracy" in last.metrics:
            note += f"  robust accuracy {last.metrics['robust_accuracy']:.1%}"
        if "epsilon" in last.metrics:
            note += f"  epsilon {last.metrics['epsilon']:.3g}"
        if last.absent:
            note += f"  missing: {', '.join(map(str, last.absent))}"
        self._progress.update(self._select, completed=last.iteration, note=note)
        if self._folder:
            self._folder.add_row(row(last))

    def on_selected(self, selection: Selection, kept: Sequence[Kept]) -> None:
        """Write the coreset before anything else can go wrong."""
        import torch  # noqa: PLC0415

        from f2cto.experiment import learned_nothing  # noqa: PLC0415

        self._progress.update(self._judge, visible=self._prepared.test is not None)
        torch.set_num_threads(self._threads or self._prepared.threads(self._prepared.settings.training.batch))
        if self._folder:
            self._folder.write_coreset(kept)
            self._folder.write_model(selection.model)
            if selection.absences:
                self._folder.write_absences([asdict(absence) for absence in selection.absences])
        if learned_nothing(self._prepared, selection):
            self._progress.console.print(BLIND, highlight=False, soft_wrap=True)

    def on_draw(self, name: str) -> None:
        """Show one trained model."""
        self._progress.update(self._judge, advance=1, note=f"robust training on {name}")


def show(record: RunRecord, console: Console, folder: RunFolder | None) -> None:
    """The table, and where the files are."""
    if not record.accuracy:
        console.print(f"Kept {len(record.kept):,} samples in {record.seconds:.1f} s; nothing was judged.")
    else:
        _show_table(record, console)
    if folder:
        console.print(f"Written to {folder.path}: open {folder.path / 'report.html'} in a browser.", highlight=False)


def _show_table(record: RunRecord, console: Console) -> None:
    from f2cto.report.tables import accuracy_header, accuracy_rows, collapses  # noqa: PLC0415

    table = Table(title="A model trained robustly on…  (test accuracy, %)", title_justify="left")
    for number, name in enumerate(accuracy_header(record)):
        table.add_column(name, justify="left" if number == 0 else "right")
    for cells in accuracy_rows(record):
        table.add_row(*cells)
    console.print(table)
    if said := collapses(record):
        console.print(said, highlight=False, soft_wrap=True)
