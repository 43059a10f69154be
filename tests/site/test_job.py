from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from f2cto.config import SettingsError, build
from f2cto.methods.catalogue import METHODS
from f2cto.models import FlatModel, fresh
from f2cto.preparation import prepare
from f2cto.randomness import generator
from f2cto.run_settings import NEEDED, Architecture, Network, RunSettings
from f2cto.site.job import Job, job_from_text, job_of, job_text, parameters, prepared
from f2cto.site.rules import CLASS_SUMS, PARAMETERS_ONLY, Allowance, RefusedError, Rules, check_job, check_reading
from f2cto.site.schema import ColumnSchema, Schema, schema_of

SCHEMA = Schema(("a", "b", "c"), (ColumnSchema("n"), ColumnSchema("w", words=("x", "y"), fixed=True)))
IMAGES = Schema(("a", "b"), shape=(1, 8, 8))
SHAPES = {Architecture.MLP: (1, 8, 8), Architecture.RESNET18: (1, 8, 8), Architecture.SIGNALS: (3, 16)}


def changed(job: Job, **changes: Any) -> str:
    return json.dumps(json.loads(job_text(job)) | changes)


@pytest.fixture
def job() -> Job:
    return job_of(build(RunSettings, {"size": 0.1, "network": {"hidden": [5], "device": "cuda"}}), SCHEMA, "j1")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_comes_back_from_its_text(name: str) -> None:
    settings = build(RunSettings, {"method": name, "seed": 3, "data": {"balance": "proportional"}})
    job = job_of(settings, SCHEMA, "j1")
    again = job_from_text(job_text(job))
    assert again == job
    assert (again.balance, again.seed, again.workers, again.size) == (settings.data.balance, 3, 5, 10)


@pytest.mark.parametrize("name", ["easy", "f2cto", "ubv"])
def test_the_radius_is_that_of_the_task(name: str) -> None:
    settings = build(
        RunSettings,
        {"method": name, "evaluation": {"radius": 0.3}, "f2cto": {"perturbation": {"train_radius": 0.0}}},
    )
    assert job_of(settings, SCHEMA, "j1").radius == 0.3


def test_master_and_sites_have_the_same(job: Job) -> None:
    """The method, the range and the initial parameters, bit by bit, whatever was drawn before at either."""
    one = prepared(job, SCHEMA)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(8)
        two = prepared(job_from_text(job_text(job)), SCHEMA)
    assert torch.equal(one.w, two.w)
    assert one.selector == two.selector
    assert one.valid.fixed == (1, 2)
    other = prepared(replace(job, seed=job.seed + 1), SCHEMA)
    assert not torch.equal(one.w, other.w)


def test_the_initial_parameters_are_those_of_one_process(file: Path) -> None:
    """Of `f2cto select` with the same settings."""
    chosen = {"source": str(file), "label": "y"}
    settings = build(RunSettings, {"data": chosen, "workers": 1, "seed": 3, "evaluation": {"draws": 0}})
    schema = schema_of(file, "y")
    theirs = fresh(prepare(settings, file.parent).network, generator(3, 1))
    assert torch.equal(prepared(job_of(settings, schema, "j1"), schema).w, FlatModel(theirs).own())


def test_where_a_site_computes_is_its_own_affair(job: Job) -> None:
    assert job.network.device == "cpu"


@pytest.mark.parametrize("kind", Architecture)
def test_parameters_are_counted_without_making_them(job: Job, kind: Architecture) -> None:
    schema = Schema(("a", "b"), shape=SHAPES[kind])
    job = replace(job, network=Network(kind, (7, 5), 4), schema=schema.digest)
    assert parameters(job, schema) == prepared(job, schema).model.size
    huge = replace(job, network=Network(kind, (1_000_000,) * 3, 1_000_000))
    assert parameters(huge, schema) > 10**12


@pytest.mark.parametrize(("kind", "needed"), NEEDED.items())
def test_some_networks_take_some_samples_only(job: Job, kind: Architecture, needed: tuple[str, int]) -> None:
    with pytest.raises(SettingsError, match=f"takes {needed[0]}"):
        prepared(replace(job, network=Network(kind)), SCHEMA)


