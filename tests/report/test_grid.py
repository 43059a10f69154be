from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from f2cto.report.grid import GAP, grid


def opened(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content))


@pytest.mark.parametrize(("shape", "factor"), [((8, 8), 6), ((28, 28), 2), ((64, 64, 3), 1), ((30, 50, 3), 2)], ids=str)
def test_pictures_stand_in_their_rows_enlarged_by_whole_factors(shape: tuple[int, ...], factor: int) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (5, *shape), np.uint8)
    sheet = opened(grid([("first", pictures[:3]), ("second", pictures[3:])]))
    height, width = factor * shape[0], factor * shape[1]
    left = sheet.width - 3 * (width + GAP)
    assert sheet.height == GAP + 2 * (height + GAP)
    for line, column, picture in ((0, 0, 0), (0, 2, 2), (1, 0, 3), (1, 1, 4)):
        x, y = left + column * (width + GAP), GAP + line * (height + GAP)
        cell = np.asarray(sheet.crop((x, y, x + width, y + height)))[::factor, ::factor]
        expected = pictures[picture] if pictures.ndim == 4 else np.repeat(pictures[picture][..., None], 3, axis=-1)
        assert np.array_equal(cell, expected)
    # The second row has no third picture, and names are written to the left of the first.
    assert np.asarray(sheet)[GAP + height + GAP :, left + 2 * (width + GAP) :].min() == 255
    assert np.asarray(sheet)[:, :left].min() < 128


def test_long_names_do_not_push_pictures_away() -> None:
    pictures = np.zeros((1, 64, 64), np.uint8)
    widths = [opened(grid([(name, pictures)])).width for name in ("m" * 28, "m" * 29, "m" * 300)]
    assert widths[1] == widths[2]
    assert widths[1] <= widths[0] + 8
