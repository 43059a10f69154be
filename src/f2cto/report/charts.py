"""A run's curves and bars as SVG to be set into a page."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from f2cto.records import RunRecord, Score
from f2cto.report.tables import REFERENCE, attack_name, has_spread, method_name, methods, number, power_of_ten

# Drawn in the colours of a light page; in the SVG each becomes a variable the page sets anew for dark screens.
_INK, _GRID, _STRONG, _SOFT = "#475467", "#e4e7ec", "#3538cd", "#a4bcfd"
_VARIABLES = {_INK: "--ink-soft", _GRID: "--line", _STRONG: "--strong", _SOFT: "--soft"}

# Starting from matplotlib's defaults, so that a page does not depend on the style set up on a machine.
_STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a method may be called "$"
    "font.size": 9,
    "text.color": _INK,
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.unicode_minus": True,
    "grid.color": _GRID,
    "xtick.color": _GRID,
    "ytick.color": _GRID,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "legend.frameon": False,
}

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Chart:
    """A drawing with the words around it."""

    title: str
    note: str
    svg: str


@dataclass(frozen=True)
class _Curve:
    """How one column of the history is drawn."""

    column: str
    title: str
    scale: float = 1.0
    log: bool = False
    percent: bool = False


_CURVES = (
    _Curve("objective", "Objective"),
    _Curve("gap", "Stationarity gap", log=True),
    _Curve("robust_accuracy", "Robust accuracy of the proxy", scale=100.0, percent=True),
)


def curves(history: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """A chart for each known column of the history that has anything to show.

    Values that are not finite, or not positive on a logarithmic axis, leave a gap in the line; the note counts them.
    """
    charts = (_curve(history, curve) for curve in _CURVES)
    return [chart for chart in charts if chart is not None]


def accuracy_bars(record: RunRecord) -> Chart | None:
    """Clean and PGD accuracy of each method with their deviations, or None where neither was measured."""
    names = methods(record)
    shown = {
        attack: [record.accuracy[name].get(attack) for name in names]
        for attack in ("clean", "pgd")
        if any(_measured(scores.get(attack)) for scores in record.accuracy.values())
    }
    if not shown:
        return None

    def draw(ax: Axes) -> None:
        # 0.38 and 0.19: two bars of a group touch and leave a quarter of the room to the next group.
        offsets = (-0.19, 0.19) if len(shown) == 2 else (0.0,)
        for (attack, scores), offset, colour in zip(shown.items(), offsets, (_SOFT, _STRONG), strict=False):
            bars = [
                (place + offset, score, 0.45 if name == REFERENCE else 1.0)
                for place, (name, score) in enumerate(zip(names, scores, strict=True))
            ]
            _bars(ax, bars, attack_name(attack), colour)
        ax.set_yticks(range(len(names)), [method_name(name) for name in names])
        ax.set(xlim=(0, 112), xticks=range(0, 101, 20), ylim=(len(names) - 0.4, -0.6))
        ax.xaxis.set_major_formatter(FuncFormatter(_percent))
        ax.grid(visible=False, axis="y")
        ax.tick_params(axis="y", length=0)
        ax.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=2, handlelength=1.0)

    svg = _svg("accuracy", (5.0, 0.8 + 0.47 * len(names)), draw)
    title = " and ".join("clean" if attack == "clean" else f"under {attack_name(attack)}" for attack in shown)
    return Chart(title[0].upper() + title[1:], "Bars: means; lines: one standard deviation.", svg)


def _bars(ax: Axes, bars: Sequence[tuple[float, Score | None, float]], label: str, colour: str) -> None:
    """One attack's bars, each with its value at the end."""
    # An empty bar carries the legend: the first real one may be the pale reference, or missing.
    ax.barh([0], [0], color=colour, label=label)
    for place, score, alpha in bars:
        if score is None or not _measured(score):
            continue
        mean, std = 100 * score.mean, 100 * score.std if has_spread(score) else 0.0
        ax.barh(place, mean, height=0.38, color=colour, alpha=alpha)
        if std > 0:
            ax.errorbar(mean, place, xerr=std, color=_INK, elinewidth=1.0, capsize=2.0)
        ax.text(mean + std + 1.2, place, f"{mean:.1f}", va="center_baseline", fontsize=8)


