"""Data sets from their publishers: downloads that go on where they broke off, checked before anything is unpacked."""

from __future__ import annotations

import logging
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import pooch
import requests
from urllib3.exceptions import HTTPError

from f2cto.data.errors import DataError
from f2cto.data.sources.source import Download, Source

Progress = Callable[[str, int, int | None], None]  # file name, bytes so far, bytes in all where the server says
CHUNK = 1 << 16
PATIENCE = 30  # seconds to wait for a server's next word


class FetchError(OSError):
    """A download that failed for reasons outside; one sentence for users."""


def fetch(source: Source, root: Path, progress: Progress) -> list[Path]:
    """Bring a data set's files to the data folder and give what was new; what is there and sound stays.

    Raises:
        DataError: it has to be downloaded by hand, or what came is not what was published.
        FetchError: the connection failed; what came so far is kept and the next call goes on from there.

    """
    if source.by_hand and not source.downloads:
        msg = f"{source.name} cannot be fetched by itself: {source.by_hand} The data folder is {root}."
        raise DataError(msg)
    return [path for download in source.downloads for path in _fetch(source, download, root, progress)]


def _fetch(source: Source, download: Download, root: Path, progress: Progress) -> list[Path]:
    """The new file, or the folder that the new archive was laid out in."""
    name = _name(download.url)
    if not download.unpack:
        return [root / source.folder / name] if _download(download, root / source.folder, progress) else []
    if source.here(root):  # archives are laid out in one go: what is there is whole, or the user's own
        return []
    _download(download, root, progress)
    unpack(root / name, root)
    (root / name).unlink()
    return [source.needed(root / source.folder)]


def _download(download: Download, folder: Path, progress: Progress) -> bool:
    """Whether the file had to be brought; with the right checksum it is there in any case."""
    name = _name(download.url)
    carrier = Resuming(folder / f"{name}.part", lambda done, total: progress(name, done, total))
    pooch.get_logger().setLevel(logging.WARNING)  # it would tell of each file on stderr; that is the caller's choice
    try:
        pooch.retrieve(download.url, download.checksum, name, folder, downloader=carrier)
    except ValueError as error:
        msg = (
            f"What came from {download.url} does not have the published checksum {download.checksum}; "
            f"try again later, or get {name} elsewhere and put it into {folder}."
        )
        raise DataError(msg) from error
    return carrier.used


def _name(url: str) -> str:
    return unquote(PurePosixPath(urlsplit(url).path).name)


@dataclass
class Resuming:
    """A downloader for pooch that keeps what came in a file of its own and asks only for the rest."""

    part: Path
    progress: Callable[[int, int | None], None]
    used: bool = False

    def __call__(self, url: str, output_file: str, _: object, **__: object) -> None:
        """Download to `output_file`, beginning with the bytes that an earlier call has left."""
        self.used = True
        self.part.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._bring(url)
        except (requests.RequestException, HTTPError) as error:
            kept = f"the {self._size():,} bytes that came are kept and the same command goes on from there"
            msg = f"The download of {url} failed ({error}); {kept}."
            raise FetchError(msg) from error
        shutil.move(self.part, output_file)

    def _bring(self, url: str) -> None:
        done = self._size()
        # Identity, since a server that packs on the way counts other bytes than the file's.
        wanted = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
        with requests.get(url, headers=wanted, stream=True, timeout=PATIENCE) as answer:
            nothing_there = done and answer.status_code == requests.codes.requested_range_not_satisfiable
            if not nothing_there:
                answer.raise_for_status()
                self._write(answer, done if answer.status_code == requests.codes.partial_content else 0)
            elif answer.headers.get("Content-Range") != f"bytes */{done}":
                self.part.unlink()  # of another file than the server has now
                self._bring(url)

    def _size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _write(self, answer: requests.Response, done: int) -> None:
        """Append what comes, or start anew where the server knows no ranges."""
        length = answer.headers.get("Content-Length")
        total = done + int(length) if length else None
        with self.part.open("ab" if done else "wb") as file:
            for chunk in answer.raw.stream(CHUNK, decode_content=False):
                file.write(chunk)
                done += len(chunk)
                self.progress(done, total)


def unpack(archive: Path, folder: Path) -> None:
    """Lay an archive out in a folder, all of it or nothing; a member that would leave the folder is refused."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".unpacking-") as temporary:
        try:
            if zipfile.is_zipfile(archive):
                _unzip(archive, Path(temporary))
            else:
                with tarfile.open(archive) as tar:
                    tar.extractall(temporary, filter="data")
        except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
            msg = f"{archive} cannot be unpacked ({error}); delete it and fetch it again."
            raise DataError(msg) from error
        for item in Path(temporary).iterdir():
            item.rename(folder / item.name)


def _unzip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        for name in packed.namelist():
            path = PurePosixPath(name.replace("\\", "/"))
            if path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
                msg = f"the member {name} would leave the folder"
                raise zipfile.BadZipFile(msg)
        packed.extractall(folder)  # noqa: S202  (checked just now)
