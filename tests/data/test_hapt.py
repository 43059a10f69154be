"""The activity signals: windows against a plain loop, both layouts, and spoiled files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from f2cto.data.errors import DataError
from f2cto.data.samples import DataSet, joined
from f2cto.data.sources.hapt import ACTIVITIES, load
from testing.publishers import hapt_arrays, hapt_texts

Array = NDArray[Any]
Recording = tuple[int, int, Array, Array]  # experiment, subject, signal, label


def recording(experiment: int, subject: int, label: Array, seed: int = 0) -> Recording:
    scale = np.array([0.8, 0.8, 0.8, 4, 4, 4])  # some readings lie beyond the limits of 2 g and 10 rad/s
    signal = scale * np.random.default_rng(seed).standard_normal((len(label), 6))
    return experiment, subject, signal.astype(np.float32), label


def write_arrays(root: Path, recordings: list[Recording]) -> Path:
    columns = {
        "signal": np.concatenate([signal for _, _, signal, _ in recordings]),
        "label": np.concatenate([label for *_, label in recordings]).astype(np.int8),
        "subject": np.concatenate([np.full(len(label), who, np.uint8) for _, who, _, label in recordings]),
        "experiment": np.concatenate([np.full(len(label), number, np.uint8) for number, *_, label in recordings]),
    }
    return hapt_arrays(root, **columns)


def by_loop(recordings: list[Recording]) -> tuple[list[tuple[int, int, Array]], int]:
    """(class, subject, window) of each window kept, and how many were dropped: the rule, one window at a time."""
    kept, dropped = [], 0
    for _, subject, signal, label in recordings:
        for start in range(0, len(label) - 127, 64):
            values = label[start : start + 128].tolist()
            winner = max((-1, *range(1, 13)), key=values.count)
            if winner == -1:
                dropped += 1
                continue
            window = (signal[start : start + 128].T.astype(np.float64) / [[2], [2], [2], [10], [10], [10]] + 1) / 2
            kept.append((winner - 1, subject, np.clip(window, 0, 1)))
    return kept, dropped


def check(found: DataSet, recordings: list[Recording]) -> None:
    kept, dropped = by_loop(recordings)
    subjects = sorted({subject for _, subject, _ in kept})
    assert found.classes == ACTIVITIES
    assert found.sites == tuple(f"subject {subject}" for subject in subjects)
    windows = found.train if found.test is None else joined([found.train, found.test])
    windows = windows.take(windows.rows.argsort())
    assert windows.rows.tolist() == list(range(len(kept)))
    assert windows.y.tolist() == [label for label, _, _ in kept]
    assert windows.sites is not None
    assert windows.sites.tolist() == [subjects.index(subject) for _, subject, _ in kept]
    assert isinstance(windows.x, torch.Tensor)
    assert windows.x.dtype == torch.float32
    assert windows.x.shape == (len(kept), 6, 128)
    for row, (*_, window) in zip(windows.x.numpy(), kept, strict=True):
        assert np.abs(row - window).max() < 1e-6
    assert f"{dropped} of {dropped + len(kept)} windows" in " ".join(found.notes)


LABELS = st.lists(st.tuples(st.sampled_from([-1, *range(1, 13)]), st.integers(1, 150)), min_size=1, max_size=6)


@given(st.lists(LABELS, min_size=1, max_size=4), st.integers(0, 3))
def test_windows_follow_the_rule(pieces: list[list[tuple[int, int]]], seed: int) -> None:
    recordings = [
        recording(number, 3 + number // 2, np.repeat(*map(np.array, zip(*runs, strict=True))), seed + number)
        for number, runs in enumerate(pieces)
    ]
    recordings.append(recording(9, 30, np.full(128, 12)))  # at least one window
    with TemporaryDirectory() as root:
        write_arrays(Path(root), recordings)
        check(load(Path(root)), recordings)


TWO = [
    recording(1, 5, np.repeat([-1, 4, 8, 5, -1], [130, 200, 50, 150, 70]), 1),
    recording(2, 5, np.repeat([1, -1], [100, 110]), 2),
    recording(3, 17, np.repeat([6, 12], [192, 140]), 3),
]


def test_the_last_recording_of_each_subject_is_the_test_part(tmp_path: Path) -> None:
    write_arrays(tmp_path, TWO)
    found = load(tmp_path)
    count = len(by_loop(TWO[:1])[0])  # subject 5 has two recordings, subject 17 only one
    assert found.test is not None
    assert found.test.rows.tolist() == list(range(count, count + len(by_loop(TWO[1:2])[0])))


def test_both_layouts_give_the_same(tmp_path: Path) -> None:
    hapt_texts(tmp_path / "texts", TWO)
    write_arrays(tmp_path / "arrays", TWO)
    texts, arrays = load(tmp_path / "texts"), load(tmp_path / "arrays")
    check(texts, TWO)
    assert torch.equal(torch.as_tensor(texts.train.x), torch.as_tensor(arrays.train.x))
    assert torch.equal(texts.train.y, arrays.train.y)
    assert texts.notes == arrays.notes


def test_notes_count_what_was_left_out_and_clipped(tmp_path: Path) -> None:
    write_arrays(tmp_path, TWO)
    signals = np.concatenate([signal for _, _, signal, _ in TWO])
    beyond = int((np.abs(signals) > [2, 2, 2, 10, 10, 10]).sum())
    assert beyond > 10
    _, dropped = by_loop(TWO)
    assert load(tmp_path).notes == (
        "2 of 30 subjects are here.",
        f"{dropped} of 14 windows show mostly no labelled activity and are left out.",
        f"{beyond} readings beyond 2 g or 10 rad/s are clipped.",
    )


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda a: a | {"label": np.where(np.arange(140) == 9, 13, a["label"])}, "label 13 in row 9, .* -1 or 1 to 12"),
        (lambda a: a | {"signal": a["signal"][:, :5]}, "six channels"),
        (lambda a: a | {"subject": a["subject"][:-1]}, "six channels"),
        (lambda a: a | {"signal": np.where(np.arange(140)[:, None] > 137, np.nan, a["signal"])}, "2 rows .* first 138"),
        (lambda a: {name: a[name] for name in ("signal", "label", "subject")}, "lacks an array .*experiment"),
        (lambda a: a | {"label": a["label"].astype(object)}, "cannot be read"),
        (lambda a: {name: column[:127] for name, column in a.items()}, "no recording of at least 128 readings"),
    ],
)
def test_spoiled_arrays(change: Callable[[dict[str, Array]], dict[str, Array]], complaint: str, tmp_path: Path) -> None:
    ones = np.ones(140, np.int64)
    path = hapt_arrays(
        tmp_path, **change({"signal": np.zeros((140, 6)), "label": ones, "subject": ones, "experiment": ones})
    )
    with pytest.raises(DataError, match=complaint) as caught:
        load(tmp_path)
    assert str(path) in str(caught.value)
    assert "download https://archive.ics.uci.edu" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 but cut", b"no archive at all"])
def test_files_that_are_no_arrays(content: bytes, tmp_path: Path) -> None:
    path = write_arrays(tmp_path, TWO)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"hapt_raw_50hz\.npz cannot be read"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("file", "spoil", "complaint"),
    [
        ("labels.txt", lambda path: path.write_text("1 5 4 0 599\n1 5 4 10 600\n"), "readings 10 to 600 of .* has 600"),
        ("labels.txt", lambda path: path.write_text("1 5 13 0 9\n"), "label 13 in row 0"),
        ("labels.txt", lambda path: path.write_text("1 5 4\n"), "3 columns instead of 5"),
        ("labels.txt", Path.unlink, "is missing"),
        ("gyro_exp02_user05.txt", Path.unlink, "is missing"),
        ("gyro_exp02_user05.txt", lambda path: path.write_text("1 2 3\n"), "has 1 rows for the 210 of acc_exp02"),
        ("acc_exp03_user17.txt", lambda path: path.write_text("1 2 x\n"), "not a table of numbers"),
    ],
)
def test_spoiled_texts(file: str, spoil: Callable[[Path], None], complaint: str, tmp_path: Path) -> None:
    folder = hapt_texts(tmp_path, TWO)
    spoil(folder / file)
    with pytest.raises(DataError, match=complaint) as caught:
        load(tmp_path)
    assert str(folder) in str(caught.value)


def test_a_folder_without_recordings(tmp_path: Path) -> None:
    hapt_texts(tmp_path, []).joinpath("labels.txt").write_text("1 5 4 0 599\n")
    with pytest.raises(DataError, match="RawData holds no file acc_expXX"):
        load(tmp_path)
