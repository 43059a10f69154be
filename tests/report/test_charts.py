from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import replace

import matplotlib as mpl
import pytest

from f2cto.records import RunRecord, Score
from f2cto.report.charts import accuracy_bars, curves


def titles(history: list[dict[str, float]]) -> list[str]:
    return [chart.title for chart in curves(history)]


def rows(column: str, values: list[float]) -> list[dict[str, float]]:
    return [{"iteration": float(t), column: value} for t, value in enumerate(values, 1)]


def line_points(svg: str) -> list[tuple[float, float]]:
    """The points of the curve: the one path that is stroked in the strong colour without being filled."""
    paths: list[str] = re.findall(r'<path d="([^"]*)"[^>]*fill: none; stroke: var\(--strong', svg)
    return [(float(x), float(y)) for x, y in re.findall(r"[ML] (\S+) (\S+)", paths[0])]


def test_a_chart_for_each_column(record: RunRecord) -> None:
    charts = curves(record.history)
    assert [chart.title for chart in charts] == ["Objective", "Stationarity gap", "Robust accuracy of the proxy"]
    assert charts[1].note == "Last value 0.0001."
    assert charts[2].note == "Last value 98.2 %."  # 1 - exp(-4)


def test_a_missing_column_has_no_chart() -> None:
    assert titles(rows("objective", [3.0, 2.0])) == ["Objective"]
    assert titles([]) == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("column", ["objective", "gap", "robust_accuracy"])
def test_a_column_without_numbers_has_no_chart(column: str, value: float) -> None:
    assert titles(rows(column, [value, value])) == []


def test_nothing_positive_has_no_place_on_a_logarithmic_axis() -> None:
    assert titles(rows("gap", [0.0, -1.0])) == []
    assert titles(rows("objective", [0.0, -1.0])) == ["Objective"]


def test_values_that_cannot_be_drawn_leave_a_gap_and_are_counted() -> None:
    (objective,) = curves(rows("objective", [5.0, math.nan, 4.0, 3.0, math.inf]))
    assert objective.note == "Last value 3. Left out as not finite: 2 of 5."
    assert len(line_points(objective.svg)) == 3
    (gap,) = curves(rows("gap", [1.0, 0.0, 0.1, math.inf, 0.01]))
    assert gap.note == "Last value 0.01. Left out as not positive and finite: 2 of 5."
    assert len(line_points(gap.svg)) == 3


def test_the_gap_is_on_a_logarithmic_axis() -> None:
    (chart,) = curves(rows("gap", [1.0, 0.1, 0.01]))
    (_, high), (_, middle), (_, low) = line_points(chart.svg)
    assert low - middle == pytest.approx(middle - high, abs=1e-3)
    assert re.findall(r">(10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)<", chart.svg) == ["10⁻²", "10⁻¹", "10⁰"]


@pytest.mark.parametrize("values", [[0.5], [0.5, 0.5], [5e-324, 1e300], [1e-9, 1.0]], ids=str)
def test_extreme_gaps_have_labelled_ticks(values: list[float]) -> None:
    (chart,) = curves(rows("gap", values))
    assert len(re.findall(r">10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+<", chart.svg)) >= 2


def test_an_objective_that_blew_up_is_drawn() -> None:
    (chart,) = curves(rows("objective", [1.0, -1e308, 1e308]))
    assert chart.note == "Last value 1 × 10³⁰⁸."


def test_text_stays_text_and_colours_are_the_pages(record: RunRecord) -> None:
    for chart in curves(record.history):
        assert ">iteration</text>" in chart.svg
        assert "font-family: inherit" in chart.svg
        assert not re.search(r"(?<!, )#[0-9a-f]{6}", chart.svg)


def test_the_accuracy_bars_name_methods_and_values(record: RunRecord) -> None:
    chart = accuracy_bars(record)
    assert chart is not None
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", chart.svg)
    assert {"F²CTO coreset", "random", "all data", "Clean", "PGD", "91.2", "70.0", "80.0", "60.0"} <= set(texts)
    assert "90.0" not in texts  # FGSM is in the table only


def test_deviations_are_drawn_only_where_there_were_several_draws(record: RunRecord) -> None:
    def strokes(draws: int) -> int:
        chart = accuracy_bars(replace(record, accuracy={"a": {"pgd": Score(0.5, 0.1, draws)}}))
        assert chart is not None
        return chart.svg.count("stroke: var(--ink-soft")

    assert strokes(2) > strokes(1)


def test_without_clean_and_pgd_there_are_no_bars(record: RunRecord) -> None:
    assert accuracy_bars(replace(record, accuracy={})) is None
    assert accuracy_bars(replace(record, accuracy={"a": {"fgsm": Score(0.5, 0.1, 2)}})) is None
    assert accuracy_bars(replace(record, accuracy={"a": {"pgd": Score(math.nan, 0.1, 2)}})) is None


def test_a_method_may_have_any_name(record: RunRecord) -> None:
    name = '<script>$\\frac{$ id="x" #475467</script>'
    chart = accuracy_bars(replace(record, accuracy={name: {"pgd": Score(0.5, 0.1, 2)}}))
    assert chart is not None
    assert "<script" not in chart.svg
    assert '&lt;script&gt;$\\frac{$ id="x" #475467&lt;/script&gt;' in chart.svg


def test_a_style_set_up_elsewhere_changes_nothing_and_is_left_alone(record: RunRecord) -> None:
    plain = [chart.svg for chart in curves(record.history)]
    with mpl.rc_context({"axes.linewidth": 9, "xtick.major.size": 20, "font.size": 30}):
        before = dict(mpl.rcParams)
        assert [chart.svg for chart in curves(record.history)] == plain
        assert dict(mpl.rcParams) == before


def test_neither_torch_nor_pyplot_is_loaded() -> None:
    # A process of its own: in this one other tests may have loaded them.
    check = "import sys, f2cto.report; print(sorted({'torch', 'matplotlib.pyplot'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout  # noqa: S603
    assert loaded.strip() == "[]"
