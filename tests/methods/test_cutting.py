"""AFTO and ADBO: cuts against derivatives of h written out in one place, steps by hand, progress on a known answer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from f2cto.constraints import WholeSpace
from f2cto.federation.in_process import InProcess
from f2cto.message import Message
from f2cto.methods.consensus import Rounds
from f2cto.methods.cuts import Values
from f2cto.methods.cutting import Center, Cuts, Cutting, Duals, solve, with_cut, with_lower_cut, with_new_cuts
from f2cto.methods.cutting_worker import CutProgram, State
from f2cto.methods.levels import Task
from f2cto.methods.turns import Asynchrony, called
from f2cto.randomness import generator
from testing.levels import left_to_go, quadratic_levels, quadratic_task

N, D, LOWER_STEP = 3, 3, 0.4
Engine = InProcess[int, State]


def draw(*key: int, size: int = D) -> Tensor:
    return torch.randn(size, generator=generator(*key), dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Wavy:
    """Objectives with all mixed derivatives."""

    shift: Tensor

    def f1(self, a: Tensor, w: Tensor, z: Values) -> Tensor:
        return (a * w).sin().sum() + (z[0] * w).sum() + a.square().sum()

    def f2(self, a: Tensor, w: Tensor, z: Values) -> Tensor:
        return (a * w + self.shift).cos().sum() + (z[0] * w.sin()).sum() + w.square().sum()

    def f3(self, a: Tensor, w: Tensor, z: Values) -> Tensor:
        return (z[0] * a + w).cos().sum() + z[0].square().sum()


def wavy_task(number: int) -> Task:
    return Task(
        number=number,
        start=(draw(number, 1), draw(number, 2)),
        levels=lambda t, w: Wavy(draw(number, 3)),  # noqa: ARG005
        steps=(0.1, 0.1, 0.1),
        sets=(WholeSpace(),) * 3,
        lower_step=LOWER_STEP,
        lower_steps=2,
    )


def wavy(how: Cutting, plain_steps: int = 3) -> tuple[Engine, Center]:
    """Workers somewhere, with models of their own: a few plain steps from a shared start."""
    engine, w = InProcess(CutProgram(wavy_task, how.rounds), range(N)), draw(9)
    engine.ask("start", Message({"w": w}))
    center = Center(w, (w,) * N)
    for _ in range(plain_steps):
        replies = engine.ask("step", Message({"w": w}, called(tuple(range(N)))))
        center = Center(w, tuple(reply.vectors["w"] for reply in replies))
    return engine, center


def off_lower_answer(engine: Engine, own: list[Values], w: Tensor) -> Tensor:
    """The h of level 3, written out: sum_j |z_j - z_j'|^2 with two gradient steps from the present z_j."""
    total = w.new_zeros(())
    for number, (state, (a, z)) in enumerate(zip(engine.states, own, strict=True)):
        answer = state.at[2].clone().requires_grad_()
        for _ in range(2):
            f3 = Wavy(draw(number, 3)).f3(a, w, (answer,))
            answer = answer - LOWER_STEP * torch.autograd.grad(f3, answer, create_graph=True)[0]
        total = total + (z - answer).square().sum()
    return total


