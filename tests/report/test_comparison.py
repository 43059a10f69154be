from __future__ import annotations

import csv
import io
import itertools
import math
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from scipy import stats

from f2cto.records import Row, Score
from f2cto.report.comparison import compare, t_test, wilcoxon
from f2cto.report.comparison_plot import picture
from f2cto.report.comparison_text import csv_text, latex, markdown, tables

# Accuracies on tasks 1 and 2, seed by seed.
OURS = ((0.50, 0.70), (0.54, 0.70), (0.58, 0.70))  # means 0.60, 0.62, 0.64
HERDING = ((0.50, 0.68), (0.50, 0.70), (0.50, 0.72))  # means 0.59, 0.60, 0.61: below ours by 0.01, 0.02, 0.03
RANDOM = ((0.30, 0.50), (0.30, 0.50), (0.30, 0.50))


def rows_of(method: str, table: Sequence[Sequence[float]], attack: str = "pgd", seeds: Sequence[int] = ()) -> list[Row]:
    return [
        Row(
            method=method,
            seed=seed,
            task=task,
            attack=attack,
            accuracy=accuracy,
            seconds=0.0 if task == len(accuracies) else 1.0 + seed,
            floats=0 if task == len(accuracies) else 1000,
            passes=0 if task == len(accuracies) else 10 * (1 + seed),
            worst_class=accuracy - 0.2,
            forgetting=None if task == len(accuracies) else 0.1 * (1 + seed),
        )
        for seed, accuracies in zip(seeds or range(len(table)), table, strict=True)
        for task, accuracy in enumerate(accuracies, 1)
    ]


@pytest.fixture
def rows() -> list[Row]:
    bounds = rows_of("none", ((0.0, 0.8),) * 3) + rows_of("all", ((0.9, 0.9),) * 3)
    return bounds + rows_of("random", RANDOM) + rows_of("f2cto", OURS) + rows_of("herding", HERDING)


@dataclass
class Near:
    """Equal to scores that differ by rounding errors only."""

    mean: float
    std: float
    draws: int

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Score)
            and math.isclose(other.mean, self.mean, abs_tol=1e-12)
            and math.isclose(other.std, self.std, abs_tol=1e-12)
            and other.draws == self.draws
        )

    __hash__ = None  # type: ignore[assignment]  # equal to many scores


def cells_of(text: str, method: str, title: str = "Accuracy on all tasks") -> list[str]:
    """What a Markdown table says of a method."""
    table = text[text.index(f"### {title}") :]
    (line,) = re.findall(rf"^\| {re.escape(method)} +\|(.*)\|$", table.split("\n###")[0], flags=re.MULTILINE)
    return [cell.strip() for cell in line.split("|")]


def parsed(text: str) -> Mapping[tuple[str, str], Mapping[str, str]]:
    return {(row["method"], row["attack"]): row for row in csv.DictReader(io.StringIO(text))}


def test_means_and_deviations_over_seeds(rows: list[Row]) -> None:
    cell = compare(rows).cells["f2cto"]["pgd"]
    assert cell.seeds == (0, 1, 2)
    assert cell.overall == Near(0.62, 0.02, 3)  # of 0.60, 0.62, 0.64
    assert cell.old == Near(0.54, 0.04, 3)  # of 0.50, 0.54, 0.58
    assert cell.worst_class == Near(0.34, 0.04, 3)  # of 0.30, 0.34, 0.38: task 1 is the worse each time
    assert cell.forgetting == Near(0.2, 0.1, 3)  # of 0.1, 0.2, 0.3


def test_the_worst_class_is_that_of_the_worst_task() -> None:
    assert compare(rows_of("a", [(0.9, 0.5, 0.7)])).cells["a"]["pgd"].worst_class == Near(0.3, 0.0, 1)


def test_old_tasks_are_all_but_the_last_whatever_the_order_of_rows() -> None:
    rows = rows_of("a", [(0.2, 0.4, 0.9)])
    for order in itertools.permutations(rows):
        assert compare(order).cells["a"]["pgd"].old == Near(0.3, 0.0, 1)


