"""`f2cto list`: what there is to choose from."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console
from rich.table import Table


def add_to(commands: Any) -> None:  # noqa: ANN401  (argparse keeps the type to itself)
    """Add the command to the parser."""
    parser = commands.add_parser("list", help="show methods, presets and data sets")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Show what there is."""
    # Imported here because torch takes seconds, and `f2cto --help` needs none of it.
    from f2cto.data.sources import SOURCES  # noqa: PLC0415
    from f2cto.presets import preset_names  # noqa: PLC0415
    from f2cto.selectors.catalogue import METHODS  # noqa: PLC0415

    groups = {
        "methods": {name: method.about for name, method in METHODS.items()},
        "presets": dict.fromkeys(preset_names(), "settings for `f2cto select --preset`"),
        "data": {name: source.about for name, source in SOURCES.items()},
    }
    if chosen.json:
        rows = {
            kind: [{"name": name, "about": about} for name, about in group.items()] for kind, group in groups.items()
        }
        print(json.dumps(rows))
        return 0
    console = Console()
    for kind, group in groups.items():
        table = Table(title=kind, title_justify="left", show_header=False, box=None, padding=(0, 2))
        for name, about in group.items():
            table.add_row(f"[bold]{name}[/bold]", about)
        console.print(table)
    return 0
