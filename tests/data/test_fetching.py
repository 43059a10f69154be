"""Downloads against a real server on this machine."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from f2cto.data.errors import DataError
from f2cto.data.sources import SOURCES
from f2cto.data.sources.source import Download, Source
from f2cto.fetching import CHUNK, FetchError, fetch, unpack
from testing.serving import Site, serving

CONTENT = np.random.default_rng(0).bytes(5 * CHUNK + 123)


@pytest.fixture
def site() -> Iterator[Site]:
    with serving({"a.gz": CONTENT, "b.gz": b"short"}) as running:
        yield running


def checksum(content: bytes) -> str:
    return f"md5:{hashlib.md5(content).hexdigest()}"  # noqa: S324  (publishers publish these)


def source(site: Site, *names: str, unpack: bool = False) -> Source:
    downloads = tuple(Download(f"{site.url}/{name}", checksum(site.files[name]), unpack) for name in names)
    return Source("things", "Things.", SOURCES["digits"].load, folder="things", downloads=downloads)


def quiet(name: str, done: int, total: int | None) -> None:
    """No progress is asked for."""


def test_files_come_once_and_progress_is_told(site: Site, tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    new = fetch(source(site, "a.gz", "b.gz"), tmp_path, lambda *step: told.append(step))
    assert new == [tmp_path / "things" / "a.gz", tmp_path / "things" / "b.gz"]
    assert [path.read_bytes() for path in new] == [CONTENT, b"short"]
    assert sorted(path.name for path in (tmp_path / "things").iterdir()) == ["a.gz", "b.gz"]
    assert told[-1] == ("b.gz", 5, 5)
    assert told[-2] == ("a.gz", len(CONTENT), len(CONTENT))
    assert [done for name, done, _ in told if name == "a.gz"] == sorted(
        done for name, done, _ in told if name == "a.gz"
    )
    assert fetch(source(site, "a.gz", "b.gz"), tmp_path, quiet) == []
    assert len(site.asked) == 2


def test_a_broken_download_goes_on_where_it_stopped(site: Site, tmp_path: Path) -> None:
    site.breaks_after = 3 * CHUNK + 7
    with pytest.raises(FetchError, match=f"{site.url}/a.gz failed .* the same command goes on"):
        fetch(source(site, "a.gz"), tmp_path, quiet)
    assert not (tmp_path / "things" / "a.gz").exists()
    part = tmp_path / "things" / "a.gz.part"
    came = part.stat().st_size
    assert 3 * CHUNK <= came <= site.breaks_after
    site.breaks_after = None
    told: list[tuple[str, int, int | None]] = []
    fetch(source(site, "a.gz"), tmp_path, lambda *step: told.append(step))
    assert (tmp_path / "things" / "a.gz").read_bytes() == CONTENT
    assert site.asked == [("a.gz", None), ("a.gz", f"bytes={came}-")]
    assert told[0][1] > came
    assert told[-1][1:] == (len(CONTENT), len(CONTENT))
    assert not part.exists()


@pytest.mark.parametrize(
    ("left", "ranges"),
    [
        (CONTENT[:1000], False),  # the server sends all of it
        (CONTENT, True),  # nothing is left to send
        (CONTENT + b"of a longer file", True),
    ],
)
def test_odd_beginnings_still_end_well(left: bytes, ranges: bool, site: Site, tmp_path: Path) -> None:  # noqa: FBT001
    site.ranges = ranges
    (tmp_path / "things").mkdir()
    (tmp_path / "things" / "a.gz.part").write_bytes(left)
    fetch(source(site, "a.gz"), tmp_path, quiet)
    assert (tmp_path / "things" / "a.gz").read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused_and_does_not_stick(site: Site, tmp_path: Path) -> None:
    wanted = source(site, "a.gz")
    site.files["a.gz"] = CONTENT[::-1]
    with pytest.raises(DataError, match=f"{site.url}/a.gz does not have the published checksum md5:"):
        fetch(wanted, tmp_path, quiet)
    assert list((tmp_path / "things").iterdir()) == []
    site.files["a.gz"] = CONTENT
    assert fetch(wanted, tmp_path, quiet) == [tmp_path / "things" / "a.gz"]


def test_a_file_that_was_spoiled_is_replaced(site: Site, tmp_path: Path) -> None:
    (path,) = fetch(source(site, "b.gz"), tmp_path, quiet)
    path.write_bytes(b"spoilt")
    assert fetch(source(site, "b.gz"), tmp_path, quiet) == [path]
    assert path.read_bytes() == b"short"


def test_servers_that_do_not_have_it_or_are_not_there(site: Site, tmp_path: Path) -> None:
    gone = source(site, "b.gz")
    del site.files["b.gz"]
    with pytest.raises(FetchError, match="404"):
        fetch(gone, tmp_path, quiet)
    nowhere = Download("http://127.0.0.1:9/b.gz", checksum(b""))  # the discard port: nobody listens
    with pytest.raises(FetchError, match=r"127\.0\.0\.1"):
        fetch(Source("x", "X.", SOURCES["digits"].load, "x", (nowhere,)), tmp_path, quiet)


def tar(members: dict[str, bytes], link: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as packed:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))
        if link:
            info = tarfile.TarInfo("things/link")
            info.type, info.linkname = tarfile.SYMTYPE, link
            packed.addfile(info)
    return buffer.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return buffer.getvalue()


FILES = {"things/one.txt": b"1", "things/deep/two.txt": b"2"}


@pytest.mark.parametrize(("name", "content"), [("things.tar.gz", tar(FILES)), ("things.zip", zipped(FILES))])
def test_archives_are_laid_out(name: str, content: bytes, site: Site, tmp_path: Path) -> None:
    site.files[name] = content
    assert fetch(source(site, name, unpack=True), tmp_path, quiet) == [tmp_path / "things"]
    found = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == FILES
    assert fetch(source(site, name, unpack=True), tmp_path, quiet) == []
    assert len(site.asked) == 1


def test_an_archive_brought_by_hand_is_used(site: Site, tmp_path: Path) -> None:
    site.files["things.zip"] = zipped(FILES)
    (tmp_path / "things.zip").write_bytes(site.files["things.zip"])
    assert fetch(source(site, "things.zip", unpack=True), tmp_path, quiet) == [tmp_path / "things"]
    assert site.asked == []


@pytest.mark.parametrize(
    "content",
    [
        tar(FILES | {"../evil.txt": b"!"}),
        tar(FILES | {"things/../../evil.txt": b"!"}),
        tar(FILES, link="../../evil.txt"),
        zipped(FILES | {"../evil.txt": b"!"}),
        zipped(FILES | {"things/../../evil.txt": b"!"}),
        zipped(FILES | {"..\\evil.txt": b"!"}),
        zipped(FILES | {"/tmp/evil.txt": b"!"}),  # noqa: S108
        tar(FILES)[:60],
        b"neither of the two",
    ],
    ids=["above", "above and back", "link", "zip above", "zip above and back", "backslash", "absolute", "cut", "other"],
)
def test_bad_archives_leave_nothing(content: bytes, tmp_path: Path) -> None:
    inside = tmp_path / "data"
    inside.mkdir()
    archive = tmp_path / "archive"
    archive.write_bytes(content)
    with pytest.raises(DataError, match=f"{archive} cannot be unpacked"):
        unpack(archive, inside)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["archive", "data"]


def test_what_cannot_be_fetched_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"Download https://archive.ics.uci.edu/.* The data folder is {tmp_path}"):
        fetch(SOURCES["hapt"], tmp_path, quiet)
    assert fetch(SOURCES["digits"], tmp_path, quiet) == []
    assert list(tmp_path.iterdir()) == []
