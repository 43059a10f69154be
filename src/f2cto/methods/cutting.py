"""The master's side of the cutting-plane methods AFTO and ADBO: multipliers, the consensus model, cuts.

It minimises the regularised Lagrangian over the consensus model z and maximises it over the multipliers of the cuts,

    sum_j f1_j + sum_l lambda_l cut_l - c_t/2 sum_l lambda_l^2,     c_t = 1/(eta (t + 1)^(1/4)), bounded below,

while the workers minimise it over what is theirs. Every so often it drops the cuts whose multiplier is zero and makes a
new one of each layer at the present point.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import torch
from torch import Tensor

from f2cto.message import Ask, Message
from f2cto.methods.base import Coreset, OnRound, Shard
from f2cto.methods.consensus import Floor, Local, Rounds, Shared, shared_back, shared_round
from f2cto.methods.cuts import (
    Plane,
    Planes,
    active,
    ascended,
    check_schedule,
    due,
    mu_height,
    numbered,
    reported,
    shrinkage,
    square,
    touching,
)
from f2cto.methods.cutting_worker import BACKWARD, FORWARD, LOWER, START, STEP, CutProgram, State
from f2cto.methods.levels import Task
from f2cto.methods.turns import Asynchrony, called
from f2cto.trilevel.master import DivergedError, Round, Solution, Stopped, average


@dataclass(frozen=True)
class Cuts:
    """When cuts are made and what they forgive."""

    every: int = 10  # T_pre
    until: int = 0  # T_1, the iteration after which no more are made; 0: none
    most: int = 10  # of each layer; of more, those with the largest multipliers stay
    tolerance: float = 0.0  # eps
    mu: float = 0.0  # weak convexity
    bound: float = 1e4  # assumed of the squared length of all variables

    def __post_init__(self) -> None:
        """Refuse cuts that never come or forgive less than nothing."""
        check_schedule(self.every, self.most, self.until)
        if min(self.tolerance, self.mu, self.bound) < 0:
            msg = f"Cuts need tolerance, mu and bound >= 0; got {self.tolerance}, {self.mu} and {self.bound}."
            raise ValueError(msg)

    def due(self, t: int) -> bool:
        """Whether new cuts are made before iteration t."""
        return due(t, self.every, self.until)


@dataclass(frozen=True)
class Duals:
    """How the multipliers of the cuts move."""

    step: float = 1.0  # eta
    least: float = 0.0  # of the regulariser's weight c_t
    most: float = 1e3  # of a multiplier

    def __post_init__(self) -> None:
        """Refuse steps that go backwards."""
        if min(self.step, self.least, self.most) < 0:
            msg = f"Multipliers need step, least and most >= 0; got {self}."
            raise ValueError(msg)

    def stepped(self, dual: float, value: float, t: int) -> float:
        """A multiplier after iteration t."""
        return ascended(dual, value, self.step, shrinkage(t, self.step, self.least), self.most)


@dataclass(frozen=True)
class Cutting:
    """All that a master of these methods has to know."""

    iterations: int
    step: float  # of z
    layers: int = 2  # of cuts: two for three levels, one for two
    rounds: Rounds = field(default_factory=Rounds)
    cuts: Cuts = field(default_factory=Cuts)
    duals: Duals = field(default_factory=Duals)
    asynchrony: Asynchrony = field(default_factory=Asynchrony)

    def __post_init__(self) -> None:
        """Refuse a run without iterations."""
        if self.iterations < 1 or self.step < 0:
            msg = f"A cutting-plane method needs iterations >= 1 and a step >= 0; got {self.iterations}, {self.step}."
            raise ValueError(msg)


@dataclass(frozen=True, eq=False)
class Center:
    """All the master remembers."""

    z: Tensor
    models: tuple[Tensor, ...]  # of the workers, as last reported
    cuts: Planes = field(default_factory=dict)
    lower_cuts: Planes = field(default_factory=dict)
    made: int = 0  # cuts so far


@dataclass(frozen=True)
class CuttingPlanes:
    """A cutting-plane method as a selector: the largest upper variables are kept."""

    how: Cutting
    task: Callable[[Shard], Task]
    choose: Callable[[Shard, Tensor], Coreset]  # from the upper variables

    def program(self) -> CutProgram[Shard]:
        """What runs at each worker."""
        return CutProgram(self.task, self.how.rounds)

    def lead(self, ask: Ask, w: Tensor, on_round: OnRound) -> Solution:
        """The master's side."""
        return solve(ask, w, self.how, on_round)

    def coreset(self, shard: Shard, state: State) -> Coreset:
        """The worker's choice."""
        return self.choose(shard, state.at[0])


