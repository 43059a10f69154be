from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w

from f2cto.config import SettingsError, assignment, build, merged, plain, read_toml
from f2cto.methods.bcsr import BcsrSettings
from f2cto.presets import preset_names, read_preset
from f2cto.run_settings import RunSettings


@pytest.mark.filterwarnings("ignore:.*short of the radius")  # as printed
@pytest.mark.parametrize("name", preset_names())
def test_every_preset_builds_and_survives_a_round_trip(name: str, tmp_path: Path) -> None:
    settings = build(RunSettings, read_preset(name))
    path = tmp_path / "settings.toml"
    path.write_text(tomli_w.dumps(plain(settings)))
    assert build(RunSettings, read_preset(str(path))) == settings


def test_defaults_round_trip() -> None:
    assert build(RunSettings, plain(RunSettings())) == RunSettings()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("workers=3", {"workers": 3}),
        ("f2cto.weighting.topk = 0.5", {"f2cto": {"weighting": {"topk": 0.5}}}),
        ("data=digits", {"data": "digits"}),
        ("network.hidden=[8, 4]", {"network": {"hidden": [8, 4]}}),
        ("f2cto.proxy.waits=false", {"f2cto": {"proxy": {"waits": False}}}),
    ],
)
def test_assignments(text: str, expected: dict[str, object]) -> None:
    assert assignment(text) == expected


def test_the_one_above_wins() -> None:
    assert merged({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 5}}) == {"a": {"b": 5, "c": 2}, "d": 3}


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"worker": 3}, "no setting `worker`; did you mean `workers`"),
        (
            {"f2cto": {"weighting": {"lambda": 1}}},
            "no setting `f2cto.weighting.lambda`; known here: f2cto.weighting.step",
        ),
        ({"workers": "three"}, "`workers` must be a whole number; got 'three'"),
        ({"workers": 2.5}, "`workers` must be a whole number"),
        ({"workers": True}, "`workers` must be a whole number"),
        ({"f2cto": {"proxy": {"waits": 1}}}, "`f2cto.proxy.waits` must be true or false"),
        ({"f2cto": {"choice": "best"}}, "`f2cto.choice` must be one of top, average, greedy, places; got 'best'"),
        ({"f2cto": 3}, "`f2cto` is a group of settings; set one of its keys, such as `f2cto.weighting`"),
        ({"network": {"hidden": 100}}, "`network.hidden` must be a list"),
        ({"network": {"hidden": [1.5]}}, r"`network.hidden\[0\]` must be a whole number"),
        ({"data": {"source": "mars"}}, "no data set `mars`; there are digits"),
        ({"workers": 0}, "workers >= 1"),
        ({"seed": -1}, "seed >= 0"),
        ({"training": {"steps": 0}}, "In `training`: Training needs"),
        ({"evaluation": {"draws": -1}}, "In `evaluation`: Evaluation needs"),
        ({"data": {"range": {"low": 2}}}, "In `data.range`: A valid range needs low < high"),
        ({"f2cto": {"weighting": {"draws": 0}}}, "draws >= 1"),
        ({"f2cto": {"weighting": {"step": -1}}}, "must be >= 0"),
        ({"f2cto": {"proxy": {"radius": -1}}}, "radius of the parameters must be >= 0"),
        ({"f2cto": {"perturbation": {"steps": -1}}}, "must be >= 0"),
        ({"f2cto": {"local_rounds": 0}}, "`local_rounds` must be at least 1"),
        ({"f2cto": {"perturbation": {"form": "penalty"}}}, "In `f2cto`: `penalties.rho_1` must exceed 1"),
    ],
)
def test_bad_settings_are_one_sentence(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        build(RunSettings, values)


@pytest.mark.parametrize("text", ["workers", "=3", ""])
def test_bad_assignments(text: str) -> None:
    with pytest.raises(SettingsError, match="must look like key=value"):
        assignment(text)


def test_bad_files(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_bytes(b"workers = [")
    with pytest.raises(SettingsError, match="not a valid TOML file"):
        read_toml(broken)
    broken.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="not a valid TOML file"):
        read_toml(broken)
    with pytest.raises(SettingsError, match=r"Cannot read settings from .*missing.toml: No such file"):
        read_preset(str(tmp_path / "missing.toml"))
    with pytest.raises(SettingsError, match=r"no preset `none`; there are .*digits"):
        read_preset("none")


def test_a_group_that_is_set_in_part_keeps_the_rest_of_its_owner_s_default() -> None:
    """Not of its class: BCSR's shared model is not attacked in training, where that of others is."""
    found = build(BcsrSettings, {"pretraining": {"rounds": 5}})
    assert found.pretraining == replace(BcsrSettings().pretraining, rounds=5)
    assert not found.pretraining.robust


def test_variants_of_f2cto_have_no_settings_of_their_own() -> None:
    with pytest.raises(SettingsError, match=r"`ubv` has the settings of `f2cto`"):
        build(RunSettings, {"methods": {"ubv": {"stopping": {"iterations": 5}}}})
