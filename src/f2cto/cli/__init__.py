"""The command line: it parses, calls and shows; all the work is done elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import NoReturn

from f2cto.cli.endings import INTERRUPTED, Call, end_now, failed
from f2cto.cli.interrupts import heeded


def program() -> NoReturn:
    """The installed command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no … must not end a run
    code = main()
    if code == INTERRUPTED:
        end_now(code)
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. What the user can mend is one sentence on stderr and exit code 2; failures are exit code 1."""
    # Threads that wait leave the core to others. By default they spin, and where cores are shared two threads were seen
    # to take up to 40 times as long as one. It must be said before torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    call = Call()
    with heeded(call.cut_short) as came:
        try:
            code = _run(arguments, call, came.is_set)
        except KeyboardInterrupt:
            came.set()
    return call.interrupted() if came.is_set() else code


def _run(arguments: Sequence[str] | None, call: Call, came: Callable[[], bool]) -> int:
    """The command's own exit code, or that of the error it ended in."""
    debug = False
    try:
        # Imported here because it takes a while, in which an interrupt is heeded already.
        from f2cto.cli import commands  # noqa: PLC0415

        call.chosen = chosen = commands.parsed(arguments)
        debug = chosen.debug
        return commands.run(chosen)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001  (whatever it is, users get a sentence)
        return INTERRUPTED if came() else failed(error, debug=debug)
