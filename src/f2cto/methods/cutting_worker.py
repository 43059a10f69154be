"""The worker's side of the cutting-plane methods AFTO and ADBO: named phases over a private state.

A plain step moves all of a worker's variables v = (a, w, *z) against the Lagrangian: the gradient of f1 plus that of
every cut times its multiplier. Cuts are made in phases of their own, see `consensus`. Coefficients of a worker's own
variables never leave it; it reports what they come to, a number per cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import torch
from torch import Tensor

from f2cto.message import Message
from f2cto.methods.consensus import Local, Rounds, local_back, local_round
from f2cto.methods.cuts import Cut, Values, by_number, numbered, plus, square, touching
from f2cto.methods.levels import Levels, Task, projected
from f2cto.methods.turns import is_called

START, STEP, LOWER, FORWARD, BACKWARD = "start", "step", "lower", "forward", "backward"
Shard_contra = TypeVar("Shard_contra", contravariant=True)


@dataclass(frozen=True, eq=False)
class Trip:
    """What a worker remembers while a cut is made."""

    levels: Levels
    path: tuple[tuple[Local, Tensor], ...]  # what went into each round: y_j, phi_j and z
    end: Local  # what came out of the last
    back: Local  # what comes back of the cut into y_j and phi_j ...
    own: Values  # ... and into a and *z


@dataclass(frozen=True, eq=False)
class State:
    """All a worker remembers. It never leaves the worker."""

    task: Task
    at: Values = ()  # a, w, *z
    t: int = 0
    due: bool = True  # whether the master's answer to the last report is still to come
    duals: Mapping[int, float] = field(default_factory=dict)  # as last received
    cuts: Mapping[int, Cut] = field(default_factory=dict)  # of level 2, in a, w, *z
    lower_cuts: Mapping[int, Cut] = field(default_factory=dict)  # of level 3, in a, *z
    trip: Trip | None = None

    @property
    def own(self) -> Values:
        """The variables that nobody else has a copy of."""
        return (self.at[0], *self.at[2:])


@dataclass(frozen=True)
class CutProgram(Generic[Shard_contra]):
    """Answers the phases of a cutting-plane method for any problem in three levels, or in two without `lower`."""

    task: Callable[[Shard_contra], Task]
    rounds: Rounds

    def start(self, shard: Shard_contra) -> State:
        """The private state before the first message."""
        return State(self.task(shard))

    def run(self, phase: str, shard: Shard_contra, state: State, message: Message) -> tuple[State, Message]:  # noqa: ARG002
        """Answer one message."""
        match phase:
            case "start":
                a, *z = state.task.start
                return replace(state, at=projected(state.task, (a, message.vectors["w"], *z))), Message()
            case "step":
                return stepped(state, message)
            case "lower":
                return lowered(kept(state, message), message)
            case "forward":
                return self._forward(kept(state, message), message)
            case "backward":
                return self._backward(state, message)
        msg = f"A cutting-plane worker knows start, step, lower, forward and backward; got phase `{phase}`."
        raise ValueError(msg)

    def _forward(self, state: State, message: Message) -> tuple[State, Message]:
        """A round of level 2 with the master's z; in the first, everything starts anew from the worker's model."""
        z, w = message.vectors["w"], state.at[1]
        if message.scalars["round"] == 0:
            levels = state.task.levels(state.t, w)
            nothing = tuple(torch.zeros_like(block) for block in state.own)
            still = (torch.zeros_like(w), torch.zeros_like(w))
            state = replace(state, trip=Trip(levels, (), (w, torch.zeros_like(w)), still, nothing))
        assert state.trip is not None  # noqa: S101  (made in the round before, at the latest)
        trip = state.trip
        before = (trip.end[0].detach().requires_grad_(), trip.end[1])
        with torch.enable_grad():
            y, phi = local_round(trip.levels, state.own, before, z, self.rounds, state.task.sets[1])
        end = (y.detach(), phi.detach())
        trip = replace(trip, path=(*trip.path, (trip.end, z)), end=end, back=(2 * (end[0] - w), torch.zeros_like(w)))
        return replace(state, trip=trip), Message({"w": end[0]})

    def _backward(self, state: State, message: Message) -> tuple[State, Message]:
        """One round back; after the last of them the worker's share of the new cut is known."""
        assert state.trip is not None  # noqa: S101  (rounds are gone back only after they were gone)
        trip, pull = state.trip, message.vectors["w"]
        before, z = trip.path[-1]
        after = (trip.back[0] + self.rounds.pull * pull, trip.back[1] + pull)
        came = local_back(trip.levels, state.own, before, z, self.rounds, after, state.task.sets[1])
        trip = replace(trip, path=trip.path[:-1], back=came.before, own=plus(trip.own, came.own))
        if trip.path:
            return replace(state, trip=trip), Message({"w": came.z})
        slope = trip.own
        for number, weight in by_number("weight", message.scalars).items():
            slope = plus(slope, state.lower_cuts[number].slope, weight)
        w = state.at[1]
        cut = touching((slope[0], 2 * (w - trip.end[0]), *slope[1:]), state.at)
        cuts = {**state.cuts, int(message.scalars["number"]): cut}
        return replace(state, cuts=cuts, trip=None, due=True), Message({}, {"square": square(state.at)})


