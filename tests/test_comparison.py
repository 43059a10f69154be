from __future__ import annotations

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from f2cto.cli import main
from f2cto.cli.comparing import radii
from f2cto.comparison import cell, contender, stream
from f2cto.comparison_folder import ComparisonFolder
from f2cto.config import SettingsError, build, merged
from f2cto.preparation import Prepared
from f2cto.records import Row
from f2cto.rehearsal import Picked
from f2cto.run_settings import RunSettings
from f2cto.training import FORMER
from tests.test_rehearsal import SMALL

TINY = ["training.steps=3", "training.batch=10", "network.hidden=[8]", "evaluation.pgd_steps=2", "evaluation.draws=1"]
CALL = ["compare", "--preset", "digits", "--quiet", *(part for text in TINY for part in ("--set", text))]


def test_labels_carry_settings() -> None:
    who = contender("f2cto:local_rounds=5:weighting.topk=1.0")
    assert who.configured(RunSettings()).f2cto.local_rounds == 5
    assert who.configured(RunSettings()).f2cto.weighting.topk == 1.0
    assert contender("herding:space=features").changes == {"space": "features"}


def test_settings_of_a_preset_stay_where_a_label_says_nothing() -> None:
    settings = build(RunSettings, {"f2cto": {"local_rounds": 3}})
    assert contender("f2cto:weighting.topk=1.0").configured(settings).f2cto.local_rounds == 3


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("magic", "There is no method `magic`"),
        ("f2cto:local_round=5", "did you mean `f2cto.local_rounds`"),
        ("f2cto:local_rounds", "must look like key=value"),
        ("f2cto:local_rounds=0", "must be at least 1"),
        ("none:x=1", "has no settings"),
    ],
)
def test_wrong_labels_are_refused_before_anything_runs(label: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        contender(label)


def test_a_table_says_if_samples_were_chosen_against_another_radius() -> None:
    settings = build(RunSettings, {"evaluation": {"radius": 0.1}})
    assert "choosing" not in radii(settings)
    assert "while choosing 0.05 (" in radii(replace(settings, selection_radius=0.05))


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("f2cto-places:choice=greedy", '`f2cto-places` stands for `choice` = "places"; got `choice` = "greedy"'),
        ("f2cto-places:weighting.frozen=false", "`weighting.frozen` = true; got `weighting.frozen` = false"),
        ("f2cto+p:local_rounds=1", "`local_rounds` = 5; got `local_rounds` = 1"),
        ("f2cto-top:screening.rounds=3", "`screening.rounds` = 0; got `screening.rounds` = 3"),
        (
            "ubv:perturbation.train_radius=0.2",
            "`perturbation.train_radius` = 0.0; got `perturbation.train_radius` = 0.2",
        ),
        (
            "f2cto-literal:proxy.step=1:weighting.topk=0.7:choice=average",
            '`proxy.step` = 0.005, `choice` = "top"; got `proxy.step` = 1.0, `choice` = "average"',
        ),
    ],
)
def test_a_label_that_its_variant_would_override_is_refused(label: str, said: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(said)):
        contender(label)


@pytest.mark.parametrize("label", ["f2cto-places:choice=places", "f2cto+p:local_rounds=7", "lbv:weighting.step=0.2"])
def test_a_label_that_its_variant_leaves_is_heeded(label: str) -> None:
    contender(label)


