"""What lives where the data are: a program, its shard and its private state, whoever carries the calls."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from f2cto.federation.carrier import Call
from f2cto.federation.engine import Program
from f2cto.federation.snapshots import SnapshotError, flattened, rebuilt
from f2cto.message import Message


class MissedError(RuntimeError):
    """A question that only those can answer who know the ones before it."""


class Worker:
    """Answers calls, each once: a call that comes again, because its answer was lost, gets the same answer."""

    def __init__(self, program: Program[Any, Any], shard: Any) -> None:  # noqa: ANN401  (each method has its own state)
        """Start before the first call."""
        self._program, self._shard = program, shard
        self.state = program.start(shard)
        self.serial, self._last = 0, Message()

    def answer(self, call: Call) -> Message:
        """The reply; the state moves on only if there is one."""
        entries = getattr(self._program, "entries", ())
        if call.serial > self.serial + 1 and call.phase not in entries:
            where = f"; it can join again at {' or '.join(entries)}" if entries else ""
            msg = f"This worker has answered question {self.serial} last and cannot answer {call.serial} now{where}."
            raise MissedError(msg)
        if call.serial != self.serial:
            self.state, self._last = self._program.run(call.phase, self._shard, self.state, call.message)
            self.serial = call.serial
        return self._last

    def snapshot(self) -> dict[str, Tensor]:
        """All it takes to go on from here in another process, as named tensors."""
        answered = {"serial": self.serial, "vectors": self._last.vectors, "scalars": self._last.scalars}
        return flattened({"state": self.state, "answered": answered})

    def restore(self, snapshot: dict[str, Tensor]) -> None:
        """Go on from where a snapshot was taken."""
        self.state = rebuilt(self.state, snapshot, "state")
        if "answered.serial" not in snapshot:
            msg = "The snapshot does not say which question was answered last; start the worker afresh."
            raise SnapshotError(msg)
        self.serial = int(snapshot["answered.serial"])
        self._last = Message(_under(snapshot, "answered.vectors."), _scalars(snapshot, "answered.scalars."))


def _under(snapshot: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in snapshot.items() if name.startswith(prefix)}


def _scalars(snapshot: dict[str, Tensor], prefix: str) -> dict[str, float]:
    return {name: float(value) for name, value in _under(snapshot, prefix).items()}
