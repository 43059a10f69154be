"""The worker's side of F2CTO-EF; `error_feedback.py` tells the whole."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from f2cto.attacks import Pgd
from f2cto.message import Message
from f2cto.models import FlatModel
from f2cto.randomness import generator
from f2cto.selectors.base import Given, Shard
from f2cto.selectors.error_feedback_settings import ErrorFeedbackSettings, Target
from f2cto.selectors.matching import EMPTY, gradient_gram, refill
from f2cto.selectors.secure_sum import Keys, digits, numbers, wrapped

COUNT, PLAN, FILTER, KEEP, TRAIN, OPEN, FILL = "count", "plan", "filter", "keep", "train", "open", "fill"
PART_BYTES = 256 * 2**20  # of memory for one part of a pass


@dataclass(frozen=True, eq=False)
class Plan:
    """What the master has told a worker about the whole."""

    places: Tensor  # of each class on this worker, (C,)
    mass: Tensor  # of each class in f1, its share of all places, (C,)
    counts: Tensor  # samples of each class on all workers, (C,)
    place: float  # the mass of one place, 1/K of all workers together
    keys: Keys


@dataclass(frozen=True, eq=False)
class OpenClass:
    """The class that places are being filled for, as one worker sees it under each proxy."""

    rows: Tensor  # its samples that passed the filter: the candidates, (n,)
    attacked: list[Tensor]  # them, attacked; one per proxy, as is all below
    w: list[Tensor]
    losses: list[Tensor]  # of the candidates at w
    gram: list[Tensor]  # of their gradients
    target: Tensor  # this worker's term of the gradient of f1, (E, d)
    places: Tensor  # the candidate in each place, (q,)


@dataclass(frozen=True, eq=False)
class FeedbackState:
    """What a worker keeps between two messages."""

    losses: Tensor  # the sum of each sample's robust losses since the filter began to listen, (M,)
    kept: Tensor  # whether it passed, (M,)
    parts: int  # into which a pass over all samples is cut
    round: int = 0
    turn: int = 0  # replies under masks so far
    plan: Plan | None = None
    totals: Tensor | None = None  # samples that passed, per class, on all workers, (C,)
    open: OpenClass | None = None
    chosen: tuple[Tensor, ...] = ()  # the samples in the places of each class that is done


@dataclass(frozen=True, eq=False)
class FeedbackProgram:
    """Answers the phases of F2CTO-EF."""

    settings: ErrorFeedbackSettings
    given: Given

    def start(self, shard: Shard) -> FeedbackState:
        """Everything is kept, nothing is known."""
        parts = 1 + len(shard.y) * shard.model.pass_bytes(shard.x[:1]) // PART_BYTES
        return FeedbackState(shard.x.new_zeros(len(shard.y)), torch.ones_like(shard.y, dtype=torch.bool), parts)

    def run(self, phase: str, shard: Shard, state: FeedbackState, message: Message) -> tuple[FeedbackState, Message]:
        """Answer one message."""
        match phase:
            case "count":
                return state, Message({}, numbered("count", torch.bincount(shard.y)) | {"size": float(shard.size)})
            case "plan":
                return self._plan(shard, state, message)
            case "filter":
                return self._filter(shard, state, message.vectors["w"])
            case "keep":
                return self._keep(shard, state)
            case "train":
                return self._train(shard, state, message)
            case "open":
                return self._open(shard, state, message)
            case "fill":
                return self._fill(shard, state, message)
        msg = f"F2CTO-EF knows the phases count, plan, filter, keep, train, open and fill; got `{phase}`."
        raise ValueError(msg)

    def _plan(self, shard: Shard, state: FeedbackState, message: Message) -> tuple[FeedbackState, Message]:
        workers, total = int(message.scalars["workers"]), message.scalars["places"]
        places = [listed(f"places.{i}", message, shard.x) for i in range(workers)]
        plan = Plan(
            places=places[shard.worker].long(),
            mass=torch.stack(places).sum(dim=0) / total,
            counts=listed("count", message, shard.x),
            place=1 / total,
            keys=Keys(shard.worker, workers, shard.seed),
        )
        proxies = range(1, self.settings.proxies.count)
        starts = {f"w.{e}": reshuffled(shard.model, self.given.w.to(shard.x.device), shard.seed, e) for e in proxies}
        return replace(state, plan=plan), Message(starts)

    def _filter(self, shard: Shard, state: FeedbackState, w: Tensor) -> tuple[FeedbackState, Message]:
        """One round of class-balanced robust training; the losses are what the filter listens to."""
        plan = told(state)
        weights = (1 / (plan.counts.clamp(min=1) * (plan.counts > 0).sum()))[shard.y]
        attacked = self._attacked(shard.model, w, shard.x, shard.y, state)
        losses, slope = weighted_slope(shard.model, w, attacked, shard.y, weights, state.parts)
        heard = state.losses + losses if state.round >= self.settings.filtering.since else state.losses
        done = replace(state, round=state.round + 1, losses=heard)
        return done, Message({"slope": slope}, {"objective": float(losses @ weights)})

    def _keep(self, shard: Shard, state: FeedbackState) -> tuple[FeedbackState, Message]:
        """Who passes: losses below chance, and in any case the better ones of each class."""
        plan, filtering = told(state), self.settings.filtering
        kept = state.kept
        if filtering.rounds:
            mean = state.losses / (filtering.rounds - filtering.since)
            kept = mean < math.log(max(2, int((plan.counts > 0).sum())))
            for c, places in enumerate(plan.places.tolist()):
                rows = (shard.y == c).nonzero().flatten()
                least = max(places, math.ceil(filtering.least * len(rows)))
                kept[rows[mean[rows].argsort(stable=True)[:least]]] = True
        counts = torch.bincount(shard.y[kept], minlength=len(plan.counts))
        return replace(state, kept=kept, round=0), Message({}, numbered("kept", counts))

    def _train(self, shard: Shard, state: FeedbackState, message: Message) -> tuple[FeedbackState, Message]:
        """One step of each proxy on f1 + rho_2 f2, with even weights on all that passed."""
        state = replace(state, totals=listed("kept", message, shard.x))
        rho = self.settings.proxies.rho_2
        weights = (self._every(shard, state) + rho * even(shard, state)) / (1 + rho)
        slopes, objective = {}, 0.0
        for e in range(self.settings.proxies.count):
            w = message.vectors[f"w.{e}"]
            attacked = self._attacked(shard.model, w, shard.x, shard.y, state)
            losses, slopes[f"slope.{e}"] = weighted_slope(shard.model, w, attacked, shard.y, weights, state.parts)
            objective += float(losses @ weights) / self.settings.proxies.count
        return replace(state, round=state.round + 1), Message(slopes, {"objective": objective})

    def _open(self, shard: Shard, state: FeedbackState, message: Message) -> tuple[FeedbackState, Message]:
        """Turn to a class, and tell this worker's term of what is missing in it: hidden from all but the sum's reader."""
        number = int(message.scalars["class"])
        state = replace(closed(state), round=self.settings.attacks.ramp)  # attacks at full length
        rows = (shard.y == number).nonzero().flatten()
        ws = [message.vectors[f"w.{e}"] for e in range(self.settings.proxies.count)]
        views = [self._view(shard, state, w, rows) for w in ws]
        places = torch.full((int(told(state).places[number]),), EMPTY, device=rows.device)
        opened = OpenClass(rows[state.kept[rows]], tuple(views), places)
        first = int(message.scalars["next"])
        shares = {}
        for e, view in enumerate(views):
            missing = view.target - self._slope(shard, opened, view, weights_of(opened, told(state).place))
            masks = told(state).keys.ring(use_of(state, e), missing)
            if first == shard.worker:
                masks = masks + told(state).keys.mask(first, use_of(state, e), missing)
            shares[f"error.{e}"] = wrapped(digits(missing) + masks)
        return replace(state, open=opened, turn=state.turn + 1), Message(shares)

    def _view(self, shard: Shard, state: FeedbackState, w: Tensor, rows: Tensor) -> View:
        """Samples of a class under one proxy."""
        x, y, among = shard.x[rows], shard.y[rows], state.kept[rows]
        attacked = self._attacked(shard.model, w, x, y, state)
        every = self._every(shard, state)[rows]
        losses, target = weighted_slope(shard.model, w, attacked, y, every, state.parts)
        candidates = attacked[among]
        return View(w, candidates, losses[among], gradient_gram(shard.model, w, candidates, y[among]), target)

    def _fill(self, shard: Shard, state: FeedbackState, message: Message) -> tuple[FeedbackState, Message]:
        """In this worker's turn: fill some places so that what is missing shrinks, and pass on what is left of it."""
        later = replace(state, turn=state.turn + 1)
        if int(message.scalars["worker"]) != shard.worker:
            return later, Message()
        plan, opened = told(state), at_work(state)
        errors = [self._read(state, message, e) for e in range(len(opened.views))]
        first, slots = int(message.scalars["first"]), self.settings.feedback.slots or len(opened.places)
        gram, pull = self._averaged(shard, opened, errors)
        which = range(first, min(first + slots, len(opened.places)))
        filled = replace(opened, places=refill(gram, pull, opened.places, which, plan.place))
        change = weights_of(filled, plan.place) - weights_of(opened, plan.place)
        left = [e - self._slope(shard, opened, v, change) for e, v in zip(errors, opened.views, strict=True)]
        error = sum(float(e.square().sum() / v.scale) for e, v in zip(left, opened.views, strict=True)) / len(left)
        return replace(later, open=filled), Message(self._passed_on(state, message, left), {"error": error})

    def _read(self, state: FeedbackState, message: Message, e: int) -> Tensor:
        """What is missing, as the worker before hid it."""
        hidden = message.vectors[f"error.{e}"]
        mask = told(state).keys.masked_by(int(message.scalars["before"]), use_of(state, e) - use_of(state, 0), hidden)
        return numbers(wrapped(hidden - mask), self.given.w.dtype)
    def _attacked(self, model: FlatModel, w: Tensor, x: Tensor, y: Tensor, state: FeedbackState) -> Tensor:  # noqa: PLR0913
        """Samples under sign steps from zero, with the radius that the round has grown to."""
        attacks = self.settings.attacks
        radius = attacks.radius if attacks.radius >= 0 else self.given.radius
        radius *= min(1.0, (state.round + 1) / attacks.ramp) if attacks.ramp else 1.0
        pgd = Pgd(radius, attacks.steps, 2.5 * radius / max(attacks.steps, 1), random_start=False, valid=self.given.valid)
        if not len(y):
            return x
        pairs = zip(x.chunk(state.parts), y.chunk(state.parts), strict=True)
        return torch.cat([pgd.perturb(lambda v: model.logits(w, v), a, b, generator(0)) for a, b in pairs])

    def _every(self, shard: Shard, state: FeedbackState) -> Tensor:
        """The weight of each sample in f1: a class's mass spread over all its samples, or those that passed."""
        plan = told(state)
        assert state.totals is not None  # noqa: S101  (the master sends them with the first step of the proxies)
        if self.settings.target is Target.ALL:
            return (plan.mass / plan.counts.clamp(min=1))[shard.y]
        return (plan.mass / state.totals.clamp(min=1))[shard.y] * state.kept


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
    if state.open is None:
        return state
    return replace(state, open=None, chosen=(*state.chosen, state.open.rows[state.open.places]))


