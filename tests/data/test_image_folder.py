"""Users' own folders of images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from f2cto.data.errors import DataError
from f2cto.data.files import export_rows, open_data


def image(path: Path, value: int, mode: str = "L", size: tuple[int, int] = (5, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full(size[::-1], value, np.uint8)).convert(mode).save(path)


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    folder = tmp_path / "pets"
    for file, value in {"dog/b.png": 1, "dog/a.bmp": 2, "cat/z.PNG": 3, "cat/more/y.png": 4}.items():
        image(folder / file, value)
    return folder


def test_images(pets: Path) -> None:
    (pets / "empty").mkdir()
    (pets / ".hidden").mkdir()
    image(pets / "loose.png", 9)
    (pets / "dog" / "notes.txt").write_text("not an image")
    image(pets / "dog" / "._b.png", 9)  # what macOS leaves on foreign disks
    data = open_data(pets)
    assert data.classes == ("cat", "dog")
    assert data.files == ("cat/more/y.png", "cat/z.PNG", "dog/a.bmp", "dog/b.png")
    assert data.train.y.tolist() == [0, 0, 1, 1]
    assert isinstance(data.train.x, torch.Tensor)
    assert data.train.x.dtype == torch.uint8
    assert data.train.x.shape == (4, 1, 4, 5)
    assert data.train.x[:, 0, 0, 0].tolist() == [4, 3, 2, 1]
    assert data.notes == (
        "The sub-folder empty has no images and is no class.",
        "1 images that lie in no sub-folder were left out.",
    )


@pytest.mark.parametrize(("mode", "suffix"), [("RGB", "png"), ("RGBA", "png"), ("P", "png"), ("RGB", "webp")])
def test_one_image_in_colour_makes_all_colour(pets: Path, mode: str, suffix: str) -> None:
    image(pets / "dog" / f"colour.{suffix}", 5, mode)
    x = open_data(pets).train.x
    assert isinstance(x, torch.Tensor)
    assert x.shape == (5, 3, 4, 5)
    assert x[:4, :, 1, 1].tolist() == [[v] * 3 for v in (4, 3, 2, 1)]


def test_colours_keep_their_places(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 3), np.uint8)
    for name in "ab":
        (tmp_path / name).mkdir()
        Image.fromarray(pixels).save(tmp_path / name / "p.png")
    x = open_data(tmp_path).train.x
    assert isinstance(x, torch.Tensor)
    assert torch.equal(x[0], torch.from_numpy(pixels).permute(2, 0, 1))


def test_classes_with_numbers_for_names(tmp_path: Path) -> None:
    for name in ("10", "9", "2"):
        image(tmp_path / name / "p.jpg", int(name))
    data = open_data(tmp_path)
    assert data.classes == ("2", "9", "10")
    assert data.files == ("2/p.jpg", "9/p.jpg", "10/p.jpg")
    assert data.train.y.tolist() == [0, 1, 2]


def test_exported_rows_are_file_names_and_labels(pets: Path) -> None:
    chosen = export_rows(pets, torch.tensor([3, 0]))
    assert chosen.rows() == [("dog/b.png", "dog"), ("cat/more/y.png", "cat")]
    with pytest.raises(DataError, match="pets has no row 4 any more"):
        export_rows(pets, torch.tensor([0, 4]))


def deep(folder: Path) -> None:
    Image.fromarray(np.full((4, 5), 300, np.uint16)).save(folder / "dog" / "deep.png")


def truncated(folder: Path) -> None:
    path = folder / "dog" / "cut.jpg"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (4, 5, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:-60])


def another_size(folder: Path) -> None:
    image(folder / "dog" / "c.png", 1, size=(5, 6))


def no_image(folder: Path) -> None:
    (folder / "dog" / "c.png").write_text("no")


def one_class(folder: Path) -> None:
    (folder / "cat").rename(folder.parent / "cat")


def parts_for_classes(folder: Path) -> None:
    (folder / "cat").rename(folder / "test")
    (folder / "dog").rename(folder / "train")


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (another_size, "cat/more/y.png has 5 x 4 pixels but .*dog/c.png has 5 x 6; bring all images to one size"),
        (no_image, "image .*dog/c.png cannot be used .*; repair it or take it out"),
        (truncated, "image .*dog/cut.jpg cannot be used"),
        (deep, "image .*dog/deep.png cannot be used .*more than 8 bits a pixel; convert it"),
        (one_class, "All 2 labels in the folder .*pets are `dog`"),
        (parts_for_classes, "pets holds the parts test and train, not classes; give one of them"),
    ],
)
def test_bad_images_are_named(pets: Path, spoil: Callable[[Path], object], complaint: str) -> None:
    spoil(pets)
    with pytest.raises(DataError, match=complaint):
        open_data(pets)


def test_a_folder_without_classes(tmp_path: Path) -> None:
    image(tmp_path / "a.png", 1)
    with pytest.raises(DataError, match=r"has no sub-folders with images \(.png, .jpg, .*\); put each class into one"):
        open_data(tmp_path)


def test_a_folder_has_no_columns(pets: Path) -> None:
    with pytest.raises(DataError, match="classes as sub-folders and no columns; leave out"):
        open_data(pets, label="kind")
