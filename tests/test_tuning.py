"""`f2cto tune`: what is searched, that test samples stay unseen, and that a search goes on where it stopped."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
import torch

from f2cto.cli import main, tuning_trials
from f2cto.cli.tuning_files import HEAD, saved_text
from f2cto.cli.tuning_trials import Plan, may_draw
from f2cto.comparison import stream
from f2cto.config import SettingsError, build, merged
from f2cto.evaluation import Part
from f2cto.methods.catalogue import METHODS
from f2cto.preparation import Prepared
from f2cto.presets import preset_file, read_preset
from f2cto.records import Row
from f2cto.run_settings import RunSettings
from f2cto.tuning import Search, Trial, at_random, best, draw, on_validation, points, present, settled, tried, value
from f2cto.tuning_spaces import SPACES, Dimension, Kind, Value
from f2cto.tuning_tpe import by_estimator

TINY = {
    "workers": 2,
    "size": 5,
    "network": {"hidden": [8]},
    "training": {"steps": 4, "attack_steps": 1},
    "evaluation": {"pgd_steps": 2, "strong_steps": 2},
    "data": {"scenario": {"samples": 100, "validation": 0.3}},
}
SETTINGS = on_validation(build(RunSettings, TINY), "pgd")
OPEN = [name for name, space in SPACES.items() if space]


def search(name: str, **given: int) -> Search:
    return Search(SETTINGS, name, **given)  # type: ignore[arg-type]


def built(of: Search, changes: dict[str, Value]) -> object:
    return of.contender(changes).configured(of.settings).of(of.method)


def flat(values: dict[str, object], path: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for key, item in values.items():
        found |= flat(item, f"{path}{key}.") if isinstance(item, dict) else {path + key: item}
    return found


def test_every_method_has_a_space() -> None:
    assert list(SPACES) == list(METHODS)
    assert {name for name in SPACES if not SPACES[name]} == {"random", "balanced", "f2cto-literal", "f2cto-sparse"}
    assert all(3 <= len(SPACES[name]) <= 6 for name in OPEN)


@pytest.mark.parametrize("name", OPEN)
def test_defaults_lie_within_and_follow_the_rules(name: str) -> None:
    of = search(name)
    defaults = flat(of.own())
    for dimension, at in zip(of.space, present(of), strict=True):
        assert dimension.holds(at)
        for key, expected in dimension.changes(at).items():
            assert defaults[key] == expected


def test_what_trains_no_model_first_is_not_made_to() -> None:
    learner = on_validation(build(RunSettings, read_preset("cifar100-rehearsal")), "pgd")
    learner = replace(learner, data=replace(learner.data, scenario=replace(learner.data.scenario, validation=0.3)))
    assert [d.key for d in Search(learner, "easy").space] == ["attack_steps", "classwise"]
    assert not [key for key in draw(Search(learner, "easy"), 1) if key.startswith("pretraining")]
    assert "pretraining.rounds" in [d.key for d in search("easy").space]


@pytest.mark.parametrize("name", OPEN)
def test_extremes_and_draws_can_be_built_and_change_nothing_else(name: str) -> None:
    of = search(name)
    before = flat(of.own())
    drawn = [draw(of, number) for number in range(1, 6)]
    assert len({json.dumps(changes) for changes in drawn}) == 5
    ends = [{k: v for d in of.space for k, v in d.changes(d.at(share)).items()} for share in (0.0, 1.0)]
    for changes in (*drawn, *ends):
        built(of, changes)
        after = flat(of.changed(changes))
        assert after.keys() == before.keys()
        assert {key for key in after if after[key] != before[key]} <= set(changes)
        assert all(dimension.holds(changes[dimension.key]) for dimension in of.space)
    assert all(ends[0][d.key] != ends[1][d.key] for d in of.space)


def test_a_group_keeps_the_defaults_of_its_method() -> None:
    """`pretraining.local` of one round has 20 steps, `Training` by itself 300."""
    of = search("gcfl")
    after = of.contender({"pretraining.local.rate": 0.3}).configured(of.settings).methods["gcfl"]
    assert after["pretraining"]["local"]["steps"] == 20
    assert after["pretraining"]["local"]["rate"] == 0.3


def test_values_along_a_dimension() -> None:
    log = Dimension("a", Kind.LOG, 0.01, 1.0)
    assert [log.at(share) for share in (0.0, 0.5, 1.0)] == pytest.approx([0.01, 0.1, 1.0])
    whole = Dimension("a", Kind.WHOLE, 2, 4)
    assert [whole.at(share) for share in (0.0, 0.34, 0.67, 0.999, 1.0)] == [2, 3, 4, 4, 4]
    choice = Dimension("a", Kind.CHOICE, options=("x", "y"))
    assert [choice.at(share) for share in (0.0, 0.49, 0.5, 1.0)] == ["x", "x", "y", "y"]
    assert Dimension("a", Kind.UNIFORM, 0.0, 2.0).at(0.25) == 0.5
    assert not whole.holds(2.5)
    assert not log.holds(2.0)
    assert not log.holds(True)  # noqa: FBT003


def test_draws_depend_on_first_seed_method_and_number_alone() -> None:
    assert draw(search("gcfl"), 0) == {}
    assert draw(search("gcfl"), 3) == draw(search("gcfl", seeds=2), 3)
    others = [draw(search("gcfl"), 4), draw(search("gcfl", first_seed=7), 3), draw(search("kcenter"), 3)]
    assert draw(search("gcfl"), 3) not in others
    assert draw(search("kcenter"), 3) != draw(search("herding"), 3)  # the same space


def test_what_cannot_be_built_is_drawn_again() -> None:
    seen: list[int] = []

    def propose(space: Sequence[Dimension], seed: int) -> list[Value]:
        seen.append(seed)
        values = at_random(space, seed)
        return [-1.0 if d.key == "ridge" and len(seen) % 3 else v for d, v in zip(space, values, strict=True)]

    first, second = (draw(search("gcfl"), 1, propose) for _ in range(2))
    assert first == second
    assert first["ridge"] != -1.0
    assert seen[:3] == seen[3:]
    assert len(set(seen)) == 3
    with pytest.raises(SettingsError, match="`ridge` must be >= 0"):
        draw(search("gcfl"), 1, lambda space, seed: ["nearest", -1.0, *at_random(space, seed)[2:]])


def test_the_best_is_the_highest_and_the_earlier_of_equals() -> None:
    scores = [0.2, 0.5, 0.5, 0.4, 0.0]
    trials = [Trial(i, {}, score, [score], 1.0, "broke" if i == 4 else "") for i, score in enumerate(scores)]
    assert best(trials[::-1]).number == 1
    assert best([trials[4], trials[0]]).number == 0
    with pytest.raises(ValueError, match="None of 1 trials"):
        best([trials[4]])


def test_the_score_is_the_mean_over_tasks_and_seeds_under_the_attack() -> None:
    rows = [Row("m", 0, t, a, s, 0, 0, 0, 0.0, None) for t, a, s in [(1, "pgd", 0.2), (1, "clean", 1), (2, "pgd", 0.6)]]
    assert value(rows, "pgd") == pytest.approx(0.4)
    of, asked = search("herding", seeds=2, first_seed=50), list[int]()

    def stages(seed: int) -> list[Prepared]:
        asked.append(seed)
        return stream(of.settings, seed, Path())

    trial = tried(of, 0, {}, stages)
    assert asked == [50, 51]
    assert trial.score == pytest.approx(fmean(trial.scores))
    assert len(trial.scores) == 2
    assert not trial.failed


def test_a_method_that_fails_is_a_result() -> None:
    of = search("herding")
    stages = [replace(stage, test=None) for stage in stream(of.settings, 1000, Path())]
    trial = tried(of, 1, {"space": "inputs"}, lambda _: stages)
    assert "no samples to judge on" in trial.failed
    assert trial.score == 0


def test_only_validation_samples_judge() -> None:
    """They are training samples of the same seed under another name, and no test sample is among them."""
    of = search("herding")
    assert of.settings.evaluation.part is Part.VALIDATION
    assert of.settings.evaluation.strong_steps == 0
    everything = merged(TINY, {"data": {"scenario": {"samples": 0}}, "seed": 1000})
    test = build(RunSettings, everything)
    (judged,) = stream(on_validation(test, "pgd"), 1000, Path())
    (final,) = stream(test, 1000, Path())
    assert judged.test is not None
    assert final.test is not None
    seen, unseen, training = ({r.numpy().tobytes() for r in d.x} for d in (judged.test, final.test, final.train))
    assert seen <= training
    assert not seen & unseen
    assert not torch.cat([judged.train.x, judged.test.x]).shape[0] > len(final.train)
    with pytest.raises(SettingsError, match="chosen on validation samples"):
        Search(test, "herding")
    with pytest.raises(SettingsError, match="leaves none"):
        Search(on_validation(build(RunSettings, {"data": {"scenario": {"validation": 0}}}), "pgd"), "herding")
    with pytest.raises(SettingsError, match="there are clean, fgsm, pgd"):
        Search(of.settings, "herding", "pgd-strong")


def test_the_estimator_looks_where_scores_are_high() -> None:
    pytest.importorskip("optuna")
    space = [Dimension("x", Kind.UNIFORM, 0.0, 1.0), Dimension("c", Kind.CHOICE, options=("good", "bad"))]
    known = [([i / 30, c], 1 - i / 30 - (c == "bad")) for i in range(31) for c in ("good", "bad")]
    found = [by_estimator(known, space, seed) for seed in range(8)]
    assert found == [by_estimator(known, space, seed) for seed in range(8)]
    assert fmean(float(x) for x, _ in found) < 0.25
    assert [c for _, c in found].count("good") >= 7


def test_the_estimator_does_not_wait_for_trials_that_run_beside() -> None:
    pytest.importorskip("optuna")
    of = search("gcfl")
    done = {n: Trial(n, draw(of, n), n % 7 / 10, [], 1.0) for n in range(13)}
    plan = Plan(of, Path(), 20, 1.0, 2, estimated=True)
    known = {n: done[n] for n in range(12)}  # trial 13 may be drawn while trial 12 runs
    assert may_draw(plan, known, 13)
    assert not may_draw(plan, {n: done[n] for n in range(13) if n != 11}, 13)
    drawn = tuning_trials.changes(plan, known, 13)
    assert drawn == tuning_trials.changes(plan, done, 13)
    assert drawn != tuning_trials.changes(replace(plan, estimated=False), known, 13)


def test_points_leave_out_what_lies_outside() -> None:
    of = search("gcfl")
    trials = [Trial(0, {}, 0.1, [0.1], 1.0), Trial(1, draw(of, 1), 0.3, [0.3], 1.0)]
    assert [score for _, score in points(of, trials)] == [0.1, 0.3]
    assert points(of, trials)[0][0] == ["nearest", 0.5, 20, 0.1]
    outside = of.started_from({"ridge": 50.0})
    assert [score for _, score in points(outside, trials)] == [0.3]


def preset(folder: Path) -> Path:
    file = folder / "tiny.toml"
    file.write_text(
        "workers = 2\nsize = 5\nnetwork.hidden = [8]\ndata.scenario = { samples = 100, validation = 0.3 }\n"
        "training = { steps = 4, attack_steps = 1 }\nevaluation.pgd_steps = 2\n"
        "methods.gcfl.pretraining = { rounds = 3, local = { steps = 1, attack_steps = 1 } }\n"
        "methods.herding.pretraining.local = { steps = 1, attack_steps = 1 }\n"
    )
    return file


def tune(folder: Path, *more: str, method: str = "herding", trials: int = 3, preset: str = "tiny.toml") -> int:
    out = ["--out", str(folder / method), "--quiet"]
    return main(["tune", "--preset", str(folder / preset), "--method", method, "--trials", str(trials), *out, *more])


def rows(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]


def without_clock(trial: dict[str, object]) -> dict[str, object]:
    return {key: item for key, item in trial.items() if key not in {"seconds", "ended"}}


def test_a_search_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    preset(tmp_path)
    assert tune(tmp_path) == 0
    whole = rows(tmp_path / "herding")
    assert [row["number"] for row in whole] == [0, 1, 2]
    assert whole[0]["changes"] == {}
    marked = {**whole[0], "score": 0.123}  # what is there is not computed again
    (tmp_path / "herding" / "trials.jsonl").write_text(json.dumps(marked) + "\n" + json.dumps(whole[2])[:30])
    assert tune(tmp_path) == 0
    again = rows(tmp_path / "herding")
    assert again[0] == marked
    assert [without_clock(row) for row in again[1:]] == [without_clock(row) for row in whole[1:]]
    assert (
        tomllib.loads((tmp_path / "herding" / "search.toml").read_text())["settings"]["evaluation"]["part"]
        == "validation"
    )


def test_no_trial_starts_after_the_time(tmp_path: Path) -> None:
    preset(tmp_path)
    assert tune(tmp_path, "--minutes", "1e-9") == 0
    assert [row["number"] for row in rows(tmp_path / "herding")] == [0]
    assert tune(tmp_path, "--minutes", "1e-9") == 0
    assert len(rows(tmp_path / "herding")) == 1


def test_what_is_saved_is_the_preset_with_the_best_settings(tmp_path: Path) -> None:
    file, mine = preset(tmp_path), tmp_path / "mine.toml"
    before = build(RunSettings, read_preset(str(file)))
    assert tune(tmp_path, "--save", str(mine), method="gcfl") == 0
    more = ["--save", str(mine), "--set", "methods.herding.pretraining.local.batch=7"]
    assert tune(tmp_path, *more, preset="mine.toml") == 0
    batch = merged(before.methods, {"herding": {"pretraining": {"local": {"batch": 7}}}})
    after = build(RunSettings, read_preset(str(mine)))
    assert replace(after, methods=before.methods) == before
    for name in ("gcfl", "herding"):
        trials = [Trial(**row) for row in rows(tmp_path / name)]  # type: ignore[arg-type]
        of = Search(on_validation(replace(before, methods=batch), "pgd"), name)
        assert Search(on_validation(after, "pgd"), name).own() == of.changed(best(trials).changes)
        line = next(line for line in mine.read_text().splitlines() if line.startswith(f"# {name}: "))
        assert f"--method {name} --trials 3" in line
        assert "3 of 3 trials" in line
        assert f"{100 * best(trials).score:.1f} % under pgd on validation samples" in line


def test_saving_changes_no_other_file(tmp_path: Path) -> None:
    package = preset_file("digits").parent
    before = {file.name: file.read_bytes() for file in package.iterdir() if file.is_file()}
    small = "workers=2 network.hidden=[8] training.steps=4 evaluation.pgd_steps=2 data.scenario.samples=100"
    few = [part for text in small.split() for part in ("--set", text)]
    out = ["--out", str(tmp_path / "out"), "--save", str(tmp_path / "mine.toml"), "--quiet"]
    assert main(["tune", "--preset", "digits", "--method", "herding", "--trials", "2", *few, *out]) == 0
    assert {file.name: file.read_bytes() for file in package.iterdir() if file.is_file()} == before
    assert read_preset(str(tmp_path / "mine.toml"))["workers"] == 5  # what the search alone was told is not kept


def test_text_of_saved_settings() -> None:
    values = {"size": 3, "training": {"rate": 1.0}, "methods": {"gcfl": {"ridge": 0.1}}}
    first = saved_text(values, "", ("gcfl", {"ridge": 0.1}), "one\nline")
    second = saved_text(values, first, ("f2cto", {"proxy": {"step": 0.2}}), "two")
    third = saved_text(tomllib.loads(second), second, ("gcfl", {"ridge": 0.2}), "three")
    assert "# gcfl: one line\n[methods.gcfl]" in second
    assert tomllib.loads(second) == values | {"f2cto": {"proxy": {"step": 0.2}}}
    assert "# gcfl: three\n[methods.gcfl]" in third
    assert "# f2cto: two\n[f2cto.proxy]" in third
    assert "one line" not in third
    assert tomllib.loads(third)["methods"] == {"gcfl": {"ridge": 0.2}}


def test_settled_holds_all_that_was_searched() -> None:
    of = search("adbo")
    assert set(settled(of, Trial(0, {}, 0.0, [], 0.0))) == {
        *{"iterations", "model_step", "shared_step", "weights", "attack_steps", "duals"}
    }


def test_a_search_goes_on_from_where_it_began_after_a_save(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(HEAD + preset(tmp_path).read_text())
    began = Search(on_validation(build(RunSettings, read_preset(str(mine))), "pgd"), "herding")
    for first in (0.0, 1.0):  # at first another trial is saved; then what was set before turns out best
        assert tune(tmp_path, trials=2, preset="mine.toml") == 0
        trials = [{**row, "score": first if row["number"] == 0 else 0.5} for row in rows(tmp_path / "herding")]
        (tmp_path / "herding" / "trials.jsonl").write_text("".join(json.dumps(row) + "\n" for row in trials))
        assert tune(tmp_path, "--save", str(mine), trials=2, preset="mine.toml") == 0
        now = Search(on_validation(build(RunSettings, read_preset(str(mine))), "pgd"), "herding")
        assert (now.own() == began.own()) == (first == 1.0)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("mine.txt", "whose name ends with .toml"),
        ("gone/mine.toml", "cannot write to"),
        ("tiny.toml", "tiny.toml exists; name another file"),  # the preset, but of the user's own hand
        ("other.toml", "other.toml exists; name another file"),  # saved by a search, but not the preset
    ],
)
def test_where_nothing_can_be_saved_is_said_first(
    file: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    preset(tmp_path)
    (tmp_path / "other.toml").write_text(HEAD)
    assert tune(tmp_path, "--save", str(tmp_path / file)) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "herding").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--method", "random"], 0, "has no open settings"),
        (["--method", "ubv", "--save", "mine.toml"], 2, "has the settings of `f2cto`"),
        (["--method", "gcfl", "--trials", "0"], 2, "must be at least 1"),
        (["--method", "nobody"], 2, "There is no method `nobody`"),
        (["--method", "gcfl", "--objective", "autoattack"], 2, "No attack `autoattack`"),
    ],
)
def test_what_cannot_be_tuned_is_said(
    arguments: list[str], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["tune", "--preset", str(preset(tmp_path)), "--trials", "2", "--out", str(out), *arguments]) == code
    shown = capsys.readouterr()
    assert said in shown.out + shown.err
    assert not out.exists()


def test_another_search_needs_another_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    preset(tmp_path)
    assert tune(tmp_path, trials=1) == 0
    assert tune(tmp_path, "--set", "training.steps=5", trials=1) == 2
    assert "settings.training.steps" in capsys.readouterr().err
    assert tune(tmp_path, "--first-seed", "3", trials=1) == 2


def test_the_docs_list_the_spaces() -> None:
    text = (Path(__file__).parent.parent / "docs" / "tuning.md").read_text()
    for name in OPEN:
        line = next(line for line in text.splitlines() if line.startswith("| ") and f"`{name}`" in line.split("|")[1])
        assert line.split("|")[2].strip() == "; ".join(map(str, SPACES[name]))
