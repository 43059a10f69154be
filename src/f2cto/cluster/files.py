"""Shards that are files: every worker opens its own, and the program that leads never holds a sample.

What it gets to know of a file: how many samples it has, their shape or columns, and the names of the classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from f2cto.attacks.base import Range
from f2cto.cluster.fleet import HERE, RayFleet
from f2cto.cluster.hosts import Cluster, Hosts
from f2cto.config import SettingsError
from f2cto.data.array_file import LABELS, label_series, load_arrays, sample_array
from f2cto.data.dataset import LabelledData, as_labelled, check_range
from f2cto.data.errors import DataError
from f2cto.data.foreign import frame_features
from f2cto.data.labels import missing, numbered_names, sorted_names
from f2cto.data.table_file import column_rows
from f2cto.federation.engine import WorkerFailedError
from f2cto.federation.faults import Faults
from f2cto.methods.base import Given, OnRound, Shard
from f2cto.methods.catalogue import make_selector
from f2cto.methods.quotas import Balance
from f2cto.methods.running import Result, run
from f2cto.models import FlatModel, fresh
from f2cto.randomness import generator
from f2cto.selection import Selection, coreset_sizes, loaded, proxy_network
from f2cto.training import Training

Model = nn.Module | Callable[[tuple[int, ...], int], nn.Module] | None  # a network, or what makes it for its samples


@dataclass(frozen=True)
class File:
    """A worker's file and where its labels are."""

    path: str  # as the worker's machine knows it
    label: str = ""  # the column of a table; for .npz the array, `y` if not given


@dataclass(frozen=True)
class Told:
    """All that a worker says about its file."""

    count: int
    shape: tuple[int, ...]  # of a sample
    classes: tuple[str, ...]  # those it has
    columns: tuple[str, ...] = ()  # of a table, without the label


@dataclass(frozen=True, eq=False)
class Contents:
    """A file, opened."""

    data: LabelledData  # labels are positions in the file's own classes
    told: Told


@dataclass(frozen=True, eq=False)
class FileShard:
    """A shard that is opened where it is used."""

    file: File
    classes: tuple[str, ...]  # of all workers
    shard: Mapping[str, Any] = field(default_factory=dict)  # all else that a `Shard` has

    def __call__(self) -> Shard:
        """The shard with its samples."""
        found = contents(self.file)
        place = torch.tensor([self.classes.index(name) for name in found.told.classes])
        return Shard(found.data.x, place[found.data.y], **self.shard)


def tell(file: File, valid: Range) -> Told:
    """What is said about a file, whose features have to be in range."""
    found = contents(file)
    check_range(found.data, valid.low, valid.high, file.path)
    return found.told


@cache  # a worker opens its file once, to tell about it, and works with what it has then
def contents(file: File) -> Contents:
    """All rows of a file of numbers."""
    path = Path(file.path)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return _arrays(path, file.label or LABELS)
    if suffix in {".csv", ".parquet"}:
        return _table(path, file.label)
    msg = f"{path} is of no known kind; give a .parquet, .csv or .npz file."
    raise DataError(msg)


def _arrays(path: Path, label: str) -> Contents:
    arrays = load_arrays(path)
    x = sample_array(arrays, path)
    y, classes = numbered_names(label_series(arrays, label, path), f"the array {label} of {path}")
    data = as_labelled((x, y), str(path))
    return Contents(data, Told(len(data), tuple(data.x.shape[1:]), classes))


def _table(path: Path, label: str) -> Contents:
    frame = column_rows(path)
    if label not in frame.columns:
        raise DataError(missing("column", label, frame.columns, str(path)))
    y, classes = numbered_names(frame[label], f"the column {label} of {path}")
    columns = tuple(sorted(name for name in frame.columns if name != label))  # whatever their order in the file
    data = as_labelled((frame_features(frame, columns, str(path)), y), str(path))
    return Contents(data, Told(len(data), tuple(data.x.shape[1:]), classes, columns))


