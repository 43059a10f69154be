"""Learners that collapsed are counted in means, marked there, and named."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, replace
from pathlib import Path

from f2cto.comparison_folder import RECORDS, ComparisonFolder
from f2cto.records import Row, RunRecord, Score
from f2cto.report.comparison import compare
from f2cto.report.comparison_plot import picture
from f2cto.report.comparison_text import csv_text, latex, markdown
from f2cto.report.page import render
from f2cto.report.tables import accuracy_rows, collapses, percent

WORDS = "only guess: one answer for all samples, or a loss no better than chance"


def rows(fallen: tuple[tuple[int, int], ...], method: str = "f2cto") -> list[Row]:
    """Two tasks on two seeds; `fallen` are the seeds and tasks after which the learner had collapsed."""
    return [
        Row(method, seed, task, "pgd", 0.1 * task, 1.0, 2, 3, 0.1, None, collapsed=(seed, task) in fallen)
        for seed in (0, 1)
        for task in (1, 2)
    ]


def test_cells_with_a_collapsed_learner_are_marked_and_said() -> None:
    found = compare(rows(((1, 2),)) + rows((), "herding"))
    assert found.cells["f2cto"]["pgd"].collapsed == (1,)
    text = markdown(found)
    (line,) = [line for line in text.splitlines() if line.startswith("| f2cto") and "15.0" in line]
    assert "15.0 ± 0.0 ‡" in line
    assert not any("‡" in line for line in text.splitlines() if line.startswith("| herding"))
    assert f"‡ After at least one task some learners {WORDS}" in text
    assert "The means contain them: f2cto on seed 1." in text


def test_a_learner_that_recovered_in_the_next_task_is_said_too() -> None:
    text = markdown(compare(rows(((0, 1), (1, 1), (1, 2)))))
    assert "f2cto on seeds 0, 1." in text


def test_nothing_is_said_where_none_collapsed_or_nobody_looked() -> None:
    for unknown in (False, None):
        found = compare([replace(row, collapsed=unknown) for row in rows(())])
        assert "‡" not in markdown(found) + latex(found) + picture(found)
        assert "guess" not in markdown(found)


def test_latex_and_csv_have_it() -> None:
    found = compare(rows(((1, 2),)))
    assert r"$^\ddagger$" in latex(found)
    (line,) = csv.DictReader(io.StringIO(csv_text(found)))
    assert line["collapsed"] == "1"


def test_records_say_it_and_those_of_former_versions_still_load(tmp_path: Path) -> None:
    folder = ComparisonFolder(tmp_path)
    folder.add(rows(((1, 2),)))
    lines = [json.loads(line) for line in (folder.path / RECORDS).read_text().splitlines()]
    assert [line["collapsed"] for line in lines] == [False, False, False, True]
    former = [asdict(row) for row in rows((), "old")]
    for line in former:
        del line["collapsed"]
    with (folder.path / RECORDS).open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in former)
    assert {row.collapsed for row in folder.rows(2) if row.method == "old"} == {None}


def fallen_record(record: RunRecord) -> RunRecord:
    scores = {attack: replace(score, collapsed=2) for attack, score in record.accuracy["random"].items()}
    return replace(record, accuracy={**record.accuracy, "random": scores})


def test_the_page_the_summary_and_the_screen_of_a_selection_have_it(record: RunRecord) -> None:
    assert collapses(record) == ""
    assert "‡" not in render(record)
    fell = fallen_record(record)
    assert {name: cells for name, *cells in accuracy_rows(fell)}["random"][0] == "80.0 ± 5.0 ‡"
    said = collapses(fell)
    assert said.startswith(f"‡ Some models {WORDS}")
    assert said.endswith("random (2 of 20). The means contain them.")
    assert said in render(fell)
    assert "<td>80.0 ± 5.0 ‡</td>" in render(fell)
    assert fell.summary()["collapsed"] == {"all": 0, "f2cto": 0, "random": 2}


def test_a_percentage_is_marked_behind_its_deviation() -> None:
    assert percent(Score(0.5, 0.1, 1, collapsed=1)) == "50.0 ‡"
    assert percent(Score(0.5, 0.1, 2, collapsed=1)) == "50.0 ± 10.0 ‡"
