"""Trilevel quadratics whose answer is known, each with settings under which Algorithm 1 has that answer as its end.

What Algorithm 1 converges to need not be the trilevel solution. Four causes, and what each case does about them:

1. Penalty bias. Where level 1 still wants another w than level 2 gives it, Eq. (10) ends O(1/rho_2) away. `interior`,
   `disagreeing` and `boundary` have no such pull, hence no bias at any rho_2; `pulled` has it and bounds it.
2. Eq. (14) moves p at the worker's own step P_W(w_i), not at the shared w. At rest w_i - w = -eta_w grad L_i, so p is
   O(eta_w) off p* unless each worker's own gradient vanishes (`interior`), or P pins p (`boundary`, `pulled`), or p is
   kept at p* (`disagreeing`, the exact form).
3. Eq. (9) projects each worker's w^ before they are averaged. At the edge of a ball the mean of projections is not the
   projection of the mean, unless all workers push straight outwards there (`boundary`).
4. g2 takes V3 at the p* refined for w, not for w^. Where p* varies with w this leaves an error of the size of w - w^,
   which rho_2 multiplies back to O(1): with a pull, an answer is only reached where P pins p (`pulled`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from f2cto.constraints import L2Ball, LinfBall, WholeSpace
from f2cto.trilevel.problem import Point, Sets
from f2cto.trilevel.settings import Hat, Penalties, Settings, Start, StepSizes
from testing.problems import Lower, QuadraticTrilevel, Upper, normal, unit_rows

N, K, D, M = 3, 3, 4, 3  # workers, and the lengths of alpha_i, w, and q_i or p_i
LETTER = Settings(
    eta=StepSizes(alpha=0.4, q=0.4, w=0.4, p=0.4, w_hat=0.4),
    penalties=Penalties(rho_1=2.0, rho_2=1.0, rho_3=2.0, phi=2.0),
    steps=2,
    start=Start.PREVIOUS,
    hat=Hat(steps=1, sync_every=1, waits=False),
)


@dataclass(frozen=True)
class Known:
    """A problem, its answer, and settings that lead there up to `bias`."""

    problems: list[QuadraticTrilevel]
    answer: list[Point]
    settings: Settings
    bias: float = 0.0  # a bound on how far the end of Algorithm 1 is from the answer, in any coordinate of alpha or w

    def start(self, rng: Generator) -> list[Point]:
        """Anywhere: normal draws of deviation 2, brought into the sets; w is shared."""
        w = self.problems[0].sets.W.project(2 * normal(rng, D))
        return [
            Point(
                alpha=problem.sets.A.project(2 * normal(rng, K)),
                q=problem.sets.Q.project(2 * normal(rng, M)),
                w=w,
                p=problem.sets.P.project(2 * normal(rng, M)),
            )
            for problem in self.problems
        ]


def interior(rng: Generator) -> Known:
    """No constraint bites, and each worker alone would be content with the answer; the letter of the paper.

    With A, Q, W, P the whole space, the second level's answer to alpha = e is the w where the mean over workers of
    X'(X w - C e - b) + S'(S w + s) vanishes. Level 1's targets d are then moved until w is what level 1 wants, too:
    (e, w) minimises f1 over everything and is feasible, hence it is the trilevel solution, the only one since f1 is
    strongly convex. All gradients of Eq. (10) vanish there for any penalties.
    """
    drawn = disagreeing(rng)
    problems, answer = drawn.problems, drawn.answer
    problems = [_train(a, a.training_slope(u)) for a, u in zip(problems, answer, strict=True)]
    problems = [_judge(a, a.judging_slope(u)) for a, u in zip(problems, answer, strict=True)]
    return Known(problems, answer, LETTER)


def disagreeing(rng: Generator) -> Known:
    """As `interior`, but at the answer only the means of the workers' gradients vanish; the exact form."""
    free = WholeSpace()
    problems = _draw(Sets(A=free, Q=free, W=free, P=free), normal(rng, M), rng)
    curvature = _mean([a.lower.x.T @ a.lower.x + a.lower.mix.T @ a.lower.mix for a in problems])
    pull = [a.lower.x.T @ (a.lower.c @ a.upper.alpha + a.lower.b) - a.lower.mix.T @ a.lower.push for a in problems]
    w = torch.linalg.solve(curvature, _mean(pull))
    answer = [a.answer(a.upper.alpha, w) for a in problems]
    slope = _mean([a.judging_slope(u) for a, u in zip(problems, answer, strict=True)])
    return Known([_judge(a, slope) for a in problems], answer, replace(LETTER, exact=True))


def boundary(rng: Generator) -> Known:
    """All four sets bite at the answer; the letter of the paper.

    Choose w on the sphere |w| = 3/2 and alpha = P_A(e). Move the workers' b until their gradients of f2_train at
    p* = P_P(S w + s) are -lambda_i w with lambda_i > 0: w is then the least robust training loss in the ball, by its
    optimality condition and convexity. Move d until the mean gradient of f1 is -w/2: (alpha, w) then minimises f1 over
    A x W. Being feasible it is the trilevel solution, the only one by strong convexity. p is pinned in each coordinate
    since |S w| <= 0.6 and |s| = 2; alpha and q are in some.
    """
    sets = Sets(A=LinfBall(1.0), Q=LinfBall(0.5), W=L2Ball(1.5), P=LinfBall(0.5))
    w = sets.W.project(1e6 * normal(rng, D))
    problems = _draw(sets, 2 * normal(rng, M).sign(), rng)
    answer = [a.answer(sets.A.project(a.upper.alpha), w) for a in problems]
    outward = [(0.2 + 0.3 * i) * w for i in range(N)]
    problems = [_train(a, a.training_slope(u) + out) for a, u, out in zip(problems, answer, outward, strict=True)]
    slope = _mean([a.judging_slope(u) for a, u in zip(problems, answer, strict=True)])
    return Known([_judge(a, slope + w / 2) for a in problems], answer, LETTER)


