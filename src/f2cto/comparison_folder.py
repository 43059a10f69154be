"""A comparison's folder: every finished part is written at once, and a comparison that was cut off goes on from it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tomli_w

from f2cto.config import SettingsError, differences, merged, read_toml
from f2cto.records import Row
from f2cto.rehearsal import Picked
from f2cto.writing import write_whole

RECORDS, SETTINGS = "records.jsonl", "settings.toml"


class ComparisonFolder:
    """`records.jsonl` grows by the rows of a contender and seed at a time; `coresets/` holds what was selected."""

    def __init__(self, path: Path) -> None:
        """Make the folder, or go on with what it holds."""
        self.path = path
        try:
            (path / "coresets").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            msg = f"Cannot write to {path}: {error.strerror}."
            raise SettingsError(msg) from error

    def claim(self, settings: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> None:
        """Write the settings; a folder made with other settings is refused, since rows would not be comparable.

        Settings of a method that has no rows yet may have changed: it may have been tuned meanwhile. Settings that did
        not exist yet when the folder was made count as `defaults` has them: as what was done before they existed.
        """
        file = self.path / SETTINGS
        differing = differences(merged(defaults or {}, read_toml(file)), settings) if file.exists() else []
        if changed := self._of_rows(differing):
            msg = (
                f"{self.path} was made with other settings ({', '.join(changed[:3])}); choose another --out, "
                "or remove the folder."
            )
            raise SettingsError(msg)
        for name in {key.split(".")[1] for key in differing}:
            self._forget(name)
        write_whole(file, tomli_w.dumps(dict(settings)).encode())

    def _forget(self, name: str) -> None:
        """Remove a method's coresets, which were selected with settings that no longer hold."""
        for pattern in (f"{name}-seed*.json", f"{name}_*.json"):
            for file in (self.path / "coresets").glob(pattern):
                file.unlink()

    def _of_rows(self, keys: Sequence[str]) -> list[str]:
        """Those settings that rows here depend on."""
        there = {row.method.partition(":")[0] for row in self._parsed()}
        return [key for key in keys if not key.startswith("methods.") or key.split(".")[1] in there]

    def _parsed(self) -> list[Row]:
        file = self.path / RECORDS
        lines = file.read_bytes().splitlines() if file.exists() else []
        return [row for line in lines if (row := _parsed(line)) is not None]

    def rows(self, expected: int) -> list[Row]:
        """The rows of all parts that are complete, with so many rows each; what a killed process left is dropped."""
        # Where two processes computed the same part, the last one counts.
        found = list({(row.method, row.seed, row.task, row.attack): row for row in self._parsed()}.values())
        counts = Counter((row.method, row.seed) for row in found)
        whole = [row for row in found if counts[row.method, row.seed] == expected]
        file, text = self.path / RECORDS, "".join(map(_line, whole))
        if file.exists() and file.read_bytes() != text.encode():
            write_whole(file, text.encode())
        return whole

    def add(self, rows: Sequence[Row]) -> None:
        """One more part, on the disk before this returns."""
        with (self.path / RECORDS).open("a", encoding="utf-8") as file:
            file.write("".join(map(_line, rows)))
            file.flush()
            os.fsync(file.fileno())

    def write(self, name: str, text: str) -> None:
        """A file made from the rows."""
        write_whole(self.path / name, text.encode())

    def find(self, label: str, seed: int, task: int) -> Picked | None:
        """Coresets that were selected before."""
        file = self._coreset(label, seed, task)
        if not file.exists():
            return None
        try:
            return Picked(**json.loads(file.read_text(encoding="utf-8")))
        except (ValueError, TypeError, RecursionError):
            return None  # written by another version: select again

    def keep(self, label: str, seed: int, task: int, picked: Picked) -> None:
        """Coresets, so that their selection need not be repeated."""
        write_whole(self._coreset(label, seed, task), json.dumps(asdict(picked)).encode())

    def _coreset(self, label: str, seed: int, task: int) -> Path:
        safe = "".join(c if c.isalnum() or c in "+-=." else "_" for c in label)
        return self.path / "coresets" / f"{safe}-seed{seed}-task{task}.json"


def _line(row: Row) -> str:
    return json.dumps(asdict(row)) + "\n"


def _parsed(line: bytes) -> Row | None:
    try:
        return Row(**json.loads(line))
    except TypeError as error:
        msg = f"{RECORDS} has rows of another version of f2cto ({error}); choose another --out."
        raise SettingsError(msg) from error
    except (ValueError, RecursionError):  # half a line of a killed process, or what a disk made of one
        return None
