"""Trilevel problems small enough to be solved on paper: quadratics with a known answer, and a smooth wavy one.

Both have the paper's robust shape: f3 = -f2_train and f2_eval = -(the part of f1 that q enters). In Eq. (10) the loss
then has the factor 1 - rho_1 in q, rho_2 - rho_3 in p, and 1 - phi in p^, so rho_1 > 1, rho_3 > rho_2 and phi > 1 make
q, p and p^ exactly q*, p* and p*: the two attacks carry no penalty bias. What bias is left comes from rho_2 alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from f2cto.constraints import L2Ball, LinfBall, Simplex
from f2cto.trilevel.problem import Point, Sets


@dataclass(frozen=True, eq=False)
class Upper:
    """Worker i's data of level 1."""

    alpha: Tensor  # e_i: where level 1 wants alpha      (k,)
    w: Tensor  # d_i: where it wants w                   (d,)
    mix: Tensor  # T_i                                   (m, d)
    push: Tensor  # g_i                                  (m,)


@dataclass(frozen=True, eq=False)
class Lower:
    """Worker i's data of levels 2 and 3."""

    x: Tensor  # X_i, invertible                         (d, d)
    c: Tensor  # C_i                                     (d, k)
    b: Tensor  # b_i                                     (d,)
    mix: Tensor  # S_i                                   (m, d)
    push: Tensor  # s_i                                  (m,)


@dataclass(frozen=True, eq=False)
class QuadraticTrilevel:
    """Worker i's share of a trilevel quadratic.

    f1       = 1/2 |alpha - e|^2 + judge(q, w),   judge = 1/2 |w - d|^2 + q'(T w + g) - 1/2 |q|^2
    f2_eval  = -judge(q, w),                      so that q* = P_Q(T w + g)
    f2_train = 1/2 |X w - C alpha - b|^2 + p'(S w + s) - 1/2 |p|^2
    f3       = -f2_train,                         so that p* = P_P(S w + s)

    f2_eval and f3 are strongly convex in q and p, f2_train is in w. With q = q* and p = p*, f1 is strongly convex in
    (alpha, w) and f2_train in w: a maximum over q or p of functions convex in w is convex.
    """

    upper: Upper
    lower: Lower
    sets: Sets

    def f1(self, alpha: Tensor, q: Tensor, w: Tensor, p: Tensor) -> Tensor:
        return _half(alpha - self.upper.alpha) + self.judge(q, w)

    def f2_eval(self, alpha: Tensor, q: Tensor, w: Tensor) -> Tensor:
        return -self.judge(q, w)

    def f2_train(self, alpha: Tensor, w: Tensor, p: Tensor) -> Tensor:
        return _half(self.misfit(alpha, w)) + _attack(p, self.lower.mix @ w + self.lower.push)

    def f3(self, alpha: Tensor, w: Tensor, p: Tensor) -> Tensor:
        return -self.f2_train(alpha, w, p)

    def judge(self, q: Tensor, w: Tensor) -> Tensor:
        """The robust loss of level 1."""
        return _half(w - self.upper.w) + _attack(q, self.upper.mix @ w + self.upper.push)

    def misfit(self, alpha: Tensor, w: Tensor) -> Tensor:
        """X w - C alpha - b."""
        return self.lower.x @ w - self.lower.c @ alpha - self.lower.b

    def answer(self, alpha: Tensor, w: Tensor) -> Point:
        """(alpha, q*(w), w, p*(w))."""
        q = self.sets.Q.project(self.upper.mix @ w + self.upper.push)
        return Point(alpha=alpha, q=q, w=w, p=self.sets.P.project(self.lower.mix @ w + self.lower.push))

    def judging_slope(self, at: Point) -> Tensor:
        """The gradient of f1 in w."""
        return at.w - self.upper.w + self.upper.mix.T @ at.q

    def training_slope(self, at: Point) -> Tensor:
        """The gradient of f2_train in w."""
        return self.lower.x.T @ self.misfit(at.alpha, at.w) + self.lower.mix.T @ at.p


def _half(v: Tensor) -> Tensor:
    """1/2 |v|^2."""
    return 0.5 * (v @ v)


def _attack(by: Tensor, on: Tensor) -> Tensor:
    """What a perturbation adds to a loss: by'on - 1/2 |by|^2, at its largest where by = on."""
    return by @ (on - 0.5 * by)


