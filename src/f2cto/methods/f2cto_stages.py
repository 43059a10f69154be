"""What F2CTO's workers face in each iteration: settings in words become the solver's problem and settings.

A team is one worker or several that work as one. With the weights beta_i = alpha_i / N on the union of their samples,
the mean over N workers of L_i is one worker's L on the union: samples weigh 1/(N M_i) in f1, blocks are those of all
workers, and a step of eta_alpha / N in beta is a step of eta_alpha in alpha. One pass over the union replaces N small
ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial

import torch
from torch import Tensor

from f2cto.attacks.base import Range, perturbations
from f2cto.constraints import Box, L2Ball, Simplices
from f2cto.descent import Rule, plain, sign
from f2cto.methods.base import Shard
from f2cto.methods.f2cto_settings import F2ctoSettings, Form, StepRule, Unit, WeightRule
from f2cto.methods.screening import narrowed, passed_on, passing
from f2cto.randomness import generator
from f2cto.trilevel.coreset import Blocks, RobustCoreset, TopK
from f2cto.trilevel.problem import Point, Sets
from f2cto.trilevel.program import Stage, no_parameters
from f2cto.trilevel.settings import Hat, Rest, Rules, Settings, StepSizes
from f2cto.trilevel.worker import NOTHING, Heard

# Parts of a pass that stay below malloc's limit for memory it hands back at once (32 MB) are not paged in every time.
CHUNK_BYTES = 16 * 2**20
CHUNK_LEAST = 32  # samples: convolutions are slower on fewer, and each part adds a gradient as long as w
GRAPH_BYTES = 2**30


@dataclass(frozen=True, eq=False)
class Team:
    """Workers that work as one; most often just one. All keep the same number of samples."""

    shards: tuple[Shard, ...]

    @cached_property
    def x(self) -> Tensor:
        """All samples."""
        return self.shards[0].x if len(self.shards) == 1 else torch.cat([shard.x for shard in self.shards])

    @cached_property
    def y(self) -> Tensor:
        """All labels."""
        return self.shards[0].y if len(self.shards) == 1 else torch.cat([shard.y for shard in self.shards])

    @property
    def counts(self) -> list[int]:
        """How many samples each worker has."""
        return [len(shard.y) for shard in self.shards]

    @property
    def places(self) -> int:
        """How many samples all keep together."""
        return sum(shard.size for shard in self.shards)


def blocks_of(shard: Shard, *, classwise: bool) -> Blocks:
    """Who competes with whom on one worker: the samples of one class, or all."""
    if not classwise:
        return Blocks(torch.zeros_like(shard.y), torch.tensor([shard.size], device=shard.y.device))
    return Blocks(shard.y, shard.places())


@dataclass(frozen=True, eq=False)
class Field:
    """Who takes part: blocks of competitors, and the weight of each sample in f1."""

    heard: Heard  # what it was made of
    blocks: Blocks
    every: Tensor


@dataclass(frozen=True, eq=False)
class Stages:
    """The stages of teams: what does not change from iteration to iteration is made once and kept."""

    settings: F2ctoSettings
    radius: float
    valid: Range
    _fields: dict[Team, Field] = field(default_factory=dict)
    _sets: dict[Team, tuple[float, Blocks, Sets]] = field(default_factory=dict)
    _sample_bytes: dict[Team, int] = field(default_factory=dict)

    def __call__(self, team: Team, t: int, heard: Heard = NOTHING) -> Stage:
        """The team's problem and settings in iteration t, after what it has heard of its samples."""
        scale = self.settings.perturbation.scale(t)
        model = team.shards[0].model
        here = self.field(team, heard if t >= self.settings.screening.rounds else NOTHING)
        problem = RobustCoreset(
            evaluate=model.evaluate,
            x=team.x,
            y=team.y,
            sets=self.sets(team, scale, here.blocks),
            topk=TopK(self.settings.weighting.topk, here.blocks, partial(self.noise, team, t)),
            every=here.every,
            chunk=max(CHUNK_LEAST, CHUNK_BYTES // self._bytes(team)),
            keeps_graphs=len(team.y) * self._bytes(team) <= GRAPH_BYTES,
            evaluate_roughly=model.evaluate_roughly if self._roughly(team) else None,
        )
        first = team.shards[0]
        rng = generator(first.seed, first.worker, t, 1, device=team.x.device)
        return Stage(problem, self.solver_settings(team, t, here.blocks), rng)

    def initial(self, team: Team) -> Point:
        """Uniform weights in each block, no perturbations."""
        zeros = torch.zeros_like(team.x)
        # Projecting a constant vector on a product of simplices spreads each total evenly.
        return Point(alpha=team.x.new_zeros(len(team.y)), q=zeros, w=no_parameters(team.x), p=zeros)

    def field(self, team: Team, heard: Heard) -> Field:
        """Who takes part, once samples that stay worse than chance are set aside; all, if nothing was heard."""
        if team not in self._fields or self._fields[team].heard is not heard:
            blocks, every = self._blocks(team), self._every(team)
            if heard.times:
                stays = self.passing(team, heard, blocks)
                blocks, every = narrowed(blocks, stays), passed_on(every, blocks, stays)
            self._fields[team] = Field(heard, blocks, every)
        return self._fields[team]

    def passing(self, team: Team, heard: Heard, blocks: Blocks) -> Tensor:
        """Whose robust losses were better than chance, or among the lower of their block.  (M,)."""
        model = team.shards[0].model
        classes = model.logits(model.own().to(team.x), team.x[:1]).shape[1]
        return passing(heard.total / heard.times, blocks, classes, self.settings.screening)

    def _blocks(self, team: Team) -> Blocks:
        """The blocks of all workers, numbered through."""
        each = [blocks_of(shard, classwise=self.settings.weighting.classwise) for shard in team.shards]
        starts = [sum(len(b.sizes) for b in each[:i]) for i in range(len(each))]
        groups = torch.cat([b.groups + start for b, start in zip(each, starts, strict=True)])
        return Blocks(groups, torch.cat([b.sizes for b in each]))

    def sets(self, team: Team, scale: float, blocks: Blocks) -> Sets:
        """The feasible sets at a share of the full radii."""
        if team not in self._sets or self._sets[team][0] != scale or self._sets[team][1] is not blocks:
            a = self.settings.perturbation
            q = perturbations(team.x, a.eval_radius * scale, self.valid)
            same = a.eval_radius == a.train_radius
            p: Box = q if same else perturbations(team.x, a.train_radius * scale, self.valid)
            simplices = Simplices(blocks.groups, blocks.sizes.double() / team.places)
            self._sets[team] = (scale, blocks, Sets(A=simplices, Q=q, W=L2Ball(self.radius), P=p))
        return self._sets[team][2]

    def noise(self, team: Team, t: int) -> Tensor:
        """The draws of iteration t, each worker's from its own generator.  (S, M)."""
        level = self.settings.weighting
        draws = [
            torch.randn(
                (level.draws, len(s.y)),
                generator=generator(s.seed, s.worker, t, device=s.x.device),
                dtype=s.x.dtype,
                device=s.x.device,
            )
            for s in team.shards
        ]
        return torch.cat(draws, dim=1) * (level.noise * self._unit(team))

    def _roughly(self, team: Team) -> bool:
        """Whether attacks are computed in bfloat16."""
        return team.shards[0].model.roughly(self.settings.perturbation.precision, team.x.device)

    def _bytes(self, team: Team) -> int:
        """What one sample takes in a pass."""
        if team not in self._sample_bytes:
            self._sample_bytes[team] = team.shards[0].model.pass_bytes(team.x[:1])
        return self._sample_bytes[team]

    def _every(self, team: Team) -> Tensor:
        """The weight of each sample in f1 before any is set aside."""
        weights = [1.0 if self.settings.proxy.sums else 1 / count for count in team.counts]
        each = torch.tensor(weights, dtype=team.x.dtype, device=team.x.device) / len(team.shards)
        return each.repeat_interleave(torch.tensor(team.counts, device=team.x.device))

    def _unit(self, team: Team) -> float:
        """What steps and noise of the weights are measured in; see the module's text for 1/N."""
        return 1 / team.places if self.settings.weighting.unit is Unit.KEPT else 1 / len(team.shards)

    def solver_settings(self, team: Team, t: int, blocks: Blocks) -> Settings:
        """The solver's settings in iteration t."""
        level, proxy, attack = self.settings.weighting, self.settings.proxy, self.settings.perturbation
        screening, scale = self.settings.screening, attack.scale(t)
        steps: Rule = sign if attack.rule is StepRule.SIGN else plain
        scaled = partial(standardised, groups=blocks.groups, count=len(blocks.sizes))
        return Settings(
            eta=StepSizes(
                alpha=level.step * self._unit(team),
                q=attack.step_size(attack.eval_radius, scale),
                w=proxy.step,
                p=attack.step_size(attack.train_radius, scale),
                w_hat=proxy.hat_step,
            ),
            penalties=self.settings.penalties,
            steps=attack.steps,
            start=attack.start,
            hat=Hat(proxy.hat_steps, proxy.sync_every, proxy.waits),
            rules=Rules(alpha=scaled if level.rule is WeightRule.STANDARDISED else plain, q=steps, p=steps),
            exact=attack.form is Form.EXACT,
            interior=1e-3 if attack.form is Form.EXACT else 0.0,
            shared_refinement=attack.one_problem,
            rest=Rest(
                frozen=level.frozen or t < screening.rounds,
                until=screening.rounds,
                listens=screening.since <= t < screening.rounds,
            ),
        )


def standardised(g: Tensor, groups: Tensor, count: int, clip: float = 3.0) -> Tensor:
    """A gradient centred, scaled to unit deviation and clipped inside each group: free of the loss's scale.

    Where a group says nothing (one member, or all equal) the answer is zero, not noise.
    """
    size = torch.bincount(groups, minlength=count).clamp(min=1).to(g.dtype)
    mean = g.new_zeros(count).index_add(0, groups, g) / size
    centred = g - mean[groups]
    deviation = (g.new_zeros(count).index_add(0, groups, centred.square()) / size).sqrt()
    floor = torch.finfo(g.dtype).eps * mean.abs().clamp(min=1)
    scale = torch.where(deviation > floor, 1 / deviation.clamp(min=1e-30), torch.zeros_like(deviation))
    return (centred * scale[groups]).clamp(-clip, clip)
