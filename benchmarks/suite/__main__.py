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
from benchmarks.suite.run import Job, Setup, fingerprint, planned, settings_of, tried
from benchmarks.suite.table import covering, markdown
from f2cto.cli.processes import as_they_end
from f2cto.comparison import contender
from f2cto.config import SettingsError
from f2cto.records import provenance
from f2cto.writing import write_whole

METHODS = "random,balanced,herding,facility,easy,f2cto-sparse"
ROOT = Path(__file__).resolve().parents[2]


def main(argv: Sequence[str] | None = None, cells: Mapping[str, Cell] = CELLS) -> int:
    """Compute what is missing, write and print the table."""
    given = sys.argv[1:] if argv is None else list(argv)
    parser = arguments(cells)
    chosen = parser.parse_args(given)
    methods, names = chosen.methods.split(","), chosen.cells.split(",") if chosen.cells else list(cells)
    try:
        jobs = asked_for(chosen, {name: known(name, cells) for name in names}, methods, given)
    except SettingsError as error:
        parser.error(str(error))
    records = Records(chosen.out)
    missing = without_record(jobs, records.read(), chosen.fresh.split(","))
    lay_out((job.cell.facts["data"]["source"] for job in missing), chosen.shared, chosen.data_dir)
    failed = compute(missing, chosen.jobs, records)
    counting = current(records.read(), cells, chosen.part)
    write(chosen.out, counting, chosen.part, cells)
    found = summary(counting)
    print(markdown({name: found[name] for name in names if name in found}, methods, continual(cells)))
    return 1 if failed else 0


def known(name: str, cells: Mapping[str, Cell]) -> Cell:
    """A cell by name."""
    if name not in cells:
        msg = f"There is no cell `{name}`; there are {', '.join(cells)}."
        raise SettingsError(msg)
    return cells[name]


def asked_for(
    chosen: argparse.Namespace, cells: Mapping[str, Cell], methods: Sequence[str], given: Sequence[str]
) -> list[Job]:
    """All jobs, those with records included; methods and cells that cannot be run are refused before anything is."""
    setup = Setup(chosen.part, chosen.data_dir, ("python", "-m", "benchmarks.suite", *given))
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
    jobs = planned(cells, methods, seeds, setup)
    for job in jobs:
        contender(job.key.method.partition("@")[0], settings_of(job))
    return jobs


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
    parser.add_argument(
        "--part", default="validation", choices=["validation", "test"], help="what models are judged on"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--fresh", default="", metavar="METHODS", help="whose records of other commits do not count")
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared", help="the folder with data/unpack.py")
    parser.add_argument("--data-dir", type=Path, default=Path(tempfile.gettempdir()) / "f2cto-suite")
    parser.add_argument("--out", type=Path, default=Path("results/suite"))
    return parser


def without_record(jobs: Sequence[Job], records: Sequence[Record], fresh: Sequence[str]) -> list[Job]:
    """The jobs without a record that counts."""
    commit = provenance([]).get("commit")
    counting = [r for r in records if r.key.method not in fresh or r.origin.get("commit") == commit]
    there = {(record.key, record.facts) for record in counting}
    return [job for job in jobs if (job.key, fingerprint(job.cell)) not in there]


def compute(jobs: Sequence[Job], count: int, records: Records) -> list[Job]:
    """Measure all jobs, write each as it ends; gives those that failed."""
    failed = []
    for number, (job, found) in enumerate(as_they_end(tried, jobs, count), start=1):
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
    facts, order = {name: fingerprint(cell) for name, cell in cells.items()}, list(cells)
    found = [r for r in records if r.key.part == part and facts.get(r.key.cell) == r.facts]
    return sorted(found, key=lambda record: order.index(record.key.cell))


def continual(cells: Mapping[str, Cell]) -> list[str]:
    """The names of cells with several tasks."""
    return [name for name, cell in cells.items() if cell.continual]


def write(out: Path, records: Sequence[Record], part: str, cells: Mapping[str, Cell]) -> None:
    """The summary of all records, and the table of the methods that were run on every cell that has any."""
    end, found = "" if part == "validation" else f"-{part}", summary(records)
    write_summary(out / f"summary{end}.json", found)
    if found:
        processors = ", ".join(sorted({record.origin["processor"] for record in records}))
        head = f"PGD accuracy in percent on {part} samples, ± the deviation over seeds. Made on {processors}."
        page = markdown(found, covering(found), continual(cells))
        write_whole(out / f"table{end}.md", f"{head}\n\n{page}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
