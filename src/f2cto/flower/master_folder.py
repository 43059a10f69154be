"""The master's own folder: what it knows is written at once, so that a killed master goes on where it was.

    job.json               the job: what the sites were told
    settings.toml          all settings of the run
    metrics.jsonl          a row an iteration
    progress.safetensors   what it takes to go on after the last iteration
    replies.safetensors    the answers to the first question of an iteration, until the second is answered
    model.safetensors      the proxy model, once it is trained
    summary.json           how it went, and how many samples each site keeps

Each file appears whole or not at all. There is nothing of anybody's data in them: the master has none.
"""

from __future__ import annotations

import fcntl
import json
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tomli_w
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from f2cto.config import SettingsError, build, plain
from f2cto.federation.engine import Count
from f2cto.federation.faults import Absence
from f2cto.message import Message
from f2cto.site.job import Job, job_from_text, job_text
from f2cto.trilevel.master import Progress, Round
from f2cto.writing import write_whole

JOB, SETTINGS, METRICS, SUMMARY = "job.json", "settings.toml", "metrics.jsonl", "summary.json"
PROGRESS, REPLIES, MODEL = "progress.safetensors", "replies.safetensors", "model.safetensors"
ACCOUNT, HISTORY, SCALARS = "account", "history", "scalars"  # beside the tensors of a file
LOCKED = 30.0  # seconds to wait for a former master to end


@dataclass(frozen=True)
class Account:
    """What the engine has counted so far."""

    serial: int = 0  # of the master's last question
    down: Count = field(default_factory=Count)
    up: Count = field(default_factory=Count)
    absences: tuple[Absence, ...] = ()


@dataclass(frozen=True, eq=False)
class Replies:
    """The answers to a question that is not the last of its iteration."""

    account: Account
    messages: tuple[Message, ...]


class MasterFolder:
    """Writes and reads the files of one job."""

    def __init__(self, path: Path) -> None:
        """Use a folder, made if need be."""
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            msg = f"Cannot write to {path}: {error.strerror}."
            raise SettingsError(msg) from error

    @contextmanager
    def claimed(self, seconds: float = LOCKED) -> Iterator[None]:
        """Keep other masters out; one that was just killed may take a while to be gone."""
        with (self.path / "master.lock").open("w") as file:
            deadline = time.monotonic() + seconds
            while not _locked(file.fileno()):
                if time.monotonic() >= deadline:
                    msg = f"Another master is running with the folder {self.path}; end it, or give another folder."
                    raise SettingsError(msg)
                time.sleep(0.2)
            yield

    def job(self) -> Job | None:
        """The job that was begun here."""
        path = self.path / JOB
        return job_from_text(path.read_text(encoding="utf-8")) if path.exists() else None

    def begin(self, job: Job, settings: Mapping[str, Any]) -> None:
        """Take note of a new job; what was known of a former one goes first, so that the two are never mixed."""
        for name in (JOB, PROGRESS, REPLIES, MODEL, SUMMARY, METRICS):
            (self.path / name).unlink(missing_ok=True)
        head = f"# f2cto {version('f2cto')}, torch {version('torch')}, Python {platform.python_version()}\n\n"
        self._write(SETTINGS, (head + tomli_w.dumps(dict(settings))).encode())
        self._write(JOB, (job_text(job) + "\n").encode())

    def write_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """All iterations so far; a killed master may have written one that it does not remember."""
        self._write(METRICS, "".join(json.dumps(row) + "\n" for row in rows).encode())

    def add_row(self, row: Mapping[str, Any]) -> None:
        """One iteration."""
        with (self.path / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def save_progress(self, progress: Progress, account: Account) -> None:
        """What it takes to go on from here."""
        vectors = {"w": progress.w} if progress.w_hat is None else {"w": progress.w, "w_hat": progress.w_hat}
        beside = {
            ACCOUNT: json.dumps(plain_account(account)),
            HISTORY: json.dumps([asdict(r) for r in progress.history]),
        }
        self._write(PROGRESS, save(vectors, beside))

    def progress(self) -> tuple[Progress, Account] | None:
        """Where a former master got to."""
        if (found := self._tensors(PROGRESS)) is None:
            return None
        vectors, beside = found
        rounds = tuple(Round(**values | {"absent": tuple(values["absent"])}) for values in json.loads(beside[HISTORY]))
        return Progress(vectors["w"], vectors.get("w_hat"), rounds), _account(beside)

    def save_replies(self, replies: Replies) -> None:
        """Keep answers: the sites that gave them have moved on and cannot be asked again."""
        vectors = {f"{i}.{n}": v.contiguous() for i, m in enumerate(replies.messages) for n, v in m.vectors.items()}
        scalars = json.dumps([dict(message.scalars) for message in replies.messages])
        self._write(REPLIES, save(vectors, {ACCOUNT: json.dumps(plain_account(replies.account)), SCALARS: scalars}))

    def replies(self) -> Replies | None:
        """The answers that were kept last."""
        if (found := self._tensors(REPLIES)) is None:
            return None
        vectors, beside = found
        messages = [Message(_of(i, vectors), scalars) for i, scalars in enumerate(json.loads(beside[SCALARS]))]
        return Replies(_account(beside), tuple(messages))

    def write_model(self, parameters: Mapping[str, Tensor]) -> None:
        """The proxy model's parameters."""
        self._write(MODEL, save({name: value.contiguous() for name, value in parameters.items()}))

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """How it went."""
        self._write(SUMMARY, (json.dumps(summary, indent=2) + "\n").encode())

    def summary(self) -> dict[str, Any] | None:
        """How it went, if it came so far."""
        path = self.path / SUMMARY
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None

    def _write(self, name: str, content: bytes) -> None:
        write_whole(self.path / name, content)

    def _tensors(self, name: str) -> tuple[dict[str, Tensor], dict[str, str]] | None:
        path = self.path / name
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                # Copied, so that memory is aligned as it was and results are the same to the last bit.
                vectors = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118  (no mapping)
                return vectors, dict(file.metadata() or {})
        except (SafetensorError, OSError) as error:
            msg = f"{path} is broken ({error}); give another folder to start afresh."
            raise SettingsError(msg) from error


def plain_account(account: Account) -> dict[str, Any]:
    """An account for JSON."""
    return plain(account) | {"absences": [asdict(absence) for absence in account.absences]}


def _of(worker: int, vectors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    own = f"{worker}."
    return {name.removeprefix(own): vector for name, vector in vectors.items() if name.startswith(own)}


def _account(beside: Mapping[str, str]) -> Account:
    values = json.loads(beside[ACCOUNT])
    absences = tuple(build(Absence, absence) for absence in values["absences"])
    return Account(values["serial"], build(Count, values["down"]), build(Count, values["up"]), absences)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
