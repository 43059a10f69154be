"""Each source reads its publisher's format, and says clearly what is wrong with a file."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from f2cto.data.errors import DataError
from f2cto.data.folder import data_folder
from f2cto.data.sources import SOURCES, cifar100, mnist, tiny_imagenet
from testing import publishers
from testing.publishers import idx, images, jpeg

NAMES = ("digits", "mnist", "cifar100", "tiny-imagenet", "edge-iiotset", "unsw-nb15", "hapt")


def test_all_sources_are_there() -> None:
    assert tuple(SOURCES) == NAMES
    assert all(name == source.name for name, source in SOURCES.items())


@pytest.mark.parametrize("name", NAMES[1:])
def test_missing_data_are_named_with_the_way_to_get_them(name: str, tmp_path: Path) -> None:
    source = SOURCES[name]
    assert not source.here(tmp_path)
    way = f"f2cto data fetch {name}" if source.downloads else "https://"
    with pytest.raises(DataError, match=way) as caught:
        source.load(tmp_path)
    assert str(tmp_path / source.folder) in str(caught.value)
    assert all(download.checksum.startswith("md5:") for download in source.downloads)
    assert bool(source.downloads) != bool(source.by_hand)


def test_where_the_data_lie(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("F2CTO_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    assert data_folder(Path("~/given")) == Path.home() / "given"
    monkeypatch.delenv("F2CTO_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert data_folder() == Path("/somewhere/f2cto")


TRAIN, TEST = images(12, (28, 28), 10, seed=0), images(5, (28, 28), 10, seed=1)


def test_mnist(tmp_path: Path) -> None:
    publishers.mnist(tmp_path, TRAIN, TEST)
    found = SOURCES["mnist"].load(tmp_path)
    assert found.classes == ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
    assert found.test is not None
    for part, (x, y) in {found.train: TRAIN, found.test: TEST}.items():
        assert torch.equal(torch.as_tensor(part.x), torch.from_numpy(x)[:, None])
        assert part.y.tolist() == y.tolist()
        assert part.rows.tolist() == list(range(len(y)))


def repacked(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: change_bytes(path, lambda packed: gzip.compress(change(gzip.decompress(packed))))


def change_bytes(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("file", "spoil", "complaint"),
    [
        ("train-images-idx3", lambda path: change_bytes(path, lambda b: b[:-200]), r"cannot be unpacked \(Compressed"),
        ("train-images-idx3", lambda path: change_bytes(path, lambda b: b[:60] + b"?" + b[61:]), "cannot be unpacked"),
        ("t10k-labels-idx1", lambda path: path.write_bytes(b"<html>"), "cannot be unpacked"),
        ("t10k-labels-idx1", lambda path: path.write_bytes(gzip.compress(b"")), "has 0 bytes, less than the 8"),
        ("t10k-images-idx3", repacked(lambda b: b"\0\0\x08\x01" + b[4:]), "magic number 2049 instead of 2051"),
        ("train-images-idx3", repacked(lambda b: b[:4] + struct.pack(">I", 13) + b[8:]), "9408 .* says 13 x 28 x 28"),
        ("train-labels-idx1", lambda path: path.write_bytes(gzip.compress(idx(TRAIN[1][:11]))), "11 labels for the 12"),
        ("train-labels-idx1", repacked(lambda b: b[:11] + b"\x0a" + b[12:]), "label 10 in row 3, .* 0 to 9"),
        ("t10k-images-idx3", Path.unlink, "is missing"),
    ],
)
def test_spoiled_mnist(file: str, spoil: Callable[[Path], None], complaint: str, tmp_path: Path) -> None:
    path = publishers.mnist(tmp_path, TRAIN, TEST) / f"{file}-ubyte.gz"
    spoil(path)
    with pytest.raises(DataError, match=complaint) as caught:
        mnist.load(tmp_path)
    assert str(path) in str(caught.value)
    assert "run `f2cto data fetch mnist`" in str(caught.value)


THINGS = ("apple", "aquarium_fish", "baby")
COLOURED, FEW = images(7, (3, 32, 32), 3, seed=2), images(4, (3, 32, 32), 3, seed=3)


def test_cifar100_is_mapped_and_cannot_be_changed(tmp_path: Path) -> None:
    folder = publishers.cifar100(tmp_path, COLOURED, FEW, THINGS)
    before = (folder / "train.bin").read_bytes()
    found = SOURCES["cifar100"].load(tmp_path)
    assert found.classes == THINGS
    assert found.test is not None
    for part, (x, y) in {found.train: COLOURED, found.test: FEW}.items():
        assert torch.equal(torch.as_tensor(part.x), torch.from_numpy(x))
        assert part.y.tolist() == y.tolist()
    assert isinstance(found.train.x, torch.Tensor)
    assert found.train.x.stride() == (3074, 1024, 32, 1)  # the records of the file itself, not a copy
    found.train.x.zero_()
    assert (folder / "train.bin").read_bytes() == before


@pytest.mark.parametrize(
    ("file", "spoil", "complaint"),
    [
        ("train.bin", lambda path: change_bytes(path, lambda b: b[:-1]), "21517 bytes, not a whole number of records"),
        ("test.bin", lambda path: path.write_bytes(b""), "has 0 bytes"),
        ("test.bin", lambda path: change_bytes(path, lambda b: b[:3075] + b"\x03" + b[3076:]), "label 3 in record 1"),
        ("fine_label_names.txt", Path.unlink, "is missing"),
        ("train.bin", Path.unlink, "is missing"),
    ],
)
def test_spoiled_cifar100(file: str, spoil: Callable[[Path], None], complaint: str, tmp_path: Path) -> None:
    path = publishers.cifar100(tmp_path, COLOURED, FEW, THINGS) / file
    spoil(path)
    with pytest.raises(DataError, match=complaint) as caught:
        cifar100.load(tmp_path)
    assert str(path) in str(caught.value)
    assert "run `f2cto data fetch cifar100`" in str(caught.value)


RED, GREEN, GREY = (200, 10, 10), (10, 200, 10), 77
WORDS = {"n03": "crane", "n01": "goldfish, Carassius auratus", "n02": "crane, a bird", "n04": "absent"}


def write_tiny(root: Path) -> Path:
    # Eleven red ones, so that sorting by name (_10 before _2) is seen not to matter for labels.
    train: dict[str, list[Any]] = {"n01": [RED] * 11, "n02": [GREY], "n03": [GREEN, RED]}
    return publishers.tiny_imagenet(root, train, [("n03", GREEN), ("n04", RED), ("n01", GREY)], WORDS)


def colours(x: object) -> list[list[int]]:
    """The mean colour of each image."""
    return torch.as_tensor(x).float().mean(dim=(2, 3)).round().int().tolist()


def test_tiny_imagenet(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)
    found = SOURCES["tiny-imagenet"].load(tmp_path)
    assert found.classes == ("goldfish", "crane (n02)", "crane (n03)")
    assert found.notes == ("3 of 200 classes are here.",)
    assert found.train.y.tolist() == [0] * 11 + [1] + [2] * 2
    assert all((folder / file).is_file() for file in found.files)
    assert [file.split("/")[1] for file in found.files] == ["n01"] * 11 + ["n02"] + ["n03"] * 2
    assert torch.as_tensor(found.train.x).shape == (14, 3, 64, 64)
    assert found.train.x.dtype == torch.uint8  # type: ignore[union-attr]
    expected = [RED] * 11 + [(77, 77, 77), GREEN, RED]
    assert np.abs(np.array(colours(found.train.x)) - expected).max() <= 2  # JPEG rounds
    assert found.test is not None
    assert found.test.y.tolist() == [2, 0]  # the annotation of n04 is right, but its class is not here
    assert np.abs(np.array(colours(found.test.x)) - [GREEN, (77, 77, 77)]).max() <= 2


@pytest.mark.parametrize(
    ("file", "spoil", "complaint"),
    [
        ("train/n02/images/n02_0.JPEG", lambda path: path.write_bytes(b"no image"), "cannot be read as an image"),
        ("train/n03/images/n03_1.JPEG", lambda path: change_bytes(path, lambda b: b[:-80]), "cannot be read as an"),
        ("train/n03/images/n03_0.JPEG", lambda path: jpeg(path, RED, side=32), "32 x 32 pixels instead of 64 x 64"),
        ("val/images/val_2.JPEG", Path.unlink, "is missing"),
        ("val/val_annotations.txt", Path.unlink, "is missing"),
        ("val/val_annotations.txt", lambda path: path.write_text("val_0.JPEG\tn03\n"), "2 images, .*images/val_1.JPEG"),
        ("val/val_annotations.txt", lambda path: path.write_text("val_0.JPEG\tn09\n"), "the label n09, .*wnids.txt"),
        ("wnids.txt", Path.unlink, "is missing"),
        ("words.txt", Path.unlink, "is missing"),
        ("train", lambda path: path.rename(path.with_name("training")), "images of none of the classes in wnids.txt"),
    ],
)
def test_spoiled_tiny_imagenet(file: str, spoil: Callable[[Path], None], complaint: str, tmp_path: Path) -> None:
    path = write_tiny(tmp_path) / file
    spoil(path)
    with pytest.raises(DataError, match=complaint) as caught:
        tiny_imagenet.load(tmp_path)
    assert str(path) in str(caught.value)
    assert "run `f2cto data fetch tiny-imagenet`" in str(caught.value)
