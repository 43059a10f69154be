"""A site's own folder: the job, what it takes to go on with it after the process was killed, and what was selected.

    job.json             the job in hand, and what belongs to it
    state.safetensors    the worker's state and last answer, where the method's state can be kept
    calls/000001.frame   else every question so far: asked again in their order they lead to the same state
    privacy.json         what the jobs so far may have cost, where the site's owner bounds it
    coreset.ID.csv       what each finished job selected; coreset.csv is the last of them

Every file appears whole or not at all. No pickle.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors import SafetensorError
from torch import Tensor

from f2cto.federation.snapshots import file_of, read_file
from f2cto.federation.wire import Frame, WireError, pack, unpack
from f2cto.writing import write_whole

JOB, STATE, CALLS, CORESET, PRIVACY = "job.json", "state.safetensors", "calls", "coreset.csv", "privacy.json"
OWN = (JOB, STATE, PRIVACY, "coreset*.csv", f"{CALLS}/*.frame")  # all that is written again and again

Row = tuple[int, str, float, str]  # row number, label, weight, file or nothing


class StoreError(ValueError):
    """A checkpoint that cannot be gone on with; the text is one sentence for the site's owner."""


@dataclass(frozen=True)
class Charge:
    """What one job may have cost a site's privacy."""

    job: str  # the digest of its text
    epsilon: float
    delta: float


class Store:
    """Writes and reads the files of one site."""

    def __init__(self, folder: Path) -> None:
        """Use a folder that is there; what a killed process had half written there goes."""
        self.folder = folder
        for pattern in OWN:
            place, _, name = pattern.rpartition("/")
            for path in (folder / place).glob(f".{name}.????????"):  # as `write_whole` calls them
                path.unlink(missing_ok=True)
        self._made_calls = (folder / CALLS).is_dir()

    def begin(self, job: Mapping[str, str]) -> None:
        """Take note of a new job; the former one's checkpoint goes first, so that the two are never mixed."""
        for path in (self.folder / JOB, self.folder / STATE, *self._calls()):
            path.unlink(missing_ok=True)
        write_whole(self.folder / JOB, (json.dumps(job, indent=2) + "\n").encode())

    def job(self) -> dict[str, str]:
        """The job in hand; empty where there is none."""
        path = self.folder / JOB
        if not path.exists():
            return {}
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            return {str(key): str(value) for key, value in found.items()}
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            msg = f"{path} cannot be read ({error})."
            raise StoreError(msg) from error

    def save_state(self, state: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
        """Keep a worker's state; `about` says whose it is."""
        write_whole(self.folder / STATE, file_of(state, about))

    def state(self, about: Mapping[str, str]) -> dict[str, Tensor]:
        """The state that was kept; empty where there is none."""
        path = self.folder / STATE
        if not path.exists():
            return {}
        try:
            state, found = read_file(path)
        except (SafetensorError, OSError, ValueError, KeyError, AttributeError) as error:
            msg = f"{path} is broken ({error})."
            raise StoreError(msg) from error
        if found != dict(about):
            msg = f"{path} belongs to another job, other data or another site."
            raise StoreError(msg)
        return state

    def add_call(self, call: Frame, serial: int) -> None:
        """Keep a question."""
        if not self._made_calls:
            (self.folder / CALLS).mkdir(exist_ok=True)
            self._made_calls = True
        write_whole(self.folder / CALLS / f"{serial:09}.frame", pack(call))

    def calls(self) -> Iterator[Frame]:
        """The questions so far, in their order."""
        for path in self._calls():
            try:
                yield unpack(path.read_bytes())
            except (OSError, WireError) as error:
                msg = f"{path} is broken ({error})."
                raise StoreError(msg) from error

    def charges(self) -> list[Charge]:
        """What the jobs so far may have cost."""
        path = self.folder / PRIVACY
        if not path.exists():
            return []
        try:
            rows = json.loads(path.read_text(encoding="utf-8"))["jobs"]
            found = [Charge(str(row["job"]), float(row["epsilon"]), float(row["delta"])) for row in rows]
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            msg = f"{path} cannot be read ({error})."
            raise StoreError(msg) from error
        if not all(0 <= number < math.inf for charge in found for number in (charge.epsilon, charge.delta)):
            msg = f"{path} holds numbers that are no privacy spent."
            raise StoreError(msg)
        return found

    def write_charges(self, charges: Sequence[Charge]) -> None:
        """Keep what the jobs so far may have cost."""
        text = json.dumps({"jobs": [asdict(charge) for charge in charges]}, indent=2) + "\n"
        write_whole(self.folder / PRIVACY, text.encode())

    def set_aside(self) -> Path:
        """Move a checkpoint that cannot be gone on with out of the way; nothing is thrown away."""
        number = 1
        while (there := self.folder / f"aside-{number}").exists():
            number += 1
        there.mkdir()
        for path in (self.folder / STATE, *self._calls()):
            if path.exists():
                path.rename(there / path.name)
        return there

    def write_coreset(self, job: str, rows: Iterable[Row]) -> None:
        """What a job selected, under its own name and as the last one."""
        text, listed = io.StringIO(), list(rows)
        files = any(file for *_, file in listed)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["row", "label", "weight", *(["file"] if files else [])])
        writer.writerows([row, label, f"{w:.9g}", *([file] if files else [])] for row, label, w, file in listed)
        content, own = text.getvalue().encode(), self.folder / f"coreset.{job}.csv"
        if own.exists() and own.read_bytes() != content:
            own.rename(_free(own))  # a job of the same name had another result: both are kept
        write_whole(own, content)
        write_whole(self.folder / CORESET, content)

    def _calls(self) -> list[Path]:
        return sorted((self.folder / CALLS).glob("*.frame"))


def _free(path: Path) -> Path:
    number = 1
    while (there := path.with_suffix(f".{number}{path.suffix}")).exists():
        number += 1
    return there
