"""Running a selector on workers that are all the user's own, wherever they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from torch import Tensor

from f2cto.federation.engine import Traffic
from f2cto.federation.faults import Absence, Faults
from f2cto.federation.in_process import InProcess
from f2cto.federation.joint import in_this_process
from f2cto.message import Message
from f2cto.methods.base import Coreset, OnRound, Selector, Shard
from f2cto.trilevel.master import Round, Solution


@dataclass(frozen=True, eq=False)
class Result:
    """What a selection gives to those who own all the data."""

    coresets: list[Coreset]
    solution: Solution
    traffic: Traffic
    absences: list[Absence] = field(default_factory=list)


class HasAbsences(Protocol):
    """Whatever knows who was missing."""

    @property
    def absences(self) -> list[Absence]:
        """Who was missing when."""
        ...


class Fleet(Protocol):
    """An engine whose workers are all the user's own: what they chose may be looked at when all is done."""

    @property
    def traffic(self) -> Traffic:
        """What was exchanged so far."""
        ...

    @property
    def absences(self) -> list[Absence]:
        """Who was missing when."""
        ...

    def ask(self, phase: str, message: Message) -> list[Message]:
        """Put a message to every worker."""
        ...

    def coresets(self, selector: Selector) -> list[Coreset]:
        """What each worker keeps; nothing for one that was lost for good."""
        ...

    def close(self) -> object:
        """Let the workers go."""
        ...


Gather = Callable[[Selector, Sequence[Shard]], Fleet]  # makes workers of shards


class Here:
    """A fleet in this process."""

    def __init__(
        self, selector: Selector, shards: Sequence[Shard], faults: Faults | None = None, *, together: bool = True
    ) -> None:
        """Start one worker per shard; they work as one where nothing but rounding changes by it.

        Without `together` they take turns: slower, and the same bits as on other engines.
        """
        self._shards = shards
        make = in_this_process if together else InProcess
        self._engine = make(selector.program(), shards, faults)
        self.ask = self._engine.ask

    @property
    def traffic(self) -> Traffic:
        """What was exchanged so far."""
        return self._engine.traffic

    @property
    def absences(self) -> list[Absence]:
        """Who was missing when."""
        return self._engine.exchange.absences if isinstance(self._engine, InProcess) else []

    def close(self) -> None:
        """There is nothing to let go of."""

    def coresets(self, selector: Selector) -> list[Coreset]:
        """What each worker keeps."""
        return [selector.coreset(shard, state) for shard, state in zip(self._shards, self._engine.states, strict=True)]


def run(
    selector: Selector,
    shards: Sequence[Shard],
    w: Tensor,
    on_round: OnRound = lambda _: None,
    gather: Gather = Here,
) -> Result:
    """Run a selector on workers of the user's own, in this process unless told otherwise."""
    fleet = gather(selector, shards)
    try:
        attended = Attended(fleet, on_round)
        solution = selector.lead(fleet.ask, w, attended)
        solution = replace(solution, history=tuple(attended.marked(r) for r in solution.history))
        return Result(fleet.coresets(selector), solution, fleet.traffic, fleet.absences)
    finally:
        fleet.close()


class Attended:
    """Writes into each round who was missing in it."""

    def __init__(self, fleet: HasAbsences, on_round: OnRound) -> None:
        """Listen to the rounds before they are told on."""
        self._fleet, self._on_round = fleet, on_round
        self._seen, self._absent = 0, dict[int, tuple[int, ...]]()

    def __call__(self, last: Round) -> None:
        """A round ended."""
        new = self._fleet.absences[self._seen :]
        self._seen += len(new)
        self._absent[last.iteration] = tuple(sorted({absence.worker for absence in new}))
        self._on_round(self.marked(last))

    def marked(self, last: Round) -> Round:
        """The round with those who were missing in it."""
        absent = self._absent.get(last.iteration, ())
        return replace(last, absent=absent) if absent else last
