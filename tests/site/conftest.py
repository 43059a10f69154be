from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from f2cto.config import build
from f2cto.run_settings import RunSettings
from f2cto.site.host import Site
from f2cto.site.job import Job, job_of
from f2cto.site.reading import read_site
from f2cto.site.rules import Rules
from f2cto.site.schema import Schema, schema_of
from f2cto.site.store import Store

QUICK = {"size": 4, "workers": 1, "network": {"hidden": [8]}, "seed": 5}
SHORT = {"f2cto": {"weighting": {"draws": 5}, "stopping": {"iterations": 3}}}
COUNT = 40


def frame(seed: int, count: int) -> pl.DataFrame:
    """Three classes; numbers with and without a heavy tail, and words; the row before the first is broken."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(count) % 3)
    whole = pl.DataFrame(
        {
            "bytes": 10.0 ** rng.integers(0, 7, count),
            "size": y + rng.normal(size=count),
            "proto": rng.choice(["tcp", "udp", "icmp"], count),
            "y": np.array(["good", "bad", "ugly"])[y],
        }
    )
    return pl.concat([whole[:1].with_columns(size=pl.lit(None, pl.Float64)), whole])


@pytest.fixture
def table() -> Callable[[int, int], pl.DataFrame]:
    return frame


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "site.parquet"
    frame(1, COUNT).write_parquet(path)
    return path


@pytest.fixture
def schema(file: Path) -> Schema:
    return schema_of(file, "y", ["proto"])


@pytest.fixture
def job(schema: Schema) -> Job:
    return job_of(build(RunSettings, QUICK | SHORT), schema, "a-job")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "site"
    path.mkdir()
    return path


@pytest.fixture
def opened(file: Path, schema: Schema, folder: Path) -> Callable[..., Site]:
    """A site in this process; called again it is what a restarted process would be."""

    def make(rules: Rules | None = None, number: int = 0, data: Path = file) -> Site:
        return Site(read_site(data, "y", schema), schema, number, Store(folder), rules or Rules())

    return make
