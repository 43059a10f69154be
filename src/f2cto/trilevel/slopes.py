"""Every gradient that Eqs. (7)-(14) need: what they are, and how autograd finds them from the definitions.

`Autograd` is the readable form: each slope is the gradient of the one expression that the paper prints. A problem that
knows a shorter way offers its own `slopes` (for robust coresets: `sample_slopes.py`); tests hold it to this one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from f2cto.descent import gradient, value_and_gradient
from f2cto.trilevel.penalty import penalised, penalty
from f2cto.trilevel.problem import LocalProblem, Point, Refined, Sets
from f2cto.trilevel.settings import Penalties
from f2cto.trilevel.values import g2


class AlphaSlopes(NamedTuple):
    """The two parts of L_i's gradient in alpha."""

    own: Tensor  # of f1
    lower: Tensor  # of the penalty: what the lower levels say


class Slopes(Protocol):
    """The gradients of one worker's objectives, at any point."""

    def f3_p(self, at: Point) -> Tensor:
        """Of f3 in p, Eq. (7)."""
        ...

    def f2_eval_q(self, at: Point) -> Tensor:
        """Of f2_eval in q, Eq. (8)."""
        ...

    def f2_train_alpha(self, at: Point) -> Tensor:
        """Of f2_train in alpha: what a unit of each weight costs; for coresets the loss of each sample."""
        ...

    def g2_p(self, at: Point, p_star: Tensor, phi: float) -> Tensor:
        """Of g2 in p, Eq. (9)."""
        ...

    def g2_w(self, at: Point, p_star: Tensor, phi: float) -> Tensor:
        """Of g2 in w, Eq. (9)."""
        ...

    def alpha(self, at: Point, known: Refined, c: Penalties) -> AlphaSlopes:
        """Of L_i in alpha, Eq. (11)."""
        ...

    def q(self, at: Point, known: Refined, c: Penalties) -> Tensor:
        """Of L_i in q, Eq. (12)."""
        ...

    def w(self, at: Point, known: Refined, c: Penalties) -> tuple[float, Tensor]:
        """Of L_i in w, Eq. (13), with the value of L_i."""
        ...

    def p(self, at: Point, known: Refined, c: Penalties) -> Tensor:
        """Of L_i in p, Eq. (14)."""
        ...

    def metrics(self) -> dict[str, float]:
        """Scalars about the passes made so far, at no further cost."""
        ...


@runtime_checkable
class OffersSlopes(Protocol):
    """A problem that knows a shorter way to its gradients."""

    def slopes(self) -> Slopes:
        """Its own slopes, fresh for one phase of one iteration."""
        ...


def slopes_of(problem: LocalProblem) -> Slopes:
    """The problem's own slopes if it offers them, else autograd's."""
    return problem.slopes() if isinstance(problem, OffersSlopes) else Autograd(problem)


@dataclass(frozen=True)
class Autograd:
    """The readable form, for any problem."""

    problem: LocalProblem

    def f3_p(self, at: Point) -> Tensor:
        """The gradient of f3 in p."""
        return gradient(lambda v: self.problem.f3(at.alpha, at.w, v), at.p)

    def f2_eval_q(self, at: Point) -> Tensor:
        """The gradient of f2_eval in q."""
        return gradient(lambda v: self.problem.f2_eval(at.alpha, v, at.w), at.q)

    def f2_train_alpha(self, at: Point) -> Tensor:
        """The gradient of f2_train in alpha."""
        return gradient(lambda v: self.problem.f2_train(v, at.w, at.p), at.alpha)

    def g2_p(self, at: Point, p_star: Tensor, phi: float) -> Tensor:
        """The gradient of g2 in p."""
        return gradient(lambda v: g2(self.problem, replace(at, p=v), p_star, phi), at.p)

    def g2_w(self, at: Point, p_star: Tensor, phi: float) -> Tensor:
        """The gradient of g2 in w."""
        return gradient(lambda v: g2(self.problem, replace(at, w=v), p_star, phi), at.w)

    def alpha(self, at: Point, known: Refined, c: Penalties) -> AlphaSlopes:
        """The gradients of f1 and of the penalty in alpha."""
        return AlphaSlopes(
            own=gradient(lambda v: self.problem.f1(v, at.q, at.w, at.p), at.alpha),
            lower=gradient(lambda v: penalty(self.problem, replace(at, alpha=v), known, c), at.alpha),
        )

    def q(self, at: Point, known: Refined, c: Penalties) -> Tensor:
        """The gradient of L_i in q."""
        return gradient(lambda v: penalised(self.problem, replace(at, q=v), known, c), at.q)

    def w(self, at: Point, known: Refined, c: Penalties) -> tuple[float, Tensor]:
        """The value of L_i and its gradient in w."""
        value, slope = value_and_gradient(lambda v: penalised(self.problem, replace(at, w=v), known, c), at.w)
        return float(value), slope

    def p(self, at: Point, known: Refined, c: Penalties) -> Tensor:
        """The gradient of L_i in p."""
        return gradient(lambda v: penalised(self.problem, replace(at, p=v), known, c), at.p)

    def metrics(self) -> dict[str, float]:
        """Nothing is known about a problem's passes."""
        return {}


@dataclass(frozen=True, eq=False)
class Readable:
    """A problem that hides its short way, so that the solver goes by the definitions: the oracle of the fast form."""

    problem: LocalProblem

    @property
    def sets(self) -> Sets:
        """The problem's sets."""
        return self.problem.sets

    def f1(self, alpha: Tensor, q: Tensor, w: Tensor, p: Tensor) -> Tensor:
        """The problem's f1."""
        return self.problem.f1(alpha, q, w, p)

    def f2_eval(self, alpha: Tensor, q: Tensor, w: Tensor) -> Tensor:
        """The problem's f2_eval."""
        return self.problem.f2_eval(alpha, q, w)

    def f2_train(self, alpha: Tensor, w: Tensor, p: Tensor) -> Tensor:
        """The problem's f2_train."""
        return self.problem.f2_train(alpha, w, p)

    def f3(self, alpha: Tensor, w: Tensor, p: Tensor) -> Tensor:
        """The problem's f3."""
        return self.problem.f3(alpha, w, p)
