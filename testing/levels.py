"""A federated problem in two or three quadratic levels whose answer is one linear system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from f2cto.constraints import WholeSpace
from f2cto.methods.cuts import Values
from f2cto.methods.levels import Task
from f2cto.randomness import generator


@dataclass(frozen=True, eq=False)
class QuadraticLevels:
    """Worker j's share.

    f1 = 1/2 |w - t|^2 + r/2 |a|^2
    f2 = 1/2 |w - C a - b|^2,    hence w(a) = mean_j (C a + b)
    f3 = 1/2 |z - w|^2,          hence z = w; nobody judges z, so that the answer is that of the two levels above
    """

    c: Tensor  # (d, k)
    b: Tensor  # (d,)
    target: Tensor  # t, (d,)
    ridge: float = 0.1  # r

    def f1(self, a: Tensor, w: Tensor, z: Values) -> Tensor:
        return self.own(a) + self.judged(w, z)

    def f2(self, a: Tensor, w: Tensor, z: Values) -> Tensor:
        return self.trained(a, w, z)

    def f3(self, a: Tensor, w: Tensor, z: Values) -> Tensor:
        return self.attacked(a, w, z)

    def own(self, a: Tensor) -> Tensor:
        return self.ridge / 2 * a.square().sum()

    def judged(self, w: Tensor, z: Values) -> Tensor:
        return (w - self.target).square().sum() / 2

    def trained(self, a: Tensor, w: Tensor, z: Values) -> Tensor:
        return (w - self.c @ a - self.b).square().sum() / 2

    def attacked(self, a: Tensor, w: Tensor, z: Values) -> Tensor:
        return (z[0] - w).square().sum() / 2


def quadratic_levels(workers: int, seed: int, d: int = 3, k: int = 2) -> list[QuadraticLevels]:
    """Unlike workers that want the same model."""
    rng = generator(seed, workers)
    draws = [torch.randn(d, k + 1, generator=rng, dtype=torch.float64) for _ in range(workers)]
    target = 2 * torch.randn(d, generator=rng, dtype=torch.float64)
    return [QuadraticLevels(draw[:, :k], draw[:, k], target) for draw in draws]


def response(problems: Sequence[QuadraticLevels], a: Sequence[Tensor]) -> Tensor:
    """The model that level 2 answers with."""
    return torch.stack([p.c @ v + p.b for p, v in zip(problems, a, strict=True)]).mean(dim=0)


def worth(problems: Sequence[QuadraticLevels], a: Sequence[Tensor]) -> float:
    """What level 1 comes to where level 2 answers to a."""
    w = response(problems, a)
    return float(torch.stack([p.f1(v, w, ()) for p, v in zip(problems, a, strict=True)]).sum())


def best(problems: Sequence[QuadraticLevels]) -> list[Tensor]:
    """The solution: with w = w_0 + J a, N J'(w_0 + J a - t) + r a = 0."""
    count, k = len(problems), problems[0].c.shape[1]
    j = torch.cat([p.c for p in problems], dim=1) / count
    w_0 = response(problems, [j.new_zeros(k)] * count)
    left = count * j.T @ j + problems[0].ridge * torch.eye(count * k, dtype=j.dtype)
    return list(torch.linalg.solve(left, count * j.T @ (problems[0].target - w_0)).split(k))


def left_to_go(problems: Sequence[QuadraticLevels], a: Sequence[Tensor]) -> float:
    """What is left of the way from zero to the solution, in worth: one is no progress, zero is the answer."""
    start, end = worth(problems, [torch.zeros_like(v) for v in a]), worth(problems, best(problems))
    return (worth(problems, a) - end) / (start - end)


def quadratic_task(problem: QuadraticLevels, number: int, steps: tuple[float, ...], lower_step: float = 0.5) -> Task:
    """The worker's task from zeros; three steps make it trilevel, two bilevel."""
    d, k = problem.c.shape
    zeros = (problem.c.new_zeros(k), problem.c.new_zeros(d))
    return Task(
        number=number,
        start=zeros[: len(steps) - 1],
        levels=lambda t, w: problem,  # noqa: ARG005
        steps=steps,
        sets=(WholeSpace(),) * len(steps),
        lower_step=lower_step,
        lower_steps=3,
    )
