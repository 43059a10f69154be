"""The master's side of DTZO: the consensus model, quadratic cuts, and the penalty on broken ones."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import torch
from torch import Tensor

from f2cto.message import Ask, Message
from f2cto.methods.base import OnRound
from f2cto.methods.consensus import Rounds
from f2cto.methods.cuts import Plane, Planes, check_schedule, due, numbered, reported, smoothing_error, touching
from f2cto.methods.dtzo_worker import (
    ALL,
    CUT,
    LOWER,
    LOWER_CUT,
    PROBE,
    ROUND,
    SHARED,
    START,
    STEP,
    UPPER,
)
from f2cto.methods.zeroth_order import Smoothing, normal
from f2cto.randomness import generator
from f2cto.trilevel.master import DivergedError, Round, Solution, Stopped, average


@dataclass(frozen=True)
class QuadraticCuts:
    """When cuts are made, what they forgive and what it costs to break them."""

    every: int = 10
    until: int = 0  # T_1, the iteration after which no more are made; 0: none
    most: int = 5  # of each layer; of more, those broken most stay
    tolerance: float = 0.0  # eps
    smoothness: float = 1.0  # L
    proven: bool = False  # forgive what smoothing may cost, r^2 L^2 (n + 3)^3 / 8; with a network no cut is then broken
    penalty: float = 0.1  # lambda

    def __post_init__(self) -> None:
        """Refuse cuts that never come or forgive less than nothing."""
        check_schedule(self.every, self.most, self.until)
        if min(self.tolerance, self.smoothness, self.penalty) < 0:
            msg = f"Cuts need tolerance, smoothness and penalty >= 0; got {self}."
            raise ValueError(msg)

    def due(self, t: int) -> bool:
        """Whether new cuts are made before iteration t."""
        return due(t, self.every, self.until)

    @property
    def bend(self) -> float:
        """How fast a cut forgives with the distance from where it was made."""
        return self.smoothness + 1


@dataclass(frozen=True)
class ZerothOrder:
    """All that the master has to know."""

    iterations: int
    step: float  # of z
    seed: int = 0
    smoothing: Smoothing = field(default_factory=Smoothing)
    rounds: Rounds = field(default_factory=Rounds)
    cuts: QuadraticCuts = field(default_factory=QuadraticCuts)


@dataclass(frozen=True, eq=False)
class Center:
    """All the master remembers."""

    z: Tensor
    count: int  # of all variables
    cuts: Planes = field(default_factory=dict)
    lower_cuts: Planes = field(default_factory=dict)
    made: int = 0


def solve(ask: Ask, w: Tensor, how: ZerothOrder, on_round: OnRound = lambda _: None) -> Solution:
    """Run the method from the model `w`.

    A round's objective is the mean of f1, its gap the mean squared distance between the workers' models and z.
    """
    began, history = time.monotonic(), list[Round]()
    replies = ask(START, Message({"w": w}))
    center = Center(w, w.numel() + int(sum(reply.scalars["count"] for reply in replies)))
    for t in range(how.iterations):
        if how.cuts.due(t):
            center = with_new_cuts(ask, center, how)
        replies = ask(STEP, Message({"w": center.z}, pulls(center, how)))
        center = moved(center, replies, how)
        objective = fmean(reply.scalars["objective"] for reply in replies)
        gap = fmean(float((reply.vectors["w"] - center.z).square().sum()) for reply in replies)
        if not math.isfinite(objective + gap):
            msg = f"The variables became infinite or NaN in iteration {t + 1}; lower the step sizes or the penalty."
            raise DivergedError(msg)
        broken = max((plane.value(center.z) for plane in center.cuts.values()), default=0.0)
        metrics = {"cuts": float(len(center.cuts)), "broken": broken}
        history.append(Round(t + 1, objective, gap, time.monotonic() - began, metrics))
        on_round(history[-1])
    return Solution(w=center.z, history=tuple(history), stopped=Stopped.ITERATIONS)


def pulls(center: Center, how: ZerothOrder) -> dict[str, float]:
    """How hard every cut pulls: the derivative 2 lambda max(0, cut) of its penalty."""
    broken = {number: max(0.0, plane.value(center.z)) for number, plane in center.cuts.items()}
    return numbered("pull", {number: 2 * how.cuts.penalty * value for number, value in broken.items()})


def moved(center: Center, replies: Sequence[Message], how: ZerothOrder) -> Center:
    """A step of z against the penalty, and the shares that the workers report."""
    z, cuts = center.z, center.cuts
    for plane in center.cuts.values():
        pull = 2 * how.cuts.penalty * max(0.0, plane.value(center.z))
        z = z - how.step * pull * plane.cut.gradient((center.z,))[0]
    for worker, reply in enumerate(replies):
        cuts = reported(cuts, "cut", worker, reply.scalars)
    return replace(center, z=z, cuts=cuts)


def with_new_cuts(ask: Ask, center: Center, how: ZerothOrder) -> Center:
    """The master after cuts that hold were dropped and one was added to each layer."""
    lower, cuts = (broken(planes, center.z, how.cuts.most - 1) for planes in (center.lower_cuts, center.cuts))
    center = replace(center, cuts=cuts, lower_cuts=lower)
    return with_cut(ask, with_lower_cut(ask, center, how), how)


def broken(planes: Planes, z: Tensor, most: int) -> dict[int, Plane]:
    """The planes that do not hold; of more than `most`, those broken most."""
    values = {number: plane.value(z) for number, plane in planes.items()}
    kept = sorted((number for number in planes if values[number] >= 0), key=lambda number: -values[number])
    return {number: planes[number] for number in sorted(kept[:most])}


def with_lower_cut(ask: Ask, center: Center, how: ZerothOrder) -> Center:
    """A new cut of level 3, h = sum_j |z_j - z_j'(a_j, z)|^2, and the shares of all of them at present."""

    def h(z: Tensor, probe: dict[str, float]) -> float:
        replies = ask(PROBE, Message({"w": z}, {**_alive(center, how), **probe}))
        return sum(reply.scalars["h"] for reply in replies)

    here, slope, rises = estimated(h, center, how, (UPPER, SHARED))
    replies = ask(LOWER_CUT, Message({}, rises))
    planes: Planes = {**center.lower_cuts, center.made: new_plane(center, how, here, slope, len(replies))}
    for worker, reply in enumerate(replies):
        planes = reported(planes, "lower", worker, reply.scalars)
    return replace(center, lower_cuts=planes, made=center.made + 1)