def off_answer(engine: Engine, center: Center, own: list[Values], ws: list[Tensor], z: Tensor, how: Rounds) -> Tensor:
    """The h of level 2, written out from the equations of `consensus`, as a function of everybody's variables."""
    shared, gamma = center.z, [center.z.new_tensor(plane.dual) for plane in center.lower_cuts.values()]
    heights = []
    for number, plane in center.lower_cuts.items():
        shares = [state.lower_cuts[number] for state in engine.states]
        line = [c.slope[0] @ a + c.slope[1] @ v - c.offset for c, (a, v) in zip(shares, own, strict=True)]
        heights.append(plane.height + torch.stack(line).sum() - plane.cut.offset)
    slopes = [plane.cut.slope[0] for plane in center.lower_cuts.values()]
    ys, phis = [state.at[1].clone() for state in engine.states], [torch.zeros(D, dtype=torch.float64)] * N
    for _ in range(how.rounds):
        for j, (a, v) in enumerate(own):
            y = ys[j] if ys[j].requires_grad else ys[j].requires_grad_()
            slope = torch.autograd.grad(Wavy(draw(j, 3)).f2(a, y, (v,)), y, create_graph=True)[0]
            ys[j] = y - how.step * (slope + phis[j] + how.pull * (y - shared))
            phis[j] = phis[j] + how.dual_step * (ys[j] - shared)
        pull = torch.stack([p + how.pull * (y - shared) for p, y in zip(phis, ys, strict=True)]).mean(dim=0)
        for c, s, g in zip(heights, slopes, gamma, strict=True):
            pull = pull - (g + how.penalty * (s @ shared + c)).clamp(min=0) * s / N
        shared = shared + how.shared_step * pull
        gamma = [
            (g + how.penalty * (s @ shared + c)).clamp(min=0) for c, s, g in zip(heights, slopes, gamma, strict=True)
        ]
    return (
        torch.stack([(w - y).square().sum() for w, y in zip(ws, ys, strict=True)]).sum() + (z - shared).square().sum()
    )


def leaves(engine: Engine) -> list[Values]:
    return [tuple(v.clone().requires_grad_() for v in state.own) for state in engine.states]


def test_a_cut_of_level_3_is_tangent_to_h() -> None:
    how = Cutting(1, 0.1, cuts=Cuts(mu=0.01, bound=5.0, tolerance=0.02))
    engine, center = wavy(how)
    own, z = leaves(engine), center.z.clone().requires_grad_()
    h = off_lower_answer(engine, own, z)
    slopes = torch.autograd.grad(h, [v for pair in own for v in pair] + [z])
    made = with_lower_cut(engine.ask, center, how).lower_cuts[0]
    norm = sum(float(v.square().sum()) for state in engine.states for v in state.own) + float(center.z.square().sum())
    assert made.value(center.z) == pytest.approx(float(h.detach()) - 0.01 * (5 + norm) - 0.02)
    assert torch.allclose(made.cut.slope[0], slopes[-1])
    for j, state in enumerate(engine.states):
        assert all(
            torch.allclose(x, y) for x, y in zip(state.lower_cuts[0].slope, slopes[2 * j : 2 * j + 2], strict=True)
        )


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_cut_of_level_2_is_tangent_to_h(rounds: int) -> None:
    """Through all rounds of all workers, and through the cuts of level 3, one of which is broken."""
    level_2 = Rounds(rounds, step=0.2, pull=0.7, dual_step=0.3, shared_step=0.4, penalty=0.5)
    how = Cutting(1, 0.1, rounds=level_2, cuts=Cuts(mu=0.01, bound=5.0, tolerance=0.02))
    engine, center = wavy(how)
    center = with_lower_cut(engine.ask, with_new_cuts(engine.ask, center, how), how)
    assert len(center.lower_cuts) == 2
    assert any(plane.value(center.z) > 0 for plane in center.lower_cuts.values())
    own, z = leaves(engine), center.z.clone().requires_grad_()
    ws = [state.at[1].clone().requires_grad_() for state in engine.states]
    h = off_answer(engine, center, own, ws, z, level_2)
    slopes = torch.autograd.grad(h, [v for pair in own for v in pair] + ws + [z])
    after = with_cut(engine.ask, center, how)
    number = max(after.cuts)
    everything = [v for state in engine.states for v in state.at] + [center.z]
    norm = sum(float(v.square().sum()) for v in everything)
    assert after.cuts[number].value(center.z) == pytest.approx(float(h.detach()) - 0.01 * (5 + norm) - 0.02)
    assert torch.allclose(after.cuts[number].cut.slope[0], slopes[-1])
    for j, state in enumerate(engine.states):
        a, w, v = state.cuts[number].slope
        assert torch.allclose(w, slopes[2 * N + j])
        assert torch.allclose(a, slopes[2 * j])
        assert torch.allclose(v, slopes[2 * j + 1])


