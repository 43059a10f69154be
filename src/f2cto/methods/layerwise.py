"""The gradients of single samples, layer by layer, from one pass over all of them.

The gradient of a sample's loss in the weights of a linear layer is the outer product of d, the gradient in what comes
out of the layer, and a, what goes into it with a one for the bias. Products of gradients are then products of numbers,

    <d_j a_j', d_k a_k'> = <d_j, d_k> <a_j, a_k>,

and no gradient as long as w is formed. Convolutions are linear in the patches they look at: sum_t d_t a_t' over the
patches t; normalisations scale and shift. All of it is exact; networks with anything else are for `matching` to treat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import group_norm, layer_norm, pad, unfold

from f2cto.models import FlatModel, Visit

NEAR = 1e-3  # how far sums may be apart, in units of what gradients could add up to: far above rounding


class Gradients(Protocol):
    """The gradients of some samples, or the part of them that belongs to one layer."""

    def with_(self, others: Gradients, /) -> Tensor:
        """The inner product of each with each of the others.  (n, m)."""
        ...

    def total(self) -> Tensor:
        """Their sum.  (d,)."""
        ...

    def squares(self) -> Tensor:
        """Their squared norms.  (n,)."""
        ...


@dataclass(frozen=True, eq=False)
class Formed:
    """Gradients as they are."""

    rows: Tensor  # (n, d)

    def with_(self, others: Gradients) -> Tensor:
        """Inner products of rows."""
        assert isinstance(others, Formed)  # noqa: S101  (of the same layer)
        return self.rows @ others.rows.T

    def total(self) -> Tensor:
        """The sum of rows."""
        return self.rows.sum(dim=0)

    def squares(self) -> Tensor:
        """Of rows."""
        return self.rows.square().sum(dim=1)


@dataclass(frozen=True, eq=False)
class Outer:
    """Gradients that are outer products, as factors."""

    slope: Tensor  # (n, outputs)
    inputs: Tensor  # (n, width), a one for the bias included
    bias: bool

    def with_(self, others: Gradients) -> Tensor:
        """Products of inner products."""
        assert isinstance(others, Outer)  # noqa: S101
        return (self.slope @ others.slope.T) * (self.inputs @ others.inputs.T)

    def total(self) -> Tensor:
        """The sum, weights before biases."""
        return joined(self.slope.T @ self.inputs, bias=self.bias)

    def squares(self) -> Tensor:
        """Products of squared norms."""
        return self.slope.square().sum(dim=1) * self.inputs.square().sum(dim=1)


def joined(products: Tensor, *, bias: bool) -> Tensor:
    """Gradients in weights and biases, (..., outputs, width), in the order in which w has them.  (..., d)."""
    weights = products[..., :-1] if bias else products
    return torch.cat([weights.flatten(-2), products[..., -1]], dim=-1) if bias else weights.flatten(-2)


def with_one(inputs: Tensor, *, bias: bool) -> Tensor:
    """Inputs with a one behind each where the layer has a bias."""
    return pad(inputs, (0, 1), value=1.0) if bias else inputs


def of_linear(layer: nn.Linear, visit: Visit) -> Gradients | None:
    """One vector a sample; sequences of vectors are not taken apart."""
    if visit.inputs.ndim != 2:
        return None
    bias = layer.bias is not None
    return Outer(visit.slope, with_one(visit.inputs, bias=bias), bias)


def of_convolution(layer: nn.Conv1d | nn.Conv2d, visit: Visit) -> Gradients | None:
    """Sums over patches."""
    if layer.groups != 1 or layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        return None
    flat = visit.inputs.ndim == 3  # one-dimensional: an image of height one
    stretch: Callable[[tuple[int, ...], int], tuple[int, ...]] = lambda v, one: (one, *v) if flat else v  # noqa: E731
    patches = unfold(
        visit.inputs[:, :, None] if flat else visit.inputs,
        stretch(layer.kernel_size, 1),
        dilation=stretch(layer.dilation, 1),
        padding=stretch(layer.padding, 0),
        stride=stretch(layer.stride, 1),
    ).mT
    bias = layer.bias is not None
    return Formed(joined(visit.slope.flatten(2) @ with_one(patches, bias=bias), bias=bias))


def of_group_norm(layer: nn.GroupNorm, visit: Visit) -> Gradients | None:
    """Scales see the normalised samples, shifts a one."""
    normal = group_norm(visit.inputs, layer.num_groups, eps=layer.eps)
    sums = [(visit.slope * seen).flatten(2).sum(dim=2) for seen in (normal, torch.ones_like(normal))]
    return Formed(torch.cat(sums, dim=1))


def of_layer_norm(layer: nn.LayerNorm, visit: Visit) -> Gradients | None:
    """The same over the last dimensions."""
    normal, count = layer_norm(visit.inputs, list(layer.normalized_shape), eps=layer.eps), len(visit.inputs)
    parts = [visit.slope * normal] if layer.bias is None else [visit.slope * normal, visit.slope]
    width = layer.weight.numel()
    return Formed(torch.cat([part.reshape(count, -1, width).sum(dim=1) for part in parts], dim=1))


def of_layer(visit: Visit) -> Gradients | None:
    """The gradients in the parameters of one layer; none for kinds that are not known here."""
    match visit.layer:
        case nn.Linear():
            return of_linear(visit.layer, visit)
        case nn.Conv1d() | nn.Conv2d():
            return of_convolution(visit.layer, visit)
        case nn.GroupNorm():
            return of_group_norm(visit.layer, visit)
        case nn.LayerNorm():
            return of_layer_norm(visit.layer, visit)
    return None


def by_layer(model: FlatModel, w: Tensor, x: Tensor, y: Tensor) -> Sequence[Gradients] | None:
    """The gradients of all samples, layer by layer in the order of w; none where layers do not account for them.

    The sum over samples is compared with that of autograd: parameters that are used outside their layer's own
    computation, or twice, show there.
    """
    visits, slope = model.visits(w, x, y)
    layers = [of_layer(visit) if len(visit.inputs) == len(y) else None for visit in visits]
    known = [layer for layer in layers if layer is not None]
    if not known or len(known) < len(layers):
        return None
    total, sizes = torch.cat([layer.total() for layer in known]), sum(layer.squares() for layer in known)
    if total.shape != slope.shape or float((total - slope).norm()) > NEAR * float(torch.as_tensor(sizes).sqrt().sum()):
        return None
    return known
