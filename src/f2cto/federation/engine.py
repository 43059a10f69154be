"""What an engine is, and the count of what went through it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from f2cto.message import Message

Shard_contra = TypeVar("Shard_contra", contravariant=True)
State = TypeVar("State")


class Program(Protocol[Shard_contra, State]):
    """What runs at a worker: pure functions over a state that only the worker holds."""

    def start(self, shard: Shard_contra) -> State:
        """The private state before the first message."""
        ...

    def run(self, phase: str, shard: Shard_contra, state: State, message: Message) -> tuple[State, Message]:
        """Answer one message."""
        ...


@dataclass
class Count:
    """Messages, parameter floats and scalars that went one way."""

    messages: int = 0
    floats: int = 0
    scalars: int = 0

    def add(self, message: Message) -> None:
        """Count one message."""
        self.messages += 1
        self.floats += message.floats
        self.scalars += len(message.scalars)


@dataclass
class Traffic:
    """All that crossed between the master and its workers, both ways."""

    workers: int
    down: Count = field(default_factory=Count)
    up: Count = field(default_factory=Count)

    @property
    def floats_per_worker(self) -> float:
        """Parameter floats exchanged with one worker; with Algorithm 1 this is 4d an iteration."""
        return (self.down.floats + self.up.floats) / self.workers


class Engine(Protocol):
    """What the master talks to."""

    @property
    def traffic(self) -> Traffic:
        """What was exchanged so far."""
        ...

    def ask(self, phase: str, message: Message) -> list[Message]:
        """Put a message to every worker; one reply each, in the workers' order."""
        ...


class WorkerFailedError(ConnectionError):
    """A worker could not answer; says which one and in which phase."""

    def __init__(self, worker: int, phase: str, cause: Exception) -> None:
        """Name the worker, the phase and the cause."""
        super().__init__(f"Worker {worker} failed in phase `{phase}`: {cause}")
        self.worker, self.phase = worker, phase
