"""Named data sets. A source is a function without arguments to all its samples, with features in [0, 1]."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from sklearn.datasets import load_digits

from f2cto.data.dataset import LabelledData


def digits() -> LabelledData:
    """1,797 handwritten digits of 8 x 8 pixels, bundled with scikit-learn."""
    bunch = load_digits()
    x = torch.from_numpy(bunch.images).float().unsqueeze(1) / 16
    return LabelledData(x, torch.from_numpy(bunch.target).long())


SOURCES: Mapping[str, Callable[[], LabelledData]] = MappingProxyType({"digits": digits})
