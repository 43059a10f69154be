"""What a search leaves behind: its trials as they come, and the settings it chose beside the preset."""

from __future__ import annotations

import json
import os
import re
import tomllib
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
HEAD = "# Chosen on validation samples by the commands below, and read on top of the preset; written by `f2cto tune`.\n"


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


def save(file: Path, name: str, entry: Mapping[str, Any], comment: str) -> None:
    """Write a method's settings into a preset's file of tuned ones."""
    former = file.read_text(encoding="utf-8") if file.exists() else ""
    write_whole(file, tuned_text(former, name, entry, comment).encode())


def tuned_text(former: str, name: str, entry: Mapping[str, Any], comment: str) -> str:
    """The file with one entry put in or replaced; the others stay, each with its comment."""
    values = tomllib.loads(former)
    comments = dict(re.findall(r"^# ([\w+-]+): (.*)$", former, re.MULTILINE))
    comments[name] = " ".join(comment.split())
    methods, ours = values.pop("methods", {}), values.pop("f2cto", None)
    if name == "f2cto":
        ours = entry
    else:
        methods[name] = entry
    parts = [] if ours is None else [_part(comments.get("f2cto"), "f2cto", {"f2cto": ours})]
    parts += [_part(comments.get(key), key, {"methods": {key: own}}) for key, own in methods.items()]
    rest = [tomli_w.dumps(values)] if values else []  # before all tables: keys after one would be its own
    return "\n".join([HEAD, *rest, *parts])


def own_part(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What a mapping of run settings says about a method."""
    from f2cto.tuning import shares_settings  # noqa: PLC0415

    return dict(values.get("f2cto", {}) if shares_settings(name) else values.get("methods", {}).get(name, {}))


def _part(comment: str | None, name: str, values: Mapping[str, Any]) -> str:
    return (f"# {name}: {comment}\n" if comment else "") + tomli_w.dumps(values)


def _line(trial: Trial) -> str:
    return json.dumps(asdict(trial)) + "\n"


def _parsed(line: bytes) -> Trial | None:
    from f2cto.tuning import Trial  # noqa: PLC0415

    try:
        return Trial(**json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return None
