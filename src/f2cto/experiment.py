"""The whole pipeline of `f2cto select`: selection, training, attack, record."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from f2cto.config import plain
from f2cto.data.dataset import LabelledData, concat
from f2cto.evaluation import Judge
from f2cto.fleets import gather_of
from f2cto.methods.running import Gather, Here
from f2cto.models import fresh
from f2cto.preparation import Prepared
from f2cto.randomness import derived_seed, generator
from f2cto.records import Kept, RunRecord, Score
from f2cto.selection import Selection, select
from f2cto.trilevel.master import Round

FLOOR = ("random", "balanced")  # what every coreset is judged beside
LOOKED_AT = 2000  # samples that show whether a model has learned anything


class Watcher(Protocol):
    """Is told how a run gets on; the edges show it and write it down."""

    def on_round(self, last: Round) -> None:
        """An iteration of the selection ended."""

    def on_selected(self, selection: Selection, kept: Sequence[Kept]) -> None:
        """The coreset is known; what follows only judges it."""

    def on_draw(self, name: str) -> None:
        """A model was trained and attacked for the table."""


class Silent:
    """Watches nothing."""

    def on_round(self, last: Round) -> None:
        """An iteration ended."""

    def on_selected(self, selection: Selection, kept: Sequence[Kept]) -> None:
        """The coreset is known."""

    def on_draw(self, name: str) -> None:
        """A model was judged."""


def run(on: Prepared, watcher: Watcher, threads: int | None = None) -> RunRecord:
    """Select, judge the coreset beside random ones of the same size, and record both.

    `threads` are for workers in processes of their own; this process keeps those it has.
    """
    began = time.monotonic()
    chosen = choose(on.settings.method, on, on.settings.seed, watcher, gather_of(on.settings.federation, threads))
    seconds = time.monotonic() - began
    kept = kept_samples(on, chosen)
    watcher.on_selected(chosen, kept)
    last = chosen.history[-1] if chosen.history else None
    return RunRecord(
        method=on.settings.method,
        seed=on.settings.seed,
        iterations=last.iteration if last else 0,
        stopped=str(chosen.stopped),
        seconds=seconds,
        gap=last.gap if last else 0.0,
        floats_per_worker=round(chosen.traffic.floats_per_worker),
        accuracy=_judge(on, chosen, watcher),
        history=[row(r) for r in chosen.history],
        kept=kept,
        settings=plain(on.settings),
    )


def row(r: Round) -> dict[str, Any]:
    """One iteration as a flat row; what workers did not tell and who was not missing is left out."""
    told = {} if math.isnan(r.objective) else {"objective": r.objective}
    absent = {"absent": list(r.absent)} if r.absent else {}
    metrics = {name: value if math.isfinite(value) else None for name, value in r.metrics.items()}  # JSON: no infinity
    return {"iteration": r.iteration, **told, "gap": r.gap, "seconds": r.seconds, **metrics, **absent}


def kept_samples(on: Prepared, chosen: Selection) -> list[Kept]:
    """Every sample of every coreset in its source's own terms, with a picture where it is one."""
    return [
        Kept(
            worker=worker,
            index=int(index),
            row=int(on.rows[worker][index]),
            label=on.classes[int(shard.y[index])],
            weight=float(weight),
            file=on.files[int(on.rows[worker][index])] if on.files else "",
            picture=picture(shard.x[index]),
        )
        for worker, shard in enumerate(on.shards)
        for index, weight in zip(chosen.indices[worker], chosen.weights[worker], strict=True)
    ]


def learned_nothing(on: Prepared, chosen: Selection) -> bool:
    """Whether the model that chose the samples tells their classes apart no better than one that always says the same.

    Methods that train no model have no history, and nothing is asked of them.
    """
    if not chosen.history:
        return False
    some = torch.linspace(0, len(on.train) - 1, min(len(on.train), LOOKED_AT)).long()
    y = on.train.y[some]
    with torch.no_grad():
        right = chosen.model(on.train.x[some].to(next(chosen.model.parameters()))).argmax(dim=1).cpu() == y.cpu()
    return int(right.sum()) <= int(torch.bincount(y).max())


def picture(sample: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None:
    """A sample as (height, width) or (height, width, 3) if it has the shape of an image, else none."""
    if sample.ndim != 3 or sample.shape[0] not in {1, 3}:
        return None
    image = sample.permute(1, 2, 0).clamp(0, 1).double()
    return (image[..., 0] if image.shape[-1] == 1 else image).numpy()


def choose(method: str, on: Prepared, seed: int, watcher: Watcher | None = None, gather: Gather = Here) -> Selection:
    """A method's choice."""
    return select(
        on.shards,
        on.settings.size,
        model=fresh(on.network, generator(on.settings.seed, 1)),
        settings=on.settings.of(method),
        seed=seed,
        method=method,
        valid=on.valid,
        radius=on.settings.radius,
        balance=on.settings.data.balance,
        training=on.settings.training,
        device=on.settings.network.device,
        on_round=watcher.on_round if watcher else lambda _: None,
        gather=gather,
    )


def _judge(on: Prepared, chosen: Selection, watcher: Watcher) -> dict[str, dict[str, Score]]:
    """The table: the coreset, random ones, class-balanced random ones, and all data."""
    if on.test is None:
        return {}
    s, draws = on.settings, range(on.settings.evaluation.draws)
    candidates = {
        s.method: [gather(on.shards, chosen)] * len(draws),
        **{
            name: [gather(on.shards, choose(name, on, derived_seed(s.seed, 6, draw))) for draw in draws]
            for name in FLOOR
            if name != s.method
        },
        "all": [on.train] * len(draws),
    }
    judge = Judge(on.network, on.test, s.training, s.evaluation, on.valid, s.seed, torch.device(s.network.device))
    return {name: judge.scores(data, partial(watcher.on_draw, name)) for name, data in candidates.items()}


def gather(shards: Sequence[LabelledData], chosen: Selection) -> LabelledData:
    """All coresets in one. Only an experiment may do this: in a federation they stay where they are."""
    return concat([shard.take(torch.from_numpy(rows)) for shard, rows in zip(shards, chosen.indices, strict=True)])
