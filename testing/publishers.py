"""Tiny data sets written in their publishers' own formats."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Array = NDArray[Any]
Part = tuple[Array, Array]  # images and labels


def images(count: int, shape: tuple[int, ...], classes: int, seed: int) -> Part:
    """Bytes of noise with labels 0, 1, ..., 0, 1, ..."""
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), np.uint8), np.arange(count) % classes


def idx(array: Array) -> bytes:
    """An array of bytes as an idx file, not yet packed."""
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def mnist(root: Path, train: Part, test: Part) -> Path:
    """Images (M, 28, 28) in the four files."""
    folder = root / "mnist"
    folder.mkdir(parents=True)
    for name, (x, y) in {"train": train, "t10k": test}.items():
        (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(x)))
        (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(y)))
    return folder


def cifar100(root: Path, train: Part, test: Part, names: Sequence[str]) -> Path:
    """Images (M, 3, 32, 32) in the binary version; all coarse labels are 7."""
    folder = root / "cifar-100-binary"
    folder.mkdir(parents=True)
    for name, (x, y) in {"train": train, "test": test}.items():
        records = np.hstack([np.full((len(y), 1), 7), y[:, None], x.reshape(len(y), -1)])
        (folder / f"{name}.bin").write_bytes(records.astype(np.uint8).tobytes())
    (folder / "fine_label_names.txt").write_text("\n".join(names) + "\n\n")  # the published file ends in an empty line
    (folder / "coarse_label_names.txt").write_text("things\n")
    return folder


def jpeg(path: Path, colour: int | tuple[int, int, int], side: int = 64) -> None:
    """An image of one colour, or of one grey as a greyscale JPEG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L" if isinstance(colour, int) else "RGB", (side, side), colour).save(path, format="JPEG")


def tiny_imagenet(
    root: Path, train: Mapping[str, Sequence[Any]], val: Sequence[tuple[str, Any]], words: Mapping[str, str]
) -> Path:
    """Images of one colour each; `train` has the colours of each wnid, `val` a wnid and a colour for each image."""
    folder = root / "tiny-imagenet-200"
    for wnid, colours in train.items():
        for number, colour in enumerate(colours):
            jpeg(folder / "train" / wnid / "images" / f"{wnid}_{number}.JPEG", colour)
    for number, (_, colour) in enumerate(val):
        jpeg(folder / "val" / "images" / f"val_{number}.JPEG", colour)
    lines = [f"val_{number}.JPEG\t{wnid}\t0\t0\t63\t63\n" for number, (wnid, _) in enumerate(val)]
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    (folder / "wnids.txt").write_text("".join(f"{wnid}\n" for wnid in words))
    (folder / "words.txt").write_text("".join(f"{wnid}\t{word}\n" for wnid, word in words.items()))
    return folder


def hapt_arrays(root: Path, **arrays: Array) -> Path:
    """The compact copy: signal (N, 6), label, subject, experiment."""
    path = root / "hapt" / "hapt_raw_50hz.npz"
    path.parent.mkdir(parents=True)
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]  # numpy takes `allow_pickle` for one of them
    return path


def hapt_texts(root: Path, recordings: Sequence[tuple[int, int, Array, Array]]) -> Path:
    """The published files of recordings (experiment, subject, signal, label), inside the folder of the archive."""
    folder = root / "hapt" / "HAPT Data Set" / "RawData"
    folder.mkdir(parents=True)
    marks = []
    for experiment, subject, signal, label in recordings:
        name = f"exp{experiment:02d}_user{subject:02d}.txt"
        np.savetxt(folder / f"acc_{name}", signal[:, :3], fmt="%.9g")
        np.savetxt(folder / f"gyro_{name}", signal[:, 3:], fmt="%.9g")
        edges = [0, *(np.flatnonzero(np.diff(label)) + 1).tolist(), len(label)]
        for first, end in pairwise(edges):
            if label[first] != -1:
                marks.append(f"{experiment} {subject} {label[first]} {first} {end - 1}\n")
    (folder / "labels.txt").write_text("".join(marks))
    return folder
