"""Samples of each class side by side, as one picture file."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

SMALLEST_SIDE = (
    48  # pixels a sample is shown at; smaller ones are enlarged by a whole factor, so that pixels stay sharp
)
GAP = 4
FONT_SIZE = 14
LONGEST_NAME = 28  # letters

Row = tuple[str, NDArray[np.uint8]]  # a class and its pictures, (count, height, width) or (count, height, width, 3)


def grid(rows: Sequence[Row]) -> bytes:
    """A PNG file with a line for each row: the name, then its pictures."""
    font = ImageFont.load_default(FONT_SIZE)
    names = [_shortened(name) for name, _ in rows]
    height, width = rows[0][1].shape[1:3]
    factor = max(1, math.ceil(SMALLEST_SIDE / min(height, width)))
    cell_width, cell_height = factor * width + GAP, factor * height + GAP
    left = GAP + math.ceil(max(font.getlength(name) for name in names)) + 2 * GAP
    longest = max(len(pictures) for _, pictures in rows)
    sheet = Image.new("RGB", (left + longest * cell_width, GAP + len(rows) * cell_height), "white")
    draw = ImageDraw.Draw(sheet)
    for line, (name, (_, pictures)) in enumerate(zip(names, rows, strict=True)):
        top = GAP + line * cell_height
        draw.text((GAP, top + (cell_height - GAP) / 2), name, fill="black", font=font, anchor="lm")
        for column, picture in enumerate(pictures):
            image = Image.fromarray(picture).resize((factor * width, factor * height), Image.Resampling.NEAREST)
            sheet.paste(image, (left + column * cell_width, top))
    buffer = io.BytesIO()
    sheet.save(buffer, format="PNG")
    return buffer.getvalue()


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1].rstrip() + "…"
