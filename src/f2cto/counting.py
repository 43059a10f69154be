"""A network that counts the samples that go through it: forwards, backwards, and backwards through a backward pass.

The count sits in the graph, on an identity behind the logits, so that whoever differentiates is counted: autograd,
`torch.func`, forward mode, a batch under `vmap`. A derivative that is prepared but never taken is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class Tally:
    """How many samples were passed so far."""

    forward: int = 0
    backward: int = 0  # first derivatives, whatever they are taken in
    second: int = 0  # derivatives of those

    def __sub__(self, before: Tally) -> Tally:
        """What was passed since."""
        return Tally(self.forward - before.forward, self.backward - before.backward, self.second - before.second)

    def copy(self) -> Tally:
        """What it stands at now."""
        return self - Tally()


@dataclass(frozen=True, eq=False)
class Logits:
    """Who counts, and how many numbers make a sample."""

    tally: Tally
    classes: int

    def samples(self, logits: Tensor) -> int:
        """How many samples these are the logits of, batches under `vmap` included."""
        return logits.numel() // self.classes


class _Forward(torch.autograd.Function):
    """The identity; forward passes are counted here, and its gradient is counted there."""

    @staticmethod
    def forward(logits: Tensor, counter: Logits) -> Tensor:
        counter.tally.forward += counter.samples(logits)
        return logits.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Logits], output: Tensor) -> None:  # noqa: ANN401, ARG004
        ctx.counter = inputs[1]

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        return _Backward.apply(slope, ctx.counter), None  # type: ignore[no-untyped-call]

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:  # noqa: ANN401
        ctx.counter.tally.backward += ctx.counter.samples(tangent)
        return tangent.clone()

    @staticmethod
    def vmap(info: Any, dims: tuple[int, None], logits: Tensor, counter: Logits) -> tuple[Tensor, int]:  # noqa: ANN401, ARG004
        return _Forward.apply(logits, counter), dims[0]  # type: ignore[no-untyped-call]


class _Backward(torch.autograd.Function):
    """The identity on gradients; backward passes are counted here, and whoever differentiates them."""

    @staticmethod
    def forward(slope: Tensor, counter: Logits) -> Tensor:
        counter.tally.backward += counter.samples(slope)
        return slope.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Logits], output: Tensor) -> None:  # noqa: ANN401, ARG004
        ctx.counter = inputs[1]

    @staticmethod
    def backward(ctx: Any, curvature: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        ctx.counter.tally.second += ctx.counter.samples(curvature)
        return curvature, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:  # noqa: ANN401
        ctx.counter.tally.second += ctx.counter.samples(tangent)
        return tangent.clone()

    @staticmethod
    def vmap(info: Any, dims: tuple[int, None], slope: Tensor, counter: Logits) -> tuple[Tensor, int]:  # noqa: ANN401, ARG004
        return _Backward.apply(slope, counter), dims[0]  # type: ignore[no-untyped-call]


def counted(module: nn.Module, tally: Tally) -> nn.Module:
    """The network itself; from now on it counts into `tally`, and so does every copy of it."""

    def count(_: nn.Module, __: object, logits: Tensor) -> Tensor:
        same: Tensor = _Forward.apply(logits, Logits(tally, logits.shape[-1]))  # type: ignore[no-untyped-call]
        return same

    module.register_forward_hook(count)
    return module
