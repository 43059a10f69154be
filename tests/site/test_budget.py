from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from f2cto.config import build
from f2cto.federation.wire import Frame
from f2cto.methods.catalogue import METHODS
from f2cto.methods.lockstep import F2cto
from f2cto.run_settings import RunSettings
from f2cto.site.budget import Price, price
from f2cto.site.host import Site
from f2cto.site.job import Job, job_of, job_text, prepared
from f2cto.site.rules import Allowance, RefusedError, Rules
from f2cto.site.schema import Schema
from f2cto.site.store import Charge, Store

Open = Callable[..., Site]
BOUND = Rules(frozenset(Allowance), most_epsilon=1000.0)
PRIVATE = {"clip": 1.0, "noise": 2.0}


def private(schema: Schema, name: str = "f2cto", iterations: int = 3, rounds: int = 1, **privacy: Any) -> Job:
    own = {
        "weighting": {"draws": 5},
        "stopping": {"iterations": iterations},
        "local_rounds": rounds,
        "sharing": {"exchanges": 1, "privacy": PRIVATE | privacy},
    }
    quick = {"size": 4, "workers": 1, "network": {"hidden": [8]}, "method": name, "f2cto": own}
    return job_of(build(RunSettings, quick), schema, "a-job")


def priced(job: Job, schema: Schema, rules: Rules = BOUND) -> Price:
    found = price(prepared(job, schema).selector, rules)
    assert found is not None
    return found


def delta_of(epsilon: float, noise: float, releases: int) -> float:
    """Of T Gaussian mechanisms of sensitivity 2 and this deviation: Balle and Wang, Theorem 8."""
    phi, mu = NormalDist().cdf, 2 * math.sqrt(releases) / noise
    return phi(mu / 2 - epsilon / mu) - math.exp(epsilon) * phi(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize(
    ("name", "iterations", "rounds", "answers"),
    [("f2cto", 3, 1, 3), ("f2cto", 3, 2, 2), ("f2cto", 4, 2, 2), ("f2cto+p", 11, 1, 3), ("ubv", 2, 1, 2)],
)
def test_a_job_costs_what_its_answers_tell(
    name: str, iterations: int, rounds: int, answers: int, schema: Schema
) -> None:
    """At the site's delta: a job that says 0.9 would cost next to nothing at its own."""
    found = priced(private(schema, name, iterations, rounds, delta=0.9), schema)
    assert found.answers == answers
    assert delta_of(found.epsilon, 2.0, answers) == pytest.approx(1e-5, rel=1e-6)


def test_only_private_jobs_where_a_bound_is_asked_for(schema: Schema) -> None:
    for rules in (BOUND, Rules(least_noise=0.1)):
        for name in METHODS:
            made = prepared(
                job_of(build(RunSettings, {"method": name, "network": {"hidden": [8]}}), schema, "j"), schema
            )
            assert price(made.selector, Rules()) is None
            with pytest.raises(RefusedError, match="private jobs only"):
                price(made.selector, rules)
    selector = prepared(private(schema), schema).selector
    assert isinstance(selector, F2cto)
    assert price(selector, Rules(least_noise=2.0)) is None
    with pytest.raises(RefusedError, match=r"`sharing.privacy.noise` = 2, and this site asks for 2.1"):
        price(selector, Rules(least_noise=2.1))
    with pytest.raises(RefusedError, match="cost epsilon inf"):
        price(prepared(private(schema, noise=0.0), schema).selector, BOUND)


def test_rules_that_bound_nothing() -> None:
    wrongs: list[dict[str, Any]]
    wrongs = [{"least_noise": -1.0}, {"most_epsilon": math.nan}, {"most_epsilon": math.inf}, {"delta": 0.0}]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="Rules need a noise"):
            Rules(**wrong)


def begin(site: Site, job: Job) -> str:
    return str(site.answer(Frame({"kind": "start", "job": job_text(job)})).head.get("error", ""))


def ask(site: Site, job: Job, serial: int) -> Frame:
    w = prepared(job, site.schema).w.numpy()
    head = {"kind": "ask", "job": job.id, "phase": "iterate", "serial": serial, "scalars": {"t": serial - 1.0}}
    return site.answer(Frame(head, {"w": w}))