def stepped(state: State, message: Message) -> tuple[State, Message]:
    """A step of all variables with the multipliers last received, if it is the worker's turn.

    The answer to a report comes with the next message; whoever has not reported since the last is not told anything.
    """
    task = state.task
    if state.due:
        state = replace(state, duals=by_number("dual", message.scalars), due=False)
    if not is_called(task.number, message.scalars):
        return state, Message()
    levels = task.levels(state.t, state.at[1])
    objective, slope = objective_and_slope(levels, state.at)
    for number, dual in state.duals.items():
        slope = plus(slope, state.cuts[number].gradient(state.at), dual)
    at = tuple(v.sub(g, alpha=eta) for v, g, eta in zip(state.at, slope, task.steps, strict=True))
    state = replace(state, at=projected(task, at), t=state.t + 1, due=True)
    shares = numbered("cut", {number: cut.share(state.at) for number, cut in state.cuts.items()})
    return state, Message({"w": state.at[1]}, {"objective": objective, **shares})


def lowered(state: State, message: Message) -> tuple[State, Message]:
    """The worker's share of a cut of level 3 at the master's z: h = |z_j - z_j'|^2, z_j' a few steps down f3."""
    task, own, w = state.task, state.own, message.vectors["w"]
    h, slope, slope_w = distance_from_answer(task, task.levels(state.t, w), own, w)
    cuts = {**state.lower_cuts, int(message.scalars["number"]): touching(slope, own)}
    shares = numbered("lower", {number: cut.share(own) for number, cut in cuts.items()})
    return replace(state, lower_cuts=cuts), Message({"slope": slope_w}, {"h": h, "square": square(own), **shares})


@torch.enable_grad()
def distance_from_answer(task: Task, levels: Levels, own: Values, w: Tensor) -> tuple[float, Values, Tensor]:
    """The value of h = |z - z'(a, w)|^2 and its slopes in (a, *z) and w; z' are gradient steps from z on f3."""
    a, w = own[0].detach().requires_grad_(), w.detach().requires_grad_()
    answer = tuple(block.detach().requires_grad_() for block in own[1:])
    for _ in range(task.lower_steps):
        slopes = torch.autograd.grad(levels.f3(a, w, answer), answer, create_graph=True)
        moved = plus(answer, slopes, -task.lower_step)
        answer = tuple(onto.project(block) for onto, block in zip(task.sets[2:], moved, strict=True))
    off = plus(own[1:], answer, -1)
    h = torch.stack([block.square().sum() for block in off]).sum()
    slope_a, slope_w = torch.autograd.grad(h, (a, w), materialize_grads=True)
    return float(h.detach()), (slope_a, *(2 * block.detach() for block in off)), slope_w


def objective_and_slope(levels: Levels, at: Values) -> tuple[float, Values]:
    """The value of f1 and its gradient in all blocks."""
    leaves = tuple(block.detach().requires_grad_() for block in at)
    with torch.enable_grad():
        value = levels.f1(leaves[0], leaves[1], leaves[2:])
    return float(value.detach()), torch.autograd.grad(value, leaves, materialize_grads=True)


def kept(state: State, message: Message) -> State:
    """The state without the cuts that the master has dropped."""
    cuts, lower = by_number("dual", message.scalars), by_number("keep", message.scalars)
    return replace(
        state,
        cuts={number: cut for number, cut in state.cuts.items() if number in cuts},
        lower_cuts={number: cut for number, cut in state.lower_cuts.items() if number in lower},
    )
