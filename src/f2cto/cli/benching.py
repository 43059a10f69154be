"""`f2cto bench`: how fast the solver is on this machine, as ratios, and how fast data sets load."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from f2cto.config import SettingsError

EXAMPLES = """examples:
  f2cto bench iteration               an iteration beside the bare passes it needs
  f2cto bench scale --json            time over workers and samples; one JSON object at the end
  f2cto bench iteration --out results/speed
  F2CTO_DATA=data f2cto bench load    seconds and memory of loading each data set that is there
  f2cto bench engines --repeats 3     message rounds on Ray beside iterations; 200 workers if unsw-nb15 is there
"""


def add_to(commands: Any) -> None:  # noqa: ANN401  (argparse keeps the type to itself)
    """Add the command to the parser."""
    parser = commands.add_parser(
        "bench",
        help="measure speed",
        description="Measure the solver's speed, each figure a ratio taken in one run, or how fast data sets load.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "name",
        choices=["iteration", "hypergradient", "scale", "memory", "hardware", "pays", "load", "engines"],
        help="what to measure",
    )
    parser.add_argument("--repeats", type=int, default=5, help="turns to take the median of (default: 5)")
    parser.add_argument("--threads", type=int, default=1, help="threads torch may use (default: 1)")
    parser.add_argument("--out", type=Path, help="folder to write NAME.json to")
    parser.add_argument("--json", action="store_true", help="end with one JSON object on standard output")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Measure, show and write."""
    # Imported here because torch takes seconds, and `f2cto --help` needs none of it.
    import torch  # noqa: PLC0415

    from f2cto.bench import BENCHMARKS  # noqa: PLC0415
    from f2cto.bench.plots import scale_picture  # noqa: PLC0415
    from f2cto.records import provenance  # noqa: PLC0415

    if chosen.repeats < 1 or chosen.threads < 1:
        msg = f"--repeats and --threads must be at least 1; got {chosen.repeats} and {chosen.threads}."
        raise SettingsError(msg)
    torch.set_num_threads(chosen.threads)
    results = BENCHMARKS[chosen.name](chosen.repeats, print)
    if chosen.out:
        chosen.out.mkdir(parents=True, exist_ok=True)
        head = provenance(["f2cto", *sys.argv[1:]]) | {"repeats": chosen.repeats, "threads": chosen.threads}
        (chosen.out / f"{chosen.name}.json").write_text(json.dumps(head | {"results": results}, indent=1) + "\n")
        if chosen.name == "scale":
            (chosen.out / "scale.svg").write_bytes(scale_picture(results))
    if chosen.json:
        print(json.dumps(results))
    return 0
