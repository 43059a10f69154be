from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from f2cto.cli import main
from f2cto.folder import FILES, RunFolder
from f2cto.methods.catalogue import METHODS
from f2cto.methods.running import Here

FAST = [
    *["select", "--workers", "3", "--size", "5", "--iterations", "3"],
    *["--set", "training.steps=5", "--set", "evaluation.draws=2", "--set", "f2cto.weighting.draws=5"],
]


def last_json(text: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    return result


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "a"
    assert main([*FAST, "--seed", "4", "--out", str(out), "--quiet"]) == 0
    return out


def test_the_folder_holds_everything(finished: Path) -> None:
    assert sorted(f.name for f in finished.iterdir()) == sorted(FILES)
    with (finished / "coreset.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["worker", "index", "row", "label", "weight"]
    assert [row["worker"] for row in rows] == ["0"] * 5 + ["1"] * 5 + ["2"] * 5
    assert len({(row["worker"], row["index"]) for row in rows}) == len({row["row"] for row in rows}) == 15
    metrics = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in metrics] == [1, 2, 3]
    assert set(metrics[0]) == {"iteration", "objective", "gap", "seconds", "robust_accuracy"}
    assert {name: value.shape for name, value in load_file(finished / "model.safetensors").items()}["1.weight"] == (
        64,
        64,
    )
    assert "coreset" in (finished / "report.html").read_text()


def test_settings_repeat_the_run_bit_by_bit(finished: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    assert main(["select", "--preset", str(finished / "settings.toml"), "--out", str(again), "--quiet"]) == 0
    assert (again / "coreset.csv").read_bytes() == (finished / "coreset.csv").read_bytes()
    one, two = load_file(finished / "model.safetensors"), load_file(again / "model.safetensors")
    assert all(torch.equal(one[name], two[name]) for name in one)
    accuracy = [json.loads((folder / "summary.json").read_text())["accuracy"] for folder in (finished, again)]
    assert accuracy[0] == accuracy[1]


def test_a_choice_made_by_a_model_that_learned_nothing_is_said_to_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    steps = [["--set", f"f2cto.proxy.step={step}", "--set", f"f2cto.proxy.hat_step={2 * step}"] for step in (0.0, 0.5)]
    for changes, iterations, noted in ((steps[0], "2", True), (steps[1], "30", False)):
        assert main(["select", "--iterations", iterations, "--no-judge", *changes]) == 0
        assert ("no better than one that always gives the same answer" in capsys.readouterr().out) == noted


def test_json_is_the_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FAST, "--json", "--set", "f2cto.choice=average"]) == 0
    shown = capsys.readouterr().out
    result = last_json(shown)
    assert list(result) == [
        *["method", "seed", "iterations", "stopped", "seconds", "gap", "floats_per_worker", "accuracy"],
        "collapsed",
    ]
    assert (result["method"], result["iterations"], result["stopped"]) == ("f2cto", 3, "iterations")
    assert result["floats_per_worker"] == 4 * 3 * (64 * 64 + 64 + 64 * 64 + 64 + 640 + 10)
    assert list(result["accuracy"]) == ["f2cto", "random", "balanced", "all"]
    for scores in result["accuracy"].values():
        assert set(scores) == {"clean", "fgsm", "pgd"}
        assert all(0 <= value <= 1 for value in scores.values())
    assert "class-balanced random" in shown  # the table, above the object


