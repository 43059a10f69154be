"""What lies between the master and its workers: something that carries questions there and answers back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from f2cto.message import Message

Answers = Mapping[int, Message | Exception]  # by worker: what it said, or why it said nothing


@dataclass(frozen=True)
class Call:
    """One question of the master."""

    phase: str
    message: Message
    serial: int  # counts the questions from 1; a worker that gets one again repeats its answer


class Carrier(Protocol):
    """Carries calls; knows no policy and never raises because a worker failed."""

    @property
    def workers(self) -> int:
        """How many there are, whether they can be reached or not."""
        ...

    def carry(self, call: Call, to: Sequence[int]) -> Answers:
        """Put a question to some workers. Whoever is not in the answers kept silent."""
        ...
