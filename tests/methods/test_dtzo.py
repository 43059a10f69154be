from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from f2cto.federation.in_process import InProcess
from f2cto.message import Message
from f2cto.methods.consensus import Rounds
from f2cto.methods.cuts import Plane, smoothing_error, touching
from f2cto.methods.dtzo_master import (
    Center,
    QuadraticCuts,
    ZerothOrder,
    answered,
    broken,
    moved,
    pulls,
    solve,
    with_cut,
    with_lower_cut,
)
from f2cto.methods.dtzo_worker import LOWER, SHARED, UPPER, State, ZerothOrderProgram, directed
from f2cto.methods.zeroth_order import Smoothing, normal
from f2cto.randomness import generator
from testing.levels import left_to_go, quadratic_levels, quadratic_task

N, D, K = 2, 3, 2
Engine = InProcess[int, State]
SMALL = ZerothOrder(
    1,
    0.1,
    smoothing=Smoothing(1e-6, 1),
    rounds=Rounds(2, step=0.2, pull=0.5, dual_step=0.3, shared_step=0.4, penalty=0.2),
    cuts=QuadraticCuts(smoothness=0.5, tolerance=0.03),
)


def engine_of(how: ZerothOrder, states: list[State] | None = None) -> Engine:
    problems = quadratic_levels(N, 0)
    program = ZerothOrderProgram[int](
        lambda i: quadratic_task(problems[i], i, (0.3, 0.3, 0.3), 0.2), how.rounds, how.smoothing, how.cuts.bend
    )
    engine = InProcess(program, range(N))
    engine.states[:] = states or engine.states
    return engine


def started(how: ZerothOrder) -> tuple[Engine, Center]:
    """Workers a few steps from the start, where nothing is zero."""
    engine, w = engine_of(how), torch.ones(D, dtype=torch.float64)
    count = D + int(sum(reply.scalars["count"] for reply in engine.ask("start", Message({"w": w}))))
    for _ in range(3):
        engine.ask("step", Message({"w": w}))
    # Attacks are put somewhere: where z = w there is no distance to measure.
    engine.states[:] = [replace(state, at=(*state.at[:2], state.at[2] + 0.5)) for state in engine.states]
    return engine, Center(w, count)


def here(center: Center) -> dict[str, float]:
    return {"number": float(center.made), "direction": 0.0}


def off_answer(engine: Engine, center: Center, how: ZerothOrder, a: list[Tensor]) -> float:
    """The h of level 2 with other upper variables and the same randomness."""
    states = [replace(s, at=(v, *s.at[1:])) for s, v in zip(engine.states, a, strict=True)]
    part, z = answered(engine_of(how, states).ask, center, how, here(center))
    return part + float((center.z - z).square().sum())


def test_a_slope_is_the_rise_along_a_direction_times_the_direction() -> None:
    """The rise of h along u, the a of all workers at once, is grad h . u; grad h by differences, entry by entry."""
    engine, center = started(SMALL)
    center = with_lower_cut(engine.ask, center, SMALL)
    a, width = [state.at[0] for state in engine.states], 1e-5
    slope = []
    for j in range(N):
        for e in width * torch.eye(K, dtype=torch.float64):
            up, down = ([v + sign * e if i == j else v for i, v in enumerate(a)] for sign in (1, -1))
            difference = off_answer(engine, center, SMALL, up) - off_answer(engine, center, SMALL, down)
            slope.append(difference / (2 * width))
    u = torch.cat([directed(state, center.made, 1, UPPER)[0] for state in engine.states])
    rise = float(torch.tensor(slope, dtype=torch.float64) @ u)
    assert abs(rise) > 1e-3
    number = center.made
    with_cut(engine.ask, center, SMALL)
    got = torch.cat([state.cuts[number].slope[0] for state in engine.states])
    assert torch.allclose(got, rise * u, rtol=1e-3)


def test_the_slope_of_a_distance_in_its_own_variables_is_known() -> None:
    """2 (w - y) and 2 (z - z') in cuts of level 2, 2 (z_j - z_j') in those of level 3; bend and height beside them."""
    engine, center = started(SMALL)
    center = with_lower_cut(engine.ask, center, SMALL)
    lower = center.lower_cuts[0]
    for state in engine.states:
        assert torch.allclose(state.lower_cuts[0].slope[1], 2 * (state.at[2] - state.answer[0]))
        assert state.lower_cuts[0].bend == 1.5
    h = sum(float((state.at[2] - state.answer[0]).square().sum()) for state in engine.states)
    assert lower.value(center.z) == pytest.approx(h - 0.03)
    part, z = answered(engine.ask, center, SMALL, here(center))
    made = with_cut(engine.ask, center, SMALL).cuts[1]
    assert torch.allclose(made.cut.slope[0], 2 * (center.z - z))
    assert made.value(center.z) == pytest.approx(part + float((center.z - z).square().sum()) - 0.03)
    for state in engine.states:
        assert torch.allclose(state.cuts[1].slope[1], 2 * (state.at[1] - state.answer[0]))


