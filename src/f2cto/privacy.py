"""Differential privacy of what a worker sends: every move clipped and noised at the worker, and what that is worth.

The unit of privacy is the whole data set of a worker, and the master is not trusted (the local model): whatever is done
with what was sent, nobody can tell well one data set of this worker from any other, also knowing all other workers'.

What is known of one release. Every answer of a worker is one vector (where w and w^ travel together, the moves of both
one after the other), clipped as a whole to length C and then noised with deviation sigma = noise * C in every
coordinate. Two data sets of one worker lead to clipped moves at most 2 C apart: both lie in the ball of radius C, and
opposite ones are the worst case. So a release is a Gaussian mechanism of sensitivity 2 C, and it is as private as one
of sensitivity 1 and deviation noise / 2.

What is known of T releases. A later move may depend on all that was sent before (the composition is adaptive). Gaussian
mechanisms compose without loss: T of deviation s are as private as a single one of deviation s / sqrt(T) (Dong, Roth
and Su, Gaussian Differential Privacy, 2022), and of a single one delta is known exactly for every epsilon (Balle and
Wang, Improving the Gaussian Mechanism for Differential Privacy, 2018, Theorem 8).

What is not covered: that a worker answers at all, and when; how many samples it has (a site says so to `hello` and
`start`) and how many it kept (`finish`); what it refuses, and why; floating-point numbers are not real numbers, and the
last bits of a noised one may tell more than the theory says (Mironov, On Significance of the Least Significant Bits for
Differential Privacy, 2012).
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch
from torch import Generator, Tensor


@dataclass(frozen=True)
class Privacy:
    """How moves are clipped and noised before they are sent."""

    clip: float = 0.0  # C, the longest move that is sent; 0: neither clipped nor noised
    noise: float = 1.0  # the noise multiplier: the deviation of the noise in every coordinate, over C
    delta: float = 1e-5  # the probability with which epsilon may be exceeded

    def __post_init__(self) -> None:
        """Refuse what promises nothing, and a promise whose size could not be told at the end."""
        for name in ("clip", "noise"):
            if not 0 <= getattr(self, name) < math.inf:
                msg = f"The `{name}` of privacy must be a number >= 0; got {getattr(self, name)}."
                raise ValueError(msg)
        if not 0 < self.delta < 1:
            msg = f"The `delta` of privacy is a probability between 0 and 1, such as 1e-5; got {self.delta}."
            raise ValueError(msg)
        if self.on and find_spec("dp_accounting") is None:  # said now, not after hours of training
            msg = 'Privacy is accounted by the library dp-accounting, not installed: pip install "f2cto[privacy]".'
            raise ImportError(msg)

    @property
    def on(self) -> bool:
        """Whether anything is done to what is sent."""
        return self.clip > 0


def noised(move: Tensor, how: Privacy, rng: Generator | None = None) -> Tensor:
    """A move shortened to at most the length `clip`, plus Gaussian noise of deviation noise * clip.

    A move that left the numbers counts as none: were it sent, or refused, that alone would tell about the data.

    Args:
        move: all that the worker sends in one exchange, as one vector.
        how: the settings; if they are off, the move is given back as it is.
        rng: for simulations and tests, which can be repeated. Who knows the seed can take the noise away again, and
            torch's generators have no more than 2^32 of them to try: where the master is not to be trusted, leave it
            out. Noise then comes from the operating system and is known to nobody.

    """
    if not how.on:
        return move
    # In double precision: torch adds up millions of float32 squares with errors near one percent.
    length = float(torch.linalg.vector_norm(move, dtype=torch.float64))
    shortened = move * min(1.0, how.clip / length) if 0 < length < math.inf else torch.zeros_like(move)
    noise = _secret(move) if rng is None else _drawn(move, rng)
    return shortened.add_(noise.to(move), alpha=how.noise * how.clip)


def spent(how: Privacy, releases: int) -> float:
    """The epsilon of one worker after so many releases: what it sent is (epsilon, delta)-private.

    A release is one vector made by `noised`, whatever the master did with it. Without clip or noise nothing is private
    and epsilon infinite.

    The exact formula for a Gaussian mechanism is used, with what T of them are worth, noise / 2 / sqrt(T). The
    library's general accountants can do no better: that of Renyi divergences is an upper bound some percent above, and
    that of privacy-loss distributions comes to the same number by a table whose size grows with epsilon.
    """
    if releases < 0:
        msg = f"The number of releases must be >= 0; got {releases}."
        raise ValueError(msg)
    if releases == 0:
        return 0.0
    if not how.on or how.noise == 0:
        return math.inf
    from dp_accounting import get_epsilon_gaussian  # noqa: PLC0415  (an optional dependency, and slow to import)

    with np.errstate(divide="ignore"):  # on its way the library looks at epsilons whose delta is too small for a number
        return float(get_epsilon_gaussian(how.noise / 2 / math.sqrt(releases), how.delta))


def _drawn(like: Tensor, rng: Generator) -> Tensor:
    return torch.randn(like.shape, generator=rng, dtype=like.dtype, device=rng.device)


def _secret(like: Tensor) -> Tensor:
    """Standard normal numbers out of the operating system's randomness, by the transformation of Box and Muller."""
    pairs = (like.numel() + 1) // 2
    bits = np.frombuffer(os.urandom(16 * pairs), dtype=np.int64) & (2**53 - 1)  # as many as a double has
    u, v = ((torch.from_numpy(bits) + 1).double() * 2.0**-53).reshape(2, pairs)  # in (0, 1]: u has a logarithm
    radius, angle = u.log_().mul_(-2).sqrt_(), v.mul_(2 * math.pi)
    return torch.cat([radius * angle.cos(), radius * angle.sin()])[: like.numel()].reshape(like.shape)
