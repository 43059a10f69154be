"""`f2cto list`: what there is to choose from, and how the methods differ."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from f2cto.bench.properties import Properties

EXAMPLES = """examples:
  f2cto list                        methods, presets and data sets
  f2cto list --properties           what a short run of every method was seen to do
  f2cto list --properties --json    the same for programs
"""


def add_to(commands: Any) -> None:  # noqa: ANN401  (argparse keeps the type to itself)
    """Add the command to the parser."""
    parser = commands.add_parser(
        "list",
        help="show methods, presets and data sets",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--properties", action="store_true", help="run every method for a moment and show its properties"
    )
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Show what there is."""
    groups = listed()
    rows = measured() if chosen.properties else {}
    if chosen.json:
        for method in groups["methods"]:
            if method["name"] in rows:
                method["properties"] = rows[method["name"]].plain()
        print(json.dumps(groups))
        return 0
    console = Console(markup=False)
    if chosen.properties:
        console.print(property_table(list(rows.values())))
        console.print(LEGEND, highlight=False)
        return 0
    for kind, group in groups.items():
        table = Table(title=kind, title_justify="left", show_header=False, box=None, padding=(0, 2))
        for row in group:
            table.add_row(Text(row["name"], style="bold"), row["about"])
        console.print(table)
    return 0


def listed() -> dict[str, list[dict[str, Any]]]:
    """Methods, presets and data sets, as rows."""
    # Imported here because torch takes seconds, and `f2cto --help` needs none of it.
    from f2cto.data.sources import SOURCES  # noqa: PLC0415
    from f2cto.methods.catalogue import METHODS  # noqa: PLC0415
    from f2cto.presets import preset_names, preset_version  # noqa: PLC0415

    return {
        "methods": [
            {"name": name, "about": method.about, "reference": method.reference, "levels": method.levels}
            for name, method in METHODS.items()
        ],
        "presets": [
            {"name": name, "about": f"settings for `f2cto select --preset`, version {preset_version(name)}"}
            for name in preset_names()
        ],
        "data": [{"name": name, "about": source.about} for name, source in SOURCES.items()],
    }


def measured() -> dict[str, Properties]:
    """What a short run of every method was seen to do, by its name."""
    import torch  # noqa: PLC0415

    from f2cto.bench.properties import properties  # noqa: PLC0415

    torch.set_num_threads(1)  # small matrices are slower on many threads than on one
    return {row.name: row for row in properties()}


LEGEND = """
sets      where the variables ended: in the set and at its border (held), inside, outside (left); none: no such variable
order     the highest derivative of the model that was taken
federated whether master and workers talk more than once
passes    through the model per iteration, in units of all samples: forward, backward, backward through a backward pass
outside   the same, once, before the first iteration and after the last
floats    per iteration and worker, both ways, in units of the model's parameters d; without what comes after the last
          iteration, such as reading the coreset

Names and levels are the catalogue's; all else was measured."""


def property_table(rows: list[Properties]) -> Table:
    """The rows as a table; the methods' names and levels are the catalogue's, all else was measured."""
    table = Table(title="measured on 3 workers with 20 samples each", title_justify="left")
    sets = ["alpha", "q", "w", "p"]
    for name in ["method", "levels", *sets, "order", "federated", "passes", "outside", "floats"]:
        table.add_column(name, justify="right" if name in {"levels", "passes", "outside", "floats"} else "left")
    for row in rows:
        table.add_row(
            Text(row.name, style="bold"),
            str(row.levels),
            *(str(getattr(row.constraints, name)) for name in sets),
            str(row.order),
            "yes" if row.federated else "no",
            *(" ".join(f"{value:.4g}" for value in passes) for passes in (row.passes, row.passes_outside)),
            f"{row.floats:.4g} d",
        )
    return table
