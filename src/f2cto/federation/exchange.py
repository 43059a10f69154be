"""The engine of every carrier: it asks, checks what comes back, meets failures as it was told to, and counts."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from f2cto.config import SettingsError
from f2cto.federation.carrier import Call, Carrier
from f2cto.federation.engine import Traffic, WorkerFailedError
from f2cto.federation.faults import Absence, Faults, OnFailure, UnusableReplyError, unusable
from f2cto.message import Message


class TooFewWorkersError(ConnectionError):
    """Not enough workers answered to go on."""


@dataclass
class Exchange:
    """Questions to all workers over some carrier.

    Args:
        carrier: what lies between.
        faults: the policy.
        entries: the phases at which a worker that missed others may join again, because they tell it all it has to
            know; empty: the method cannot do without anyone.
        serial: the number of the last question; a master that goes on with a former run continues its numbers.

    """

    carrier: Carrier
    faults: Faults = field(default_factory=Faults)
    entries: Collection[str] = ()
    serial: int = 0

    def __post_init__(self) -> None:
        """Refuse a policy that the method cannot follow."""
        self._needed = self.faults.needed(self.carrier.workers)
        if self._needed < self.carrier.workers and not self.entries:
            msg = (
                "This method needs every worker in every round; use `on_failure` = `stop`, or `wait` with `least = 0`."
            )
            raise SettingsError(msg)
        self._out: set[int] = set()  # who missed a phase and has to sit out until the next entry
        self.absences: list[Absence] = []
        self.traffic = Traffic(workers=self.carrier.workers)

    def ask(self, phase: str, message: Message) -> list[Message]:
        """Put a message to every worker; the replies of those who answered, in the workers' order."""
        self.serial += 1
        if phase in self.entries:
            self._out.clear()
        call = Call(phase, message, self.serial)
        replies = self._collected(call, [i for i in range(self.carrier.workers) if i not in self._out])
        return [replies[worker] for worker in sorted(replies)]

    def _collected(self, call: Call, to: Sequence[int]) -> dict[int, Message]:
        waits = self.faults.on_failure is OnFailure.WAIT
        replies, why = self._tried(call, to, {})
        deadline = time.monotonic() + self.faults.patience  # from here on: an attempt alone may take as long
        while waits and len(replies) < self._needed and time.monotonic() < deadline and _may_change(why):
            time.sleep(self.faults.pause)
            replies, why = self._tried(call, [i for i in to if i not in replies], replies)
        self._note(call, why)
        if len(replies) < self._needed:
            raise self._failure(call, why, len(replies)) from min(why.items())[1]
        return replies

    def _tried(
        self, call: Call, to: Sequence[int], before: dict[int, Message]
    ) -> tuple[dict[int, Message], dict[int, Exception]]:
        """What is known after one more attempt: who answered, and why the others did not."""
        answers = self.carrier.carry(call, to)
        for _ in to:
            self.traffic.down.add(call.message)
        replies = before | {i: a for i, a in answers.items() if isinstance(a, Message)}
        silent = [i for i in to if i not in replies]
        why = {i: a if isinstance(a := answers.get(i), Exception) else TimeoutError("no answer") for i in silent}
        bad = unusable(replies, call.message, alike=bool(self.entries))
        for worker in answers.keys() & replies.keys():
            self.traffic.up.add(replies[worker])
        return {i: r for i, r in replies.items() if i not in bad}, why | bad

    def _note(self, call: Call, why: dict[int, Exception]) -> None:
        for worker, error in sorted(why.items()):
            self.absences.append(Absence(call.serial, call.phase, worker, str(error) or type(error).__name__))
        missing = set(why)
        for worker in sorted(self._out - missing):
            self.absences.append(Absence(call.serial, call.phase, worker, "sat out the rest of the round"))
        self._out |= missing

    def _failure(self, call: Call, why: dict[int, Exception], answered: int) -> Exception:
        worker, error = min(why.items())
        if self.faults.on_failure is OnFailure.STOP:
            return WorkerFailedError(worker, call.phase, error)
        missing = ", ".join(map(str, sorted({*why, *self._out})))
        return TooFewWorkersError(
            f"Only {answered} of {self.carrier.workers} workers answered `{call.phase}`, and {self._needed} are "
            f"needed; missing: {missing}. Worker {worker}: {error}"
        )


def _may_change(why: dict[int, Exception]) -> bool:
    """Whether it is of use to ask again: who was asked before repeats its answer, and a bad one stays bad."""
    return not all(isinstance(error, UnusableReplyError) for error in why.values())
