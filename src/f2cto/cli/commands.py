"""All commands and what they have in common."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, NoReturn

from f2cto.cli import benching, comparing, data, federating, listing, selecting, site, tuning
from f2cto.config import SettingsError

COMMANDS = (selecting, comparing, tuning, data, listing, benching, site, federating)

EXAMPLES = """examples:
  f2cto select --preset digits --out runs/demo     pick samples, look at runs/demo/report.html
  f2cto compare --preset digits --out runs/table   methods side by side
  f2cto list                                       methods, presets and data sets
  f2cto data fetch mnist                           download a data set
"""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence, and which knows `--debug` at every level."""

    def __init__(self, *given: Any, **named: Any) -> None:  # noqa: ANN401  (argparse's own)
        """A command, or a verb of one."""
        super().__init__(*given, **named)
        # Without a default: that of a verb would overrule what was said before it.
        self.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the trace of what goes wrong"
        )

    def error(self, message: str) -> NoReturn:
        """Refuse the call; `main` turns this into exit code 2."""
        msg = f"{message[:1].upper()}{message[1:]}; see `{self.prog} --help`."
        raise SettingsError(msg)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What was asked for."""
    return _parser().parse_args(arguments, argparse.Namespace(debug=False))


def run(chosen: argparse.Namespace) -> int:
    """Do it; the library's notes are shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)  # each once, and never fatal
        warnings.showwarning = _show_warning
        return int(chosen.run(chosen))


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


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"f2cto: note: {message}", file=sys.stderr)