def solve(ask: Ask, w: Tensor, how: Cutting, on_round: OnRound = lambda _: None) -> Solution:
    """Run the method from the model `w`.

    A round's objective is the mean of f1 over the workers that reported, its gap the mean squared distance between
    their models and z. Models and z cross in every iteration, as published.
    """
    began, history = time.monotonic(), list[Round]()
    workers = len(ask(START, Message({"w": w})))
    center = Center(w, (w,) * workers)
    for t, now in zip(range(how.iterations), how.asynchrony.turns(workers), strict=False):
        if how.cuts.due(t):
            center = with_new_cuts(ask, center, how)
        duals = numbered("dual", {number: plane.dual for number, plane in center.cuts.items()})
        replies = ask(STEP, Message({"w": center.z}, {**duals, **called(now)}))
        center = moved(heard(center, replies, now), how, t)
        objective = fmean(replies[worker].scalars["objective"] for worker in now)
        gap = fmean(float((center.models[worker] - center.z).square().sum()) for worker in now)
        if not math.isfinite(objective + gap):
            msg = f"The variables became infinite or NaN in iteration {t + 1}; lower the step sizes."
            raise DivergedError(msg)
        broken = max((plane.value(center.z) for plane in center.cuts.values()), default=0.0)
        metrics = {"cuts": float(len(center.cuts)), "broken": broken}
        history.append(Round(t + 1, objective, gap, time.monotonic() - began, metrics))
        on_round(history[-1])
    return Solution(w=center.z, history=tuple(history), stopped=Stopped.ITERATIONS)


def heard(center: Center, replies: Sequence[Message], now: Sequence[int]) -> Center:
    """The master with the reports of those whose turn it was."""
    models, cuts = list(center.models), center.cuts
    for worker in now:
        models[worker] = replies[worker].vectors["w"]
        cuts = reported(cuts, "cut", worker, replies[worker].scalars)
    return replace(center, models=tuple(models), cuts=cuts)


def moved(center: Center, how: Cutting, t: int) -> Center:
    """A step of z down the Lagrangian, then one of every multiplier up."""
    z = center.z
    for plane in center.cuts.values():
        z = z - how.step * plane.dual * plane.cut.gradient((center.z,))[0]
    cuts = {n: replace(p, dual=how.duals.stepped(p.dual, p.value(z), t)) for n, p in center.cuts.items()}
    return replace(center, z=z, cuts=cuts)


def with_new_cuts(ask: Ask, center: Center, how: Cutting) -> Center:
    """The master after inactive cuts were dropped and one was added to each layer."""
    center = replace(center, cuts=active(center.cuts, how.cuts.most - 1))
    if how.layers == 2:
        center = replace(center, lower_cuts=active(center.lower_cuts, how.cuts.most - 1))
        center = with_lower_cut(ask, center, how)
    return with_cut(ask, center, how)


def with_lower_cut(ask: Ask, center: Center, how: Cutting) -> Center:
    """A new cut of level 3, h = sum_j |z_j - z_j'(a_j, z)|^2, and the shares of all of them at present."""
    replies = ask(LOWER, Message({"w": center.z}, {**_alive(center), "number": float(center.made)}))
    slope = torch.stack([reply.vectors["slope"] for reply in replies]).sum(dim=0)
    total = {name: sum(reply.scalars[name] for reply in replies) for name in ("h", "square")}
    height = mu_height(total["h"], total["square"] + square((center.z,)), how.cuts.mu, how.cuts.bound)
    plane = Plane(touching((slope,), (center.z,)), height - how.cuts.tolerance, (0.0,) * len(replies))
    planes: Planes = {**center.lower_cuts, center.made: plane}
    for worker, reply in enumerate(replies):
        planes = reported(planes, "lower", worker, reply.scalars)
    return replace(center, lower_cuts=planes, made=center.made + 1)


