"""What a named data set is: how it is read from its publisher's own layout, and how it is come by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from f2cto.data.samples import DataSet

Loader = Callable[[Path], DataSet]  # from the data folder, in which the publisher's own folder lies


@dataclass(frozen=True)
class Download:
    """One file that its publisher lets everyone fetch."""

    url: str
    checksum: str  # "md5:…" or "sha256:…"
    unpack: bool = False  # whether it is an archive to be laid out beside itself


@dataclass(frozen=True)
class Published:
    """What the publisher says the whole set holds."""

    train: int
    test: int
    classes: int


@dataclass(frozen=True)
class Source:
    """A named data set."""

    name: str
    about: str  # one sentence: what, how many, of what shape
    load: Loader
    folder: str = ""  # the publisher's folder inside the data folder; empty if nothing is needed there
    downloads: tuple[Download, ...] = ()
    by_hand: str = ""  # where it cannot be fetched: one sentence on what to download from where
    published: Published | None = None
