"""What Flower starts at the master: one selection, as the keys of its run configuration say.

settings  a TOML file, as `f2cto select --preset` takes it: `workers` is the number of sites
schema    schema.json, the same as at the sites
out       the master's folder; started again on the same one, the job goes on
seconds   that a message may take, there and back and the work in between
poll      seconds between two looks for answers

For simulations: `preset` instead of settings and schema, and `data-dir` where its data are.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from f2cto.config import SettingsError, build, read_toml
from f2cto.data.errors import DataError
from f2cto.flower.master import Orders, run
from f2cto.flower.simulation import simulated
from f2cto.run_settings import RunSettings
from f2cto.site.schema import read_schema
from f2cto.trilevel.master import DivergedError

app = ServerApp()


class FederationError(RuntimeError):
    """Why a run ended; the text is for people. Flower logs it and takes the run for failed."""


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Lead one selection."""
    try:
        summary = run(orders(context.run_config), grid, tell)
    except (SettingsError, DataError, ConnectionError, DivergedError, ImportError, OSError) as error:
        tell(f"error: {error}")
        raise FederationError(str(error)) from None  # Flower shows the whole chain, and the sentence says it all
    kept = ", ".join(f"site {i} keeps {site['kept']}" for i, site in summary["sites"].items())
    tell(f"done: {kept}")


def orders(config: Mapping[str, Any]) -> Orders:
    """What the run configuration asks for."""
    if not config.get("out"):
        msg = "The run configuration has no `out`, the master's folder; give --run-config 'out=\"/path\" …'."
        raise SettingsError(msg)
    others = Path(config["out"]), float(config.get("seconds", 600.0)), float(config.get("poll", 0.2))
    if config.get("preset"):
        task = simulated(str(config["preset"]), str(config.get("data-dir", "")))
        return Orders(task.settings, task.schema, *others)
    for key in ("settings", "schema"):
        if not config.get(key):
            msg = f"The run configuration has no `{key}`; give --run-config '{key}=\"/path/of/a/file\" …'."
            raise SettingsError(msg)
    return Orders(build(RunSettings, read_toml(Path(config["settings"]))), read_schema(Path(config["schema"])), *others)


def tell(line: str) -> None:
    """A line for `flwr log`."""
    print(f"f2cto: {line}", flush=True)
