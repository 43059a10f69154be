from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from f2cto.report.pictures import LARGEST_SIDE, data_uri


def opened(uri: str) -> Image.Image:
    kind, _, data = uri.partition(",")
    assert kind == "data:image/png;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


@pytest.mark.parametrize("shape", [(8, 8), (5, 9), (6, 4, 3)], ids=str)
def test_a_picture_comes_back_to_within_half_a_level(shape: tuple[int, ...]) -> None:
    picture = np.random.default_rng(0).random(shape)
    assert np.abs(np.asarray(opened(data_uri(picture))) / 255 - picture).max() <= 0.5 / 255 + 1e-12


def test_values_outside_are_clipped_and_nan_is_black() -> None:
    picture = np.array([[-0.5, 1.5], [np.nan, np.inf]])
    assert np.asarray(opened(data_uri(picture))).tolist() == [[0, 255], [0, 255]]


def test_large_pictures_are_made_small_in_proportion() -> None:
    assert opened(data_uri(np.zeros((100, 200, 3)))).size == (LARGEST_SIDE, LARGEST_SIDE // 2)


@pytest.mark.parametrize("shape", [(8,), (8, 8, 1), (8, 8, 4), (0, 8), (2, 8, 8, 3)], ids=str)
def test_what_is_no_picture_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="height"):
        data_uri(np.zeros(shape))
