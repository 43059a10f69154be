from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from f2cto.records import commit_of, provenance


def test_figures_say_where_they_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert provenance(["f2cto", "a b"])["command"] == "f2cto 'a b'"
    assert commit_of(tmp_path) == {}
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)  # noqa: S603
    assert commit_of(tmp_path) == {}  # nothing was committed yet
    (tmp_path / "file").write_text("1")
    subprocess.run([*git, "add", "file"], check=True)  # noqa: S603
    subprocess.run([*git, "commit", "-qm", "first"], check=True)  # noqa: S603
    clean = commit_of(tmp_path)["commit"]
    (tmp_path / "file").write_text("2")
    assert commit_of(tmp_path)["commit"] == f"{clean}-dirty"
    monkeypatch.setenv("PATH", "")
    assert commit_of(tmp_path) == {}