def test_costs_are_summed_over_tasks_and_counted_once_whatever_the_number_of_attacks(rows: list[Row]) -> None:
    three = rows_of("f2cto:local_rounds=5", [(0.5, 0.5, 0.5)] * 2)  # two tasks with costs
    for more in ([], [replace(row, attack="clean") for row in three]):
        cost = compare(three + more).costs["f2cto:local_rounds=5"]
        # Seed 0: 2 × 1 s, 2 × 10 passes; seed 1: twice that.
        assert (cost.seeds, cost.seconds, cost.passes, cost.floats) == (2, 3.0, 30.0, 2000.0)
    assert compare(rows).costs["herding"].seconds == 2.0


def test_the_duel_by_hand(rows: list[Row]) -> None:
    comparison = compare(rows)
    assert comparison.best_baseline == {"pgd": "herding"}
    (duel,) = comparison.duels
    assert (duel.method, duel.baseline) == ("f2cto", "herding")
    assert duel.difference == Near(0.02, 0.01, 3)
    # t = 0.02 / (0.01 / √3) = √12; with two degrees of freedom p = 1 - t / √(2 + t²).
    assert duel.t_test == pytest.approx(1 - math.sqrt(12 / 14), rel=1e-9)
    assert duel.wilcoxon == 2 / 8  # of eight patterns of signs all plus and all minus are as far out


def test_bounds_and_our_variants_are_no_baselines(rows: list[Row]) -> None:
    better = rows_of("f2cto:local_rounds=5", ((0.99, 0.99),) * 3) + rows_of("f2cto+p", ((0.98, 0.98),) * 3)
    comparison = compare(rows + better)
    assert comparison.best_baseline == {"pgd": "herding"}
    assert [duel.method for duel in comparison.duels] == ["f2cto:local_rounds=5", "f2cto+p", "f2cto"]
    theirs = compare(rows + better, ours=("herding",))
    assert theirs.best_baseline == {"pgd": "f2cto:local_rounds=5"}
    assert [duel.method for duel in theirs.duels] == ["herding"]


def test_a_family_is_the_whole_label_up_to_the_colon(rows: list[Row]) -> None:
    comparison = compare([*rows, *rows_of("f2cto-other", OURS), *rows_of("herding:f2cto=1", HERDING)], ours=("f2cto",))
    assert comparison.ours == {"f2cto"}


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_p_values_agree_with_scipys(count: int) -> None:
    rng = np.random.default_rng(count)
    for shift in (0.0, 0.5, -2.0):
        ours, theirs = rng.normal(shift, 1, count), rng.normal(0, 1, count)
        assert t_test(ours - theirs) == pytest.approx(stats.ttest_rel(ours, theirs).pvalue, rel=1e-9)
        assert wilcoxon(ours - theirs) == pytest.approx(stats.wilcoxon(ours, theirs, method="exact").pvalue, rel=1e-9)


def test_two_seeds_by_hand() -> None:
    # With one degree of freedom p = 1 - 2 atan(t) / π; here t = 2 / (√2 / √2) = 2.
    assert t_test(np.array([1.0, 3.0])) == pytest.approx(1 - 2 * math.atan(2) / math.pi, rel=1e-9)
    assert wilcoxon(np.array([1.0, 3.0])) == 0.5
    assert t_test(np.array([1.0])) is None
    assert wilcoxon(np.array([1.0])) is None


@pytest.mark.parametrize(
    "values", [(1, 1, -1), (1, 1, 2, -2, 3), (0, 1, 2, 2), (-1, -1, -1, 2, 2, 5), (0, 0, 3)], ids=str
)
def test_wilcoxon_with_ties_is_the_share_of_sign_patterns_as_far_out(values: Sequence[float]) -> None:
    moved = [value for value in values if value]
    # A rank is how many are smaller, plus half of the others that are as large, plus one.
    ranks = [1 + sum(abs(b) < abs(a) for b in moved) + sum(abs(b) == abs(a) for b in moved) / 2 - 0.5 for a in moved]

    def distance(signs: Sequence[float]) -> float:
        return abs(sum(rank * sign for rank, sign in zip(ranks, signs, strict=True)))

    patterns = list(itertools.product((-1, 1), repeat=len(moved)))
    seen = distance([math.copysign(1, value) for value in moved])
    expected = sum(distance(pattern) >= seen for pattern in patterns) / len(patterns)
    assert wilcoxon(np.array(values, dtype=float)) == pytest.approx(expected)


