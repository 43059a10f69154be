from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from itertools import combinations

import pytest
import torch
from torch import Tensor

from f2cto.attacks.base import Range
from f2cto.descent import gradient
from f2cto.federation.in_process import InProcess
from f2cto.message import Message
from f2cto.methods.base import Given, Shard
from f2cto.methods.catalogue import make_selector, parameter_radius
from f2cto.methods.coverage import herd
from f2cto.methods.f2cto_settings import F2ctoSettings, Form, Perturbation, Proxy, StepRule, Weighting, WeightRule
from f2cto.methods.f2cto_stages import Team, blocks_of, standardised
from f2cto.methods.lockstep import F2cto
from f2cto.methods.running import run
from f2cto.methods.vectors import points
from f2cto.trilevel.coreset import RobustCoreset
from f2cto.trilevel.program import Stage
from f2cto.trilevel.settings import Hat, Penalties, Start, Stopping
from f2cto.trilevel.worker import refine, update
from testing.shards import federation


def stage_of(method: F2cto, shard: Shard, t: int) -> Stage:
    return method.stages()(Team((shard,)), t)


def test_standardised_inside_each_group() -> None:
    g = torch.tensor([1.0, 3.0, 10.0, 10.0, 7.0], dtype=torch.float64)
    groups = torch.tensor([0, 0, 1, 1, 2])
    # Group 0 has mean 2 and deviation 1; groups 1 and 2 say nothing.
    assert torch.allclose(standardised(g, groups, 4), torch.tensor([-1.0, 1.0, 0.0, 0.0, 0.0], dtype=torch.float64))


def test_standardised_is_scale_free_and_clipped() -> None:
    g = torch.cat([torch.zeros(99), torch.ones(1)]).double()
    groups = torch.zeros(100, dtype=torch.long)
    once = standardised(g, groups, 1)
    assert torch.allclose(once, standardised(1e6 * g - 5, groups, 1), atol=1e-6)
    assert float(once.max()) == 3.0  # unclipped: 0.99/sqrt(0.0099) = 9.9...
    assert float(once.min()) == pytest.approx(-0.01 / 0.0099**0.5)


def test_stage_resolves_units_and_ramp() -> None:
    shard = federation(size=5)[0]
    method = F2cto(F2ctoSettings(weighting=Weighting(step=0.05, noise=0.1, draws=4000)), radius=3.0)
    first, late = stage_of(method, shard, 0), stage_of(method, shard, 100)
    assert late.settings.eta.alpha == pytest.approx(0.05 / 5)
    assert late.settings.eta.p == pytest.approx(2.5 * 0.1 / 3)
    assert first.settings.eta.p == pytest.approx(late.settings.eta.p / 20)
    assert late.settings.hat == Hat(1, 10, waits=True)
    assert isinstance(first.problem, RobustCoreset)
    assert isinstance(late.problem, RobustCoreset)
    assert float(late.problem.topk.noise.std()) == pytest.approx(0.1 / 5, rel=0.02)
    assert not torch.equal(late.problem.topk.noise, first.problem.topk.noise)
    far = torch.full_like(shard.x, 9.0)
    assert float(late.problem.sets.P.project(far).max()) == pytest.approx(0.1)
    assert float((shard.x + late.problem.sets.P.project(far)).max()) <= 1.0 + 1e-6


def test_every_worker_and_iteration_has_noise_of_its_own() -> None:
    """And a team has that of its workers, in its own units."""
    shards = federation(workers=3)
    stages = F2cto(F2ctoSettings(), radius=3.0).stages()

    def noise(team: Team, t: int) -> Tensor:
        problem = stages(team, t).problem
        assert isinstance(problem, RobustCoreset)
        return problem.topk.noise

    each = [noise(Team((shard,)), t) for shard in shards for t in (0, 1)]
    for one, other in combinations(each, 2):
        assert abs(float(torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1])) < 0.15
    torch.testing.assert_close(noise(Team(tuple(shards)), 1) * 3, torch.cat(each[1::2], dim=1))


