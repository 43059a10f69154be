"""The engine that keeps all workers in this process: in order, deterministic, the default and the test bed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from f2cto.federation.engine import Program, Traffic, WorkerFailedError
from f2cto.message import Message

Shard = TypeVar("Shard")
State = TypeVar("State")


class InProcess(Generic[Shard, State]):
    """Runs a program at every shard, one after the other.

    `states` are the workers' own. A master in this process may look at them at the end because here the user owns all
    the data; nothing that runs during the method does.
    """

    def __init__(self, program: Program[Shard, State], shards: Sequence[Shard]) -> None:
        """Start one worker per shard."""
        self._program, self._shards = program, tuple(shards)
        self.states: list[State] = [program.start(shard) for shard in self._shards]
        self._traffic = Traffic(workers=len(self._shards))

    @property
    def traffic(self) -> Traffic:
        """What was exchanged so far."""
        return self._traffic

    def ask(self, phase: str, message: Message) -> list[Message]:
        """Put a message to every worker; one reply each, in the workers' order."""
        return [self._ask(worker, phase, message) for worker in range(len(self._shards))]

    def _ask(self, worker: int, phase: str, message: Message) -> Message:
        self._traffic.down.add(message)
        try:
            state, reply = self._program.run(phase, self._shards[worker], self.states[worker], message)
        except Exception as error:
            raise WorkerFailedError(worker, phase, error) from error
        self.states[worker] = state
        self._traffic.up.add(reply)
        return reply
