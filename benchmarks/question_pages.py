"""The pages and pictures of `benchmarks/questions.py`, made of comparisons alone."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FixedLocator, LogLocator, NullFormatter

from f2cto.records import Score
from f2cto.report.comparison import UPPER, Comparison, Duel, family
from f2cto.report.tables import percent

ATTACKS = {"fgsm": "FGSM", "pgd": "PGD"}
ACCURACY = "accuracy on all tasks, %"
LAST = 0.2  # the share of exchanges over which the gap is averaged
LEAD = "our best − best other"
BEST_OF_BOTH = "p is that of a t-test; both sides are the best by the same figures, so p says less than it seems to."
FEW = 6  # places on an axis that can all have their names


@dataclass(frozen=True)
class Panel:
    """A picture with a line for each method: points are x and the score there."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, Score]]]
    ticks: tuple[str, ...] = ()  # names of x = 0, 1, ... where it is no number
    log_y: bool = False


@dataclass(frozen=True)
class Answer:
    """A page, what it shows, and its figures."""

    page: str
    panels: Sequence[Panel]
    figures: Mapping[str, Any]


@dataclass(frozen=True)
class Exchanges:
    """The stationarity gap after every exchange between master and workers."""

    method: str
    local_rounds: int
    gaps: tuple[float, ...]

    @property
    def late_gap(self) -> float:
        """The mean over the last exchanges: a single one may be far from its neighbours."""
        return statistics.fmean(self.gaps[-max(1, round(LAST * len(self.gaps))) :])


@dataclass(frozen=True)
class Trained:
    """A comparison with what the training of each model cost."""

    comparison: Comparison
    passes: int


def scale(found: Mapping[str, Comparison]) -> Answer:
    """Robust accuracy over the number of workers, which is the label of a run; other labels are only in the table."""
    tables = [_by_method(found, attack) for attack in ATTACKS]
    counted = {label: comparison for label, comparison in found.items() if label.isdecimal()}
    panels = [
        Panel(ATTACKS[attack], "workers", ACCURACY, _lines({float(n): c for n, c in counted.items()}, attack))
        for attack in ATTACKS
    ]
    note = (
        "All workers together keep the same number of samples, however many they are; HAPT as its preset says. "
        f"Differences are paired by seed. {BEST_OF_BOTH}"
    )
    return Answer("\n".join(["# More and more workers\n", *tables, note, ""]), panels, _figures(found))


def communication(comparison: Comparison, exchanged: Sequence[Exchanges]) -> Answer:
    """Robust accuracy and final gap over the number of exchanges."""
    header = ("local rounds", "exchanges a task", "floats a worker", "FGSM %", "PGD %", "final gap", "mean late gap")
    rows = [
        (
            str(e.local_rounds),
            str(len(e.gaps)),
            f"{comparison.costs[e.method].floats:,.0f}",
            *(percent(_score(comparison, e.method, attack)) for attack in ATTACKS),
            f"{e.gaps[-1]:.3g}",
            f"{e.late_gap:.3g}",
        )
        for e in exchanged
    ]
    accuracy = {
        ATTACKS[attack]: [
            (float(len(e.gaps)), s) for e in exchanged if (s := _score(comparison, e.method, attack)) is not None
        ]
        for attack in ATTACKS
    }
    gaps = {
        "final": [(float(len(e.gaps)), Score(e.gaps[-1], 0.0, 1)) for e in exchanged],
        f"mean of the last {LAST:.0%}": [(float(len(e.gaps)), Score(e.late_gap, 0.0, 1)) for e in exchanged],
    }
    panels = [
        Panel("robust accuracy", "exchanges a task", ACCURACY, accuracy),
        Panel("stationarity gap, first task", "exchanges a task", "squared gap, Eq. (16)", gaps, log_y=True),
    ]
    note = (
        "Floats are sums over all tasks. The gap is that of the first task and seed; it drops whenever the two models "
        "are synchronised (docs/settings.md), so gaps of runs that end in such a round are no measure of the others'."
    )
    page = f"# Local rounds between exchanges\n\n{_markdown(header, rows)}\n\n{note}\n"
    return Answer(page, panels, _figures({"all": comparison}) | {"exchanges": [asdict(e) for e in exchanged]})