def with_cut(ask: Ask, center: Center, how: ZerothOrder) -> Center:
    """A new cut of level 2, h = sum_j |w_j - y_j|^2 + |z - z'|^2, where K rounds lead to the y_j and z'."""
    answer = center.z

    def h(z: Tensor, probe: dict[str, float]) -> float:
        nonlocal answer
        part, there = answered(ask, center, how, probe)
        answer = answer if probe["direction"] else there
        return part + float((z - there).square().sum())

    here, slope, rises = estimated(h, center, how, (UPPER, LOWER))
    slope = slope if how.smoothing.joint else 2 * (center.z - answer)
    replies = ask(CUT, Message({}, rises))
    plane = new_plane(center, how, here, slope, len(replies))
    return replace(center, cuts={**center.cuts, center.made: plane}, made=center.made + 1)


def answered(ask: Ask, center: Center, how: ZerothOrder, probe: dict[str, float]) -> tuple[float, Tensor]:
    """The workers' part of level 2's h, and z' after K rounds from the present z."""
    z, phi, planes = center.z, torch.zeros_like(center.z), center.lower_cuts
    part = 0.0
    for number in range(how.rounds.rounds):
        replies = ask(ROUND, Message({"w": z}, {**_alive(center, how), **probe, "round": float(number)}))
        for worker, reply in enumerate(replies):
            planes = reported(planes, "lower", worker, reply.scalars)
        y = average([reply.vectors["w"] for reply in replies])
        phi = phi + how.rounds.dual_step * (y - z)
        hold = [(max(0.0, plane.value(z)), plane.cut.gradient((z,))[0]) for plane in planes.values()]
        push = sum((2 * value * slope for value, slope in hold), start=torch.zeros_like(z))
        pull = phi + how.rounds.pull * (y - z) - how.rounds.penalty * push / len(replies)
        z = z + how.rounds.shared_step * pull
        part = sum(reply.scalars["h"] for reply in replies)
    return part, z


def estimated(
    h: Callable[[Tensor, dict[str, float]], float], center: Center, how: ZerothOrder, blocks: Sequence[int]
) -> tuple[float, Tensor, dict[str, float]]:
    """The value of h, its slope in z, and what the workers need for theirs: how much h rose along each direction."""
    directions = how.smoothing.directions
    moves = [ALL] * directions if how.smoothing.joint else [b for b in blocks for _ in range(directions)]
    number = {"number": float(center.made)}
    here = h(center.z, {**number, "direction": 0.0})
    slope, rises = torch.zeros_like(center.z), dict[int, float]()
    for direction, block in enumerate(moves, start=1):
        (u,) = normal((center.z,), generator(how.seed, center.made, direction, 5, device=center.z.device))
        u = u if block in {ALL, SHARED} else torch.zeros_like(u)
        probe = {**number, "direction": float(direction), "block": float(block)}
        rises[direction] = (h(center.z + how.smoothing.radius * u, probe) - here) / how.smoothing.radius
        slope = slope + rises[direction] / directions * u
    return here, slope, {**number, **numbered("rise", rises), **numbered("block", dict(enumerate(moves, start=1)))}


def new_plane(center: Center, how: ZerothOrder, h: float, slope: Tensor, workers: int) -> Plane:
    """The master's side of a cut made at the present point."""
    cost = smoothing_error(how.smoothing.radius, how.cuts.smoothness, center.count) if how.cuts.proven else 0.0
    cut = touching((slope,), (center.z,), how.cuts.bend)
    return Plane(cut, h - how.cuts.tolerance - cost, (0.0,) * workers)


def _alive(center: Center, how: ZerothOrder) -> dict[str, float]:
    """The cuts that are left, for the workers to drop all others."""
    return {**pulls(center, how), **numbered("keep", dict.fromkeys(center.lower_cuts, 1.0))}
