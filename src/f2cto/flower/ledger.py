"""What a master keeps while it leads, so that one that was killed at any moment goes on to the same result."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from f2cto.federation.exchange import Exchange
from f2cto.federation.faults import Absence
from f2cto.flower.grid import AFRESH
from f2cto.flower.master_folder import Account, MasterFolder, Replies
from f2cto.message import Message
from f2cto.methods.base import OnRound
from f2cto.methods.running import Attended
from f2cto.trilevel.master import REFINE, Progress


class Ledger:
    """An engine's `ask`, `on_round` and `on_progress` that are written down.

    Sites answer a question again if it is the last that they answered, and no other. So the state after an iteration is
    not enough where an iteration has two questions: if all sites have answered the second and the master dies before it
    hears of it, the first cannot be asked again. Its answers are kept for that.
    """

    def __init__(self, folder: MasterFolder, exchange: Exchange, on_round: OnRound, lost: list[Absence]) -> None:
        """Go on where the folder says; `lost` gets those that took part without what they had known."""
        self._folder, self._exchange, self._lost = folder, exchange, lost
        self._attended = Attended(exchange, on_round)
        found = folder.progress()
        self.start = found[0] if found else None
        before = found[1] if found else Account()
        self._earlier = before.absences
        kept = folder.replies()
        self._kept = kept if kept is not None and kept.account.serial == before.serial + 1 else None
        self._restore(self._kept.account if self._kept else before)

    def ask(self, phase: str, message: Message) -> list[Message]:
        """Put a message to every worker, unless a former master has their answers."""
        if self._kept is not None:
            known, self._kept = self._kept, None
            return list(known.messages)
        replies = self._exchange.ask(phase, message)
        if phase == REFINE:
            self._folder.save_replies(Replies(self.account(), tuple(replies)))
        return replies

    @property
    def answered(self) -> set[int]:
        """The sites that a former master has had an answer from, of which it knows."""
        missed = Counter(absence.worker for absence in self.account().absences if absence.why != AFRESH)
        return {i for i in range(self._exchange.carrier.workers) if missed[i] < self._exchange.serial}

    def keep(self) -> None:
        """Write down at once what was found out before the first question: this master may not live to ask it."""
        if self._kept is not None:
            self._folder.save_replies(replace(self._kept, account=self.account()))
        elif self.start is not None:
            self._folder.save_progress(self.start, self.account())

    @property
    def on_round(self) -> OnRound:
        """Is told about every iteration, and adds who was missing in it."""
        return self._attended

    def on_progress(self, progress: Progress) -> None:
        """Keep where the master is."""
        history = tuple(self._attended.marked(last) for last in progress.history)
        self._folder.save_progress(replace(progress, history=history), self.account())

    def account(self) -> Account:
        """What the engine has counted, this run and before."""
        traffic = self._exchange.traffic
        absences = (*self._earlier, *self._exchange.absences, *self._lost)
        return Account(self._exchange.serial, traffic.down, traffic.up, absences)

    def _restore(self, account: Account) -> None:
        self._exchange.serial = account.serial
        self._exchange.traffic.down, self._exchange.traffic.up = account.down, account.up
        for absence in account.absences[len(self._earlier) :]:
            (self._lost if absence.why == AFRESH else self._exchange.absences).append(absence)
