"""What a named data set is: how it is read from its publisher's own layout, and how it is come by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from f2cto.data.errors import DataError
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

    def here(self, root: Path) -> bool:
        """Whether there is anything to read in the data folder."""
        return not self.folder or (root / self.folder).is_dir()

    def needed(self, path: Path) -> Path:
        """The path itself, if it is there."""
        if not path.exists():
            msg = f"{path} is missing; {self._way}, or say with --data-dir or F2CTO_DATA where the data lie."
            raise DataError(msg)
        return path

    def broken(self, path: Path, what: str) -> DataError:
        """An error that says what is wrong with a file and how to get a sound one."""
        again = "it" if self.downloads and not self.downloads[0].unpack else f"the folder {self.folder}"
        return DataError(f"{path} {what}; delete {again} and {self._way}.")

    @property
    def _way(self) -> str:
        """How to come by the data, as a part of a sentence."""
        if self.downloads:
            return f"run `f2cto data fetch {self.name}`"
        return self.by_hand[:1].lower() + self.by_hand[1:].rstrip(".")
