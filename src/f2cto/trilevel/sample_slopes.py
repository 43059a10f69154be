"""The slopes of the robust-coreset problem by as few passes through the model as the equations need.

All objectives are weighted sums of per-sample losses l_k(w; x_k + perturbation), so

- the gradient in alpha is made of losses: forward passes, no graph;
- gradients in p and q are input gradients of separate samples: those of weight zero are skipped;
- the gradient in w is one backward pass for all terms, by weighting the losses;
- a pass for one (w, perturbation) is made once: what the step of alpha has seen, the step of w takes up.

`slopes.Autograd` is the definition, and tests hold every slope here to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from f2cto.trilevel.problem import Point, Refined
from f2cto.trilevel.settings import Penalties
from f2cto.trilevel.slopes import AlphaSlopes

if TYPE_CHECKING:
    from f2cto.trilevel.coreset import RobustCoreset


@dataclass(frozen=True, eq=False)
class Pass:
    """One forward pass over all samples."""

    losses: Tensor  # (M,), with their graph where one was asked for
    hits: Tensor  # (M,), whether each sample was classified correctly


@dataclass(frozen=True, eq=False)
class SampleSlopes:
    """The fast form, for one phase of one iteration."""

    problem: RobustCoreset
    # Keys are the tensors themselves, equal to nothing but themselves: an id would be reused once its tensor is freed.
    _seen: dict[tuple[Tensor, Tensor], Pass] = field(default_factory=dict)
    _leaves: dict[Tensor, Tensor] = field(default_factory=dict)  # one root for all graphs that are kept of a w

    def f3_p(self, at: Point) -> Tensor:
        """-alpha_k grad l_k."""
        return self._input_slope(at.w, at.p, -at.alpha)

    def f2_eval_q(self, at: Point) -> Tensor:
        """-grad l_k, over M if f1 is a mean."""
        return self._input_slope(at.w, at.q, -self.problem.every)

    def f2_train_alpha(self, at: Point) -> Tensor:
        """l_k(w; p), by the pass that the step of w takes up."""
        return self._losses(at.w, at.p, graph=True)

    def g2_p(self, at: Point, p_star: Tensor, phi: float) -> Tensor:
        """(1 - phi) alpha_k grad l_k: V3 does not depend on p."""
        del p_star
        return self._input_slope(at.w, at.p, (1 - phi) * at.alpha)

    def g2_w(self, at: Point, p_star: Tensor, phi: float) -> Tensor:
        """(1 - phi) sum alpha_k grad l_k at p, and phi times the same at p*."""
        return self._parameter_slope(at.w, [(at.p, (1 - phi) * at.alpha), (p_star, phi * at.alpha)])[1]

    def alpha(self, at: Point, known: Refined, c: Penalties) -> AlphaSlopes:
        """-lambda P(k on top), and rho_2 [l_k(w; p) - l_k(w^; p^)] + rho_3 [l_k(w; p*) - l_k(w; p)]."""
        now = self._losses(at.w, at.p, graph=True)
        lower = c.rho_2 * (now - self._losses(known.w_hat, known.p_hat))
        if known.p_star is not at.p:
            lower = lower + c.rho_3 * (self._losses(at.w, known.p_star, graph=True) - now)
        return AlphaSlopes(own=-self.problem.topk.inclusion(at.alpha), lower=lower)

    def q(self, at: Point, known: Refined, c: Penalties) -> Tensor:
        """(1 - rho_1) grad l_k: V2^(1) does not depend on q."""
        del known
        return self._input_slope(at.w, at.q, (1 - c.rho_1) * self.problem.every)

    def w(self, at: Point, known: Refined, c: Penalties) -> tuple[float, Tensor]:
        """One backward pass over the four terms in which w appears."""
        if not self._seen:
            self._pass(at.w, at.q, graph=True)  # alpha stood still: this is the pass that `metrics` speaks of
        every = self.problem.every
        terms = [
            (at.q, (1 - c.rho_1) * every),
            (known.q_star, c.rho_1 * every),
            (at.p, (c.rho_2 - c.rho_3) * at.alpha),
            (known.p_star, c.rho_3 * at.alpha),
        ]
        value, slope = self._parameter_slope(at.w, terms)
        rest = c.rho_2 * at.alpha @ self._losses(known.w_hat, known.p_hat) + self.problem.topk.value(at.alpha)
        return float(value - rest), slope

    def p(self, at: Point, known: Refined, c: Penalties) -> Tensor:
        """(rho_2 - rho_3) alpha_k grad l_k: neither V2^(2) nor V3 depends on p."""
        del known
        return self._input_slope(at.w, at.p, (c.rho_2 - c.rho_3) * at.alpha)

    def metrics(self) -> dict[str, float]:
        """The share of samples that the model got right under attack, in the first pass that was made."""
        first = next(iter(self._seen.values()), None)
        return {} if first is None else {"robust_accuracy": float(first.hits.double().mean())}

    def _losses(self, w: Tensor, perturbation: Tensor, *, graph: bool = False) -> Tensor:
        """The losses of all samples, as numbers."""
        return self._pass(w, perturbation, graph=graph).losses.detach()

    def _pass(self, w: Tensor, perturbation: Tensor, *, graph: bool) -> Pass:
        """A forward pass, from memory if it was made before; `graph` asks for one that can be gone back through."""
        key = (w, perturbation)
        if key not in self._seen:
            # Where a graph over all samples would not fit, the backward pass makes its own, part by part.
            graph = graph and self.problem.keeps_graphs
            root = self._leaves.setdefault(w, _leaf(w)) if graph else w
            with torch.set_grad_enabled(graph):
                parts = [self._evaluate(root, perturbation, s) for s in self._slices(len(self.problem.y))]
            losses, hits = (torch.cat(columns) for columns in zip(*parts, strict=True))
            self._seen[key] = Pass(losses, hits)
        return self._seen[key]

    def _evaluate(self, w: Tensor, perturbation: Tensor, rows: slice | Tensor) -> tuple[Tensor, Tensor]:
        return self.problem.evaluate(w, self.problem.x[rows] + perturbation[rows], self.problem.y[rows])

    def _input_slope(self, w: Tensor, perturbation: Tensor, weights: Tensor) -> Tensor:
        """The gradient in the perturbation of the weighted sum of losses; samples of weight zero are not passed."""
        parts = list(self._parts(weights))
        if len(parts) == 1 and isinstance(parts[0], slice):
            return self._input_slope_of(w, perturbation, weights, parts[0])
        whole = all(isinstance(rows, slice) for rows in parts)
        slope = torch.empty_like(perturbation) if parts and whole else torch.zeros_like(perturbation)
        for rows in parts:
            slope[rows] = self._input_slope_of(w, perturbation, weights, rows)
        return slope

    def _input_slope_of(self, w: Tensor, perturbation: Tensor, weights: Tensor, rows: slice | Tensor) -> Tensor:
        # The gradient in the perturbation is the gradient in their sum.
        there = (self.problem.x[rows] + perturbation[rows]).detach().requires_grad_()
        evaluate = self.problem.evaluate_roughly or self.problem.evaluate
        with torch.enable_grad():
            losses, _ = evaluate(w, there, self.problem.y[rows])
        return torch.autograd.grad(losses @ weights[rows], there)[0]

    def _parameter_slope(self, w: Tensor, terms: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """The weighted sum of losses over all terms, and its gradient in w."""
        leaf, value, slope = self._leaves.get(w, _leaf(w)), w.new_zeros(()), torch.zeros_like(w)
        waiting: list[Tensor] = []
        for perturbation, weights in _merged(terms):
            seen = self._seen.get((w, perturbation))
            if seen is not None and seen.losses.requires_grad:
                waiting.append(seen.losses @ weights)
                continue
            for rows in self._parts(weights):
                with torch.enable_grad():
                    waiting.append(self._evaluate(leaf, perturbation, rows)[0] @ weights[rows])
                if not self.problem.keeps_graphs:
                    value, slope = _gone_back(waiting, leaf, value, slope)
        return _gone_back(waiting, leaf, value, slope)

    def _parts(self, weights: Tensor) -> Iterator[slice | Tensor]:
        """The rows that have weight, in parts that fit; slices where all have, for they need no copy."""
        rows = weights.nonzero().flatten()
        for s in self._slices(len(rows)):
            yield s if len(rows) == len(weights) else rows[s]

    def _chunk(self) -> int:
        return self.problem.chunk or len(self.problem.y)

    def _slices(self, count: int) -> Iterator[slice]:
        """Rows in parts that fit the memory the problem may use."""
        return (slice(start, start + self._chunk()) for start in range(0, count, self._chunk()))


def _leaf(w: Tensor) -> Tensor:
    """A root for graphs, so that one backward pass serves all of them."""
    return w.detach().requires_grad_()


def _merged(terms: list[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """Terms with the same perturbation as one; those that weigh nothing are left out."""
    together: dict[Tensor, Tensor] = {}
    for perturbation, weights in terms:
        together[perturbation] = together[perturbation] + weights if perturbation in together else weights
    return (term for term in together.items() if bool(term[1].any()))


def _gone_back(waiting: list[Tensor], leaf: Tensor, value: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """Value and slope with the waiting totals added, by one backward pass; nothing waits any more."""
    if waiting:
        total = torch.stack(waiting).sum()
        waiting.clear()
        slope = slope + torch.autograd.grad(total, leaf)[0]
        value = value + total.detach()
    return value, slope
