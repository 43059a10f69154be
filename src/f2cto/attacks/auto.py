"""AutoAttack by the library pyautoattack: Croce and Hein, Reliable Evaluation of Adversarial Robustness, 2020.

The library is made for images in [0, 1] and for whole programs; here is what it takes to be one attack among others.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import torch
from torch import Generator, Tensor

from f2cto.attacks.base import Logits, Range

# What the library has to say is for those who ask for logs: without a handler, warnings would go to the screen.
logging.getLogger("auto-attack").addHandler(logging.NullHandler())


@dataclass(frozen=True)
class AutoAttack:
    """The standard version: APGD on the cross-entropy, targeted APGD, targeted FAB and the Square attack, in turn.

    The targeted loss of APGD divides by what the third and fourth logits say: below four classes it is left out.
    Samples that are no images are to Square images of one row, where its squares are single features.
    """

    radius: float
    classes: int
    batch: int = 250  # samples attacked together
    queries: int = 5000  # of Square, for each sample; the standard are 5000
    valid: Range = field(default_factory=Range)

    def __post_init__(self) -> None:
        """Refuse what the library cannot do, or would do wrongly without saying so."""
        if not self.radius >= 0 or self.classes < 2 or min(self.batch, self.queries) < 1:
            msg = f"AutoAttack needs radius >= 0, classes >= 2, batch >= 1 and queries >= 1; got {self}."
            raise ValueError(msg)
        if (self.valid.low, self.valid.high) != (0, 1):
            msg = (
                f"AutoAttack knows features in [0, 1] only; got [{self.valid.low}, {self.valid.high}]. "
                "Scale the data to [0, 1], or use PGD with restarts."
            )
            raise ValueError(msg)
        if self.valid.fixed:
            msg = (
                f"AutoAttack changes every feature, but {len(self.valid.fixed)} are said to be fixed; "
                "use PGD with restarts, which leaves them alone."
            )
            raise ValueError(msg)
        if find_spec("pyautoattack") is None:  # said now, not after hours of training
            msg = 'AutoAttack needs the library pyautoattack, which is not installed: pip install "f2cto[attacks]".'
            raise ImportError(msg)

    def perturb(self, logits: Logits, x: Tensor, y: Tensor, rng: Generator) -> Tensor:
        """The attacked samples; those that resist, or need no attack, as they are."""
        self._check(logits, x)
        images = (x if x.ndim == 4 else x.reshape(len(x), 1, 1, -1)).detach().float()
        seed = int(torch.randint(2**62, (), generator=rng, device=rng.device))
        with _globals_kept():
            run = self._library(lambda v: _sealed(logits, v.reshape(len(v), *x.shape[1:]).to(x.dtype)), x.device, seed)
            found, _ = run.run_standard_evaluation(images, y, batch_size=self.batch)
        return self._inside(found.reshape(x.shape).to(x.dtype), x)

    def _library(self, model: Logits, device: torch.device, seed: int) -> Any:  # noqa: ANN401  (it has no types)
        from pyautoattack import AutoAttack as Library  # noqa: PLC0415  (an optional dependency)

        run = Library(model, norm="Linf", eps=self.radius, seed=seed, device=device, version="standard")
        run.apgd_targeted.n_target_classes = run.fab.n_target_classes = min(9, self.classes - 1)
        run.square.n_queries = self.queries
        if self.classes < 4:
            run.attacks_to_run = [name for name in run.attacks_to_run if name != "apgd-t"]
        return run

    def _check(self, logits: Logits, x: Tensor) -> None:
        low, high = float(x.min()), float(x.max())
        if not 0 <= low <= high <= 1:  # the library would clamp them, far out of the ball
            msg = f"AutoAttack knows features in [0, 1] only; got values from {low:g} to {high:g}. Scale the data."
            raise ValueError(msg)
        with torch.no_grad():
            outputs = logits(x[:1]).shape[1]
        if outputs != self.classes:
            msg = f"This AutoAttack is for {self.classes} classes, but the model gives {outputs} logits."
            raise ValueError(msg)

    def _inside(self, attacked: Tensor, x: Tensor) -> Tensor:
        moved = float((attacked - x).abs().max())
        if not moved <= self.radius + 1e-6:
            msg = f"pyautoattack moved a feature by {moved:g}, the radius is {self.radius:g}; do not trust its result."
            raise RuntimeError(msg)
        return attacked


@contextmanager
def _globals_kept() -> Iterator[None]:
    """Puts back what the library sets for the whole program: generators, and the trace function of a debugger."""
    trace = sys.gettrace()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            sys.settrace(trace)


def _sealed(logits: Logits, x: Tensor) -> Tensor:
    """The logits in float32, such that going backwards leads to `x` and not into the model.

    FAB goes backwards with `backward`, which would leave gradients in the parameters of the user's model.
    """
    if not x.requires_grad:
        return logits(x).detach().to(torch.float32, copy=True)  # Square writes into what it is given
    sealed: Tensor = _Sealed.apply(x, logits)  # type: ignore[no-untyped-call]
    return sealed.float()


class _Sealed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, logits: Logits) -> Tensor:  # noqa: ANN401  (torch's context)
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_()
            outputs = ctx.outputs = logits(ctx.x)
        return outputs.detach()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        return torch.autograd.grad(ctx.outputs, ctx.x, slope)[0], None
