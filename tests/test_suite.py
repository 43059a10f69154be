"""The development suite, benchmarks/suite, on a cell that takes a second."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import pytest

from benchmarks.suite.__main__ import main
from benchmarks.suite.cells import CELLS, Cell
from benchmarks.suite.records import Entry, Key, Record, Records, summary
from benchmarks.suite.run import Job, Setup, fingerprint, settings_of
from benchmarks.suite.table import covering, markdown
from f2cto.comparison import cell as compared
from f2cto.comparison import contender, stream

SMALL = {
    "data": {"source": "digits", "scenario": {"samples": 150, "judged": 40, "validation": 0.3}},
    "workers": 2,
    "size": 10,
    "network": {"hidden": [8]},
    "training": {"steps": 20, "attack_steps": 1},
    "evaluation": {"radius": 0.05, "pgd_steps": 2},
}
TINY = Cell(SMALL)
IN_TURN = Cell(
    {
        **SMALL,
        "data": {**SMALL["data"], "scenario": {"kind": "permuted", "tasks": 2, "samples": 60, "judged": 20}},  # type: ignore[dict-item]
        "rehearsal": {"memory": 4},
    }
)
CELLS_HERE = {"tiny": TINY, "in-turn": IN_TURN}
EASY = "easy:pretraining.rounds=1:pretraining.local.steps=2"
METHODS = ["herding", EASY]


def call(out: Path, *more: str, cells: dict[str, Cell] | None = None) -> int:
    given = ["--methods", ",".join(METHODS), "--seeds", "2", "--out", str(out), "--data-dir", str(out / "data")]
    return main([*given, *more], cells or CELLS_HERE)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suite")
    assert call(folder) == 0
    return folder


def test_records_say_what_compare_computes(out: Path) -> None:
    records = {record.key: record for record in Records(out).read()}
    assert len(records) == len(CELLS_HERE) * len(METHODS) * 2
    for name, cell in CELLS_HERE.items():
        key = Key(name, EASY, 1, "validation")
        settings = settings_of(Job(key, cell, Setup("validation", out, ())))
        tasks = stream(settings, 1, out)
        rows = [row for row in compared(tasks, contender(EASY)) if row.attack == "pgd"]
        assert records[key].accuracy["pgd"] == pytest.approx(100 * fmean(row.accuracy for row in rows), abs=1e-3)
        chosen_from = len(tasks[0].train)  # of two tasks, nothing is kept of the last
        assert records[key].passes == pytest.approx(rows[0].passes / chosen_from, abs=1e-2)
        assert records[key].passes > 2
        assert {"command", "date", "versions", "processor"} <= set(records[key].origin)


def test_the_summary_is_mean_and_deviation_over_seeds(out: Path) -> None:
    found = json.loads((out / "summary.json").read_text())
    assert set(found) == {"cells"}
    assert list(found["cells"]) == list(CELLS_HERE)
    for name, methods in found["cells"].items():
        assert list(methods) == METHODS
        for method, entry in methods.items():
            assert set(entry) == {"mean", "std", "seeds", "passes", "seconds", "collapsed"}
            own = [r.accuracy["pgd"] for r in Records(out).read() if (r.key.cell, r.key.method) == (name, method)]
            assert entry["seeds"] == len(own) == 2
            assert entry["mean"] == pytest.approx(fmean(own), abs=1e-3)
            assert entry["std"] == pytest.approx(stdev(own), abs=1e-3)
    assert "| tiny |" in (out / "table.md").read_text()


def test_a_second_call_computes_only_what_is_missing(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (out / "records.jsonl").read_text().splitlines()
    file = tmp_path / "records.jsonl"
    file.write_text("\n".join(lines) + "\n")
    assert call(tmp_path) == 0
    assert file.read_text().splitlines() == lines
    assert "s in all" not in capsys.readouterr().out
    file.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:40])  # a killed process left half of the last
    assert call(tmp_path) == 0
    assert capsys.readouterr().out.count("s in all") == 1
    assert json.loads(file.read_text().splitlines()[-1])["key"] == json.loads(lines[-1])["key"]
    assert (tmp_path / "summary.json").read_text() != ""


def test_records_of_other_facts_parts_and_commits_do_not_count(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "records.jsonl").write_text((out / "records.jsonl").read_text())
    other = {**CELLS_HERE, "tiny": Cell({**SMALL, "size": 5})}
    narrow = ("--cells", "tiny", "--seeds", "1", "--methods", "random")
    assert call(tmp_path, *narrow) == 0
    assert call(tmp_path, *narrow, cells=other) == 0
    assert call(tmp_path, *narrow, "--part", "test") == 0
    assert capsys.readouterr().out.count("s in all") == 3
    assert json.loads((tmp_path / "summary-test.json").read_text())["cells"]["tiny"].keys() == {"random"}
    assert json.loads((tmp_path / "summary.json").read_text())["cells"]["tiny"].keys() == {"random"}  # of 5 samples
    for record in (records := Records(tmp_path)).read():
        records.add(replace(record, origin={**record.origin, "commit": "another"}))
    assert call(tmp_path, *narrow) == 0
    assert json.loads((tmp_path / "summary.json").read_text())["cells"]["tiny"].keys() == {*METHODS, "random"}
    assert "s in all" not in capsys.readouterr().out
    assert call(tmp_path, *narrow, "--fresh", "random") == 0
    assert capsys.readouterr().out.count("s in all") == 1


def test_a_job_that_fails_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = Cell({**SMALL, "workers": 1000})
    assert call(tmp_path, "--methods", "random", "--seeds", "1", cells={"broken": broken, "tiny": TINY}) == 1
    said = capsys.readouterr()
    assert "broken random seed 0 failed" in said.err
    assert [record.key.cell for record in Records(tmp_path).read()] == ["tiny"]


@pytest.mark.parametrize("wrong", [("--cells", "tini"), ("--methods", "herdin"), ("--methods", "herding@odd")])
def test_what_cannot_be_run_is_refused_before_anything_runs(tmp_path: Path, wrong: tuple[str, str]) -> None:
    with pytest.raises(SystemExit):
        call(tmp_path, *wrong)
    assert not (tmp_path / "records.jsonl").exists()


def test_a_label_may_have_other_quotas_of_classes() -> None:
    setup = Setup("validation", Path(), ())
    found = {
        label: settings_of(Job(Key("tiny", label, 0, "validation"), TINY, setup)).data.balance
        for label in ("herding", "herding@proportional", "herding@even")
    }
    assert found == {"herding": "even", "herding@proportional": "proportional", "herding@even": "even"}


@pytest.mark.parametrize("name", CELLS)
def test_cells_state_facts_that_a_run_can_be_built_from(name: str, tmp_path: Path) -> None:
    settings = settings_of(Job(Key(name, "random", 0, "validation"), CELLS[name], Setup("validation", tmp_path, ())))
    plain = settings_of(Job(Key(name, "random", 0, "validation"), TINY, Setup("validation", tmp_path, ())))
    assert (settings.f2cto, settings.methods) == (plain.f2cto, plain.methods)
    assert settings.evaluation.pgd_steps == 20
    assert CELLS[name].continual == (settings.data.scenario.tasks > 1)


@pytest.mark.parametrize("key", ["method", "methods", "f2cto", "seed"])
def test_a_cell_that_configures_a_method_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=f"leave out {key}"):
        Cell({**SMALL, key: {}})


def test_facts_have_fingerprints() -> None:
    assert fingerprint(TINY) == fingerprint(Cell(dict(reversed(SMALL.items()))))
    assert fingerprint(TINY) != fingerprint(Cell({**SMALL, "size": 9}))


def entry(mean: float, **changes: int) -> Entry:
    return Entry(mean=mean, std=1.0, seeds=3, passes=2.0, seconds=0.5, collapsed=0) | changes  # type: ignore[return-value]


def test_regrets_are_against_the_best_of_each_cell_that_all_methods_share() -> None:
    cells = {
        "one": {"a": entry(30), "b": entry(20)},
        "two": {"a": entry(10), "b": entry(16, collapsed=1)},
        "half": {"a": entry(99)},
        "fewer": {"a": entry(5), "b": entry(6, seeds=1)},
    }
    found = markdown(cells, ["a", "b"], ["two"])
    assert covering(cells) == ["a"]
    for line in (
        "| one | 30.0 ± 1.0 | 20.0 ± 1.0 |",
        "| two | 10.0 ± 1.0 | 16.0 ± 1.0* |",
        "| half | 99.0 ± 1.0 | – |",
        "| fewer | 5.0 ± 1.0 | 6.0 |",
        "| mean of 2 cells | 20.0 | 18.0 |",
        "| mean of 1 single tasks | 30.0 | 20.0 |",
        "| mean of 1 continual | 10.0 | 16.0 |",
        "| mean regret | 3.0 | 5.0 |",
        "| worst regret | 6.0 | 10.0 |",
        "| wins | 1 | 1 |",
        "Not in means and regrets, for want of results: half, fewer.",
        "* The learner only guesses: b on two, 1 of 3 seeds.",
    ):
        assert line in found.splitlines()


def test_a_single_seed_has_no_deviation() -> None:
    record = Record(Key("c", "m", 0, "validation"), "", {"pgd": 12.0}, 0, 3.0, 0.1, 1.0, {})
    assert summary([record])["c"]["m"]["std"] == 0.0
