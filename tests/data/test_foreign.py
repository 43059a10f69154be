"""Frames and Hugging Face data sets, with the real libraries."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from PIL import Image

from f2cto.data.dataset import as_labelled

COLUMNS: dict[str, list[Any]] = {"a": [0.5, 0.25, 1.0], "b": [1, 0, 1], "on": [True, False, True]}
LABELS = [2, 0, 1]
WANTED = torch.tensor([[0.5, 1, 1], [0.25, 0, 0], [1, 1, 1]])


@pytest.fixture(scope="module")
def hub() -> ModuleType:
    import datasets  # noqa: PLC0415  (takes seconds)

    return datasets  # type: ignore[no-any-return, unused-ignore]


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_frames(library: Any) -> None:
    frame = library.DataFrame({"a": COLUMNS["a"], "y": LABELS, "b": COLUMNS["b"], "on": COLUMNS["on"]})
    features = library.DataFrame(COLUMNS)
    for source in [(frame, "y"), (features, library.Series(LABELS)), (features, LABELS), [features, np.array(LABELS)]]:
        data = as_labelled(source, "Shard 0")
        assert torch.equal(data.x, WANTED)
        assert data.y.tolist() == LABELS


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
@pytest.mark.parametrize(
    ("columns", "label", "kind", "complaint"),
    [
        ({**COLUMNS, "kind": LABELS}, "kinds", ValueError, r"Shard 3 has no column `kinds`; did you mean kind\?"),
        ({**COLUMNS, "kind": LABELS}, "zzz", ValueError, r"no column `zzz`; it has a, b, on, kind\."),
        (
            {"p": ["tcp", "udp", "tcp"], "y": LABELS},
            "y",
            TypeError,
            "The column `p` of Shard 3 does not hold one number",
        ),
        ({"y": LABELS}, "y", ValueError, "Shard 3 has no columns beside the label"),
        ({**COLUMNS, "y": ["u", "v", "u"]}, "y", TypeError, "y of Shard 3 must be an array of numbers"),
        ({**COLUMNS, "y": [0, 1, None]}, "y", TypeError, "labels of Shard 3 must be whole numbers"),
        ({"a": [0.5, None, 1.0], "y": LABELS}, "y", ValueError, "NaN or infinite features, the first in row 1"),
    ],
)
def test_bad_frames_are_named(
    library: Any, columns: dict[str, list[Any]], label: str, kind: type[Exception], complaint: str
) -> None:
    with pytest.raises(kind, match=complaint):
        as_labelled((library.DataFrame(columns), label), "Shard 3")


def test_columns_of_bytes_stay_bytes() -> None:
    frame = pl.DataFrame({"p": [0, 51], "q": [255, 102], "y": [0, 1]}, schema_overrides={"p": pl.UInt8, "q": pl.UInt8})
    assert torch.allclose(as_labelled((frame, "y"), "S").x, torch.tensor([[0, 1], [0.2, 0.4]]))


@pytest.mark.parametrize("label", ["label", "labels", "y"])
def test_hugging_face_columns(hub: ModuleType, label: str) -> None:
    data = as_labelled(hub.Dataset.from_dict({**COLUMNS, label: LABELS}), "Shard 0")
    assert torch.equal(data.x, WANTED)
    assert data.y.tolist() == LABELS


def test_hugging_face_names_its_label_column(hub: ModuleType) -> None:
    source = hub.Dataset.from_dict({**COLUMNS, "kind": LABELS}).with_format("torch")
    assert as_labelled((source, "kind"), "Shard 0").y.tolist() == LABELS


def test_hugging_face_arrays(hub: ModuleType) -> None:
    x = np.arange(12).reshape(2, 2, 3)
    floats = hub.Dataset.from_dict({"x": x / 12, "y": [0, 1]})
    assert torch.allclose(as_labelled(floats, "S").x, torch.from_numpy(x).float() / 12)
    pixels = hub.Dataset.from_dict({"x": x.astype(np.uint8), "y": [0, 1]})
    assert torch.allclose(as_labelled(pixels, "S").x, torch.from_numpy(x).float() / 255)


def pictures(*modes: str) -> list[Image.Image]:
    """Picture i has one colour, 10 (i + 1), but the last column of pixels is black."""
    made = []
    for i, mode in enumerate(modes):
        pixels = np.full((4, 5), 10 * (i + 1), np.uint8)
        pixels[:, -1] = 0
        made.append(Image.fromarray(pixels).convert(mode))
    return made


@pytest.mark.parametrize(("modes", "channels"), [(("L", "L"), 1), (("RGB", "RGB"), 3), (("L", "RGB"), 3)])
def test_hugging_face_pictures(hub: ModuleType, modes: tuple[str, ...], channels: int) -> None:
    source = hub.Dataset.from_dict({"image": pictures(*modes), "file": ["p", "q"], "label": [0, 1]})
    data = as_labelled(source, "Shard 0")
    assert data.x.shape == (2, channels, 4, 5)
    assert torch.allclose(data.x[:, :, :, 0], torch.tensor([10, 20]).view(2, 1, 1) / 255)
    assert float(data.x[..., -1].abs().max()) == 0


def test_bad_hugging_face_data_are_named(hub: ModuleType) -> None:
    make = hub.Dataset.from_dict
    uneven = [*pictures("L"), Image.new("L", (3, 3))]
    cases: list[tuple[Any, type[Exception], str]] = [
        (
            make({"a": [1.0], "kind": [0]}),
            ValueError,
            r"no column label, labels or y but a, kind; .*\(data, 'column'\)",
        ),
        ((make({"a": [1.0], "kind": [0]}), "kin"), ValueError, r"no column `kin`; did you mean kind\?"),
        (make({"a": ["u"], "y": [0]}), TypeError, "The column `a` of Shard 3 does not hold one number a row"),
        (
            make({"a": [[1.0], [1.0, 2.0]], "y": [0, 1]}),
            TypeError,
            "The column `a` of Shard 3 does not hold one number",
        ),
        (make({"a": [], "y": []}), ValueError, "Shard 3 is empty"),
        (make({"image": uneven, "y": [0, 1]}), ValueError, "pictures of Shard 3 have different sizes"),
        (make({"image": [Image.new("I;16", (3, 3))], "y": [0]}), ValueError, "more than 8 bits a pixel"),
        (make({"a": [1.0], "y": [-1]}), ValueError, r"1 samples without a label \(-1\), the first in row 0"),
        (
            hub.DatasetDict({"train": make({"a": [1.0], "y": [0]})}),
            TypeError,
            "DatasetDict, of which to take one entry",
        ),
        (make({"a": [1.0], "y": [0]}).to_iterable_dataset(), TypeError, "a Dataset with a length; got IterableDataset"),
    ]
    for source, kind, complaint in cases:
        with pytest.raises(kind, match=complaint):
            as_labelled(source, "Shard 3")
