"""F2CTO-EF, our extension of F2CTO: class-wise error feedback. It is not the paper's method.

F2CTO's lock-step form matches gradients: alpha grows where training on everything would go and the coreset does not
yet. On a simplex its optimum is the uniform alpha, and one class can pay for another. The extension keeps the problem
and its first-order view and changes how alpha moves: places of mass 1/K are filled one by one, class by class, each
with the sample that best makes up for what all workers' places so far leave of the class's gradient.

    1 plan      places per worker and class, from the workers' label counts
    2 filter    robust training on everything; samples whose robust loss stays worse than chance are set aside
    3 proxies   some models, each a few steps of robust training on f1 + rho_2 f2, even weights on all that passed
    4 places    class by class: e = grad f1 - grad f2, a sum over workers; u_k = -[l_k(w - h e) - l_k(w)] / h, a loss
                difference as in Eq. (11); a place goes to argmin over k of -u_k + 1/(2K) |g_k - g_place|^2

In variant A (`target = "all"`) f1 has all samples of a class, in variant B (`"kept"`, the default) those that passed.

What it costs in privacy. F2CTO sends parameters; here the workers have to know e class by class, and what changes in it
from turn to turn are single samples' gradients, from which samples can be reconstructed. Hence e only exists as a sum
over workers, and only the worker whose turn it is can read it (`secure_sum.py`):

- a class is opened with terms under masks that cancel in the sum, and the sum is readable for the first worker alone;
- a worker reads e, fills `slots` places and hands on what is left under a mask that only the next worker takes off. The
  master passes on numbers that look like noise.

What is left: a worker sees e once per round of turns, so that it learns the sum of what all other workers changed in
between, at most (N - 1) x slots samples' gradients, fewer in later sweeps; where only two workers have
places of a class, each sees what the other did. Label counts and the size of e are known to the master, counts to all.
There is no noise, hence no differential privacy. Filter and proxies send gradients over whole shards, as federated
averaging does. Over a real federation lock-step F2CTO discloses less, and is the default.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from f2cto.constraints import L2Ball
from f2cto.message import Ask, Message
from f2cto.methods.base import Coreset, Given, OnRound, Shard, evenly
from f2cto.methods.error_feedback_settings import ErrorFeedbackSettings
from f2cto.methods.error_feedback_worker import (
    COUNT,
    FILL,
    FILTER,
    KEEP,
    NOBODY,
    OPEN,
    PLAN,
    TRAIN,
    FeedbackProgram,
    FeedbackState,
    closed,
    numbered,
)
from f2cto.methods.matching import local_quotas, union_quotas
from f2cto.methods.quotas import Balance, first_turn, in_turn
from f2cto.methods.secure_sum import total
from f2cto.trilevel.master import Round, Solution, Stopped

Scalars = dict[str, float]


@dataclass(frozen=True, eq=False)
class ErrorFeedback:
    """F2CTO-EF as a selector."""

    settings: ErrorFeedbackSettings
    given: Given

    def program(self) -> FeedbackProgram:
        """What runs at each worker."""
        return FeedbackProgram(self.settings, self.given)

    def lead(self, ask: Ask, w: Tensor, on_round: OnRound) -> Solution:
        """The master's side. The solution's parameters are those of the filter's model."""
        log = Log(on_round)
        places, others = self._plan(ask)
        ball = L2Ball(self.settings.proxies.radius or 2 * float(w.norm()))
        trained = self._filter(ask, ball.project(w), ball, log)
        passed = numbered("passed", summed(ask(KEEP, Message()), "passed", places.shape[1]))
        ws = self._train(ask, [ball.project(v) for v in (w, *others)], ball, passed, log)
        for c in range(places.shape[1]):
            turns = [turn for _ in range(self.settings.feedback.sweeps) for turn in self._turns(places, c)]
            self._fill(ask, ws, passed | {"class": float(c)}, turns, log)
        return Solution(w=trained, history=tuple(log.history), stopped=Stopped.ITERATIONS)

    def coreset(self, shard: Shard, state: FeedbackState) -> Coreset:
        """The samples in the places, class by class in turn."""
        return evenly(in_turn(list(closed(state).chosen), shard.worker))

    def _plan(self, ask: Ask) -> tuple[Tensor, list[Tensor]]:
        """Places per worker and class, and further initialisations of the model."""
        replies = ask(COUNT, Message())
        classes = max(len(reply.scalars) - 1 for reply in replies)
        counts = torch.tensor([[int(r.scalars.get(f"count.{c}", 0)) for c in range(classes)] for r in replies])
        sizes = torch.tensor([int(reply.scalars["size"]) for reply in replies])
        even = self.given.balance is Balance.EVEN and self.settings.balanced_union
        places = union_quotas(counts, sizes) if even else local_quotas(counts, sizes, self.given.balance)
        told: Scalars = {"workers": float(len(replies)), "places": float(sizes.sum())}
        told |= numbered("count", counts.sum(dim=0))
        for i, row in enumerate(places):
            told |= numbered(f"places.{i}", row)
        starts = ask(PLAN, Message({}, told))[0].vectors
        return places, list(starts.values())

    def _filter(self, ask: Ask, w: Tensor, ball: L2Ball, log: Log) -> Tensor:
        """Robust training by heavy-ball steps."""
        filtering, velocity = self.settings.filtering, torch.zeros_like(w)
        for _ in range(filtering.rounds):
            replies = ask(FILTER, Message({"w": w}))
            velocity = filtering.momentum * velocity + gathered(replies, "slope")
            before, w = w, ball.project(w - filtering.rate * velocity)
            log.add(sum(r.scalars["objective"] for r in replies), float((before - w).square().sum()))
        return w

    def _train(self, ask: Ask, ws: list[Tensor], ball: L2Ball, passed: Scalars, log: Log) -> list[Tensor]:
        """The proxies' steps."""
        rate = self.settings.proxies.rate
        for _ in range(self.settings.proxies.steps):
            replies = ask(TRAIN, Message(vectors("w", ws), passed))
            before, ws = ws, [ball.project(w - rate * gathered(replies, f"slope.{e}")) for e, w in enumerate(ws)]
            moved = sum(float((a - b).square().sum()) for a, b in zip(before, ws, strict=True))
            log.add(sum(r.scalars["objective"] for r in replies), moved)
        return ws

    def _fill(self, ask: Ask, ws: list[Tensor], told: Scalars, turns: list[tuple[int, int]], log: Log) -> None:
        """Fill the places of one class, passing on what is missing from worker to worker, unread."""
        first = turns[0][0] if turns else NOBODY
        replies = ask(OPEN, Message(vectors("w", ws), told | {"next": float(first)}))
        hidden = {f"error.{e}": total([r.vectors[f"error.{e}"] for r in replies]) for e in range(len(ws))}
        readers = [first, *(worker for worker, _ in turns), NOBODY]
        for number, (worker, slot) in enumerate(turns):
            before, reader = readers[number], readers[number + 2]
            who = {"worker": worker, "before": before, "next": reader, "first": slot}
            reply = ask(FILL, Message(hidden, {name: float(value) for name, value in who.items()}))[worker]
            hidden = dict(reply.vectors)
            log.add(reply.scalars["error"], 0.0)

    def _turns(self, places: Tensor, c: int) -> list[tuple[int, int]]:
        """Whose turn it is to fill places of class c in a sweep, and the first of them.

        Slot by slot; within a slot the worker first whose stored order comes to the class first. So the places are
        filled in the order in which prefixes of the workers' coresets take them. With one sweep and one slot, what is
        kept when memory shrinks is what an earlier stop would have picked.
        """
        own, classes = places[:, c].tolist(), places.shape[1]
        together = self.settings.feedback.slots or max(1, *own)
        order = sorted(range(len(own)), key=lambda worker: (c - first_turn(worker, classes)) % classes)
        return [(i, slot) for slot in range(0, max(own), together) for i in order if own[i] > slot]


@dataclass
class Log:
    """The history so far. A round's objective is the loss of its training, or the squared error that places left."""

    on_round: OnRound
    history: list[Round] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def add(self, objective: float, gap: float) -> None:
        """Note one exchange."""
        self.history.append(Round(len(self.history) + 1, objective, gap, time.monotonic() - self.began, {}))
        self.on_round(self.history[-1])


def vectors(name: str, values: Sequence[Tensor]) -> dict[str, Tensor]:
    """Vectors under numbered names."""
    return {f"{name}.{e}": value for e, value in enumerate(values)}


def gathered(replies: Sequence[Message], name: str) -> Tensor:
    """The sum over workers of a vector."""
    return torch.stack([reply.vectors[name] for reply in replies]).sum(dim=0)


def summed(replies: Sequence[Message], name: str, count: int) -> Tensor:
    """The sums over workers of numbered scalars."""
    return torch.tensor([sum(reply.scalars[f"{name}.{c}"] for reply in replies) for c in range(count)])