def test_the_same_difference_on_every_seed_has_no_t_test() -> None:
    # In floating point these differences are not the same: 0.3 - 0.2 != 0.4 - 0.3.
    rows = rows_of("f2cto", [(0.3,), (0.4,), (0.8,)]) + rows_of("herding", [(0.2,), (0.3,), (0.7,)])
    comparison = compare(rows)
    (duel,) = comparison.duels
    assert duel.difference == Near(0.1, 0.0, 3)
    assert duel.t_test is None
    assert duel.wilcoxon == 0.25
    assert "10.0 ± 0.0 points above it on 3 common seeds (the same difference on each, so no t-test; " in markdown(
        comparison
    )


def test_no_difference_at_all_is_level() -> None:
    rows = rows_of("f2cto", HERDING) + rows_of("herding", HERDING)
    (duel,) = compare(rows).duels
    assert (duel.t_test, duel.wilcoxon) == (None, 1.0)
    assert "f2cto is level with it on 3 common seeds" in markdown(compare(rows))


def test_a_duel_is_on_the_seeds_in_common() -> None:
    rows = rows_of("f2cto", [*OURS, (0.0, 0.0)]) + rows_of("herding", [*HERDING, (1.0, 1.0)], seeds=(0, 1, 2, 7))
    (duel,) = compare(rows).duels
    assert duel.difference == Near(0.02, 0.01, 3)
    assert compare(rows).cells["f2cto"]["pgd"].overall.draws == 4
    assert "most have 4 (seeds 0, 1, 2, 3), but herding has 4 (seeds 0, 1, 2, 7) under PGD." in markdown(
        compare([*rows, *rows_of("random", [*RANDOM, (0.1, 0.1)])])
    )


def test_without_common_seeds_nothing_is_tested() -> None:
    comparison = compare(rows_of("f2cto", OURS) + rows_of("herding", HERDING, seeds=(3, 4, 5)))
    (duel,) = comparison.duels
    assert (duel.difference, duel.t_test, duel.wilcoxon) == (None, None, None)
    assert "f2cto has no seed in common with it" in markdown(comparison)
    assert "Wilcoxon" not in markdown(comparison)


def test_a_method_that_failed_on_a_seed_is_noted() -> None:
    rows = rows_of("f2cto", OURS) + rows_of("herding", HERDING) + rows_of("random", RANDOM[:2], seeds=(0, 2))
    text = markdown(compare(rows))
    assert cells_of(text, "random") == ["40.0 ± 0.0"]
    note = "Not all cells rest on the same seeds: most have 3 (seeds 0, 1, 2), but random has 2 (seeds 0, 2) under PGD."
    assert note in text
    assert note in latex(compare(rows))
    assert "Mean ± standard deviation over seeds;" in text


def test_equal_seeds_need_no_note(rows: list[Row]) -> None:
    text = markdown(compare(rows))
    assert "same seeds" not in text
    assert "Left out" not in text
    assert text.startswith("Mean ± standard deviation over 3 seeds;")


@pytest.mark.parametrize("value", [None, math.nan])
def test_a_seed_without_all_tasks_is_left_out_and_named(value: float | None) -> None:
    rows = rows_of("f2cto", OURS) + rows_of("herding", HERDING)
    rows[-1:] = [] if value is None else [replace(rows[-1], accuracy=value)]
    comparison = compare(rows)
    assert comparison.cells["herding"]["pgd"].overall == Near(0.595, 0.01 / math.sqrt(2), 2)
    assert comparison.left_out == ("herding, seed 2, pgd: no accuracy on task 2.",)
    assert comparison.left_out[0] in markdown(comparison)
    assert comparison.duels[0].difference == Near(0.015, 0.01 / math.sqrt(2), 2)


def test_a_method_left_out_altogether_still_stands_in_the_tables() -> None:
    broken = [row for row in rows_of("dtzo", OURS) if row.task == 1]
    comparison = compare(rows_of("f2cto", OURS) + broken)
    assert comparison.methods == ("f2cto", "dtzo")
    assert "dtzo" not in comparison.costs
    assert comparison.best_baseline == {}
    assert cells_of(markdown(comparison), "dtzo") == ["–"]
    assert ">dtzo</text>" in picture(comparison)
    assert [key[0] for key in parsed(csv_text(comparison))] == ["f2cto"]


