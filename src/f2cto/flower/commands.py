"""What the master's own machine tells Flower, and what Flower says: one command each, with JSON for an answer."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from f2cto.config import SettingsError

CONNECTION = "here"
SECONDS = 120.0  # for one command; each takes a few, and more where the machine is busy


class FlowerError(ConnectionError):
    """Flower did not do what it was told; the text says what it said."""


@dataclass(frozen=True)
class Status:
    """How a run stands."""

    run: str
    state: str  # running, finished:completed, finished:failed, …
    details: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.state.startswith("finished")

    @property
    def completed(self) -> bool:
        """Whether it ended as it should."""
        return self.state == "finished:completed"


@dataclass(frozen=True)
class Link:
    """The SuperLink of a federation, as its master's folder knows it."""

    folder: Path

    def begin(self, config: Mapping[str, str | float], app: str = "app") -> str:
        """Start a run of the app in a folder beside the scripts; its number comes back."""
        # A text of JSON is one of TOML as well.
        values = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        found = self.ask("run", app, CONNECTION, "--run-config", values)
        return str(found["run-id"])

    def status(self, run: str) -> Status | None:
        """How a run stands; None where the SuperLink has never heard of it."""
        try:
            runs = self.ask("ls", CONNECTION, "--run-id", run).get("runs", [])
        except FlowerError as error:
            if "not found" in str(error).lower():
                return None
            raise
        return Status(run, runs[0]["status"], runs[0].get("status-details") or "") if runs else None

    def under_way(self) -> set[str]:
        """The runs that have not ended."""
        runs = self.ask("ls", CONNECTION).get("runs", [])
        return {str(run["run-id"]) for run in runs if not Status("", run["status"]).ended}

    def log(self, run: str) -> str:
        """What the run's master said so far."""
        return self._called("log", run, CONNECTION, "--show").stdout

    def ask(self, *arguments: str) -> dict[str, Any]:
        """A command's answer."""
        done = self._called(*arguments, "--format", "json")
        found = _json(done.stdout)
        if done.returncode or not found.get("success", True):
            said = str(found.get("error-message") or done.stderr or done.stdout).strip()
            msg = f"`flwr {arguments[0]}` failed: {said or f'exit code {done.returncode}'}"
            raise FlowerError(msg)
        return found

    def _called(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.folder / "flwr.sh"), *arguments]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)  # noqa: S603
        except subprocess.TimeoutExpired as error:
            msg = f"`flwr {arguments[0]}` did not end within {SECONDS:g} s; is the SuperLink running?"
            raise FlowerError(msg) from error


def master_folder(path: Path) -> Path:
    """The master's part of a federation: the folder itself, or `master` in it."""
    for folder in (path, path / "master"):
        if (folder / "flwr.sh").is_file():
            return folder.resolve()
    msg = f"{path} is no federation's folder; make one with `f2cto federation init {path} --sites 3`."
    raise SettingsError(msg)


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
