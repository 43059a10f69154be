from __future__ import annotations

import pytest
import torch
from torch import Tensor

from f2cto.federation.engine import WorkerFailedError
from f2cto.federation.in_process import InProcess
from f2cto.message import Message
from f2cto.methods.fednest import Nesting, NestProgram, State, adjoint, solve
from f2cto.randomness import generator
from testing.levels import QuadraticLevels, left_to_go, quadratic_levels, quadratic_task

N, D, K = 3, 3, 2
Engine = InProcess[int, State]


class Curved(QuadraticLevels):
    """The same with f2 = 1/2 (w - C a - b)'S(w - C a - b), S = 1/2 I + C C'/8: Hessians that differ over workers."""

    @property
    def s(self) -> Tensor:
        return torch.eye(D, dtype=torch.float64) / 2 + self.c @ self.c.T / 8

    def trained(self, a: Tensor, w: Tensor, z: tuple[Tensor, ...]) -> Tensor:  # noqa: ARG002
        off = w - self.c @ a - self.b
        return off @ self.s @ off / 2


def curved() -> list[Curved]:
    return [Curved(p.c, p.b, p.target) for p in quadratic_levels(N, 0)]


def engine_of(problems: list[Curved], how: Nesting, steps: tuple[float, float] = (0.1, 0.2)) -> Engine:
    return InProcess(NestProgram(lambda i: quadratic_task(problems[i], i, steps), how), range(N))


def test_the_hypergradient_is_the_analytic_one() -> None:
    """d/da_j of mean f_i at w is (r a_j + C'S_j u) / N where (mean S) u = w - t, as grad_w g_j = S_j (w - C a - b).

    A FedOut step of length eta moves a_j by -eta N times that; the factor N is part of the step.
    """
    problems, how = curved(), Nesting(rounds=1, epochs=0, terms=400, eta=0.4)
    engine, w = engine_of(problems, how), torch.randn(D, generator=generator(3), dtype=torch.float64)
    u = adjoint(engine.ask, w, how)
    mean = torch.stack([p.s for p in problems]).mean(dim=0)
    assert float(torch.linalg.eigvalsh(mean)[-1]) < 2 / how.eta  # the series converges
    assert torch.allclose(u, torch.linalg.solve(mean, w - problems[0].target), atol=1e-9)
    engine.ask("weigh", Message({"w": u}))
    for p, state in zip(problems, engine.states, strict=True):
        assert torch.allclose(state.a, -0.1 * (p.c.T @ p.s @ u), atol=1e-9)  # a was zero: r a is


def test_a_short_series_is_the_textbooks() -> None:
    """Two terms beyond the first: eta (3 I - 3 eta H + eta^2 H^2) grad f."""
    problems, how = curved(), Nesting(rounds=1, terms=2, eta=0.3)
    w = torch.ones(D, dtype=torch.float64)
    h, slope = torch.stack([p.s for p in problems]).mean(dim=0), w - problems[0].target
    expected = 0.3 * (3 * slope - 3 * 0.3 * h @ slope + 0.09 * h @ h @ slope)
    assert torch.allclose(adjoint(engine_of(problems, how).ask, w, how), expected)


def test_several_outer_steps_follow_the_direct_part() -> None:
    """From a = 0: two steps are -eta v, then -eta (v + r a), with v = C'S u."""
    problems, how = curved(), Nesting(rounds=1, outer_steps=2)
    engine, u = engine_of(problems, how), torch.ones(D, dtype=torch.float64)
    engine.ask("target", Message({"w": torch.zeros(D, dtype=torch.float64)}))
    engine.ask("weigh", Message({"w": u}))
    for p, state in zip(problems, engine.states, strict=True):
        v = p.c.T @ p.s @ u
        assert torch.allclose(state.a, -0.1 * v - 0.1 * (v - 0.1 * p.ridge * v))


def test_inner_steps_rest_where_the_mean_gradient_vanishes() -> None:
    """Plain federated averaging would drift there, since every worker's own gradient pulls elsewhere."""
    problems, how = curved(), Nesting(rounds=1, inner_steps=5)
    engine = engine_of(problems, how)
    left, right = torch.stack([p.s for p in problems]).sum(dim=0), sum(p.s @ p.b for p in problems)
    assert isinstance(right, Tensor)
    w = torch.linalg.solve(left, right)
    slopes = [reply.vectors["w"] for reply in engine.ask("gradient", Message({"w": w}))]
    assert all(float(slope.norm()) > 0.05 for slope in slopes)
    mean = torch.stack(slopes).mean(dim=0)
    for reply in engine.ask("train", Message({"w": mean})):
        assert torch.allclose(reply.vectors["w"], w, atol=1e-10)


def test_a_first_inner_step_is_along_the_mean_gradient() -> None:
    problems, how = curved(), Nesting(rounds=1, inner_steps=1)
    engine, w, mean = engine_of(problems, how), torch.ones(D).double(), torch.tensor([1.0, 2.0, 3.0]).double()
    engine.ask("gradient", Message({"w": w}))
    for reply in engine.ask("train", Message({"w": mean})):
        assert torch.allclose(reply.vectors["w"], w - 0.2 * mean)


def test_a_known_answer_is_reached() -> None:
    """With S = I the mean of the workers' answers is level 2's, and the answer is that of `testing.levels`."""
    problems = quadratic_levels(N, 0)
    how = Nesting(rounds=40, epochs=1, inner_steps=5, terms=5, eta=0.7)
    engine = InProcess(NestProgram(lambda i: quadratic_task(problems[i], i, (0.3, 0.3)), how), range(N))
    solution = solve(engine.ask, torch.zeros(D, dtype=torch.float64), how)
    assert left_to_go(problems, [state.a for state in engine.states]) < 1e-3
    assert solution.history[-1].gap < solution.history[0].gap


def test_what_crosses() -> None:
    """A round: 4d an epoch, 2d for the target, 2d a term, d down for the weights."""
    problems, how = curved(), Nesting(rounds=2, epochs=3, terms=4)
    engine = engine_of(problems, how)
    solve(engine.ask, torch.zeros(D, dtype=torch.float64), how)
    assert engine.traffic.floats_per_worker == D * 2 * (4 * 3 + 2 + 2 * 4 + 1)


def test_phases_out_of_turn_are_refused() -> None:
    engine = engine_of(curved(), Nesting())
    with pytest.raises(WorkerFailedError, match="gradient and target, then train"):
        engine.ask("train", Message({"w": torch.zeros(D, dtype=torch.float64)}))


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"terms": -1}, {"eta": 0.0}])
def test_impossible_rounds_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"FedNest needs|eta > 0"):
        Nesting(**wrong)  # type: ignore[arg-type]