def _curve(history: Sequence[Mapping[str, Any]], curve: _Curve) -> Chart | None:
    """One column over the iterations, or None where nothing of it can be drawn."""
    iterations = np.array([row.get("iteration", place) for place, row in enumerate(history, 1)], dtype=np.float64)
    values = curve.scale * np.array([row.get(curve.column, math.nan) for row in history], dtype=np.float64)
    drawable = np.isfinite(values) & np.isfinite(iterations) & ((values > 0) | (not curve.log))
    if not drawable.any():
        return None
    values = np.where(drawable, values, math.nan)
    # Axes need room around the values, in floating point too; nobody can tell from the picture.
    heights = np.clip(values, 1e-200 if curve.log else -1e200, 1e200)

    def draw(ax: Axes) -> None:
        # Points only where a line would be invisible or hide how few there are.
        ax.plot(
            iterations, heights, color=_STRONG, linewidth=1.6, marker="o" if len(values) <= 30 else "", markersize=3
        )
        ax.set_xlabel("iteration")
        ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        _scale(ax, curve, heights[drawable])

    return Chart(curve.title, _note(curve, values), _svg(curve.column, (4.4, 2.7), draw))


def _scale(ax: Axes, curve: _Curve, values: Floats) -> None:
    """The vertical axis that suits a curve."""
    if curve.percent:
        ax.set_ylim(-2, 102)
        ax.yaxis.set_major_formatter(FuncFormatter(_percent))
    elif curve.log:
        # Whole decades: an axis inside one decade would have no labelled tick.
        low, high = math.floor(np.log10(values.min())), math.ceil(np.log10(values.max()))
        ax.set_yscale("log")
        ax.set_ylim(10.0**low, 10.0 ** max(high, low + 1))
        ax.yaxis.set_major_locator(LogLocator(numticks=7))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(FuncFormatter(_power))


def _note(curve: _Curve, values: Floats) -> str:
    """Where a curve ends and how much of it cannot be seen."""
    last = float(values[np.isfinite(values)][-1])
    ends = f"{last:.1f} %" if curve.percent else number(last)
    hidden = int(np.isnan(values).sum())
    reason = "not positive and finite" if curve.log else "not finite"
    return f"Last value {ends}." + (f" Left out as {reason}: {hidden} of {len(values)}." if hidden else "")


def _measured(score: Score | None) -> bool:
    return score is not None and math.isfinite(score.mean)


def _percent(value: float, _: float | None) -> str:
    return f"{value:.0f} %"


def _power(value: float, _: float | None) -> str:
    return power_of_ten(round(math.log10(value)))


def _svg(name: str, size: tuple[float, float], draw: Callable[[Axes], None]) -> str:
    """What `draw` draws, as the text of an SVG element that can stand beside others in one page."""
    buffer = io.StringIO()
    with style.context(["default", {**_STYLE, "svg.hashsalt": name}]):
        figure = Figure(size, layout="constrained")
        draw(figure.subplots())
        # Without any of these no metadata block is written: it would name the time and addresses on the web.
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    # A style sheet inside an inline SVG would hold for the whole page.
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, count=1, flags=re.DOTALL)
    return re.sub(r"<[^>]*>", lambda tag: _inline(tag[0], name), text)


def _inline(tag: str, name: str) -> str:
    """A tag with ids of its own in the page, the page's font and colours, and no addresses."""
    tag = re.sub(r' xmlns(:\w+)?="[^"]*"| version="[^"]*"', "", tag)
    tag = re.sub(r'( id="| xlink:href="#|url\(#)', rf"\g<1>{name}-", tag)
    tag = re.sub(r"font-family: [^;\"]*", "font-family: inherit", tag)
    for colour, variable in _VARIABLES.items():
        tag = tag.replace(colour, f"var({variable}, {colour})")
    return tag
