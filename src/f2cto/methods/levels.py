"""What a problem in two or three levels is to a general federated solver: objectives, and a worker's variables.

    level 1   min over the a_j         of  sum_j f1_j(a_j, w, z_j)
    level 2   w in argmin              of  sum_j f2_j(a_j, w, z_j)       shared by all workers
    level 3   z_j in argmin            of  f3_j(a_j, w, z_j)

The published forms have one a and one z for all workers, with copies that must agree. Where a_j and z_j belong to the
samples of worker j there is nothing to agree on but w; that is the form taken here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from f2cto.constraints import ConstraintSet
from f2cto.methods.cuts import Values


class Levels(Protocol):
    """Three scalar objectives of a worker's upper variables, a model, and its lower variables."""

    def f1(self, a: Tensor, w: Tensor, z: Values, /) -> Tensor:
        """What level 1 minimises over a."""
        ...

    def f2(self, a: Tensor, w: Tensor, z: Values, /) -> Tensor:
        """What level 2 minimises over w, summed over workers."""
        ...

    def f3(self, a: Tensor, w: Tensor, z: Values, /) -> Tensor:
        """What level 3 minimises over z."""
        ...


@dataclass(frozen=True, eq=False)
class Task:
    """What a shard is to a solver: objectives, and where and how far its variables move."""

    number: int  # the worker's
    start: Values  # a and *z; w comes from the master
    levels: Callable[[int, Tensor], Levels]  # in the worker's t-th step, at the model w
    steps: tuple[float, ...]  # of a, w, *z
    sets: tuple[ConstraintSet, ...]  # of a, w, *z
    lower_step: float = 0.0  # of the steps towards level 3's answer
    lower_steps: int = 1
    seed: int = 0


def projected(task: Task, at: Values) -> Values:
    """The values of a, w, *z, each brought into its set."""
    return tuple(onto.project(block) for onto, block in zip(task.sets, at, strict=True))
