"""`f2cto federation`: set one up, agree on a schema, run a selection over it."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from f2cto.cli import federation_runs
from f2cto.config import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from f2cto.flower.layout import File
    from f2cto.site.schema import Schema

EXAMPLES = """examples:
  f2cto federation schema sample.parquet --label y --out schema.json
  f2cto federation init hospitals --sites 3 --host master.example.org --schema schema.json
  f2cto federation run hospitals/master --settings hospitals/master/settings.toml --out runs/first

docs/federation.md leads through all of it, first on one machine. At each site runs `f2cto site`.
"""


def add_to(commands: Any) -> None:  # noqa: ANN401  (argparse keeps the type to itself)
    """Add the command and its parts to the parser."""
    parser = commands.add_parser(
        "federation",
        help="set up and run a federation of sites that keep their data",
        description="Sites that keep their data select together: set up, agree on a schema, run.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parts = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_init(parts)
    _add_schema(parts)
    federation_runs.add_to(parts)
    gate = parts.add_parser("gate", help="let nodes of other machines in, and nothing else")
    gate.add_argument("folder", type=Path, help="the master's folder")
    gate.add_argument("--listen", default="0.0.0.0", help="the address to listen at (default: all)")  # noqa: S104
    gate.add_argument("--port", type=int, required=True, help="the port that sites come to")
    gate.add_argument("--to", type=int, required=True, help="the port of the SuperLink on this machine")
    gate.set_defaults(run=open_gate)


def _add_init(parts: Any) -> None:  # noqa: ANN401
    init = parts.add_parser("init", help="write keys, scripts and settings for a new federation")
    init.add_argument("folder", type=Path, help="a new or empty folder")
    init.add_argument("--sites", type=int, required=True, help="how many take part")
    init.add_argument(
        "--host",
        action="append",
        default=[],
        help="the master's name or address as sites call it; may be given again (default: this machine alone)",
    )
    init.add_argument("--port", type=int, default=9092, help="the port that sites come to (default: 9092)")
    init.add_argument("--schema", type=Path, help="a schema.json that all agreed on; else it is put there later")
    init.add_argument("--insecure", action="store_true", help="neither TLS nor keys: for trials on one machine")
    init.set_defaults(run=init_folder)


def _add_schema(parts: Any) -> None:  # noqa: ANN401
    schema = parts.add_parser("schema", help="write down what all sites agree on: classes, columns and their ranges")
    schema.add_argument("file", nargs="?", type=Path, help="a table, an .npz file or images that may be looked at")
    schema.add_argument("--label", help="the column with the classes")
    schema.add_argument("--fixed", default="", metavar="A,B", help="columns that no attacker can change")
    schema.add_argument("--shape", metavar="1,28,28", help="of a sample, instead of a file: for arrays in their range")
    schema.add_argument("--classes", metavar="10|A,B,C", help="how many classes there are or their names, with --shape")
    schema.add_argument("--out", type=Path, required=True, help="the file to write: schema.json")
    schema.set_defaults(run=write_schema)


def init_folder(chosen: argparse.Namespace) -> int:
    """Write a federation's files, each with its own rights."""
    from f2cto.flower.keys import certificates, site_keys  # noqa: PLC0415
    from f2cto.flower.layout import Keys, Plan, layout  # noqa: PLC0415

    schema = ""
    if chosen.schema:
        from f2cto.site.schema import read_schema, schema_text  # noqa: PLC0415  (torch)

        schema = schema_text(read_schema(chosen.schema))
    programs = str(Path(sys.executable).parent)
    plan = Plan(chosen.sites, programs, tuple(chosen.host), chosen.port, chosen.insecure, schema)
    if plan.insecure:
        keys = Keys(None, ())
    else:
        now = dt.datetime.now(dt.UTC)
        keys = Keys(certificates(plan.names, now), tuple(site_keys() for _ in range(plan.sites)))
    write_files(chosen.folder, layout(plan, keys))
    print(
        f"A federation of {plan.sites} sites is in {chosen.folder}; {chosen.folder / 'README.md'} says what to do next."
    )
    return 0


def write_files(folder: Path, found: Mapping[str, File]) -> None:
    """Write all files into a new or empty folder; nobody but the owner sees a secret at any moment."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            msg = f"The folder {folder} is not empty; give a new one, keys are never overwritten."
            raise SettingsError(msg)
        for name, file in found.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as out:
                out.write(file.content)
            path.chmod(file.mode)
    except OSError as error:
        msg = f"Cannot write to {folder}: {error.strerror}."
        raise SettingsError(msg) from error


def write_schema(chosen: argparse.Namespace) -> int:
    """Write schema.json."""
    from f2cto.site.schema import schema_text  # noqa: PLC0415  (torch)
    from f2cto.writing import write_whole  # noqa: PLC0415

    schema, notes = _schema(chosen)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(chosen.out, schema_text(schema).encode())
    what = f"{len(schema.columns)} columns" if schema.columns else f"samples of shape {list(schema.shape)}"
    for note in notes:
        print(f"note: {note}")
    print(f"{chosen.out}: {len(schema.classes)} classes, {what}. Read it through before you hand it out.")
    return 0


def _schema(chosen: argparse.Namespace) -> tuple[Schema, tuple[str, ...]]:
    """The schema, and what is to be said of the file it was made from."""
    from f2cto.site.schema import Schema, suggested  # noqa: PLC0415

    if bool(chosen.file) == bool(chosen.shape) or bool(chosen.shape) != bool(chosen.classes):
        msg = "Give a file to look at, or --shape and --classes; see `f2cto federation schema --help`."
        raise SettingsError(msg)
    if chosen.file:
        return suggested(chosen.file, chosen.label, [name.strip() for name in chosen.fixed.split(",") if name.strip()])
    names = chosen.classes.split(",")
    if len(names) == 1 and names[0].isdecimal():
        names = [str(number) for number in range(int(names[0]))]
    try:
        return Schema(tuple(name.strip() for name in names), shape=tuple(map(int, chosen.shape.split(",")))), ()
    except ValueError as error:
        msg = f"A shape is whole numbers, such as 1,28,28: {error}"
        raise SettingsError(msg) from error


def open_gate(chosen: argparse.Namespace) -> int:
    """Stand at the gate until told to end."""
    import uvicorn  # noqa: PLC0415

    from f2cto.flower.commands import master_folder  # noqa: PLC0415
    from f2cto.flower.gate import gate  # noqa: PLC0415

    keys = master_folder(chosen.folder) / "keys"
    print(f"The gate is at {chosen.listen}, port {chosen.port}: nodes come in here, nobody else.", flush=True)
    uvicorn.run(
        gate(chosen.to, keys / "ca.crt"),
        host=chosen.listen,
        port=chosen.port,
        ssl_certfile=str(keys / "server.crt"),
        ssl_keyfile=str(keys / "server.key"),
        log_level="warning",
        server_header=False,
    )
    return 0
