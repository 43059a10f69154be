"""The worker's side of F2CTO-EF; `error_feedback.py` tells the whole."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from f2cto.attacks import Pgd
from f2cto.config import SettingsError
from f2cto.message import Message
from f2cto.methods.base import Given, Shard
from f2cto.methods.error_feedback_places import OpenClass, view_of
from f2cto.methods.error_feedback_settings import ErrorFeedbackSettings, Target
from f2cto.methods.matching import EMPTY, parts_of, weighted_slope
from f2cto.methods.screening import passing
from f2cto.methods.secure_sum import Keys, digits, numbers, wrapped
from f2cto.models import FlatModel
from f2cto.randomness import generator
from f2cto.trilevel.coreset import Blocks

COUNT, PLAN, FILTER, KEEP, TRAIN, OPEN, FILL = "count", "plan", "filter", "keep", "train", "open", "fill"
NOBODY = -1
PAIRS_BYTES = 2 * 2**30  # of the inner products of all pairs of a class


@dataclass(frozen=True, eq=False)
class Plan:
    """What the master has told a worker about the whole."""

    places: Tensor  # of each class on this worker, (C,)
    mass: Tensor  # of each class in f1, its share of all places, (C,)
    counts: Tensor  # samples of each class on all workers, (C,)
    place: float  # the mass of one place: one over the places of all workers
    keys: Keys


@dataclass(frozen=True, eq=False)
class FeedbackState:
    """What a worker keeps between two messages."""

    losses: Tensor  # the sum of each sample's robust losses since the filter began to listen, (M,)
    kept: Tensor  # whether it passed, (M,)
    parts: int  # into which a pass over all samples is cut
    round: int = 0
    turn: int = 0  # messages about places so far: masks are used once
    plan: Plan | None = None
    passed: Tensor | None = None  # samples that passed, per class, on all workers, (C,)
    open: OpenClass | None = None
    chosen: tuple[Tensor, ...] = ()  # the samples in the places of each class that is done


@dataclass(frozen=True, eq=False)
class FeedbackProgram:
    """Answers the phases of F2CTO-EF."""

    settings: ErrorFeedbackSettings
    given: Given

    def start(self, shard: Shard) -> FeedbackState:
        """Everything is kept, nothing is known."""
        check_pairs(shard, self.settings.proxies.count)
        everyone = torch.ones_like(shard.y, dtype=torch.bool)
        return FeedbackState(shard.x.new_zeros(len(shard.y)), everyone, parts_of(shard.model, shard.x))

    def run(self, phase: str, shard: Shard, state: FeedbackState, message: Message) -> tuple[FeedbackState, Message]:
        """Answer one message."""
        if phase == COUNT:
            return state, Message({}, numbered("count", torch.bincount(shard.y)) | {"size": float(shard.size)})
        phases = {
            PLAN: self._plan,
            FILTER: self._filter,
            KEEP: self._keep,
            TRAIN: self._train,
            OPEN: self._open,
            FILL: self._fill,
        }
        if phase not in phases:
            msg = f"F2CTO-EF knows the phases {COUNT}, {', '.join(phases)}; got `{phase}`."
            raise ValueError(msg)
        return phases[phase](shard, state, message)

    def _plan(self, shard: Shard, state: FeedbackState, message: Message) -> tuple[FeedbackState, Message]:
        """Take note of the whole; answer with further initialisations, the same on every worker."""
        workers, total = int(message.scalars["workers"]), message.scalars["places"]
        places = [listed(f"places.{i}", message, shard.x) for i in range(workers)]
        plan = Plan(
            places=places[shard.worker].long(),
            mass=torch.stack(places).sum(dim=0) / total,
            counts=listed("count", message, shard.x),
            place=1 / total,
            keys=Keys(shard.worker, workers, shard.seed),
        )
        w, others = self.given.w.to(shard.x.device), range(1, self.settings.proxies.count)
        return replace(state, plan=plan), Message({f"w.{e}": reshuffled(shard.model, w, shard.seed, e) for e in others})

    def _filter(self, shard: Shard, state: FeedbackState, message: Message) -> tuple[FeedbackState, Message]:
        """One round of class-balanced robust training; its losses are what the filter listens to."""
        plan, w = told(state), message.vectors["w"]
        weights = (1 / (plan.counts.clamp(min=1) * (plan.counts > 0).sum()))[shard.y]
        attacked = self._attacked(shard.model, w, shard.x, shard.y, state)
        losses, slope = weighted_slope(shard.model, w, attacked, shard.y, weights, state.parts)
        heard = state.losses + losses if state.round >= self.settings.filtering.since else state.losses
        done = replace(state, round=state.round + 1, losses=heard)
        return done, Message({"slope": slope}, {"objective": float(losses @ weights)})

    def _keep(self, shard: Shard, state: FeedbackState, message: Message) -> tuple[FeedbackState, Message]:  # noqa: ARG002
        """Who passes: losses better than chance, and in any case the better ones of each class."""
        plan, filtering, kept = told(state), self.settings.filtering, state.kept
        if filtering.rounds:
            mean, classes = state.losses / (filtering.rounds - filtering.since), int((plan.counts > 0).sum())
            kept = passing(mean, Blocks(shard.y, plan.places), classes, filtering)
        counts = torch.bincount(shard.y[kept], minlength=len(plan.counts))
        return replace(state, kept=kept, round=0), Message({}, numbered("passed", counts))

    def _train(self, shard: Shard, state: FeedbackState, message: Message) -> tuple[FeedbackState, Message]:
        """The slope of f1 + rho_2 f2 for each proxy, with even weights on all that passed."""
        state = replace(state, passed=listed("passed", message, shard.x), round=state.round + 1)
        rho, count = self.settings.proxies.rho_2, self.settings.proxies.count
        weights = (self._every(shard, state) + rho * even(shard, state)) / (1 + rho)
        slopes, objective = {}, 0.0
        for e in range(count):
            w = message.vectors[f"w.{e}"]
            attacked = self._attacked(shard.model, w, shard.x, shard.y, state)
            losses, slopes[f"slope.{e}"] = weighted_slope(shard.model, w, attacked, shard.y, weights, state.parts)
            objective += float(losses @ weights) / count
        return state, Message(slopes, {"objective": objective})

    def _open(self, shard: Shard, state: FeedbackState, message: Message) -> tuple[FeedbackState, Message]:
        """Turn to a class. The answer is this worker's term of what is missing in it, for the first reader's eyes."""
        plan, number = told(state), int(message.scalars["class"])
        state = replace(closed(state), passed=listed("passed", message, shard.x), round=self.settings.attacks.ramp)
        rows = (shard.y == number).nonzero().flatten()
        y, among, every = shard.y[rows], state.kept[rows], self._every(shard, state)[rows]
        ws = [message.vectors[f"w.{e}"] for e in range(self.settings.proxies.count)]
        attacked = [self._attacked(shard.model, w, shard.x[rows], y, state) for w in ws]
        views = tuple(view_of(shard.model, w, a[among], y[among]) for w, a in zip(ws, attacked, strict=True))
        places = torch.full((int(plan.places[number]),), EMPTY, device=rows.device)
        opened = OpenClass(shard.model, rows[among], y[among], views, places, plan.place)
        shares = {}
        for e, view in enumerate(views):
            target = weighted_slope(shard.model, view.w, attacked[e], y, every, state.parts)[1]
            missing = target - opened.slope(view, opened.weights())
            masks = plan.keys.ring(use(state.turn, e), missing)
            if int(message.scalars["next"]) == shard.worker:
                masks = masks + plan.keys.mask(shard.worker, use(state.turn, e), missing)
            shares[f"error.{e}"] = wrapped(digits(missing) + masks)
        return replace(state, open=opened, turn=state.turn + 1), Message(shares)

    def _fill(self, shard: Shard, state: FeedbackState, message: Message) -> tuple[FeedbackState, Message]:
        """In this worker's turn: fill places so that what is missing shrinks, and hand on what is left of it."""
        done = replace(state, turn=state.turn + 1)
        if int(message.scalars["worker"]) != shard.worker:
            return done, Message()
        opened = at_work(state)
        errors = [self._read(state, message, e) for e in range(len(opened.views))]
        first, slots = int(message.scalars["first"]), self.settings.feedback.slots or len(opened.places)
        which = range(first, min(first + slots, len(opened.places)))
        filled = opened.filled(errors, which, self.settings.feedback.probe)
        change = filled.weights() - opened.weights()
        left = [e - opened.slope(view, change) for e, view in zip(errors, opened.views, strict=True)]
        size = sum(float(error.square().sum()) for error in left)
        vectors = self._handed_on(state, left, int(message.scalars["next"]))
        return replace(done, open=filled), Message(vectors, {"error": size / len(left)})

    def _read(self, state: FeedbackState, message: Message, e: int) -> Tensor:
        """What is missing, as the worker before has hidden it for this one."""
        hidden, before = message.vectors[f"error.{e}"], int(message.scalars["before"])
        mask = told(state).keys.masked_by(before, use(state.turn - 1, e), hidden)
        return numbers(wrapped(hidden - mask), self.given.w.dtype)

    def _handed_on(self, state: FeedbackState, left: list[Tensor], reader: int) -> dict[str, Tensor]:
        """What is left, for the eyes of the next worker."""
        if reader == NOBODY:
            return {}
        keys = told(state).keys
        return {
            f"error.{e}": wrapped(digits(error) + keys.mask(reader, use(state.turn, e), error))
            for e, error in enumerate(left)
        }

    def _attacked(self, model: FlatModel, w: Tensor, x: Tensor, y: Tensor, state: FeedbackState) -> Tensor:
        """Samples under sign steps from zero, with the radius that the round has grown to."""
        attacks = self.settings.attacks
        radius = attacks.radius if attacks.radius >= 0 else self.given.radius
        radius *= min(1.0, (state.round + 1) / attacks.ramp) if attacks.ramp else 1.0
        step = 2.5 * radius / max(attacks.steps, 1)
        attack = Pgd(radius, attacks.steps, step, random_start=False, valid=self.given.valid)
        parts = zip(x.chunk(state.parts), y.chunk(state.parts), strict=True) if len(y) else ()
        logits = partial(model.logits_to_attack, w, precision=attacks.precision)
        return torch.cat([x[:0], *(attack.perturb(logits, *part, generator(0)) for part in parts)])

    def _every(self, shard: Shard, state: FeedbackState) -> Tensor:
        """The weight of each sample in f1: a class's mass spread over all its samples, or those that passed."""
        plan = told(state)
        if self.settings.target is Target.ALL or state.passed is None:
            return (plan.mass / plan.counts.clamp(min=1))[shard.y]
        return (plan.mass / state.passed.clamp(min=1))[shard.y] * state.kept


