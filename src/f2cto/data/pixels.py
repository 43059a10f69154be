"""Pictures as bytes: grey or in three colours, the channel first."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

GREY = {"1", "L", "LA"}
DEEP = {"I", "F", "I;16", "I;16B", "I;16L", "I;16N"}  # more than 8 bits a pixel


TOGETHER = 256  # pictures a thread decodes before it asks for more


def decoded(paths: Sequence[Path], decode: Callable[[Path], NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """All pictures in one array, (M, channels, height, width); all are of one shape."""
    pixels = np.empty((len(paths), *decode(paths[0]).shape), np.uint8)

    def some(start: int) -> None:
        for row, path in enumerate(paths[start : start + TOGETHER], start):
            pixels[row] = decode(path)

    # Threads suffice: Pillow lets go of the interpreter lock while it decodes.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(some, range(0, len(paths), TOGETHER)):
            pass
    return pixels


def all_grey(modes: Sequence[str]) -> bool:
    """Whether no picture has colours, going by Pillow's modes; one in colour makes all the others colour too."""
    return set(modes) <= GREY


def as_bytes(image: Image.Image, *, grey: bool) -> NDArray[np.uint8]:
    """One picture as (1, height, width) or (3, height, width)."""
    if image.mode in DEEP:
        msg = "it has more than 8 bits a pixel; convert it to 8"
        raise ValueError(msg)
    if "transparency" in image.info:  # Pillow wants the way over alpha made explicit
        image = image.convert("RGBA")
    array = np.asarray(image.convert("L" if grey else "RGB"))
    return array[None] if grey else array.transpose(2, 0, 1)
