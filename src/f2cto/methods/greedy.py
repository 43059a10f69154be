"""Greedy coresets by bilevel optimisation: the sample whose weight would lower the loss on all samples most comes next.

Zalan Borsos, Mojmir Mutny, Andreas Krause: Coresets via Bilevel Optimization for Continual Learning and Streaming,
NeurIPS 2020. A worker alone with M samples adds one sample after the other to S. The model fitted to S is a kernel
regression that stands for the network (`representer`):

    outer   min over S and weights u >= 0 of the mean loss of all M samples
    inner   the regression on S with the weights u / |S|

A sample outside has weight zero. By the implicit function theorem the outer loss changes with its weight at the rate
-(gradient of its loss)' H^-1 (gradient of the outer loss), and the most negative rate among a batch of random
candidates is chosen. Losses are clean, as published.

What differs from the authors' code: the inner problem is solved by Newton's method to the end instead of some steps of
L-BFGS, and H is inverted in the kernel's own space. There conjugate gradients meet no ill-conditioned Gram matrix, and
candidates do not enlarge the system; the rates are the same in exact arithmetic. The code averages the inner loss over
chosen and candidates when it computes rates, which weakens it against its penalty; here H is that of the fitted model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

import torch
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy, one_hot

from f2cto.config import SettingsError
from f2cto.message import Ask, Message
from f2cto.methods.base import Coreset, Given, OnRound, Shard, evenly
from f2cto.methods.by_class import weighted
from f2cto.methods.lifted import Lifted, Pretraining
from f2cto.methods.ntk import Ntk
from f2cto.methods.representer import Representer
from f2cto.models import FlatModel
from f2cto.trilevel.master import Solution, Stopped

KERNEL = "kernel"
MOST_WORK = 10**9  # samples × candidates × kept: about three minutes on one core
PART_BYTES = 32 * 2**20  # of the kernel of candidates with all samples
Rows = Callable[[Tensor], Tensor]  # the kernel of some samples, by number, with all.  (len, M)


class Kernel(StrEnum):
    """Where the regression takes place."""

    NTK = "ntk"  # the tangent kernel of a fully connected network; no model is trained
    FEATURES = "features"  # what goes into the last layer of the model that all workers trained together
    AUTO = "auto"  # features where the network convolves, else ntk


@dataclass(frozen=True)
class GreedySettings:
    """The authors' values for continual learning."""

    kernel: Kernel = Kernel.AUTO
    ntk: Ntk = field(default_factory=Ntk)
    start: int = 1  # samples drawn at random before the first choice
    candidates: int = 200  # looked at for one choice
    weight_steps: int = 1  # Adam steps of the weights after each choice, from one
    weight_step: float = 0.01
    newton_steps: int = 50  # at most, for one inner problem
    cg_steps: int = 50  # in one system with H
    penalty: float = 1e-3
    classwise: bool = True  # as many of each class; the paper says nothing about classes
    pretraining: Pretraining = field(default_factory=Pretraining)  # of the model whose features are taken

    def __post_init__(self) -> None:
        """Refuse what cannot choose."""
        if self.candidates < 1 or self.newton_steps < 1 or self.cg_steps < 1:
            msg = (
                "`candidates`, `newton_steps` and `cg_steps` must be >= 1; "
                f"got {self.candidates}, {self.newton_steps} and {self.cg_steps}."
            )
            raise ValueError(msg)
        if min(self.start, self.weight_steps, self.weight_step) < 0:
            msg = (
                "`start`, `weight_steps` and `weight_step` must be >= 0; "
                f"got {self.start}, {self.weight_steps} and {self.weight_step}."
            )
            raise ValueError(msg)
        if not self.penalty > 0:
            msg = f"`penalty` must be > 0, or the inner problem may have no solution; got {self.penalty}."
            raise ValueError(msg)


@dataclass(frozen=True, eq=False)
class Grown:
    """A coreset on its way."""

    chosen: Tensor  # (S,)
    sees: Tensor  # the kernel of the chosen with all, (S, M)
    a: Tensor  # coefficients of the regression, (S, C)
    weights: Tensor  # (S,)


