"""Whether selection pays: selecting and training on the coreset, beside training on everything.

5 workers with 600 MNIST digits each, 5 % kept. One selection serves any number of trainings; here it is charged to one.
`all_briefly` is training on everything for as many steps as the coreset gets: it costs the same and needs no selection.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from statistics import fmean
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from torch import Tensor

from f2cto.attacks import Attack, Clean, Pgd, robust_accuracy
from f2cto.attacks.base import Range
from f2cto.bench.measure import Say
from f2cto.data.dataset import LabelledData, as_labelled, concat
from f2cto.data.folder import data_folder
from f2cto.data.partition import iid
from f2cto.data.sources import SOURCES
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from f2cto.selection import Selection, select
from f2cto.training import Training, train_robust

T = TypeVar("T")
WORKERS, SAMPLES, SHARE, RADIUS, EPOCHS, BATCH = 5, 600, 0.05, 0.1, 50, 50
JUDGED = 2000  # test samples


def pays(repeats: int, say: Say) -> dict[str, float]:
    """Seconds and accuracies, means over `repeats` seeds."""
    data = SOURCES["mnist"].load(data_folder())
    assert data.test is not None  # noqa: S101  (MNIST has one)
    train, test = (as_labelled((part.x, part.y), "mnist") for part in (data.train, data.test))
    rows = []
    for seed in range(repeats):
        rows.append(one(train, test.take(torch.arange(JUDGED)), seed))
        say(f"seed {seed}: " + ", ".join(f"{key} {value:.3f}" for key, value in rows[-1].items()))
    mean = {key: fmean(row[key] for row in rows) for key in rows[0]}
    return mean | {
        "time_ratio": (mean["select_seconds"] + mean["coreset_seconds"]) / mean["all_seconds"],
        "robustness_kept": mean["coreset_pgd"] / mean["all_pgd"],
        "robustness_kept_random": mean["random_pgd"] / mean["all_pgd"],
        "robustness_kept_briefly": mean["all_briefly_pgd"] / mean["all_pgd"],
    }


def one(
    train: LabelledData, test: LabelledData, seed: int, changes: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, float]:
    """One seed: what each way takes and gives; `changes` are made to F2CTO's default settings."""
    drawn = train.take(torch.randperm(len(train), generator=generator(seed, 0))[: WORKERS * SAMPLES])
    shards = [drawn.take(rows) for rows in iid(drawn.y, WORKERS, generator(seed, 1))]
    make = partial(mlp, 784, (256, 256), 10)
    settings = {"perturbation": {"eval_radius": RADIUS, "train_radius": RADIUS}, **changes}
    choose = partial(select, shards, SHARE, model=fresh(make, generator(seed, 2)), settings=settings, seed=seed)
    select_seconds, chosen = timed(choose)
    drawn_at_random = select(shards, SHARE, method="random", seed=seed)
    result = {"select_seconds": select_seconds}
    coreset = gathered(shards, chosen)
    for name, data, steps in (
        ("coreset", coreset, steps_on(coreset)),
        ("random", gathered(shards, drawn_at_random), steps_on(coreset)),
        ("all_briefly", drawn, steps_on(coreset)),
        ("all", drawn, steps_on(drawn)),
    ):
        model = FlatModel(fresh(make, generator(seed, 3)))
        attack = Pgd(RADIUS, 5, 2.5 * RADIUS / 5)
        train_it = partial(train_robust, model, model.own(), data.x, data.y, attack, Training(steps=steps, batch=BATCH))
        result[f"{name}_seconds"], w = timed(partial(train_it, generator(seed, 4)))
        result |= {f"{name}_{kind}": score for kind, score in accuracies(model, w, test, seed).items()}
    return result


def steps_on(data: LabelledData) -> int:
    """All epochs in steps."""
    return EPOCHS * max(1, len(data) // BATCH)


def gathered(shards: list[LabelledData], chosen: Selection) -> LabelledData:
    """All coresets in one."""
    return concat([shard.take(torch.from_numpy(rows)) for shard, rows in zip(shards, chosen.indices, strict=True)])


def accuracies(model: FlatModel, w: Tensor, test: LabelledData, seed: int) -> dict[str, float]:
    """Clean accuracy and accuracy under PGD-20."""
    logits = partial(model.logits, w)
    attacks: dict[str, Attack] = {"clean": Clean(), "pgd": Pgd(RADIUS, 20)}
    return {
        name: robust_accuracy(logits, attack, test.x, test.y, Range(), generator(seed, 5))
        for name, attack in attacks.items()
    }


def timed(task: Callable[[], T]) -> tuple[float, T]:
    """The seconds a task took, and what it gave."""
    began = time.perf_counter()
    result = task()
    return time.perf_counter() - began, result
