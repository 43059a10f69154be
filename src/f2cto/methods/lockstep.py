"""F2CTO: coresets by federated first-order constrained trilevel optimisation.

Yang Jiao, Kaixuan Jiao, Kai Yang, Nadjib Aitsaadi, Ilhem Fajjari, Renwei Li: First-order Constrained Trilevel
Optimization Over Distributed Networks for Robust Coreset Selection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from f2cto.attacks.base import Range
from f2cto.constraints import L2Ball
from f2cto.message import Ask, Message
from f2cto.methods.base import Coreset, OnRound, Shard, evenly
from f2cto.methods.f2cto_private import PrivateProgram
from f2cto.methods.f2cto_settings import Choice, F2ctoSettings, Form, WorkerWeights
from f2cto.methods.f2cto_stages import Stages, Team, blocks_of
from f2cto.methods.greedy_match import greedy_match
from f2cto.methods.quotas import in_turn
from f2cto.methods.reading import READ, in_order_taken, lead_reading, reader_of
from f2cto.privacy import spent
from f2cto.trilevel.master import Master, OnProgress, Progress, Solution, solve
from f2cto.trilevel.problem import Point, Refined
from f2cto.trilevel.program import Stage, TrilevelProgram
from f2cto.trilevel.settings import Start
from f2cto.trilevel.worker import Heard, WorkerState


@dataclass(frozen=True)
class F2cto:
    """The paper's method as a selector.

    Args:
        settings: what the method can be told.
        radius: the bound on the norm of the proxy's parameters.
        valid: the range perturbed samples stay in.
        attack_radius: how far attacks move a feature, where the settings do not say so themselves.

    """

    settings: F2ctoSettings
    radius: float
    valid: Range = field(default_factory=Range)
    attack_radius: float = 0.1

    def stages(self) -> Stages:
        """What a worker faces, iteration by iteration."""
        attacks = self.settings.perturbation.within(self.attack_radius)
        return Stages(replace(self.settings, perturbation=attacks), self.radius, self.valid)

    def program(self) -> CoresetProgram | PrivateProgram:
        """What runs at each worker."""
        privacy = self.settings.sharing.privacy
        program = CoresetProgram(self.stages())
        return PrivateProgram(program, privacy) if privacy.on else program

    def lead(self, ask: Ask, w: Tensor, on_round: OnRound) -> Solution:
        """The master's side: Algorithm 1, and reading the coresets off where workers do that together."""
        solution = solve(ask, w, self._master(), on_round)
        if self.settings.reads_places:
            lead_reading(ask, solution.w, self._master(), self.settings.reading)
        return solution

    def lead_from(self, ask: Ask, start: Tensor | Progress, on_round: OnRound, on_progress: OnProgress) -> Solution:
        """The master's side from where a former run got to. Sites do not read place by place."""
        return solve(ask, start, self._master(), on_round, on_progress)

    def _master(self) -> Master:
        s = self.settings
        return Master(
            onto=L2Ball(self.radius),
            eta_w=s.proxy.step,
            stopping=s.stopping,
            local_rounds=s.local_rounds,
            aggregation=s.sharing.aggregation,
            together=s.sharing.exchanges == 1,
            weighted=s.sharing.weights is WorkerWeights.SAMPLES,
            told=self._told,
        )

    def _told(self, exchanges: int) -> dict[str, float]:
        """What privacy a worker has spent: every answer is a release."""
        privacy = self.settings.sharing.privacy
        return {"epsilon": spent(privacy, exchanges)} if privacy.on else {}

    def coreset(self, shard: Shard, state: WorkerState) -> Coreset:
        """The largest weights of each block, or those who stand for the weighted samples of their class."""
        alpha = state.at.alpha if self.settings.choice is Choice.TOP else state.mean_alpha
        groups = self.stages().field(Team((shard,)), state.heard).blocks.groups
        sizes = blocks_of(shard, classwise=self.settings.weighting.classwise).sizes
        if self.settings.choice is Choice.GREEDY:
            stays, most = groups < len(sizes), int(sizes.max())
            order = greedy_match(shard, state.at.w, state.refined.p_star, alpha, stays, most)
        else:
            order = in_order_taken(alpha, state.taken)
        picks = [order[groups[order] == b][:size] for b, size in enumerate(sizes.tolist())]
        indices = in_turn(picks, shard.worker)
        if self.settings.reads_places:
            return evenly(indices)
        weights = alpha[indices]
        total = weights.sum()
        return Coreset(indices, weights / total if total > 0 else torch.full_like(weights, 1 / len(weights)))