def test_missing_attacks_leave_empty_cells_and_are_noted(rows: list[Row]) -> None:
    some = rows_of("f2cto", OURS[:1], "autoattack") + rows_of("random", RANDOM[:1], "autoattack")
    comparison = compare(rows + some)
    assert comparison.best_baseline == {"pgd": "herding", "autoattack": "random"}
    text = markdown(comparison)
    assert cells_of(text, "herding") == ["60.0 ± 1.0", "–"]
    assert cells_of(text, "f2cto †") == ["**62.0 ± 2.0**", "**60.0**"]
    assert "f2cto is 20.0 points above it on 1 common seed (too few to test)" in text
    assert "f2cto, random have 1 (seed 0) under AutoAttack" in text
    assert "all, herding, none have none under AutoAttack" in text


def test_an_attack_on_fewer_seeds_is_noted_once_for_all() -> None:
    many = [row for attack in ("clean", "pgd") for name in ("a", "b") for row in rows_of(name, OURS, attack)]
    fewer = [row for name in ("a", "b") for row in rows_of(name, OURS[:1], "autoattack")]
    assert "but every method has 1 (seed 0) under AutoAttack." in markdown(compare(many + fewer))


def test_one_seed_has_neither_deviations_nor_tests() -> None:
    comparison = compare(rows_of("f2cto", OURS[:1]) + rows_of("herding", HERDING[:1]))
    text = markdown(comparison)
    assert text.startswith("One seed;")
    assert "±" not in text
    assert "1.0 points above it on 1 common seed (too few to test)" in text
    row = parsed(csv_text(comparison))["f2cto", "pgd"]
    assert (row["all_tasks_std"], row["difference_std"], row["t_test_p"], row["wilcoxon_p"]) == ("", "", "", "")
    assert picture(comparison)


def test_a_single_task_has_no_old_ones() -> None:
    comparison = compare(rows_of("f2cto", [(0.5,), (0.6,)]))
    cell = comparison.cells["f2cto"]["pgd"]
    assert (cell.old, cell.forgetting) == (None, None)
    assert [table.title for table in tables(comparison)] == [
        "Accuracy on all tasks, %",
        "Accuracy on the worst class of any task, %",
        "Cost of selecting all coresets of a run, mean over seeds",
    ]
    assert parsed(csv_text(comparison))["f2cto", "pgd"]["old_tasks_mean"] == ""


def test_methods_are_sorted_by_pgd_between_the_bounds(rows: list[Row]) -> None:
    clean = rows_of("random", ((0.99, 0.99),) * 3, "clean") + rows_of("fresh", ((1.0, 1.0),) * 3, "clean")
    comparison = compare(clean + rows)
    # `none` and `all` stand at the ends whatever they reach; who has no PGD comes after those who have.
    assert comparison.methods == ("all", "f2cto", "herding", "random", "fresh", "none")
    text = markdown(comparison)
    first = text[text.index("### Accuracy on all") : text.index("\n- ")]
    assert re.findall(r"^\| (\w+)", first, flags=re.MULTILINE)[1:] == list(comparison.methods)


def test_without_pgd_the_strongest_attack_sorts() -> None:
    rows = [row for a in ("clean", "fgsm") for row in rows_of("a", [(0.9 if a == "clean" else 0.1,)], a)]
    rows += [row for a in ("clean", "fgsm") for row in rows_of("b", [(0.5,)], a)]
    assert compare(rows).methods == ("b", "a")


def test_attacks_are_sorted_by_strength_and_unknown_ones_come_last() -> None:
    names = ["zoo", "autoattack", "pgd-strong", "apgd", "pgd", "fgsm", "clean"]
    comparison = compare([row for name in names for row in rows_of("a", OURS, name)])
    assert comparison.attacks == ("clean", "fgsm", "pgd", "pgd-strong", "autoattack", "apgd", "zoo")
    header = markdown(comparison).split("\n| Method")[1].splitlines()[0]
    assert re.findall(r"\| +([^|]*?) (?=\|)", header) == [
        *("Clean", "FGSM", "PGD", "strong PGD", "AutoAttack", "apgd", "zoo")
    ]


