"""What F2CTO-EF can be told, grouped by its stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from f2cto.hardware import Precision
from f2cto.methods.screening import Screening


class Target(StrEnum):
    """Whose mean gradient the picks of a class have to add up to."""

    ALL = "all"  # variant A: all samples of the class
    KEPT = "kept"  # variant B: those that passed the filter


@dataclass(frozen=True)
class Filtering(Screening):
    """Robust training on everything, which shows the samples that stay worse than chance."""

    rounds: int = 45
    since: int = 15
    rate: float = 0.1
    momentum: float = 0.9


@dataclass(frozen=True)
class Proxies:
    """The models whose gradients are matched."""

    count: int = 3
    steps: int = 20  # of robust training before
    rate: float = 0.5
    rho_2: float = 1.0  # the weight of the coreset's loss beside that of all samples
    radius: float = 0.0  # bound on the norm of all models' parameters; 0: twice their initial norm

    def __post_init__(self) -> None:
        """Refuse to match the gradients of no model."""
        if self.count < 1 or self.steps < 0:
            msg = f"Gradient matching needs at least 1 proxy and steps >= 0; got {self.count} and {self.steps}."
            raise ValueError(msg)


@dataclass(frozen=True)
class Feedback:
    """How places are filled."""

    sweeps: int = 1  # the first fills, the others refine
    slots: int = 1  # places of a class that a worker fills in its turn; 0: all
    probe: float = 0.5  # h, the length of the step by which losses show a gradient's direction

    def __post_init__(self) -> None:
        """Refuse to leave places empty."""
        if self.sweeps < 1 or self.slots < 0 or not self.probe > 0:
            msg = f"Places need sweeps >= 1, slots >= 0 and probe > 0; got {self.sweeps}, {self.slots}, {self.probe}."
            raise ValueError(msg)


@dataclass(frozen=True)
class Attacks:
    """Sign steps from zero, in all stages."""

    radius: float = -1.0  # below 0: that of the task
    steps: int = 3
    ramp: int = 20  # rounds until the full radius
    precision: Precision = Precision.AUTO  # the numbers that attacks are computed with


@dataclass(frozen=True)
class ErrorFeedbackSettings:
    """All of F2CTO-EF; `target` tells its variants A (all) and B (kept) apart."""

    target: Target = Target.KEPT
    balanced_union: bool = True  # false: each worker balances its own classes
    filtering: Filtering = field(default_factory=Filtering)
    proxies: Proxies = field(default_factory=Proxies)
    feedback: Feedback = field(default_factory=Feedback)
    attacks: Attacks = field(default_factory=Attacks)
