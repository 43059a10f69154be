"""The worker's side of DTZO: objectives are evaluated, never differentiated.

A plain step moves a worker's variables v = (a, w, *z) against a two-point estimate of the gradient of f1 and the
gradient of the penalty on broken cuts, which is known. For a cut the master asks for the value of h at the present
point and at points moved along random directions; a worker draws those of its own variables, reports its part of h, and
is told by how much the whole rose. The random numbers inside h are the same at all points, or differences would be
differences of noise. As h is a squared distance |v - v'|^2, its slope in v itself is 2 (v - v') and needs no estimate;
what acts through the answer v' does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar, cast

import torch
from torch import Generator, Tensor

from f2cto.message import Message
from f2cto.methods.consensus import Local, Rounds
from f2cto.methods.cuts import Cut, Values, by_number, numbered, plus, square, touching
from f2cto.methods.levels import Task, projected
from f2cto.methods.zeroth_order import Smoothing, normal, two_point
from f2cto.randomness import generator

START, STEP, PROBE, LOWER_CUT, ROUND, CUT = "start", "step", "probe", "lower cut", "round", "cut"
UPPER, MODEL, LOWER, SHARED, ALL = 0, 1, 2, 3, -1  # blocks of variables that a direction moves
Shard_contra = TypeVar("Shard_contra", contravariant=True)


class Terms(Protocol):
    """Objectives in parts that can be evaluated apart; rows of numbers are terms of single samples."""

    def own(self, a: Tensor, /) -> Tensor:
        """The part of f1 in a alone."""
        ...

    def judged(self, w: Tensor, z: Values, /) -> Tensor:
        """The rest of f1; row k depends on rows k of z only."""
        ...

    def trained(self, a: Tensor, w: Tensor, z: Values, /) -> Tensor:
        """The terms of f2."""
        ...

    def attacked(self, a: Tensor, w: Tensor, z: Values, /) -> Tensor:
        """The terms of f3; row k depends on rows k of z only."""
        ...


@dataclass(frozen=True, eq=False)
class State:
    """All a worker remembers. It never leaves the worker."""

    task: Task
    at: Values = ()  # a, w, *z
    t: int = 0
    cuts: Mapping[int, Cut] = field(default_factory=dict)  # of level 2, in a, w, *z
    lower_cuts: Mapping[int, Cut] = field(default_factory=dict)  # of level 3, in a, *z
    end: Local | None = None  # y_j and phi_j of the last round
    answer: Values = ()  # of a level at the present point: y_j, or *z_j'


@dataclass(frozen=True)
class ZerothOrderProgram(Generic[Shard_contra]):
    """Answers the phases of DTZO for any problem in three levels that comes in terms."""

    task: Callable[[Shard_contra], Task]
    rounds: Rounds
    smoothing: Smoothing
    bend: float  # L + 1

    def start(self, shard: Shard_contra) -> State:
        """The private state before the first message."""
        return State(self.task(shard))

    @torch.no_grad()
    def run(self, phase: str, shard: Shard_contra, state: State, message: Message) -> tuple[State, Message]:  # noqa: ARG002
        """Answer one message."""
        match phase:
            case "start":
                a, *z = state.task.start
                at = projected(state.task, (a, message.vectors["w"], *z))
                return replace(state, at=at), Message({}, {"count": float(sum(block.numel() for block in at))})
            case "step":
                return self._step(state, message)
            case "probe":
                return self._probe(kept(state, message), message)
            case "lower cut":
                cuts = {**state.lower_cuts, int(message.scalars["number"]): self._lower_cut(state, message)}
                return replace(state, lower_cuts=cuts), Message({}, shares("lower", cuts, own(state.at)))
            case "round":
                return self._round(kept(state, message), message)
            case "cut":
                cuts = {**state.cuts, int(message.scalars["number"]): self._cut(state, message)}
                return replace(state, cuts=cuts), Message()
        msg = f"A worker of DTZO knows start, step, probe, lower cut, round and cut; got phase `{phase}`."
        raise ValueError(msg)

    def _step(self, state: State, message: Message) -> tuple[State, Message]:
        """A step of all variables; the message says how hard every cut pulls."""
        task, (a, w, *z) = state.task, state.at
        levels = terms(task, state.t, w)
        rng = generator(task.seed, task.number, state.t, 2, device=w.device)
        top, slope_a = two_point(lambda v: levels.own(v[0]), (a,), self.smoothing, rng)
        loss, slope_w = two_point(lambda v: levels.judged(v[0], tuple(z)).sum(), (w,), self.smoothing, rng)
        _, slope_z = two_point(lambda v: self._rows(levels.judged(w, v)), tuple(z), self.smoothing, rng)
        slope = (*slope_a, *slope_w, *slope_z)
        for number, pull in by_number("pull", message.scalars).items():
            slope = plus(slope, state.cuts[number].gradient(state.at), pull)
        at = tuple(v.sub(g, alpha=eta) for v, g, eta in zip(state.at, slope, task.steps, strict=True))
        state = replace(state, at=projected(task, at), t=state.t + 1)
        scalars = {"objective": float(top + loss), **shares("cut", state.cuts, state.at)}
        return state, Message({"w": state.at[1]}, scalars)

    def _probe(self, state: State, message: Message) -> tuple[State, Message]:
        """The worker's part |z_j - z_j'|^2 of level 3's h at the point asked for; z_j' are a few steps on f3."""
        task, w = state.task, message.vectors["w"]
        levels, point = terms(task, state.t, w), self._moved(state, message)
        answer = state.at[2:]
        rng = self._inside(state, message, 0)
        for _ in range(task.lower_steps):
            _, slope = two_point(lambda v: self._rows(levels.attacked(point[0], w, v)), answer, self.smoothing, rng)
            moved = plus(answer, slope, -task.lower_step)
            answer = tuple(onto.project(block) for onto, block in zip(task.sets[2:], moved, strict=True))
        state = state if message.scalars["direction"] else replace(state, answer=answer)
        return state, Message({}, {"h": square(plus(point[2:], answer, -1))})

    def _round(self, state: State, message: Message) -> tuple[State, Message]:
        """A round of level 2 at the point asked for; the worker's part |w_j - y_j|^2 of h so far comes along."""
        task, z, number = state.task, message.vectors["w"], int(message.scalars["round"])
        w = state.at[1]
        y, phi = (w, torch.zeros_like(w)) if number == 0 or state.end is None else state.end
        point = self._moved(state, message)
        levels, rng = terms(task, state.t, w), self._inside(state, message, 1 + number)
        _, slope = two_point(lambda v: levels.trained(point[0], v[0], point[2:]).sum(), (y,), self.smoothing, rng)
        y = task.sets[1].project(y - self.rounds.step * (slope[0] + phi + self.rounds.pull * (y - z)))
        phi = phi + self.rounds.dual_step * (y - z)
        scalars = {"h": square((point[1] - y,)), **shares("lower", state.lower_cuts, own(point))}
        state = state if message.scalars["direction"] else replace(state, answer=(y,))
        return replace(state, end=(y, phi)), Message({"w": y}, scalars)

    def _cut(self, state: State, message: Message) -> Cut:
        """The worker's share of a cut of level 2."""
        a, w, *z = self._slope(state, message)
        known = w if self.smoothing.joint else 2 * (state.at[1] - state.answer[0])
        return touching((a, known, *z), state.at, self.bend)

    def _lower_cut(self, state: State, message: Message) -> Cut:
        """The worker's share of a cut of level 3."""
        a, _, *z = self._slope(state, message)
        off = plus(state.at[2:], state.answer, -1)
        known = tuple(z) if self.smoothing.joint else plus(off, off)
        return touching((a, *known), own(state.at), self.bend)

    def _rows(self, values: Tensor) -> Tensor:
        return values if self.smoothing.per_sample else values.sum()

    def _inside(self, state: State, message: Message, part: int) -> Generator:
        """The randomness inside h: the same wherever h is evaluated for one cut."""
        key = (state.task.seed, state.task.number, int(message.scalars["number"]), part, 3)
        return generator(*key, device=state.at[1].device)

    def _moved(self, state: State, message: Message) -> Values:
        """The worker's variables at the point the master asks about."""
        number, direction = int(message.scalars["number"]), int(message.scalars["direction"])
        if direction == 0:
            return state.at
        u = directed(state, number, direction, int(message.scalars["block"]))
        return plus(state.at, u, self.smoothing.radius)

    def _slope(self, state: State, message: Message) -> Values:
        """The estimated slope of h in the worker's variables, from how much h rose along each direction."""
        number, blocks = int(message.scalars["number"]), by_number("block", message.scalars)
        slope = tuple(torch.zeros_like(block) for block in state.at)
        for direction, rise in by_number("rise", message.scalars).items():
            u = directed(state, number, direction, int(blocks[direction]))
            slope = plus(slope, u, rise / self.smoothing.directions)
        return slope


