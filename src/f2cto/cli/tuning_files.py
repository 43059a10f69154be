"""What a search leaves behind: its trials as they come, and a preset with the settings it chose."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from f2cto.config import SettingsError, differences, read_toml
from f2cto.writing import write_whole

if TYPE_CHECKING:
    from f2cto.tuning import Trial

TRIALS, SEARCH = "trials.jsonl", "search.toml"
HEAD = "# Written by `f2cto tune --save`: a preset with settings chosen on validation samples by the commands below.\n"

Entry = tuple[str, Mapping[str, Any]]  # a method and its settings


class TuningFolder:
    """`trials.jsonl` grows by a line a trial; `search.toml` says what they were trials of."""

    def __init__(self, path: Path, search: Mapping[str, Any]) -> None:
        """Make the folder, or go on with one of the same search: scores of another would not be comparable.

        What the method itself had set when the search began, `own`, may have changed since, by a --save above all.
        """
        self.path, file = path, path / SEARCH
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            msg = f"Cannot write to {path}: {error.strerror}."
            raise SettingsError(msg) from error
        former = read_toml(file) if file.exists() else dict(search)
        self.own: Mapping[str, Any] = former.get("own", {})
        if changed := differences({**former, "own": {}}, {**search, "own": {}}):
            msg = (
                f"{path} holds a search with other settings ({', '.join(changed[:3])}); choose another --out, "
                "or remove the folder."
            )
            raise SettingsError(msg)
        if not file.exists():
            write_whole(file, tomli_w.dumps(dict(search)).encode())

    def trials(self) -> list[Trial]:
        """The trials so far, by number; what a killed process left half written is dropped."""
        file = self.path / TRIALS
        lines = file.read_bytes().splitlines() if file.exists() else []
        found = {trial.number: trial for line in lines if (trial := _parsed(line)) is not None}
        if len(found) < len(lines):
            write_whole(file, "".join(map(_line, found.values())).encode())
        return [found[number] for number in sorted(found)]

    def add(self, trial: Trial) -> None:
        """One more trial, on the disk before this returns."""
        with (self.path / TRIALS).open("a", encoding="utf-8") as file:
            file.write(_line(trial))
            file.flush()
            os.fsync(file.fileno())


def check_target(file: Path, preset: str) -> None:
    """Refuse a file that could not be written or read as a preset, or whose content would be lost."""
    if file.suffix != ".toml":
        msg = f"--save writes a preset, whose name ends with .toml; got {file}."
        raise SettingsError(msg)
    if not os.access(file.absolute().parent, os.W_OK):
        msg = f"--save cannot write to {file.absolute().parent}; name a file in a folder of your own."
        raise SettingsError(msg)
    if file.exists() and not (file == Path(preset) and file.read_bytes().startswith(HEAD.encode())):
        msg = f"{file} exists; name another file. Only one that `f2cto tune` saved may be both --preset and --save."
        raise SettingsError(msg)


def save(file: Path, values: Mapping[str, Any], entry: Entry, comment: str) -> None:
    """Write a preset with a method's settings changed; what was tuned before keeps its comment."""
    former = file.read_text(encoding="utf-8") if file.exists() else ""
    write_whole(file, saved_text(values, former, entry, comment).encode())


def saved_text(values: Mapping[str, Any], former: str, entry: Entry, comment: str) -> str:
    """The preset with one entry put in or replaced, under its comment; `former` has the comments of the others."""
    name, own = entry
    lines = {of: line for line, of in re.findall(r"^(# ([\w+-]+): .*\n)", former, re.MULTILINE)}
    lines[name] = f"# {name}: {' '.join(comment.split())}\n"
    rest = {key: value for key, value in values.items() if key not in {"f2cto", "methods"}}
    ours = own if name == "f2cto" else values.get("f2cto")
    methods = {**values.get("methods", {}), **({} if name == "f2cto" else {name: own})}
    parts = [tomli_w.dumps(rest)] if rest else []  # before all tables: keys after one would be its own
    parts += [] if ours is None else [lines.get("f2cto", "") + tomli_w.dumps({"f2cto": ours})]
    parts += [lines.get(key, "") + tomli_w.dumps({"methods": {key: value}}) for key, value in methods.items()]
    return "\n".join([HEAD, *parts])


def own_part(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What a mapping of run settings says about a method."""
    from f2cto.tuning import shares_settings  # noqa: PLC0415

    return dict(values.get("f2cto", {}) if shares_settings(name) else values.get("methods", {}).get(name, {}))


def _line(trial: Trial) -> str:
    return json.dumps(asdict(trial)) + "\n"


def _parsed(line: bytes) -> Trial | None:
    from f2cto.tuning import Trial  # noqa: PLC0415

    try:
        return Trial(**json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return None
