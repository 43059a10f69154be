"""An engine that lets all workers in this process work as one, where their program says that nothing changes by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar, runtime_checkable

from f2cto.federation.engine import Program, Traffic
from f2cto.federation.faults import Faults
from f2cto.federation.in_process import InProcess
from f2cto.message import Message

Shard = TypeVar("Shard")
State = TypeVar("State")


@runtime_checkable
class JoinsWorkers(Protocol):
    """A program that can run several workers as one: the same arithmetic in fewer, larger pieces."""

    def joined(self, shards: Sequence[object]) -> object | None:
        """One shard that stands for all, or none if the result would differ."""
        ...

    def parted(self, joined: object, state: object) -> list[object]:
        """The states of the single workers."""
        ...

    def replies(self, joined: object, reply: Message) -> list[Message]:
        """What the single workers would have sent, up to their mean."""
        ...


class Joint:
    """One worker that stands for many; the traffic is counted as theirs."""

    def __init__(self, program: Program[object, object], shard: object, workers: int) -> None:
        """Start the one worker."""
        self._inner = InProcess(program, [shard])
        self._program, self._shard = program, shard
        self._traffic = Traffic(workers=workers)

    @property
    def traffic(self) -> Traffic:
        """What the workers would have exchanged so far."""
        return self._traffic

    @property
    def states(self) -> list[object]:
        """The workers' states."""
        assert isinstance(self._program, JoinsWorkers)  # noqa: S101  (see `in_this_process`)
        return self._program.parted(self._shard, self._inner.states[0])

    def ask(self, phase: str, message: Message) -> list[Message]:
        """Put a message to the one worker; a reply for each it stands for."""
        assert isinstance(self._program, JoinsWorkers)  # noqa: S101
        replies = self._program.replies(self._shard, self._inner.ask(phase, message)[0])
        for reply in replies:
            self._traffic.down.add(message)
            self._traffic.up.add(reply)
        return replies


def in_this_process(
    program: Program[Shard, State], shards: Sequence[Shard], faults: Faults | None = None
) -> InProcess[Shard, State] | Joint:
    """The faster engine of the two: workers as one where that is exact, else one after the other."""
    joins = isinstance(program, JoinsWorkers) and faults in {None, Faults()}
    joined = program.joined(shards) if joins else None  # type: ignore[attr-defined]
    if joined is None:
        return InProcess(program, shards, faults)
    return Joint(program, joined, len(shards))  # type: ignore[arg-type]
