from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from f2cto.bench import BENCHMARKS
from f2cto.cluster.connection import Connection, library
from f2cto.cluster.hosts import Cluster
from f2cto.models import mlp


def test_the_benchmark_tells_the_share_of_messages(
    cluster: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cluster.processors >= 1
    monkeypatch.setenv("F2CTO_DATA", str(tmp_path))  # nothing there: no 200 workers
    module = import_module("f2cto.bench.engines")
    monkeypatch.setattr(module, "CASES", {"small": (lambda: mlp(6, (8,), 10), (6,), 12, 1)})
    monkeypatch.setattr(module, "CLUSTER", Cluster(processes=1))
    found = BENCHMARKS["engines"](1, lambda _: None)
    assert set(found) == {"cluster_start_seconds", "small"}
    small = found["small"]
    assert small["ray_share"] == pytest.approx(small["ray_messages"] / small["ray"])
    assert 0 < small["in_process_messages"] < small["ray_messages"]
    assert library().is_initialized()  # it was there before