def test_the_best_is_bold_bounds_aside_and_less_forgetting_is_better(rows: list[Row]) -> None:
    rows = [replace(row, forgetting=0.05) if row.method == "random" and row.task == 1 else row for row in rows]
    text = markdown(compare(rows))
    assert cells_of(text, "all (upper bound)") == ["90.0 ± 0.0"]
    assert cells_of(text, "f2cto †") == ["**62.0 ± 2.0**"]
    assert cells_of(text, "herding") == ["60.0 ± 1.0"]
    assert cells_of(text, "random", "Forgetting") == ["**5.0 ± 0.0**"]
    assert cells_of(text, "f2cto †", "Forgetting") == ["20.0 ± 10.0"]


def test_all_that_look_the_same_are_bold_and_one_alone_is_not() -> None:
    tied = markdown(compare(rows_of("a", [(0.50001,)]) + rows_of("b", [(0.5,)]) + rows_of("c", [(0.4,)])))
    assert [cells_of(tied, name) for name in "abc"] == [["**50.0**"], ["**50.0**"], ["40.0"]]
    alone = markdown(compare(rows_of("a", [(0.5,)]) + rows_of("all", [(0.9,)])))
    assert "**" not in alone


def test_the_markdown_says_the_duel_in_words(rows: list[Row]) -> None:
    text = markdown(compare(rows))
    assert "- PGD: the best baseline is herding with 60.0 ± 1.0 %:\n" in text
    tests = "not significant: t-test p = 0.0742, Wilcoxon p = 0.25"
    assert f"  - f2cto is 2.0 ± 1.0 points above it on 3 common seeds ({tests}).\n" in text
    assert "With 3 seeds Wilcoxon’s p cannot be below 0.25." in text
    assert "one comparison out of 1," in text


def test_a_clear_loss_is_significant_and_below() -> None:
    rows = rows_of("f2cto", [(0.1,), (0.11,), (0.12,)]) + rows_of("herding", [(0.8,), (0.81,), (0.8201,)])
    assert "f2cto is 70.0 ± 0.0 points below it on 3 common seeds (significant: t-test p < 0.001," in markdown(
        compare(rows)
    )


def test_tables_are_padded_and_fit_a_screen() -> None:
    attacks = ("clean", "fgsm", "pgd", "pgd-strong", "autoattack")
    names = ("f2cto:local_rounds=5", "herding", "all")
    text = markdown(compare([row for a in attacks for name in names for row in rows_of(name, OURS, a)]))
    for table in text.split("###")[1:]:
        widths = {len(line) for line in table.splitlines() if line.startswith("|")}
        assert len(widths) == 1
        assert max(widths) <= 120


def test_costs_have_a_table_of_their_own(rows: list[Row]) -> None:
    big = [replace(row, floats=1234567 * (row.task == 1)) if row.method == "herding" else row for row in rows]
    assert cells_of(markdown(compare(big)), "herding", "Cost") == ["2.0", "20", "1,234,567", "3"]


def test_latex_escapes_what_is_special() -> None:
    name = r"a_b&c%d#e$f{g}~h^i\j"
    text = latex(compare(rows_of(name, OURS) + rows_of("f2cto:local_rounds=5", OURS)))
    assert r"a\_b\&c\%d\#e\$f\{g\}\textasciitilde{}h\textasciicircum{}i\textbackslash{}j & " in text
    assert r"f2cto:local\_rounds=5 $^\dagger$ & \textbf{62.0 $\pm$ 2.0} \\" in text
    body = "\n".join(line for line in text.splitlines() if not line.startswith("% "))
    assert not re.search(r"(?<!\\)[%#_]|[^\x00-\x7f]", body)
    assert body.count(r"\begin{tabular}{lr}") == 4
    assert body.count(r"\begin") == body.count(r"\end") == 5


def test_markdown_keeps_bars_inside_cells() -> None:
    assert r"| a\|b   |" in markdown(compare(rows_of("a|b", OURS)))


