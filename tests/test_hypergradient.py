from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor
from torch.func import grad, jacrev

from f2cto.constraints import LinfBall, Simplex, WholeSpace
from f2cto.hypergradient.adjoint import Adjoints, hypergradient, middle_gradient
from f2cto.hypergradient.coreset import SoftRobustCoreset
from f2cto.hypergradient.levels import Hessian, derivatives, lower_level
from f2cto.hypergradient.linear import Adjoint, Solver, solve
from f2cto.hypergradient.method import Sets, Settings, StepSizes, start, step
from f2cto.hypergradient.problem import Lowers, Point
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from testing.shards import blobs

CG = Adjoint(Solver.CG, terms=40)
SERIES = Adjoints(Adjoint(Solver.NEUMANN, terms=18, eta=0.66), Adjoint(Solver.NEUMANN, terms=30, eta=0.45))
X, Y, P, Q = BLOCKS = slice(3), slice(3, 7), slice(7, 10), slice(10, 12)  # x, y, and z in two blocks
UP, Z, ALL = slice(7), slice(7, 12), slice(12)
ZERO = torch.zeros(1, dtype=torch.float64)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def positive(seed: int) -> Tensor:
    """A symmetric matrix with eigenvalues between 1 and 2."""
    basis: Tensor = torch.linalg.qr(normal(seed, 12, 12)).Q
    return basis * torch.linspace(1, 2, 12) @ basis.T


def point(v: Tensor) -> Point:
    return Point(v[X], v[Y], (v[P], v[Q]))


HERE = point(normal(5, 12))


def parts(at: Point) -> tuple[Tensor, ...]:
    return (at.x, at.y, *at.z)


def differences(f: Callable[[Tensor], Tensor], x: Tensor, width: float = 1e-5) -> Tensor:
    """The gradient of f by central differences."""
    return torch.stack([(f(x + e) - f(x - e)) / (2 * width) for e in width * torch.eye(len(x), dtype=x.dtype)])


def close(a: Tensor, b: Tensor = ZERO, to: float = 1e-6) -> bool:
    return float((a - b).norm()) <= to * max(1.0, float(b.norm()))


