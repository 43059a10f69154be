"""Pictures as bytes: grey or in three colours, the channel first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

GREY = {"1", "L", "LA"}
DEEP = {"I", "F", "I;16", "I;16B", "I;16L", "I;16N"}  # more than 8 bits a pixel


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