def regimes(found: Mapping[str, Comparison]) -> Answer:
    """Robust accuracy of every method in every regime, and whether ours lead."""
    methods = sorted({method for comparison in found.values() for method in comparison.methods})
    parts = ["# Where must it help that workers know about each other?\n"]
    for attack, name in ATTACKS.items():
        scores = {label: [_score(c, method, attack) for method in methods] for label, c in found.items()}
        rows = [(label, *map(percent, own), _seeds(own), lead(found[label], attack)) for label, own in scores.items()]
        table = _markdown(("regime", *methods, "seeds", LEAD), rows)
        parts.append(f"## {name} {ACCURACY}\n\n{table}\n")
    parts.append(f"Differences are paired by seed. {BEST_OF_BOTH}\n")
    placed = {float(place): comparison for place, comparison in enumerate(found.values())}
    panels = [Panel(ATTACKS[a], "", ACCURACY, _lines(placed, a), ticks=tuple(found)) for a in ATTACKS]
    leads = {label: {a: asdict(duel) for a in ATTACKS if (duel := best_duel(c, a))} for label, c in found.items()}
    return Answer("\n".join(parts), panels, _figures(found) | {"leads": leads})


def budget(found: Mapping[str, Trained]) -> Answer:
    """Robust accuracy over all samples that went through the network, in selection and in training."""
    rows, points = [], dict[str, dict[str, list[tuple[float, Score]]]]()
    for label, trained in found.items():
        for method, cost in trained.comparison.costs.items():
            total = cost.passes + trained.passes
            scores = {attack: _score(trained.comparison, method, attack) for attack in ATTACKS}
            amounts = (f"{amount:,.0f}" for amount in (cost.passes, trained.passes, total))
            rows.append((label, method, *amounts, f"{cost.seconds:.1f}", *map(percent, scores.values())))
            for attack, score in scores.items():
                if score is not None:
                    points.setdefault(attack, {}).setdefault(method, []).append((total, score))
    header = ("kept", "method", "selection", "training", "both", "seconds of selection", "FGSM %", "PGD %")
    note = (
        "Selection, training and both count samples passed through the network, forwards or backwards. Every model is "
        "trained for the same number of steps, so a smaller coreset saves memory, and work only below one batch."
    )
    page = f"# Accuracy and all its cost\n\n{_markdown(header, rows)}\n\n{note}\n"
    panels = [Panel(ATTACKS[a], "samples through the network", ACCURACY, lines) for a, lines in points.items()]
    sizes = {100 * float(label): t.comparison for label, t in found.items() if _is_share(label)}
    panels += [Panel(ATTACKS[a], "kept, %", ACCURACY, _lines(sizes, a)) for a in points]
    costs = {label: {"training_passes": trained.passes} for label, trained in found.items()}
    return Answer(page, panels, _figures({label: t.comparison for label, t in found.items()}) | {"costs": costs})


def _is_share(label: str) -> bool:
    return label.replace(".", "", 1).isdecimal()


def best_duel(comparison: Comparison, attack: str) -> Duel | None:
    """The best of our methods against the best of the others."""
    duels = [duel for duel in comparison.duels if duel.attack == attack]
    return max(duels, key=lambda duel: comparison.cells[duel.method][attack].overall.mean, default=None)


def lead(comparison: Comparison, attack: str) -> str:
    """That difference in percentage points, and who is meant."""
    duel = best_duel(comparison, attack)
    if duel is None or duel.difference is None:
        return "–"
    spread = f" ± {100 * duel.difference.std:.1f}" if duel.difference.draws > 1 else ""
    p = "" if duel.t_test is None else f", p = {duel.t_test:.2g}"
    return f"{100 * duel.difference.mean:+.1f}{spread} ({duel.method} − {duel.baseline}{p})"


