"""Simulated sites for `flwr run` on one machine: each node holds a share of a preset's data.

Everything else is as in a real federation: the same master, the same messages, the same rules of who may see what; each
node writes its own coreset.csv. Nodes that share a process share nothing but the data that were read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from f2cto.config import build
from f2cto.data.folder import data_folder
from f2cto.federation.wire import Frame, WireError
from f2cto.flower.context_store import ContextStore
from f2cto.flower.packing import ACTION, content_of, frame_of
from f2cto.preparation import prepare
from f2cto.presets import read_preset
from f2cto.run_settings import RunSettings
from f2cto.site.host import Site
from f2cto.site.reading import SiteData
from f2cto.site.rules import Allowance, Rules
from f2cto.site.schema import Schema

ALL_ALLOWED = Rules(frozenset(Allowance), most=1.0, count=2**53)  # the data are the researcher's own

app = ClientApp()


@dataclass(frozen=True, eq=False)
class Simulated:
    """What a preset makes of a federation."""

    settings: RunSettings
    schema: Schema
    sites: tuple[SiteData, ...]


@lru_cache(maxsize=2)
def simulated(preset: str, data: str) -> Simulated:
    """The sites of a preset, or of a settings file, with the named data sets in the folder `data`; read once."""
    settings = build(RunSettings, read_preset(preset))
    made = prepare(settings, data_folder(Path(data) if data else None))
    schema = Schema(made.classes, shape=tuple(made.shards[0].x.shape[1:]))
    sites = tuple(SiteData(shard, rows, made.files) for shard, rows in zip(made.shards, made.rows, strict=True))
    # What is fixed is known from the columns; the schema of arrays has none.
    settings = replace(settings, workers=len(sites), data=replace(settings.data, range=made.valid))
    return Simulated(settings, schema, sites)


@app.query(ACTION.partition(".")[2])
def answer(message: Message, context: Context) -> Message:
    """A site's answer; its state is in the node's context between messages."""
    try:
        reply = site_of(context).answer(frame_of(message.content))
    except (WireError, LookupError) as error:
        reply = Frame({"error": str(error)})
    return Message(content_of(reply), reply_to=message)


def site_of(context: Context) -> Site:
    """The site that a node simulates, where it was after its last message."""
    config, number = context.run_config, int(context.node_config["partition-id"])
    task = simulated(str(config["preset"]), str(config.get("data-dir", "")))
    if number >= len(task.sites):
        msg = f"The preset has {len(task.sites)} sites, and this is node {number}."
        raise LookupError(msg)
    store = ContextStore(context.state, Path(str(config["out"])) / f"site-{number}")
    rules = replace(ALL_ALLOWED, range=task.settings.data.range)
    return Site(task.sites[number], task.schema, number, store, rules)
