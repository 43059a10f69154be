"""F2CTO: coresets by federated first-order constrained trilevel optimisation.

Yang Jiao, Kaixuan Jiao, Kai Yang, Nadjib Aitsaadi, Ilhem Fajjari, Renwei Li: First-order Constrained Trilevel
Optimization Over Distributed Networks for Robust Coreset Selection.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from f2cto.attacks.base import Range, perturbations
from f2cto.constraints import L2Ball, Simplices
from f2cto.descent import Rule, plain, sign
from f2cto.message import Ask
from f2cto.randomness import generator
from f2cto.selectors.base import Coreset, OnRound, Shard
from f2cto.selectors.f2cto_settings import Choice, F2ctoSettings, Form, StepRule, Unit, WeightRule
from f2cto.selectors.greedy_match import greedy_match
from f2cto.selectors.quotas import in_turn, quotas
from f2cto.trilevel.coreset import Block, RobustCoreset, TopK
from f2cto.trilevel.master import Master, Solution, solve
from f2cto.trilevel.problem import Point, Sets
from f2cto.trilevel.program import Stage, TrilevelProgram, no_parameters
from f2cto.trilevel.settings import Hat, Rules, Settings, StepSizes
from f2cto.trilevel.worker import WorkerState


@dataclass(frozen=True)
class F2cto:
    """The paper's method as a selector.

    Args:
        settings: what the method can be told.
        radius: the bound on the norm of the proxy's parameters.
        valid: the range perturbed samples stay in.

    """

    settings: F2ctoSettings
    radius: float
    valid: Range = field(default_factory=Range)

    def program(self) -> TrilevelProgram[Shard]:
        """What runs at each worker."""
        return TrilevelProgram(self.stage, self.initial, self.settings.local_rounds)

    def lead(self, ask: Ask, w: Tensor, on_round: OnRound) -> Solution:
        """The master's side: Algorithm 1."""
        s = self.settings
        return solve(ask, w, Master(L2Ball(self.radius), s.proxy.step, s.stopping, s.local_rounds), on_round)

    def coreset(self, shard: Shard, state: WorkerState) -> Coreset:
        """The largest weights of each block, or a greedy choice where weights were frozen."""
        alpha = state.at.alpha
        if self.settings.choice is Choice.GREEDY:
            order = greedy_match(shard, state.at.w, state.refined.p_star)
        else:
            order = alpha.argsort(descending=True, stable=True)
        picks = [order[torch.isin(order, b.members)][: b.size] for b in self.blocks(shard)]
        indices = in_turn(picks, shard.first)
        weights = alpha[indices]
        total = weights.sum()
        return Coreset(indices, weights / total if total > 0 else torch.full_like(weights, 1 / len(weights)))

    def initial(self, shard: Shard) -> Point:
        """Uniform weights in each block, no perturbations."""
        zeros = torch.zeros_like(shard.x)
        # Projecting a constant vector on a product of simplices spreads each total evenly.
        return Point(alpha=shard.x.new_zeros(len(shard.y)), q=zeros, w=no_parameters(shard.x), p=zeros)

    def stage(self, shard: Shard, t: int) -> Stage:
        """The worker's problem and settings in iteration t."""
        rng = generator(shard.seed, shard.worker, t)
        blocks = self.blocks(shard)
        problem = RobustCoreset(
            evaluate=shard.model.evaluate,
            x=shard.x,
            y=shard.y,
            sets=self._sets(shard, blocks, self.settings.perturbation.scale(t)),
            topk=self._topk(shard, blocks, rng),
            sums=self.settings.proxy.sums,
        )
        return Stage(problem, self._solver_settings(shard, blocks, self.settings.perturbation.scale(t)), rng)

    def blocks(self, shard: Shard) -> tuple[Block, ...]:
        """Who competes with whom: the samples of one class, or all."""
        if not self.settings.weighting.classwise:
            return (Block(torch.arange(len(shard.y)), shard.size),)
        places = quotas(shard.y, shard.size, shard.first).tolist()
        return tuple(Block((shard.y == c).nonzero().flatten(), n) for c, n in enumerate(places))

    def _sets(self, shard: Shard, blocks: tuple[Block, ...], scale: float) -> Sets:
        groups = _groups(blocks, len(shard.y))
        totals = torch.tensor([b.size / shard.size for b in blocks], dtype=torch.float64)
        a = self.settings.perturbation
        return Sets(
            A=Simplices(groups, totals),
            Q=perturbations(shard.x, a.eval_radius * scale, self.valid),
            W=L2Ball(self.radius),
            P=perturbations(shard.x, a.train_radius * scale, self.valid),
        )

    def _topk(self, shard: Shard, blocks: tuple[Block, ...], rng: torch.Generator) -> TopK:
        level = self.settings.weighting
        draws = torch.randn(level.draws, len(shard.y), generator=rng, dtype=shard.x.dtype)
        return TopK(level.topk, blocks, draws * (level.noise * self._unit(shard)))

    def _unit(self, shard: Shard) -> float:
        return 1 / shard.size if self.settings.weighting.unit is Unit.KEPT else 1.0

    def _solver_settings(self, shard: Shard, blocks: tuple[Block, ...], scale: float) -> Settings:
        level, proxy, attack = self.settings.weighting, self.settings.proxy, self.settings.perturbation
        steps: Rule = sign if attack.rule is StepRule.SIGN else plain
        scaled = partial(standardised, groups=_groups(blocks, len(shard.y)), count=len(blocks))
        return Settings(
            eta=StepSizes(
                alpha=level.step * self._unit(shard),
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
            frozen_alpha=level.frozen,
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


def _groups(blocks: tuple[Block, ...], count: int) -> Tensor:
    """The block of each sample."""
    groups = torch.empty(count, dtype=torch.long)
    for number, block in enumerate(blocks):
        groups[block.members] = number
    return groups