def test_the_csv_parses_back_to_the_numbers(rows: list[Row]) -> None:
    rows += [replace(row, attack="clean", accuracy=1 - row.accuracy / 3) for row in rows]
    rows += rows_of('odd, "name"', OURS)
    comparison = compare(rows)
    found = parsed(csv_text(comparison))
    assert list(found) == [(m, a) for m in comparison.methods for a in comparison.attacks if a in comparison.cells[m]]
    for (method, attack), row in found.items():
        cell, cost = comparison.cells[method][attack], comparison.costs[method]
        assert cell.old is not None
        assert cell.forgetting is not None
        for name, score in (
            *(("all_tasks", cell.overall), ("old_tasks", cell.old)),
            *(("worst_class", cell.worst_class), ("forgetting", cell.forgetting)),
        ):
            assert (float(row[f"{name}_mean"]), float(row[f"{name}_std"])) == (score.mean, score.std)
        assert int(row["seeds"]) == 3
        assert (float(row["seconds"]), float(row["floats"])) == (cost.seconds, cost.floats)
        assert float(row["passes"]) == cost.passes
    kinds = {method: row["kind"] for (method, _), row in found.items()}
    assert kinds == {**dict.fromkeys(["all", "none"], "bound"), "f2cto": "ours"} | dict.fromkeys(
        ["herding", "random", 'odd, "name"'], "baseline"
    )
    (duel,) = (duel for duel in comparison.duels if duel.attack == "clean")
    row = found["f2cto", "clean"]
    assert (row["best_baseline"], int(row["common_seeds"])) == (duel.baseline, 3)
    assert (float(row["t_test_p"]), float(row["wilcoxon_p"])) == (duel.t_test, duel.wilcoxon)
    assert found["herding", "clean"]["best_baseline"] == ""


def accuracies_at(text: str, places: Sequence[str]) -> list[float]:
    """Horizontal places in a picture as the accuracies that its axis has there."""
    ticks = [(float(x), float(name)) for x, name in re.findall(r'<text [^>]*?x="([\d.]+)"[^>]*>(\d+)</text>', text)]
    (left, low), (right, high) = ticks[0], ticks[-1]
    return sorted(round(low + (high - low) * (float(x) - left) / (right - left), 3) for x in places)


def test_the_picture_has_a_dot_at_each_mean_and_a_line_as_long_as_the_deviation(rows: list[Row]) -> None:
    rows += rows_of("f2cto", [(0.8, 0.9)], "clean")
    text = picture(compare(rows))
    circles = re.findall(r'<path id="(\w+)" d="[^"]* C ', text.replace("\n", " "))
    axes, legend = text.split('<g id="legend_1">')
    dots = [
        (x, fill, stroke)
        for marker, x, fill, stroke in re.findall(
            r'<use xlink:href="#(\w+)" x="(\S+)".*?fill: (\S+); stroke: (\S+)"', axes
        )
        if marker in circles
    ]
    assert accuracies_at(axes, [x for x, *_ in dots]) == [40.0, 40.0, 60.0, 62.0, 85.0, 90.0]
    assert accuracies_at(axes, [x for x, fill, _ in dots if fill == "#ffffff"]) == [40.0, 90.0]  # the bounds
    assert len({stroke for *_, stroke in dots}) == 2  # a colour for each attack
    lines = re.findall(r'"LineCollection_\d+">\s*<path d="M (\S+) \S+\s+L (\S+) ', axes)
    ends = [accuracies_at(axes, line) for line in lines]
    assert sorted(ends) == [[40.0, 40.0], [40.0, 40.0], [59.0, 61.0], [60.0, 64.0], [90.0, 90.0]]
    names = ["all (upper bound)", "f2cto †", "herding", "random", "none (lower bound)"]
    assert [name for name in re.findall(r">([^<>]+)</text>", axes) if name in names] == names
    assert re.findall(r">([^<>]+)</text>", legend) == ["Clean", "PGD"]
    assert picture(compare(rows)) == text


def test_any_name_can_be_drawn() -> None:
    name = r"<b>$\frac{$ & </b>"
    assert name in {element.text for element in ET.fromstring(picture(compare(rows_of(name, OURS)))).iter()}  # noqa: S314


def test_rows_that_cannot_be_compared_are_refused(rows: list[Row]) -> None:
    with pytest.raises(ValueError, match="at least one row; got none"):
        compare([])
    with pytest.raises(ValueError, match=r"got 2 of \('none', 0, 1, 'pgd'\)"):
        compare([*rows, rows[0]])
    with pytest.raises(ValueError, match="costs must be the same under all attacks; none, seed 0, task 1"):
        compare([*rows, replace(rows[0], attack="clean", seconds=99.0)])


def test_neither_torch_nor_pyplot_is_loaded() -> None:
    check = (
        "import sys, f2cto.report.comparison_text, f2cto.report.comparison_plot; "
        "print(sorted({'torch', 'matplotlib.pyplot'} & set(sys.modules)))"
    )
    loaded = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout  # noqa: S603
    assert loaded.strip() == "[]"
