"""`f2cto data`: which data sets there are, how to come by them and what is in them."""

from __future__ import annotations

import argparse
import difflib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.bar import Bar
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from f2cto.config import SettingsError

if TYPE_CHECKING:
    from f2cto.data.samples import DataSet, Samples
    from f2cto.data.sources.source import Source
    from f2cto.report.grid import Row

EXAMPLES = """examples:
  f2cto data list                                    what there is, and what is here
  f2cto data fetch mnist --data-dir data             download, check and lay out
  f2cto data info mnist --data-dir data --out looks  counts, classes and looks/mnist.png

Data sets lie in --data-dir, else in the folder that F2CTO_DATA names, else in the user's cache folder.
"""
CLASSES, EACH = 20, 10  # how much the picture shows


def add_to(commands: Any) -> None:  # noqa: ANN401  (argparse keeps the type to itself)
    """Add the command to the parser."""
    formatter = argparse.RawDescriptionHelpFormatter
    about = "Show the named data sets, download them, look into them."
    parser = commands.add_parser(
        "data", help="data sets", description=about, epilog=EXAMPLES, formatter_class=formatter
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for name, run, about in (
        ("list", run_list, "show which data sets there are and which of them are here"),
        ("fetch", run_fetch, "download a data set, or say how to get it"),
        ("info", run_info, "show counts, classes and, for images, a picture"),
    ):
        verb = verbs.add_parser(name, help=about, description=about.capitalize() + ".", formatter_class=formatter)
        if run is not run_list:
            verb.add_argument("name", metavar="NAME", help="a data set, such as mnist; see `f2cto data list`")
        verb.add_argument("--data-dir", type=Path, help="the folder with the data sets")
        verb.add_argument("--json", action="store_true", help="end with one JSON object on standard output")
        if run is run_info:
            verb.add_argument("--out", type=Path, help="folder to write NAME.png to (default: this one)")
        verb.set_defaults(run=run)


def run_list(chosen: argparse.Namespace) -> int:
    """Show what there is, and how to come by what is not here."""
    # Imported here because torch takes seconds, and `f2cto --help` needs none of it.
    from f2cto.data.folder import data_folder  # noqa: PLC0415
    from f2cto.data.sources import SOURCES  # noqa: PLC0415

    root = data_folder(chosen.data_dir)
    states = {name: _state(source, root) for name, source in SOURCES.items()}
    if chosen.json:
        rows = [{"name": name, "about": source.about, "state": states[name]} for name, source in SOURCES.items()]
        print(json.dumps({"folder": str(root), "data": rows}))
        return 0
    table = Table(title=f"data sets in {root}", title_justify="left", show_header=False, box=None, padding=(0, 2))
    for name, source in SOURCES.items():
        table.add_row(Text(name, style="bold"), states[name], source.about)
    Console(markup=False).print(table)
    return 0


def run_fetch(chosen: argparse.Namespace) -> int:
    """Download what is not here."""
    from f2cto.data.folder import data_folder  # noqa: PLC0415
    from f2cto.fetching import fetch  # noqa: PLC0415

    source, root = _source(chosen.name), data_folder(chosen.data_dir)
    console = Console(markup=False)
    bars = Progress(
        *(TextColumn("{task.description}"), BarColumn(bar_width=24), DownloadColumn(), TimeRemainingColumn()),
        console=console,
    )
    tasks: dict[str, TaskID] = {}

    def show(file: str, done: int, total: int | None) -> None:
        if file not in tasks:
            bars.start()
            tasks[file] = bars.add_task(file)
        bars.update(tasks[file], completed=done, total=total)

    try:
        new = fetch(source, root, show)
    finally:
        if tasks:
            bars.stop()
    folder = root / source.folder
    ending = f"is in {folder}" if source.folder else "comes with f2cto; nothing has to be fetched"
    console.print(f"{source.name} {ending}.", highlight=False, soft_wrap=True)
    if chosen.json:
        print(json.dumps({"name": source.name, "folder": str(folder), "new": [str(path) for path in new]}))
    return 0


def run_info(chosen: argparse.Namespace) -> int:
    """Show counts, classes and notes, and write the picture."""
    from f2cto.data.folder import data_folder  # noqa: PLC0415

    source = _source(chosen.name)
    found = source.load(data_folder(chosen.data_dir))
    facts = _facts(source, found)
    console = Console(markup=False)
    console.print(_headline(found), highlight=False, soft_wrap=True)
    console.print(_histogram(found))
    for note in facts["notes"]:
        console.print(note, highlight=False, soft_wrap=True)
    if rows := _pictures(found):
        from f2cto.report.grid import grid  # noqa: PLC0415

        picture = (chosen.out or Path()) / f"{source.name}.png"
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_bytes(grid(rows))
        console.print(f"Written: {picture}", highlight=False, soft_wrap=True)
    if chosen.json:
        print(json.dumps(facts))
    return 0


def _source(name: str) -> Source:
    from f2cto.data.sources import SOURCES  # noqa: PLC0415

    if name not in SOURCES:
        near = difflib.get_close_matches(name, SOURCES, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(SOURCES)}."
        msg = f"There is no data set `{name}`; {hint}"
        raise SettingsError(msg)
    return SOURCES[name]


def _state(source: Source, root: Path) -> str:
    if source.here(root):
        return "here"
    return "can be fetched" if source.downloads else "by hand"


def _facts(source: Source, found: DataSet) -> dict[str, Any]:
    """The data set in one JSON object."""
    train, test = len(found.train), len(found.test or ())
    notes = list(found.notes)
    whole = source.published
    if whole and (whole.train, whole.test, whole.classes) != (train, test, len(found.classes)):
        test_part = f" and {whole.test:,}" if whole.test else ""
        notes.append(f"The whole set has {whole.train:,}{test_part} samples in {whole.classes} classes.")
    classes = dict(zip(found.classes, _counts(found.train, found), strict=True))
    shape = list(found.train.x.shape[1:])
    return {"name": found.name, "train": train, "test": test, "classes": classes, "shape": shape, "notes": notes}


def _counts(samples: Samples | None, found: DataSet) -> list[int]:
    return samples.y.bincount(minlength=len(found.classes)).tolist() if samples else [0] * len(found.classes)


def _headline(found: DataSet) -> str:
    sides = found.train.x.shape[1:]
    shape = "shape " + " x ".join(map(str, sides)) if len(sides) > 1 else f"{sides[0]} columns"
    kinds = f"{len(found.classes)} classes" + (f", {len(found.sites)} sites" if found.sites else "")
    counts = f"{len(found.train):,} to train on, {len(found.test or ()):,} to test on"
    return f"{found.name}: {counts}, {kinds}, {shape}"


def _histogram(found: DataSet) -> Table:
    table = Table(box=None)
    table.add_column("class")
    table.add_column("train", justify="right")
    table.add_column("")
    table.add_column("test", justify="right")
    train, test = _counts(found.train, found), _counts(found.test, found)
    for name, here, there in zip(found.classes, train, test, strict=True):
        table.add_row(name, f"{here:,}", Bar(max(train), 0, here, width=30), f"{there:,}" if found.test else "")
    return table


def _pictures(found: DataSet) -> Sequence[Row]:
    """The first samples of the first classes, if they are images."""
    import torch  # noqa: PLC0415

    x, y = found.train.x, found.train.y
    if not isinstance(x, torch.Tensor) or x.ndim != 4 or x.shape[1] not in {1, 3}:
        return []
    rows = []
    for label, name in enumerate(found.classes[:CLASSES]):
        some = x[(y == label).nonzero().flatten()[:EACH]]
        some = some if some.dtype == torch.uint8 else (255 * some.clamp(0, 1)).round().byte()
        rows.append((name, some.movedim(1, -1).squeeze(-1).contiguous().numpy()))
    return rows
