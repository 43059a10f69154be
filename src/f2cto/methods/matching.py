"""Picking samples so that their gradients add up to a given one: error feedback, place by place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor
from torch.func import grad, vmap

from f2cto.methods.layerwise import Formed, Gradients, by_layer
from f2cto.methods.quotas import Balance, dealt
from f2cto.models import FlatModel

EMPTY = -1  # a place that nobody has been picked for: it stands for a mean of all candidates
BLOCK_BYTES = 256 * 2**20  # of gradients held at a time, twice
PART_BYTES = 256 * 2**20  # of memory for one part of a pass


def refill(  # noqa: PLR0913
    gram: Tensor,
    pull: Tensor,
    places: Tensor,
    which: Iterable[int],
    mass: float,
    weights: Tensor | None = None,
) -> Tensor:
    """The places after those in `which` were filled anew, one after the other, each with the best unused candidate.

    Let e be what is missing, g_k the gradient of candidate k and g_s what place s holds now. Taking k instead changes
    |e|^2 / 2, in units of the mass of a place, by

        -<e, g_k - g_s> + mass/2 |g_k - g_s|^2.

    Args:
        gram: <g_j, g_k> of the candidates.                                  (n, n)
        pull: <e, g_k>.                                                      (n,)
        places: the candidate in each place, or `EMPTY`.                     (q,)
        which: the places to fill.
        mass: of a place.
        weights: of the candidates in what an empty place stands for, summing to one; none: the plain mean.  (n,)

    """
    places = places.clone()
    mean = gram.mean(dim=0) if weights is None else weights @ gram  # <g_empty, g_k>
    spread = mean.mean() if weights is None else weights @ mean  # |g_empty|^2
    for s in which:
        held = int(places[s])
        row, own = (mean, spread) if held == EMPTY else (gram[held], gram[held, held])  # <g_s, g_k>, |g_s|^2
        cost = mass / 2 * (gram.diagonal() - 2 * row + own) - pull
        others = places[(places != EMPTY) & (places != held)]
        cost[others] = torch.inf
        best = int(cost.argmin())
        pull = pull - mass * (gram[best] - row)
        places[s] = best
    return places


def gradient_gram(model: FlatModel, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The inner products of the samples' gradients in w.  (n, n).

    Gradients of a block of samples are held at a time, twice: where not all fit, some are computed more than once.
    """
    activations = model.pass_bytes(x[:1]) if model.convolves and len(x) else 0  # of other layers they are fewer than w
    size = max(1, BLOCK_BYTES // max(w.numel() * w.element_size(), activations))
    blocks = [slice(at, at + size) for at in range(0, len(y), size)]
    gram = x.new_zeros(len(y), len(y))
    for i, rows in enumerate(blocks):
        here = gradients(model, w, x[rows], y[rows])
        for columns in blocks[i:]:
            there = here if columns is rows else gradients(model, w, x[columns], y[columns])
            block = products(here, there)
            gram[rows, columns], gram[columns, rows] = block, block.T
    return gram


def gradients(model: FlatModel, w: Tensor, x: Tensor, y: Tensor) -> Sequence[Gradients]:
    """The samples' gradients in w: by layer where layers say all, else one by one."""
    layers = by_layer(model, w, x, y)
    return [one_by_one(model, w, x, y)] if layers is None else layers


def one_by_one(model: FlatModel, w: Tensor, x: Tensor, y: Tensor) -> Formed:
    """The gradient of each sample's loss: the definition."""
    each: Callable[[Tensor, Tensor, Tensor], Tensor] = vmap(
        grad(lambda v, a, b: model.losses(v, a[None], b[None]).sum()), in_dims=(None, 0, 0)
    )
    return Formed(each(w, x, y))


def products(some: Sequence[Gradients], others: Sequence[Gradients]) -> Tensor:
    """The inner products of gradients, summed over the parts that they are in."""
    first, *rest = (mine.with_(theirs) for mine, theirs in zip(some, others, strict=True))
    return sum(rest, start=first)


def parts_of(model: FlatModel, x: Tensor) -> int:
    """Into how many parts a pass over samples is cut, to bound memory."""
    return 1 + len(x) * model.pass_bytes(x[:1]) // PART_BYTES


def weighted_slope(  # noqa: PLR0913
    model: FlatModel, w: Tensor, x: Tensor, y: Tensor, weights: Tensor, parts: int = 1
) -> tuple[Tensor, Tensor]:
    """The losses of all samples, and the gradient in w of their weighted sum; part by part, to bound memory."""
    losses, slope = [weights[:0]], torch.zeros_like(w)
    for rows in torch.arange(len(y), device=y.device).chunk(parts):
        here = w.detach().requires_grad_()
        with torch.enable_grad():
            each = model.losses(here, x[rows], y[rows])
        slope = slope + torch.autograd.grad(each @ weights[rows], here)[0]
        losses.append(each.detach())
    return torch.cat(losses), slope


def union_quotas(counts: Tensor, sizes: Tensor) -> Tensor:
    """Places per worker and class, so that classes are as even as can be in the union of all coresets.

    Each place goes to the class that has fewest so far. Workers with few classes come first: those with many can still
    make up for them.

    Args:
        counts: samples per worker and class.     (N, C)
        sizes: places per worker.                 (N,)

    """
    places = torch.zeros_like(counts)
    for i in (counts > 0).sum(dim=1).argsort(stable=True).tolist():
        for _ in range(int(sizes[i])):
            left = places[i] < counts[i]
            taken = places.sum(dim=0).masked_fill(~left, int(sizes.sum()) + 1)
            places[i, int(taken.argmin())] += 1
    return places


def local_quotas(counts: Tensor, sizes: Tensor, balance: Balance = Balance.EVEN) -> Tensor:
    """Places per worker and class, each worker's dealt out over its own classes."""
    places = torch.zeros_like(counts)
    for i, size in enumerate(sizes.tolist()):
        labels = torch.arange(counts.shape[1]).repeat_interleave(counts[i])
        own = dealt(labels, size, i, balance)
        places[i, : len(own)] = own
    return places