def pulled(rng: Generator, rho_2: float = 1e4) -> Known:
    """P and Q bite everywhere, level 1 pulls at w, and rho_2 is large; w and w^ in lock-step. A and W do not bite.

    |s| = |g| = 6 exceed |S w|, |T w| <= 4 by more than the radius 1/2, so q and p are corners at each w of W. Then
    w(alpha) = w_0 + sum_i J_i alpha_i with H = mean X'X, J_i = H^-1 X_i'C_i/N, and level 1 is the strongly convex
    1/2 |alpha - e|^2/N + 1/2 |w(alpha) - t|^2 with t = mean(d - T'q): one linear system.

    The bias: let v = -H^-1 grad f1. At rest w - w^ = v_rho/rho_2 with (H + I/rho_2) v_rho = H v, so |v_rho - v| <=
    |v|/(rho_2 h), h the least eigenvalue of H. Alpha obeys alpha_i - e_i = C_i'X_i v_rho instead of C_i'X_i v; this map
    is strongly monotone with constant 1, so alpha is off by at most |(C_i'X_i)_i| |v|/(rho_2 h), and w by |J| times
    that plus |v|/rho_2.
    """
    problems = _draw(
        Sets(A=LinfBall(5.0), Q=LinfBall(0.5), W=L2Ball(10.0), P=LinfBall(0.5)), 6 * normal(rng, M).sign(), rng
    )
    problems = [replace(a, upper=replace(a.upper, push=6 * a.upper.push.sign())) for a in problems]
    corners = [a.answer(a.upper.alpha, torch.zeros_like(a.upper.w)) for a in problems]
    at_corner = list(zip(problems, corners, strict=True))
    h = _mean([a.lower.x.T @ a.lower.x for a in problems])
    w_0 = torch.linalg.solve(h, _mean([a.lower.x.T @ a.lower.b - a.lower.mix.T @ u.p for a, u in at_corner]))
    t = _mean([a.upper.w - a.upper.mix.T @ u.q for a, u in at_corner])
    cross = torch.cat([a.lower.x.T @ a.lower.c for a in problems], dim=1)  # all X_i'C_i side by side: (D, N K)
    j = torch.linalg.solve(h, cross) / N
    e = torch.cat([a.upper.alpha for a in problems])
    alpha = torch.linalg.solve(torch.eye(N * K, dtype=e.dtype) / N + j.T @ j, e / N + j.T @ (t - w_0))
    w = w_0 + j @ alpha
    v = float(torch.linalg.vector_norm(torch.linalg.solve(h, t - w)))
    off = _spectral(cross) * v / (rho_2 * float(torch.linalg.eigvalsh(h)[0]))
    answer = [a.answer(part, w) for a, part in zip(problems, alpha.split(K), strict=True)]
    return Known(problems, answer, lock_step(rho_2), bias=max(off, _spectral(j) * off + v / rho_2))


def lock_step(rho_2: float) -> Settings:
    """w^ starts at w and is never reset, and both take steps of the same length on f2_train.

    With eta_w = eta_hat/rho_2 the difference w - w^ sees nothing of how alpha moves, so eta_alpha need not shrink with
    rho_2.
    """
    return replace(
        LETTER,
        eta=StepSizes(alpha=0.25, q=0.25, w=0.8 / rho_2, p=0.25, w_hat=0.8),
        penalties=Penalties(rho_1=2.0, rho_2=rho_2, rho_3=rho_2 + 1, phi=2.0),
        hat=Hat(steps=1, sync_every=0, waits=True),
    )


def _draw(sets: Sets, push: Tensor, rng: Generator) -> list[QuadraticTrilevel]:
    """Workers with unlike data. X is near the identity; rows of C have norm 1, those of S and T norm 0.4."""
    return [
        QuadraticTrilevel(
            Upper(alpha=normal(rng, K), w=normal(rng, D), mix=0.4 * unit_rows(rng, M, D), push=normal(rng, M)),
            Lower(
                x=torch.eye(D, dtype=torch.float64) + 0.3 * unit_rows(rng, D, D),
                c=unit_rows(rng, D, K),
                b=normal(rng, D),
                mix=0.4 * unit_rows(rng, M, D),
                push=push,
            ),
            sets,
        )
        for _ in range(N)
    ]


def _train(problem: QuadraticTrilevel, less: Tensor) -> QuadraticTrilevel:
    """The problem with b moved so that the gradient of f2_train in w is smaller by `less`, everywhere."""
    b = problem.lower.b + torch.linalg.solve(problem.lower.x.T, less)
    return replace(problem, lower=replace(problem.lower, b=b))


def _judge(problem: QuadraticTrilevel, less: Tensor) -> QuadraticTrilevel:
    """The problem with d moved so that the gradient of f1 in w is smaller by `less`, everywhere."""
    return replace(problem, upper=replace(problem.upper, w=problem.upper.w + less))


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(tensors)).mean(dim=0)


def _spectral(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix, ord=2))
