"""`f2cto federation run`: start a selection over a federation, or look again at one that is under way."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from f2cto.config import SettingsError, build, read_toml
from f2cto.writing import write_whole

if TYPE_CHECKING:
    from f2cto.flower.commands import Link, Status
    from f2cto.run_settings import RunSettings

RUNS = "runs.json"  # in the master's folder: which run writes to which folder
LOOK = 0.5  # seconds between two looks at the run's folder
ASK = (5.0, 10.0, 20.0)  # seconds until Flower is asked, each of which takes seconds of computing; the last one stays


def add_to(parts: Any) -> None:  # noqa: ANN401  (argparse keeps the type to itself)
    """Add the command to the parser."""
    parser = parts.add_parser("run", help="select over a federation; the same again goes on, or looks again")
    parser.add_argument("folder", type=Path, help="the federation's folder, or its master's")
    parser.add_argument("--settings", type=Path, required=True, help="a settings file: workers, size, method and more")
    parser.add_argument("--schema", type=Path, help="what all sites agreed on (default: schema.json of the master)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model, the history and the summary")
    parser.add_argument(
        "--seconds",
        type=float,
        default=600.0,
        help="that a message may take, there and back and the work in between (default: 600)",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Start or find the run, watch it, end as it ended."""
    from f2cto.flower.commands import Link, master_folder  # noqa: PLC0415

    link = Link(master_folder(chosen.folder))
    settings = read_settings(chosen.settings)
    schema, out = chosen.schema or link.folder / "schema.json", chosen.out.resolve()
    if not schema.is_file():
        msg = f"There is no schema {schema}; make one with `f2cto federation schema`, for all sites and the master."
        raise SettingsError(msg)
    config: dict[str, str | float] = {
        "settings": str(chosen.settings.resolve()),
        "schema": str(schema.resolve()),
        "out": str(out),
        "seconds": chosen.seconds,
    }
    console, number = Console(quiet=chosen.quiet, markup=False), _under_way(link, out)
    try:
        if number:
            console.print(f"Run {number} is under way for {out}; watching it.", highlight=False)
            if watched(link, number, out, Screen(console, settings)).completed:
                return _told(console, out)
            console.print("It has ended before its time; going on with it.")
            number = ""
        _refuse_a_second(link, out)
        number = link.begin(config)
        _remember(link.folder, out, number)
        return _ended(watched(link, number, out, Screen(console, settings)), console, out)
    except KeyboardInterrupt:
        if not number:
            raise
        stop = f"`{link.folder / 'flwr.sh'} stop {number} here` ends it."
        console.print(f"Run {number} goes on without being watched. The same command watches it again; {stop}")
        return 130


def _ended(status: Status, console: Console, out: Path) -> int:
    from f2cto.flower.commands import FlowerError  # noqa: PLC0415

    if status.completed:
        return _told(console, out)
    why = (status.details or status.state).strip().rstrip(".")
    msg = f"Run {status.run} failed: {why}. The same command goes on where it stopped."
    raise FlowerError(msg)


def read_settings(path: Path) -> RunSettings:
    """Settings that a run could begin with; an error here is better than one on the way."""
    from f2cto.run_settings import RunSettings  # noqa: PLC0415  (torch)

    return build(RunSettings, read_toml(path))


def watched(link: Link, run: str, out: Path, screen: Screen) -> Status:
    """Show what the run writes until Flower says that it has ended."""
    from f2cto.flower.commands import FlowerError  # noqa: PLC0415

    pauses, rows, finished = iter(ASK), follow(out / "metrics.jsonl"), _changed(out / "summary.json")
    pause = next(pauses)
    due = time.monotonic() + pause
    with screen:
        while True:
            for row in next(rows):
                screen.show(row)
            if next(finished) or time.monotonic() >= due:
                status = link.status(run)
                if status is None:
                    msg = f"The SuperLink does not know run {run}; was its state.db removed?"
                    raise FlowerError(msg)
                if status.ended:
                    for row in next(rows):
                        screen.show(row)
                    return status
                pause = next(pauses, pause)
                due = time.monotonic() + pause
            time.sleep(LOOK)


def follow(path: Path) -> Iterator[list[dict[str, Any]]]:
    """The rows that a file of JSON lines has got since the last look, again and again; half a line waits."""
    place = 0
    while True:
        rows = []
        if path.is_file():
            with path.open("rb") as file:
                place = place if place <= path.stat().st_size else 0  # it was written anew
                file.seek(place)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    place += len(line)
                    rows.append(json.loads(line))
        yield rows


def _changed(path: Path) -> Iterator[bool]:
    """Whether a file was written since the last look."""
    before = _stamp(path)
    while True:
        now = _stamp(path)
        yield now != before
        before = now


def _stamp(path: Path) -> int:
    return path.stat().st_mtime_ns if path.is_file() else 0


class Screen:
    """A bar that shows the iterations."""

    def __init__(self, console: Console, settings: RunSettings) -> None:
        """Prepare the bar; only F2CTO's own methods know how far they will go."""
        self.console = console
        total = settings.f2cto.stopping.iterations if settings.of(settings.method) is settings.f2cto else None
        self._progress = Progress(
            TextColumn("selecting"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:g}" + (f" of {total}" if total else "")),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
        )
        self._task: TaskID = self._progress.add_task("", total=total, note="waiting for the sites")

    def __enter__(self) -> None:
        """Show it."""
        self._progress.start()

    def __exit__(self, *_: object) -> None:
        """Leave it as it stands."""
        self._progress.stop()

    def show(self, row: dict[str, Any]) -> None:
        """One iteration."""
        parts = [f"{name} {row[name]:.3g}" for name in ("objective", "gap") if isinstance(row.get(name), float)]
        if absent := row.get("absent"):
            parts.append(f"without {', '.join(map(str, absent))}")
        self._progress.update(self._task, completed=row.get("iteration", 0), note="  ".join(parts))


def _under_way(link: Link, out: Path) -> str:
    """The run that writes to a folder right now; empty where there is none."""
    found = _remembered(link.folder).get(str(out), "")
    if not found:
        return ""
    status = link.status(found)
    return found if status and not status.ended else ""


def _refuse_a_second(link: Link, out: Path) -> None:
    """A second job would make the sites drop the first, half done."""
    others = {run: there for there, run in _remembered(link.folder).items() if there != str(out)}
    for run in sorted(others.keys() & link.under_way() if others else ()):
        stop = f"`{link.folder / 'flwr.sh'} stop {run} here`"
        msg = f"Run {run} is under way for {others[run]}, and sites work at one job at a time; wait, or end it: {stop}."
        raise SettingsError(msg)


def _remember(folder: Path, out: Path, run: str) -> None:
    write_whole(folder / RUNS, (json.dumps(_remembered(folder) | {str(out): run}, indent=1) + "\n").encode())


def _remembered(folder: Path) -> dict[str, str]:
    try:
        return dict(json.loads((folder / RUNS).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _told(console: Console, out: Path) -> int:
    summary = out / "summary.json"
    if summary.is_file():
        sites = json.loads(summary.read_text(encoding="utf-8")).get("sites", {})
        missing = {i: site for i, site in sites.items() if site.get("kept") is None}
        for i, site in missing.items():
            why = str(site.get("why", "it was not asked")).rstrip(".")
            console.print(f"Site {i} has written no coreset: {why}.", highlight=False)
        if missing:
            console.print("The same command asks them again.", highlight=False)
    console.print(f"Done: the model and the history are in {out}, the coresets at the sites.", highlight=False)
    return 0
