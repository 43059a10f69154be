"""Files and names that are not what they should be: one sentence, exit code 2 or a run that goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from f2cto import Range, select
from f2cto.cli import main
from f2cto.comparison_folder import RECORDS, ComparisonFolder
from f2cto.config import SettingsError, assignment, read_toml
from f2cto.records import Row
from f2cto.site.store import PRIVACY, Store, StoreError

X, Y = np.random.default_rng(0).random((40, 4)), np.arange(40) % 2
QUICK = ["--method", "random", "--no-judge", "--workers", "2", "--size", "2"]


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    return shown


def test_features_out_of_range(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The hint is right on the command line and in Python, and nothing is written before."""
    path, out = tmp_path / "wide.npz", tmp_path / "run"
    np.savez(path, x=3 * X, y=Y)
    said = refused(["select", str(path), *QUICK, "--out", str(out)], capsys)
    assert f"{path} has features from" in said
    assert "`valid=Range(low, high)` in Python, `data.range.low` and `data.range.high` in settings" in said
    assert not out.exists()
    wider = ["--set", "data.range.low=0", "--set", "data.range.high=3"]
    assert main(["select", str(path), *QUICK, *wider, "--quiet", "--out", str(out)]) == 0
    with pytest.raises(ValueError, match="`valid=Range"):
        select([(3 * X, Y)], 2, method="random")
    assert len(select([(3 * X, Y)], 2, method="random", valid=Range(0, 3)).indices[0]) == 2


def arrays_with(header: bytes, path: Path) -> None:
    """An .npz whose arrays have a header that is not numpy's."""
    padded = header + b" " * (-(len(header) + 11) % 64) + b"\n"
    with zipfile.ZipFile(path, "w") as file:
        for name in ("x", "y"):
            file.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + bytes(99))


@pytest.mark.parametrize(
    ("shape", "complaint"),
    [
        ("(3000000000, 1000), }", "cannot be read (Unable to allocate 21.8 TiB"),
        ("(3000000000, 1000", "cannot be read ("),
        ("(99999999999999999999999,), }", "cannot be read ("),
        ("(-3,), }", "cannot be read ("),
    ],
)
def test_headers_that_lie_or_are_broken(
    shape: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays_with(f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}".encode(), tmp_path / "bad.npz")
    assert complaint in refused(["select", str(tmp_path / "bad.npz"), *QUICK], capsys)


@pytest.mark.parametrize("kind", ["datetime64[h]", "timedelta64[s]", "complex128", "datetime64[D]"])
def test_labels_that_name_no_classes(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "data.npz", x=X, y=Y.astype(kind))
    said = refused(["select", str(tmp_path / "data.npz"), *QUICK], capsys)
    assert f"holds {kind}; give whole numbers or names." in said


@pytest.mark.parametrize("values", [pl.Series([1e300, 2.0] * 20), pl.Series([10**30, 1] * 20, dtype=pl.Decimal(38, 0))])
def test_labels_beyond_64_bits(values: pl.Series, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pl.DataFrame({"a": X[:, 0], "y": values}).write_parquet(tmp_path / "data.parquet")
    said = refused(["select", str(tmp_path / "data.parquet"), "--label", "y", *QUICK], capsys)
    assert "holds numbers beyond 64 bits, such as 1" in said


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 5000 + "]" * 5000], ids=["digits", "nesting"])
def test_toml_that_no_parser_takes(value: str, tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(f"workers = {value}")
    with pytest.raises(SettingsError, match="is not a valid TOML file"):
        read_toml(tmp_path / "long.toml")
    with pytest.raises(SettingsError, match=r"The value `.{20}…` cannot be read"):
        assignment(f"workers={value}")


def test_a_value_with_lines_is_a_text() -> None:
    assert assignment("data.source=1\nworkers = 5") == {"data": {"source": "1\nworkers = 5"}}


@pytest.mark.parametrize("broken", [b"\xff", b'{"method": "\xff"}', b"[" * 9000, b'{"task": ' + b"9" * 5000 + b"}"])
def test_a_line_that_the_disk_broke_is_computed_again(broken: bytes, tmp_path: Path) -> None:
    folder = ComparisonFolder(tmp_path)
    whole = Row("f2cto", 0, 1, "pgd", 0.5, 1.0, 2, 3, 0.25, None)
    folder.add([whole])
    with (tmp_path / RECORDS).open("ab") as file:
        file.write(broken + b"\n")
    assert folder.rows(1) == [whole]
    assert (tmp_path / RECORDS).read_bytes().count(b"\n") == 1


def test_privacy_that_no_number_can_be(tmp_path: Path) -> None:
    (tmp_path / PRIVACY).write_text(json.dumps({"jobs": [{"job": "a", "epsilon": 10**400, "delta": 0.1}]}))
    with pytest.raises(StoreError, match=r"privacy\.json cannot be read"):
        Store(tmp_path).charges()


def test_a_folder_that_looks_like_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = f"{tmp_path}/x[/b]z"
    assert main(["select", "--preset", "digits", *QUICK, "--out", out]) == 0
    assert "x[/b]z" in capsys.readouterr().out
    assert (Path(out) / "summary.json").exists()


def test_a_picture_in_a_folder_that_looks_like_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "info", "digits", "--out", f"{tmp_path}/[red]"]) == 0
    assert "[red]/digits.png" in capsys.readouterr().out


HOME_TO_NOBODY = """
import os, pwd
def getpwuid(uid):
    raise KeyError(uid)
pwd.getpwuid = getpwuid
for name in ("HOME", "XDG_CACHE_HOME", "USER", "LOGNAME", "LNAME", "USERNAME", "F2CTO_DATA"):
    os.environ.pop(name, None)
from f2cto.cli import program
program()
"""


def test_users_without_a_home(tmp_path: Path) -> None:
    """As in a container whose user is a bare number."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HOME_TO_NOBODY]
    arguments = ["select", "--preset", "digits", *QUICK, "--quiet", "--out", str(tmp_path / "run")]
    done = subprocess.run(  # noqa: S603
        [*command, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "f2cto: " not in done.stderr  # other libraries say that they miss a home
    listed = subprocess.run(  # noqa: S603
        [*command, "data", "list", "--json"], capture_output=True, text=True, check=True, cwd=tmp_path, env=environment
    )
    assert json.loads(listed.stdout)["folder"] == "f2cto-data"


def test_the_home_of_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(["data", "list", "--data-dir", "~no-such-user/data"], capsys)
    assert "The home folder in ~no-such-user/data is not known; give a path without ~." in said