class CoresetProgram:
    """The trilevel program over teams: for one worker, or for all that this process holds as one."""

    def __init__(
        self, stages: Stages, change: Callable[[Stage], Stage] = lambda stage: stage, *, together: bool = True
    ) -> None:
        """Keep what the stages keep; all else is in the states. `together = False` never joins workers."""
        self._stages, self._settings, self._together = stages, stages.settings, together
        by_samples = stages.settings.sharing.weights is WorkerWeights.SAMPLES
        weight = (lambda team: float(len(team.y))) if by_samples else (lambda _: 0.0)
        self._inner = TrilevelProgram[Team](
            lambda team, t, heard: change(stages(team, t, heard)), stages.initial, stages.settings.local_rounds, weight
        )
        self._teams: dict[Shard, Team] = {}
        self._reads = stages.settings.reads_places  # whoever does not is not to be asked, either
        self.entries = (*self._inner.entries, READ) if self._reads else self._inner.entries

    def start(self, shard: Shard | Team) -> WorkerState:
        """The private state before the first message."""
        return self._inner.start(self._team(shard))

    def run(self, phase: str, shard: Shard | Team, state: WorkerState, message: Message) -> tuple[WorkerState, Message]:
        """Answer one message."""
        team = self._team(shard)
        if phase != READ or not self._reads:
            return self._inner.run(phase, team, state, message)
        state, reply = reader_of(self._stages, team, state).answer(message)
        return state, replace(reply, scalars={**reply.scalars, **self._inner.weighs(team)})

    def joined(self, shards: Sequence[Shard]) -> Team | None:
        """All workers as one, if each would do the same work apart.

        Local rounds and the steps of Eq. (14) need each worker's own w, random starts its own generator, and workers
        that keep different numbers have different steps. Means other than the plain one need every worker's vector.
        What remains apart: Eq. (9) projects every w^_i before the mean, a team projects the mean; the two agree
        wherever the ball of W is not active.
        """
        s = self._settings
        alone = s.local_rounds > 1 or s.perturbation.form is not Form.EXACT or s.perturbation.start is Start.RANDOM
        alone = alone or not s.sharing.usual
        if alone or not self._together or len(shards) == 1 or len({shard.size for shard in shards}) > 1:
            return None
        return Team(tuple(shards))

    def parted(self, joined: Team, state: WorkerState) -> list[WorkerState]:
        """The states of the single workers."""
        count = len(joined.shards)
        at, known = state.at, state.refined
        heard = state.heard.total if state.heard.times else torch.zeros_like(at.alpha)
        alphas, refined = (at.alpha * count, state.mean_alpha * count), (known.p_star, known.q_star, known.p_hat)
        taken = state.taken if len(state.taken) else torch.zeros_like(joined.y)
        columns = (*alphas, at.q, at.p, *refined, heard, taken)
        parts = zip(*(torch.split_with_sizes(column, joined.counts) for column in columns), strict=True)
        return [
            WorkerState(
                t=state.t,
                at=Point(alpha=alpha, q=q, w=at.w, p=p),
                refined=Refined(p_star=p_star, q_star=q_star, w_hat=known.w_hat, p_hat=p_hat),
                mean_alpha=mean,
                heard=Heard(told, state.heard.times),
                taken=own,
            )
            for alpha, mean, q, p, p_star, q_star, p_hat, told, own in parts
        ]

    def replies(self, joined: Team, reply: Message) -> list[Message]:
        """The team's reply in the name of each worker; squared moves are sums, so that each has its share."""
        count = len(joined.shards)
        shares = {n: value / count if n.endswith("_move") else value for n, value in reply.scalars.items()}
        return [replace(reply, scalars=shares)] * count

    def _team(self, shard: Shard | Team) -> Team:
        """A worker as a team of one; always the same, so that stages know it again."""
        return shard if isinstance(shard, Team) else self._teams.setdefault(shard, Team((shard,)))
