"""A run's folder: what is known is written at once, so that a killed run leaves all it had."""

from __future__ import annotations

import csv
import io
import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tomli_w
from safetensors.torch import save
from torch import nn

from f2cto.config import SettingsError
from f2cto.records import Kept, RunRecord
from f2cto.writing import write_whole

FILES = ("settings.toml", "metrics.jsonl", "coreset.csv", "model.safetensors", "summary.json", "report.html")
ABSENCES = "absences.jsonl"  # only where somebody was missing


class RunFolder:
    """Writes the files of one run. Each appears whole or not at all; `metrics.jsonl` grows by a line an iteration."""

    def __init__(self, path: Path, *, force: bool = False) -> None:
        """Claim an empty or new folder; with `force`, also one that holds a former run, whose files are removed."""
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            if not force and any(path.iterdir()):
                msg = f"The folder {path} is not empty; choose another --out, or overwrite its run with --force."
                raise SettingsError(msg)
            for name in (*FILES, ABSENCES):
                (path / name).unlink(missing_ok=True)
        except OSError as error:
            msg = f"Cannot write to {path}: {error.strerror}."
            raise SettingsError(msg) from error

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        """All settings, readable as a preset again."""
        head = (
            f"# f2cto {version('f2cto')}, torch {version('torch')}, Python {platform.python_version()}\n"
            f"# Repeat with: f2cto select --preset {self.path / 'settings.toml'} --out another/folder\n\n"
        )
        self._write("settings.toml", (head + tomli_w.dumps(dict(settings))).encode())

    def add_row(self, row: Mapping[str, Any]) -> None:
        """One iteration."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def write_coreset(self, kept: Sequence[Kept]) -> None:
        """The samples to keep."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        files = ["file"] if any(k.file for k in kept) else []
        writer.writerow(["worker", "index", "row", "label", "weight", *files])
        writer.writerows(
            [k.worker, k.index, k.row, k.label, f"{k.weight:.9g}", *([k.file] if files else [])] for k in kept
        )
        self._write("coreset.csv", text.getvalue().encode())

    def write_absences(self, absences: Sequence[Mapping[str, Any]]) -> None:
        """Who was missing when and why, a line each."""
        self._write(ABSENCES, "".join(json.dumps(absence) + "\n" for absence in absences).encode())

    def write_model(self, model: nn.Module) -> None:
        """The proxy model's parameters."""
        self._write("model.safetensors", save({name: value.contiguous() for name, value in model.state_dict().items()}))

    def write_report(self, record: RunRecord, page: str) -> None:
        """The summary and the page to look at."""
        self._write("summary.json", (json.dumps(record.summary(), indent=2) + "\n").encode())
        self._write("report.html", page.encode())

    def _write(self, name: str, content: bytes) -> None:
        write_whole(self.path / name, content)
