"""The picture of `f2cto bench scale`."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure


def scale_picture(results: Mapping[str, Any]) -> bytes:
    """Seconds an iteration over workers and over samples, per network, as SVG."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, found in results["networks"].items():
        _line(left, found["workers"], f"{name}: 200 / 1 = {found['workers_200_over_1']:.2f}")
        _line(right, found["samples"], f"{name}: exponent {found['samples_exponent']:.2f}")
    left.set(xlabel="workers that share 3,000 samples", ylabel="seconds an iteration", ylim=(1e-3, None))
    right.set(xlabel="samples of 5 workers", ylim=(1e-3, None))
    for axes in (left, right):
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.legend(fontsize=8)
    out = BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def _line(axes: Axes, seconds: Mapping[str, float], label: str) -> None:
    axes.loglog([int(n) for n in seconds], list(seconds.values()), marker="o", label=label)
