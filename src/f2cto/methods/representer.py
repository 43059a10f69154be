"""Logistic regression in the space of a kernel, and how its solution answers to the weights of samples.

The model is f(x) = sum over chosen samples i of k(x, x_i) a_i, the form that the representer theorem gives to the
minimiser of

    J = sum_i v_i loss(f(x_i), y_i) + penalty ||f||^2.

With p the softmax of f, D_i = diag(p_i) - p_i p_i' and phi the kernel's features, gradient and Hessian are

    sum_i phi_i x (v_i (p_i - e_i) + 2 penalty a_i)    and    H = 2 penalty I + sum_i v_i phi_i phi_i' x D_i.

H differs from a multiple of the identity only in the span of the chosen samples. Its inverse therefore costs one system
with as many unknowns as there are coefficients, whatever it is applied to, and however many samples are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy

from f2cto.hypergradient.linear import Adjoint, Blocks, Solver, solve


@dataclass(frozen=True, eq=False)
class Representer:
    """The regression on chosen samples; C is the number of classes.

    Args:
        gram: the kernel between them.   (S, S)
        targets: their labels, one-hot.  (S, C)
        v: their weights, >= 0.          (S,)
        penalty: of the squared norm.
        products: conjugate gradient steps in one system.

    """

    gram: Tensor
    targets: Tensor
    v: Tensor
    penalty: float
    products: int = 50

    def objective(self, a: Tensor) -> Tensor:
        """J at the coefficients a (S, C)."""
        logits = self.gram @ a
        losses = cross_entropy(logits, self.targets, reduction="none")
        return self.v @ losses + self.penalty * (a * logits).sum()

    def fit(self, a: Tensor, steps: int, tolerance: float = 1e-8) -> Tensor:
        """The minimiser of J by Newton's method from a.

        It ends after `steps`, or where the norm of the gradient is down to `tolerance`, or where no step lowers J.
        """
        for _ in range(steps):
            p = (self.gram @ a).softmax(dim=1)
            slope = self.v[:, None] * (p - self.targets) + 2 * self.penalty * a
            seen = self.gram @ slope
            if float((slope * seen).sum()) <= tolerance**2:
                break
            step = (slope - self.absorbed(p, seen)) / (2 * self.penalty)
            decrease = float((step * seen).sum())
            nearer = self._shortened(a, step, decrease)
            if nearer is None:
                break
            a = nearer
        return a

    def absorbed(self, p: Tensor, seen: Tensor) -> Tensor:
        """What the curvature takes away: b (S, C) such that H^-1 t = (t - sum_i phi_i x b_i) / 2 penalty.

        Args:
            p: the softmax of the chosen samples' logits.                   (S, C)
            seen: the inner products of t with the features of the chosen.  (S, C)

        """
        # D = A A' with A = diag(sqrt p) - p sqrt(p)', because p sums to one. In g, where b = sqrt(v) A g, the system
        # is symmetric and no eigenvalue is below 2 penalty.
        root, half = p.sqrt(), self.v.sqrt()[:, None]

        def forth(g: Tensor) -> Tensor:
            return half * (root * g - p * (root * g).sum(dim=1, keepdim=True))

        def back(f: Tensor) -> Tensor:
            return half * root * (f - (p * f).sum(dim=1, keepdim=True))

        def product(g: Blocks) -> Blocks:
            return {0: 2 * self.penalty * g[0] + back(self.gram @ forth(g[0]))}

        return forth(solve(product, {0: back(seen)}, Adjoint(Solver.CG, self.products))[0])

    def _shortened(self, a: Tensor, step: Tensor, decrease: float) -> Tensor | None:
        """The first of a - step, a - step/2, ... that lowers J by a fair share of what its slope promises."""
        here, share = float(self.objective(a)), 1.0
        while share > 1e-6:
            nearer = a - share * step
            if float(self.objective(nearer)) <= here - 1e-4 * share * decrease:
                return nearer
            share /= 2
        return None