def even(shard: Shard, state: FeedbackState) -> Tensor:
    """The weights of samples before any place is filled: a class's places spread over its samples that passed."""
    plan = told(state)
    own = torch.bincount(shard.y[state.kept], minlength=len(plan.places)).clamp(min=1)
    return (plan.places * plan.place / own)[shard.y] * state.kept


def weights_of(opened: OpenClass, place: float) -> Tensor:
    """The weight of each candidate: a place's mass where it was picked, and its share of the empty places."""
    picked = opened.places[opened.places != EMPTY]
    weights = opened.losses[0].new_zeros(len(opened.rows))
    weights[picked] = place
    empty = len(opened.places) - len(picked)
    return weights + empty * place / max(1, len(weights))


def weighted_slope(  # noqa: PLR0913
    model: FlatModel, w: Tensor, x: Tensor, y: Tensor, weights: Tensor, parts: int
) -> tuple[Tensor, Tensor]:
    """The losses of all samples, and the gradient in w of their weighted sum."""
    losses, slope = [weights[:0]], torch.zeros_like(w)
    for rows in torch.arange(len(y), device=y.device).chunk(parts):
        here = w.detach().requires_grad_()
        with torch.enable_grad():
            each = model.losses(here, x[rows], y[rows])
        slope = slope + torch.autograd.grad(each @ weights[rows], here)[0]
        losses.append(each.detach())
    return torch.cat(losses), slope


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
