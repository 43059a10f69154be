"""Reading a coreset off the weights, place by place, with workers in turn.

Algorithm 1 ends with weights on all samples, and the paper leaves open how K of them are taken. The largest weights are
a poor coreset: samples that would each lower the same error have large weights together, and overshoot together when
all are taken. Here the coreset is to do what the weights do. With w the trained parameters and p* the attacks on them,

    D_c = grad G_alpha - grad G_S     the mean over workers, samples of class c only

is what the places filled so far, S, leave of the weighted robust gradient; a place that is still empty stands for the
weighted samples of its block. Workers have turns. The master sends w^ = w - h D_c, a worker whose turn it is reads the
pull of D_c on each of its samples off the two models, as Eq. (11) does,

    <D_c, grad l_k> = [l_k(w) - l_k(w^)] / h,

gives its next places to the samples that leave least of D_c, and answers with its own w - h D_c,i. So workers make up
for each other's choices, and nothing but parameters crosses.

What it costs in privacy. What changes in a worker's answers from one turn to the next are the gradients of the samples
that it took, for w stands still: the master can compute them, and samples can be reconstructed from gradients. Where
workers are the user's own that is no loss. Sites of other organisations do not read this way (`site/rules.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from f2cto.message import Ask, Message
from f2cto.methods.base import Shard
from f2cto.methods.f2cto_settings import Reading
from f2cto.methods.f2cto_stages import Stages, Team, blocks_of
from f2cto.methods.matching import EMPTY, gradient_gram, parts_of, refill, weighted_slope
from f2cto.methods.quotas import first_turn
from f2cto.trilevel.coreset import Blocks
from f2cto.trilevel.master import Master, mean_of
from f2cto.trilevel.worker import Missing, WorkerState

READ = "read"
OPENING = -1  # the phase in which nobody has a turn


@dataclass(frozen=True)
class Turn:
    """Whose turn it is: which class is read, in which round of turns, and who of its workers."""

    number: int  # of the class
    round: int
    phase: int  # within the round, or `OPENING`

    def filled(self, count: int, rounds: int) -> int:
        """How many of a block's places are filled after this turn; after the last round all are."""
        return -(-(self.round + 1) * count // rounds)

    def scalars(self, workers: int) -> dict[str, float]:
        """As the master says it."""
        said = {"class": self.number, "round": self.round, "phase": self.phase, "workers": workers}
        return {name: float(value) for name, value in said.items()}

    @staticmethod
    def of(message: Message) -> Turn:
        """As a worker hears it."""
        return Turn(*(int(message.scalars[name]) for name in ("class", "round", "phase")))


def lead_reading(ask: Ask, w: Tensor, master: Master, reading: Reading) -> None:
    """The master's side: hand what is missing from turn to turn, class by class, until no place is empty."""
    replies = ask(READ, Message({"w": w, "w_hat": w}, Turn(0, 0, OPENING).scalars(1)))
    for number in range(int(max(reply.scalars["classes"] for reply in replies))):
        w_hat = w  # nothing is missing yet
        for round_ in range(reading.rounds):
            for phase in range(reading.turns):
                said = Turn(number, round_, phase).scalars(len(replies))
                replies = ask(READ, Message({"w": w, "w_hat": w_hat}, said))
                w_hat = mean_of(replies, "w_hat", w, master)
            if not any(reply.scalars["empty"] for reply in replies):
                break


def phase_of(shard: Shard, number: int, groups: int, turns: int) -> int:
    """When a worker has its turn in a class: the earlier, the sooner its stored order comes to it.

    Prefixes of coresets are then what an earlier end would have chosen.
    """
    if groups == 1:
        return shard.worker % turns
    return (number - first_turn(shard.worker, groups)) % groups * turns // groups


@dataclass(frozen=True, eq=False)
class Reader:
    """A team of workers at one turn. What is to be stood for are the weights on average over the iterations."""

    team: Team
    groups: tuple[int, ...]  # how many blocks each worker has
    blocks: Blocks  # of those who take part
    reading: Reading
    state: WorkerState

    def answer(self, message: Message) -> tuple[WorkerState, Message]:
        """Fill places if it is the turn to, and answer with what all places so far leave of the weighted gradient."""
        turn, w = Turn.of(message), message.vectors["w"]
        taken, told = torch.zeros_like(self.team.y), {"classes": float(max(self.groups))}
        if turn.phase == OPENING:
            return replace(self.state, taken=taken, missing=Missing()), Message({"w_hat": w}, told)
        before = self.state.taken if len(self.state.taken) else taken
        taken = before.clone()
        for worker, block in self._blocks(turn.number):
            if phase_of(self.team.shards[worker], turn.number, self.groups[worker], self.reading.turns) == turn.phase:
                self._fill(block, turn, taken, message)
        held = sum(int((taken[self.blocks.members(block)] > 0).sum()) for _, block in self._blocks(turn.number))
        told["empty"] = float(sum(int(self.blocks.sizes[block]) for _, block in self._blocks(turn.number)) - held)
        missing = self._missing(turn.number, before, taken, w)
        state = replace(self.state, taken=taken, missing=Missing(turn.number, missing))
        return state, Message({"w_hat": w - self.reading.probe * missing}, told)

    def _blocks(self, number: int) -> Iterator[tuple[int, int]]:
        """The workers that know of a class, and their blocks of it."""
        start = 0
        for worker, groups in enumerate(self.groups):
            if number < groups:
                yield worker, start + number
            start += groups

    def _missing(self, number: int, before: Tensor, taken: Tensor, w: Tensor) -> Tensor:
        """The team's share of D_c: what it was after the last turn, and what this one changed in it."""
        last, missing = self.state.missing, self.state.missing.slope
        if last.number != number or not len(missing):
            before, missing = torch.zeros_like(taken), torch.zeros_like(w)
        members = [self.blocks.members(block) for _, block in self._blocks(number)]
        changed = [m for m in members if not torch.equal(before[m], taken[m])]
        if not changed:
            return missing
        rows = torch.cat(changed)
        weights = torch.cat([self._left(m, taken[m]) - self._left(m, before[m]) for m in changed])
        known = weights.nonzero().flatten()
        model = self.team.shards[0].model
        parts = parts_of(model, self.team.x)
        return missing + weighted_slope(model, w, *self._samples(rows[known]), weights[known], parts)[1]

    def _left(self, rows: Tensor, taken: Tensor) -> Tensor:
        """A block's weights less those of its places. Empty places stand for the weights, which then cancel."""
        alpha, held = self.state.mean_alpha[rows], taken > 0
        share = held.sum() / (self.team.places * alpha.sum().clamp(min=torch.finfo(alpha.dtype).tiny))
        return alpha * share - held / self.team.places

    def _fill(self, block: int, turn: Turn, taken: Tensor, message: Message) -> None:
        """Give a block's next places to the samples that leave least of what is missing; `taken` is written to."""
        count, rows = int(self.blocks.sizes[block]), self._candidates(block, taken)
        places = rows.new_full((min(turn.filled(count, self.reading.rounds), len(rows)),), EMPTY)
        held = (taken[rows] > 0).nonzero().flatten()
        places[taken[rows[held]] - 1] = held
        # From the first that is empty: a worker that was away makes up for the turns it missed.
        open_ = range(len(held), len(places))
        if not open_:
            return
        model, w, (x, y) = self.team.shards[0].model, message.vectors["w"], self._samples(rows)
        with torch.no_grad():
            pull = (model.losses(w, x, y) - model.losses(message.vectors["w_hat"], x, y)) / self.reading.probe
        gram, alpha = gradient_gram(model, w, x, y), self.state.mean_alpha[rows]
        places = refill(gram, pull, places, open_, self._mass(message), alpha / alpha.sum())
        taken[rows[places]] = torch.arange(1, len(places) + 1, device=rows.device)

    def _mass(self, message: Message) -> float:
        """What a place weighs in the mean over all workers, if those who move at the same time do alike."""
        own = len(self.team.shards)
        return own / (self.team.places * min(max(int(message.scalars["workers"]), own), self.reading.turns))

    def _candidates(self, block: int, taken: Tensor) -> Tensor:
        """Who may be taken: those with most weight, and those who were taken."""
        rows = self.blocks.members(block)
        weight = self.state.mean_alpha[rows].masked_fill(taken[rows] > 0, torch.inf)
        return rows[weight.argsort(descending=True, stable=True)[: self.reading.candidates]].sort().values

    def _samples(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Samples under the attacks that the third level last found, and their labels."""
        return self.team.x[rows] + self.state.refined.p_star[rows], self.team.y[rows]


def reader_of(stages: Stages, team: Team, state: WorkerState) -> Reader:
    """A team that reads its coresets off, after all that it has heard."""
    settings = stages.settings
    groups = tuple(len(blocks_of(shard, classwise=settings.weighting.classwise).sizes) for shard in team.shards)
    return Reader(team, groups, stages.field(team, state.heard).blocks, settings.reading, state)


def in_order_taken(weights: Tensor, taken: Tensor) -> Tensor:
    """All samples, those taken first and in the order they were taken, then the others by weight."""
    order = weights.argsort(descending=True, stable=True)
    if not len(taken):
        return order
    rank = torch.where(taken > 0, taken, len(taken) + 1)
    return order[rank[order].argsort(stable=True)]