def test_a_joint_direction_moves_everything() -> None:
    """The letter: one rise for all blocks, so that slopes are one multiple of the directions."""
    how = replace(SMALL, smoothing=replace(SMALL.smoothing, joint=True))
    engine, center = started(how)
    plane = with_lower_cut(engine.ask, center, how).lower_cuts[0]
    (u,) = normal((center.z,), generator(how.seed, 0, 1, 5))
    rise = float(plane.cut.slope[0] @ u / (u @ u))
    assert torch.allclose(plane.cut.slope[0], rise * u)
    for state in engine.states:
        a, _, z = directed(state, 0, 1, -1)
        assert torch.allclose(state.lower_cuts[0].slope[0], rise * a)
        assert torch.allclose(state.lower_cuts[0].slope[1], rise * z)
    assert [float(v.norm()) > 0 for v in directed(engine.states[0], 0, 1, LOWER)] == [False, False, True]
    assert not any(float(v.norm()) for v in directed(engine.states[0], 0, 1, SHARED))


def test_what_is_proven_is_forgiven() -> None:
    how = replace(SMALL, smoothing=Smoothing(0.01), cuts=replace(SMALL.cuts, proven=True))
    engine, center = started(how)
    assert center.count == D + N * (K + 2 * D)
    less = with_lower_cut(engine.ask, center, how).lower_cuts[0].height
    plain = replace(how, cuts=replace(how.cuts, proven=False))
    more = with_lower_cut(engine_of(plain, engine.states).ask, center, plain).lower_cuts[0].height
    assert more - less == pytest.approx(smoothing_error(0.01, 0.5, center.count))


def test_the_penalty_by_hand() -> None:
    """Cut 2 (z - 1) + 1/2 at z = 2 is broken by 5/2: with lambda = 0.1 it pulls with 2 (0.1)(5/2) = 1/2, and z loses
    0.1 (1/2)(2). A cut that holds pulls not at all, and is dropped.
    """
    one, two = torch.ones(1), torch.full((1,), 2.0)
    planes = {n: Plane(touching((two,), (one,)), height, (0.0,)) for n, height in ((0, 0.5), (1, -5.0))}
    center, how = Center(two, 1, planes), ZerothOrder(1, 0.1, cuts=QuadraticCuts(penalty=0.1))
    assert pulls(center, how) == pytest.approx({"pull.0": 0.5, "pull.1": 0.0})
    after = moved(center, [Message({}, {"cut.0": 0.25})], how)
    assert after.z.item() == pytest.approx(1.9)
    assert after.cuts[0].value(two) == pytest.approx(2.75)
    assert list(broken(planes, two, 5)) == [0]


def test_a_step_is_against_the_estimate_and_the_broken_cuts() -> None:
    """An estimate of one direction always goes downhill; the same step with a pull moves by the cut's slope, too."""
    engine, center = started(SMALL)
    before = engine.states
    number = center.made
    engine.ask("probe", Message({"w": center.z}, here(center)))
    engine.ask("lower cut", Message({}, {"number": float(number)}))
    engine.ask("round", Message({"w": center.z}, {"keep.0": 1.0, "number": 1.0, "direction": 0.0, "round": 0.0}))
    engine.ask("cut", Message({}, {"number": 1.0}))
    free, pulled = engine_of(SMALL, list(engine.states)), engine_of(SMALL, list(engine.states))
    free.ask("step", Message({"w": center.z}))
    pulled.ask("step", Message({"w": center.z}, {"pull.1": 0.7}))
    for j, (one, other, cut) in enumerate(zip(free.states, pulled.states, engine.states, strict=True)):
        assert torch.allclose(one.at[1] - other.at[1], 0.3 * 0.7 * cut.cuts[1].slope[1])
        step, slope = one.at[1] - before[j].at[1], before[j].at[1] - quadratic_levels(N, 0)[j].target
        # The step is -0.3 (slope.u) u: it goes downhill whatever u is.
        assert float(step @ slope) < 0


@pytest.mark.parametrize("seed", [0, 1])
def test_progress_towards_a_known_answer(seed: int) -> None:
    problems = quadratic_levels(N, seed)
    how = ZerothOrder(
        100,
        0.02,
        smoothing=Smoothing(1e-4, 2),
        rounds=Rounds(3, step=0.1, pull=1.0, dual_step=0.3, shared_step=0.3, penalty=0.01),
        cuts=QuadraticCuts(every=5, penalty=0.5),
    )
    program = ZerothOrderProgram[int](
        lambda i: quadratic_task(problems[i], i, (0.02, 0.02, 0.02), 0.1), how.rounds, how.smoothing, how.cuts.bend
    )
    engine = InProcess(program, range(N))
    solution = solve(engine.ask, torch.zeros(D, dtype=torch.float64), how)
    assert left_to_go(problems, [state.at[0] for state in engine.states]) < 0.75
    assert solution.history[-1].objective < solution.history[0].objective / 2
