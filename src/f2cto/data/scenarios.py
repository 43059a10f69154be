"""From a data set to a sequence of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import torch
from torch import Tensor

from f2cto.data.errors import DataError
from f2cto.data.samples import DataSet, Samples
from f2cto.data.tasks import Cut, Task, drawn, held_out, only
from f2cto.randomness import generator

STANDARD = Cut()


def whole(data: DataSet, cut: Cut = STANDARD) -> list[Task]:
    """One task with all classes."""
    train, test = held_out(data, cut)
    return [Task("all", *drawn(train, cut, generator(cut.seed, 7)), test, _every_class(data))]


def permuted(data: DataSet, tasks: int, cut: Cut = STANDARD) -> list[Task]:
    """The same classes over and over, each time with the features in another order; the first task keeps theirs."""
    if tasks < 1:
        msg = f"A scenario needs at least one task; got {tasks}."
        raise DataError(msg)
    train, test = held_out(data, cut)
    features = _numbers(train)[0].numel()
    found = []
    for task in range(tasks):
        order = permutation(features, cut.seed, task)
        own, validation = (_reordered(part, order) for part in drawn(train, cut, generator(cut.seed, 7, task)))
        found.append(
            Task(f"permutation {task + 1}", own, validation, _reordered(test, order), _every_class(data)),
        )
    return found


def permutation(features: int, seed: int, task: int) -> Tensor:
    """Which feature comes where in a task; task 0 leaves all in place."""
    return torch.randperm(features, generator=generator(seed, 8, task)) if task else torch.arange(features)


def split(
    data: DataSet,
    classes_per_task: int,
    cut: Cut = STANDARD,
    *,
    tasks: int | None = None,
    order: Sequence[int] | None = None,
) -> list[Task]:
    """Other classes each time, as many in every task.

    Args:
        data: what to split.
        classes_per_task: how many classes a task has.
        cut: how samples are drawn.
        tasks: how many tasks; if not given, as many as there are classes for, and none may be left over.
        order: the classes in the order in which they are met; if not given, all that have samples, by number.

    """
    present = sorted(set(data.train.y.tolist()))
    groups = _class_groups(data.name, _checked_order(order, present), classes_per_task, tasks)
    train, test = held_out(data, cut)
    found = []
    for task, group in enumerate(groups):
        own, validation = drawn(only(train, train.y, group), cut, generator(cut.seed, 7, task))
        name = _listed([data.classes[label] for label in group])
        found.append(Task(name, own, validation, only(test, test.y, group), tuple(group)))
    return found


def by_domain(data: DataSet, column: str | None = None, cut: Cut = STANDARD, *, tasks: int | None = None) -> list[Task]:
    """The same classes from elsewhere each time: a task for every site, or for every value of a column.

    Sites or values are met in their order. With `tasks` they are put together into so many groups.
    """
    values = sorted(set(_domains(data.name, data.train, column)))
    if tasks is not None and not 1 <= tasks <= len(values):
        msg = f"The {len(values)} domains of {data.name} make 1 to {len(values)} tasks; got {tasks}."
        raise DataError(msg)
    number = {value: i for i, value in enumerate(values)}
    names = [data.sites[value] for value in values] if column is None and data.sites else [str(v) for v in values]
    train, test = held_out(data, cut)
    of_train, of_test = (
        torch.tensor([number.get(value, -1) for value in _domains(data.name, part, column)]) for part in (train, test)
    )
    found = []
    for task, part in enumerate(torch.arange(len(values)).tensor_split(tasks or len(values))):
        group = part.tolist()
        own, validation = drawn(only(train, of_train, group), cut, generator(cut.seed, 7, task))
        name = _listed([names[i] for i in group])
        found.append(Task(name, own, validation, only(test, of_test, group), _every_class(data)))
    return found


def _reordered(samples: Samples, order: Tensor) -> Samples:
    x = _numbers(samples)
    return replace(samples, x=x.flatten(1)[:, order].view(x.shape))


def _numbers(samples: Samples) -> Tensor:
    if isinstance(samples.x, Tensor):
        return samples.x
    msg = "Columns of different kinds cannot change places; make tasks out of a table with `split` or `by_domain`."
    raise DataError(msg)


def _domains(name: str, samples: Samples, column: str | None) -> list[Any]:
    """Where each sample comes from."""
    if column is None:
        if samples.sites is None:
            msg = f"{name} does not say whose its samples are; name a column to make tasks of."
            raise DataError(msg)
        return samples.sites.tolist()
    if not isinstance(samples.x, pl.DataFrame) or column not in samples.x.columns:
        there = ", ".join(samples.x.columns) if isinstance(samples.x, pl.DataFrame) else "none, only arrays of numbers"
        msg = f"{name} has no column `{column}`; it has {there}."
        raise DataError(msg)
    values = samples.x[column].to_list()
    if None in values:
        msg = f"The column `{column}` of {name} has empty cells, so their rows belong to no task; fill them."
        raise DataError(msg)
    return values


def _class_groups(name: str, order: Sequence[int], size: int, tasks: int | None) -> list[list[int]]:
    """The classes of each task."""
    if not 2 <= size <= len(order):
        msg = f"A task of {name} can have 2 to {len(order)} classes; got {size}."
        raise DataError(msg)
    most = len(order) // size
    if tasks is None and len(order) % size:
        msg = f"The {len(order)} classes of {name} do not go up in tasks of {size}; say how many tasks, up to {most}."
        raise DataError(msg)
    if tasks is not None and not 1 <= tasks <= most:
        msg = f"The {len(order)} classes of {name} make 1 to {most} tasks of {size} classes; got {tasks} tasks."
        raise DataError(msg)
    return [list(order[task * size : (task + 1) * size]) for task in range(tasks or most)]


def _checked_order(order: Sequence[int] | None, present: Sequence[int]) -> Sequence[int]:
    if order is None:
        return present
    if len(set(order)) < len(order) or not set(order) <= set(present):
        msg = f"The class order must name each class once, out of {list(present)}; got {list(order)}."
        raise DataError(msg)
    return order


def _every_class(data: DataSet) -> tuple[int, ...]:
    return tuple(range(len(data.classes)))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) < 4 else f"{names[0]} to {names[-1]}"