def test_another_schema_is_refused(job: Job) -> None:
    with pytest.raises(SettingsError, match="made for the schema"):
        prepared(job, IMAGES)
    with pytest.raises(RefusedError, match="made for the schema"):
        check_job(job, IMAGES, 100, Rules())


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"id": "../../etc/passwd"}, "A job's id is"),
        ({"id": ".hidden"}, "A job's id is"),
        ({"id": "a/b"}, "A job's id is"),
        ({"id": "a.b"}, "A job's id is"),
        ({"id": ""}, "A job's id is"),
        ({"id": "a" * 65}, "A job's id is"),
        ({"id": "a\n"}, "A job's id is"),
        ({"id": 5}, "`id` must be a text"),
        ({"method": "os.system"}, "There is no method `os.system`"),
        ({"settings": {"evil": 1}}, "no setting `settings.evil`"),
        ({"settings": {"weighting": {"draws": -1}}}, "draws >= 1"),
        ({"settings": []}, "`settings` must be a group"),
        ({"network": {"kind": "pickle"}}, "`network.kind` must be one of"),
        ({"network": {"hidden": [10**7]}}, "layers of at most"),
        ({"network": {"hidden": [1] * 101}}, "layers of at most"),
        ({"workers": 0}, "workers >= 1"),
        ({"seed": -1}, "seed from 0 on"),
        ({"size": 0}, "needs a size"),
        ({"size": 1.5}, "needs a size"),
        ({"radius": -1}, "radius >= 0"),
        ({"range": {"low": 1, "high": 0}}, "low < high"),
        ({"module": "os"}, "There is no setting `module`"),
    ],
)
def test_what_a_master_cannot_order(job: Job, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        job_from_text(changed(job, **changes))


@pytest.mark.parametrize(
    "text", [None, 7, "", "[]", "{}", "[" * 100_000, " " * 10**6, '{"id": NaN}', '{"seed": 1e999}']
)
def test_what_is_no_job(text: object) -> None:
    with pytest.raises(SettingsError):
        job_from_text(text)


def test_fixed_features_are_there(job: Job) -> None:
    with pytest.raises(SettingsError, match="Feature 9 is said to be fixed"):
        prepared(job_from_text(changed(job, range={"fixed": [9]})), SCHEMA)


# Rules


def test_every_method_is_known_to_send_one_or_the_other() -> None:
    assert set(METHODS) == PARAMETERS_ONLY | CLASS_SUMS
    assert not PARAMETERS_ONLY & CLASS_SUMS


@pytest.mark.parametrize("name", METHODS)
def test_sums_over_classes_need_leave(name: str) -> None:
    job = job_of(build(RunSettings, {"method": name}), SCHEMA, "j1")
    assert check_job(job, SCHEMA, 100, Rules(frozenset({Allowance.CLASS_SUMS}))) == 10
    if name in PARAMETERS_ONLY:
        assert check_job(job, SCHEMA, 100, Rules()) == 10
    else:
        with pytest.raises(RefusedError, match=f"`{name}` sends sums over classes"):
            check_job(job, SCHEMA, 100, Rules())


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"size": 51.0}, "keeps 51 of this site's 100 samples, and it allows a share of 0.5"),
        ({"size": 0.51}, "keeps 51"),
        ({"size": 1000.0}, "keeps 1,000"),
        ({"network": {"hidden": [3000]}}, r"has 21,003 parameters, and this site allows at most 20,000"),
        (
            {"settings": {"stopping": {"iterations": 501}}},
            "`stopping.iterations` = 501, and this site allows at most 500",
        ),
        ({"settings": {"perturbation": {"steps": 10**9}}}, "`perturbation.steps` = 1000000000"),
    ],
)
def test_jobs_are_bounded_by_the_site(job: Job, changes: dict[str, Any], complaint: str) -> None:
    rules = Rules(parameters=20_000, count=500)
    assert check_job(job, SCHEMA, 100, rules) == 10
    with pytest.raises(RefusedError, match=complaint):
        check_job(job_from_text(changed(job, **changes)), SCHEMA, 100, rules)


def test_a_site_with_one_sample_may_keep_it(job: Job) -> None:
    assert check_job(job, SCHEMA, 1, Rules()) == 1


def test_rules_under_which_nothing_runs() -> None:
    for wrong in ({"most": 0.0}, {"most": 1.1}, {"parameters": 0}, {"count": 0}):
        with pytest.raises(ValueError, match="Rules need"):
            Rules(**wrong)


@pytest.mark.parametrize("name", ["f2cto", "f2cto+p", "ubv"])
def test_over_sites_coresets_are_not_read_off_place_by_place(name: str) -> None:
    job = job_of(build(RunSettings, {"method": name}), SCHEMA, "j1")
    assert job.settings["choice"] == "average"
    check_reading(prepared(job, SCHEMA).selector)
    told = replace(job, settings={**job.settings, "choice": "places"})  # by a master that was changed
    with pytest.raises(RefusedError, match="place by place"):
        check_reading(prepared(told, SCHEMA).selector)
