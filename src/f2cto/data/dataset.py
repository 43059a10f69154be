"""Labelled samples as two tensors, and the checks that make them so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

Source = Any  # (x, y) as arrays, tensors or nested lists, or a torch Dataset of (x, y) pairs


@dataclass(frozen=True, eq=False)
class LabelledData:
    """Samples and their classes."""

    x: Tensor  # (M, *features), floating
    y: Tensor  # (M,), int64

    def __len__(self) -> int:
        """How many samples there are."""
        return len(self.y)

    def take(self, rows: Tensor) -> LabelledData:
        """Some of the samples, in the given order."""
        return LabelledData(self.x[rows], self.y[rows])


def concat(parts: Sequence[LabelledData]) -> LabelledData:
    """All parts after each other."""
    return LabelledData(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))


def as_labelled(source: Source, name: str) -> LabelledData:
    """Checked tensors out of (x, y) or a torch `Dataset`; the caller's data are never written to.

    Bytes (uint8) are divided by 255, other numbers become float32. `name` says in errors whose data they are.
    """
    if isinstance(source, LabelledData):
        x, y = source.x, source.y
    elif isinstance(source, Dataset):
        x, y = _from_dataset(source, name)
    elif isinstance(source, tuple | list) and len(source) == 2:
        x, y = _tensor(source[0], f"x of {name}"), _tensor(source[1], f"y of {name}")
    else:
        msg = f"{name} must be a pair (x, y) or a torch Dataset; got {type(source).__name__}."
        raise TypeError(msg)
    _check_lengths(x, y, name)
    return LabelledData(_features(x, name), _labels(y, name))


def check_alike(parts: Sequence[LabelledData], classes: int | None) -> int:
    """The number of classes, after checking that all parts can belong to one problem."""
    shapes = {tuple(part.x.shape[1:]) for part in parts}
    if len(shapes) > 1:
        msg = f"All shards need samples of one shape; got {', '.join(map(str, sorted(shapes)))}."
        raise ValueError(msg)
    top = max(int(part.y.max()) for part in parts) + 1
    if classes is not None and top > classes:
        msg = f"Labels must be 0 to {classes - 1} because the model has {classes} outputs; got label {top - 1}."
        raise ValueError(msg)
    if len(torch.cat([part.y for part in parts]).bincount().nonzero()) < 2:
        msg = f"All samples have label {top - 1}; selecting for a classifier needs at least two classes."
        raise ValueError(msg)
    return classes or top


def check_range(data: LabelledData, low: float, high: float, name: str) -> None:
    """Refuse features outside the range that attacks are confined to."""
    smallest, largest = float(data.x.min()), float(data.x.max())
    slack = 1e-6 * (high - low)
    if smallest < low - slack or largest > high + slack:
        msg = (
            f"{name} has features from {smallest:.4g} to {largest:.4g}, outside the valid range [{low:g}, {high:g}]; "
            "scale the data, or set `range.low` and `range.high`."
        )
        raise ValueError(msg)


def _from_dataset(source: Dataset[Any], name: str) -> tuple[Tensor, Tensor]:
    count = len(source)  # type: ignore[arg-type]  # torch leaves __len__ out of Dataset on purpose
    if count == 0:
        return torch.empty(0, 1), torch.empty(0, dtype=torch.long)
    pairs = [source[i] for i in range(count)]
    xs = [_tensor(x, f"sample {i} of {name}") for i, (x, _) in enumerate(pairs)]
    if len({x.shape for x in xs}) > 1:
        msg = f"The samples of {name} have different shapes; bring them to one."
        raise ValueError(msg)
    return torch.stack(xs), _tensor([int(y) for _, y in pairs], f"labels of {name}")


def _tensor(values: Any, what: str) -> Tensor:  # noqa: ANN401  (anything array-like)
    if isinstance(values, Tensor):
        return values.detach()
    try:
        array = np.asarray(values)
        return torch.from_numpy(np.array(array, order="C"))
    except (TypeError, ValueError) as error:
        msg = f"The {what} must be an array of numbers; {error}."
        raise TypeError(msg) from error


def _check_lengths(x: Tensor, y: Tensor, name: str) -> None:
    if y.ndim != 1:
        msg = f"The labels of {name} must be a vector of class numbers; got shape {tuple(y.shape)}."
        raise ValueError(msg)
    if x.ndim < 2:
        msg = f"The samples of {name} must have shape (count, features…); got {tuple(x.shape)}."
        raise ValueError(msg)
    if len(x) != len(y):
        msg = f"{name} has {len(x)} samples but {len(y)} labels."
        raise ValueError(msg)
    if len(y) == 0:
        msg = f"{name} is empty; leave it out or give it data."
        raise ValueError(msg)


def _features(x: Tensor, name: str) -> Tensor:
    if x.is_complex():
        msg = f"The samples of {name} are complex numbers; give real ones."
        raise TypeError(msg)
    x = x.float() / 255 if x.dtype == torch.uint8 else x.float()
    bad = ~torch.isfinite(x).flatten(1).all(dim=1)
    if bool(bad.any()):
        first = int(bad.nonzero()[0])
        msg = f"{name} has {int(bad.sum())} samples with NaN or infinite features, the first in row {first}."
        raise ValueError(msg)
    return x


def _labels(y: Tensor, name: str) -> Tensor:
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        msg = f"The labels of {name} must be whole class numbers 0, 1, …; got {y.dtype}."
        raise TypeError(msg)
    y = y.long()
    if int(y.min()) < 0:
        msg = f"The labels of {name} must be 0 or larger; got {int(y.min())} in row {int(y.argmin())}."
        raise ValueError(msg)
    return y