@dataclass(frozen=True, eq=False)
class Growth:
    """One worker's bilevel problem."""

    rows: Rows
    targets: Tensor  # one-hot, (M, C)
    settings: GreedySettings

    def empty(self) -> Grown:
        """Nothing chosen yet."""
        none = self.targets[:0]
        numbers = torch.arange(0, device=none.device)
        return Grown(numbers, none.new_zeros(0, len(self.targets)), none, none.new_zeros(0))

    def added(self, grown: Grown, which: Tensor) -> Grown:
        """With more samples, which say nothing yet."""
        return Grown(
            torch.cat([grown.chosen, which]),
            torch.cat([grown.sees, self.rows(which)]),
            torch.cat([grown.a, torch.zeros_like(self.targets[which])]),
            torch.cat([grown.weights, grown.weights.new_ones(len(which))]),
        )

    def settled(self, grown: Grown) -> Grown:
        """With the weights moved down the outer loss from one by Adam, and the regression fitted to them."""
        weights = torch.ones_like(grown.weights)
        mean = square = torch.zeros_like(weights)
        grown = self.fitted(replace(grown, weights=weights))
        for step in range(1, self.settings.weight_steps + 1):
            rates = self.rates(grown, grown.sees, grown.chosen)
            mean, square = 0.9 * mean + 0.1 * rates, 0.999 * square + 0.001 * rates.square()
            down = mean / (1 - 0.9**step) / ((square / (1 - 0.999**step)).sqrt() + 1e-30)
            weights = (weights - self.settings.weight_step * down).clamp(min=0)
            grown = self.fitted(replace(grown, weights=weights))
        return grown

    def fitted(self, grown: Grown) -> Grown:
        """With the coefficients that solve the inner problem."""
        return replace(grown, a=self.inner(grown).fit(grown.a, self.settings.newton_steps))

    def inner(self, grown: Grown) -> Representer:
        """The inner problem; weights are divided by their number so that the penalty does not fade as S grows."""
        gram = grown.sees[:, grown.chosen]
        v = grown.weights / max(1, len(grown.weights))
        return Representer(gram, self.targets[grown.chosen], v, self.settings.penalty, self.settings.cg_steps)

    def outer(self, grown: Grown) -> Tensor:
        """The mean loss of all samples."""
        return cross_entropy(grown.sees.T @ grown.a, self.targets)

    def rates(self, grown: Grown, rows: Tensor, which: Tensor) -> Tensor:
        """How the outer loss changes with the inner problem's weights v of some samples, whose kernel is `rows`."""
        p = (grown.sees.T @ grown.a).softmax(dim=1)
        residual = p - self.targets
        outer = residual / len(residual)  # coefficients of the outer gradient over all samples
        b = self.inner(grown).absorbed(p[grown.chosen], grown.sees @ outer)
        moved = (rows @ outer - rows[:, grown.chosen] @ b) / (2 * self.settings.penalty)
        return -(residual[which] * moved).sum(dim=1)

    def rates_outside(self, grown: Grown, some: Tensor) -> Tensor:
        """The same for samples not chosen, part by part, to bound memory."""
        parts = some.split(max(1, PART_BYTES // (8 * len(self.targets))))  # type: ignore[no-untyped-call]
        return torch.cat([self.rates(grown, self.rows(part), part) for part in parts])


def grow(growth: Growth, y: Tensor, places: Tensor, rng: Generator) -> Grown:
    """A coreset with so many places for each class 0..max(y)."""
    grown = growth.empty()
    while len(grown.chosen) < int(places.sum()):
        some = _candidates(y, places, grown.chosen, rng)[: growth.settings.candidates]
        if len(grown.chosen) >= growth.settings.start:
            grown = growth.settled(grown)
            some = some[growth.rates_outside(grown, some).argmin()][None]
        grown = growth.added(grown, some[:1])
    return growth.settled(grown)


def _candidates(y: Tensor, places: Tensor, chosen: Tensor, rng: Generator) -> Tensor:
    """Samples not chosen, of classes that have places left, in random order."""
    open_ = (places > torch.bincount(y[chosen], minlength=len(places)))[y]
    open_[chosen] = False
    rest = open_.nonzero().flatten()
    return rest[torch.randperm(len(rest), generator=rng).to(rest.device)]


def kernel_rows(shard: Shard, w: Tensor, settings: GreedySettings) -> Rows:
    """The kernel that stands for the shard's network, in double precision."""
    if uses_features(shard.model, settings.kernel):
        with torch.no_grad():
            features = shard.model.features(w, shard.x).flatten(1).double()
        scaled = features / features.square().sum(dim=1).mean().clamp(min=1e-30).sqrt()
        return lambda which: scaled[which] @ scaled.T
    x = shard.x.flatten(1).double()
    # Standardised as the authors have it: the kernel's size, and with it what the penalty means, hangs on the inputs'.
    x = (x - x.mean()) / x.std(correction=0).clamp(min=1e-12)
    return lambda which: settings.ntk(x[which], x)


def uses_features(model: FlatModel, kernel: Kernel) -> bool:
    """Whether the kernel needs the model that all workers trained together."""
    return model.convolves if kernel is Kernel.AUTO else kernel is Kernel.FEATURES


def choose(settings: GreedySettings, shard: Shard, w: Tensor, rng: Generator) -> Coreset:
    """One worker's coreset, in the order in which it grew."""
    if shard.size == len(shard.y):
        # All, as the authors have it, but in random order: prefixes may have to stand for the whole.
        return evenly(torch.randperm(len(shard.y), generator=rng, device=rng.device).to(shard.y.device))
    with torch.no_grad():
        classes = shard.model.logits(w, shard.x[:1]).shape[1]
    growth = Growth(kernel_rows(shard, w, settings), one_hot(shard.y, classes).double(), settings)
    groups = shard.y if settings.classwise else torch.zeros_like(shard.y)
    grown = grow(growth, groups, shard.places(groups), rng)
    return weighted(grown.chosen, grown.weights.to(shard.x.dtype))


def check_work(shard: Shard, settings: GreedySettings) -> None:
    """Refuse what would take many minutes, before anything is computed."""
    if len(shard.y) * min(settings.candidates, len(shard.y)) * shard.size > MOST_WORK:
        msg = (
            f"`greedy` compares `candidates` = {settings.candidates} samples with all {len(shard.y):,} of worker "
            f"{shard.worker} for each of {shard.size:,} that are kept, which takes many minutes; lower `candidates` or "
            "`size`, use more workers, or another method."
        )
        raise SettingsError(msg)


@dataclass(frozen=True)
class Greedy:
    """The method as a selector: workers train a model together only where some kernel needs it."""

    settings: GreedySettings
    shared: Lifted

    def program(self) -> Greedy:
        """Itself."""
        return self

    def start(self, shard: Shard) -> tuple[int, Tensor]:
        """The state of a lifted method."""
        check_work(shard, self.settings)
        return self.shared.start(shard)

    def run(
        self, phase: str, shard: Shard, state: tuple[int, Tensor], message: Message
    ) -> tuple[tuple[int, Tensor], Message]:
        """Say whether the kernel needs the shared model, or train it."""
        if phase == KERNEL:
            return state, Message(scalars={"features": float(uses_features(shard.model, self.settings.kernel))})
        return self.shared.run(phase, shard, state, message)

    def lead(self, ask: Ask, w: Tensor, on_round: OnRound) -> Solution:
        """Nothing to do for tangent kernels, which know no parameters; else the shared model."""
        if any(reply.scalars["features"] for reply in ask(KERNEL, Message())):
            return self.shared.lead(ask, w, on_round)
        return Solution(w=w, history=(), stopped=Stopped.ITERATIONS)

    def coreset(self, shard: Shard, state: tuple[int, Tensor]) -> Coreset:
        """The worker's choice."""
        return self.shared.coreset(shard, state)


def make(settings: GreedySettings, given: Given) -> Greedy:
    """The method, ready to run."""
    return Greedy(settings, Lifted(partial(choose, settings), settings.pretraining, given))