def select_files(  # noqa: PLR0913  (as `select`)
    paths: Sequence[str | Path],
    size: float | Sequence[int],
    *,
    label: str = "",
    model: Model = None,
    settings: object = None,
    seed: int = 0,
    method: str = "f2cto",
    valid: Range | None = None,
    radius: float = 0.1,
    balance: Balance = Balance.EVEN,
    training: Training | None = None,
    cluster: Cluster = HERE,
    faults: Faults | None = None,
    on_round: OnRound = lambda _: None,
) -> Selection:
    """As `f2cto.select`, on a cluster, with one file of numbers per worker; `indices` are row numbers of the files.

    Args:
        paths: .npz, .parquet or .csv files, each readable under this path where its worker runs. Bytes are divided by
            255, other numbers have to be in the valid range already.
        size: as for `select`; so are all others that are not named here.
        label: the column with the classes; of .npz files the array, `y` if not given.
        model: the proxy network, or what makes it for a shape of samples and a number of classes.
        settings: those of the method.
        seed: the same seed gives the same bits.
        method: one of `f2cto list`.
        valid: the range of the features.
        radius: how far attacks move a feature.
        balance: of classes.
        training: how models will be trained on what is kept.
        cluster: where the workers run.
        faults: what to do about workers that fail.
        on_round: is told about every iteration as it ends.

    """
    if not paths:
        msg = "There are no files to select from; give one for each worker."
        raise DataError(msg)
    valid = valid or Range()
    files = [File(str(path), label) for path in paths]
    hosts = Hosts(len(files), cluster)
    try:
        told = all_told(hosts, files, valid)
        classes = agreed(told, files)
        network = _network(told[0].shape, len(classes), model, seed)
        flat = FlatModel(network)
        shards = [
            FileShard(file, classes, {"size": k, "model": flat, "worker": i, "seed": seed, "balance": balance})
            for i, (file, k) in enumerate(zip(files, _sizes(size, told), strict=True))
        ]
        given = Given(flat.own(), valid, radius, balance, training or Training(), flat.sizes, seed)
        selector = make_selector(method, {} if settings is None else settings, given)
        gather = partial(RayFleet, faults=faults, hosts=hosts)
        return _selection(run(selector, shards, flat.own(), on_round, gather), network, classes)  # type: ignore[arg-type]
    finally:
        hosts.close()


def _sizes(size: float | Sequence[int], told: Sequence[Told]) -> list[int]:
    try:
        return coreset_sizes(size, [each.count for each in told])
    except ValueError as error:
        raise SettingsError(str(error)) from error


def _selection(result: Result, network: nn.Module, classes: tuple[str, ...]) -> Selection:
    return Selection(
        indices=[c.indices.numpy() for c in result.coresets],
        weights=[c.weights.double().numpy() for c in result.coresets],
        history=result.solution.history,
        model=loaded(network, FlatModel(network), result.solution.w),
        stopped=result.solution.stopped,
        traffic=result.traffic,
        classes=classes,
        absences=tuple(result.absences),
    )


def agreed(told: Sequence[Told], files: Sequence[File]) -> tuple[str, ...]:
    """The classes of all workers, after a check that all files can belong to one problem."""
    for file, each in zip(files, told, strict=True):
        if (each.shape, each.columns) != (told[0].shape, told[0].columns):
            odd = sorted({*each.columns} ^ {*told[0].columns})
            what = f"the columns {', '.join(odd)}" if odd else f"samples of shape {each.shape} and {told[0].shape}"
            msg = f"All files need the same features; {file.path} and {files[0].path} differ in {what}."
            raise DataError(msg)
    classes = sorted_names(sorted({name for each in told for name in each.classes}))
    if len(classes) < 2:
        msg = f"All samples of all files are `{classes[0]}`; selecting for a classifier needs at least two classes."
        raise DataError(msg)
    return classes


def all_told(hosts: Hosts, files: Sequence[File], valid: Range) -> list[Told]:
    """What all workers say about their files."""
    told = hosts.call({i: partial(tell, file, valid) for i, file in enumerate(files)})
    for i, each in sorted(told.items()):
        if isinstance(each, Exception):
            if str(each).startswith(f"{DataError.__name__}: "):  # raised elsewhere, and yet the user's to mend
                raise DataError(str(each).removeprefix(f"{DataError.__name__}: ")) from each
            raise WorkerFailedError(i, "open", each) from each
    return [each for _, each in sorted(told.items()) if isinstance(each, Told)]


def _network(shape: tuple[int, ...], classes: int, model: Model, seed: int) -> nn.Module:
    """The proxy, tried out on blank samples: the driver has no others."""
    if model is not None and not isinstance(model, nn.Module):
        model = fresh(partial(model, shape, classes), generator(seed, 1))
    return proxy_network(torch.zeros(1, *shape), torch.arange(classes), model, seed)[0]
