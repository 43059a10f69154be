from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

with warnings.catch_warnings():  # what Flower imports warns of its own ways; that is not for our tests to judge
    warnings.simplefilter("ignore")
    from flwr.supercore.task_identity import TaskIdentity

    import f2cto.flower.server_app
    import f2cto.flower.simulation  # noqa: F401


@pytest.fixture(autouse=True)
def task() -> Iterator[None]:
    """Messages can be made only where Flower runs a task."""
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    yield
    for name in ("_task_id", "_run_id", "_node_id"):
        setattr(TaskIdentity, name, None)
