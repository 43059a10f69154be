"""The master's side of Algorithm 1: it averages, projects and decides when to stop; it never sees data."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from f2cto.constraints import ConstraintSet
from f2cto.message import Ask, Message
from f2cto.trilevel.settings import Stopping
from f2cto.trilevel.stationarity import Moves, stationarity_gap

REFINE, UPDATE = "refine", "update"


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


@dataclass(frozen=True)
class Solution:
    """The parameters at the end, how they were reached and why it ended there."""

    w: Tensor
    history: tuple[Round, ...]
    stopped: Stopped


@dataclass(frozen=True)
class Master:
    """What the master has to know: the set W, the step size of w (for the gap), I, and when to stop."""

    onto: ConstraintSet
    eta_w: float
    stopping: Stopping
    local_rounds: int = 1

    def __post_init__(self) -> None:
        """Refuse exchanges without work in between."""
        if self.local_rounds < 1:
            msg = f"There must be at least 1 local round between two exchanges; got {self.local_rounds}."
            raise ValueError(msg)


def average(ws: Sequence[Tensor]) -> Tensor:
    """The mean of the workers' parameters: w^ after Eq. (9)."""
    if all(w is ws[0] for w in ws):
        return ws[0]  # workers that work as one have one vector
    return torch.stack(list(ws)).mean(dim=0)


def aggregate(ws: Sequence[Tensor], onto: ConstraintSet) -> Tensor:
    """The master's new parameters: the projected mean of the workers', Eq. (15)."""
    return onto.project(average(ws))


def solve(ask: Ask, w: Tensor, master: Master, on_round: Callable[[Round], None] = lambda _: None) -> Solution:
    """Algorithm 1: refine, average, update, aggregate, until a stopping rule holds.

    Rules are looked at after each exchange: with I local rounds a run may end up to I - 1 iterations past T.

    Args:
        ask: puts a message to all workers, as an engine does.
        w: the initial parameters.
        master: the master's settings.
        on_round: is told about every exchange as it ends.

    """
    began = time.monotonic()
    history: list[Round] = []
    stopped: Stopped | None = None
    w = master.onto.project(w)
    while stopped is None:
        w_hat = average([r.vectors["w_hat"] for r in ask(REFINE, Message({"w": w}))])
        replies = ask(UPDATE, Message({"w_hat": w_hat}))
        w_next = aggregate([r.vectors["w"] for r in replies], master.onto)
        history.append(_summary(replies, w, w_next, master, len(history) + 1, time.monotonic() - began))
        on_round(history[-1])
        _check_finite(w_next, history[-1])
        w, stopped = w_next, _why_stop(history[-1], master.stopping)
    return Solution(w=w, history=tuple(history), stopped=stopped)


def _summary(  # noqa: PLR0913
    replies: Sequence[Message], w: Tensor, w_next: Tensor, master: Master, exchange: int, seconds: float
) -> Round:
    """One row of the history, out of the scalars the workers sent along."""
    rest = {name: sum(r.scalars[name] for r in replies) / len(replies) for name in replies[0].scalars}
    local = [Moves(alpha=r.scalars["alpha_move"], q=r.scalars["q_move"], p=r.scalars["p_move"]) for r in replies]
    return Round(
        iteration=exchange * master.local_rounds,
        objective=rest.pop("objective"),
        gap=stationarity_gap(local, w, w_next, master.eta_w * master.local_rounds),
        seconds=seconds,
        metrics={name: value for name, value in rest.items() if not name.endswith("_move")},
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
