"""The real data sets, where they are: `F2CTO_DATA=folder pytest tests/real`."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from f2cto.data.samples import DataSet, joined
from f2cto.data.sources import SOURCES

ROOT = Path(os.environ.get("F2CTO_DATA", "set F2CTO_DATA"))


def loaded(name: str) -> DataSet:
    """A source, if it is here."""
    if not ROOT.is_dir():
        pytest.skip("F2CTO_DATA names no folder")
    if not SOURCES[name].here(ROOT):
        pytest.skip(f"{name} is not in {ROOT}")
    return SOURCES[name].load(ROOT)


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()  # noqa: S324  (these are what is published)


def counts(found: DataSet) -> tuple[list[int], list[int]]:
    """Samples of each class in both parts."""
    classes = len(found.classes)
    test = found.test.y.bincount(minlength=classes).tolist() if found.test else []
    return found.train.y.bincount(minlength=classes).tolist(), test


def whole(found: DataSet) -> bool:
    """Whether there is as much as the publisher says."""
    said = SOURCES[found.name].published
    assert said is not None
    return (said.train, said.test, said.classes) == (len(found.train), len(found.test or ()), len(found.classes))


def test_mnist() -> None:
    found = loaded("mnist")
    assert whole(found)
    assert counts(found) == (
        [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
        [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
    )
    for download in SOURCES["mnist"].downloads:
        assert f"md5:{md5(ROOT / 'mnist' / download.url.rsplit('/', 1)[1])}" == download.checksum


def test_cifar100() -> None:
    found = loaded("cifar100")
    assert whole(found)
    assert counts(found) == ([500] * 100, [100] * 100)
    assert found.classes[:3] + found.classes[-1:] == ("apple", "aquarium_fish", "baby", "worm")
    # The md5s of the two files in the published archive.
    assert md5(ROOT / "cifar-100-binary" / "train.bin") == "6172c7755cfe09b2fe270c85cebc1b15"
    assert md5(ROOT / "cifar-100-binary" / "test.bin") == "4499cfba6c016c1be1438163640a0898"


def test_tiny_imagenet() -> None:
    found = loaded("tiny-imagenet")
    present = len(found.classes)
    assert counts(found) == ([500] * present, [50] * present)
    assert whole(found) == (present == 200)
    assert found.notes == (() if present == 200 else (f"{present} of 200 classes are here.",))
    images = ROOT / "tiny-imagenet-200" / "train" / "n01443537" / "images"
    if images.is_dir():  # goldfish; the md5 of all files' md5s, whatever their order
        together = "".join(sorted(md5(path) for path in images.iterdir()))
        assert hashlib.md5(together.encode()).hexdigest() == "96fb78b90b8360cb11af0d75ee63e14a"  # noqa: S324


# By rows, since the two tables go by each other's name in many copies: samples of each class, md5 of the file.
UNSW = {
    175_341: (
        [56_000, 40_000, 33_393, 18_184, 12_264, 10_491, 2_000, 1_746, 1_133, 130],
        "e55caabaa6cd4a8f1c06a227bcfababc",
    ),
    82_332: ([37_000, 18_871, 11_132, 6_062, 4_089, 3_496, 677, 583, 378, 44], "e0beea40262e46168cdb81476dbc27b4"),
}


def test_unsw_nb15() -> None:
    found = loaded("unsw-nb15")
    assert found.classes[:5] == ("Normal", "Generic", "Exploits", "Fuzzers", "DoS")
    assert found.classes[5:] == ("Reconnaissance", "Analysis", "Backdoor", "Shellcode", "Worms")
    for name, part, kinds in zip(("training", "testing"), (found.train, found.test), counts(found), strict=True):
        if part is not None:
            (path,) = (ROOT / "unsw-nb15").rglob(f"UNSW_NB15_{name}-set.csv")
            assert (kinds, md5(path)) == UNSW[len(part)]


def test_edge_iiotset() -> None:
    found = loaded("edge-iiotset")
    attacks = {path.name: path for path in (ROOT / "edge-iiotset").rglob("*.csv")}
    if set(attacks) != {"MITM_attack.csv", "OS_Fingerprinting_attack.csv"}:
        pytest.skip("other files than those whose rows are known")
    assert md5(attacks["MITM_attack.csv"]) == "ef34cdbeea1383c05d96768e304dbda9"
    # 1,001 and 1,229 packets are published; of the latter, 404 have cells that their columns cannot hold.
    assert dict(zip(found.classes, counts(found)[0], strict=True)) == {"Fingerprinting": 1001, "MITM": 1229 - 404}
    assert any("404 of 1,229 rows" in note for note in found.notes)
    assert any(note.startswith("2 of 15 classes are here") for note in found.notes)


def test_hapt() -> None:
    found = loaded("hapt")
    assert found.sites == tuple(f"subject {number}" for number in range(1, 31))
    assert found.train.sites is not None
    assert len(Counter(found.train.sites.tolist())) == 30
    # Of the published readings, those with an activity are 815,614; windows of 128 at every 64th follow from them.
    train, test = counts(found)
    assert np.add(train, test).tolist() == [1908, 1825, 1684, 1976, 2164, 2150, 158, 126, 194, 173, 221, 165]
    assert found.notes[0] == "4,709 of 17,453 windows show mostly no labelled activity and are left out."
    assert found.test is not None
    windows = joined([found.train, found.test])
    content = torch.as_tensor(windows.take(windows.rows.argsort()).x).numpy().tobytes()
    assert hashlib.md5(content).hexdigest() == "9e79c815b267d32bc14a92a22a2c729b"  # noqa: S324