@dataclass(frozen=True, eq=False)
class OnLine:
    """f1 = w, f2 = (w - a)^2 / 2."""

    def f1(self, a: Tensor, w: Tensor, z: Values) -> Tensor:  # noqa: ARG002
        return w.sum()

    def f2(self, a: Tensor, w: Tensor, z: Values) -> Tensor:  # noqa: ARG002
        return (w - a).square().sum() / 2

    def f3(self, a: Tensor, w: Tensor, z: Values) -> Tensor:  # noqa: ARG002
        return w.sum()


def number(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64)


def line_task(worker: int) -> Task:
    sets = (WholeSpace(), WholeSpace())
    return Task(worker, (number(1.0),), lambda t, w: OnLine(), steps=(0.8, 0.1), sets=sets)  # noqa: ARG005


LINE = Cutting(
    1, 0.2, layers=1, rounds=Rounds(1, step=0.5, pull=1.0, dual_step=0.0, shared_step=0.5), duals=Duals(step=2.0)
)


def test_a_cut_of_adbo_by_hand() -> None:
    """From w = z = 2 and a = 1: y = 2 - (2 - 1)/2 = 3/2 and z' = 2 + (3/2 - 2)/2 = 7/4, hence h = 1/4 + 1/16.

    Its slopes are 2 (w - y) = 1 in w, 2 (z - z') = 1/2 in z and, with dy/da = 1/2 and dz'/da = 1/4, in a
    2 (y - w)/2 + 2 (z' - z)/4 = -1/2 - 1/8.
    """
    engine = InProcess(CutProgram(line_task, LINE.rounds), [0])
    engine.ask("start", Message({"w": number(2.0)}))
    made = with_new_cuts(engine.ask, Center(number(2.0), (number(2.0),)), LINE).cuts[0]
    assert made.value(number(2.0)) == pytest.approx(0.3125)
    assert made.cut.slope[0].item() == pytest.approx(0.5)
    assert [float(block) for block in engine.states[0].cuts[0].slope] == pytest.approx([-0.625, 1.0])


def test_steps_of_adbo_by_hand() -> None:
    """Iteration 0 starts without a multiplier: w = 2 - 0.1, a and z stay; the cut is then 0.3125 - 0.1, and the
    multiplier 2 (0.2125). Iteration 1: w loses 0.1 (1 + lambda), a gains 0.8 (0.625 lambda), z loses 0.2 (lambda/2).
    """
    engine = InProcess(CutProgram(line_task, LINE.rounds), [0])
    history = solve(engine.ask, number(2.0), Cutting(2, 0.2, 1, LINE.rounds, LINE.cuts, LINE.duals)).history
    dual = 2 * 0.2125
    assert history[0].metrics["broken"] == pytest.approx(0.2125)
    a, w = engine.states[0].at
    assert float(w) == pytest.approx(1.9 - 0.1 * (1 + dual))
    assert float(a) == pytest.approx(1 + 0.8 * 0.625 * dual)
    z = 2 - 0.2 * 0.5 * dual
    after = 0.3125 - 0.625 * (float(a) - 1) + (float(w) - 2) + 0.5 * (z - 2)
    assert history[1].metrics["broken"] == pytest.approx(after)


def test_whoever_is_not_called_neither_works_nor_learns() -> None:
    """A worker steps with the multipliers that came with the message after its own last report."""
    engine = InProcess(CutProgram(line_task, LINE.rounds), [0, 1])
    engine.ask("start", Message({"w": number(2.0)}))
    with_new_cuts(engine.ask, Center(number(2.0), (number(2.0),) * 2), LINE)
    for dual, now in ((1.0, (0,)), (5.0, (0,)), (7.0, (1,)), (9.0, (0, 1))):
        replies = engine.ask("step", Message({"w": number(2.0)}, {"dual.0": dual, **called(now)}))
        assert [bool(reply.vectors) for reply in replies] == [worker in now for worker in (0, 1)]
    assert [dict(state.duals)[0] for state in engine.states] == [7.0, 9.0]
    slope = float(engine.states[0].cuts[0].slope[1])
    # Worker 0 stepped with 1, 5 and, last told in the third message, 7; worker 1 with 1 and 9.
    assert float(engine.states[0].at[1]) == pytest.approx(2 - 0.1 * (3 + slope * (1 + 5 + 7)))
    assert float(engine.states[1].at[1]) == pytest.approx(2 - 0.1 * (2 + slope * (1 + 9)))


