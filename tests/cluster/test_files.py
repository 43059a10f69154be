from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import polars as pl
import pytest

from f2cto.attacks.base import Range
from f2cto.cli import main
from f2cto.cluster.connection import Connection
from f2cto.cluster.files import File, Told, agreed, all_told, contents, select_files, tell
from f2cto.cluster.hosts import Cluster, Hosts
from f2cto.data.errors import DataError
from f2cto.selection import select
from testing.shards import blobs

ONE = Cluster(processes=1)
SETTINGS = {"stopping": {"iterations": 4}, "weighting": {"draws": 5}, "sharing": {"weights": "samples"}}
SHARDS = [blobs(30 + i, 3, i) for i in range(3)]


def written(folder: Path) -> list[Path]:
    """The same shards as files."""
    paths = [folder / "a.npz", folder / "b.npz", folder / "c.npz"]
    for path, (x, y) in zip(paths, SHARDS, strict=True):
        np.savez(path, x=x.numpy(), y=y.numpy())
    return paths


def refuse(*_: Any) -> NoReturn:
    msg = "the driver opened a file"
    raise AssertionError(msg)


def test_files_are_opened_by_their_workers_only(
    cluster: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cluster.processors >= 1
    paths = written(tmp_path)
    for name in ("contents", "load_arrays", "column_rows"):  # in this process; workers have their own
        monkeypatch.setattr(f"f2cto.cluster.files.{name}", refuse)
    found = select_files(paths, 6, settings=SETTINGS, seed=3, cluster=ONE)
    expected = select(SHARDS, 6, settings=SETTINGS, seed=3)
    for a, b in zip(found.indices, expected.indices, strict=True):
        assert a.tolist() == b.tolist()
    assert found.traffic == expected.traffic


def test_a_file_that_is_not_there_is_named(hosts: Hosts, tmp_path: Path) -> None:
    files = [File(str(path)) for path in [*written(tmp_path)[:2], tmp_path / "gone.npz"]]
    with pytest.raises(DataError, match=r"gone\.npz"):
        all_told(hosts, files, Range())


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_tells_its_columns_and_classes_only(tmp_path: Path, suffix: str) -> None:
    frame = pl.DataFrame({"b": [0.5, 0.25, 1.0], "kind": ["wet", "dry", "wet"], "a": [0.0, 1.0, 0.125]})
    path = tmp_path / f"t{suffix}"
    frame.write_csv(path) if suffix == ".csv" else frame.write_parquet(path)
    file = File(str(path), "kind")
    assert tell(file, Range()) == Told(3, (2,), ("dry", "wet"), ("a", "b"))
    assert contents(file).data.x.tolist() == [[0.0, 0.5], [1.0, 0.25], [0.125, 1.0]]
    assert contents(file).data.y.tolist() == [1, 0, 1]


def test_bytes_are_divided_and_one_class_is_no_fault_of_a_worker(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.full((4, 1, 2, 2), 51, np.uint8), label=np.array([7, 7, 7, 7]))
    file = File(str(tmp_path / "a.npz"), "label")
    assert tell(file, Range()) == Told(4, (1, 2, 2), ("7",))
    assert contents(file).data.x.flatten().tolist() == pytest.approx([0.2] * 16)


def test_a_file_out_of_range_is_the_users_to_mend(hosts: Hosts, tmp_path: Path) -> None:
    files = [File(str(path)) for path in written(tmp_path)]
    with pytest.raises(
        DataError, match=r"a\.npz has features from .*`data\.range\.low` and `data\.range\.high` in settings"
    ):
        all_told(hosts, files, Range(0.4, 0.6))


def test_classes_are_those_of_all_workers() -> None:
    files = [File("a"), File("b")]
    told = [Told(4, (2,), ("10", "9")), Told(4, (2,), ("9", "2"))]
    assert agreed(told, files) == ("2", "9", "10")


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (Told(4, (2,), ("x", "y"), ("a", "c")), "b and a differ in the columns b, c"),
        (Told(4, (3,), ("x", "y"), ("a", "b")), r"differ in samples of shape \(3,\) and \(2,\)"),
    ],
)
def test_files_of_different_problems(second: Told, said: str) -> None:
    first = Told(4, (2,), ("x", "y"), ("a", "b"))
    with pytest.raises(DataError, match=said):
        agreed([first, second], [File("a"), File("b")])
    with pytest.raises(DataError, match="needs at least two classes"):
        agreed([Told(4, (2,), ("x",))], [File("a")])


def test_kinds_and_labels_that_are_not_known(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="of no known kind"):
        contents(File(str(tmp_path / "a.txt")))
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 2)), label=np.zeros(2))
    with pytest.raises(DataError, match="has no array `lable`; did you mean label"):
        contents(File(str(tmp_path / "a.npz"), "lable"))


@pytest.mark.federation
def test_the_command_takes_a_pattern_of_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path)
    source, out = str(tmp_path / "*.npz"), tmp_path / "out"
    few = ["--iterations", "3", "--size", "6", "--set", "network.hidden=[8]", "--quiet"]
    command = Path(sys.executable).with_name("f2cto")  # in a program of its own, as the tests' cluster may be full
    subprocess.run([command, "select", source, "--engine", "ray", "--out", out, *few], check=True, timeout=300)  # noqa: S603
    kept = pl.read_csv(out / "coreset.csv")
    assert kept["worker"].value_counts().sort("worker")["count"].to_list() == [6, 6, 6]
    assert kept.filter(pl.col("worker") == 1)["file"].unique().to_list() == [str(tmp_path / "b.npz")]
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 3
    assert main(["select", source, "--out", str(tmp_path / "other"), *few]) == 2
    assert "add --engine ray" in capsys.readouterr().err
    assert main(["select", str(tmp_path / "*.csv"), "--engine", "ray", *few]) == 2
    assert "No file matches" in capsys.readouterr().err