def test_both_balls_grow_where_they_differ() -> None:
    shard = federation()[0]
    method = F2cto(F2ctoSettings(perturbation=Perturbation(0.2, 0.1, ramp=20)), radius=3.0)
    far, inside = torch.full_like(shard.x, 9.0), shard.x < 0.8
    for t, share in ((0, 0.05), (4, 0.25), (19, 1.0), (99, 1.0)):
        sets = stage_of(method, shard, t).problem.sets
        grown = [float(ball.project(far)[inside].max()) for ball in (sets.Q, sets.P)]
        assert grown == pytest.approx([0.2 * share, 0.1 * share], rel=1e-5)


def test_initial_weights_are_uniform_in_each_class() -> None:
    shard = federation(count=24, size=4)[0]
    method = F2cto(F2ctoSettings(), radius=3.0)
    alpha = method.program().start(shard).at.alpha
    blocks = blocks_of(shard, classwise=True)
    assert sorted(blocks.sizes.tolist()) == [1, 1, 2]
    for block, size in enumerate(blocks.sizes.tolist()):
        members = blocks.members(block)
        assert torch.allclose(alpha[members], torch.tensor(size / 4 / len(members)))


def test_workers_with_few_places_cover_all_classes_together() -> None:
    shards = federation(workers=3, size=1)
    coresets = run(F2cto(F2ctoSettings(stopping=Stopping(iterations=2)), 3.0), shards, shards[0].model.own()).coresets
    assert {int(s.y[c.indices[0]]) for s, c in zip(shards, coresets, strict=True)} == {0, 1, 2}


@pytest.mark.parametrize(
    ("penalties", "name"),
    [
        (Penalties(1.0, 1.0, 2.0, 2.0), "rho_1"),
        (Penalties(2.0, 2.0, 2.0, 2.0), "rho_3"),
        (Penalties(2.0, 1.0, 2.0, 1.0), "phi"),
    ],
)
def test_penalties_that_would_not_attack_are_refused(penalties: Penalties, name: str) -> None:
    with pytest.raises(ValueError, match=f"`penalties.{name}` must exceed .* rather than attack it"):
        F2ctoSettings(perturbation=Perturbation(form=Form.PENALTY), penalties=penalties)
    F2ctoSettings(penalties=penalties)  # the exact form does not care


def test_own_steps_attack_exactly_if_the_penalties_say_so() -> None:
    """The sign of the factors 1 - rho_1 and rho_2 - rho_3, seen in the loss."""
    shard = federation()[0]
    settings = F2ctoSettings(perturbation=Perturbation(form=Form.PENALTY, ramp=0), penalties=Penalties(2, 1, 2, 2))
    method = F2cto(settings, radius=9.0)
    w = shard.model.own()
    stage = stage_of(method, shard, 0)

    def added_loss(penalties: Penalties) -> tuple[float, float]:
        state = method.program().start(shard)
        state = replace(state, at=replace(state.at, w=w))
        chosen = replace(stage.settings, penalties=penalties)
        state = refine(stage.problem, state, chosen, stage.rng)
        at = update(stage.problem, state, state.refined.w_hat, chosen).state.at
        clean = shard.model.losses(w, shard.x, shard.y)
        return tuple(float((shard.model.losses(w, shard.x + d, shard.y) - clean).mean()) for d in (at.q, at.p))  # type: ignore[return-value]

    assert all(gain > 1e-3 for gain in added_loss(Penalties(2, 1, 2, 2)))
    assert all(gain < -1e-3 for gain in added_loss(Penalties(0.5, 1, 0.5, 0.5)))
    assert added_loss(Penalties(1, 1, 1, 1)) == (0.0, 0.0)