@dataclass(frozen=True, eq=False)
class SmoothTrilevel:
    """Worker i's share of a smooth problem convex at no level but the attacks': what Theorem 1 is about.

    f1       = mean_k h(x_k'w - y_k) + q'tanh(T w) - 1/2 |q|^2 + 1/2 sum_k sin(2 alpha_k + theta_k)
    f2_eval  = -(the terms of f1 with q or w),   q* = P_Q(tanh(T w))
    f2_train = sum_k alpha_k h(x_k'w - y_k) + p'tanh(S w) - 1/2 |p|^2
    f3       = -f2_train,                        p* = P_P(tanh(S w))

    with h(s) = -cos s. All sets are compact: alpha on the simplex, w in an l2 ball, q and p in l-infinity balls.
    """

    x: Tensor  # (M, d)
    y: Tensor  # (M,)
    theta: Tensor  # (M,)
    judge_mix: Tensor  # T  (m, d)
    train_mix: Tensor  # S  (m, d)
    sets: Sets

    def f1(self, alpha: Tensor, q: Tensor, w: Tensor, p: Tensor) -> Tensor:
        return 0.5 * torch.sin(2 * alpha + self.theta).sum() - self.f2_eval(alpha, q, w)

    def f2_eval(self, alpha: Tensor, q: Tensor, w: Tensor) -> Tensor:
        return -self._losses(w).mean() - _attack(q, torch.tanh(self.judge_mix @ w))

    def f2_train(self, alpha: Tensor, w: Tensor, p: Tensor) -> Tensor:
        return alpha @ self._losses(w) + _attack(p, torch.tanh(self.train_mix @ w))

    def f3(self, alpha: Tensor, w: Tensor, p: Tensor) -> Tensor:
        return -self.f2_train(alpha, w, p)

    def attacks(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """(q*, p*), the lower levels' exact answers."""
        q = self.sets.Q.project(torch.tanh(self.judge_mix @ w))
        return q, self.sets.P.project(torch.tanh(self.train_mix @ w))

    def _losses(self, w: Tensor) -> Tensor:
        return -torch.cos(self.x @ w - self.y)


def smooth_workers(workers: int, rng: Generator) -> list[SmoothTrilevel]:
    """A federation of unlike workers: M = 8 samples each, d = 6, m = 5; each has inputs of its own scale.

    Rows of x have norm at most 1, those of T and S norm 1/2. That and the slow waves of f1 and h keep the Lipschitz
    constant L of the gradient of Eq. (10) at two to three, since Theorem 1 speaks of T >= L^3 only.
    """
    scales = torch.linspace(0.5, 1.0, workers, dtype=torch.float64)
    return [_smooth_worker(float(scale), rng) for scale in scales]


def _smooth_worker(scale: float, rng: Generator) -> SmoothTrilevel:
    samples, d, m = 8, 6, 5
    return SmoothTrilevel(
        x=scale * unit_rows(rng, samples, d),
        y=2 * normal(rng, samples),
        theta=math.tau * torch.rand(samples, generator=rng, dtype=torch.float64),
        judge_mix=0.5 * unit_rows(rng, m, d),
        train_mix=0.5 * unit_rows(rng, m, d),
        sets=Sets(A=Simplex(), Q=LinfBall(0.3), W=L2Ball(3.0), P=LinfBall(0.3)),
    )


def smooth_start(problems: Sequence[SmoothTrilevel], rng: Generator) -> list[Point]:
    """A start far from rest: w on the sphere that bounds W, all weight on one sample, q and p at corners of Q and P."""
    w = problems[0].sets.W.project(1e6 * normal(rng, problems[0].x.shape[1]))
    return [
        Point(
            alpha=problem.sets.A.project(1e6 * normal(rng, problem.x.shape[0])),
            q=problem.sets.Q.project(1e6 * normal(rng, problem.judge_mix.shape[0])),
            w=w,
            p=problem.sets.P.project(1e6 * normal(rng, problem.train_mix.shape[0])),
        )
        for problem in problems
    ]


def normal(rng: Generator, *shape: int) -> Tensor:
    """Standard normal numbers in double precision."""
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


def unit_rows(rng: Generator, rows: int, columns: int) -> Tensor:
    """A matrix whose rows have norm 1 and any direction."""
    return torch.nn.functional.normalize(normal(rng, rows, columns), dim=1)
