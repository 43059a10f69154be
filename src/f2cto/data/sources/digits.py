"""Handwritten digits, bundled with scikit-learn: the default of the demo.

Alpaydin, Kaynak: Optical Recognition of Handwritten Digits, UCI, 1998.
"""

from __future__ import annotations

from pathlib import Path

import torch

from f2cto.data.samples import DataSet, numbered
from f2cto.data.sources.source import Published, Source


def load(root: Path) -> DataSet:  # noqa: ARG001  (nothing has to be there)
    """All digits; there is no split."""
    from sklearn.datasets import load_digits  # noqa: PLC0415  (two seconds that other sources need not wait)

    bunch = load_digits()
    x = torch.from_numpy(bunch.images).float().unsqueeze(1) / 16
    samples = numbered(x, torch.from_numpy(bunch.target).long())
    return DataSet("digits", samples, None, tuple(map(str, range(10))))


SOURCE = Source(
    name="digits",
    about="1,797 handwritten digits of 8 x 8 pixels, bundled with scikit-learn.",
    load=load,
    published=Published(train=1797, test=0, classes=10),
)
