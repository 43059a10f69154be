"""What to do when a worker dies, keeps silent or sends what cannot be used."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import torch

from f2cto.config import SettingsError
from f2cto.message import Message


class OnFailure(StrEnum):
    """What the master does about workers that do not answer as they should."""

    STOP = "stop"  # end the run and say who
    CONTINUE = "continue"  # go on with those who answered
    WAIT = "wait"  # ask again until they are back


@dataclass(frozen=True)
class Faults:
    """How failures are met."""

    on_failure: OnFailure = OnFailure.STOP
    least: int = 0  # workers a round needs; 0: more than half of them to continue, all where the master waits
    patience: float = 600.0  # seconds that the master waits for workers to come back
    pause: float = 1.0  # seconds between two attempts

    def __post_init__(self) -> None:
        """Refuse what no run could be held to."""
        if self.least < 0 or self.patience < 0 or not self.pause > 0:
            msg = f"Faults need least >= 0, patience >= 0 and pause > 0; got {self}."
            raise ValueError(msg)

    def needed(self, workers: int) -> int:
        """How many workers must answer."""
        if self.on_failure is OnFailure.STOP:
            return workers
        if self.least > workers:
            msg = f"A round is to have at least {self.least} workers, and there are {workers}; lower `least`."
            raise SettingsError(msg)
        return self.least or (workers // 2 + 1 if self.on_failure is OnFailure.CONTINUE else workers)


@dataclass(frozen=True)
class Absence:
    """Who was missing when, and why."""

    serial: int  # of the master's question
    phase: str
    worker: int
    why: str


class UnusableReplyError(ValueError):
    """An answer that cannot be reckoned with."""


def unusable(replies: Mapping[int, Message], asked: Message, *, alike: bool) -> dict[int, UnusableReplyError]:
    """The replies that hold NaN or infinities, or, where all have to be `alike`, are of another shape than most.

    Where nobody has sent finite numbers no worker is to blame: the method diverged, and its master says so.
    """
    broken = {i: UnusableReplyError(f"sent {what}") for i, reply in replies.items() if (what := _not_finite(reply))}
    found = {} if len(broken) == len(replies) else broken
    if alike and len(replies) > 1:
        shapes = {i: _shape(reply) for i, reply in replies.items()}
        counts, wanted = Counter(shapes.values()), {v.shape for v in asked.vectors.values()}
        # Of shapes that are as frequent, that with vectors like those which were sent is more likely to be meant.
        usual = max(counts, key=lambda shape: (counts[shape], sum(torch.Size(size) in wanted for _, size in shape[0])))
        odd = {i: shape for i, shape in shapes.items() if shape != usual}
        found = {
            i: UnusableReplyError(f"sent {_said(s)}, and most sent {_said(usual)}") for i, s in odd.items()
        } | found
    return found


def _not_finite(reply: Message) -> str:
    for name, vector in reply.vectors.items():
        # The ends of a vector tell of NaN and infinities too, twenty times as fast on millions of numbers.
        if vector.numel() and not all(math.isfinite(float(end)) for end in torch.aminmax(vector)):
            return f"NaN or infinite numbers in `{name}`"
    for name, value in reply.scalars.items():
        if not math.isfinite(value) or (name == "weight" and value <= 0):
            return f"{value} for `{name}`"
    return ""


Shape = tuple[tuple[tuple[str, tuple[int, ...]], ...], tuple[str, ...]]  # of the vectors, and the scalars' names


def _shape(reply: Message) -> Shape:
    return tuple(sorted((name, tuple(v.shape)) for name, v in reply.vectors.items())), tuple(sorted(reply.scalars))


def _said(shape: Shape) -> str:
    vectors = ", ".join(f"{name} of length {'x'.join(map(str, size))}" for name, size in shape[0]) or "no vectors"
    return f"{vectors} and {'the numbers ' + ', '.join(shape[1]) if shape[1] else 'no numbers'}"
