"""The whole pipeline of `f2cto select` on a named data set: data, shards, selection, training, attack, record."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from f2cto.attacks.base import Range
from f2cto.config import SettingsError, plain
from f2cto.data.dataset import LabelledData, as_labelled, concat
from f2cto.data.partition import iid, split
from f2cto.data.sources import SOURCES
from f2cto.evaluation import Evaluation, Judge, Part
from f2cto.models import fresh, mlp
from f2cto.randomness import derived_seed, generator
from f2cto.records import Kept, RunRecord, Score
from f2cto.selection import Selection, coreset_sizes, select
from f2cto.selectors.f2cto_settings import F2ctoSettings
from f2cto.training import Training
from f2cto.trilevel.master import Round


@dataclass(frozen=True)
class RunSettings:
    """Everything a run depends on: the same settings, the same result."""

    data: str = "digits"
    workers: int = 5
    size: float = 10.0  # samples each worker keeps: a count, or a fraction below 1
    seed: int = 0
    device: str = "cpu"
    hidden: tuple[int, ...] = (100, 100)  # layers of the proxy and of the judged model
    range: Range = field(default_factory=Range)
    f2cto: F2ctoSettings = field(default_factory=F2ctoSettings)
    training: Training = field(default_factory=Training)
    evaluation: Evaluation = field(default_factory=Evaluation)

    def __post_init__(self) -> None:
        """Refuse what no run can start with."""
        if self.data not in SOURCES:
            msg = f"There is no data set `{self.data}`; there are {', '.join(SOURCES)}."
            raise ValueError(msg)
        if self.workers < 1 or self.seed < 0 or any(width < 1 for width in self.hidden):
            msg = (
                "A run needs workers >= 1, seed >= 0 and hidden layers of width >= 1; "
                f"got {self.workers}, {self.seed} and {list(self.hidden)}."
            )
            raise ValueError(msg)


class Watcher(Protocol):
    """Is told how a run gets on; the edges show it and write it down."""

    def on_round(self, last: Round) -> None:
        """An iteration of the selection ended."""

    def on_selected(self, selection: Selection, kept: Sequence[Kept]) -> None:
        """The coreset is known; what follows only judges it."""

    def on_draw(self, name: str) -> None:
        """A model was trained and attacked for the table."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """Settings with the data they name, dealt out: what can be wrong with them has been found."""

    settings: RunSettings
    train: LabelledData
    test: LabelledData
    shards: list[LabelledData]


def prepare(settings: RunSettings) -> Prepared:
    """Load the data, cut off the part to judge on, deal the rest out to the workers."""
    share = settings.evaluation.test_share
    found = SOURCES[settings.data].load(Path()).train
    data = as_labelled((found.x, found.y), settings.data)
    train, test = map(data.take, split(data.y, share, generator(settings.seed, 0)))
    if settings.evaluation.part is Part.VALIDATION:
        train, test = map(train.take, split(train.y, share, generator(settings.seed, 7)))
    try:
        shards = [train.take(rows) for rows in iid(train.y, settings.workers, generator(settings.seed, 5))]
        coreset_sizes(settings.size, [len(shard) for shard in shards])
    except ValueError as error:
        raise SettingsError(str(error)) from error
    return Prepared(settings, train, test, shards)


def run(on: Prepared, watcher: Watcher) -> RunRecord:
    """Select, judge the coreset beside random ones of the same size, and record both."""
    began = time.monotonic()
    chosen = _choose("f2cto", on, on.settings.seed, watcher)
    seconds = time.monotonic() - began
    kept = kept_samples(on.shards, chosen)
    watcher.on_selected(chosen, kept)
    last = chosen.history[-1]
    return RunRecord(
        method="f2cto",
        seed=on.settings.seed,
        iterations=last.iteration,
        stopped=str(chosen.stopped),
        seconds=seconds,
        gap=last.gap,
        floats_per_worker=round(chosen.traffic.floats_per_worker),
        accuracy=_judge(on, chosen, watcher),
        history=[row(r) for r in chosen.history],
        kept=kept,
        settings=plain(on.settings),
    )


def row(r: Round) -> dict[str, float]:
    """One iteration as a flat row."""
    return {"iteration": r.iteration, "objective": r.objective, "gap": r.gap, "seconds": r.seconds, **r.metrics}


def kept_samples(shards: Sequence[LabelledData], chosen: Selection) -> list[Kept]:
    """Every sample of every coreset, with a picture where it is one."""
    return [
        Kept(worker, int(index), int(shard.y[index]), float(weight), picture(shard.x[index]))
        for worker, shard in enumerate(shards)
        for index, weight in zip(chosen.indices[worker], chosen.weights[worker], strict=True)
    ]


def picture(sample: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None:
    """A sample as (height, width) or (height, width, 3) if it has the shape of an image, else none."""
    if sample.ndim != 3 or sample.shape[0] not in {1, 3}:
        return None
    image = sample.permute(1, 2, 0).clamp(0, 1).double()
    return (image[..., 0] if image.shape[-1] == 1 else image).numpy()


def _choose(method: str, on: Prepared, seed: int, watcher: Watcher | None = None) -> Selection:
    return select(
        on.shards,
        on.settings.size,
        model=fresh(lambda: _network(on), generator(on.settings.seed, 1)),
        settings=on.settings.f2cto if method == "f2cto" else {},
        seed=seed,
        method=method,
        valid=on.settings.range,
        radius=on.settings.f2cto.perturbation.train_radius,
        device=on.settings.device,
        on_round=watcher.on_round if watcher else lambda _: None,
    )


def _judge(on: Prepared, chosen: Selection, watcher: Watcher) -> dict[str, dict[str, Score]]:
    """The table: the coreset, random ones, class-balanced random ones, and all data."""
    s, draws = on.settings, range(on.settings.evaluation.draws)
    candidates = {
        "f2cto": [gather(on.shards, chosen)] * len(draws),
        **{
            name: [gather(on.shards, _choose(name, on, derived_seed(s.seed, 6, draw))) for draw in draws]
            for name in ("random", "balanced")
        },
        "all": [on.train] * len(draws),
    }
    judge = Judge(lambda: _network(on), on.test, s.training, s.evaluation, s.range, s.seed, torch.device(s.device))
    return {name: judge.scores(data, partial(watcher.on_draw, name)) for name, data in candidates.items()}


def gather(shards: Sequence[LabelledData], chosen: Selection) -> LabelledData:
    """All coresets in one. Only an experiment may do this: in a federation they stay where they are."""
    return concat([shard.take(torch.from_numpy(rows)) for shard, rows in zip(shards, chosen.indices, strict=True)])


def _network(on: Prepared) -> nn.Module:
    return mlp(on.train.x[0].numel(), on.settings.hidden, int(on.train.y.max()) + 1)
