"""The accuracy table as text, for pages and terminals alike."""

from __future__ import annotations

import math

from f2cto.records import RunRecord, Score

REFERENCE = "all"  # training on all data is no coreset: it is what coresets are held against
MISSING = "–"
COLLAPSED = "‡"  # behind means that contain models which only guess
GUESSING = "only guess: one answer for all samples, or a loss no better than chance, on their own training data"

_METHODS = {
    "f2cto": "F²CTO coreset",
    "random": "random",
    "balanced": "class-balanced random",
    REFERENCE: "all data",
}
_ATTACKS = {"clean": "Clean", "fgsm": "FGSM", "pgd": "PGD", "pgd-strong": "strong PGD", "autoattack": "AutoAttack"}


def accuracy_header(record: RunRecord) -> tuple[str, ...]:
    """What stands above the columns of `accuracy_rows`."""
    return ("Method", *(f"{attack_name(attack)} %" for attack in attacks(record)))


def accuracy_rows(record: RunRecord) -> list[tuple[str, ...]]:
    """One row a method: its name, then "mean ± std" in per cent for each attack; the reference comes last."""
    columns = attacks(record)
    return [
        (method_name(method), *(percent(record.accuracy[method].get(attack)) for attack in columns))
        for method in methods(record)
    ]


def methods(record: RunRecord) -> list[str]:
    """The methods in the order of the rows: as recorded, the reference last."""
    return sorted(record.accuracy, key=lambda name: name == REFERENCE)


def attacks(record: RunRecord) -> list[str]:
    """The attacks in the order of the columns: clean, fgsm, pgd, then others as they first appear."""
    seen = list(dict.fromkeys(attack for scores in record.accuracy.values() for attack in scores))
    return [a for a in _ATTACKS if a in seen] + [a for a in seen if a not in _ATTACKS]


def collapses(record: RunRecord) -> str:
    """Which methods' models collapsed and how many, in a sentence; empty if none did."""
    counts = {name: max((s.collapsed, s.draws) for s in record.accuracy[name].values()) for name in methods(record)}
    found = [f"{method_name(name)} ({fell} of {draws})" for name, (fell, draws) in counts.items() if fell]
    return f"{COLLAPSED} Some models {GUESSING}: {', '.join(found)}. The means contain them." if found else ""


def best_coreset(record: RunRecord, attack: str = "pgd") -> str | None:
    """The method whose coreset beats all others under an attack, as far as the shown digits tell.

    None where there is nothing to beat or the lead is shared.
    """
    shown = {
        method: round(100 * scores[attack].mean, 1)
        for method, scores in record.accuracy.items()
        if method != REFERENCE and attack in scores and math.isfinite(scores[attack].mean)
    }
    first = [method for method, value in shown.items() if value == max(shown.values())]
    return first[0] if len(shown) > 1 and len(first) == 1 else None


def percent(score: Score | None) -> str:
    """An accuracy as "mean ± std" in per cent, the std only where there were several draws; collapses are marked."""
    if score is None or not math.isfinite(score.mean):
        return MISSING
    spread = f" ± {100 * score.std:.1f}" if has_spread(score) else ""
    return f"{100 * score.mean:.1f}{spread}" + (f" {COLLAPSED}" if score.collapsed else "")


def has_spread(score: Score) -> bool:
    """Whether the std says anything."""
    return score.draws > 1 and math.isfinite(score.std)


def number(value: float) -> str:
    """A number to three digits, very large and small ones as a × 10ⁿ."""
    mantissa, _, exponent = f"{value:.3g}".partition("e")
    return f"{mantissa} × {power_of_ten(int(exponent))}" if exponent else mantissa


def power_of_ten(exponent: int) -> str:
    """A power of ten in plain characters, for places that know no superscripts."""
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def method_name(method: str) -> str:
    """A method's name for people; unknown ones stay as they are."""
    return _METHODS.get(method, method)


def attack_name(attack: str) -> str:
    """An attack's name for people; unknown ones stay as they are."""
    return _ATTACKS.get(attack, attack)
