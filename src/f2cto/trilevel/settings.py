"""What the solver can be told, grouped by meaning; every value is checked where it is made."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum

from f2cto.descent import Rule, plain


@dataclass(frozen=True)
class StepSizes:
    """The lengths of the steps. The paper has one for w and w^; the lock-step recipe needs two."""

    alpha: float
    q: float
    w: float
    p: float
    w_hat: float

    def __post_init__(self) -> None:
        """Refuse steps that go backwards."""
        _check_not_negative("step size", self)


@dataclass(frozen=True)
class Penalties:
    """The weights of the value-function constraints in Eq. (10), and phi of g2."""

    rho_1: float = 1.0
    rho_2: float = 1.0
    rho_3: float = 1.0
    phi: float = 1.0

    def __post_init__(self) -> None:
        """Refuse penalties that reward breaking a constraint."""
        _check_not_negative("penalty", self)


class Start(StrEnum):
    """Where the refinements of p* and q*, Eqs. (7) and (8), start in each iteration."""

    ZERO = "zero"  # no perturbation
    RANDOM = "random"  # anywhere in the set
    PREVIOUS = "previous"  # the refined point of the iteration before
    CURRENT = "current"  # the variable itself, p^t or q^t


@dataclass(frozen=True)
class Rules:
    """How a gradient becomes a direction. `plain` everywhere is the letter of the paper and what Theorem 1 is about."""

    alpha: Rule = plain  # applied to the penalty's part of the gradient; f1's own part is taken as it is
    q: Rule = plain
    p: Rule = plain


@dataclass(frozen=True)
class Hat:
    """How w^, p^ follow w, p: Eq. (9) and what the paper leaves open about it.

    Every `sync_every` iterations (0: only in the first) w^, p^ restart from w, p. `waits` lets them rest in that
    iteration, so that later w and w^ have always made the same number of steps since they were equal ("lock-step").
    The letter of the paper is `Hat(steps=1, sync_every=1, waits=False)`.
    """

    steps: int = 1
    sync_every: int = 1
    waits: bool = False

    def __post_init__(self) -> None:
        """Refuse counts that make no sense."""
        if self.steps < 0 or self.sync_every < 0:
            msg = f"Steps and sync_every of w^ must be >= 0; got {self.steps} and {self.sync_every}."
            raise ValueError(msg)
        if self.waits and self.sync_every == 1:
            msg = "With sync_every = 1 a w^ that waits would never leave w; use waits = false or sync_every >= 2."
            raise ValueError(msg)

    def syncs(self, t: int) -> bool:
        """Whether w^, p^ restart from w, p in iteration t."""
        return t == 0 if self.sync_every == 0 else t % self.sync_every == 0


@dataclass(frozen=True)
class Rest:
    """When level 1 does not move."""

    frozen: bool = False  # not in this iteration: before `until`, or never (the lower-bilevel variant)
    until: int = 0  # the first iteration in which alpha may move; the mean of alpha begins there
    listens: bool = False  # whether what each weight costs is added up in this iteration


@dataclass(frozen=True)
class Settings:
    """Everything Algorithm 1 leaves to choose on a worker.

    `exact` keeps p, q, p^ at the refined maximisers p*, q*, p* instead of letting them take the steps of Eqs. (12),
    (14) and (9): the penalty terms of rho_1, rho_3 and phi are then zero, and their values do not matter.

    `interior` moves alpha that far towards the centre of A where p* is refined. Where alpha_k = 0 every p_k minimises
    f3, and a refinement would leave p*_k where it started; the samples not yet chosen would be judged unattacked
    beside attacked ones. A little weight picks the minimiser that alpha_k -> 0 leads to.

    `shared_refinement` lets p* be q*. That is exact where both refinements are the same computation: the losses
    separate over samples, P = Q, steps are sign steps. Where alpha_k = 0 for good it only decides what f3 leaves open.
    """

    eta: StepSizes
    penalties: Penalties = field(default_factory=Penalties)
    steps: int = 10  # R
    start: Start = Start.ZERO
    hat: Hat = field(default_factory=Hat)
    rules: Rules = field(default_factory=Rules)
    exact: bool = False
    interior: float = 0.0
    shared_refinement: bool = False
    rest: Rest = field(default_factory=Rest)

    def __post_init__(self) -> None:
        """Refuse a refinement of negative length."""
        if self.steps < 0:
            msg = f"The number of refinement steps R must be >= 0; got {self.steps}."
            raise ValueError(msg)
        if not 0 <= self.interior <= 1:
            msg = f"`interior` is a share between 0 and 1; got {self.interior}."
            raise ValueError(msg)


@dataclass(frozen=True)
class Stopping:
    """When Algorithm 1 ends: after T iterations, at an epsilon-stationary point (Definition 2), or out of time."""

    iterations: int
    tolerance: float = 0.0  # epsilon; 0 never stops early
    seconds: float = 0.0  # 0 has no limit

    def __post_init__(self) -> None:
        """Refuse a run that could not even begin."""
        if self.iterations < 1:
            msg = f"The solver needs at least 1 iteration; got {self.iterations}."
            raise ValueError(msg)
        _check_not_negative("stopping value", self)


def _check_not_negative(kind: str, group: StepSizes | Penalties | Stopping) -> None:
    for f in fields(group):
        if not getattr(group, f.name) >= 0:
            msg = f"The {kind} `{f.name}` must be a number >= 0; got {getattr(group, f.name)}."
            raise ValueError(msg)
