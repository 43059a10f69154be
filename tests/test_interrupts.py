"""Ctrl-C: exit code 130 soon, one sentence, wherever it strikes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest

from f2cto.cli import interrupts
from f2cto.cli.endings import left_in
from f2cto.cli.interrupts import heeded

SOON = 4.0  # seconds; an interrupt that got lost took 6 to 22
LONG = ["select", "--preset", "digits", "--iterations", "100000", "--no-judge", "--quiet"]


def strike() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)


def lost() -> None:
    """As compiled code does that discards errors."""
    with suppress(KeyboardInterrupt):
        strike()


@pytest.fixture
def at_last(monkeypatch: pytest.MonkeyPatch) -> Event:
    monkeypatch.setattr(interrupts, "PATIENCE", 0.1)
    return Event()


def test_the_exception_ends_it_as_a_rule(at_last: Event) -> None:
    with pytest.raises(KeyboardInterrupt), heeded(at_last.set) as came:
        strike()
    assert came.is_set()
    assert not at_last.wait(0.3)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_exception_that_got_lost_ends_it_too(at_last: Event) -> None:
    with heeded(at_last.set) as came:
        lost()
        assert came.is_set()
        assert at_last.wait(5)


def test_a_long_compiled_call_ends_too() -> None:
    """Python's own handler waits until the call returns."""
    code = (
        "import os, hashlib\nfrom threading import Timer\nfrom f2cto.cli.interrupts import heeded\n"
        "with heeded(lambda: os._exit(130)):\n"
        "  Timer(0.1, os.kill, (os.getpid(), 2)).start()\n  hashlib.pbkdf2_hmac('sha256', b'', b'', 100_000_000)"
    )
    began = time.monotonic()
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 130  # noqa: S603
    assert time.monotonic() - began < SOON


def test_who_has_a_way_of_ending_of_their_own_is_left_alone(at_last: Event) -> None:
    struck = Event()
    with heeded(at_last.set):
        signal.signal(signal.SIGINT, lambda *_: struck.set())
        strike()
        assert struck.wait(5)
        assert not at_last.wait(0.3)


def test_an_interrupt_that_is_to_be_ignored_is_ignored(at_last: Event) -> None:
    """As a shell has it for what runs in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with heeded(at_last.set) as came:
            strike()
        assert not came.is_set()
    finally:
        signal.signal(signal.SIGINT, before)


def interrupted(arguments: list[str], ready: Callable[[], object]) -> tuple[int, str, float]:
    """The exit code, what was said, and how long the end took."""
    command = [sys.executable, "-c", "from f2cto.cli import program; program()", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # noqa: S603
    try:
        end = time.monotonic() + 120
        while not ready() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        return process.returncode, out + err, time.monotonic() - began
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("moment", [0.8, 1.2, 1.8, 3.0])
def test_a_selection_can_be_interrupted_at_any_moment(moment: float, tmp_path: Path) -> None:
    began = time.monotonic()
    code, said, took = interrupted([*LONG, "--out", str(tmp_path / "run")], lambda: time.monotonic() - began > moment)
    assert (code, said.count("\n")) == (130, 1), said
    assert said.startswith("f2cto: Interrupted; ")
    assert took < SOON


WHERE_IT_GETS_LOST = """
import os, sys
class Strike:
    def find_spec(self, name, *_):
        if name == "numpy.linalg":
            sys.meta_path.remove(self)
            os.kill(os.getpid(), 2)
sys.meta_path.insert(0, Strike())
from f2cto.cli import program
program()
"""


def test_an_interrupt_while_torch_imports_numpy_is_not_lost() -> None:
    """Torch discards it; the run went on, and died of endless recursion in what was left of numpy."""
    began = time.monotonic()
    command = [sys.executable, "-c", WHERE_IT_GETS_LOST, *LONG]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)  # noqa: S603
    assert (ended.returncode, ended.stderr) == (130, "f2cto: Interrupted; nothing was written.\n")
    assert time.monotonic() - began < 2 * SOON  # with the start


def test_what_was_written_is_named(tmp_path: Path) -> None:
    out = tmp_path / "run"
    code, said, took = interrupted([*LONG, "--out", str(out)], (out / "metrics.jsonl").exists)
    assert (code, said) == (
        130,
        f"f2cto: Interrupted; {out} holds what was written so far: metrics.jsonl, settings.toml.\n",
    )
    assert took < SOON


def test_no_folder_is_promised_where_there_is_none(tmp_path: Path) -> None:
    before = time.time()
    assert left_in(None, before) == left_in(tmp_path / "none", before) == left_in(tmp_path, before)
    former = tmp_path / "former.csv"
    former.write_text("")
    os.utime(former, (before - 60, before - 60))
    (tmp_path / ".half.csv.x7").write_text("")
    (tmp_path / "coresets").mkdir()
    assert left_in(tmp_path, before) == "nothing was written"
    (tmp_path / "new.csv").write_text("")
    assert left_in(tmp_path, before) == f"{tmp_path} holds what was written so far: new.csv"
