"""A real federation on this machine: SuperLink, SuperNodes and sites, started by the scripts that `init` writes.

Every process is in a group of its own and talks into a file; all of them are gone at the end, whatever happens.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

from f2cto.cli import main
from f2cto.data.dataset import LabelledData
from f2cto.flower.commands import Link

SITES = 3
# What is in the commands of a site's process, of its node and of the master: arguments are apart by a zero byte.
SITE, NODE, MASTER = "site\0--data", "flower-supernode", "flwr-serverapp"


@dataclass
class Deployment:
    """A federation in `root/federation`; `root` must be short, as paths of sockets are."""

    root: Path
    port: int
    data: Sequence[Path]  # a file a site
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """What `f2cto federation init` wrote."""
        return self.root / "federation"

    @property
    def link(self) -> Link:
        """Flower's commands."""
        return Link(self.folder / "master")

    def log(self, name: str) -> str:
        """What a process has said."""
        return (self.root / f"{name}.log").read_text(errors="replace")

    def start(self, name: str, script: str, *options: str, env: Mapping[str, str] | None = None) -> None:
        """Start a script of the federation's folder under a name; a former one of that name has ended."""
        if name in self.running:
            self.running[name].wait(30)
        with (self.root / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(  # noqa: S603
                [str(self.folder / script), *options],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
                start_new_session=True,
            )

    def up(self) -> None:
        """Start everything in the order of the README, and wait until it is there."""
        self.start("superlink", "master/start-superlink.sh")
        for i, data in enumerate(self.data):
            (self.folder / f"site-{i}" / "site.conf").write_text(f'DATA="{data}"\nLABEL=\nOPTIONS=()\nSOCKET=\n')
            self.site(i)
        until(lambda: listens(self.port), 60, "the SuperLink listens")
        subprocess.run([str(self.folder / "master/register-sites.sh")], check=True, capture_output=True)  # noqa: S603
        for i in range(len(self.data)):
            self.node(i)
        for i in range(len(self.data)):
            until(lambda i=i: "is ready" in self.log(f"site-{i}"), 120, f"site {i} is ready")  # type: ignore[misc]
            until(lambda i=i: "SuperNode ID" in self.log(f"node-{i}"), 120, f"node {i} is up")  # type: ignore[misc]

    def site(self, number: int) -> None:
        """Start a site's process."""
        self.start(f"site-{number}", f"site-{number}/start-site.sh")

    def node(self, number: int) -> None:
        """Start a site's node."""
        self.start(f"node-{number}", f"site-{number}/start-supernode.sh")

    def processes(self, what: str, part: str = "") -> list[int]:
        """The processes of this federation whose command has `what` in it; `part` is a folder, such as `site-1`."""
        home = f"FLWR_HOME={self.folder / part}/{'flwr' if part else ''}".encode()
        return [pid for pid, command, env in _listed() if what.encode() in command and home in env]

    def kill(self, what: str, part: str) -> None:
        """`kill -9` to the processes of a part whose command has `what` in it."""
        found = self.processes(what, part)
        if not found:
            msg = f"no process `{what}` of {part}"
            raise ProcessLookupError(msg)
        for pid in found:
            os.kill(pid, signal.SIGKILL)

    def down(self) -> None:
        """End everything; first the scripts, which would start anew what they look after."""
        for process in self.running.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)
        for pid in self.processes(""):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def deployed(root: Path, data: Sequence[Path], schema: Path) -> Iterator[Deployment]:
    """A new federation that is up; a site for each file of `data`."""
    made = Deployment(root, free_port(len(data)), data)
    options = ["--sites", str(len(data)), "--port", str(made.port), "--schema", str(schema)]
    if main(["federation", "init", str(made.folder), *options]):
        msg = "f2cto federation init failed"
        raise RuntimeError(msg)
    try:
        made.up()
        yield made
    finally:
        made.down()


def split_digits(counts: Sequence[int]) -> list[LabelledData]:
    """The first of scikit-learn's digits, so many a site."""
    x, y = load_digits(return_X_y=True)
    x, y = torch.from_numpy((x / 16).astype(np.float32)), torch.from_numpy(y)
    return [LabelledData(x[a:b], y[a:b]) for a, b in pairwise(np.cumsum((0, *counts)))]


def written(root: Path, samples: Sequence[LabelledData]) -> list[Path]:
    """Each site's samples in a file of its own."""
    files = [root / f"site-{i}.npz" for i in range(len(samples))]
    for file, part in zip(files, samples, strict=True):
        np.savez(file, x=part.x.numpy(), y=part.y.numpy())
    return files


def until(holds: Callable[[], object], seconds: float, what: str) -> float:
    """Wait until something holds; how long it took."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > seconds:
            msg = f"not within {seconds:g} s: {what}"
            raise TimeoutError(msg)
        time.sleep(0.1)
    return time.monotonic() - began


def listens(port: int) -> bool:
    """Whether someone listens at a port of this machine."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port(sites: int) -> int:
    """A port that is free with those after it."""
    for port in range(20000 + os.getpid() % 10000, 65000, 10 + sites):
        if not any(map(listens, range(port, port + 3 + sites))):
            return port
    msg = "no free ports"
    raise OSError(msg)


def _listed() -> Iterator[tuple[int, bytes, bytes]]:
    """Number, command and environment of every process that may be looked at."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                yield int(folder.name), (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
