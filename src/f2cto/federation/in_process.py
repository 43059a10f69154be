"""The carrier that keeps all workers in this process: in order, deterministic, the default and the test bed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from f2cto.federation.carrier import Answers, Call
from f2cto.federation.engine import Program, Traffic
from f2cto.federation.exchange import Exchange
from f2cto.federation.faults import Faults
from f2cto.message import Message

Shard = TypeVar("Shard")
State = TypeVar("State")


class Workers(Generic[Shard, State]):
    """A carrier: runs a program at every shard, one after the other."""

    def __init__(self, program: Program[Shard, State], shards: Sequence[Shard]) -> None:
        """Start one worker per shard."""
        self._program, self._shards = program, tuple(shards)
        self.states: list[State] = [program.start(shard) for shard in self._shards]
        self._last: dict[int, tuple[int, Message]] = {}  # each worker's last answer, and to which question

    @property
    def workers(self) -> int:
        """How many there are."""
        return len(self._shards)

    def carry(self, call: Call, to: Sequence[int]) -> Answers:
        """Put a question to some workers."""
        return {worker: self._answer(worker, call) for worker in to}

    def _answer(self, worker: int, call: Call) -> Message | Exception:
        serial, last = self._last.get(worker, (0, Message()))
        if serial == call.serial:
            return last
        try:
            state, reply = self._program.run(call.phase, self._shards[worker], self.states[worker], call.message)
        except Exception as error:  # noqa: BLE001  (whatever it is, the policy decides what becomes of it)
            return error
        self.states[worker], self._last[worker] = state, (call.serial, reply)
        return reply


class InProcess(Generic[Shard, State]):
    """An engine over workers in this process.

    It holds its workers and the exchange with them, and neither holds it: with the engine the data are let go.
    `states` are the workers' own. A master in this process may look at them at the end because here the user owns all
    the data; nothing that runs during the method does.
    """

    def __init__(self, program: Program[Shard, State], shards: Sequence[Shard], faults: Faults | None = None) -> None:
        """Start one worker per shard."""
        self._workers = Workers(program, shards)
        self.exchange = Exchange(self._workers, faults or Faults(), getattr(program, "entries", ()))

    @property
    def states(self) -> list[State]:
        """What each worker holds."""
        return self._workers.states

    @property
    def traffic(self) -> Traffic:
        """What was exchanged so far."""
        return self.exchange.traffic

    def ask(self, phase: str, message: Message) -> list[Message]:
        """Put a message to every worker; one reply each, in the workers' order."""
        return self.exchange.ask(phase, message)
