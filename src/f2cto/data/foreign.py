"""Samples and labels out of other libraries' containers: pandas and polars frames, Hugging Face data sets.

They are known by what they can do; none of those libraries is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2cto.data.errors import DataError
from f2cto.data.labels import missing
from f2cto.data.pixels import all_grey, as_bytes

Array = NDArray[Any]
LABELS = ("label", "labels", "y")  # what Hugging Face data sets call their labels


def is_frame(value: object) -> bool:
    """Whether this is a pandas or polars frame."""
    return hasattr(type(value), "columns") and hasattr(value, "to_numpy")


def is_hugging_face(value: object) -> bool:
    """Whether this is a Hugging Face data set, one split of it, that can be read at any place."""
    alike = hasattr(value, "column_names") and hasattr(value, "with_format") and hasattr(value, "__len__")
    return alike and not isinstance(value, dict)  # a dict of splits looks the same


def frame_arrays(frame: Any, label: str, name: str) -> tuple[Array, Array]:  # noqa: ANN401  (no import of pandas)
    """All columns but one as features, that one as labels."""
    columns = [column for column in frame.columns if column != label]
    if len(columns) == len(frame.columns):
        raise DataError(missing("column", label, list(frame.columns), name))
    return frame_features(frame, columns, name), np.asarray(frame[label])


def frame_features(frame: Any, columns: Iterable[Any], name: str) -> Array:  # noqa: ANN401
    """Columns of a frame, side by side."""
    return _side_by_side({column: np.asarray(frame[column]) for column in columns}, name)


def hugging_face_arrays(data: Any, label: str | None, name: str) -> tuple[Array, Array]:  # noqa: ANN401
    """The one column of pictures or arrays, or all columns of numbers, and the labels."""
    named = [column for column in LABELS if column in data.column_names]
    if label is None and not named:
        msg = (
            f"{name} has no column label, labels or y but {', '.join(data.column_names)}; "
            "name the one with the labels: (data, 'column')."
        )
        raise ValueError(msg)
    label = label or named[0]
    if label not in data.column_names:
        raise DataError(missing("column", label, data.column_names, name))
    kinds = {column: kind for column, kind in data.features.items() if column != label}
    pictures = [column for column, kind in kinds.items() if type(kind).__name__ == "Image"]
    y = _given(np.asarray(data.select_columns([label]).with_format("numpy")[:][label]), name)
    if len(pictures) == 1:
        return _stacked(data.with_format(None)[:][pictures[0]], name), y
    values = data.select_columns(list(kinds)).with_format("numpy")[:]
    arrays = {column: _own_type(np.asarray(values[column]), kind) for column, kind in kinds.items()}
    single = len(arrays) == 1 and next(iter(arrays.values())).ndim > 1
    return next(iter(arrays.values())) if single else _side_by_side(arrays, name), y


def _given(y: Array, name: str) -> Array:
    """Labels as they are, unless some are -1: so Hugging Face writes that there is none."""
    missing_ones = np.flatnonzero(y == -1)
    if len(missing_ones):
        msg = (
            f"{name} has {len(missing_ones)} samples without a label (-1), the first in row {missing_ones[0]}; "
            "leave them out, or take a split that has labels."
        )
        raise ValueError(msg)
    return y


def _side_by_side(columns: Mapping[Any, Array], name: str) -> Array:
    if not columns:
        msg = f"{name} has no columns beside the label; give it features."
        raise ValueError(msg)
    for column, values in columns.items():
        if values.dtype.kind not in "biuf" or values.ndim != 1:
            msg = f"The column `{column}` of {name} does not hold one number a row; make numbers of it or leave it out."
            raise TypeError(msg)
    return np.stack(list(columns.values()), axis=1)


def _stacked(images: Sequence[Any], name: str) -> Array:
    grey = all_grey([image.mode for image in images])
    if len({image.size for image in images}) > 1:
        msg = f"The pictures of {name} have different sizes; bring them to one."
        raise ValueError(msg)
    try:
        return np.stack([as_bytes(image, grey=grey) for image in images])
    except ValueError as error:
        msg = f"A picture of {name} cannot be used: {error}."
        raise ValueError(msg) from error


def _own_type(values: Array, kind: Any) -> Array:  # noqa: ANN401
    """Bytes as bytes: numbers of any width come as 64 bits."""
    while hasattr(kind, "feature"):
        kind = kind.feature
    return values.astype(np.uint8) if getattr(kind, "dtype", "") == "uint8" and values.dtype.kind == "i" else values
