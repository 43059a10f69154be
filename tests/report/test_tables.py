from __future__ import annotations

import math
from dataclasses import replace

import pytest

from f2cto.records import RunRecord, Score
from f2cto.report.tables import accuracy_header, accuracy_rows, best_coreset, number, percent


def test_rows_are_the_hand_made_table_with_the_reference_last(record: RunRecord) -> None:
    assert accuracy_header(record) == ("Method", "Clean %", "FGSM %", "PGD %")
    assert accuracy_rows(record) == [
        ("F²CTO coreset", "91.2 ± 1.0", "80.0 ± 3.0", "70.0 ± 2.5"),
        ("random", "80.0 ± 5.0", "70.0 ± 5.0", "60.0 ± 5.0"),
        ("all data", "98.0", "90.0", "85.0"),
    ]


def test_names_for_people_and_unknown_names_as_they_are(record: RunRecord) -> None:
    some = {name: {"clean": Score(0.5, 0.0, 1)} for name in ("f2cto", "random", "balanced", "all", "my method")}
    names = [row[0] for row in accuracy_rows(replace(record, accuracy=some))]
    assert names == ["F²CTO coreset", "random", "class-balanced random", "my method", "all data"]


def test_other_attacks_come_after_the_known_ones_and_holes_are_marked(record: RunRecord) -> None:
    one = Score(0.5, 0.1, 1)
    with_extra = replace(record, accuracy={"a": {"square": one, "pgd": one}, "b": {"clean": one, "auto": one}})
    assert accuracy_header(with_extra) == ("Method", "Clean %", "PGD %", "square %", "auto %")
    assert accuracy_rows(with_extra) == [("a", "–", "50.0", "50.0", "–"), ("b", "50.0", "–", "–", "50.0")]


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (Score(1.0, 0.0, 2), "100.0 ± 0.0"),
        (Score(0.12345, 0.00049, 2), "12.3 ± 0.0"),
        (Score(0.5, 0.2, 1), "50.0"),
        (Score(0.5, math.nan, 3), "50.0"),
        (Score(math.nan, 0.1, 3), "–"),
        (None, "–"),
    ],
)
def test_one_score(score: Score | None, text: str) -> None:
    assert percent(score) == text


@pytest.mark.parametrize(
    ("means", "best"),
    [
        ({"f2cto": 0.7, "random": 0.6, "all": 0.9}, "f2cto"),
        ({"f2cto": 0.6, "random": 0.7, "all": 0.9}, "random"),
        ({"f2cto": 0.7001, "random": 0.7, "all": 0.9}, None),  # 70.0 both, to the reader
        ({"f2cto": 0.7, "random": math.nan}, None),
        ({"f2cto": 0.7, "all": 0.6}, None),  # nothing to beat
        ({}, None),
    ],
)
def test_the_best_coreset_is_ahead_of_another_in_shown_digits(
    record: RunRecord, means: dict[str, float], best: str | None
) -> None:
    accuracy = {name: {"pgd": Score(mean, 0.01, 5)} for name, mean in means.items()}
    assert best_coreset(replace(record, accuracy=accuracy)) == best


@pytest.mark.parametrize(
    ("value", "text"), [(0.1234, "0.123"), (4.56e-5, "4.56 × 10⁻⁵"), (1e12, "1 × 10¹²"), (0.0, "0"), (-2.0, "-2")]
)
def test_numbers_read_like_numbers(value: float, text: str) -> None:
    assert number(value) == text
