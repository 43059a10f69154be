from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray")

from f2cto.cluster.connection import Connection, library
from f2cto.cluster.hosts import Cluster, Hosts

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of them start processes that take long: they run beside the federation's, not in the default suite."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.federation)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Connection]:
    """A cluster on this machine for all tests: to start one takes seconds."""
    connection = Connection()
    yield connection
    connection.close()
    assert not library().is_initialized()


@pytest.fixture(scope="session")
def hosts(cluster: Connection) -> Iterator[Hosts]:
    """Five workers in two processes; a test that kills one leaves the other, and the next test starts a new one."""
    assert cluster.processors >= 1
    found = Hosts(5, Cluster(processes=2))
    yield found
    found.close()
    assert library().is_initialized()  # it was there before
