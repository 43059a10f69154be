"""A folder of images in sub-folders, one for each class."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from PIL import Image

from f2cto.data.errors import DataError
from f2cto.data.labels import numbered_classes, sorted_names
from f2cto.data.pixels import all_grey, as_bytes, decoded
from f2cto.data.samples import DataSet, numbered

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
PARTS = {"train", "test", "val", "valid", "validation"}
UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)  # what Pillow raises on broken files


def read_images(folder: Path) -> DataSet:
    """All images as bytes, in colour if any of them is."""
    files = image_files(folder)
    where = f"the folder {folder}"
    y, classes = numbered_classes(files["label"], where)
    paths = [folder / file for file in files["file"]]
    return DataSet(
        name=folder.name,
        train=numbered(torch.from_numpy(_decoded(paths)), y),
        test=None,
        classes=classes,
        files=tuple(files["file"]),
        notes=_left_out(folder, files),
    )


def image_files(folder: Path) -> pl.DataFrame:
    """The files by class and name, with their labels: row n is the data set's sample n."""
    classes = [path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    if classes and {name.lower() for name in classes} <= PARTS:
        msg = f"{folder} holds the parts {' and '.join(sorted(classes))}, not classes; give one of them."
        raise DataError(msg)
    rows = [
        (path.relative_to(folder).as_posix(), name)
        for name in sorted_names(classes)
        for path in sorted((folder / name).rglob("*"))
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
    ]
    if not rows:
        msg = f"{folder} has no sub-folders with images ({', '.join(SUFFIXES)}); put each class into one of its own."
        raise DataError(msg)
    return pl.DataFrame(rows, schema={"file": pl.String, "label": pl.String}, orient="row")


def _decoded(paths: Sequence[Path]) -> NDArray[np.uint8]:
    grey = all_grey(_modes_of_one_size(paths))
    return decoded(paths, partial(_pixels, grey=grey))


def _modes_of_one_size(paths: Sequence[Path]) -> list[str]:
    """Pillow's modes, from the files' heads; nothing is decoded before all sizes are known to be one."""
    sizes, modes = [], []
    for path in paths:
        try:
            with Image.open(path) as image:
                sizes.append(image.size)
                modes.append(image.mode)
        except UNREADABLE as error:
            raise _unreadable(path, error) from error
        if sizes[-1] != sizes[0]:
            one, two = (f"{w} x {h}" for w, h in (sizes[0], sizes[-1]))
            msg = f"{paths[0]} has {one} pixels but {path} has {two}; bring all images to one size."
            raise DataError(msg)
    return modes


def _pixels(path: Path, *, grey: bool) -> NDArray[np.uint8]:
    try:
        with Image.open(path) as image:
            return as_bytes(image, grey=grey)
    except UNREADABLE as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: BaseException) -> DataError:
    return DataError(f"The image {path} cannot be used ({error}); repair it or take it out.")


def _left_out(folder: Path, files: pl.DataFrame) -> tuple[str, ...]:
    """What lies in the folder and is not among the images."""
    there = [path for path in folder.iterdir() if not path.name.startswith(".")]
    empty = sorted(path.name for path in there if path.is_dir() and path.name not in set(files["label"]))
    loose = sum(path.suffix.lower() in SUFFIXES for path in there if path.is_file())
    notes = [f"The sub-folder {name} has no images and is no class." for name in empty]
    if loose:
        notes.append(f"{loose} images that lie in no sub-folder were left out.")
    return tuple(notes)
