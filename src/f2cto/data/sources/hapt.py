"""Twelve activities of thirty people, told from the phone at their waist: windows of its raw 50 Hz signals.

Reyes-Ortiz, Oneto, Samà, Parra, Anguita: Transition-Aware Human Activity Recognition Using Smartphones,
Neurocomputing 171, 2016. The publisher splits its derived features by person, not these signals. Windows overlap, and
a random split would put the same readings on both sides: the test part is each person's last recording.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from f2cto.data.samples import DataSet, numbered
from f2cto.data.sources.source import Source

ACTIVITIES = (
    *("WALKING", "WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS", "SITTING", "STANDING", "LAYING"),
    *("STAND_TO_SIT", "SIT_TO_STAND", "SIT_TO_LIE", "LIE_TO_SIT", "STAND_TO_LIE", "LIE_TO_STAND"),
)
NONE = -1  # the label where no activity was noted; activities count from 1
WINDOW, STEP = 128, 64  # readings: 2.56 s, and half of it
# The range of each channel: the accelerometer measures up to 2 g; the gyroscope's 16 bits end at 573 degrees/s,
# 10.01 rad/s. Fixed, so that scaling needs no one's data.
LIMITS = np.array([2, 2, 2, 10, 10, 10], np.float32)
PACKED = "hapt_raw_50hz.npz"
RECORDING = re.compile(r"acc_exp\d+_user\d+\.txt")


@dataclass(frozen=True, eq=False)
class Signals:
    """All recordings after each other."""

    signal: NDArray[np.float32]  # (N, 6): acceleration in g, angular velocity in rad/s, three axes each
    label: NDArray[np.int64]  # (N,)
    subject: NDArray[np.int64]  # (N,)
    experiment: NDArray[np.int64]  # (N,): with the subject, which recording it is


def load(root: Path) -> DataSet:
    """Windows with their most frequent activity; each subject is a site."""
    signals = _read(root / SOURCE.folder)
    scaled = (signals.signal / LIMITS + 1) / 2
    starts = _starts(signals)
    y = _activities(signals.label, starts)
    kept = starts[y != NONE]
    subjects, sites = np.unique(signals.subject[kept], return_inverse=True)
    x = sliding_window_view(scaled.clip(0, 1), WINDOW, axis=0)[kept]  # (M, 6, 128)
    windows = numbered(torch.from_numpy(x), torch.from_numpy(y[y != NONE]), torch.from_numpy(sites))
    held = torch.from_numpy(_last_recordings(signals)[kept])
    return DataSet(
        name="hapt",
        train=windows.take((~held).nonzero().flatten()),
        test=windows.take(held.nonzero().flatten()) if bool(held.any()) else None,
        classes=ACTIVITIES,
        sites=tuple(f"subject {subject}" for subject in subjects),
        notes=_notes(len(subjects), int((y == NONE).sum()), len(y), int(((scaled < 0) | (scaled > 1)).sum())),
    )


def _last_recordings(signals: Signals) -> NDArray[np.bool_]:
    """Which readings are of the last recording of a subject that has several."""
    last = np.zeros(len(signals.subject), dtype=np.bool_)
    for subject in np.unique(signals.subject):
        own = signals.subject == subject
        recordings = np.unique(signals.experiment[own])
        if len(recordings) > 1:
            last |= own & (signals.experiment == recordings[-1])
    return last


def _starts(signals: Signals) -> NDArray[np.int64]:
    """Where the windows begin; none reaches from one recording into the next."""
    changes = (np.diff(signals.subject) != 0) | (np.diff(signals.experiment) != 0)
    edges = [0, *(np.flatnonzero(changes) + 1).tolist(), len(signals.label)]
    return np.concatenate([np.arange(begin, end - WINDOW + 1, STEP) for begin, end in pairwise(edges)])


def _activities(label: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each window's most frequent label as a class, or `NONE`; of two as frequent, the one that is named first."""
    windows = sliding_window_view(label, WINDOW)[starts]
    counts = np.stack([(windows == value).sum(axis=1) for value in (NONE, *range(1, 13))])  # (13, M)
    winners: NDArray[np.int64] = counts.argmax(axis=0) - 1
    return winners


def _notes(subjects: int, idle: int, windows: int, clipped: int) -> tuple[str, ...]:
    missing = (f"{subjects} of 30 subjects are here.",) if subjects < 30 else ()
    return (
        *missing,
        f"{idle:,} of {windows:,} windows show mostly no labelled activity and are left out.",
        f"{clipped:,} readings beyond 2 g or 10 rad/s are clipped.",
    )


