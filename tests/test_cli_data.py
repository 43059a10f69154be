from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from f2cto.cli import main
from f2cto.data.sources import SOURCES, digits
from f2cto.data.sources.source import Download, Source
from testing import publishers
from testing.publishers import images
from testing.serving import serving

MNIST = images(25, (28, 28), 10, seed=0), images(5, (28, 28), 10, seed=1)


def last_json(text: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    return result


def test_info_of_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publishers.mnist(tmp_path, *MNIST)
    out = tmp_path / "looks"
    assert main(["data", "info", "mnist", "--data-dir", str(tmp_path), "--out", str(out), "--json"]) == 0
    text = capsys.readouterr().out
    assert last_json(text) == {
        "name": "mnist",
        "train": 25,
        "test": 5,
        "classes": {str(label): 3 if label < 5 else 2 for label in range(10)},
        "shape": [1, 28, 28],
        "notes": ["The whole set has 60,000 and 10,000 samples in 10 classes."],
    }
    assert "mnist: 25 to train on, 5 to test on, 10 classes, shape 1 x 28 x 28" in text
    assert "█" in text
    with Image.open(out / "mnist.png") as picture:
        # Ten classes below each other, three samples side by side, each enlarged twice, with gaps of 4.
        assert picture.height == 4 + 10 * (2 * 28 + 4)
        assert picture.width > 3 * (2 * 28 + 4)


def test_info_of_signals_writes_no_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ones = np.ones(256, np.int64)
    publishers.hapt_arrays(tmp_path, signal=np.zeros((256, 6)), label=ones, subject=ones, experiment=ones)
    assert main(["data", "info", "hapt", "--data-dir", str(tmp_path), "--out", str(tmp_path / "o"), "--json"]) == 0
    text = capsys.readouterr().out
    facts = last_json(text)
    assert (facts["train"], facts["test"], facts["shape"]) == (3, 0, [6, 128])
    assert facts["classes"]["WALKING"] == 3
    assert "1 of 30 subjects are here." in facts["notes"]
    assert "1 of 30 subjects are here." in text.splitlines()
    assert not (tmp_path / "o").exists()


def test_the_picture_of_colour_images_shows_at_most_twenty_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"thing_{number}" for number in range(25)]
    part = images(25 * 12, (3, 32, 32), 25, seed=0)
    publishers.cifar100(tmp_path, part, part, names)
    monkeypatch.setenv("F2CTO_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["data", "info", "cifar100"]) == 0
    with Image.open(tmp_path / "cifar100.png") as picture:
        assert picture.height == 4 + 20 * (2 * 32 + 4)
        # The last cell of the first line is the tenth sample of class 0: row 9 * 25, enlarged twice.
        cell = picture.crop((picture.width - 68, 4, picture.width - 4, 68)).resize((32, 32), Image.Resampling.NEAREST)
        assert cell.tobytes() == part[0][9 * 25].transpose(1, 2, 0).tobytes()


def test_list_says_what_is_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publishers.mnist(tmp_path, *MNIST)
    assert main(["data", "list", "--data-dir", str(tmp_path), "--json"]) == 0
    listed = last_json(capsys.readouterr().out)
    assert listed["folder"] == str(tmp_path)
    states = {row["name"]: row["state"] for row in listed["data"]}
    assert list(states) == list(SOURCES)
    assert {name: states[name] for name in ("digits", "mnist", "cifar100", "hapt")} == {
        "digits": "here",
        "mnist": "here",
        "cifar100": "can be fetched",
        "hapt": "by hand",
    }
    assert main(["data", "list", "--data-dir", str(tmp_path)]) == 0
    assert "tiny-imagenet" in capsys.readouterr().out


def test_fetch(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with serving({"some.bin": b"content"}) as site:
        checksum = "sha256:" + hashlib.sha256(b"content").hexdigest()
        source = Source("some", "Some.", digits.load, "some", (Download(f"{site.url}/some.bin", checksum),))
        monkeypatch.setattr("f2cto.data.sources.SOURCES", {"some": source})
        assert main(["data", "fetch", "some", "--data-dir", str(tmp_path), "--json"]) == 0
        text = capsys.readouterr().out
        assert "some.bin" in text
        assert last_json(text) == {
            "name": "some",
            "folder": str(tmp_path / "some"),
            "new": [str(tmp_path / "some" / "some.bin")],
        }
        site.files["some.bin"] = b"other"
        (tmp_path / "some" / "some.bin").unlink()
        assert main(["data", "fetch", "some", "--data-dir", str(tmp_path)]) == 2
        assert "does not have the published checksum" in capsys.readouterr().err
        site.files.clear()
        assert main(["data", "fetch", "some", "--data-dir", str(tmp_path)]) == 1
        assert "404" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["info", "mnits"], "There is no data set `mnits`; did you mean `mnist`?"),
        (["fetch", "zzz"], "There is no data set `zzz`; there are digits, mnist,"),
        (["info", "mnist"], "train-images-idx3-ubyte.gz is missing; run `f2cto data fetch mnist`"),
        (["fetch", "hapt"], "hapt cannot be fetched by itself: Download https://archive.ics.uci.edu/"),
        (["fetch"], "The following arguments are required: NAME"),
        ([], "The following arguments are required: VERB"),
    ],
)
def test_what_users_can_mend_is_one_sentence(
    arguments: list[str],
    complaint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("F2CTO_DATA", str(tmp_path))
    assert main(["data", *arguments]) == 2
    shown = capsys.readouterr()
    assert complaint in shown.err
    assert shown.err.count("\n") == 1
    assert not shown.out.strip()


def test_data_that_come_along_need_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "fetch", "digits", "--data-dir", str(tmp_path / "none")]) == 0
    assert "nothing has to be fetched" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()