def bound(job: Job, schema: Schema, jobs: float) -> Rules:
    return Rules(most_epsilon=jobs * priced(job, schema).epsilon)


def test_jobs_add_up_finished_or_not(opened: Open, schema: Schema, folder: Path) -> None:
    job = private(schema)
    rules = bound(job, schema, 2.5)
    site, again = opened(rules), replace(job, id="b-job")
    assert [begin(site, job), begin(site, job), begin(site, again)] == ["", "", ""]  # the second is at it already
    assert "former jobs took" in begin(site, replace(job, id="c-job"))
    assert "error" not in ask(site, again, 1).head  # what was refused does not end what is in hand
    assert "former jobs took" in begin(site, job)  # begun afresh it would draw other noise
    site = opened(rules)
    assert site.notes == ["At job `b-job` again, after question 1."]
    assert begin(site, again) == ""
    assert "former jobs took" in begin(site, job)
    found = json.loads((folder / "privacy.json").read_text())["jobs"]
    assert [(row["epsilon"], row["delta"]) for row in found] == [(priced(job, schema).epsilon, 1e-5)] * 2
    assert "cost epsilon" in begin(opened(bound(job, schema, 0.99)), replace(job, id="d-job"))


def test_a_job_gets_no_more_answers_than_it_paid_for(opened: Open, schema: Schema) -> None:
    job = private(schema)
    site = opened(BOUND)
    begin(site, job)
    assert all("error" not in ask(site, job, serial).head for serial in (1, 3))
    assert "gives the 3 answers" in str(ask(site, job, 4).head["error"])
    site = opened(BOUND)
    assert "gives the 3 answers" in str(ask(site, job, 4).head["error"])
    assert np.array_equal(ask(site, job, 3).arrays["w"], ask(site, job, 3).arrays["w"])


def test_what_starts_afresh_after_a_broken_checkpoint_costs_again(opened: Open, schema: Schema, folder: Path) -> None:
    job = private(schema)
    rules = bound(job, schema, 2.5)
    begin(site := opened(rules), job)
    for times in (1, 2):
        assert len(Store(folder).charges()) == times
        assert "error" not in ask(site, job, 1).head
        (folder / "state.safetensors").write_bytes(b"broken")
        site = opened(rules)
    site = opened(rules)  # and it stays so
    assert "was not gone on with: The job's 3 answers cost" in site.notes[0]
    assert "not at that job" in str(ask(site, job, 1).head["error"])
    assert len(Store(folder).charges()) == 2
    assert not (folder / "aside-2").exists()


def test_without_its_account_a_site_begins_nothing(opened: Open, schema: Schema, folder: Path) -> None:
    for text in ("", "{}", '{"jobs": [{}]}', '{"jobs": [{"job": "x", "epsilon": -9, "delta": 0}]}', '{"jobs": [7]}'):
        (folder / "privacy.json").write_text(text)
        assert begin(opened(BOUND), private(schema)) == "Site 0 failed (StoreError); its own log says where."
    assert begin(opened(), private(schema)) == ""


def test_a_job_that_was_begun_without_a_bound_is_not_gone_on_with(opened: Open, schema: Schema) -> None:
    begin(opened(), private(schema))
    site = opened(BOUND)
    assert "begun without a bound" in site.notes[0]
    assert begin(site, private(schema)) == ""


def test_charges_come_back(folder: Path) -> None:
    charges = [Charge(f"{i}", i / 3, 1e-5) for i in range(5)]
    Store(folder).write_charges(charges)
    assert Store(folder).charges() == charges


def test_what_a_killed_process_had_half_written_goes(folder: Path) -> None:
    (folder / "calls").mkdir()
    mine = [
        "state.safetensors",
        "job.json",
        "privacy.json",
        "coreset.csv",
        "coreset.a-job.csv",
        "calls/000000001.frame",
    ]
    halves = [(folder / name).with_name(f".{Path(name).name}.a_b3x9zk") for name in mine]
    others = [folder / name for name in (*mine, ".other.a_b3x9zk", ".state.safetensors.swp")]
    for path in (*halves, *others):
        path.write_bytes(b"x")
    Store(folder)
    assert not any(path.exists() for path in halves)
    assert all(path.exists() for path in others)