def test_what_a_preset_says_may_be_overridden_but_not_what_the_user_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The variants have the settings of F2CTO, of a preset as well, but for what they stand for."""
    contender("f2cto-top", build(RunSettings, {"f2cto": {"screening": {"rounds": 3, "since": 1}}}))
    call = [*CALL, "--set", "f2cto.choice=greedy", "--seeds", "1", "--out", str(tmp_path / "out")]
    assert main([*call, "--methods", "random,f2cto-places"]) == 2
    assert '`f2cto-places` stands for `choice` = "places"; got `choice` = "greedy"' in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_memory_without_room_for_every_task_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"3 tasks need room for 2 samples; got `rehearsal.memory` = 1"):
        stream(build(RunSettings, merged(SMALL, {"rehearsal": {"memory": 1}})), 0, Path())


def test_a_comparison_that_judges_nothing_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"evaluation.draws"):
        stream(build(RunSettings, merged(SMALL, {"evaluation": {"draws": 0}})), 0, Path())


def small_stages() -> list[Prepared]:
    return stream(build(RunSettings, merged(SMALL, {"training": {"steps": 5}})), 0, Path())


def test_coresets_that_were_selected_are_not_selected_again(tmp_path: Path) -> None:
    folder = ComparisonFolder(tmp_path)
    first = cell(small_stages(), contender("random"), folder)
    stored = sorted(path.name for path in (tmp_path / "coresets").iterdir())
    assert stored == ["random-seed0-task1.json", "random-seed0-task2.json"]
    file = tmp_path / "coresets" / stored[0]
    picked = json.loads(file.read_text())
    file.write_text(json.dumps(picked | {"seconds": 123.0}))
    again = cell(small_stages(), contender("random"), folder)
    assert [r.accuracy for r in again] == [r.accuracy for r in first]
    assert again[0].seconds == 123.0
    file.write_text("{broken")
    assert cell(small_stages(), contender("random"), folder)[0].accuracy == first[0].accuracy


def test_labels_make_names_of_files(tmp_path: Path) -> None:
    folder = ComparisonFolder(tmp_path)
    folder.keep("f2cto:weighting.step=0.1", 0, 1, Picked([[1]]))
    assert folder.find("f2cto:weighting.step=0.1", 0, 1) == Picked([[1]])
    assert folder.find("f2cto:weighting.step=0.2", 0, 1) is None
    assert all(path.parent == tmp_path / "coresets" for path in tmp_path.rglob("*.json"))


def row(method: str, seed: int, attack: str) -> Row:
    return Row(method, seed, 1, attack, 0.5, 1.0, 2, 3, 0.1, None)


def test_what_a_killed_process_left_is_dropped(tmp_path: Path) -> None:
    folder = ComparisonFolder(tmp_path)
    whole = [row("a", 0, "clean"), row("a", 0, "pgd")]
    folder.add(whole)
    folder.add([row("b", 0, "clean")])
    with (tmp_path / "records.jsonl").open("a") as file:
        file.write('{"method": "c", "se')
    assert folder.rows(2) == whole
    folder.add([row("b", 0, "clean"), row("b", 0, "pgd")])
    assert len(folder.rows(2)) == 4


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]


def test_the_command_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    call = [*CALL, "--methods", "random,balanced,all", "--seeds", "2", "--out", str(tmp_path)]
    assert main(call) == 0
    records = tmp_path / "records.jsonl"
    lines = records.read_text().splitlines()
    assert len(lines) == 3 * 2 * 3
    rows = [json.loads(line) for line in lines]
    assert {"method", "seed", "task", "attack", "accuracy", "seconds", "floats"} <= set(rows[0])
    table = (tmp_path / "table.md").read_text()
    assert "f2cto compare --preset digits --methods random,balanced,all --seeds 2" in table
    records.write_text("\n".join(lines[:-2]) + "\n")  # as if killed while the last part was written
    marked = json.dumps(rows[0] | {"accuracy": 0.125})
    records.write_text("\n".join([marked, *lines[1:-2]]) + "\n")
    assert main(call) == 0
    again = [json.loads(line) for line in records.read_text().splitlines()]
    assert again[0]["accuracy"] == 0.125  # what was there is not computed anew
    assert [r["accuracy"] for r in again[1:]] == [r["accuracy"] for r in rows[1:]]
    for name in ("table.csv", "table.tex", "table.svg", "settings.toml"):
        assert (tmp_path / name).stat().st_size > 0


def test_two_processes_find_what_one_finds(tmp_path: Path) -> None:
    call = [*CALL, "--methods", "random,balanced", "--seeds", "1"]
    assert main([*call, "--out", str(tmp_path / "one")]) == 0
    assert main([*call, "--jobs", "2", "--out", str(tmp_path / "two")]) == 0
    one, two = (
        {(r["method"], r["attack"]): r["accuracy"] for r in records(tmp_path / name)} for name in ("one", "two")
    )
    assert one == two


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--methods", "random,magic"], "There is no method `magic`"),
        (["--methods", "none"], "With one task there is nothing to rehearse"),
        (["--methods", "random", "--seeds", "0"], "must be at least 1"),
        (["--methods", "random", "--set", "evaluation.auto_samples=5", "--set", "data.range.high=2"], "[0, 1]"),
    ],
)
def test_what_cannot_run_is_said_at_once(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*CALL, *options, "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out" / "records.jsonl").exists()


def test_a_folder_made_with_other_settings_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = [*CALL, "--methods", "random", "--seeds", "1", "--out", str(tmp_path)]
    assert main(call) == 0
    assert main([*call, "--set", "size=7"]) == 2
    assert "was made with other settings (size)" in capsys.readouterr().err


def test_a_method_may_be_tuned_before_it_joins_a_comparison_and_not_after(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = [*CALL, "--seeds", "1", "--out", str(tmp_path)]
    tuned = ["--set", "methods.herding.classwise=false"]
    assert main([*call, "--methods", "random"]) == 0
    assert main([*call, "--methods", "random,herding", *tuned]) == 0
    assert main([*call, "--methods", "herding"]) == 2
    assert "other settings (methods.herding.classwise)" in capsys.readouterr().err


def test_a_folder_made_with_the_former_recipe_is_not_mixed_with_this_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = [*CALL, "--methods", "random", "--seeds", "1", "--out", str(tmp_path)]
    former = [part for key, value in FORMER.items() for part in ("--set", f"training.{key}={value}")]
    assert main([*call, *former]) == 0
    file = tmp_path / "settings.toml"
    values = tomllib.loads(file.read_text())
    values["training"] = {key: value for key, value in values["training"].items() if key not in FORMER}
    file.write_text(tomli_w.dumps(values))  # as it was written before these settings existed
    assert main(call) == 2
    assert "training." in capsys.readouterr().err
    assert main([*call, *former]) == 0


def test_learners_that_collapse_are_recorded_and_marked(tmp_path: Path) -> None:
    wild = ["--set", "training.rate=1e30"]  # no number of halvings helps
    assert main([*CALL, *wild, "--methods", "random,balanced", "--seeds", "1", "--out", str(tmp_path)]) == 0
    assert {row["collapsed"] for row in records(tmp_path)} == {True}
    text = (tmp_path / "table.md").read_text()
    assert "‡ After at least one task some learners only guess" in text
    assert "random on seed 0" in text


def test_a_method_that_fails_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # A step so long that the proxy's loss is no number any more.
    broken = "f2cto:stopping.iterations=3:proxy.step=1e30:proxy.hat_step=1e30:proxy.radius=1e35"
    assert main([*CALL, "--methods", f"{broken},random", "--seeds", "1", "--out", str(tmp_path)]) == 1
    assert "failed on seed 0: " in capsys.readouterr().err
    assert {r["method"] for r in records(tmp_path)} == {"random"}


def test_coresets_selected_with_settings_that_no_longer_hold_are_forgotten(tmp_path: Path) -> None:
    folder = ComparisonFolder(tmp_path)
    folder.claim({"methods": {"herding": {"classwise": True}}})
    for label in ("herding", "herding:space=features", "facility"):
        folder.keep(label, 0, 1, Picked([[1]]))
    folder.claim({"methods": {"herding": {"classwise": False}}})
    assert folder.find("herding", 0, 1) is None
    assert folder.find("herding:space=features", 0, 1) is None
    assert folder.find("facility", 0, 1) == Picked([[1]])


def test_two_processes_that_did_the_same_part_lose_nothing(tmp_path: Path) -> None:
    folder = ComparisonFolder(tmp_path)
    for _ in range(2):
        folder.add([row("a", 0, "clean"), row("a", 0, "pgd")])
    assert folder.rows(2) == [row("a", 0, "clean"), row("a", 0, "pgd")]


def test_rows_of_another_version_are_not_thrown_away(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text('{"method": "a", "seed": 0, "colour": "red"}\n')
    with pytest.raises(SettingsError, match="rows of another version"):
        ComparisonFolder(tmp_path).rows(2)
    assert "red" in file.read_text()


def test_labels_are_held_against_the_settings_of_the_run() -> None:
    settings = build(RunSettings, {"methods": {"f2cto-ef": {"filtering": {"since": 4, "rounds": 20}}}})
    assert contender("f2cto-ef:filtering.rounds=12", settings).changes == {"filtering": {"rounds": 12}}
    with pytest.raises(SettingsError, match="since"):
        contender("f2cto-ef:filtering.rounds=3", settings)


def test_a_coreset_larger_than_a_shard_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = [*CALL, "--methods", "random", "--set", "size=500", "--out", str(tmp_path / "out")]
    assert main(call) == 2
    assert "is to keep 500" in capsys.readouterr().err