def _read(folder: Path) -> Signals:
    """The publisher's text files, or their compact copy where it is there: it is read ten times as fast."""
    texts = sorted(folder.glob("**/RawData"))
    source = folder / PACKED
    if not source.exists():
        source = texts[0] if texts else SOURCE.needed(folder / "RawData")
    signals = _from_arrays(source) if source.name == PACKED else _from_texts(source)
    label, lengths = signals.label, {len(column) for column in vars(signals).values()}
    if len(lengths) > 1 or signals.signal.shape[1:] != (6,):
        raise SOURCE.broken(source, "does not hold six channels, a label, a subject and an experiment for each reading")
    if len(wrong := np.flatnonzero((label != NONE) & ((label < 1) | (label > 12)))):
        raise SOURCE.broken(source, f"has label {label[wrong[0]]} in row {wrong[0]}, where labels are -1 or 1 to 12")
    if len(wrong := np.flatnonzero(~np.isfinite(signals.signal).all(axis=1))):
        raise SOURCE.broken(source, f"has {len(wrong)} rows with readings that are no numbers, the first {wrong[0]}")
    if not len(_starts(signals)):
        raise SOURCE.broken(source, f"has no recording of at least {WINDOW} readings")
    return signals


def _from_arrays(path: Path) -> Signals:
    """The compact copy."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            columns = (arrays[name].astype(np.int64) for name in ("label", "subject", "experiment"))
            return Signals(arrays["signal"].astype(np.float32), *columns)
    except KeyError as error:
        raise SOURCE.broken(path, f"lacks an array ({error.args[0]})") from error
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError) as error:
        raise SOURCE.broken(path, f"cannot be read ({error})") from error


def _from_texts(folder: Path) -> Signals:
    """The publisher's own files: acc_expXX_userYY.txt, gyro_expXX_userYY.txt and labels.txt."""
    marks = _numbers(folder / "labels.txt", 5).astype(np.int64)
    parts = [_recording(path, marks) for path in sorted(folder.iterdir()) if RECORDING.fullmatch(path.name)]
    if not parts:
        raise SOURCE.broken(folder, "holds no file acc_expXX_userYY.txt")
    columns = (np.concatenate([getattr(part, name) for part in parts]) for name in ("label", "subject", "experiment"))
    return Signals(np.concatenate([part.signal for part in parts]), *columns)


def _recording(path: Path, marks: NDArray[np.int64]) -> Signals:
    """One recording.

    A row of `marks` is (experiment, subject, activity, first, last). The publisher does not say whether readings count
    from 0 or 1; we count from 0, as the compact copy does. It is a fiftieth of a second.
    """
    experiment, subject = map(int, re.findall(r"\d+", path.name))
    turns = path.with_name(path.name.replace("acc_", "gyro_", 1))
    acceleration, velocity = _numbers(path, 3), _numbers(turns, 3)
    if len(acceleration) != len(velocity):
        raise SOURCE.broken(turns, f"has {len(velocity)} rows for the {len(acceleration)} of {path.name}")
    label = np.full(len(velocity), NONE)
    for _, _, activity, first, last in marks[(marks[:, 0] == experiment) & (marks[:, 1] == subject)]:
        if not 0 <= first <= last < len(label):
            what = f"labels readings {first} to {last} of experiment {experiment}, which has {len(label)}"
            raise SOURCE.broken(path.with_name("labels.txt"), what)
        label[first : last + 1] = activity
    alike = np.ones_like(label)
    signal = np.hstack([acceleration, velocity]).astype(np.float32)
    return Signals(signal, label, subject * alike, experiment * alike)


def _numbers(path: Path, columns: int) -> NDArray[np.float64]:
    text = SOURCE.needed(path)
    try:
        table = np.loadtxt(text, ndmin=2)
    except ValueError as error:
        raise SOURCE.broken(path, f"is not a table of numbers ({error})") from error
    if table.shape[1] != columns:
        raise SOURCE.broken(path, f"has {table.shape[1]} columns instead of {columns}")
    return table


SOURCE = Source(
    name="hapt",
    about="Accelerometer and gyroscope of 30 people in 12 activities, windows of 2.56 s at 50 Hz.",
    load=load,
    folder="hapt",
    by_hand=(
        "Download https://archive.ics.uci.edu/static/public/341/smartphone+based+recognition+of+human+activities+and+"
        "postural+transitions.zip (80 MB, no checksum is published) and unpack it into the folder hapt of the data "
        "folder, so that hapt/RawData/labels.txt is there."
    ),
)
