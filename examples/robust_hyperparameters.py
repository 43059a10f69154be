"""Robust hyper-parameter optimisation: the same solver on a problem that has nothing to do with coresets.

Four hospitals hold the patients of scikit-learn's diabetes data. A linear model is to predict the disease's progress
although its inputs may be off by a bounded error. How strongly each of the ten features should be regularised is
learned, not guessed:

    level 1   alpha: log regularisation of each feature, for the smallest validation loss under the worst error q
    level 2   q: the worst error of the validation inputs;  w: the model trained with that regularisation
    level 3   p: the worst error of the training inputs

Run: python examples/robust_hyperparameters.py
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from sklearn.datasets import load_diabetes
from torch import Tensor

from f2cto.constraints import Box, L2Ball, LinfBall
from f2cto.descent import gradient, projected_descent, sign
from f2cto.federation.in_process import InProcess
from f2cto.randomness import generator
from f2cto.trilevel.master import Master, Round, solve
from f2cto.trilevel.problem import Point, Sets
from f2cto.trilevel.program import Stage, TrilevelProgram, no_parameters
from f2cto.trilevel.settings import Hat, Penalties, Rules, Settings, StepSizes, Stopping

RADIUS, WORKERS = 0.25, 4
LOW, HIGH = -8.0, 3.0  # bounds of the log regularisation
SETS = Sets(A=Box(torch.tensor(LOW), torch.tensor(HIGH)), Q=LinfBall(RADIUS), W=L2Ball(10.0), P=LinfBall(RADIUS))
SETTINGS = Settings(
    # w descends f1 + rho_2 f2, w^ descends f2: the first needs the shorter step.
    eta=StepSizes(alpha=60.0, q=RADIUS, w=0.05 / 31, p=RADIUS, w_hat=0.05),
    penalties=Penalties(rho_2=30.0),
    steps=1,  # one full sign step is the worst error of a linear model
    rules=Rules(q=sign, p=sign),
    hat=Hat(steps=1, sync_every=0),  # level 2 is convex, so that w^ may find its own way to the optimum
    exact=True,
)


@dataclass(frozen=True, eq=False)
class RobustRidge:
    """One hospital's share: four objectives and four sets are all the solver asks for."""

    x: Tensor
    y: Tensor
    x_val: Tensor
    y_val: Tensor
    sets: Sets = SETS

    def f1(self, alpha: Tensor, q: Tensor, w: Tensor, p: Tensor) -> Tensor:  # noqa: ARG002
        """The validation loss under errors q."""
        return loss(w, self.x_val + q, self.y_val)

    def f2_eval(self, alpha: Tensor, q: Tensor, w: Tensor) -> Tensor:  # noqa: ARG002
        """What q minimises."""
        return -loss(w, self.x_val + q, self.y_val)

    def f2_train(self, alpha: Tensor, w: Tensor, p: Tensor) -> Tensor:
        """The regularised training loss under errors p."""
        return loss(w, self.x + p, self.y) + alpha.exp() @ w.square() / 2

    def f3(self, alpha: Tensor, w: Tensor, p: Tensor) -> Tensor:  # noqa: ARG002
        """What p minimises."""
        return -loss(w, self.x + p, self.y)


def loss(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Half the mean squared error."""
    return (x @ w - y).square().mean() / 2


def hospitals(seed: int = 0) -> tuple[list[RobustRidge], Tensor, Tensor]:
    """12 patients each to train on, 50 to validate with, and a common test set."""
    bunch = load_diabetes()
    x, y = (torch.from_numpy(values).double() for values in (bunch.data, bunch.target))
    x, y = x / x.std(dim=0), (y - y.mean()) / y.std()
    order = torch.randperm(len(y), generator=generator(seed))
    train, val, test = torch.split_with_sizes(order, [48, 200, len(y) - 248])
    parts = zip(train.tensor_split(WORKERS), val.tensor_split(WORKERS), strict=True)
    return [RobustRidge(x[t], y[t], x[v], y[v]) for t, v in parts], x[test], y[test]


def tune(problems: list[RobustRidge], iterations: int = 800) -> tuple[Tensor, tuple[Round, ...]]:
    """The log regularisation that the hospitals agree on: the mean of theirs."""
    program = TrilevelProgram[RobustRidge](
        stage=lambda problem, t, _: Stage(problem, SETTINGS, generator(0, t)),
        initial=lambda problem: Point(
            alpha=torch.full((10,), -4.0).double(),
            q=torch.zeros_like(problem.x_val),
            w=no_parameters(problem.x),
            p=torch.zeros_like(problem.x),
        ),
    )
    engine = InProcess(program, problems)
    found = solve(engine.ask, torch.zeros(10).double(), Master(SETS.W, SETTINGS.eta.w, Stopping(iterations)))
    return torch.stack([state.at.alpha for state in engine.states]).mean(dim=0), found.history


def train(problems: list[RobustRidge], alpha: Tensor, steps: int = 400) -> Tensor:
    """Level 2 alone: robust training with a given regularisation on all hospitals' training patients."""
    x, y = torch.cat([p.x for p in problems]), torch.cat([p.y for p in problems])
    w = torch.zeros(10).double()

    def objective(v: Tensor) -> Tensor:
        return loss(v, worst(v.detach(), x, y), y) + alpha.exp() @ v.square() / 2

    return projected_descent(partial(gradient, objective), w, SETS.W, 0.05, steps)


def worst(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Inputs with the worst error; for a linear model it is known in closed form."""
    return x + RADIUS * (x @ w - y).sign()[:, None] * w.sign()


def losses(seed: int) -> Tensor:
    """Robust validation and test loss of each way to regularise, for one split of the patients.  (3, 2)."""
    problems, x, y = hospitals(seed)
    x_val, y_val = torch.cat([p.x_val for p in problems]), torch.cat([p.y_val for p in problems])
    grid = [torch.full((10,), value).double() for value in torch.linspace(LOW, HIGH, 12).tolist()]

    def judged(alpha: Tensor) -> Tensor:
        w = train(problems, alpha)
        return torch.stack([loss(w, worst(w, x_val, y_val), y_val), loss(w, worst(w, x, y), y)])

    best_single = min((judged(alpha) for alpha in grid), key=lambda both: float(both[0]))
    return torch.stack([judged(grid[0]), best_single, judged(tune(problems)[0])])


def main(splits: int = 4) -> None:
    """Compare learned regularisation with none and with the best single number that validation finds."""
    found = torch.stack([losses(seed) for seed in range(splits)])
    print(f"robust loss, mean over {splits} splits: validation, test")
    for name, row, each in zip(["none", "best single", "learned"], found.mean(dim=0), found.unbind(1), strict=True):
        print(f"{name:12} {row[0]:.4f}  {row[1]:.4f}  (test by split: {[round(float(v), 3) for v in each[:, 1]]})")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
