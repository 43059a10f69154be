"""What a constrained trilevel problem of the paper's shape is: four objectives and four sets per worker.

    level 1   min over alpha in A      of  f1(alpha, q, w, p)
    level 2   q in argmin over Q       of  f2_eval(alpha, q, w)
              w in argmin over W       of  the mean over workers of f2_train(alpha, w, p)
    level 3   p in argmin over P       of  f3(alpha, w, p)

`docs/paper.md` says under which conditions what the solver reaches is the solution of this problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from f2cto.constraints import ConstraintSet


@dataclass(frozen=True)
class Sets:
    """The feasible sets of one worker's variables."""

    A: ConstraintSet
    Q: ConstraintSet
    W: ConstraintSet
    P: ConstraintSet


class LocalProblem(Protocol):
    """One worker's share of a trilevel problem; it only evaluates, it never steps."""

    @property
    def sets(self) -> Sets:
        """The sets A, Q, W, P."""
        ...

    def f1(self, alpha: Tensor, q: Tensor, w: Tensor, p: Tensor) -> Tensor:
        """The first level's objective."""
        ...

    def f2_eval(self, alpha: Tensor, q: Tensor, w: Tensor) -> Tensor:
        """The second level's first objective, f2^(1), minimised over q."""
        ...

    def f2_train(self, alpha: Tensor, w: Tensor, p: Tensor) -> Tensor:
        """The second level's second objective, f2^(2), minimised over w."""
        ...

    def f3(self, alpha: Tensor, w: Tensor, p: Tensor) -> Tensor:
        """The third level's objective, minimised over p."""
        ...


@runtime_checkable
class Separable(Protocol):
    """A problem whose f2_eval and f3 are sums over samples, each with its own rows of alpha, q and p.

    Refining one part of the samples after the other is then the same as refining all at once, and what a part needs
    stays in the processor's cache over all steps.
    """

    def parts(self) -> Sequence[tuple[slice, LocalProblem]]:
        """The problem of each part, and which rows it has."""
        ...


@dataclass(frozen=True)
class Point:
    """A value for each of a worker's variables."""

    alpha: Tensor
    q: Tensor
    w: Tensor
    p: Tensor


@dataclass(frozen=True)
class Refined:
    """The refined points behind the value functions; they are constants wherever a gradient is taken."""

    p_star: Tensor
    q_star: Tensor
    w_hat: Tensor
    p_hat: Tensor


def objective(problems: Sequence[LocalProblem], at: Sequence[Point]) -> Tensor:
    """What the first level minimises, Eq. (1): the mean over workers of f1."""
    return torch.stack([problem.f1(u.alpha, u.q, u.w, u.p) for problem, u in zip(problems, at, strict=True)]).mean()
