"""How a call ends that did not do what it was to do: one sentence, and no trace unless it was asked for."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from pathlib import Path

INTERRUPTED = 130  # as shells have it
EARLIER = 0.05  # seconds that a file system's clock may be behind
TRACE = "give the command again with --debug for the trace, and report it with that"


class Call:
    """What has to be known of a call when it ends early."""

    def __init__(self) -> None:
        """It begins now."""
        self.chosen: object = None  # its options, once they are known
        self._began, self._said = time.time(), Lock()

    def interrupted(self) -> int:
        """Say once that the call was interrupted, and what it leaves."""
        if self._said.acquire(blocking=False):
            print(f"f2cto: Interrupted; {left_in(getattr(self.chosen, 'out', None), self._began)}.", file=sys.stderr)
        return INTERRUPTED

    def cut_short(self) -> NoReturn:
        """End the program from another thread."""
        end_now(self.interrupted())


def left_in(out: Path | None, since: float) -> str:
    """What of a folder was written since then, in words."""
    found = sorted(_written(out, since)) if out else []
    return f"{out} holds what was written so far: {', '.join(found)}" if found else "nothing was written"


def _written(folder: Path, since: float) -> list[str]:
    try:
        with os.scandir(folder) as there:
            new = [e for e in there if e.name[0] != "." and e.stat().st_mtime >= since - EARLIER]
            return [e.name for e in new if e.is_file() or any(os.scandir(e))]
    except OSError:  # it is not there yet
        return []


def end_now(code: int) -> NoReturn:
    """End the program at once: torn down in good order, torch takes seconds."""
    if processes := sys.modules.get("multiprocessing"):
        for child in processes.active_children():
            child.terminate()
    if sys.stdout.isatty():
        sys.stdout.write("\x1b[?25h")  # a progress bar hides the cursor
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def failed(error: BaseException, *, debug: bool) -> int:
    """Say what went wrong, in one sentence on stderr; gives the exit code."""
    if debug:
        import traceback  # noqa: PLC0415

        traceback.print_exception(error)
    sentence, code = explained(error)
    print(f"f2cto: {' '.join(sentence.split())}", file=sys.stderr)
    return code


def explained(error: BaseException) -> tuple[str, int]:
    """An error in a sentence, and the exit code: 2 for what the user can mend, else 1."""
    from f2cto.config import SettingsError  # noqa: PLC0415  (this module is to be there as early as can be)
    from f2cto.data.errors import DataError  # noqa: PLC0415

    said = str(error).strip()
    if isinstance(error, SettingsError | DataError) or (isinstance(error, ImportError) and not error.name):
        return said, 2  # the last: an extra that is not installed
    if _no_memory(error):
        cure = "use fewer or smaller samples or a smaller network, or a machine with more"
        return f"The memory did not suffice ({said or 'no more was said'}); {cure}.", 1
    if isinstance(error, OSError) and error.strerror:
        where = f" at {error.filename}" if error.filename else ""
        return f"The system said `{error.strerror}`{where}; see to that and give the command again.", 1
    if isinstance(error, OSError | ArithmeticError) and said:
        return said, 1
    return f"Unforeseen error, {type(error).__name__}{f': {said}' if said else ''}; {TRACE}.", 1


def _no_memory(error: BaseException) -> bool:
    """Torch says so by a RuntimeError."""
    words = str(error).lower()
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "memory" in words and "alloc" in words
    )
