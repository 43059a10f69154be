"""Clusters of our own let nobody in who has not their token."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from f2cto.cluster.connection import Connection, library
from f2cto.cluster.token import MODE, TOKEN, guarded

JOIN = """import sys, ray
ray.init(sys.argv[1], log_to_driver=False, logging_level="error")
print("joined", ray.get(ray.remote(lambda: 7).remote()))
"""


def join(**others: str) -> str:
    """What becomes of another program that wants to join the cluster."""
    env = {name: value for name, value in os.environ.items() if name not in {MODE, TOKEN}}
    env |= {"RAY_NUM_REDIS_GET_RETRIES": "2"} | others  # or it would try for 20 s
    command = [sys.executable, "-W", "ignore", "-c", JOIN, library().get_runtime_context().gcs_address]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603
    return done.stdout + done.stderr


def test_only_who_has_the_token_gets_in(cluster: Connection) -> None:
    assert cluster.processors >= 1
    token = os.environ[TOKEN]
    for others in ({}, {MODE: "token", TOKEN: "0" * len(token)}):
        said = join(**others)
        assert "joined" not in said
        assert "Unauthenticated" in said
    assert "joined 7" in join(**{MODE: "token", TOKEN: token})


def test_nothing_is_left_of_it(cluster: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cluster.processors >= 1
    own = os.environ[TOKEN]
    guarded()()
    assert os.environ[TOKEN] == own  # a mode that is set already stays
    monkeypatch.setattr("f2cto.cluster.token._reader", lambda: lambda: None)
    monkeypatch.delenv(MODE)
    monkeypatch.setenv(TOKEN, "mine")
    undo = guarded()
    assert os.environ[MODE] == "token"
    assert len(os.environ[TOKEN]) == 64
    undo()
    assert MODE not in os.environ
    assert os.environ[TOKEN] == "mine"
