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

from f2cto.message import Ask, Message
from f2cto.randomness import generator
from f2cto.selectors.attacked import attacked
from f2cto.selectors.base import Coreset, Given, OnRound, Shard
from f2cto.selectors.levels import Levels, Task
from f2cto.selectors.soft_levels import SoftLevels, Weighing, Weights, largest, model_onto
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
class State:
    """All a worker remembers. It never leaves the worker."""

    task: Task
    a: Tensor
    t: int = 0  # epochs and rounds so far
    w: Tensor | None = None  # as last received ...
    slope: Tensor | None = None  # ... and grad g_j there
    levels: Levels | None = None


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
        """Answer one message."""
        sent = message.vectors["w"]
        match phase:
            case "gradient":
                state = arrived(state, sent)
                assert state.levels is not None  # noqa: S101  (just made)
                slope = slope_in_w(state.levels.f2, state.a, sent)
                return replace(state, slope=slope), Message({"w": slope})
            case "train":
                return state, Message({"w": trained(state, sent, self.how.inner_steps)})
            case "target":
                state = arrived(state, sent)
                assert state.levels is not None  # noqa: S101
                return state, Message({"w": slope_in_w(state.levels.f1, state.a, sent)})
            case "term":
                return state, Message({"w": sent - self.how.eta * hessian_product(state, sent)})
            case "weigh":
                objective, a = weighed(state, sent, self.how.outer_steps)
                return replace(state, a=a), Message({}, {"objective": objective})
        msg = f"A worker of FedNest knows gradient, train, target, term and weigh; got phase `{phase}`."
        raise ValueError(msg)


Objective = Callable[[Tensor, Tensor, tuple[Tensor, ...]], Tensor]


def arrived(state: State, w: Tensor) -> State:
    """The worker with a model it has not seen: samples are attacked anew."""
    return replace(state, w=w, t=state.t + 1, levels=state.task.levels(state.t, w))


def slope_in_w(objective: Objective, a: Tensor, w: Tensor) -> Tensor:
    """The gradient of an objective in w."""
    w = w.detach().requires_grad_()
    with torch.enable_grad():
        value = objective(a, w, ())
    return torch.autograd.grad(value, w, materialize_grads=True)[0]


def slope_in_a(objective: Objective, a: Tensor, w: Tensor) -> tuple[float, Tensor]:
    """The value of an objective and its gradient in a."""
    a = a.detach().requires_grad_()
    with torch.enable_grad():
        value = objective(a, w, ())
    return float(value.detach()), torch.autograd.grad(value, a, materialize_grads=True)[0]


def trained(state: State, mean: Tensor, steps: int) -> Tensor:
    """The worker's model after its steps of FedInn with the mean gradient at w."""
    assert state.w is not None  # noqa: S101  (`gradient` comes before `train`)
    assert state.slope is not None  # noqa: S101
    assert state.levels is not None  # noqa: S101
    y, beta, onto = state.w, state.task.steps[1], state.task.sets[1]
    for number in range(steps):
        own = state.slope if number == 0 else slope_in_w(state.levels.f2, state.a, y)
        y = onto.project(y - beta * (own - state.slope + mean))
    return y


@torch.enable_grad()
def hessian_product(state: State, v: Tensor) -> Tensor:
    """The Hessian of g_j in w times v."""
    return _second(state, v)[1]


def weighed(state: State, u: Tensor, steps: int) -> tuple[float, Tensor]:
    """The value of f_j and the worker's weights after FedOut with u from FedIHGP."""
    assert state.levels is not None  # noqa: S101
    assert state.w is not None  # noqa: S101
    a, eta, onto = state.a, state.task.steps[0], state.task.sets[0]
    through_w = _second(state, u)[0]
    objective, direct = slope_in_a(state.levels.f1, a, state.w)
    for number in range(steps):
        now = direct if number == 0 else slope_in_a(state.levels.f1, a, state.w)[1]
        a = onto.project(a - eta * (now - through_w))
    return objective, a


@torch.enable_grad()
def _second(state: State, v: Tensor) -> tuple[Tensor, Tensor]:
    """The derivatives of <grad_w g_j, v> in a and in w."""
    assert state.levels is not None  # noqa: S101
    assert state.w is not None  # noqa: S101
    a, w = state.a.detach().requires_grad_(), state.w.detach().requires_grad_()
    (slope,) = torch.autograd.grad(state.levels.f2(a, w, ()), w, create_graph=True)
    in_a, in_w = torch.autograd.grad(slope, (a, w), v, materialize_grads=True)
    return in_a, in_w