def picture(panels: Sequence[Panel]) -> bytes:
    """All panels, two in a row, as SVG; bars are deviations over seeds, a method has one colour in all panels."""
    names = sorted({name for panel in panels for name in panel.lines})
    colours = {name: f"C{i}" for i, name in enumerate(names)}
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    with mpl.rc_context({"svg.hashsalt": "f2cto", "font.size": 9}):
        figure = Figure(figsize=(5.2 * columns, 3.8 * rows), layout="constrained")
        for number, panel in enumerate(panels, start=1):
            _draw(figure.add_subplot(rows, columns, number), panel, colours)
        out = BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def _draw(axes: Axes, panel: Panel, colours: Mapping[str, str]) -> None:
    scale = 1.0 if panel.log_y else 100.0
    for name, points in sorted(panel.lines.items()):
        style = "*" if family(name) == UPPER else "o:" if panel.ticks else "o-"
        values = [(x, scale * score.mean, scale * score.std) for x, score in points]
        xs, means, deviations = zip(*values, strict=True)
        axes.errorbar(
            xs, means, deviations, fmt=style, capsize=2, markersize=4, linewidth=1, label=name, color=colours[name]
        )
    axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
    if panel.log_y:
        axes.set_yscale("log")
    if panel.ticks:
        axes.set_xticks(range(len(panel.ticks)), panel.ticks, rotation=15)
    else:
        _scale_x(axes, sorted({x for points in panel.lines.values() for x, _ in points}))
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=7, frameon=False)


def _scale_x(axes: Axes, places: Sequence[float]) -> None:
    """Logarithmic where places lie far apart; named are the places themselves if they are few, else 1, 2 and 5."""
    if not places or places[-1] <= 5 * places[0]:
        return
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(places) if len(places) <= FEW else LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _by_method(found: Mapping[str, Comparison], attack: str) -> str:
    methods = dict.fromkeys(method for comparison in found.values() for method in comparison.methods)
    scores = {method: [_score(c, method, attack) for c in found.values()] for method in methods}
    rows = [(method, *map(percent, own), _seeds(own)) for method, own in scores.items()]
    rows.append((LEAD, *(lead(c, attack) for c in found.values()), ""))
    return f"## {ATTACKS[attack]} {ACCURACY}\n\n{_markdown(('method', *found, 'seeds'), rows)}\n"


def _seeds(scores: Iterable[Score | None]) -> str:
    """On how many seeds the scores rest."""
    counts = {score.draws for score in scores if score is not None}
    return " to ".join(str(count) for count in sorted({min(counts), max(counts)})) if counts else "–"


def _lines(found: Mapping[float, Comparison], attack: str) -> dict[str, list[tuple[float, Score]]]:
    lines: dict[str, list[tuple[float, Score]]] = {}
    for x, comparison in sorted(found.items(), key=lambda item: item[0]):
        for method in sorted(comparison.methods):
            if (score := _score(comparison, method, attack)) is not None:
                lines.setdefault(method, []).append((x, score))
    return lines


def _score(comparison: Comparison, method: str, attack: str) -> Score | None:
    cell = comparison.cells.get(method, {}).get(attack)
    return None if cell is None else cell.overall


def _figures(found: Mapping[str, Comparison]) -> dict[str, Any]:
    """Scores and costs as plain values."""
    return {
        "runs": {
            label: {
                method: {
                    **{attack: asdict(cell.overall) for attack, cell in comparison.cells[method].items()},
                    "cost": asdict(comparison.costs[method]) if method in comparison.costs else None,
                }
                for method in comparison.methods
            }
            for label, comparison in found.items()
        }
    }


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, rule, *rows])
