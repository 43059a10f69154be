"""The loop of the method: lower steps inside middle steps inside upper steps, as a pure function between states."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from f2cto.constraints import ConstraintSet, WholeSpace
from f2cto.hypergradient.adjoint import Adjoints, hypergradient, middle_gradient
from f2cto.hypergradient.problem import Lowers, Point, Trilevel


@dataclass(frozen=True)
class StepSizes:
    """The lengths of the steps."""

    x: float
    y: float
    z: float

    def __post_init__(self) -> None:
        """Refuse steps that go backwards."""
        for name, value in vars(self).items():
            if not value >= 0:
                msg = f"The step size `{name}` must be a number >= 0; got {value}."
                raise ValueError(msg)


@dataclass(frozen=True)
class Sets:
    """Where iterates are projected; the published method is unconstrained, and so is the default."""

    x: ConstraintSet = field(default_factory=WholeSpace)
    y: ConstraintSet = field(default_factory=WholeSpace)
    z: tuple[ConstraintSet, ...] = ()  # one per block; none leaves all blocks free

    def project_z(self, z: Lowers) -> Lowers:
        """Each block on its own set."""
        return tuple(onto.project(block) for onto, block in zip(self.z, z, strict=True)) if self.z else z


@dataclass(frozen=True)
class Settings:
    """Everything the method leaves to choose."""

    eta: StepSizes
    adjoints: Adjoints = field(default_factory=Adjoints)
    middle_steps: int = 1  # J
    lower_steps: int = 10  # I
    sets: Sets = field(default_factory=Sets)

    def __post_init__(self) -> None:
        """Refuse negative counts."""
        if self.middle_steps < 0 or self.lower_steps < 0:
            msg = f"Numbers of steps must be >= 0; got {self.middle_steps} (middle) and {self.lower_steps} (lower)."
            raise ValueError(msg)


@dataclass(frozen=True, eq=False)
class State:
    """What one iteration hands to the next."""

    t: int
    at: Point


def start(at: Point, settings: Settings) -> State:
    """The state before the first iteration: the point, brought into the sets."""
    sets = settings.sets
    return State(0, Point(sets.x.project(at.x), sets.y.project(at.y), sets.project_z(at.z)))


def step(problem: Trilevel, state: State, settings: Settings) -> State:
    """One iteration: J times (I lower steps, one middle step), I lower steps, one upper step."""
    at = state.at
    for _ in range(settings.middle_steps):
        at = replace(at, z=lower_steps(problem, at, settings))
        at = replace(at, y=middle_step(problem, at, settings))
    at = replace(at, z=lower_steps(problem, at, settings))
    return State(state.t + 1, replace(at, x=upper_step(problem, at, settings)))


def lower_steps(problem: Trilevel, at: Point, settings: Settings) -> Lowers:
    """I projected gradient steps on f3 in all blocks of z."""
    z = at.z
    for _ in range(settings.lower_steps):
        slopes = _gradients(problem, replace(at, z=z))
        z = settings.sets.project_z(tuple(b - settings.eta.z * g for b, g in zip(z, slopes, strict=True)))
    return z


def middle_step(problem: Trilevel, at: Point, settings: Settings) -> Tensor:
    """One projected step of y against formula (A)."""
    slope = middle_gradient(problem, at, settings.adjoints.lower)
    return settings.sets.y.project(at.y - settings.eta.y * slope)


def upper_step(problem: Trilevel, at: Point, settings: Settings) -> Tensor:
    """One projected step of x against formula (B)."""
    slope = hypergradient(problem, at, settings.adjoints)
    return settings.sets.x.project(at.x - settings.eta.x * slope)


def _gradients(problem: Trilevel, at: Point) -> tuple[Tensor, ...]:
    """f3_z."""
    z = tuple(block.detach().requires_grad_() for block in at.z)
    with torch.enable_grad():
        value = problem.f3(at.x.detach(), at.y.detach(), z)
    return torch.autograd.grad(value, z, materialize_grads=True)
