"""From one data set to a federation's shards: who gets which rows.

A partition takes labels and gives every worker its row numbers. The parts are disjoint and complete, and none is empty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Generator, Tensor

KINDS = "iid, dirichlet:0.3 or classes:2"


def partitioned(spec: str, y: Tensor, workers: int, rng: Generator) -> list[Tensor]:
    """The partition that a setting such as "iid", "dirichlet:0.3" or "classes:2" asks for."""
    kind, colon, value = spec.partition(":")
    if kind == "iid" and not colon:
        return iid(y, workers, rng)
    if kind == "dirichlet" and colon:
        return dirichlet(y, workers, rng, concentration=_number(spec, value))
    if kind == "classes" and colon:
        number = _number(spec, value)
        if not number.is_integer():
            msg = f"A partition such as classes:2 takes a whole number of classes; got `{spec}`."
            raise ValueError(msg)
        return classes(y, workers, rng, per_worker=int(number))
    msg = f"A partition is {KINDS}; got `{spec}`."
    raise ValueError(msg)


def iid(y: Tensor, workers: int, rng: Generator) -> list[Tensor]:
    """Shuffled rows dealt out evenly: sizes differ by at most one."""
    _check_workers(y, workers)
    return list(torch.randperm(len(y), generator=rng).tensor_split(workers))


def dirichlet(y: Tensor, workers: int, rng: Generator, *, concentration: float) -> list[Tensor]:
    """Each class cut up by shares drawn from a symmetric Dirichlet law: the smaller `concentration`, the more skewed.

    A worker who is left without a sample gets one from the worker who has most.
    """
    _check_workers(y, workers)
    if not (concentration > 0 and math.isfinite(concentration)):
        msg = f"The concentration of a Dirichlet partition must be a number above 0; got {concentration:g}."
        raise ValueError(msg)
    # torch's public Dirichlet law draws from the global generator only, so numpy draws the shares.
    shares = np.random.default_rng(int(torch.randint(2**62, (), generator=rng)))
    pieces: list[list[Tensor]] = [[] for _ in range(workers)]
    for members in _shuffled_classes(y, rng):
        ends = np.cumsum(shares.dirichlet(np.full(workers, concentration)))[:-1]
        cuts = np.rint(ends * len(members)).astype(int).tolist()
        for piece, part in zip(pieces, members.tensor_split(cuts), strict=True):
            piece.append(part)
    return _none_empty([torch.cat(piece) for piece in pieces])


def classes(y: Tensor, workers: int, rng: Generator, *, per_worker: int) -> list[Tensor]:
    """Samples of exactly `per_worker` classes for everyone; who hold a class share it evenly.

    Every class is held by as many workers as any other, give or take one, but by no more than it has samples.
    """
    _check_workers(y, workers)
    members = _shuffled_classes(y, rng)
    holders = _holders([len(rows) for rows in members], workers, per_worker, rng)
    pieces: list[list[Tensor]] = [[] for _ in range(workers)]
    for rows, held_by in zip(members, holders, strict=True):
        for worker, part in zip(held_by, rows.tensor_split(len(held_by)), strict=True):
            pieces[worker].append(part)
    return [torch.cat(piece) for piece in pieces]


def by_site(sites: Tensor) -> list[Tensor]:
    """A real partition: one part for every site that has samples, in the order of the sites' numbers."""
    return [(sites == site).nonzero().flatten() for site in sorted(set(sites.tolist()))]


def split(y: Tensor, share: float, rng: Generator) -> tuple[Tensor, Tensor]:
    """Two parts, the second with a `share` of every class, at least one sample where the class has two."""
    second = torch.zeros(len(y), dtype=torch.bool)
    for members in _shuffled_classes(y, rng):
        count = min(max(round(share * len(members)), 1), len(members) - 1)
        second[members[:count]] = True
    return (~second).nonzero().flatten(), second.nonzero().flatten()


def label_skew(y: Tensor, parts: Sequence[Tensor]) -> float:
    """How far the workers' label distributions are from that of all: mean total variation, 0 (alike) to below 1."""
    overall = y.bincount().double() / len(y)
    own = torch.stack([y[part].bincount(minlength=len(overall)).double() / len(part) for part in parts])
    return float((own - overall).abs().sum(dim=1).mean() / 2)


def _shuffled_classes(y: Tensor, rng: Generator) -> list[Tensor]:
    """The rows of every class that has any, in random order."""
    rows = [(y == label).nonzero().flatten() for label in y.bincount().nonzero().flatten()]
    return [members[torch.randperm(len(members), generator=rng)] for members in rows]


def _holders(counts: Sequence[int], workers: int, per_worker: int, rng: Generator) -> list[list[int]]:
    """The workers who hold each class.

    Places are first dealt out to the classes in turn, so evenly that none gets more than there are workers; then each
    worker takes the classes with most places left, an order that never runs into a dead end (Gale and Ryser).
    """
    _check_classes(counts, workers, per_worker)
    room = torch.tensor(counts)
    places = torch.zeros_like(room)
    for _ in range(workers * per_worker):
        turn = (places + torch.rand(len(counts), generator=rng)).where(places < room, math.inf)
        places[turn.argmin()] += 1
    holders: list[list[int]] = [[] for _ in counts]
    for worker in range(workers):
        taken = (places + torch.rand(len(counts), generator=rng)).topk(per_worker).indices
        places[taken] -= 1
        for label in taken.tolist():
            holders[label].append(worker)
    return holders


def _none_empty(parts: list[Tensor]) -> list[Tensor]:
    for worker in [i for i, part in enumerate(parts) if len(part) == 0]:
        largest = max(range(len(parts)), key=lambda i: len(parts[i]))
        parts[largest], parts[worker] = parts[largest][:-1], parts[largest][-1:]
    return parts


def _check_workers(y: Tensor, workers: int) -> None:
    if not 1 <= workers <= len(y):
        msg = f"{len(y)} samples can be dealt out to 1 to {len(y)} workers; got {workers}."
        raise ValueError(msg)


def _check_classes(counts: Sequence[int], workers: int, per_worker: int) -> None:
    if not 1 <= per_worker <= len(counts):
        msg = f"There are {len(counts)} classes, so a worker can have 1 to {len(counts)} of them; got {per_worker}."
        raise ValueError(msg)
    if workers * per_worker < len(counts):
        msg = (
            f"{workers} workers with {per_worker} classes each leave some of the {len(counts)} classes to nobody; "
            f"give each at least {math.ceil(len(counts) / workers)}."
        )
        raise ValueError(msg)
    if workers * per_worker > sum(min(count, workers) for count in counts):
        msg = (
            f"{workers} workers cannot have samples of {per_worker} classes each, because the smallest class has "
            f"{min(counts)}; ask for fewer classes or workers."
        )
        raise ValueError(msg)


def _number(spec: str, value: str) -> float:
    try:
        return float(value)
    except ValueError as error:
        msg = f"A partition is {KINDS}, with a number after the colon; got `{spec}`."
        raise ValueError(msg) from error
