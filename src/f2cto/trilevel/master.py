"""The master's side of Algorithm 1: it averages, projects and decides when to stop; it never sees data."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import torch
from torch import Tensor

from f2cto.constraints import ConstraintSet
from f2cto.message import Ask, Message
from f2cto.trilevel.aggregation import Aggregation, Rule, combined
from f2cto.trilevel.settings import Stopping
from f2cto.trilevel.stationarity import Moves, stationarity_gap

REFINE, UPDATE, ITERATE = "refine", "update", "iterate"


class DivergedError(ArithmeticError):
    """The parameters left the numbers."""


class Stopped(StrEnum):
    """Why a run ended."""

    ITERATIONS = "iterations"
    STATIONARY = "stationary"
    TIME = "time"


@dataclass(frozen=True)
class Round:
    """What the master knows after one exchange with the workers."""

    iteration: int  # iterations done, local rounds included
    objective: float  # the mean over workers of L_i, Eq. (10)
    gap: float  # ||G^t||^2, Eq. (16)
    seconds: float  # since the run began
    metrics: dict[str, float]  # the mean over workers of whatever else they report
    absent: tuple[int, ...] = ()  # workers that were missing, where the engine may go on without them


@dataclass(frozen=True)
class Solution:
    """The parameters at the end, how they were reached and why it ended there."""

    w: Tensor
    history: tuple[Round, ...]
    stopped: Stopped


@dataclass(frozen=True, eq=False)
class Progress:
    """All the master knows between two iterations: what it takes to go on after it was killed."""

    w: Tensor
    w_hat: Tensor | None = None  # the mean of the workers' w^, where it travels with w; none: w^ restarts from w
    history: tuple[Round, ...] = ()


@dataclass(frozen=True)
class Master:
    """What the master has to know: the set W, the step size of w (for the gap), I, and when to stop.

    `together` lets w and w^ travel in one message: one exchange an iteration instead of two.
    """

    onto: ConstraintSet
    eta_w: float
    stopping: Stopping
    local_rounds: int = 1
    aggregation: Aggregation = field(default_factory=Aggregation)
    together: bool = False
    weighted: bool = False  # whether workers tell how much they count
    told: Callable[[int], dict[str, float]] = lambda _: {}  # what else to note after so many exchanges

    def __post_init__(self) -> None:
        """Refuse exchanges without work in between."""
        if self.local_rounds < 1:
            msg = f"There must be at least 1 local round between two exchanges; got {self.local_rounds}."
            raise ValueError(msg)


def average(ws: Sequence[Tensor]) -> Tensor:
    """The mean of the workers' parameters: w^ after Eq. (9)."""
    return combined(ws, [1.0] * len(ws), ws[0], Aggregation())


def aggregate(ws: Sequence[Tensor], onto: ConstraintSet) -> Tensor:
    """The master's new parameters: the projected mean of the workers', Eq. (15)."""
    return onto.project(average(ws))


OnRound = Callable[[Round], None]
OnProgress = Callable[[Progress], None]


def solve(
    ask: Ask,
    start: Tensor | Progress,
    master: Master,
    on_round: OnRound = lambda _: None,
    on_progress: OnProgress = lambda _: None,
) -> Solution:
    """Algorithm 1: refine, average, update, aggregate, until a stopping rule holds.

    Rules are looked at after each exchange: with I local rounds a run may end up to I - 1 iterations past T.

    Args:
        ask: puts a message to all workers, as an engine does.
        start: the initial parameters, or where a former run got to.
        master: the master's settings.
        on_round: is told about every exchange as it ends.
        on_progress: is given what it takes to go on from there.

    """
    now = start if isinstance(start, Progress) else Progress(master.onto.project(start))
    began = time.monotonic() - (now.history[-1].seconds if now.history else 0.0)
    stopped = _why_stop(now.history[-1], master.stopping) if now.history else None
    while stopped is None:
        replies, w_hat = (_together if master.together else _in_turn)(ask, now, master)
        w = master.onto.project(mean_of(replies, "w", now.w, master))
        last = _summary(replies, (now.w, w), master, len(now.history) + 1, time.monotonic() - began)
        on_round(last)
        _check_finite(w, last)
        now = Progress(w, w_hat, (*now.history, last))
        on_progress(now)
        stopped = _why_stop(last, master.stopping)
    return Solution(w=now.w, history=now.history, stopped=stopped)


