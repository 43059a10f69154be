from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from torch import nn

from f2cto.comparison import cell, contender, stream
from f2cto.config import build, merged
from f2cto.evaluation import Judge
from f2cto.preparation import Prepared
from f2cto.rehearsal import EVERYTHING, NOTHING, Learner, Memory, Picked, _network, _train, kept, rehearse
from f2cto.run_settings import RunSettings

SMALL: dict[str, Any] = {
    "workers": 3,
    "data": {"scenario": {"kind": "permuted", "tasks": 3, "samples": 300, "judged": 150}},
    "network": {"hidden": [32]},
    "rehearsal": {"memory": 12, "batch": 20},
    "training": {"steps": 40, "batch": 20, "attack_steps": 2},
    "evaluation": {"radius": 0.05, "pgd_steps": 3, "draws": 1},
}


def tasks(**changes: Any) -> list[Prepared]:
    return stream(build(RunSettings, merged(SMALL, changes)), 0, Path())


class Recorder:
    """Picks the first samples of each shard and notes what it was asked for, and with which network."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, list[int]]] = []
        self.proxies: list[nn.Module] = []

    def pick(self, task: int, on: Prepared, budgets: Sequence[int], proxy: nn.Module) -> Picked:  # noqa: ARG002
        self.asked.append((task, list(budgets)))
        self.proxies.append(proxy)
        return Picked([list(range(k)) for k in budgets], seconds=float(task), floats=10 * task, passes=100 * task)


def test_memory_is_shared_evenly_by_the_tasks_learned_so_far() -> None:
    recorder = Recorder()
    rows = rehearse(tasks(), "first", Memory(recorder.pick))
    assert recorder.asked == [(1, [12, 12, 12]), (2, [6, 6, 6])]  # nothing is picked of the last task
    assert {(r.task, r.seconds, r.floats, r.passes) for r in rows} == {
        (1, 1.0, 10, 100),
        (2, 2.0, 20, 200),
        (3, 0, 0, 0),
    }
    assert [(r.task, r.attack) for r in rows] == [(t, a) for t in (1, 2, 3) for a in ("clean", "fgsm", "pgd")]
    assert all((r.forgetting is None) == (r.task == 3) for r in rows)
    assert all(r.worst_class <= r.accuracy for r in rows)


def test_a_worker_with_few_samples_keeps_them_all() -> None:
    recorder = Recorder()
    stages = tasks(workers=2, data={"scenario": {"samples": 20}}, rehearsal={"memory": 15})
    rehearse(stages, "first", Memory(recorder.pick))
    assert recorder.asked[0] == (1, [10, 10])


def test_older_coresets_are_cut_to_a_prefix_of_their_stored_order() -> None:
    stage = tasks()[0]
    whole = kept(stage, Picked([[5, 2, 9], [1, 0, 3], [4, 8, 6]]))
    cut = kept(stage, Picked([[5, 2, 9], [1, 0, 3], [4, 8, 6]]), 2)
    assert torch.equal(cut.x, whole.x[[0, 1, 3, 4, 6, 7]])
    assert torch.equal(cut.x[0], stage.shards[0].x[5])


def test_a_learner_that_rehearses_nothing_forgets_and_one_that_rehearses_all_does_not() -> None:
    stages = tasks(training={"steps": 150})
    nothing, everything = (rehearse(stages, "bound", memory) for memory in (NOTHING, EVERYTHING))
    old = [fmean(r.accuracy for r in rows if r.task < 3 and r.attack == "clean") for rows in (nothing, everything)]
    assert old[1] > old[0] + 0.2
    forgotten = [fmean(r.forgetting or 0 for r in rows if r.attack == "clean") for rows in (nothing, everything)]
    assert forgotten[0] > forgotten[1] + 0.2


def test_contenders_are_paired() -> None:
    stages = tasks()
    first, second = (rehearse(stages, label, Memory(Recorder().pick)) for label in "ab")
    assert [replace(row, method="a") for row in second] == first


def test_with_one_task_a_model_is_trained_on_the_coreset_alone_as_select_does() -> None:
    (stage,) = tasks(size=7, data={"scenario": {"kind": "whole", "tasks": 0}})
    recorder = Recorder()
    rows = rehearse([stage], "first", Memory(recorder.pick))
    assert recorder.asked == [(1, [7, 7, 7])]
    s = stage.settings
    assert stage.test is not None
    coreset = kept(stage, Picked([list(range(7))] * 3))
    judged = Judge(stage.network, stage.test, s.training, s.evaluation, stage.valid, s.seed).judged(coreset, 0)
    assert {r.attack: r.accuracy for r in rows} == pytest.approx(judged.accuracy)
    assert {r.collapsed for r in rows} == {judged.collapsed}


SPLIT: dict[str, Any] = {"scenario": {"kind": "split", "classes": 2, "tasks": 3, "samples": 60}}


@pytest.mark.parametrize("data", [{}, SPLIT], ids=["shared outputs", "outputs of their own"])
def test_proxies_may_begin_where_the_learner_is(data: dict[str, Any]) -> None:
    stages = tasks(data=data, rehearsal={"proxy": "learner"})
    learner = Learner(*_network(stages))
    w = learner.model.own() + 0.01
    x = stages[1].train.x
    proxy = learner.proxy(w, stages[1])
    assert torch.allclose(proxy(x), learner.model.logits(w, x)[:, learner.columns(stages[1])], atol=1e-6)
    with torch.no_grad():
        next(proxy.parameters()).zero_()
    assert torch.equal(w, learner.model.own() + 0.01)  # what a method does to it leaves the learner alone


def test_proxies_have_learned_the_task_or_nothing() -> None:
    known = {}
    for start in ("fresh", "learner"):
        stages, recorder = tasks(rehearsal={"proxy": start}, training={"steps": 150}), Recorder()
        rehearse(stages, "first", Memory(recorder.pick))
        right = [
            (proxy(stage.train.x).argmax(dim=1) == stage.train.y).float().mean().item()
            for proxy, stage in zip(recorder.proxies, stages, strict=False)
        ]
        known[start] = right
    assert max(known["fresh"]) < 0.4
    assert min(known["learner"]) > 0.6


def test_outputs_of_other_tasks_are_out_of_play() -> None:
    stages = tasks(data=SPLIT)
    model, names = _network(stages)
    assert names == ("0", "1", "2", "3", "4", "5")
    learner = Learner(model, names)
    assert learner.columns(stages[1]).tolist() == [2, 3]
    before = model.own()
    after = _train(learner, before, stages[1], 2, stages[1].train, [(stages[0], stages[0].train)])
    moved = [
        (model.unflatten(after)[name] - model.unflatten(before)[name]).abs().flatten(1 if "weight" in name else 0)
        for name in list(model.unflatten(before))[-2:]
    ]
    assert float(moved[0][[0, 1, 2, 3]].sum(dim=1).min()) > 0
    assert float(moved[0][[4, 5]].max()) == 0
    assert float(moved[1][[4, 5]].max()) == 0


def test_tasks_with_classes_of_their_own_are_judged_among_these() -> None:
    stages = tasks(
        data={"scenario": {"kind": "split", "classes": 2, "tasks": 3, "samples": 60}}, training={"steps": 80}
    )
    rows = rehearse(stages, "all", EVERYTHING)
    assert min(r.accuracy for r in rows if r.attack == "clean") > 0.8  # of two classes, not of six


def test_strong_attacks_judge_the_final_model_only_and_never_find_less() -> None:
    stages = tasks(evaluation={"radius": 0.1, "pgd_steps": 1, "strong_steps": 10, "restarts": 2, "auto_samples": 10})
    rows = rehearse(stages, "first", Memory(Recorder().pick))
    by = {(r.task, r.attack): r for r in rows}
    assert {r.attack for r in rows} == {"clean", "fgsm", "pgd", "pgd-strong", "autoattack"}
    assert all(by[t, "pgd-strong"].accuracy <= by[t, "pgd"].accuracy for t in (1, 2, 3))
    assert all(by[t, "pgd-strong"].forgetting is None for t in (1, 2, 3))


def test_a_real_method_counts_its_passes_and_floats() -> None:
    changes = {"f2cto": {"stopping": {"iterations": 2}, "perturbation": {"precision": "full"}}}
    rows = cell(tasks(**changes), contender("f2cto"))
    first = rows[0]
    # Two iterations over 300 samples: each passes all of them several times, forwards and backwards.
    assert 2 * 300 * 4 < first.passes < 2 * 300 * 40
    assert first.floats > 0
    assert first.seconds > 0
