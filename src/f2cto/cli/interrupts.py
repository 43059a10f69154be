"""Ctrl-C ends the program soon, wherever it strikes.

Python raises `KeyboardInterrupt` wherever the main thread happens to be, and compiled code may discard it: torch
imports numpy as it starts and goes on without it after any error. Struck there, numpy stayed half made, and the run
died much later of "maximum recursion depth exceeded". Long compiled calls delay the exception. So a second thread waits
for the signal too, and ends the program if the exception did not.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread, current_thread, main_thread
from typing import Any

PATIENCE = 1.0  # seconds in which the exception may end the program


@contextmanager
def heeded(at_last: Callable[[], object]) -> Iterator[Event]:
    """Heed Ctrl-C meanwhile. The event says that it came; `at_last` has to end the program if nothing else did."""
    came = Event()
    if current_thread() is not main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield came  # somebody else heeds it, or it is to be ignored
        return

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first one is enough
        came.set()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        with _watched((interrupt, signal.SIG_IGN), at_last):
            yield came
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def _watched(ours: tuple[Any, ...], at_last: Callable[[], object]) -> Iterator[None]:
    """A thread that is woken by the signal itself, whatever the main thread is at."""
    ended, (waiting, waking) = Event(), os.pipe()
    os.set_blocking(waking, False)
    former = signal.set_wakeup_fd(waking, warn_on_full_buffer=False)

    def watch() -> None:
        with os.fdopen(waiting, "rb", buffering=0) as signals:
            while number := signals.read(1):
                # A command that has its own way of ending put its own handler there.
                struck = number[0] == signal.SIGINT and signal.getsignal(signal.SIGINT) in ours
                if struck and not ended.wait(PATIENCE):
                    at_last()

    Thread(target=watch, name="interrupts", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(former)
        os.close(waking)