def run_quadratic(seed: int, layers: int, iterations: int, asynchrony: Asynchrony) -> tuple[float, Engine]:
    problems = quadratic_levels(N, seed)
    level_2 = Rounds(5, step=0.3, pull=1.0, dual_step=0.3, shared_step=0.3, penalty=0.1)
    how = Cutting(iterations, 0.02, layers, level_2, Cuts(mu=1e-6), Duals(step=1.0), asynchrony)
    steps = (0.02,) * (layers + 1)
    engine = InProcess(CutProgram(lambda i: quadratic_task(problems[i], i, steps), level_2), range(N))
    solve(engine.ask, torch.zeros(D, dtype=torch.float64), how)
    return left_to_go(problems, [state.at[0] for state in engine.states]), engine


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("asynchrony", [Asynchrony(), Asynchrony(active=2, stale=4)], ids=["together", "in turns"])
def test_progress_towards_a_known_answer(layers: int, asynchrony: Asynchrony) -> None:
    """Level 1 hears of a only through cuts: without them nothing would move it from zero, where all is left to go."""
    left, _ = run_quadratic(0, layers, 120, asynchrony)
    assert left < 0.4


def test_attacks_follow_the_model() -> None:
    """Level 3 asks for z = w. No objective of level 1 or 2 speaks of z: what moves it there are the two layers."""
    _, engine = run_quadratic(0, 2, 120, Asynchrony())
    off = sum(float((state.at[2] - state.at[1]).norm()) for state in engine.states)
    assert off < 0.75 * sum(float(state.at[1].norm()) for state in engine.states)


@pytest.mark.parametrize("layers", [1, 2])
def test_inactive_cuts_are_dropped_on_both_sides(layers: int) -> None:
    """Ten cuts of each layer are made; the master drops those without a multiplier, and so do the workers."""
    _, engine = run_quadratic(0, layers, 100, Asynchrony())
    for state in engine.states:
        assert 0 < len(state.cuts) < 10
        assert list(state.cuts) == list(engine.states[0].cuts)
        assert len(state.lower_cuts) < 10
        assert list(state.lower_cuts) == list(engine.states[0].lower_cuts)


def test_a_cut_that_holds_is_gone_when_the_next_is_made() -> None:
    """By hand: of two cuts, the one whose multiplier is zero does not survive, at the master and at the worker."""
    engine = InProcess(CutProgram(line_task, LINE.rounds), [0])
    engine.ask("start", Message({"w": number(2.0)}))
    center = with_cut(engine.ask, with_new_cuts(engine.ask, Center(number(2.0), (number(2.0),)), LINE), LINE)
    assert list(center.cuts) == list(engine.states[0].cuts) == [0, 1]
    center = replace(center, cuts={0: center.cuts[0], 1: replace(center.cuts[1], dual=0.5)})
    center = with_new_cuts(engine.ask, center, LINE)
    assert list(center.cuts) == list(engine.states[0].cuts) == [1, 2]


def test_what_crosses() -> None:
    """Two models a plain iteration; a cut: 2d for level 3, and 2d there and 2d back a round but for the last."""
    iterations, cuts, rounds = 20, 2, 5
    _, engine = run_quadratic(0, 2, iterations, Asynchrony())
    per_cut = 2 + 2 * rounds + 2 * rounds - 1
    assert engine.traffic.floats_per_worker == D * (1 + 2 * iterations + cuts * per_cut)
    _, turns = run_quadratic(0, 2, iterations, Asynchrony(active=1, stale=100))
    assert turns.traffic.up.floats == D * (iterations + N * cuts * (per_cut - 1 - 2 * rounds))
