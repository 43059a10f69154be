"""How far a run is from standing still: the stationarity gap of Definition 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from f2cto.trilevel.problem import Point
from f2cto.trilevel.settings import StepSizes


class Moves(NamedTuple):
    """Squared norms of one worker's projected gradient mappings, before the 1/N of Definition 1: three scalars."""

    alpha: float
    q: float
    p: float


def moves(before: Point, after: Point, eta: StepSizes, *, exact: bool = False) -> Moves:
    """What worker i contributes to the gap. In the exact form q and p are functions of w and count 0."""
    return Moves(
        alpha=mapping(before.alpha, after.alpha, eta.alpha),
        q=0.0 if exact else mapping(before.q, after.q, eta.q),
        p=0.0 if exact else mapping(before.p, after.p, eta.p),
    )


def mapping(before: Tensor, after: Tensor, eta: float) -> float:
    """The squared norm of (before - after)/eta; 0 for a variable that no step moves."""
    return float((before - after).square().sum()) / eta**2 if eta else 0.0


def stationarity_gap(workers: Sequence[Moves], w: Tensor, w_next: Tensor, eta_w: float) -> float:
    """The squared stationarity gap ||G^t||^2, Eq. (16), from each worker's scalars and the master's own step."""
    local = sum(sum(m) for m in workers) / len(workers) ** 2
    return local + mapping(w, w_next, eta_w)
