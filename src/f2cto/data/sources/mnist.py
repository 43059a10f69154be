"""Handwritten digits in the four original idx files.

LeCun, Bottou, Bengio, Haffner: Gradient-Based Learning Applied to Document Recognition, Proc. IEEE 86(11), 1998.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from f2cto.data.samples import DataSet, Samples, numbered
from f2cto.data.sources.source import Download, Published, Source

# The first four bytes of an idx file: two zeros, 8 for unsigned bytes, and how many dimensions follow.
IMAGES, LABELS = 2051, 2049
CLASSES = tuple(map(str, range(10)))
MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist"  # the original site refuses downloads


def load(root: Path) -> DataSet:
    """60,000 and 10,000 digits."""
    return DataSet("mnist", _part(root / SOURCE.folder, "train"), _part(root / SOURCE.folder, "t10k"), CLASSES)


def _part(folder: Path, name: str) -> Samples:
    images, labels = folder / f"{name}-images-idx3-ubyte.gz", folder / f"{name}-labels-idx1-ubyte.gz"
    x, y = _read(images, IMAGES), _read(labels, LABELS)
    if len(x) != len(y):
        raise SOURCE.broken(labels, f"has {len(y)} labels for the {len(x)} images of {images.name}")
    if len(y) and int(y.max()) >= len(CLASSES):
        row = int(y.argmax())
        raise SOURCE.broken(labels, f"has label {int(y[row])} in row {row}, where labels are 0 to 9")
    return numbered(x.unsqueeze(1), y.long())


def _read(path: Path, magic: int) -> Tensor:
    """The array of bytes in a packed idx file."""
    content = _unpacked(path)
    dimensions = magic % 256
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise SOURCE.broken(path, f"has {len(content)} bytes, less than the {start} of its header")
    found, *shape = struct.unpack(f">{1 + dimensions}I", content[:start])
    if found != magic:
        raise SOURCE.broken(path, f"starts with the magic number {found} instead of {magic}")
    if len(content) - start != math.prod(shape):
        expected = " x ".join(map(str, shape))
        raise SOURCE.broken(path, f"has {len(content) - start} bytes of data where its header says {expected}")
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=start).reshape(shape))


def _unpacked(path: Path) -> bytearray:
    try:
        # A bytearray, because torch warns of memory that it must not write to.
        return bytearray(gzip.decompress(SOURCE.needed(path).read_bytes()))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise SOURCE.broken(path, f"cannot be unpacked ({error})") from error


SOURCE = Source(
    name="mnist",
    about="60,000 and 10,000 handwritten digits of 28 x 28 pixels.",
    load=load,
    folder="mnist",
    downloads=tuple(
        Download(f"{MIRROR}/{name}.gz", f"md5:{md5}")
        for name, md5 in {
            "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
        }.items()
    ),
    published=Published(train=60_000, test=10_000, classes=10),
)
