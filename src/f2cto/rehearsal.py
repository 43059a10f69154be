"""Continual learning with rehearsal over a federation: the experiment in which coresets are compared.

    for every task   learn it robustly, with the memory of former tasks replayed
                     every worker picks a coreset of it; older ones are cut to a prefix of their stored order
    in the end       the learner is attacked on every task

The learner is a model of its own, carried over the tasks: the proxies of selection are not used again, though they may
begin where the learner is. With a single task there is nothing to rehearse: a model is trained on the coreset alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from f2cto.attacks import Attack, withstood
from f2cto.data.dataset import LabelledData, concat
from f2cto.models import FlatModel, fresh
from f2cto.preparation import Prepared
from f2cto.randomness import generator
from f2cto.records import Row
from f2cto.run_settings import ProxyStart
from f2cto.selection import coreset_sizes
from f2cto.training import CHUNK, Portion, collapsed, joined, train_on


@dataclass(frozen=True)
class Picked:
    """The coresets of one task and what it cost to find them."""

    indices: Sequence[Sequence[int]]  # per worker: positions in its shard, best first
    seconds: float = 0.0
    floats: int = 0
    passes: int = 0


# From a task's number, the task, each worker's budget and the network that a method may choose with.
Pick = Callable[[int, Prepared, Sequence[int], nn.Module], Picked]


@dataclass(frozen=True)
class Learned:
    """The learner just after a task."""

    collapsed: bool  # whether it only guesses on the samples it was trained on
    accuracy: Mapping[str, float] = field(default_factory=dict)  # by attack; empty after the last task


@dataclass(frozen=True)
class Memory:
    """How coresets come about, and whether they have to share a bounded memory."""

    pick: Pick
    bounded: bool = True


NOTHING = Memory(lambda _, on, *__: Picked([[] for _ in on.shards]))  # the lower bound
EVERYTHING = Memory(lambda _, on, *__: Picked([list(range(len(shard))) for shard in on.shards]), bounded=False)


@dataclass(frozen=True, eq=False)
class Learner:
    """The model that is trained over all tasks; every task has its outputs, which tasks may share."""

    model: FlatModel
    outputs: tuple[str, ...]  # the names of all classes

    def columns(self, stage: Prepared) -> Tensor:
        """The outputs of a task, in the order of its labels."""
        return torch.tensor([self.outputs.index(name) for name in stage.classes], device=self._device(stage))

    def portion(self, stage: Prepared, data: LabelledData, batch: int) -> Portion:
        """Samples of a task to train on: only its own outputs are in play."""
        columns, device = self.columns(stage), self._device(stage)
        data = data.to(device)
        in_play = None
        if len(columns) < len(self.outputs):
            row = torch.zeros(len(self.outputs), dtype=torch.bool, device=device).index_fill(0, columns, value=True)
            in_play = row.expand(len(data), -1)
        return Portion(data.x, columns[data.y], batch, outputs=in_play)

    def collapsed(self, w: Tensor, stage: Prepared, data: LabelledData) -> bool:
        """Whether the learner only guesses on the samples of a task that it has just been trained on."""
        return collapsed(self.model, w, self.portion(stage, data, 1))

    def proxy(self, w: Tensor, stage: Prepared) -> nn.Module:
        """The network that methods choose the samples of a task with: a new one, or one that knows what `w` knows."""
        module = new_proxy(stage)
        if stage.settings.rehearsal.proxy is ProxyStart.LEARNER:
            *body, weight, bias = self.model.unflatten(w).values()
            rows = self.columns(stage)  # the last layer has one for every output
            known = nn.utils.parameters_to_vector([*body, weight[rows], bias[rows]])
            nn.utils.vector_to_parameters(known, module.parameters())
        return module

    @staticmethod
    def _device(stage: Prepared) -> torch.device:
        return torch.device(stage.settings.network.device)


def new_proxy(stage: Prepared) -> nn.Module:
    """A network that has learned nothing, the same for every method on a seed."""
    return fresh(stage.network, generator(stage.settings.seed, 1))


def rehearse(stages: Sequence[Prepared], label: str, memory: Memory) -> list[Row]:
    """What becomes of a learner that remembers what `memory` picks: a row for every task and attack."""
    learner = Learner(*_network(stages))
    w = learner.model.own()
    if len(stages) == 1:
        picked = memory.pick(1, stages[0], _budgets(stages[0], 1, 1), new_proxy(stages[0]))
        coreset = kept(stages[0], picked)
        w = _train(learner, w, stages[0], 1, coreset, [])
        return _rows(learner, w, stages, label, [picked], [Learned(learner.collapsed(w, stages[0], coreset))])
    stored: list[LabelledData] = []
    picks: list[Picked] = []
    learned: list[Learned] = []
    for number, stage in enumerate(stages, start=1):
        replay = [(stages[i], data) for i, data in enumerate(stored) if len(data)]
        w = _train(learner, w, stage, number, stage.train, replay)
        last = number == len(stages)
        verdicts = {} if last else _verdicts(learner, w, stage, strong=False)
        fell = learner.collapsed(w, stage, stage.train)
        learned.append(Learned(fell, {name: right for name, (right, _) in verdicts.items()}))
        budgets = _budgets(stage, number, len(stages))
        picks.append(Picked([]) if last else memory.pick(number, stage, budgets, learner.proxy(w, stage)))
        most = stage.settings.rehearsal.memory // number if memory.bounded else None
        stored = [kept(former, picked, most) for former, picked in zip(stages, picks, strict=False) if picked.indices]
    return _rows(learner, w, stages, label, picks, learned)


def kept(stage: Prepared, picked: Picked, most: int | None = None) -> LabelledData:
    """All workers' picks, each worker's cut to its first `most`. Only an experiment may put them together."""
    rows = [torch.tensor(list(own[:most]), dtype=torch.long) for own in picked.indices]
    return concat([shard.take(some) for shard, some in zip(stage.shards, rows, strict=True)])


def _budgets(stage: Prepared, number: int, tasks: int) -> list[int]:
    """How many samples of its newest task each worker keeps, once `number` tasks share its memory."""
    counts = [len(shard) for shard in stage.shards]
    if tasks == 1:
        return coreset_sizes(stage.settings.size, counts)
    return [min(stage.settings.rehearsal.memory // number, count) for count in counts]


def _network(stages: Sequence[Prepared]) -> tuple[FlatModel, tuple[str, ...]]:
    names = tuple(dict.fromkeys(name for stage in stages for name in stage.classes))
    first = stages[0]
    module = fresh(replace(first, classes=names).network, generator(first.settings.seed, 2, 0))
    return FlatModel(module.to(first.settings.network.device)), names


def _train(  # noqa: PLR0913
    learner: Learner,
    w: Tensor,
    stage: Prepared,
    number: int,
    data: LabelledData,
    replay: Sequence[tuple[Prepared, LabelledData]],
) -> Tensor:
    """The learner's parameters after a task."""
    s = stage.settings
    portions = [replace(learner.portion(stage, data, s.training.batch), ramp=s.training.ramp)]
    if replay:
        former = [learner.portion(of, some, s.rehearsal.batch) for of, some in replay]
        portions.append(replace(joined(former), weight=s.rehearsal.weight))
    against = s.evaluation.training_attack(s.training.attack_steps, stage.valid)
    rng = generator(s.seed, 3, number - 1, device=w.device)
    return train_on(learner.model, w, portions, against, s.training, rng)


