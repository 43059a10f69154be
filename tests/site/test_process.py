"""The site as a process of its own, over a real socket."""

from __future__ import annotations

import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from f2cto.federation.wire import Array, Frame, WireError, pack, receive, send
from f2cto.message import Message
from f2cto.selection import select
from f2cto.site.job import Job, job_text, prepared
from f2cto.site.reading import read_site
from f2cto.site.schema import Schema, schema_text

PROGRAM = [sys.executable, "-c", "import sys; from f2cto.cli import main; sys.exit(main())", "site"]


class Process:
    """`f2cto site`, and what to ask it with."""

    def __init__(self, arguments: list[str], socket_path: Path, log: Path) -> None:
        self.path, self.log = socket_path, log
        with log.open("a") as errors:
            self.process = subprocess.Popen(  # noqa: S603
                [*PROGRAM, *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                text=True,
            )
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline()

    def ask(self, head: dict[str, Any], arrays: dict[str, Array] | None = None) -> Frame:
        with self.connected() as connection:
            send(connection, Frame(head, arrays or {}))
            return receive(connection)

    def connected(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(20)
        connection.connect(str(self.path))
        return connection

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture
def arguments(file: Path, schema: Schema, tmp_path: Path) -> list[str]:
    (tmp_path / "schema.json").write_text(schema_text(schema))
    named = {"--data": file, "--label": "y", "--schema": tmp_path / "schema.json", "--number": 0}
    named |= {"--socket": tmp_path / "run" / "s", "--folder": tmp_path / "own"}
    return [str(part) for pair in named.items() for part in pair]


@pytest.fixture
def start(arguments: list[str], tmp_path: Path) -> Iterator[Callable[[], Process]]:
    made = list[Process]()

    def begin() -> Process:
        made.append(Process(arguments, tmp_path / "run" / "s", tmp_path / "log"))
        return made[-1]

    yield begin
    for one in made:
        if one.process.poll() is None:
            one.end(signal.SIGKILL)


@pytest.mark.federation
def test_a_life(start: Callable[[], Process], arguments: list[str], job: Job, schema: Schema, tmp_path: Path) -> None:
    """Started, asked, killed, started again, asked the same, led to the end, ended; as if nothing had happened."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own").chmod(0o755)  # as it is after somebody else made it
    site, made, serial = start(), prepared(job, schema), 0
    assert site.ready == f"Site 0 is ready: 40 samples, 3 classes, listening at {tmp_path / 'run' / 's'}\n"
    assert stat.S_IMODE(site.path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o700
    assert site.ask({"kind": "hello"}).head == {"number": 0, "samples": 40, "schema": schema.digest}
    assert site.ask({"kind": "start", "job": job_text(job)}).head == {"samples": 40}

    def ask(phase: str, message: Message) -> list[Message]:
        nonlocal site, serial
        serial += 1
        head = {"kind": "ask", "job": job.id, "phase": phase, "serial": serial, "scalars": dict(message.scalars)}
        arrays = {name: vector.numpy() for name, vector in message.vectors.items()}
        reply = site.ask(head, arrays)
        if serial == 3:
            assert site.end(signal.SIGKILL) == -signal.SIGKILL
            site = start()  # its socket is still there
            assert pack(site.ask(head, arrays)) == pack(reply)
            make_noise(site)
        return [Message({n: torch.from_numpy(a).clone() for n, a in reply.arrays.items()}, reply.head["scalars"])]

    made.selector.lead(ask, made.w, lambda _: None)
    assert serial == 6
    assert site.ask({"kind": "finish", "job": job.id}).head == {"kept": 4}
    own = read_site(Path(arguments[1]), "y", schema)
    chosen = select(
        [own.samples], 4, model=made.network, settings=job.settings, seed=job.seed, valid=made.valid, radius=job.radius
    )
    y = [schema.classes[label] for label in own.samples.y[chosen.indices[0]]]
    rows = zip(own.rows[chosen.indices[0]].tolist(), y, chosen.weights[0], strict=True)
    lines = [f"{row},{label},{weight:.9g}" for row, label, weight in rows]
    assert (tmp_path / "own" / "coreset.csv").read_text().splitlines() == ["row,label,weight", *lines]

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "own").iterdir()}
    assert modes.keys() >= {"coreset.csv", "coreset.a-job.csv", "job.json", "state.safetensors"}
    assert set(modes.values()) == {0o600}
    refused(arguments, "Another site is running with the folder")
    refused([*arguments, "--folder", str(tmp_path / "other")], "Another process is listening at")
    with site.connected():  # one that says nothing does not keep it
        time.sleep(0.2)
        assert site.end() == 0
    assert not site.path.exists()
    check_log(site.log.read_text())


def refused(arguments: list[str], complaint: str) -> None:
    command = [*PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1


def check_log(text: str) -> None:
    """Who asked what and how long it took, what happened at the restart, and nothing of the data."""
    assert "'ask' 'refine' 3 " in text
    assert "note: At job `a-job` again, after question 3." in text
    assert text.splitlines()[-1].endswith(" ended")
    assert not {"good", "bad", "ugly", "tcp", "udp"} & set(text.replace("'", " ").split())


def frame_bytes(rng: np.random.Generator, good: bytes) -> bytes:
    """Noise, half a frame, a frame with some bytes changed, a header that promises too much."""
    kind, data = int(rng.integers(5)), bytearray(struct.pack("<Q", len(good)) + good)
    if kind == 0:
        return rng.bytes(int(rng.integers(1, 200)))
    if kind == 1:
        return bytes(data[: int(rng.integers(len(data)))])
    if kind == 2:
        return struct.pack("<Q", 2**62) + rng.bytes(20)
    if kind == 3:
        return struct.pack("<QI", 20, 2**32 - 1) + rng.bytes(16)
    for place in rng.integers(8, len(data), 5):
        data[place] = int(rng.integers(256))
    return bytes(data)


def make_noise(site: Process) -> None:
    """What a broken or hostile process of the same user could send."""
    rng = np.random.default_rng(0)
    good = pack(Frame({"kind": "ask", "job": "nobody", "phase": "refine", "serial": 1}, {"w": np.zeros(3)}))
    for _ in range(200):
        with site.connected() as connection:
            try:
                connection.sendall(frame_bytes(rng, good))
                connection.shutdown(socket.SHUT_WR)
                assert "error" in receive(connection).head
            except (OSError, WireError):  # it may hang up on noise
                pass


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (["--schema", "nowhere.json"], "Cannot read the schema nowhere.json"),
        (["--data", "nowhere.csv"], "nowhere.csv is not there"),
        (["--number", "-1"], "counts from 0"),
        (["--threads", "0"], "at least 1 thread"),
        (["--most", "0"], "Rules need 0 < most <= 1"),
        (["--max-epsilon", "-1"], "a noise and an epsilon >= 0"),
        (["--min-noise", "nan"], "a noise and an epsilon >= 0"),
        (["--low", "1", "--high", "0"], "low < high"),
        (["--low", "0.1"], "and the range is [0.1, 1]"),
        (["--allow", "everything"], "invalid choice: 'everything'"),
        (["--socket", "long/" * 40], "give a short path"),
        (["--socket", __file__], "is a file and no socket"),
    ],
)
def test_what_cannot_be_started(
    arguments: list[str], changes: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from f2cto.cli import main  # noqa: PLC0415

    before = os.umask(0o022)
    assert main(["site", *arguments, *changes]) == 2
    assert os.umask(before) == 0o022
    assert complaint in capsys.readouterr().err


def test_help_needs_no_torch() -> None:
    code = "import sys\nfrom f2cto.cli import main\ntry:\n main(['site', '--help'])\nexcept SystemExit:\n pass\n"
    code += "sys.exit(any(name in sys.modules for name in ('torch', 'polars', 'ray', 'flwr')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert "--allow" in done.stdout
    assert "coreset.csv" in done.stdout
