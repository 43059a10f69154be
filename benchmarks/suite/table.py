"""Cells by methods: PGD accuracy in percent, and how far each method is from the best of each cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from benchmarks.suite.records import Entry, Summary

Line = tuple[str, Callable[[str], str]]  # a row of the table: its name, and what stands under a method


def common(cells: Summary, methods: Sequence[str]) -> list[str]:
    """The cells on which all methods were run, on as many seeds."""
    return [
        cell for cell, found in cells.items() if len({found[m]["seeds"] if m in found else 0 for m in methods}) == 1
    ]


def covering(cells: Summary) -> list[str]:
    """The methods that were run on every cell."""
    first, *others = cells.values()
    return [method for method in first if all(method in found for found in others)]


def markdown(cells: Summary, methods: Sequence[str], continual: Sequence[str] = ()) -> str:
    """The table. Means and regrets are over the cells that all methods share; * marks learners that only guess."""
    shared = common(cells, methods)
    shown = [(cell, lambda m, c=cell: _shown(cells[c].get(m))) for cell in cells]
    single, several = ([c for c in shared if (c in continual) is wanted] for wanted in (False, True))
    lines: list[Line] = [
        *shown,
        *((f"mean of {len(some)} {what}", _mean(cells, some)) for what, some in _groups(shared, single, several)),
        *(_verdicts(cells, shared, methods) if shared else []),
    ]
    head = ["| PGD % | " + " | ".join(methods) + " |", "|---" * (len(methods) + 1) + "|"]
    body = [f"| {name} | " + " | ".join(value(method) for method in methods) + " |" for name, value in lines]
    return "\n".join([*head, *body, *_notes(cells, shared, methods)])


def _groups(shared: list[str], single: list[str], several: list[str]) -> list[tuple[str, list[str]]]:
    """The groups of cells that have a mean of their own."""
    parts = [("single tasks", single), ("continual", several)] if single and several else []
    return [(what, some) for what, some in [("cells", shared), *parts] if some]


def _verdicts(cells: Summary, shared: Sequence[str], methods: Sequence[str]) -> list[Line]:
    best = {cell: max(cells[cell][m]["mean"] for m in methods) for cell in shared}
    regrets = {m: [best[cell] - cells[cell][m]["mean"] for cell in shared] for m in methods}
    return [
        ("mean regret", lambda m: f"{fmean(regrets[m]):.1f}"),
        ("worst regret", lambda m: f"{max(regrets[m]):.1f}"),
        ("wins", lambda m: str(regrets[m].count(0))),
        ("passes a sample", lambda m: f"{fmean(cells[c][m]['passes'] for c in shared):,.0f}"),
        ("seconds of selection", lambda m: f"{fmean(cells[c][m]['seconds'] for c in shared):.1f}"),
    ]


def _mean(cells: Summary, some: Sequence[str]) -> Callable[[str], str]:
    return lambda method: f"{fmean(cells[cell][method]['mean'] for cell in some):.1f}"


def _shown(found: Entry | None) -> str:
    if found is None:
        return "–"
    spread = f" ± {found['std']:.1f}" if found["seeds"] > 1 else ""
    return f"{found['mean']:.1f}{spread}" + "*" * (found["collapsed"] > 0)


def _notes(cells: Summary, shared: Sequence[str], methods: Sequence[str]) -> list[str]:
    """What a reader must know of this table."""
    apart = [cell for cell in cells if cell not in shared]
    fell = [f"{m} on {c}, {e['collapsed']} of {e['seeds']} seeds" for c in cells for m, e in _of(cells, c, methods)]
    notes = [f"Not in means and regrets, for want of results: {', '.join(apart)}."] if apart else []
    notes += [f"* The learner only guesses: {'; '.join(fell)}."] if fell else []
    return ["", *notes] if notes else []


def _of(cells: Summary, cell: str, methods: Sequence[str]) -> list[tuple[str, Entry]]:
    return [(m, e) for m, e in cells[cell].items() if m in methods and e["collapsed"]]