def with_cut(ask: Ask, center: Center, how: Cutting) -> Center:
    """A new cut of level 2, h = sum_j |w_j - y_j|^2 + |z - z'|^2, where K rounds lead to the y_j and z'."""
    planes, workers = list(center.lower_cuts.values()), len(center.models)
    slopes = [plane.cut.slope[0] for plane in planes] or [center.z.new_zeros((0, *center.z.shape))]
    rest = center.z.new_tensor([plane.rest() - plane.cut.offset for plane in planes])
    floor = Floor(torch.stack(slopes) if planes else slopes[0], rest)
    gamma = center.z.new_tensor([plane.dual for plane in planes])
    path, (z, gamma), models = there(ask, center, floor, (center.z, gamma), how)
    off = [(w - y).square().sum() for w, y in zip(center.models, models, strict=True)]
    h = float(torch.stack([*off, (center.z - z).square().sum()]).sum())
    norms = and_back(ask, center, floor, path, z, how)
    height = mu_height(h, norms + square((center.z,)), how.cuts.mu, how.cuts.bound) - how.cuts.tolerance
    plane = Plane(touching((2 * (center.z - z),), (center.z,)), height, (0.0,) * workers)
    lower = {n: replace(p, dual=float(g)) for (n, p), g in zip(center.lower_cuts.items(), gamma, strict=True)}
    return replace(center, cuts={**center.cuts, center.made: plane}, lower_cuts=lower, made=center.made + 1)


Path = list[tuple[Shared, Local]]  # what went into the master's part of each round


def there(ask: Ask, center: Center, floor: Floor, now: Shared, how: Cutting) -> tuple[Path, Shared, list[Tensor]]:
    """K rounds of level 2: what went into each, where z and gamma end, and the workers' models there."""
    path: Path = []
    phi, models = torch.zeros_like(center.z), list[Tensor]()
    for number in range(how.rounds.rounds):
        replies = ask(FORWARD, Message({"w": now[0]}, {**_alive(center), "round": float(number)}))
        models = [reply.vectors["w"] for reply in replies]
        y = average(models)
        phi = phi + how.rounds.dual_step * (y - now[0])  # the mean of what the workers have
        path.append((now, (y, phi)))
        now = shared_round(now, (y, phi), floor, len(models), how.rounds)
    return path, now, models


def and_back(ask: Ask, center: Center, floor: Floor, path: Path, z: Tensor, how: Cutting) -> float:  # noqa: PLR0913
    """The rounds backwards, after which every worker has its share of the cut; the sum of their squared norms."""
    workers = len(center.models)
    after: Shared = (2 * (z - center.z), torch.zeros_like(floor.heights))
    weights, replies = torch.zeros_like(floor.heights), list[Message]()
    for number, (before, means) in reversed(list(enumerate(path))):
        back = shared_back(before, means, floor, workers, how.rounds, after)
        weights = weights + back.heights
        last = {} if number else {"number": float(center.made), **_weights(center, weights)}
        replies = ask(BACKWARD, Message({"w": back.phi}, last))
        if number:
            came = torch.stack([reply.vectors["w"] for reply in replies]).sum(dim=0)
            after = (back.before[0] + came, back.before[1])
    return sum(reply.scalars["square"] for reply in replies)


def _weights(center: Center, weights: Tensor) -> dict[str, float]:
    """How much each cut of level 3 has to say in the new cut."""
    return numbered("weight", dict(zip(center.lower_cuts, weights.tolist(), strict=True)))


def _alive(center: Center) -> dict[str, float]:
    """The cuts that are left, for the workers to drop all others."""
    duals = numbered("dual", {number: plane.dual for number, plane in center.cuts.items()})
    return {**duals, **numbered("keep", dict.fromkeys(center.lower_cuts, 1.0))}
