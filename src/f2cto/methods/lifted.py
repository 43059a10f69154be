"""Centralised methods in a federation: all workers train one model together, then each selects from its own shard.

The model is trained by federated averaging (McMahan et al., 2017) on PGD-perturbed batches, so that what a method sees
of its samples (features, gradients, losses) is what a robust model sees.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import fmean

import torch
from torch import Generator, Tensor

from f2cto.attacks import Pgd
from f2cto.message import Ask, Message
from f2cto.methods.base import Coreset, Given, OnRound, Shard
from f2cto.randomness import generator
from f2cto.training import FORMER, Training, train_robust
from f2cto.trilevel.master import Round, Solution, Stopped, average

TRAIN, FINISH = "train", "finish"


@dataclass(frozen=True)
class Pretraining:
    """How the shared model comes about before samples are chosen with it."""

    rounds: int = 20
    # Of one round on one worker: too short to warm up in, and no model has to have learned anything after a round.
    local: Training = field(default_factory=lambda: Training(steps=20, **{**FORMER, "ramp": 0.0}))
    robust: bool = True  # false: no attacks, as methods have it that know of none

    def __post_init__(self) -> None:
        """Refuse a negative number of rounds."""
        if self.rounds < 0:
            msg = f"`rounds` of the shared model must be >= 0; got {self.rounds}."
            raise ValueError(msg)


LiftedChoice = Callable[[Shard, Tensor, Generator], Coreset]  # from a shard and the shared parameters


@dataclass(frozen=True)
class Lifted:
    """A choice that needs a shard and the shared model, as a selector. A worker's state is its round and its w."""

    choose: LiftedChoice
    pretraining: Pretraining
    given: Given

    def program(self) -> Lifted:
        """Itself."""
        return self

    def start(self, shard: Shard) -> tuple[int, Tensor]:
        """No round yet, the initial parameters."""
        return 0, self.given.w.to(shard.x.device)

    def run(
        self, phase: str, shard: Shard, state: tuple[int, Tensor], message: Message
    ) -> tuple[tuple[int, Tensor], Message]:
        """Train a while from the shared parameters, or take them as final."""
        done, _ = state
        w = message.vectors["w"]
        if phase == FINISH:
            return (done, w), Message()
        if phase != TRAIN:
            msg = f"A lifted method knows the phases `{TRAIN}` and `{FINISH}`; got `{phase}`."
            raise ValueError(msg)
        rng = generator(shard.seed, shard.worker, done, 2, device=shard.x.device)
        with torch.no_grad():
            loss = float(shard.model.losses(w, shard.x, shard.y).mean())
        return (done + 1, w), Message({"w": self._trained(shard, w, rng)}, {"loss": loss})

    def lead(self, ask: Ask, w: Tensor, on_round: OnRound) -> Solution:
        """Federated averaging, then the final parameters to all.

        A round's objective is the mean clean loss it began with, its gap how far the parameters moved.
        """
        began, history = time.monotonic(), list[Round]()
        for number in range(1, self.pretraining.rounds + 1):
            replies = ask(TRAIN, Message({"w": w}))
            before, w = w, average([reply.vectors["w"] for reply in replies])
            loss = fmean(reply.scalars["loss"] for reply in replies)
            history.append(Round(number, loss, float((before - w).square().sum()), time.monotonic() - began, {}))
            on_round(history[-1])
        if self.pretraining.rounds:
            ask(FINISH, Message({"w": w}))
        return Solution(w=w, history=tuple(history), stopped=Stopped.ITERATIONS)

    def coreset(self, shard: Shard, state: tuple[int, Tensor]) -> Coreset:
        """The worker's choice with the final parameters."""
        return self.choose(shard, state[1], generator(shard.seed, shard.worker, 3, device=shard.x.device))

    def _trained(self, shard: Shard, w: Tensor, rng: Generator) -> Tensor:
        local = self.pretraining.local
        attack = self.attack(local.attack_steps)
        if not self.pretraining.robust:
            local = replace(local, attack_steps=0)
            attack = replace(attack, steps=0, random_start=False)
        return train_robust(shard.model, w, shard.x, shard.y, attack, local, rng)

    def attack(self, steps: int) -> Pgd:
        """The attack that the shared model is trained against."""
        step = 2.5 * self.given.radius / max(steps, 1)
        return Pgd(self.given.radius, steps, step, valid=self.given.valid)
