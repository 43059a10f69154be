"""FedNest: federated bilevel optimisation with variance-reduced inner steps and a federated hypergradient.

Davoud Ataee Tarzanagh, Mingchen Li, Christos Thrampoulidis, Samet Oymak: FedNest: Federated Bilevel, Minimax, and
Compositional Optimization, ICML 2022. With f = mean_j f1_j, g = mean_j f2_j, a round is

    FedInn    epochs of: all send grad g_j(w); each takes steps y <- y - beta (grad g_j(y) - grad g_j(w) + grad g(w))
              from y = w; the master averages the y
    FedIHGP   u = eta sum_{i=0..n} (I - eta H)^i grad_w f, H the mean of the workers' Hessians of g_j in w: one exchange
              for each term, so that u is about H^-1 grad_w f of all workers together
    FedOut    a_j <- a_j - step (h_j - grad_a f_j(a_j^0) + grad_a f_j(a_j)) a few times from a_j^0, where
              h_j = grad_a f_j - (d2 g_j / da dw) u is the hypergradient

The bilevel form of robust coresets: level 3 and the attack of level 1 are folded into the losses, which are taken at
samples attacked anew in every epoch. Weights belong to the samples of one worker: FedOut has nothing to average, and
the hypergradient stays where it is. The series is the published code's, with the factor eta that it leaves out; the
paper draws one of its terms at random instead. Gradients are those of whole shards. Unconstrained as published, see
`soft_levels`; `project` is an addition. In floats: 4d an epoch, 2d a term, and 3d.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Generic, TypeVar

import torch
from torch import Tensor

from f2cto.descent import gradient, value_and_gradient
from f2cto.message import Ask, Message
from f2cto.methods.base import Coreset, Given, OnRound, Shard
from f2cto.methods.levels import Levels, Task
from f2cto.methods.soft_levels import Weighing, Weights, folded_task
from f2cto.trilevel.master import DivergedError, Round, Solution, Stopped, average

GRADIENT, TRAIN, TARGET, TERM, WEIGH = "gradient", "train", "target", "term", "weigh"
Shard_contra = TypeVar("Shard_contra", contravariant=True)


@dataclass(frozen=True)
class Nesting:
    """How often what is done in a round."""

    rounds: int = 25
    epochs: int = 1  # of FedInn
    inner_steps: int = 5  # of a worker in an epoch
    terms: int = 3  # of the series beyond the first
    eta: float = 0.05  # its step
    outer_steps: int = 1  # of a worker in FedOut

    def __post_init__(self) -> None:
        """Refuse rounds in which nothing moves."""
        if min(self.rounds, self.inner_steps, self.outer_steps) < 1 or min(self.epochs, self.terms) < 0:
            msg = f"FedNest needs rounds, inner_steps and outer_steps >= 1, epochs and terms >= 0; got {self}."
            raise ValueError(msg)
        if not self.eta > 0:
            msg = f"The series of FedNest needs a step eta > 0; got {self.eta}."
            raise ValueError(msg)


@dataclass(frozen=True, eq=False)
class Seen:
    """A model that a worker was sent, and what it is to the worker."""

    w: Tensor
    levels: Levels
    slope: Tensor  # grad g_j there


@dataclass(frozen=True, eq=False)
class State:
    """All a worker remembers. It never leaves the worker."""

    task: Task
    a: Tensor
    t: int = 0  # models seen
    seen: Seen | None = None


@dataclass(frozen=True)
class NestProgram(Generic[Shard_contra]):
    """Answers the phases of FedNest for any problem in two levels."""

    task: Callable[[Shard_contra], Task]
    how: Nesting

    def start(self, shard: Shard_contra) -> State:
        """The private state before the first message."""
        task = self.task(shard)
        return State(task, task.start[0])

    def run(self, phase: str, shard: Shard_contra, state: State, message: Message) -> tuple[State, Message]:  # noqa: ARG002
        """Answer one message; the vector in it is a model, a gradient or a term, as the phase says."""
        sent = message.vectors["w"]
        if phase in {GRADIENT, TARGET}:
            return self._arrived(phase, state, sent)
        if state.seen is None or phase not in {TRAIN, TERM, WEIGH}:
            msg = f"A worker of FedNest knows gradient and target, then train, term and weigh; got phase `{phase}`."
            raise ValueError(msg)
        if phase == TRAIN:
            return state, Message({"w": trained(state.task, state.a, state.seen, sent, self.how.inner_steps)})
        if phase == TERM:
            return state, Message({"w": sent - self.how.eta * second(state.a, state.seen, sent)[1]})
        objective, a = weighed(state.task, state.a, state.seen, sent, self.how.outer_steps)
        return replace(state, a=a), Message({}, {"objective": objective})

    def _arrived(self, phase: str, state: State, w: Tensor) -> tuple[State, Message]:
        """A model the worker has not seen: samples are attacked anew, and a gradient is sent back."""
        levels = state.task.levels(state.t, w)
        slope = slope_in_w(levels.f2 if phase == GRADIENT else levels.f1, state.a, w)
        return replace(state, t=state.t + 1, seen=Seen(w, levels, slope)), Message({"w": slope})


Objective = Callable[[Tensor, Tensor, tuple[Tensor, ...]], Tensor]


def slope_in_w(objective: Objective, a: Tensor, w: Tensor) -> Tensor:
    """The gradient of an objective in w."""
    return gradient(lambda v: objective(a, v, ()), w)


def trained(task: Task, a: Tensor, seen: Seen, mean: Tensor, steps: int) -> Tensor:
    """The worker's model after its steps of FedInn; `mean` is the gradient of g at w."""
    y = seen.w
    for _ in range(steps):
        own = seen.slope if y is seen.w else slope_in_w(seen.levels.f2, a, y)
        y = task.sets[1].project(y - task.steps[1] * (own - seen.slope + mean))
    return y


