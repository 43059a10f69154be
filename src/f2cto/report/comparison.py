"""Methods beside each other over seeds, tasks and attacks, and how sure their differences are."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from f2cto.records import Row, Score

# ubv and lbv are what they are held against.
OURS = ("f2cto-sparse", "f2cto", "f2cto+p", "f2cto-places", "f2cto-top", "f2cto-ef", "f2cto-literal")
UPPER, LOWER = "all", "none"  # all past data, and nothing of it: no coreset, but what coresets are held against
ATTACKS = ("clean", "fgsm", "pgd", "pgd-strong", "autoattack")  # the weakest first
RANKING = "pgd"  # what methods are ordered by

BySeed = Mapping[int, Sequence[Row]]  # the rows of one method under one attack, every seed with all tasks


@dataclass(frozen=True)
class Cell:
    """A method under one attack: means and deviations over seeds of what each seed has over its tasks."""

    seeds: tuple[int, ...]
    overall: Score  # mean accuracy on all tasks
    old: Score | None  # on all but the last, if there are several
    worst_class: Score  # the lowest accuracy on a class of any task
    forgetting: Score | None  # mean over the tasks that have one
    collapsed: tuple[int, ...] = ()  # the seeds whose learner only guessed after some task; means contain them


@dataclass(frozen=True)
class Cost:
    """What selecting all coresets of a run took: sums over tasks, then means over seeds."""

    seeds: int
    seconds: float
    passes: float
    floats: float


@dataclass(frozen=True)
class Duel:
    """One of our methods against the best baseline under an attack, on the seeds that both have."""

    attack: str
    method: str
    baseline: str
    difference: Score | None  # ours minus the baseline's mean accuracy on all tasks; None without common seeds
    t_test: float | None  # p of the two-sided paired t-test; None with fewer than two seeds or no spread at all
    wilcoxon: float | None  # p of the two-sided signed-rank test, exact; None with fewer than two seeds


@dataclass(frozen=True)
class Comparison:
    """All that tables, sentences and pictures of a comparison say."""

    methods: tuple[str, ...]  # the upper bound, the best, ..., the worst, the lower bound
    attacks: tuple[str, ...]
    ours: frozenset[str]  # which of the methods are
    cells: Mapping[str, Mapping[str, Cell]]  # method -> attack -> cell, where there is one
    costs: Mapping[str, Cost]
    best_baseline: Mapping[str, str]  # attack -> method, where there is one
    duels: tuple[Duel, ...]
    left_out: tuple[str, ...]  # a sentence for each method, seed and attack that lacks a task


def compare(rows: Sequence[Row], ours: Sequence[str] = OURS) -> Comparison:
    """Everything the rows of a comparison say.

    A seed counts for a method under an attack only if it has all tasks there: the mean over fewer would be that of
    another problem.

    Args:
        rows: one for each method, seed, task and attack.
        ours: families of methods, a family being a label up to its colon, that are held against the best baseline.

    Raises:
        ValueError: there are no rows, one stands twice, or a task's costs differ between attacks.

    """
    _check(rows)
    attacks = _attacks(rows)
    labels = sorted({row.method for row in rows})
    runs, left_out = _complete(rows)
    cells = {
        method: {attack: _cell(runs[method, attack]) for attack in attacks if (method, attack) in runs}
        for method in labels
    }
    best = _best_baselines(cells, attacks, ours)
    methods = _ordered(cells, RANKING if RANKING in attacks else attacks[-1])
    own = [method for method in methods if family(method) in ours]
    return Comparison(
        methods=methods,
        attacks=attacks,
        ours=frozenset(own),
        cells=cells,
        costs={method: cost for method in methods if (cost := _cost(rows, method)) is not None},
        best_baseline=best,
        duels=tuple(
            _duel(attack, (method, runs[method, attack]), (best[attack], runs[best[attack], attack]))
            for attack in best
            for method in own
            if (method, attack) in runs
        ),
        left_out=left_out,
    )


def family(method: str) -> str:
    """A label without the settings that make it a variant."""
    return method.partition(":")[0]


def is_bound(method: str) -> bool:
    """Whether a method keeps everything or nothing."""
    return family(method) in {UPPER, LOWER}


def t_test(differences: NDArray[np.float64]) -> float | None:
    """The p-value of the two-sided paired t-test, or None where differences have no spread to be measured by."""
    count = len(differences)
    if count < 2 or np.ptp(differences) == 0:
        return None
    statistic = np.mean(differences) / (np.std(differences, ddof=1) / np.sqrt(count))
    return float(2 * stdtr(count - 1, -abs(statistic)))


def wilcoxon(differences: NDArray[np.float64]) -> float | None:
    """The exact p-value of Wilcoxon's two-sided signed-rank test; ties share their ranks, zeros are left out.

    Not scipy's: that approximates once there are ties or zeros, which a handful of seeds does not allow for.
    """
    if len(differences) < 2:
        return None
    moved = differences[differences != 0]
    _, place, count = np.unique(np.abs(moved), return_inverse=True, return_counts=True)
    ranks = (2 * np.cumsum(count) - count + 1)[place]  # doubled, so that shared ranks are whole numbers
    chance = np.ones(1)  # of each sum of the ranks above zero, if every sign is as likely as the other
    for rank in ranks:
        chance = (np.pad(chance, (0, rank)) + np.pad(chance, (rank, 0))) / 2
    smaller = min(ranks[moved > 0].sum(), ranks[moved < 0].sum())
    return min(1.0, 2 * float(chance[: smaller + 1].sum()))


def _check(rows: Sequence[Row]) -> None:
    if not rows:
        msg = "A comparison needs at least one row; got none. Run `f2cto compare` first."
        raise ValueError(msg)
    (key, times), *_ = Counter((row.method, row.seed, row.task, row.attack) for row in rows).most_common(1)
    if times > 1:
        msg = f"Each method, seed, task and attack may have one row; got {times} of {key}. Drop all but one."
        raise ValueError(msg)
    costs: dict[tuple[str, int, int], tuple[float, int, int]] = {}
    for row in rows:
        cost = (row.seconds, row.passes, row.floats)
        if costs.setdefault((row.method, row.seed, row.task), cost) != cost:
            msg = (
                f"A task's coreset is selected once, so its costs must be the same under all attacks; {row.method}, "
                f"seed {row.seed}, task {row.task} has several. Were two runs written into one file?"
            )
            raise ValueError(msg)


def _attacks(rows: Sequence[Row]) -> tuple[str, ...]:
    """The attacks of the rows, known ones in their order, then others by the alphabet."""
    seen = {row.attack for row in rows}
    return (*(attack for attack in ATTACKS if attack in seen), *sorted(seen - set(ATTACKS)))


def _complete(rows: Sequence[Row]) -> tuple[dict[tuple[str, str], BySeed], tuple[str, ...]]:
    """The rows by method, attack and seed, where they have all tasks; and a sentence for each that has not."""
    tasks = {row.task for row in rows}
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row.method, row.attack, row.seed, row.task)):
        usable = np.isfinite([row.accuracy, row.worst_class]).all()
        groups.setdefault((row.method, row.attack, row.seed), []).extend([row] if usable else [])
    runs: dict[tuple[str, str], dict[int, Sequence[Row]]] = {}
    left_out = []
    for (method, attack, seed), group in groups.items():
        if missing := sorted(tasks - {row.task for row in group}):
            names = ", ".join(str(task) for task in missing)
            left_out.append(f"{method}, seed {seed}, {attack}: no accuracy on task {names}.")
        else:
            runs.setdefault((method, attack), {})[seed] = group
    return dict(runs), tuple(left_out)


def _cell(runs: BySeed) -> Cell:
    last = max(row.task for rows in runs.values() for row in rows)
    fallen = tuple(seed for seed, rows in runs.items() if any(row.collapsed for row in rows))

    def over_seeds(value: Callable[[Sequence[Row]], float | None]) -> Score | None:
        values = [found for rows in runs.values() if (found := value(rows)) is not None]
        return _score(values, len(fallen)) if values else None

    return Cell(
        seeds=tuple(runs),
        overall=_score([_overall(rows) for rows in runs.values()], len(fallen)),
        old=over_seeds(lambda rows: _mean([row.accuracy for row in rows if row.task != last])),
        worst_class=_score([min(row.worst_class for row in rows) for rows in runs.values()], len(fallen)),
        forgetting=over_seeds(lambda rows: _mean([row.forgetting for row in rows if row.forgetting is not None])),
        collapsed=fallen,
    )


def _cost(rows: Sequence[Row], method: str) -> Cost | None:
    """What a run of a method costs, from the seeds that have all tasks; None without such seeds."""
    tasks = {row.task for row in rows}
    once = {(row.seed, row.task): row for row in rows if row.method == method}  # costs are the same for all attacks
    seeds = [seed for seed, count in Counter(seed for seed, _ in once).items() if count == len(tasks)]
    if not seeds:
        return None
    counted = [row for (seed, _), row in once.items() if seed in seeds]
    return Cost(
        seeds=len(seeds),
        seconds=sum(row.seconds for row in counted) / len(seeds),
        passes=sum(row.passes for row in counted) / len(seeds),
        floats=sum(row.floats for row in counted) / len(seeds),
    )


def _best_baselines(
    cells: Mapping[str, Mapping[str, Cell]], attacks: Sequence[str], ours: Sequence[str]
) -> dict[str, str]:
    """For each attack the method with the highest mean on all tasks that is neither ours nor a bound.

    Among those with most seeds: a lucky seed is not to stand for a method.
    """
    baselines = [method for method in cells if family(method) not in ours and not is_bound(method)]
    best = {}
    for attack in attacks:
        if known := [method for method in baselines if attack in cells[method]]:
            most = max(len(cells[method][attack].seeds) for method in known)
            whole = [method for method in known if len(cells[method][attack].seeds) == most]
            best[attack] = max(whole, key=lambda method: cells[method][attack].overall.mean)
    return best


def _ordered(cells: Mapping[str, Mapping[str, Cell]], attack: str) -> tuple[str, ...]:
    """The best first, methods not measured under the attack behind the others; the bounds at the two ends."""

    def key(method: str) -> tuple[int, float, str]:
        place = {UPPER: -1, LOWER: 1}.get(family(method), 0)
        return place, -cells[method][attack].overall.mean if attack in cells[method] else 1.0, method

    return tuple(sorted(cells, key=key))


def _duel(attack: str, ours: tuple[str, BySeed], theirs: tuple[str, BySeed]) -> Duel:
    (method, own), (baseline, other) = ours, theirs
    common = [seed for seed in own if seed in other]
    if not common:
        return Duel(attack, method, baseline, None, None, None)
    # Rounded, or rounding errors would part differences that are the same and make ranks of nothing.
    differences = np.round([_overall(own[seed]) - _overall(other[seed]) for seed in common], 12)
    return Duel(attack, method, baseline, _score(differences.tolist()), t_test(differences), wilcoxon(differences))


def _overall(rows: Sequence[Row]) -> float:
    return statistics.fmean(row.accuracy for row in rows)


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _score(values: Sequence[float], collapsed: int = 0) -> Score:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return Score(statistics.fmean(values), spread, len(values), collapsed)
