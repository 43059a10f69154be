"""What F2CTO on the K-sparse face can be told, and how much work each effort is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from f2cto.methods.f2cto.proposers import Proposal, Space
from f2cto.methods.quotas import Balance


class Effort(StrEnum):
    """How much may be spent on a choice."""

    QUICK = "quick"
    NORMAL = "normal"


@dataclass(frozen=True)
class Rung:
    """One stage of successive halving: the candidates that are left are trained on and judged."""

    candidates: int  # that enter, the best so far
    steps: int  # of training, at each worker
    rounds: int
    judged: int  # samples of all workers that each candidate is judged on
    attack: int  # steps


@dataclass(frozen=True)
class Plan:
    """What an effort stands for."""

    proposals: tuple[Proposal, ...]
    rungs: tuple[Rung, ...]


FEW = (
    Proposal("medoids", Space.GRADIENTS, 0.8),
    Proposal("spread", Space.GRADIENTS),
    Proposal("medoids", share=0.8),
    Proposal("medoids", share=0.6),
    Proposal("random"),
)
MANY = (
    *FEW,
    Proposal("spread", Space.GRADIENTS, 0.8),
    Proposal("medoids"),
    Proposal("medoids", share=0.8, balance=Balance.EVEN),
    Proposal("medoids", Space.BOTH, 0.8),
    Proposal("medoids", Space.FEATURES, 0.8),
    Proposal("herding"),
    Proposal("easiest"),
)
PLANS: Mapping[Effort, Plan] = MappingProxyType(
    {
        Effort.QUICK: Plan(FEW, (Rung(5, 60, 5, 600, 1),)),
        Effort.NORMAL: Plan(MANY, (Rung(12, 100, 4, 1000, 2), Rung(5, 150, 6, 1000, 3), Rung(2, 300, 8, 1000, 3))),
    }
)


@dataclass(frozen=True)
class SparseSettings:
    """Of the search for a coreset on the K-sparse face."""

    effort: Effort = Effort.NORMAL
    epochs: int = 6  # of training on everything
    rounds: int = 6  # in which its parameters are averaged
    snapshots: tuple[float, ...] = (0.25, 0.5, 1.0)  # shares of that training after which gradients are matched
    attacked: bool = True  # false: no attacks inside the method
    turn: int = 10  # workers that train on candidates in one round, where there are more

    def __post_init__(self) -> None:
        """Validate the fields."""
        if min(self.epochs, self.rounds, self.turn) < 1 or not self.snapshots:
            msg = f"The search needs epochs, rounds and turn >= 1 and at least one snapshot; got {self}."
            raise ValueError(msg)
        if not all(0 < share <= 1 for share in self.snapshots):
            msg = f"Snapshots are shares of the training, above 0 and at most 1; got {self.snapshots}."
            raise ValueError(msg)
