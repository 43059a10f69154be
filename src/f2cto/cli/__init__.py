"""The command line: it parses, calls and shows; all the work is done elsewhere."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import NoReturn

from f2cto.cli import benching, comparing, data, federating, listing, selecting, site, tuning
from f2cto.config import SettingsError
from f2cto.data.errors import DataError

COMMANDS = (selecting, comparing, tuning, data, listing, benching, site, federating)

EXAMPLES = """examples:
  f2cto select --preset digits --out runs/demo     pick samples, look at runs/demo/report.html
  f2cto compare --preset digits --out runs/table   methods side by side
  f2cto list                                       methods, presets and data sets
  f2cto data fetch mnist                           download a data set
"""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        """Refuse the call; `main` turns this into exit code 2."""
        msg = f"{message[:1].upper()}{message[1:]}; see `{self.prog} --help`."
        raise SettingsError(msg)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. What the user can mend is one sentence on stderr and exit code 2; failures are exit code 1."""
    # Threads that wait leave the core to others. By default they spin, and where cores are shared two threads were seen
    # to take up to 40 times as long as one. It must be said before torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)  # the library's notes, each once, are shown and never fatal
        warnings.showwarning = _show_warning
        try:
            chosen = _parser().parse_args(arguments)
            return int(chosen.run(chosen))
        except (SettingsError, DataError, ImportError) as error:  # the last: an extra that is not installed
            return _fail(str(error), 2)
        except (OSError, ArithmeticError) as error:
            return _fail(str(error), 1)
        except KeyboardInterrupt:
            return _fail("Interrupted; what was computed so far is in the output folder.", 130)


def _parser() -> Parser:
    parser = Parser(
        prog="f2cto",
        description="Pick the few samples worth keeping on every node, so that models trained on them stay robust.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"f2cto {version('f2cto')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_to(commands)
    return parser


def _fail(sentence: str, code: int) -> int:
    print(f"f2cto: {sentence}", file=sys.stderr)
    return code


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"f2cto: note: {message}", file=sys.stderr)