def _in_turn(ask: Ask, now: Progress, master: Master) -> tuple[list[Message], None]:
    """An iteration in two exchanges: the mean of w^ first, then every worker's step of w."""
    w_hat = mean_of(ask(REFINE, Message({"w": now.w}, _said(now, master))), "w_hat", now.w, master)
    return ask(UPDATE, Message({"w_hat": w_hat})), None


def _together(ask: Ask, now: Progress, master: Master) -> tuple[list[Message], Tensor | None]:
    """An iteration in one exchange: w and the w^ of the next iteration come back together."""
    vectors = {"w": now.w} if now.w_hat is None else {"w": now.w, "w_hat": now.w_hat}
    replies = ask(ITERATE, Message(vectors, _said(now, master)))
    kept = all("w_hat" in reply.vectors for reply in replies)  # not where w^ restarts from w in the next iteration
    around = now.w if now.w_hat is None else now.w_hat
    return replies, mean_of(replies, "w_hat", around, master) if kept else None


def _said(now: Progress, master: Master) -> dict[str, float]:
    """Which iteration it is."""
    return {"t": float(len(now.history) * master.local_rounds)}


def mean_of(replies: Sequence[Message], name: str, around: Tensor, master: Master) -> Tensor:
    """The workers' vectors in one: their mean, unless the settings ask for something more robust."""
    return combined([r.vectors[name] for r in replies], _weights(replies, master), around, master.aggregation)


def _weights(replies: Sequence[Message], master: Master) -> list[float]:
    """Each worker's weight in means: equal, unless it is agreed that they tell their own.

    A robust rule is of no use if one worker may say that it weighs more than all others: none counts for more than
    three median ones then.
    """
    if not master.weighted:
        return [1.0] * len(replies)
    told = [reply.scalars["weight"] for reply in replies]
    most = math.inf if master.aggregation.rule is Rule.MEAN else 3 * statistics.median(told)
    return [min(weight, most) for weight in told]


def _summary(
    replies: Sequence[Message], moved: tuple[Tensor, Tensor], master: Master, exchange: int, seconds: float
) -> Round:
    """One row of the history, out of the scalars the workers sent along, if they did."""
    weights = _weights(replies, master)
    names = [name for name in replies[0].scalars if name != "weight"]
    rest = {n: sum(v * r.scalars[n] for v, r in zip(weights, replies, strict=True)) / sum(weights) for n in names}
    local = [Moves(**{name: r.scalars.get(f"{name}_move", 0.0) for name in ("alpha", "q", "p")}) for r in replies]
    return Round(
        iteration=exchange * master.local_rounds,
        objective=rest.pop("objective", math.nan),
        gap=stationarity_gap(local, *moved, master.eta_w * master.local_rounds),
        seconds=seconds,
        metrics={n: value for n, value in rest.items() if not n.endswith("_move")} | master.told(exchange),
    )


def _check_finite(w: Tensor, last: Round) -> None:
    if not bool(torch.isfinite(w).all()):
        msg = f"The model parameters became infinite or NaN in iteration {last.iteration}; lower the step sizes."
        raise DivergedError(msg)


def _why_stop(last: Round, stopping: Stopping) -> Stopped | None:
    if last.gap <= stopping.tolerance and stopping.tolerance > 0:
        return Stopped.STATIONARY
    if last.iteration >= stopping.iterations:
        return Stopped.ITERATIONS
    if stopping.seconds and last.seconds >= stopping.seconds:
        return Stopped.TIME
    return None
