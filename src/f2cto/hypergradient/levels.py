"""Products with second derivatives of f3 and of fbar, each level read off one graph; no matrix is formed.

Products with the second derivatives of fbar(x, y) = f2(x, y, z(x, y)) come from differentiating formula (A) once more.
Let u solve f3_zz u = f2_z and let S(x, y, z) = f2 - <f3_z, u>, so that grad_y fbar = S_y. When y moves along v, z moves
along

    s = -[f3_zz]^-1 f3_zy v,

and u moves, too. A second adjoint, t = [f3_zz]^-1 psi_z with psi = <S_y, v> + <S_z, s>, accounts for both:

    (C)  fbar_yy v = psi_y - f3_yz t,     fbar_xy v = psi_x - f3_xz t,     u, s and t held constant.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from f2cto.hypergradient.linear import Adjoint, Blocks, plus, solve
from f2cto.hypergradient.problem import Lowers


class Hessian(StrEnum):
    """What is kept of the second derivatives of fbar, from dear to cheap.

    exact         all of (C): two lower-level systems per product, through a graph of third derivatives.
    second-order  (C) with S = f2: two systems as well, but no third derivatives of f3; right where f3 is quadratic.
    frozen        (C) with s = t = 0: z and u stay where they are while (A) is differentiated, as in the published code.
                  No system at all, but more than third derivatives is lost: f2_yz z_y, its transpose and z_y' f2_zz z_y
                  are missing even where all levels are quadratic.
    """

    EXACT = "exact"
    SECOND_ORDER = "second-order"
    FROZEN = "frozen"


def pull(
    outputs: Iterable[Tensor], weights: Iterable[Tensor], inputs: Sequence[Tensor], *, graph: bool = False
) -> list[Tensor | None]:
    """The derivatives of sum_k <outputs_k, weights_k> in `inputs`; None where no path leads there."""
    pairs = [(output, weight) for output, weight in zip(outputs, weights, strict=True) if output.requires_grad]
    if not pairs or not inputs:
        return [None] * len(inputs)
    tops, by = zip(*pairs, strict=True)
    return list(torch.autograd.grad(tops, inputs, by, retain_graph=True, create_graph=graph, allow_unused=True))


def derivatives(
    value: Tensor, variables: Sequence[Tensor], z: Lowers, *, graph: bool = False
) -> tuple[list[Tensor], Blocks]:
    """The gradients of a scalar in some variables, and in those blocks of z that it depends on: one backward pass."""
    slopes = pull([value], [torch.ones_like(value)], [*variables, *z], graph=graph)
    return filled(slopes[: len(variables)], variables), numbered(range(len(z)), slopes[len(variables) :])


def filled(slopes: Iterable[Tensor | None], like: Iterable[Tensor]) -> list[Tensor]:
    """The derivatives with zeros where there was no path."""
    return [torch.zeros_like(x) if slope is None else slope for slope, x in zip(slopes, like, strict=True)]


def numbered(keys: Iterable[int], slopes: Iterable[Tensor | None]) -> Blocks:
    """The derivatives that are there, by the number of their block."""
    return {k: slope for k, slope in zip(keys, slopes, strict=True) if slope is not None}


@dataclass(frozen=True, eq=False)
class Lower:
    """The second derivatives of f3 in those blocks of z that matter to a level above."""

    z: Lowers
    slopes: Blocks  # f3_z, differentiable
    how: Adjoint

    @property
    def inputs(self) -> list[Tensor]:
        """The blocks of z that matter."""
        return [self.z[k] for k in self.slopes]

    def solve(self, c: Blocks) -> Blocks:
        """[f3_zz]^-1 c, as far as `how` goes."""
        return solve(self.hessian, c, self.how)

    def hessian(self, v: Blocks, *, graph: bool = False) -> Blocks:
        """f3_zz v."""
        return numbered(self.slopes, self._pull(v, self.inputs, graph=graph))

    def mixed(self, v: Blocks, variables: Sequence[Tensor], *, graph: bool = False) -> list[Tensor]:
        """f3_xz v and f3_yz v, whichever are asked for, in one pass."""
        return filled(self._pull(v, variables, graph=graph), variables)

    def _pull(self, v: Blocks, inputs: Sequence[Tensor], *, graph: bool) -> list[Tensor | None]:
        return pull((self.slopes[k] for k in v), v.values(), inputs, graph=graph)


def lower_level(slopes: Callable[[Collection[int]], Blocks], z: Lowers, seen: Collection[int], how: Adjoint) -> Lower:
    """The lower level as far as it concerns an objective that depends on the blocks `seen`.

    Blocks that f3 ties to them belong there, too, and theirs; all others would only ever be multiplied by zero.

    Args:
        slopes: f3_z of some blocks, differentiable.
        z: all blocks.
        seen: the numbers of those that the objective depends on.
        how: how systems with f3_zz are solved.

    """
    lower = Lower(z, slopes(seen), how)
    while rest := [k for k in range(len(z)) if k not in lower.slopes]:
        # Where no path leads from one to the other autograd does no work at all.
        ties = numbered(rest, pull(lower.slopes.values(), lower.slopes.values(), [z[k] for k in rest]))
        if not ties:
            break
        lower = Lower(z, lower.slopes | slopes(ties), how)
    return lower


@dataclass(frozen=True, eq=False)
class Middle:
    """The second derivatives of fbar."""

    lower: Lower
    f3_y: Tensor  # differentiable
    s_y: Tensor  # S_y, differentiable
    s_z: Blocks  # S_z, differentiable
    frozen: bool = False

    def product(self, v: Tensor, variable: Tensor) -> Tensor:
        """fbar_yy v or fbar_xy v, formula (C), as the variable is y or x."""
        if self.frozen:
            return filled(pull([self.s_y], [v], [variable]), [variable])[0]
        lower = self.lower
        minus_s = lower.solve(numbered(lower.slopes, pull([self.f3_y], [v], lower.inputs)))
        along = {k: -minus_s[k] for k in self.s_z if k in minus_s}
        psi, *psi_z = pull([self.s_y, *(self.s_z[k] for k in along)], [v, *along.values()], [variable, *lower.inputs])
        t = lower.solve(numbered(lower.slopes, psi_z))
        return filled([psi], [variable])[0] - lower.mixed(t, [variable])[0]


def middle_level(lower: Lower, y: Tensor, f3_y: Tensor, f2: tuple[Tensor, Blocks], hessian: Hessian) -> Middle:
    """The middle level, given f2_y and f2_z and the lower level as f2 sees it; everything differentiable."""
    f2_y, f2_z = f2
    if hessian is Hessian.SECOND_ORDER:
        return Middle(lower, f3_y, f2_y, f2_z)
    u = lower.solve({k: slope.detach() for k, slope in f2_z.items()})
    s_y = f2_y - lower.mixed(u, [y], graph=True)[0]
    if hessian is Hessian.FROZEN:
        return Middle(lower, f3_y, s_y, {}, frozen=True)
    return Middle(lower, f3_y, s_y, plus(f2_z, lower.hessian(u, graph=True), -1.0))
