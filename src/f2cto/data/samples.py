"""Samples as their publisher or owner keeps them: bytes, numbers or columns, not yet what a model takes.

    source or file ─► DataSet ─► scenario ─► partition ─► encoding ─► LabelledData

Nothing is scaled before it is known whose samples they are: what scaling needs is fitted on the workers' own training
samples (`encoding`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples with their classes, and where each comes from."""

    x: Tensor | pl.DataFrame  # (M, *features), bytes or numbers; or M rows of typed columns
    y: Tensor  # (M,), int64: a position in the data set's `classes`
    rows: Tensor  # (M,), int64: each sample's number in its source, counted from 0
    sites: Tensor | None = None  # (M,), int64: whose each sample is, where the data say so

    def __len__(self) -> int:
        """How many samples there are."""
        return len(self.y)

    def take(self, positions: Tensor) -> Samples:
        """Some of the samples, in the given order."""
        x = self.x[positions] if isinstance(self.x, Tensor) else self.x[positions.numpy()]
        sites = None if self.sites is None else self.sites[positions]
        return replace(self, x=x, y=self.y[positions], rows=self.rows[positions], sites=sites)


def numbered(x: Tensor | pl.DataFrame, y: Tensor, sites: Tensor | None = None) -> Samples:
    """Samples that are a whole source, row by row."""
    return Samples(x, y, torch.arange(len(y)), sites)


def joined(parts: Sequence[Samples]) -> Samples:
    """All parts after each other; they belong to one data set."""
    tensors = [part.x for part in parts if isinstance(part.x, Tensor)]
    frames = [part.x for part in parts if isinstance(part.x, pl.DataFrame)]
    sites = [part.sites for part in parts if part.sites is not None]
    return Samples(
        x=torch.cat(tensors) if tensors else pl.concat(frames),
        y=torch.cat([part.y for part in parts]),
        rows=torch.cat([part.rows for part in parts]),
        sites=torch.cat(sites) if sites else None,
    )


@dataclass(frozen=True, eq=False)
class DataSet:
    """A named data set as it was found."""

    name: str
    train: Samples
    test: Samples | None  # none where its publisher made no split
    classes: tuple[str, ...]  # names, in the order of the labels
    sites: tuple[str, ...] = ()  # names, in the order of the samples' `sites`
    fixed: tuple[str, ...] = ()  # columns that an attacker cannot change
    files: tuple[str, ...] = ()  # for folders of images: the file of each row of `train`
    notes: tuple[str, ...] = ()  # what is missing, was left out or repaired, a sentence each
