"""To a Ray cluster and away from it again."""

from __future__ import annotations

import gc
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from typing import Any

from f2cto.cluster.token import guarded
from f2cto.config import SettingsError

ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anyone
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # it need not say what a later version will do
    "RAY_worker_niceness": "0",  # workers are what the user waits for; Ray lets them stand back behind all else
}


def library() -> Any:  # noqa: ANN401  (its types are not complete)
    """Ray, or what to do where it is missing."""
    if find_spec("ray") is None:
        msg = 'The Ray engine needs the library ray, which is not installed: pip install "f2cto[ray]".'
        raise SettingsError(msg)
    for name, value in ENVIRONMENT.items():  # it reads them while it is imported and when a cluster starts
        os.environ.setdefault(name, value)
    import ray  # noqa: PLC0415  (an optional dependency, and slow to import)

    return ray


class Connection:
    """A way to a cluster: to one of its own on this machine, to one that is there, or the way this program has already.

    Args:
        address: empty for a cluster of its own, `auto` or HOST:PORT for one that is there. A program that is connected
            already stays where it is.

    """

    def __init__(self, address: str = "") -> None:
        """Connect."""
        ray = library()
        self._own, self._after = not ray.is_initialized(), ExitStack()
        if self._own:
            _check(address)
            with ExitStack() as stack:
                if not address:
                    stack.callback(guarded())
                _join(ray, address)
                self._after = stack.pop_all()
            _hush(ray)

    @property
    def processors(self) -> float:
        """How many the cluster has."""
        return float(library().cluster_resources().get("CPU", 1.0))

    def close(self) -> None:
        """Leave; a cluster of its own ends, one that was joined does not."""
        if self._own and library().is_initialized():
            with _quietly():
                library().shutdown()
        self._after.close()
        self._own = False


def _join(ray: Any, address: str) -> None:  # noqa: ANN401
    here = {} if address else {"include_dashboard": False}
    try:
        with _quietly():
            ray.init(address or "local", log_to_driver=False, logging_level="error", **here)
    except (ConnectionError, ValueError) as error:
        raise SettingsError(_no_cluster(address, error)) from error


def _check(address: str) -> None:
    """Knock where the cluster is said to be: Ray would do so for minutes."""
    host, _, port = address.rpartition(":")
    if address in {"", "auto"}:
        return
    if not host or not port.isdecimal():
        msg = f"A Ray cluster's address is `auto` or HOST:PORT; got `{address}`."
        raise SettingsError(msg)
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise SettingsError(_no_cluster(address, error)) from error


def _no_cluster(address: str, error: Exception) -> str:
    said = str(error).strip().splitlines()[0]
    return f"There is no Ray cluster at `{address}` ({said}); start one with `ray start --head`."


def _hush(ray: Any) -> None:  # noqa: ANN401
    """Ray would write to standard output that a process died; whoever asked it hears of it anyway."""
    with suppress(AttributeError):  # there is no public way
        ray._private.worker.print_to_stdstream = lambda *_, **__: None  # noqa: SLF001


@contextmanager
def _quietly() -> Iterator[None]:
    """Ray leaves open files to the collector, which would say so while somebody else's warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()