@dataclass(frozen=True, eq=False)
class Quadratic:
    """f_i = 1/2 v'H_i v + b_i'v in v = (x, y, z), with `h` of H_1, H_2, H_3."""

    h: list[Tensor]
    b: Tensor

    def f1(self, x: Tensor, y: Tensor, z: Lowers) -> Tensor:
        return self._value(0, x, y, z)

    def f2(self, x: Tensor, y: Tensor, z: Lowers) -> Tensor:
        return self._value(1, x, y, z)

    def f3(self, x: Tensor, y: Tensor, z: Lowers) -> Tensor:
        return self._value(2, x, y, z)

    def _value(self, i: int, x: Tensor, y: Tensor, z: Lowers) -> Tensor:
        # Variables that an objective does not depend on, and pairs that it does not tie, leave no path in the graph.
        used = [(k, v) for k, v in zip(BLOCKS, (x, y, *z), strict=True) if bool(self.h[i][k].any())]
        ties = [a @ self.h[i][j, k] @ b / 2 for j, a in used for k, b in used if bool(self.h[i][j, k].any())]
        return torch.stack([*ties, *(self.b[i][k] @ v for k, v in used)]).sum()

    def solved(self, x: Tensor) -> Point:
        """(x, y(x), z(x)), by elimination."""
        z_v, z_0, y_x, y_0 = self.answers()
        up = torch.cat([x, y_x @ x + y_0])
        return point(torch.cat([up, z_v @ up + z_0]))

    def slopes(self, at: Point) -> tuple[Tensor, Tensor]:
        """The gradients of f and fbar by the chain rule, with those of f1 and f2 taken at the point."""
        z_v, _, y_x, _ = self.answers()
        f1_v, f2_v = (self.h[i] @ torch.cat(parts(at)) + self.b[i] for i in (0, 1))
        up = torch.cat([torch.eye(3).double(), y_x])
        return torch.cat([up, z_v @ up]).T @ f1_v, f2_v[Y] + z_v[:, Y].T @ f2_v[Z]

    def answers(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of z = z_v (x, y) + z_0 and y = y_x x + y_0 the coefficients."""
        z_v = -torch.linalg.solve(self.h[2][Z, Z], self.h[2][Z, UP])
        z_0 = -torch.linalg.solve(self.h[2][Z, Z], self.b[2, Z])
        follow = torch.cat([torch.eye(7).double(), z_v])
        fbar = follow.T @ self.h[1] @ follow
        rest = follow.T @ (self.h[1][:, Z] @ z_0 + self.b[1])
        return z_v, z_0, -torch.linalg.solve(fbar[Y, Y], fbar[Y, X]), -torch.linalg.solve(fbar[Y, Y], rest[Y])


def quadratic(seed: int, *without: tuple[int, slice, slice]) -> Quadratic:
    h, tie = [positive(10 * seed + i) for i in (1, 2, 3)], normal(10 * seed + 4, 7, 5)
    # |z_y| is then at most 0.8, and the eigenvalues of fbar_yy are between 1 and 2 (1 + 0.8^2).
    h[2][UP, Z] = tie * (0.8 / torch.linalg.matrix_norm(tie, 2))
    h[2][Z, UP] = h[2][UP, Z].T
    b = normal(10 * seed + 5, 3, 12)
    for i, rows, columns in without:
        h[i][rows, columns] = h[i][columns, rows] = 0
        b[i, columns] *= rows != ALL
    return Quadratic(h, b)


TIED, CORESET, FREE = "all tied", "the shape of a robust coreset", "f2 sees no z"
QUADRATICS = {
    TIED: quadratic(0),
    CORESET: quadratic(2, (2, P, Q), (1, ALL, Q), (0, ALL, P)),
    FREE: quadratic(3, (1, ALL, Z)),
    "f2 does not see q": quadratic(1, (1, ALL, Q)),
    "f1 sees y alone": quadratic(4, (0, ALL, Z), (0, ALL, X)),
}


@pytest.mark.parametrize("how", [Adjoints(CG, CG), SERIES], ids=["cg", "neumann"])
@pytest.mark.parametrize("problem", QUADRATICS.values(), ids=QUADRATICS)
def test_gradients_of_a_quadratic_are_the_chain_rule(problem: Quadratic, how: Adjoints) -> None:
    upper, middle = problem.slopes(HERE)
    assert close(middle_gradient(problem, HERE, how.lower), middle)
    for kept in (Hessian.EXACT, Hessian.SECOND_ORDER):
        assert close(hypergradient(problem, HERE, replace(how, hessian=kept)), upper)


@pytest.mark.parametrize("problem", QUADRATICS.values(), ids=QUADRATICS)
def test_hypergradient_of_a_quadratic_is_the_slope_of_the_nested_problem(problem: Quadratic) -> None:
    at = problem.solved(-HERE.x)
    slope = differences(lambda x: problem.f1(*vars(problem.solved(x)).values()), at.x)
    assert close(middle_gradient(problem, at, CG))
    assert close(hypergradient(problem, at, Adjoints(CG, CG)), slope)


def test_freezing_loses_second_order_terms_even_of_quadratics() -> None:
    frozen = Adjoints(CG, CG, Hessian.FROZEN)
    for name, right in ((TIED, False), (FREE, True)):
        assert close(hypergradient(QUADRATICS[name], HERE, frozen), QUADRATICS[name].slopes(HERE)[0], to=0.1) is right


@pytest.mark.parametrize(("name", "matter"), [(CORESET, {0}), ("f2 does not see q", {0, 1})])
def test_blocks_matter_if_they_are_seen_or_tied_to_one_that_is(name: str, matter: set[int]) -> None:
    z = tuple(block.clone().requires_grad_() for block in HERE.z)
    _, slopes = derivatives(QUADRATICS[name].f3(HERE.x, HERE.y, z), [], z, graph=True)
    assert set(lower_level(lambda keys: {k: slopes[k] for k in keys}, z, [0], CG).slopes) == matter


def test_hypergradient_error_falls_at_the_rate_of_the_series() -> None:
    problem, at, eta = QUADRATICS[FREE], HERE, 0.5
    f2_yy, f2_xy = problem.h[1][Y, Y], problem.h[1][X, Y]  # and no more: fbar is f2
    shrink = torch.eye(4).double() - eta * f2_yy
    rate = float(torch.linalg.eigvalsh(shrink).abs().max())
    f1_v = problem.h[0] @ torch.cat(parts(at)) + problem.b[0]
    left = v = torch.linalg.solve(f2_yy, f1_v[Y] + problem.answers()[0][:, Y].T @ f1_v[Z])
    bound = float(torch.linalg.matrix_norm(f2_xy, 2) * v.norm())
    for terms in range(15):
        truncated = hypergradient(problem, at, Adjoints(CG, Adjoint(Solver.NEUMANN, terms, eta)))
        error, left = truncated - problem.slopes(at)[0], shrink @ left  # left = (I - eta B)^(terms + 1) B^-1 c
        assert torch.allclose(error, f2_xy @ left, atol=1e-12)
        assert float(error.norm()) <= rate ** (terms + 1) * bound


def test_conjugate_gradients_end_after_as_many_steps_as_eigenvalues() -> None:
    b, c = torch.tensor([1.0, 1, 3, 3, 3, 7]).double(), normal(3, 6)
    two, three = (solve(lambda v: {0: b * v[0]}, {0: c}, Adjoint(Solver.CG, n))[0] for n in (2, 3))
    assert close(three, c / b, to=1e-12)
    assert not close(two, c / b, to=1e-3)
    assert torch.equal(solve(lambda v: {0: -v[0]}, {0: c}, CG)[0], 0 * c)  # not positive definite


@dataclass(frozen=True, eq=False)
class Smooth:
    """f3 = sum of exp(z) - g z, hence z(x, y) = log g, with g = 1 + (U x + V y)^2 and third derivatives everywhere."""

    u: Tensor
    v: Tensor

    def f1(self, x: Tensor, y: Tensor, z: Lowers) -> Tensor:
        return (y * x.sin()).sum() + (z[0] - 1).square().sum() + 0.3 * (z[0] * y).sum() + x.square().sum()

    def f2(self, x: Tensor, y: Tensor, z: Lowers) -> Tensor:
        return y.cosh().sum() * 2 - x @ y + z[0].square().sum() + z[0] @ y.sin()

    def f3(self, x: Tensor, y: Tensor, z: Lowers) -> Tensor:
        return z[0].exp().sum() - self.z(x, y)[0].exp() @ z[0]

    def z(self, x: Tensor, y: Tensor) -> Lowers:
        return ((1 + (self.u @ x + self.v @ y).square()).log(),)


def linear_losses(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    logits = x @ w.view(2, 2)
    return logits.logsumexp(dim=1) - logits.gather(1, y[:, None])[:, 0]


@dataclass(frozen=True, eq=False)
class LinearCoreset(SoftRobustCoreset):
    def z(self, alpha: Tensor, w: Tensor) -> Lowers:
        p, q = torch.zeros_like(self.x), torch.zeros_like(self.x)
        for _ in range(12):  # gradient steps until the attacks stand still
            slope_p, slope_q = grad(self.f3, argnums=2)(alpha, w, (p, q))
            p, q = p - slope_p / self.penalty, q - slope_q / self.penalty
        return p, q


SMOOTH = Smooth(normal(31, 3, 3), normal(32, 3, 3))
LINEAR = LinearCoreset(linear_losses, normal(41, 3, 2), torch.tensor([0, 1, 0]), 1.0, 0.3, torch.linalg.norm)


@pytest.mark.parametrize(("problem", "size", "gap"), [(SMOOTH, 3, 1e-2), (LINEAR, 4, 1e-4)], ids=["toy", "coreset"])
def test_exact_is_right_where_levels_are_smooth(problem: Smooth | LinearCoreset, size: int, gap: float) -> None:
    def solved(x: Tensor) -> Point:
        """By Newton's method on fbar, differentiated through z(x, y)."""
        slope = grad(lambda y: problem.f2(x, y, problem.z(x, y)))
        y = x.new_zeros(size)
        for _ in range(6):
            y = y - torch.linalg.solve(jacrev(slope)(y), slope(y))
        return Point(x, y, problem.z(x, y))

    at = solved(normal(33, 3).softmax(dim=0))
    slope = differences(lambda x: problem.f1(*vars(solved(x)).values()), at.x)
    assert close(middle_gradient(problem, at, CG), to=1e-9)
    assert close(hypergradient(problem, at, Adjoints(CG, CG, Hessian.EXACT)), slope)
    for kept in (Hessian.SECOND_ORDER, Hessian.FROZEN):
        assert not close(hypergradient(problem, at, Adjoints(CG, CG, kept)), slope, to=gap)


def test_the_loop_ends_at_the_trilevel_solution() -> None:
    problem = QUADRATICS[CORESET]
    adjoints = Adjoints(Adjoint(Solver.NEUMANN, 8, 0.65), Adjoint(Solver.CG, 4))
    settings = Settings(StepSizes(0.3, 0.4, 0.65), adjoints, middle_steps=2, lower_steps=4)
    state = start(HERE, settings)
    assert not close(problem.slopes(problem.solved(state.at.x))[0], to=0.5)
    while state.t < 40:
        state = step(problem, state, settings)
    assert close(problem.slopes(problem.solved(state.at.x))[0], to=1e-4)
    assert close(state.at.y, problem.solved(state.at.x).y, to=1e-4)


def test_iterates_stay_in_their_sets() -> None:
    sets = Sets(Simplex(), LinfBall(0.1), (LinfBall(0.2), WholeSpace()))
    settings = Settings(StepSizes(0.1, 0.1, 0.3), sets=sets)
    at = step(QUADRATICS[TIED], start(HERE, settings), settings).at
    assert all(onto.contains(part) for onto, part in ((sets.x, at.x), (sets.y, at.y), (sets.z[0], at.z[0])))
    assert float(at.z[1].abs().max()) > 0.2


def test_the_upper_step_comes_after_lower_steps_of_its_own() -> None:
    settings = Settings(StepSizes(0.1, 0.1, 0.3), middle_steps=0, lower_steps=1)
    problem = QUADRATICS[TIED]
    after = step(problem, start(HERE, settings), settings).at
    f3_z = problem.h[2][Z] @ torch.cat(parts(HERE)) + problem.b[2, Z]
    assert close(torch.cat(after.z), torch.cat(HERE.z) - 0.3 * f3_z, to=1e-12)
    assert torch.equal(after.x, HERE.x - 0.1 * hypergradient(problem, replace(HERE, z=after.z), settings.adjoints))


@pytest.mark.parametrize("kept", Hessian)
def test_a_step_is_a_function(kept: Hessian) -> None:
    before = [part.clone() for part in parts(HERE)]
    settings = Settings(StepSizes(0.1, 0.1, 0.3), Adjoints(hessian=kept), lower_steps=2)
    once = step(QUADRATICS[TIED], start(HERE, settings), settings).at
    with torch.no_grad():
        twice = step(QUADRATICS[TIED], start(HERE, settings), settings).at
    assert all(map(torch.equal, parts(once), parts(twice)))
    assert all(map(torch.equal, parts(HERE), before))
    assert not any(part.requires_grad for part in (*parts(HERE), *parts(once)))


def test_nonsense_is_refused() -> None:
    for make in (lambda: Adjoint(terms=-1), lambda: Adjoint(eta=-1), lambda: StepSizes(1, -1, 1)):
        with pytest.raises(ValueError, match="got -1"):
            make()


@pytest.mark.parametrize("kept", Hessian)
def test_a_network_s_robust_loss_falls(kept: Hessian) -> None:
    x, y = blobs(24, 3, seed=0)
    model = FlatModel(fresh(lambda: mlp(6, (8,), 3), generator(0)))
    problem = SoftRobustCoreset(model.losses, x, y, penalty=0.5, ridge=1e-2)
    adjoints = Adjoints(Adjoint(terms=2, eta=2.0), Adjoint(terms=2, eta=0.5), kept)
    settings = Settings(StepSizes(0.02, 0.5, 2.0), adjoints, lower_steps=3, sets=Sets(x=Simplex()))
    state = start(Point(torch.zeros(24), model.own(), (torch.zeros_like(x), torch.zeros_like(x))), settings)
    clean, before = state.at.z, problem.f1(*vars(state.at).values())
    for _ in range(3):
        state = step(problem, state, settings)
        assert all(bool(part.isfinite().all()) for part in parts(state.at))
    alpha, w, z = state.at.x, state.at.y, state.at.z
    attacked = problem.f1(alpha, w, z)
    assert float(problem.f1(alpha, w, clean)) + 1e-4 < float(attacked) < float(before) - 0.01  # q attacks, w learns
    assert float(problem.f2(alpha, w, z)) > float(problem.f2(alpha, w, clean)) + 1e-4  # p attacks
    assert float((alpha - 1 / 24).abs().max()) > 1e-4  # the weights moved, too
    assert close(replace(problem, regulariser=torch.sum).f1(alpha, w, z), attacked - 1, to=1e-5)
