"""From one data set to a federation's shards."""

from __future__ import annotations

import torch
from torch import Generator

from f2cto.data.dataset import LabelledData


def iid(data: LabelledData, workers: int, rng: Generator) -> list[LabelledData]:
    """Shuffled samples dealt out evenly: shard sizes differ by at most one."""
    if not 1 <= workers <= len(data):
        msg = f"{len(data)} samples can be dealt out to 1 to {len(data)} workers; got {workers}."
        raise ValueError(msg)
    rows = torch.randperm(len(data), generator=rng)
    return [data.take(part) for part in rows.tensor_split(workers)]


def split(data: LabelledData, share: float, rng: Generator) -> tuple[LabelledData, LabelledData]:
    """Two parts, the second with a `share` of every class, at least one sample where the class has two."""
    second = torch.zeros(len(data), dtype=torch.bool)
    for label in data.y.bincount().nonzero().flatten():
        members = (data.y == label).nonzero().flatten()
        members = members[torch.randperm(len(members), generator=rng)]
        count = min(max(round(share * len(members)), 1), len(members) - 1)
        second[members[:count]] = True
    return data.take((~second).nonzero().flatten()), data.take(second.nonzero().flatten())
