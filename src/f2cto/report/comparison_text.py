"""A comparison as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from f2cto.records import Score
from f2cto.report.comparison import Cell, Comparison, Duel, is_bound
from f2cto.report.comparison_words import OURS_MARK, findings, introduction, method_name, notes
from f2cto.report.tables import COLLAPSED, attack_name, percent

_LATEX = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "–": "--",
    "“": "``",
    "”": "''",
    "’": "'",
    OURS_MARK: r"$^\dagger$",
    COLLAPSED: r"$^\ddagger$",
}


@dataclass(frozen=True)
class Measure:
    """One thing measured of every method under every attack."""

    column: str  # its name in the CSV
    title: str
    of: Callable[[Cell], Score | None]
    better: Callable[[list[float]], float] = max


MEASURES = (
    Measure("all_tasks", "Accuracy on all tasks, %", lambda cell: cell.overall),
    Measure("old_tasks", "Accuracy on old tasks (all but the last), %", lambda cell: cell.old),
    Measure("worst_class", "Accuracy on the worst class of any task, %", lambda cell: cell.worst_class),
    Measure("forgetting", "Forgetting (less is better), percentage points", lambda cell: cell.forgetting, min),
)


@dataclass(frozen=True)
class Text:
    """What a table's cell says, and whether it is the best of its column."""

    words: str
    best: bool = False


@dataclass(frozen=True)
class Table:
    """A table before it is Markdown or LaTeX; a row's first cell is the name of a method."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Text, ...], ...]


def markdown(comparison: Comparison) -> str:
    """The comparison as a page: accuracies and what tests say of them, then the other measures, then costs."""
    first, *others = tables(comparison)
    parts = [introduction(comparison), _markdown_table(first)]
    lines = [line for head, said in findings(comparison) for line in (f"- {head}:", *(f"  - {one}." for one in said))]
    parts += ["\n".join(lines)] if lines else []
    parts += notes(comparison) + [_markdown_table(table) for table in others]
    return "\n\n".join(parts) + "\n"


def latex(comparison: Comparison) -> str:
    """The same as LaTeX that needs no packages, a `tabular` for each table."""
    first, *others = tables(comparison)
    found = ["; ".join([head, *said]) + "." for head, said in findings(comparison)]
    intro, *words = (_escaped(text) for text in [introduction(comparison), *found, *notes(comparison)])
    return "\n\n".join([intro, _latex_table(first), *words, *map(_latex_table, others)]) + "\n"


def csv_text(comparison: Comparison) -> str:
    """One row a method and attack with all that is known, as fractions in [0, 1] and with all their digits.

    Deviations are left empty where there is one seed only.
    """
    duels = {(duel.method, duel.attack): duel for duel in comparison.duels}
    rows = [
        _csv_row(comparison, method, attack, duels.get((method, attack)))
        for method in comparison.methods
        for attack in comparison.attacks
        if attack in comparison.cells[method]
    ]
    out = io.StringIO()
    names = list(rows[0]) if rows else []
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def tables(comparison: Comparison) -> list[Table]:
    """A table for each measure there is anything of, then one of costs."""
    cells = [cell for of in comparison.cells.values() for cell in of.values()]
    shown = [m for m in MEASURES if m is MEASURES[0] or any(m.of(cell) is not None for cell in cells)]
    return [*(_measured(comparison, measure) for measure in shown), _costs(comparison)]


def _measured(comparison: Comparison, measure: Measure) -> Table:
    columns = [_column(comparison, measure, attack) for attack in comparison.attacks]
    return Table(
        measure.title,
        ("Method", *(attack_name(attack) for attack in comparison.attacks)),
        tuple(
            (Text(method_name(comparison, method)), *(column[method] for column in columns))
            for method in comparison.methods
        ),
    )


def _column(comparison: Comparison, measure: Measure, attack: str) -> dict[str, Text]:
    """Each method's value under an attack, the best marked as far as the shown digits tell."""
    scores = {
        method: measure.of(of[attack]) if attack in (of := comparison.cells[method]) else None
        for method in comparison.methods
    }
    shown = {
        method: round(100 * score.mean, 1)
        for method, score in scores.items()
        if score is not None and not is_bound(method)
    }
    # One value alone is not the best of anything.
    best = measure.better(list(shown.values())) if len(shown) > 1 else None
    return {
        method: Text(percent(score), best=method in shown and shown[method] == best) for method, score in scores.items()
    }


def _costs(comparison: Comparison) -> Table:
    rows = [
        (method, (f"{cost.seconds:,.1f}", _amount(cost.passes), _amount(cost.floats), str(cost.seeds)))
        for method, cost in comparison.costs.items()
    ]
    return Table(
        "Cost of selecting all coresets of a run, mean over seeds",
        ("Method", "Seconds", "Samples through the network", "Floats per worker", "Seeds"),
        tuple((Text(method_name(comparison, method)), *map(Text, cells)) for method, cells in rows),
    )


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) or value >= 100 else f"{value:,.1f}"


def _csv_row(comparison: Comparison, method: str, attack: str, duel: Duel | None) -> Mapping[str, object]:
    cell, cost = comparison.cells[method][attack], comparison.costs[method]
    kind = "ours" if method in comparison.ours else "bound" if is_bound(method) else "baseline"
    row: dict[str, object] = {"method": method, "kind": kind, "attack": attack, "seeds": len(cell.seeds)}
    for measure in MEASURES:
        row |= _csv_score(measure.column, measure.of(cell))
    row |= {"seconds": cost.seconds, "passes": cost.passes, "floats": cost.floats}
    row |= {"best_baseline": duel.baseline if duel else None}
    row |= {"common_seeds": (duel.difference.draws if duel.difference else 0) if duel else None}
    row |= _csv_score("difference", duel.difference if duel else None)
    row |= {"t_test_p": duel.t_test if duel else None, "wilcoxon_p": duel.wilcoxon if duel else None}
    return row | {"collapsed": len(cell.collapsed)}


def _csv_score(name: str, score: Score | None) -> dict[str, float | None]:
    spread = score.std if score and score.draws > 1 else None
    return {f"{name}_mean": score.mean if score else None, f"{name}_std": spread}


def _markdown_table(table: Table) -> str:
    """The table under its title, padded so that it can be read as it is."""
    lines = [[name.replace("|", "\\|") for name in table.header]]
    lines += [[(f"**{t.words}**" if t.best else t.words).replace("|", "\\|") for t in row] for row in table.rows]
    widths = [max(3, *(len(line[place]) for line in lines)) for place in range(len(table.header))]
    padded = [
        [line[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True)] for line in lines
    ]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return f"### {table.title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in [padded[0], rule, *padded[1:]])


def _latex_table(table: Table) -> str:
    header = [_escaped(name) for name in table.header]
    cells = [[rf"\textbf{{{_escaped(t.words)}}}" if t.best else _escaped(t.words) for t in row] for row in table.rows]
    head, *body = (" & ".join(line) + r" \\" for line in [header, *cells])
    begin = rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}"
    return "\n".join([f"% {table.title}", begin, r"\hline", head, r"\hline", *body, r"\hline", r"\end{tabular}"])


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)
