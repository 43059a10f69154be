from __future__ import annotations

from pathlib import Path

import pytest

from f2cto.bench.loading import load
from f2cto.data.sources import SOURCES
from testing import publishers
from testing.publishers import images


def test_loading_is_timed_and_what_is_absent_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = images(20_000, (28, 28), 10, seed=0)
    publishers.mnist(tmp_path, part, images(5, (28, 28), 10, seed=1))
    monkeypatch.setenv("F2CTO_DATA", str(tmp_path))
    monkeypatch.setattr("f2cto.bench.loading.SOURCES", {name: SOURCES[name] for name in ("mnist", "hapt")})
    said: list[str] = []
    results = load(1, said.append)
    assert list(results) == ["mnist", "absent"]
    assert results["absent"] == ["hapt"]
    assert 0 < results["mnist"]["seconds"] < 30
    assert part[0].nbytes / 1e6 < results["mnist"]["megabytes"] < 10 * part[0].nbytes / 1e6
    assert said[0].startswith("mnist: ")
    assert said[1].startswith(f"not in {tmp_path}: hapt;")
