"""One class on one worker of F2CTO-EF: who may be picked, what the places hold, and how they are filled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from f2cto.methods.matching import EMPTY, gradient_gram, refill, weighted_slope
from f2cto.models import FlatModel


@dataclass(frozen=True, eq=False)
class View:
    """The candidates of a class under one proxy."""

    w: Tensor
    attacked: Tensor  # (n, *features)
    losses: Tensor  # (n,)
    gram: Tensor  # the inner products of their gradients, (n, n)

    @cached_property
    def scale(self) -> float:
        """Their mean squared gradient: what makes proxies comparable."""
        return float(self.gram.diagonal().mean()) or 1.0


@dataclass(frozen=True, eq=False)
class OpenClass:
    """The class at work."""

    model: FlatModel
    rows: Tensor  # the candidates' positions in the shard, (n,)
    y: Tensor  # their labels, (n,)
    views: tuple[View, ...]  # one per proxy
    places: Tensor  # the candidate in each place, or `EMPTY`, (q,)
    mass: float  # of a place

    @property
    def chosen(self) -> Tensor:
        """The samples in the places, once all are filled."""
        return self.rows[self.places]

    def weights(self) -> Tensor:
        """The weight of each candidate: a place's mass where it was picked, and its share of the empty places."""
        picked = self.places[self.places != EMPTY]
        empty = len(self.places) - len(picked)
        weights = self.views[0].losses.new_full((len(self.rows),), empty * self.mass / max(1, len(self.rows)))
        weights[picked] += self.mass
        return weights

    def slope(self, view: View, weights: Tensor) -> Tensor:
        """The gradient of the weighted loss of the candidates; only those that have weight are passed."""
        rows = weights.nonzero().flatten()
        return weighted_slope(self.model, view.w, view.attacked[rows], self.y[rows], weights[rows])[1]

    def filled(self, errors: Sequence[Tensor], which: range, probe: float) -> OpenClass:
        """The class after some places were filled anew, so that what is missing shrinks.

        The pull of what is missing on candidate k is -[l_k(w - h e) - l_k(w)] / h; it and the Gram matrix are scaled
        alike for each proxy and averaged.
        """
        gram, pull = torch.zeros_like(self.views[0].gram), torch.zeros_like(self.views[0].losses)
        for view, error in zip(self.views, errors, strict=True):
            with torch.no_grad():
                moved = self.model.losses(view.w - probe * error, view.attacked, self.y)
            gram += view.gram / (view.scale * len(errors))
            pull += (view.losses - moved) / (probe * view.scale * len(errors))
        return replace(self, places=refill(gram, pull, self.places, which, self.mass))


def view_of(model: FlatModel, w: Tensor, attacked: Tensor, y: Tensor) -> View:
    """Candidates as one proxy sees them."""
    with torch.no_grad():
        losses = model.losses(w, attacked, y)
    return View(w, attacked, losses, gradient_gram(model, w, attacked, y))