def test_attacks_that_cannot_reach_their_ball_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="steps of 0.008 from zero reach 0.08, short of the radius 0.156863"):
        Perturbation(eval_radius=40 / 255, train_radius=40 / 255, steps=10, step=8e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Perturbation(eval_radius=0.1, train_radius=0.1, steps=10, step=0.01)


def test_a_ball_that_bites_at_once_is_warned_of() -> None:
    w = torch.full((4,), 4.0)
    with pytest.warns(UserWarning, match="norm 8, above `proxy.radius` = 5"):
        assert parameter_radius(F2ctoSettings(proxy=Proxy(radius=5.0)), w) == 5.0
    assert parameter_radius(F2ctoSettings(), w) == pytest.approx(2 * 8)


def test_lock_step_compares_equal_numbers_of_steps() -> None:
    """With alpha uniform over the whole shard f1 and f2_train are one function: then w^ must track w exactly."""
    shards = [replace(s, size=len(s.y)) for s in federation(workers=2)]
    settings = F2ctoSettings(
        weighting=Weighting(frozen=True, classwise=False), stopping=Stopping(iterations=13), proxy=Proxy(radius=50.0)
    )
    method = F2cto(settings, radius=50.0)
    seen: list[tuple[Tensor, Tensor]] = []
    engine = InProcess(method.program(), shards)

    def ask(phase: str, message: Message) -> list[Message]:
        replies = engine.ask(phase, message)
        if phase == "refine":
            w_hat = torch.stack([r.vectors["w_hat"] for r in replies]).mean(dim=0)
            seen.append((message.vectors["w"], w_hat))
        return replies

    method.lead(ask, shards[0].model.own(), lambda _: None)
    for t, (w, w_hat) in enumerate(seen):
        assert torch.allclose(w, w_hat, atol=2e-3), t  # attacks at w stand for attacks at w^ inside a window
        if t % 10 == 0:
            assert torch.equal(w, w_hat)
    assert float((seen[-1][0] - seen[0][0]).norm()) > 0.1


def test_ubv_has_no_training_side_perturbation() -> None:
    shards = federation()
    settings = F2ctoSettings(perturbation=Perturbation(train_radius=0.0), stopping=Stopping(iterations=2))
    method = F2cto(settings, radius=3.0)
    engine = InProcess(method.program(), shards)
    method.lead(engine.ask, shards[0].model.own(), lambda _: None)
    for state in engine.states:
        assert float(state.at.p.abs().max()) == 0.0
        assert float(state.at.q.abs().max()) > 0.0


@pytest.mark.parametrize(
    ("name", "attacks", "expected"),
    [
        ("f2cto", {}, (0.2, 0.2)),
        ("ubv", {}, (0.2, 0.0)),
        ("f2cto", {"eval_radius": 0.3}, (0.3, 0.2)),
        ("f2cto", {"train_radius": 0.0}, (0.2, 0.0)),
    ],
)
def test_attacks_have_the_tasks_radius_unless_the_settings_say_another(
    name: str, attacks: dict[str, float], expected: tuple[float, float]
) -> None:
    shard = federation()[0]
    method = make_selector(name, {"perturbation": attacks}, Given(shard.model.own(), radius=0.2))
    assert isinstance(method, F2cto)
    sets, far = stage_of(method, shard, 99).problem.sets, torch.full_like(shard.x, 9.0)
    inside = shard.x < 0.7
    found = tuple(float(ball.project(far)[inside].max()) for ball in (sets.Q, sets.P))
    assert found == pytest.approx(expected)


def test_herding_against_brute_force() -> None:
    vectors = torch.randn(7, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    order = herd(points(vectors), len(vectors)).tolist()
    chosen: list[int] = []
    for _ in range(7):
        distance = {
            k: float((vectors[[*chosen, k]].mean(0) - vectors.mean(0)).norm()) for k in range(7) if k not in chosen
        }
        chosen.append(min(distance, key=lambda k: distance[k]))
    assert order == chosen


def test_the_signal_is_adversarial_gradient_matching() -> None:
    """One step after a synchronisation, w - w^ = -eta_w (grad F - grad G), so that to first order

        loss_k(w) - loss_k(w^) = -eta_w <grad loss_k, grad F - grad G>,

    with F the robust loss on all samples and G the weighted one: alpha grows where training on k helps F most.
    """
    shard = federation(workers=1, count=24, size=6)[0]
    shard = replace(shard, x=shard.x.double())
    settings = F2ctoSettings(
        proxy=Proxy(step=1e-4, hat_step=2e-4), weighting=Weighting(rule=WeightRule.PLAIN, step=0.0, topk=0.0)
    )
    method = F2cto(settings, radius=50.0)
    w = shard.model.own().double()
    program = method.program()
    alpha = torch.rand(24, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    state = program.start(shard)
    state = replace(state, at=replace(state.at, alpha=stage_of(method, shard, 0).problem.sets.A.project(alpha)))
    first, reply = program.run("refine", shard, state, Message({"w": w}))
    assert torch.equal(reply.vectors["w_hat"], w)
    state, reply = program.run("update", shard, first, Message({"w_hat": w}))
    w_next = reply.vectors["w"]
    second, _ = program.run("refine", shard, state, Message({"w": w_next}))
    w_hat = second.refined.w_hat

    def loss(v: Tensor, k: int) -> Tensor:
        return shard.model.losses(v, shard.x + first.refined.p_star, shard.y)[k]

    slopes = torch.stack([gradient(partial(loss, k=k), w) for k in range(24)])
    difference = slopes.mean(dim=0) - state.at.alpha @ slopes
    torch.testing.assert_close(w_next - w_hat, -1e-4 * difference, rtol=1e-6, atol=1e-12)
    signal = torch.stack([loss(w_next, k) - loss(w_hat, k) for k in range(24)])
    torch.testing.assert_close(signal, -1e-4 * slopes @ difference, rtol=1e-2, atol=1e-10)
    assert float(signal.std()) > 1e-7


def test_one_refinement_serves_both() -> None:
    shard = federation(workers=1)[0]
    shard = replace(shard, x=shard.x.double())
    method = F2cto(F2ctoSettings(), radius=50.0)
    stage = stage_of(method, shard, 30)
    assert stage.settings.shared_refinement
    state = method.program().start(shard)
    state = replace(state, at=replace(state.at, w=shard.model.own().double()))
    shared = refine(stage.problem, state, stage.settings, stage.rng).refined
    apart = refine(stage.problem, state, replace(stage.settings, shared_refinement=False), stage.rng).refined
    assert float(apart.q_star.abs().max()) > 0.09
    torch.testing.assert_close(shared.q_star, apart.q_star, rtol=0, atol=1e-12)
    torch.testing.assert_close(shared.p_star, apart.p_star, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "apart", [Perturbation(train_radius=0.05), Perturbation(start=Start.RANDOM), Perturbation(rule=StepRule.PLAIN)]
)
def test_refinements_that_differ_are_not_shared(apart: Perturbation) -> None:
    method = F2cto(F2ctoSettings(perturbation=apart), radius=3.0)
    assert not stage_of(method, federation()[0], 0).settings.shared_refinement


def test_classes_without_a_place_are_attacked_all_the_same() -> None:
    """They cannot be kept, but f1 is the robust loss on all samples: a shared refinement must reach them."""
    shard = federation(workers=1, size=1)[0]
    method = F2cto(F2ctoSettings(perturbation=Perturbation(ramp=0)), radius=9.0)
    program = method.program()
    state, _ = program.run("refine", shard, program.start(shard), Message({"w": shard.model.own()}))
    inside = (shard.x > 0.1) & (shard.x < 0.9)
    assert float((state.refined.q_star.abs() == 0)[inside].double().mean()) < 0.05


def test_fixed_features_are_attacked_nowhere() -> None:
    """Neither in the refinement nor anywhere else does the solver move what an attacker cannot."""
    shards = federation(workers=2)
    method = F2cto(F2ctoSettings(stopping=Stopping(iterations=4)), radius=99.0, valid=Range(fixed=(1, 2)))
    engine = InProcess(method.program(), shards)
    method.lead(engine.ask, shards[0].model.own(), lambda _: None)
    for state in engine.states:
        for moved in (state.at.q, state.at.p, state.refined.p_hat):
            assert float(moved[:, [1, 2]].abs().max()) == 0
            assert float(moved[:, [0, 3, 4, 5]].abs().max()) > 0
