"""Measure methods on the cells of the development suite. Records that are there are not computed again.

Examples:
    python -m benchmarks.suite --methods random,herding,facility --jobs 2
    python -m benchmarks.suite --methods f2cto-sparse:effort=quick --cells mnist,letters --seeds 1
    python -m benchmarks.suite --methods f2cto-sparse --fresh f2cto-sparse      # what other commits measured is old

"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.suite.cells import CELLS, Cell
from benchmarks.suite.files import lay_out
from benchmarks.suite.records import Record, Records, summary, write_summary
from benchmarks.suite.run import Job, all_measured, fingerprint, planned, settings_of
from benchmarks.suite.table import covering, markdown
from f2cto.comparison import contender
from f2cto.config import SettingsError
from f2cto.records import provenance
from f2cto.writing import write_whole

METHODS = "random,balanced,herding,facility,easy,f2cto-sparse"
ROOT = Path(__file__).resolve().parents[2]


def main(argv: Sequence[str] | None = None, cells: Mapping[str, Cell] = CELLS) -> int:
    """Compute what is missing, write and print the table."""
    parser = arguments(cells)
    chosen = parser.parse_args(argv)
    methods, wanted = chosen.methods.split(","), chosen.cells.split(",") if chosen.cells else list(cells)
    if unknown := [name for name in wanted if name not in cells]:
        parser.error(f"There is no cell {', '.join(unknown)}; there are {', '.join(cells)}.")
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
    jobs = planned({name: cells[name] for name in wanted}, methods, seeds, chosen.part, chosen.data_dir)
    try:
        check(jobs)
    except SettingsError as error:
        parser.error(str(error))
    records = Records(chosen.out)
    missing = left(jobs, records.read(), chosen.fresh.split(","))
    lay_out((job.cell.facts["data"]["source"] for job in missing), chosen.shared, chosen.data_dir)
    failed = compute(missing, chosen.jobs, records)
    found = summary(current(records.read(), cells, chosen.part))
    write(chosen.out, found, chosen.part, [name for name, cell in cells.items() if cell.continual])
    print(markdown({name: found[name] for name in wanted if name in found}, methods, continual(cells)))
    return 1 if failed else 0


def arguments(cells: Mapping[str, Cell]) -> argparse.ArgumentParser:
    """What can be asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.suite",
        description=__doc__,
        epilog=f"cells: {', '.join(cells)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--methods", default=METHODS, help="labels as for `f2cto compare`, or METHOD@proportional")
    parser.add_argument("--cells", help="names, by commas (default: all)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--part", default="validation", choices=["validation", "test"], help="what models are judged on")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--fresh", default="", metavar="METHODS", help="whose records of other commits do not count")
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared", help="the folder with data/unpack.py")
    parser.add_argument("--data-dir", type=Path, default=Path(tempfile.gettempdir()) / "f2cto-suite")
    parser.add_argument("--out", type=Path, default=Path("results/suite"))
    return parser


def check(jobs: Sequence[Job]) -> None:
    """Refuse methods and cells that cannot be run, before anything is."""
    for job in jobs:
        contender(job.key.method.partition("@")[0], settings_of(job))


def left(jobs: Sequence[Job], records: Sequence[Record], fresh: Sequence[str]) -> list[Job]:
    """The jobs without a record that counts."""
    commit = provenance([]).get("commit")
    counting = [r for r in records if r.key.method not in fresh or r.origin.get("commit") == commit]
    known = {(record.key, record.facts) for record in counting}
    return [job for job in jobs if (job.key, fingerprint(job.cell)) not in known]


def compute(jobs: Sequence[Job], count: int, records: Records) -> list[Job]:
    """Measure all jobs, write each as it ends; gives those that failed."""
    failed = []
    for number, (job, found) in enumerate(all_measured(jobs, count), start=1):
        name = f"{number}/{len(jobs)} {job.key.cell} {job.key.method} seed {job.key.seed}"
        if isinstance(found, str):
            failed.append(job)
            print(f"{name} failed: {found}", file=sys.stderr, flush=True)
            continue
        records.add(found)
        took = f"{found.seconds:.1f} s of selection, {found.total_seconds:.1f} s in all"
        print(f"{name}: {found.accuracy['pgd']:.1f} %, {found.passes:.0f} passes, {took}", flush=True)
    return failed


def current(records: Sequence[Record], cells: Mapping[str, Cell], part: str) -> list[Record]:
    """The records of a part of the data whose cells are still the same, in the order of the cells."""
    known = {name: fingerprint(cell) for name, cell in cells.items()}
    place = {name: number for number, name in enumerate(cells)}
    found = [r for r in records if r.key.part == part and known.get(r.key.cell) == r.facts]
    return sorted(found, key=lambda record: place[record.key.cell])


def continual(cells: Mapping[str, Cell]) -> list[str]:
    """The names of cells with several tasks."""
    return [name for name, cell in cells.items() if cell.continual]


def write(out: Path, found: Mapping, part: str, several: Sequence[str]) -> None:
    """All that the records say of a part of the data."""
    end = "" if part == "validation" else f"-{part}"
    write_summary(out / f"summary{end}.json", found)
    if found:
        head = f"PGD accuracy in percent on {part} samples, ± the deviation over seeds.\n\n"
        write_whole(out / f"table{end}.md", (head + markdown(found, covering(found), several) + "\n").encode())


if __name__ == "__main__":
    sys.exit(main())
