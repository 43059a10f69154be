"""Samples as pictures a page can carry within itself."""

from __future__ import annotations

import base64
import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

# Twice the size the page shows pictures at: enough for sharp screens, and large images do not swell the page.
LARGEST_SIDE = 80


def data_uri(picture: NDArray[np.float64]) -> str:
    """A picture as a PNG data URI, values outside [0, 1] clipped and NaN black.

    Args:
        picture: (height, width) in grey or (height, width, 3) in colour.

    """
    if not (picture.ndim == 2 or (picture.ndim == 3 and picture.shape[2] == 3)) or picture.size == 0:
        msg = f"A picture has the shape (height, width) or (height, width, 3), none of them 0; got {picture.shape}."
        raise ValueError(msg)
    levels = np.rint(255 * np.clip(np.nan_to_num(picture, nan=0.0), 0.0, 1.0)).astype(np.uint8)
    image = Image.fromarray(levels)
    image.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
