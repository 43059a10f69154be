from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("ray")

from f2cto.cluster.connection import Connection, library
from f2cto.cluster.hosts import Cluster, Hosts


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