def weighed(task: Task, a: Tensor, seen: Seen, u: Tensor, steps: int) -> tuple[float, Tensor]:
    """The value of f_j before, and the worker's a after FedOut with the u of FedIHGP."""
    through_w = second(a, seen, u)[0]
    objective, direct = value_and_gradient(lambda v: seen.levels.f1(v, seen.w, ()), a)
    for number in range(steps):
        if number:  # the correction of FedOut: of the hypergradient, the direct part follows a
            direct = gradient(lambda v: seen.levels.f1(v, seen.w, ()), a)
        a = task.sets[0].project(a - task.steps[0] * (direct - through_w))
    return float(objective), a


@torch.enable_grad()
def second(a: Tensor, seen: Seen, v: Tensor) -> tuple[Tensor, Tensor]:
    """The derivatives of <grad_w g_j, v> in a and in w: mixed and plain second derivatives times v."""
    a, w = a.detach().requires_grad_(), seen.w.detach().requires_grad_()
    (slope,) = torch.autograd.grad(seen.levels.f2(a, w, ()), w, create_graph=True)
    in_a, in_w = torch.autograd.grad(slope, (a, w), v, materialize_grads=True)
    return in_a, in_w


def solve(ask: Ask, w: Tensor, how: Nesting, on_round: OnRound = lambda _: None) -> Solution:
    """The master's side. A round's objective is the mean of f_j, its gap how far the model moved, squared."""
    began, history = time.monotonic(), list[Round]()
    for number in range(1, how.rounds + 1):
        before = w
        for _ in range(how.epochs):
            mean = _mean(ask(GRADIENT, Message({"w": w})))
            w = _mean(ask(TRAIN, Message({"w": mean})))
        replies = ask(WEIGH, Message({"w": adjoint(ask, w, how)}))
        objective, gap = fmean(r.scalars["objective"] for r in replies), float((w - before).square().sum())
        if not math.isfinite(objective + gap):
            msg = f"The model became infinite or NaN in round {number}; lower the steps or eta."
            raise DivergedError(msg)
        history.append(Round(number, objective, gap, time.monotonic() - began, {}))
        on_round(history[-1])
    return Solution(w=w, history=tuple(history), stopped=Stopped.ITERATIONS)


def adjoint(ask: Ask, w: Tensor, how: Nesting) -> Tensor:
    """FedIHGP: eta sum_{i=0..n} (I - eta H)^i grad_w f, about H^-1 grad_w f."""
    term = total = _mean(ask(TARGET, Message({"w": w})))
    for _ in range(how.terms):
        term = _mean(ask(TERM, Message({"w": term})))
        total = total + term
    return how.eta * total


def _mean(replies: list[Message]) -> Tensor:
    return average([reply.vectors["w"] for reply in replies])


@dataclass(frozen=True)
class FednestSettings:
    """All of FedNest."""

    nesting: Nesting = field(default_factory=Nesting)
    model_step: float = 0.1  # beta
    attack_steps: int = 3
    project: bool = False  # keep weights on simplices and the model in a ball, which the published method does not
    weights: Weights = field(default_factory=Weights)


@dataclass(frozen=True)
class Fednest:
    """FedNest as a selector: the largest weights of every class are kept."""

    settings: FednestSettings
    given: Given

    def program(self) -> NestProgram[Shard]:
        """What runs at each worker."""
        return NestProgram(self._task, self.settings.nesting)

    def lead(self, ask: Ask, w: Tensor, on_round: OnRound) -> Solution:
        """The master's side."""
        return solve(ask, w, self.settings.nesting, on_round)

    def coreset(self, shard: Shard, state: State) -> Coreset:
        """The worker's choice."""
        return Weighing(shard, self.settings.weights, self.settings.project).coreset(state.a)

    def _task(self, shard: Shard) -> Task:
        s = self.settings
        return folded_task(shard, self.given, Weighing(shard, s.weights, s.project), s.model_step, s.attack_steps)