def told(state: FeedbackState) -> Plan:
    """The plan, which every phase after the second needs."""
    if state.plan is None:
        msg = f"F2CTO-EF needs the phase `{PLAN}` before this one."
        raise ValueError(msg)
    return state.plan


def at_work(state: FeedbackState) -> OpenClass:
    """The class that is open."""
    if state.open is None:
        msg = f"F2CTO-EF needs the phase `{OPEN}` before `{FILL}`."
        raise ValueError(msg)
    return state.open


def closed(state: FeedbackState) -> FeedbackState:
    """The state once the open class is done."""
    return state if state.open is None else replace(state, open=None, chosen=(*state.chosen, state.open.chosen))


def use(turn: int, proxy: int) -> int:
    """The number of a mask: that of the message it goes with, and of the proxy."""
    return turn << 10 | proxy


def check_pairs(shard: Shard, proxies: int) -> None:
    """Refuse classes whose matrices of all pairs would not fit, before anything is computed."""
    counts, size = shard.y.bincount(), shard.x.element_size() * (proxies + 2)  # two more while places are filled
    most, largest = math.isqrt(PAIRS_BYTES // size), int(counts.max())
    if largest > most:
        msg = (
            f"`f2cto-ef` compares all samples of a class on a worker with each other, which fits {most:,} of them, and "
            f"worker {shard.worker} has {largest:,} of class {int(counts.argmax())}; use more workers or `f2cto`."
        )
        raise SettingsError(msg)


def even(shard: Shard, state: FeedbackState) -> Tensor:
    """The weights of samples before any place is filled: a class's places spread over its samples that passed."""
    plan = told(state)
    own = torch.bincount(shard.y[state.kept], minlength=len(plan.places)).clamp(min=1)
    return (plan.places * plan.place / own)[shard.y] * state.kept


def reshuffled(model: FlatModel, w: Tensor, *key: int) -> Tensor:
    """Another initialisation of the same kind: each parameter tensor's entries in another order."""
    rng = generator(*key, 6)
    parts = [part.reshape(-1) for part in model.unflatten(w).values()]
    return torch.cat([part[torch.randperm(len(part), generator=rng).to(w.device)] for part in parts])


def numbered(name: str, values: Tensor) -> dict[str, float]:
    """A vector of numbers as scalars."""
    return {f"{name}.{i}": float(value) for i, value in enumerate(values.tolist())}


def listed(name: str, message: Message, like: Tensor) -> Tensor:
    """The numbers that `numbered` put into a message."""
    count = sum(key.startswith(f"{name}.") for key in message.scalars)
    return like.new_tensor([message.scalars[f"{name}.{i}"] for i in range(count)])