def test_quiet_prints_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FAST, "--json", "--quiet"]) == 0
    assert len(capsys.readouterr().out.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["select", "--set", "workrs=3"], "There is no setting `workrs`; did you mean `workers`?"),
        (["select", "--set", "workers=x"], "`workers` must be a whole number; got 'x'."),
        (["select", "--set", "workers"], "A setting must look like key=value; got `workers`."),
        (
            ["select", "--size", "300"],
            "Worker 0 has 252 samples but is to keep 300; lower `size` or give it more data.",
        ),
        (["select", "--size", "-1"], "`size` must be a count (10) or a fraction below 1 (0.05)"),
        (["select", "--workers", "5000"], "1258 samples can be dealt out to 1 to 1258 workers; got 5000."),
        (["select", "--iterations", "0"], "In `f2cto.stopping`: The solver needs at least 1 iteration; got 0."),
        (["select", "--seed", "-3"], "A run needs workers >= 1 and seed >= 0"),
        (["select", "--preset", "nope"], "There is no preset `nope`; there are cifar100-paper"),
        (["select", "--workers", "two"], "Argument --workers: invalid int value: 'two'; see `f2cto select --help`."),
        (
            ["select", "--method", "easy", "--set", "f2cto.sharing.aggregation.rule=median"],
            "Weights, aggregation and privacy of `f2cto.sharing` are for F2CTO and its variants, and `easy` would not",
        ),
        (["select", "--threads", "99999999999"], "--threads must be at least 1 and at most 4096; got 99999999999."),
        (["select", "--address", "auto"], "In `federation`: Address and folder are those of a Ray cluster"),
        (["select", "--what"], "Unrecognized arguments: --what; see `f2cto --help`."),
        (["fly"], "Argument COMMAND: invalid choice: 'fly'"),
        ([], "The following arguments are required: COMMAND; see `f2cto --help`."),
    ],
)
def test_what_users_can_mend_is_one_sentence(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = ["--out", str(tmp_path / "out")] if arguments[:1] == ["select"] else []
    assert main([*arguments, *out]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("f2cto: " + complaint)
    assert len(shown.err.strip().splitlines()) == 1
    assert shown.out == ""


def test_a_folder_in_use_is_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    precious = tmp_path / "thesis.txt"
    precious.write_text("ten years of work")
    assert main([*FAST, "--out", str(tmp_path)]) == 2
    assert f"The folder {tmp_path} is not empty; choose another --out, or overwrite its run with --force." in (
        capsys.readouterr().err
    )
    assert [f.name for f in tmp_path.iterdir()] == ["thesis.txt"]
    assert main([*FAST, "--out", str(tmp_path), "--force", "--quiet"]) == 0
    assert precious.read_text() == "ten years of work"
    assert (tmp_path / "report.html").exists()


def test_a_file_in_the_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main([*FAST, "--out", str(tmp_path / "file")]) == 2
    assert "Cannot write to" in capsys.readouterr().err


def test_a_run_that_dies_leaves_what_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coreset is on disk before anything is judged."""

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunFolder, "write_report", full_disk)
    assert main([*FAST, "--out", str(tmp_path), "--quiet"]) == 1
    assert {f.name for f in tmp_path.iterdir()} == set(FILES) - {"summary.json", "report.html"}


def test_warnings_are_notes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FAST, "--quiet", "--set", "f2cto.perturbation.step=0.001"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("f2cto: note: 3 perturbation steps of 0.001 from zero reach 0.003, short of the radius")


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert "class" in capsys.readouterr().out
    assert main(["list", "--json"]) == 0
    listed = last_json(capsys.readouterr().out)
    assert [method["name"] for method in listed["methods"]] == list(METHODS)
    assert {"name", "about", "reference", "levels"} <= set(listed["methods"][0])
    asked_for = {
        *(
            "random",
            "balanced",
            "kcenter",
            "herding",
            "facility",
            "easy",
            "bcsr",
            "greedy",
            "acs",
            "gcfl",
            "fedcs",
            "afto",
        ),
        *(
            "dtzo",
            "tsg",
            "f2cto",
            "f2cto-sparse",
            "f2cto-ef",
            "f2cto-literal",
            "f2cto-places",
            "f2cto-top",
            "ubv",
            "lbv",
            "f2cto+p",
            "adbo",
        ),
        "fednest",
    }
    assert set(METHODS) == asked_for
    assert {"name": "digits"}.items() <= listed["data"][0].items()


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        [str(Path(sys.executable).parent / "f2cto"), *arguments], capture_output=True, text=True, check=False
    )


def test_the_installed_command() -> None:
    version = run_command("--version")
    assert (version.returncode, version.stdout.split()[0]) == (0, "f2cto")
    shown = run_command("select", "--help")
    assert "examples:" in shown.stdout
    assert run_command("select", "--preset", "nope").returncode == 2


def test_help_does_not_wait_for_torch() -> None:
    code = (
        "import sys; from f2cto.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
        "assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0  # noqa: S603


def test_workers_elsewhere_get_the_threads_too(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int | None]()

    def gather_of(_: object, threads: int | None) -> type[Here]:
        asked.append(threads)
        return Here

    monkeypatch.setattr("f2cto.experiment.gather_of", gather_of)
    quick = ["select", "--method", "random", "--no-judge", "--engine", "ray", "--quiet"]
    assert main([*quick, "--threads", "1"]) == 0
    assert main(quick) == 0
    assert asked == [1, None]


@pytest.mark.parametrize(
    ("method", "change", "complaint"),
    [
        ("f2cto-places", "f2cto.choice=greedy", '`f2cto-places` stands for `choice` = "places"'),
        ("f2cto-literal", "f2cto.sharing.exchanges=1", "With one exchange an iteration w^ has made its step"),
        ("gcfl", "federation.faults.on_failure=continue", "This method needs every worker in every round"),
    ],
)
def test_what_a_method_cannot_do_is_said(
    method: str, change: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["select", "--method", method, "--set", change, "--quiet"]) == 2
    assert capsys.readouterr().err.startswith("f2cto: " + complaint)
