"""Small colour images of 100 kinds of things, in the official binary version: unlike the Python one, no pickle.

Krizhevsky: Learning Multiple Layers of Features from Tiny Images, University of Toronto, 2009.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from f2cto.data.samples import DataSet, Samples, numbered
from f2cto.data.sources.source import Download, Published, Source

SHAPE = (3, 32, 32)
RECORD = 2 + 3 * 32 * 32  # bytes: the coarse label, the fine label, then the red, green and blue pixels
NAMES = "fine_label_names.txt"


def load(root: Path) -> DataSet:
    """50,000 and 10,000 images by fine label."""
    folder = root / SOURCE.folder
    classes = tuple(SOURCE.needed(folder / NAMES).read_text(encoding="utf-8").split())
    train, test = (_part(folder / name, len(classes)) for name in ("train.bin", "test.bin"))
    return DataSet("cifar100", train, test, classes)


def _part(path: Path, classes: int) -> Samples:
    size = SOURCE.needed(path).stat().st_size
    if size == 0 or size % RECORD:
        raise SOURCE.broken(path, f"has {size} bytes, not a whole number of records of {RECORD} bytes")
    # Mapped, so that pixels are read when they are used; copy on write, because torch wants memory it may write to.
    records = torch.from_numpy(np.memmap(path, np.uint8, mode="c", shape=(size // RECORD, RECORD)))
    y = records[:, 1].long()
    if int(y.max()) >= classes:
        row = int(y.argmax())
        raise SOURCE.broken(path, f"has label {int(y[row])} in record {row}, but {NAMES} names {classes} classes")
    return numbered(records[:, 2:].view(-1, *SHAPE), y)


SOURCE = Source(
    name="cifar100",
    about="50,000 and 10,000 colour images of 32 x 32 pixels in 100 classes.",
    load=load,
    folder="cifar-100-binary",
    downloads=(
        Download(
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            "md5:03b5dce01913d631647c71ecec9e9cb8",
            unpack=True,
        ),
    ),
    published=Published(train=50_000, test=10_000, classes=100),
)
