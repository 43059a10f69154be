"""Labelled samples as two tensors, and the checks that make them so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from f2cto.data.errors import DataError
from f2cto.data.foreign import frame_arrays, frame_features, hugging_face_arrays, is_frame, is_hugging_face

Source = Any  # what `as_labelled` takes
EMPTY = torch.empty(0, 1), torch.empty(0, dtype=torch.long)


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

    def to(self, device: torch.device) -> LabelledData:
        """The same samples on a device."""
        return LabelledData(self.x.to(device), self.y.to(device))


def concat(parts: Sequence[LabelledData]) -> LabelledData:
    """All parts after each other."""
    return LabelledData(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))


def as_labelled(source: Source, name: str) -> LabelledData:
    """Checked tensors out of what users have; the caller's data are never written to.

    Bytes (uint8) are divided by 255, other numbers become float32.

    Args:
        source: a pair (x, y) of arrays, tensors, nested lists or pandas or polars frames; a pair of a frame and the
            name of its label column; a torch `Dataset` of (x, y) pairs; or a Hugging Face `Dataset`, by itself if its
            labels are called label, labels or y, else in a pair with their name.
        name: says in errors whose data they are.

    """
    x, y = _tensors(source, name)
    _check_lengths(x, y, name)
    return LabelledData(_features(x, name), _labels(y, name))


def check_alike(parts: Sequence[LabelledData]) -> None:
    """Refuse parts that cannot belong to one problem."""
    shapes = {tuple(part.x.shape[1:]) for part in parts}
    if len(shapes) > 1:
        msg = f"All shards need samples of one shape; got {', '.join(map(str, sorted(shapes)))}."
        raise ValueError(msg)


def labels_in(parts: Sequence[LabelledData]) -> Tensor:
    """The different labels of all parts, in their order."""
    found: Tensor = torch.unique(torch.cat([part.y for part in parts]))
    if len(found) < 2:
        msg = f"All samples have label {int(found[0])}; selecting for a classifier needs at least two classes."
        raise ValueError(msg)
    return found


def output_labels(found: Tensor, outputs: int) -> Tensor:
    """The label that each output of a model stands for.

    Labels that are numbers of outputs already stay as they are. Any others need a model with one output for each.
    """
    if int(found[0]) >= 0 and int(found[-1]) < outputs:
        return torch.arange(outputs)
    if len(found) == outputs:
        return found.cpu()
    renumber = f"number them 0 to {outputs - 1}, or " if len(found) < outputs else ""
    msg = (
        f"Labels do not fit: the model has {outputs} outputs and the data {len(found)} classes, {int(found[0])} to "
        f"{int(found[-1])}; {renumber}give a model with {len(found)} outputs."
    )
    raise ValueError(msg)


def numbered(part: LabelledData, labels: Tensor) -> LabelledData:
    """The same samples, with each label's position among `labels`."""
    return LabelledData(part.x, torch.searchsorted(labels.to(part.y.device), part.y))


def check_range(data: LabelledData, low: float, high: float, name: str) -> None:
    """Refuse features outside the range that attacks are confined to."""
    smallest, largest = float(data.x.min()), float(data.x.max())
    slack = 1e-6 * (high - low)
    if smallest < low - slack or largest > high + slack:
        msg = (
            f"{name} has features from {smallest:.4g} to {largest:.4g}, outside the valid range [{low:g}, {high:g}]; "
            "scale the data, or say what is valid: `valid=Range(low, high)` in Python, `data.range.low` and "
            "`data.range.high` in settings."
        )
        raise DataError(msg)


def _tensors(source: Source, name: str) -> tuple[Tensor, Tensor]:
    if isinstance(source, LabelledData):
        return source.x, source.y
    if isinstance(source, Dataset) and not isinstance(source, IterableDataset):
        return _from_dataset(source, name)
    if is_hugging_face(source):
        source = (source, None)
    if not isinstance(source, tuple | list) or len(source) != 2:
        msg = (
            f"{name} must be a pair (x, y), a pair of a frame and its label column's name, or a Dataset with a length; "
            f"got {type(source).__name__}{', of which to take one entry' if isinstance(source, dict) else ''}."
        )
        raise TypeError(msg)
    x, y = source
    if is_hugging_face(x) and (y is None or isinstance(y, str)):
        x, y = hugging_face_arrays(x, y, name) if len(x) else EMPTY
    elif is_frame(x):
        x, y = frame_arrays(x, y, name) if isinstance(y, str) else (frame_features(x, x.columns, name), y)
    return _tensor(x, f"x of {name}"), _tensor(y, f"y of {name}")


def _from_dataset(source: Dataset[Any], name: str) -> tuple[Tensor, Tensor]:
    count = len(source)  # type: ignore[arg-type]  # torch leaves __len__ out of Dataset on purpose
    if count == 0:
        return EMPTY
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
        msg = f"The labels of {name} must be whole numbers; got {y.dtype}."
        raise TypeError(msg)
    if y.dtype == torch.uint64 and bool((y.long() < 0).any()):
        msg = f"The labels of {name} are numbers beyond 63 bits; give smaller ones."
        raise ValueError(msg)
    return y.long()
