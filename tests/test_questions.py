"""The pages of benchmarks/questions.py say what made-up records hold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks import questions
from benchmarks.question_pages import (
    Exchanges,
    Trained,
    best_duel,
    budget,
    communication,
    lead,
    picture,
    regimes,
    scale,
)
from benchmarks.questions import QUESTIONS, Run, exchanges, training_passes
from f2cto.attacks.base import Range
from f2cto.counting import Tally, counted
from f2cto.models import FlatModel, fresh
from f2cto.randomness import generator
from f2cto.records import Row
from f2cto.report.comparison import Comparison, compare
from f2cto.training import train_robust


def rows(accuracy: Mapping[str, float], *, seeds: int = 2, tasks: int = 2, passes: int = 1000) -> list[Row]:
    """Each method has its PGD accuracy, 0.1 more under FGSM, 0.01 more on the second seed and the second task."""
    return [
        Row(name, seed, task, attack, pgd + more + 0.01 * seed + 0.01 * (task - 1), 2.0, 500, passes, 0.1, None)
        for name, pgd in accuracy.items()
        for seed in range(seeds)
        for task in range(1, tasks + 1)
        for attack, more in (("fgsm", 0.1), ("pgd", 0.0))
    ]


def made_up(accuracy: Mapping[str, float], *, passes: int = 1000) -> Comparison:
    return compare(rows(accuracy, passes=passes))


def table(page: str, title: str) -> dict[str, list[str]]:
    """The rows of the table after a title, by their first cell."""
    lines = page[page.index(title) :].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    found = {}
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        first, *rest = [cell.strip() for cell in line.strip("|").split("|")]
        found[first] = rest
    return found


def test_scale_has_a_column_for_every_run_and_lines_for_numbers_of_workers() -> None:
    answer = scale(
        {
            "200": made_up({"f2cto": 0.3}),
            "10": made_up({"f2cto": 0.4, "random": 0.2}),
            "people": made_up({"f2cto": 0.5}),
        }
    )
    pgd = table(answer.page, "## PGD")
    assert pgd["method"] == ["200", "10", "people", "seeds"]
    # The mean over seeds and tasks is 0.01 above what was made up.
    assert pgd["f2cto"] == ["31.0 ± 0.7", "41.0 ± 0.7", "51.0 ± 0.7", "2"]
    assert pgd["random"] == ["–", "21.0 ± 0.7", "–", "2"]
    assert pgd["our best − best other"] == ["–", "+20.0 ± 0.0 (f2cto − random)", "–", ""]
    assert table(answer.page, "## FGSM")["f2cto"][0] == "41.0 ± 0.7"
    line = answer.panels[1].lines["f2cto"]
    assert [(x, round(score.mean, 6)) for x, score in line] == [(10.0, 0.41), (200.0, 0.31)]
    assert list(answer.figures["runs"]) == ["200", "10", "people"]


def test_communication_shows_exchanges_and_gaps() -> None:
    labels = {rounds: f"f2cto:local_rounds={rounds}" for rounds in (1, 5)}
    gaps = {1: (8.0, 4.0, 3.0, 2.0, 1.0, 1.0, 1.0, 1.0, 3.0, 1.0), 5: (8.0, 2.0)}
    answer = communication(
        made_up({labels[1]: 0.4, labels[5]: 0.3}), [Exchanges(labels[n], n, gaps[n]) for n in labels]
    )
    assert table(answer.page, "#")["1"] == ["10", "1,000", "51.0 ± 0.7", "41.0 ± 0.7", "1", "2"]
    assert table(answer.page, "#")["5"] == ["2", "1,000", "41.0 ± 0.7", "31.0 ± 0.7", "2", "2"]
    accuracy, gap = answer.panels
    assert [x for x, _ in accuracy.lines["PGD"]] == [10.0, 2.0]
    assert [score.mean for _, score in gap.lines["final"]] == [1.0, 2.0]
    assert answer.figures["exchanges"][0]["gaps"] == gaps[1]


def test_regimes_hold_our_best_against_the_best_other() -> None:
    first = made_up({"f2cto": 0.3, "f2cto-ef": 0.4, "herding": 0.35, "random": 0.2})
    second = made_up({"f2cto": 0.3, "f2cto-ef": 0.2, "herding": 0.35, "random": 0.36})
    answer = regimes({"as it is": first, "outliers": second})
    pgd = table(answer.page, "## PGD")
    assert pgd["regime"][:-1] == ["f2cto", "f2cto-ef", "herding", "random", "seeds"]
    assert pgd["outliers"][-2] == "2"
    assert pgd["as it is"][-1] == "+5.0 ± 0.0 (f2cto-ef − herding)"
    assert pgd["outliers"][-1] == "-6.0 ± 0.0 (f2cto − random)"
    assert answer.panels[0].ticks == ("as it is", "outliers")
    assert answer.figures["leads"]["outliers"]["pgd"]["baseline"] == "random"


def test_a_lead_is_paired_by_seed_and_tested() -> None:
    own = [Row("f2cto", seed, 1, "pgd", a, 1, 1, 1, 0, None) for seed, a in enumerate((0.5, 0.7, 0.6))]
    other = [Row("easy", seed, 1, "pgd", a, 1, 1, 1, 0, None) for seed, a in enumerate((0.4, 0.65, 0.45))]
    # differences 10, 5 and 15 points: mean 10, deviation 5, t = 10 / (5 / sqrt(3)) = 3.464 with 2 degrees of freedom
    assert lead(compare(own + other), "pgd") == "+10.0 ± 5.0 (f2cto − easy, p = 0.074)"
    assert lead(compare(own), "pgd") == "–"
    assert best_duel(compare(own + other), "fgsm") is None


def test_budget_adds_selection_and_training() -> None:
    answer = budget(
        {
            "0.01": Trained(made_up({"f2cto": 0.3}, passes=1000), 5000),
            "0.5": Trained(made_up({"f2cto": 0.5}, passes=1000), 9000),
            "all": Trained(made_up({"all": 0.6}, passes=0), 9000),
        }
    )
    found = table(answer.page, "#")
    assert found["0.01"] == ["f2cto", "2,000", "5,000", "7,000", "4.0", "41.0 ± 0.7", "31.0 ± 0.7"]  # two tasks
    assert found["all"][:4] == ["all", "0", "9,000", "9,000"]
    assert [x for x, _ in answer.panels[1].lines["f2cto"]] == [7000.0, 11000.0]
    assert [x for x, _ in answer.panels[3].lines["f2cto"]] == [1.0, 50.0]
    assert set(answer.panels[3].lines) == {"f2cto"}


def test_a_table_says_on_how_many_seeds_it_rests() -> None:
    more, fewer = (compare(rows({"f2cto": 0.3, "random": 0.2}, seeds=n)) for n in (5, 3))
    assert table(scale({"10": more, "20": fewer}).page, "## PGD")["random"][-1] == "3 to 5"
    assert table(scale({"10": more}).page, "## PGD")["random"][-1] == "5"


def test_names_on_an_axis_do_not_overlap() -> None:
    """All places where they are few; hundreds of thousands are not spelled out."""
    answer = scale({str(n): made_up({"f2cto": 0.3}) for n in (10, 30, 200)})
    words = picture(answer.panels).decode()
    assert all(f"<!-- {n} -->" in words for n in (10, 30, 200))
    many = {str(n): made_up({"f2cto": 0.3}) for n in range(10_000, 200_000, 10_000)}
    words = picture(scale(many).panels).decode()
    assert "<!-- 20k -->" in words
    assert "<!-- 30k -->" not in words


def test_training_passes_by_hand() -> None:
    """40 steps, batches of 50 and attacks of 3 steps: four gradients a sample and step, each forwards and backwards."""
    common = ("training.steps=40", "training.batch=50", "training.attack_steps=3", "data.scenario.samples=1000")
    small = Run("", "digits", (), (*common, "size=0.01")).settings()
    large = Run("", "digits", (), (*common, "size=0.2")).settings()
    count = Run("", "digits", (), (*common, "size=3", "workers=4")).settings()
    assert training_passes(large) == 40 * 50 * 4 * 2
    assert training_passes(small) == 40 * 10 * 4 * 2
    assert training_passes(count) == 40 * 12 * 4 * 2
    assert training_passes(small, everything=True) == 40 * 50 * 4 * 2


@pytest.mark.parametrize("kept", [8, 30])
def test_training_passes_are_those_that_a_network_counts(kept: int) -> None:
    training = ("training.steps=7", "training.batch=20", "training.attack_steps=3", "training.restarts=0")
    changes = (*training, f"size={kept}", "workers=1")
    settings, tally = Run("", "digits", (), changes).settings(), Tally()
    flat = FlatModel(counted(fresh(lambda: nn.Linear(5, 2), generator(0)), tally))
    x, y = torch.rand((kept, 5), generator=generator(1)), torch.arange(kept) % 2
    train_robust(
        flat, flat.own(), x, y, settings.evaluation.training_attack(3, Range()), settings.training, generator(2)
    )
    assert tally.forward + tally.backward + tally.second == training_passes(settings)


def test_exchanges_count_local_rounds() -> None:
    run = Run("", "digits", (), ("f2cto.stopping.iterations=4", "rehearsal.memory=3", "data.scenario.samples=100"))
    found = exchanges(run, 2)
    assert len(found.gaps) == 2
    assert all(gap > 0 for gap in found.gaps)


@pytest.mark.parametrize("name", QUESTIONS)
def test_runs_can_be_told_apart_and_are_calls_of_the_command(name: str, tmp_path: Path) -> None:
    runs = QUESTIONS[name].runs(QUESTIONS[name].preset)
    assert len({run.folder(tmp_path) for run in runs}) == len(runs)
    for run in runs:
        words = run.arguments(tmp_path, 3, 2)
        assert words[0] == "compare"
        assert words[words.index("--seeds") + 1] == "3"
        assert words[words.index("--out") + 1] == str(run.folder(tmp_path))
        assert words.count("--set") == len(run.changes)


def test_only_the_standard_preset_asks_for_people() -> None:
    assert {run.preset for run in QUESTIONS["scale"].runs("edge-iiotset-small")} == {"edge-iiotset-small"}
    assert {run.preset for run in QUESTIONS["scale"].runs("unsw-nb15-small")} == {"unsw-nb15-small", "hapt-small"}


def test_from_the_command_to_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is made up: it writes records, and fails where people are asked for."""
    calls = []

    def command(words: Sequence[str]) -> int:
        calls.append(list(words))
        folder = Path(words[words.index("--out") + 1])
        folder.mkdir(parents=True)
        methods = words[words.index("--methods") + 1].split(",")
        lines = [json.dumps(asdict(row)) for row in rows(dict.fromkeys(methods, 0.3))]
        (folder / "records.jsonl").write_text("\n".join(lines) + "\n")
        return 2 if "hapt-small" in words else 0

    monkeypatch.setattr(questions, "f2cto", command)
    with pytest.raises(SystemExit) as stopped:
        questions.main(["scale", "--out", str(tmp_path), "--set", "data.scenario.samples=500"])
    assert stopped.value.code == 2
    assert len(calls) == 5
    assert all("data.scenario.samples=500" in words for words in calls)
    page = (tmp_path / "scale.md").read_text()
    assert table(page, "## PGD")["method"] == ["10", "50", "100", "200", "seeds"]
    assert "python benchmarks/questions.py scale" in page
    figures = json.loads((tmp_path / "scale.json").read_text())
    assert figures["runs"]["50"]["easy"]["pgd"]["draws"] == 2
    assert {"command", "date", "versions"} <= set(figures)
    assert b"<svg" in (tmp_path / "scale.svg").read_bytes()


def test_pictures_are_the_same_each_time() -> None:
    panels = regimes({"one": made_up({"f2cto": 0.3, "all": 0.5}), "two": made_up({"f2cto": 0.3})}).panels
    assert picture(panels) == picture(panels)
