"""Photographs of 200 kinds of things, cut down from ImageNet; its published labelled validation part is the test part.

Le, Yang: Tiny ImageNet Visual Recognition Challenge, CS 231N, Stanford, 2015.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from f2cto.data.pixels import as_bytes, decoded
from f2cto.data.samples import DataSet, Samples, numbered
from f2cto.data.sources.source import Download, Published, Source

SIDE = 64


def load(root: Path) -> DataSet:
    """The classes that are here: 500 and 50 images of each."""
    folder = root / SOURCE.folder
    listed = sorted(set(SOURCE.needed(folder / "wnids.txt").read_text(encoding="utf-8").split()))
    wnids = [wnid for wnid in listed if (folder / "train" / wnid / "images").is_dir()]
    if not wnids:
        raise SOURCE.broken(folder / "train", "holds the images of none of the classes in wnids.txt")
    files = [sorted((folder / "train" / wnid / "images").glob("*.JPEG")) for wnid in wnids]
    paths = [path for group in files for path in group]
    y = torch.arange(len(wnids)).repeat_interleave(torch.tensor([len(group) for group in files]))
    return DataSet(
        name="tiny-imagenet",
        train=numbered(torch.from_numpy(decoded(paths, _image)), y),
        test=_validation(folder, listed, wnids),
        classes=_names(folder, wnids),
        files=tuple(path.relative_to(folder).as_posix() for path in paths),
        notes=(f"{len(wnids)} of 200 classes are here.",) if len(wnids) < 200 else (),
    )


def _validation(folder: Path, listed: Sequence[str], wnids: Sequence[str]) -> Samples:
    """The validation images of the given classes, in the order of the annotations."""
    path, images = folder / "val" / "val_annotations.txt", folder / "val" / "images"
    lines = SOURCE.needed(path).read_text(encoding="utf-8").splitlines()
    labels = dict(line.split("\t")[:2] for line in lines if line.count("\t"))
    if unknown := sorted(set(labels.values()) - set(listed)):
        raise SOURCE.broken(path, f"has the label {unknown[0]}, which is not in wnids.txt")
    if bare := sorted({image.name for image in images.glob("*.JPEG")} - set(labels)):
        raise SOURCE.broken(path, f"has no line for {len(bare)} images, the first of them val/images/{bare[0]}")
    position = {wnid: number for number, wnid in enumerate(wnids)}
    chosen = {name: position[wnid] for name, wnid in labels.items() if wnid in position}
    if not chosen:
        raise SOURCE.broken(path, "names no image of the classes whose training images are here")
    pixels = torch.from_numpy(decoded([images / name for name in chosen], _image))
    return numbered(pixels, torch.tensor(list(chosen.values()), dtype=torch.long))


def _names(folder: Path, wnids: Sequence[str]) -> tuple[str, ...]:
    """The first name of each class; where two are called the same, their WordNet numbers tell them apart."""
    lines = SOURCE.needed(folder / "words.txt").read_text(encoding="utf-8").splitlines()
    words = dict(line.split("\t", 1) for line in lines if "\t" in line)
    names = [words.get(wnid, wnid).split(",")[0] for wnid in wnids]
    count = Counter(names)
    return tuple(name if count[name] == 1 else f"{name} ({wnid})" for name, wnid in zip(names, wnids, strict=True))


def _image(path: Path) -> NDArray[np.uint8]:
    """One image in colour; about one in fifty is published in grey."""
    try:
        with Image.open(SOURCE.needed(path)) as image:
            if image.size != (SIDE, SIDE):
                raise SOURCE.broken(path, f"has {image.width} x {image.height} pixels instead of {SIDE} x {SIDE}")
            return as_bytes(image, grey=False)
    except (OSError, SyntaxError) as error:  # what Pillow raises on broken files
        raise SOURCE.broken(path, "cannot be read as an image") from error


SOURCE = Source(
    name="tiny-imagenet",
    about="100,000 and 10,000 colour photographs of 64 x 64 pixels in 200 classes.",
    load=load,
    folder="tiny-imagenet-200",
    downloads=(
        Download(
            "http://cs231n.stanford.edu/tiny-imagenet-200.zip", "md5:90528d7ca1a48142e341f4ef8d21d0de", unpack=True
        ),
    ),
    published=Published(train=100_000, test=10_000, classes=200),
)
