"""The page: everything it says, put into the template."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from f2cto.records import RunRecord
from f2cto.report import charts, gallery, tables

OPEN_WORKERS = 12  # shown at once; the others wait behind a click
ALIGNED_CLASSES = 20  # up to here classes a worker keeps nothing of hold their place, so that workers can be compared

_STOPS = {
    "iterations": "at its iteration limit",
    "stationary": "at a stationary point",
    "time": "at its time limit",
}


@dataclass(frozen=True)
class Tile:
    """A number to be seen first."""

    label: str
    value: str
    note: str


@dataclass(frozen=True)
class Row:
    """A row of the accuracy table."""

    name: str
    cells: tuple[str, ...]
    best: int | None  # the cell to stress
    reference: bool


def render(record: RunRecord) -> str:
    """The run as the text of one HTML page that needs nothing but itself."""
    workers = gallery.workers(record.kept)
    environment = Environment(loader=PackageLoader("f2cto.report", ""), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    return environment.get_template("page.html").render(
        headline=_headline(record.method),
        sentence=_sentence(record),
        tiles=_tiles(record),
        header=tables.accuracy_header(record),
        rows=_rows(record),
        collapses=tables.collapses(record),
        bars=charts.accuracy_bars(record),
        curves=charts.curves(record.history),
        shown=workers[:OPEN_WORKERS],
        folded=workers[OPEN_WORKERS:],
        pictured=any(sample.picture is not None for sample in record.kept),
        aligned=bool(workers) and len(workers[0].kinds) <= ALIGNED_CLASSES,
        settings=list(_flat(record.settings)),
    )


def _headline(method: str) -> str:
    name = tables.method_name(method)
    return name[:1].upper() + name[1:]


def _sentence(record: RunRecord) -> str:
    """What was done, in one sentence."""
    workers = _count(len({sample.worker for sample in record.kept}), "worker")
    samples = _count(len(record.kept), "sample")
    effort = f"in {_count(record.iterations, 'iteration')} and" if record.iterations else "without iterations in"
    # A method without iterations has no reason to stop worth telling.
    stop = _STOPS.get(record.stopped, f"({record.stopped})") if record.iterations else ""
    end = f"the run stopped {stop}, with " if stop else ""
    exchanged = _count(record.floats_per_worker, "float") if record.floats_per_worker else "nothing"
    return (
        f"{workers} kept {samples} in all, chosen with seed {record.seed} {effort} {_duration(record.seconds)}; "
        f"{end}{exchanged} exchanged per worker."
    )


def _tiles(record: RunRecord) -> list[Tile]:
    """The method's own accuracies, then the size of its coreset and the last gap."""
    scores = record.accuracy.get(record.method, {})
    tiles = [
        Tile(label, f"{tables.percent(scores[attack])} %", _draws(scores[attack].draws))
        for attack, label in (("pgd", "Accuracy under PGD"), ("clean", "Clean accuracy"))
        if attack in scores and math.isfinite(scores[attack].mean)
    ]
    tiles.append(Tile("Samples kept", f"{len(record.kept):,}", f"seed {record.seed}"))
    if record.iterations and math.isfinite(record.gap):
        tiles.append(
            Tile("Stationarity gap", tables.number(record.gap), f"after {_count(record.iterations, 'iteration')}")
        )
    return tiles


def _rows(record: RunRecord) -> list[Row]:
    best, columns = tables.best_coreset(record), tables.attacks(record)
    return [
        Row(
            name=name,
            cells=tuple(cells),
            best=columns.index("pgd") if method == best else None,
            reference=method == tables.REFERENCE,
        )
        for method, (name, *cells) in zip(tables.methods(record), tables.accuracy_rows(record), strict=True)
    ]


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as dotted names with their values as text."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _draws(number: int) -> str:
    return "one draw" if number == 1 else f"mean ± std of {number:,} draws"


def _duration(seconds: float) -> str:
    """Seconds as people say them."""
    if not math.isfinite(seconds) or seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
