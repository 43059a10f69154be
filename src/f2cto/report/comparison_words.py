"""What a comparison says in words: names, findings, and what a reader must know to trust them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from f2cto.report.comparison import LOWER, UPPER, Comparison, Duel, family, is_bound
from f2cto.report.tables import COLLAPSED, GUESSING, attack_name, percent

OURS_MARK = "†"
SIGNIFICANT = 0.05

_BOUNDS = {UPPER: "upper bound", LOWER: "lower bound"}


def method_name(comparison: Comparison, method: str) -> str:
    """A method's label with a mark if it is ours and a word if it is a bound."""
    if is_bound(method):
        return f"{method} ({_BOUNDS[family(method)]})"
    return f"{method} {OURS_MARK}" if method in comparison.ours else method


def introduction(comparison: Comparison) -> str:
    """What stands above the tables."""
    seeds = {cell.seeds for of in comparison.cells.values() for cell in of.values()}
    count = len(next(iter(seeds))) if len(seeds) == 1 else 0
    over = {0: "Mean ± standard deviation over seeds", 1: "One seed"}.get(
        count, f"Mean ± standard deviation over {count} seeds"
    )
    mark = f" {OURS_MARK}: ours." if comparison.ours else ""
    return f"{over}; the best of each column, bounds aside, in bold.{mark}"


def findings(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """For each attack the best baseline, and each of our methods beside it."""
    found = []
    for attack, baseline in comparison.best_baseline.items():
        score = percent(comparison.cells[baseline][attack].overall)
        if said := [_said(duel) for duel in comparison.duels if duel.attack == attack]:
            found.append((f"{attack_name(attack)}: the best baseline is {baseline} with {score} %", said))
    return found


def notes(comparison: Comparison) -> list[str]:
    """What a reader must know to trust the table: how tests were made, and which cells rest on which seeds."""
    told = [note] if (note := _collapses(comparison)) else []
    told += [_tests(comparison)] if any(duel.wilcoxon is not None for duel in comparison.duels) else []
    told += [note] if (note := _seeds_note(comparison)) else []
    told += ["Left out as incomplete: " + " ".join(comparison.left_out)] if comparison.left_out else []
    return told


def _said(duel: Duel) -> str:
    """A duel in words."""
    if duel.difference is None:
        return f"{duel.method} has no seed in common with it"
    points, count = 100 * duel.difference.mean, duel.difference.draws
    size = f"{abs(points):.1f}" + (f" ± {100 * duel.difference.std:.1f}" if count > 1 else "")
    where = "above" if points > 0 else "below"
    lead = f"{size} points {where} it" if points else "level with it"
    return f"{duel.method} is {lead} on {_seeds(count)} ({_p_values(duel)})"


def _p_values(duel: Duel) -> str:
    if duel.wilcoxon is None:
        return "too few to test"
    if duel.t_test is None:
        return f"the same difference on each, so no t-test; Wilcoxon {_p(duel.wilcoxon)}"
    verdict = "significant" if duel.t_test < SIGNIFICANT else "not significant"
    return f"{verdict}: t-test {_p(duel.t_test)}, Wilcoxon {_p(duel.wilcoxon)}"


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.3g}"


def _seeds(count: int) -> str:
    return f"{count} common seed" + ("" if count == 1 else "s")


def _tests(comparison: Comparison) -> str:
    tested = [duel.difference.draws for duel in comparison.duels if duel.difference and duel.wilcoxon is not None]
    least = 2.0 ** (1 - max(tested))  # all differences of one sign: 2 of the 2^n patterns of signs
    limit = f" With {max(tested)} seeds Wilcoxon’s p cannot be below {least:.3g}." if least > 0.01 else ""
    return (
        "Tests are two-sided on differences between seeds in common: the paired t-test, which decides on "
        f"“significant” at {100 * SIGNIFICANT:.0f} %, and beside it Wilcoxon’s exact signed-rank test.{limit} "
        f"Each p is that of one comparison out of {len(tested)}, not corrected for their number; the baseline is the "
        "best on the very seeds it is tested on."
    )


def _collapses(comparison: Comparison) -> str:
    """Which learners collapsed; empty if none did."""
    fell = {
        method: sorted({seed for cell in comparison.cells[method].values() for seed in cell.collapsed})
        for method in comparison.methods
    }
    found = [
        f"{method} on seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))}"
        for method, seeds in fell.items()
        if seeds
    ]
    if not found:
        return ""
    return f"{COLLAPSED} After at least one task some learners {GUESSING}. The means contain them: {'; '.join(found)}."


def _seeds_note(comparison: Comparison) -> str:
    """Which cells rest on other seeds than most do; empty if none does."""
    methods, attacks = comparison.methods, comparison.attacks
    seeds = {
        (method, attack): cell.seeds if (cell := comparison.cells[method].get(attack)) else ()
        for method in methods
        for attack in attacks
    }
    counts = Counter(seeds.values())
    common = max(counts, key=lambda some: (counts[some], len(some)))
    groups: dict[tuple[tuple[int, ...], tuple[str, ...]], list[str]] = {}
    for method in methods:
        for some in sorted({seeds[method, attack] for attack in attacks} - {common}):
            under = tuple(attack for attack in attacks if seeds[method, attack] == some)
            groups.setdefault((some, under), []).append(method)
    if not groups:
        return ""
    others = "; ".join(
        f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} {_named(some)} under "
        + ", ".join(attack_name(attack) for attack in under)
        for (some, under), found in groups.items()
        for names in [["every method"] if len(found) == len(methods) > 1 else found]
    )
    return f"Not all cells rest on the same seeds: most have {_named(common)}, but {others}."


def _named(seeds: Sequence[int]) -> str:
    names = ", ".join(str(seed) for seed in seeds)
    return f"{len(seeds)} (seed{'' if len(seeds) == 1 else 's'} {names})" if seeds else "none"
