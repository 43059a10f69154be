"""A comparison as a picture: a dot and its deviation for each method and attack."""

from __future__ import annotations

import io
from collections.abc import Sequence

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from f2cto.report.comparison import Comparison, is_bound
from f2cto.report.comparison_words import method_name
from f2cto.report.tables import attack_name, has_spread

# Okabe and Ito's colours, which can be told apart with any colour vision; further attacks begin anew.
_COLOURS = ("#0072b2", "#e69f00", "#d55e00", "#009e73", "#cc79a7", "#56b4e9")
_INK = "#475467"

# Starting from matplotlib's defaults, so that the picture does not depend on the style set up on a machine.
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "comparison",  # the same comparison gives the same text
    "text.parse_math": False,  # a method may be called "$"
    "font.size": 9,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def picture(comparison: Comparison) -> str:
    """Mean accuracy on all tasks with one standard deviation over seeds, as the text of an SVG file.

    Methods stand in the order of the tables; the dots of bounds are hollow.
    """
    buffer = io.StringIO()
    with style.context(["default", _STYLE]):
        rows, columns = len(comparison.methods), len(comparison.attacks)
        figure = Figure((7.0, 0.9 + max(0.3, 0.13 * columns) * rows), layout="constrained")
        axes = figure.subplots()
        _draw(axes, comparison)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=max(1, columns))
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return buffer.getvalue()


def _draw(axes: Axes, comparison: Comparison) -> None:
    methods = comparison.methods
    for number, attack in enumerate(comparison.attacks):
        colour = _COLOURS[number % len(_COLOURS)]
        # An empty series carries the legend: the first dot may be a hollow one, or missing.
        axes.plot([], [], marker="o", linestyle="", markersize=4, color=colour, label=attack_name(attack))
        for place, method in enumerate(methods):
            if cell := comparison.cells[method].get(attack):
                at = place + _offset(number, comparison.attacks)
                score, fill = cell.overall, "white" if is_bound(method) else colour
                spread = 100 * score.std if has_spread(score) else None
                axes.errorbar(
                    100 * score.mean, at, xerr=spread, color=colour, fmt="o", markersize=4, mfc=fill, capsize=2
                )
    for line in range(1, len(methods)):
        axes.axhline(line - 0.5, color="#e4e7ec", linewidth=0.8, zorder=0)
    axes.set_yticks(range(len(methods)), [method_name(comparison, method) for method in methods])
    axes.set(ylim=(len(methods) - 0.5, -0.5), xlabel="accuracy on all tasks, % (dot: mean, line: ± one deviation)")
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=True, axis="x", color="#e4e7ec")
    axes.set_axisbelow(True)


def _offset(number: int, attacks: Sequence[str]) -> float:
    """Where in a method's row an attack's dot stands: the attacks share seven tenths of it."""
    return 0.7 * ((number + 0.5) / len(attacks) - 0.5)
