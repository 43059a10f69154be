"""The whole pipeline of `f2cto select` on a named data set: data, shards, selection, training, attack, record."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from f2cto.attacks.base import Range
from f2cto.config import SettingsError, plain
from f2cto.data.dataset import LabelledData, concat
from f2cto.data.partition import iid, split
from f2cto.data.sources import SOURCES
from f2cto.evaluation import Evaluation, Judge
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


def run(settings: RunSettings, watcher: Watcher) -> RunRecord:
    """Select, judge the coreset beside random ones of the same size, and record both."""
    train, test = split(SOURCES[settings.data](), settings.evaluation.test_share, generator(settings.seed, 0))
    shards = _shards(train, settings)
    began = time.monotonic()
    chosen = _choose("f2cto", shards, settings, settings.seed, watcher)
    seconds = time.monotonic() - began
    kept = kept_samples(shards, chosen)
    watcher.on_selected(chosen, kept)
    last = chosen.history[-1]
    return RunRecord(
        method="f2cto",
        seed=settings.seed,
        iterations=last.iteration,
        stopped=str(chosen.stopped),
        seconds=seconds,
        gap=last.gap,
        floats_per_worker=round(chosen.traffic.floats_per_worker),
        accuracy=_judge(train, test, shards, chosen, settings, watcher),
        history=[row(r) for r in chosen.history],
        kept=kept,
        settings=plain(settings),
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


def _shards(train: LabelledData, settings: RunSettings) -> list[LabelledData]:
    try:
        shards = iid(train, settings.workers, generator(settings.seed, 5))
        coreset_sizes(settings.size, [len(shard) for shard in shards])
    except ValueError as error:
        raise SettingsError(str(error)) from error
    return shards


def _choose(
    method: str, shards: Sequence[LabelledData], settings: RunSettings, seed: int, watcher: Watcher | None = None
) -> Selection:
    proxy = fresh(lambda: _network(shards, settings), generator(settings.seed, 1))
    on_round = watcher.on_round if watcher else lambda _: None
    return select(
        shards,
        settings.size,
        model=proxy,
        settings=settings.f2cto,
        seed=seed,
        method=method,
        valid=settings.range,
        on_round=on_round,
    )


def _judge(  # noqa: PLR0913
    train: LabelledData,
    test: LabelledData,
    shards: Sequence[LabelledData],
    chosen: Selection,
    settings: RunSettings,
    watcher: Watcher,
) -> dict[str, dict[str, Score]]:
    """The table: the coreset, random ones, class-balanced random ones, and all data."""
    draws = range(settings.evaluation.draws)
    baseline = {
        name: [gather(shards, _choose(name, shards, settings, derived_seed(settings.seed, 6, n))) for n in draws]
        for name in ("random", "balanced")
    }
    judge = Judge(
        lambda: _network(shards, settings), test, settings.training, settings.evaluation, settings.range, settings.seed
    )
    candidates = {"f2cto": [gather(shards, chosen)] * len(draws), **baseline, "all": [train] * len(draws)}
    return {
        name: judge.scores(data, lambda name=name: watcher.on_draw(name))  # type: ignore[misc]
        for name, data in candidates.items()
    }


def gather(shards: Sequence[LabelledData], chosen: Selection) -> LabelledData:
    """All coresets in one. Only an experiment may do this: in a federation they stay where they are."""
    return concat([shard.take(torch.from_numpy(rows)) for shard, rows in zip(shards, chosen.indices, strict=True)])


def _network(shards: Sequence[LabelledData], settings: RunSettings) -> nn.Module:
    classes = max(int(shard.y.max()) for shard in shards) + 1
    return mlp(shards[0].x[0].numel(), settings.hidden, classes)