def _verdicts(learner: Learner, w: Tensor, stage: Prepared, *, strong: bool) -> dict[str, tuple[float, float]]:
    """Under each attack: the accuracy on a task's test samples, and that in its worst class."""
    if stage.test is None:
        msg = "There are no samples to judge on; set `evaluation.draws` to at least 1."
        raise ValueError(msg)
    s, test = stage.settings, stage.test.to(w.device)
    attacks = s.evaluation.attacks(stage.valid)
    if strong:
        attacks |= s.evaluation.strong_attacks(stage.valid, len(stage.classes))
    found = {}
    for name, attack in attacks.items():
        some = _drawn(test, s.evaluation.auto_samples, s.seed) if name == "autoattack" else test
        right = _withstood(learner, w, stage, attack, some)
        classes = [float(right[some.y == label].double().mean()) for label in set(some.y.tolist())]
        found[name] = float(right.double().mean()), min(classes)
    return found


def _withstood(learner: Learner, w: Tensor, stage: Prepared, attack: Attack, test: LabelledData) -> Tensor:
    columns, rng = learner.columns(stage), generator(stage.settings.seed, 4, 0, device=w.device)
    logits = lambda x: learner.model.logits(w, x)[:, columns]  # noqa: E731
    parts = [test.take(rows) for rows in torch.arange(len(test), device=w.device).chunk(math.ceil(len(test) / CHUNK))]
    return torch.cat([withstood(logits, attack, part.x, part.y, stage.valid, rng) for part in parts])


def _drawn(test: LabelledData, most: int, seed: int) -> LabelledData:
    rows = torch.randperm(len(test), generator=generator(seed, 12))[:most]
    return test.take(rows.to(test.y.device))


def _rows(  # noqa: PLR0913
    learner: Learner,
    w: Tensor,
    stages: Sequence[Prepared],
    label: str,
    picks: Sequence[Picked],
    learned: Sequence[Learned],
) -> list[Row]:
    return [
        Row(
            method=label,
            seed=stage.settings.seed,
            task=number,
            attack=name,
            accuracy=accuracy,
            seconds=round(picked.seconds, 3),
            floats=picked.floats,
            passes=picked.passes,
            worst_class=worst,
            forgetting=after.accuracy[name] - accuracy if name in after.accuracy else None,
            collapsed=after.collapsed,
        )
        for number, (stage, picked, after) in enumerate(zip(stages, picks, learned, strict=True), start=1)
        for name, (accuracy, worst) in _verdicts(learner, w, stage, strong=True).items()
    ]