def directed(state: State, number: int, direction: int, block: int) -> Values:
    """The worker's part of a direction: its own normal numbers in the block that is moved, nothing elsewhere."""
    task, where = state.task, [UPPER, MODEL, *(LOWER for _ in state.at[2:])]
    u = normal(state.at, generator(task.seed, task.number, number, direction, 4, device=state.at[1].device))
    return tuple(v if block in {ALL, here} else torch.zeros_like(v) for v, here in zip(u, where, strict=True))


def terms(task: Task, t: int, w: Tensor) -> Terms:
    """The objectives of a task in terms."""
    return cast("Terms", task.levels(t, w))


def own(at: Values) -> Values:
    """The variables that nobody else has a copy of."""
    return (at[0], *at[2:])


def shares(name: str, cuts: Mapping[int, Cut], at: Values) -> dict[str, float]:
    """What these variables come to in each cut."""
    return numbered(name, {number: cut.share(at) for number, cut in cuts.items()})


def kept(state: State, message: Message) -> State:
    """The state without the cuts that the master has dropped."""
    cuts, lower = by_number("pull", message.scalars), by_number("keep", message.scalars)
    return replace(
        state,
        cuts={number: cut for number, cut in state.cuts.items() if number in cuts},
        lower_cuts={number: cut for number, cut in state.lower_cuts.items() if number in lower},
    )
