from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from types import MappingProxyType

import pytest
import torch
from torch import Tensor
from torch.func import grad, jvp, vmap

import f2cto.bench.properties
from f2cto.bench.properties import (
    Bound,
    Constraints,
    Order,
    Passes,
    Properties,
    by_size,
    in_box,
    on_simplex,
    probe,
    properties,
    tensors,
)
from f2cto.cli import main
from f2cto.counting import Tally, counted
from f2cto.methods.base import Given, evenly
from f2cto.methods.catalogue import METHODS, make_selector
from f2cto.methods.error_feedback import ErrorFeedback
from f2cto.methods.error_feedback_settings import ErrorFeedbackSettings, Filtering, Proxies
from f2cto.methods.f2cto_settings import Choice, F2ctoSettings, Form, Perturbation, Proxy, Weighting
from f2cto.methods.lifted import Lifted, Pretraining
from f2cto.methods.lockstep import F2cto
from f2cto.methods.tsg import Levels, Tsg, TsgSettings
from f2cto.methods.uniform import uniform
from f2cto.methods.variants import periodic, upper_bilevel
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from f2cto.training import Training
from f2cto.trilevel.settings import Penalties, Stopping
from testing.shards import blobs, federation

X, Y = blobs(5, 3, 0)


def counting() -> tuple[FlatModel, Tally, Tensor]:
    tally = Tally()
    model = FlatModel(counted(fresh(lambda: mlp(6, (8,), 3), generator(0)), tally))
    return model, tally, model.own()


def mean_loss(model: FlatModel, w: Tensor) -> Tensor:
    return model.losses(w, X, Y).mean()


def slope(model: FlatModel, w: Tensor) -> Tensor:
    leaf = w.clone().requires_grad_()
    return torch.autograd.grad(mean_loss(model, leaf), leaf)[0]


def curvature(model: FlatModel, w: Tensor) -> Tensor:
    leaf = w.clone().requires_grad_()
    first = torch.autograd.grad(mean_loss(model, leaf), leaf, create_graph=True)[0]
    return torch.autograd.grad(first @ w, leaf)[0]


def prepared(model: FlatModel, w: Tensor) -> Tensor:
    leaf = w.clone().requires_grad_()
    return torch.autograd.grad(mean_loss(model, leaf), leaf, create_graph=True)[0].detach()


def one_by_one(model: FlatModel, w: Tensor) -> Tensor:
    each = grad(lambda v, x, y: model.losses(v, x[None], y[None]).sum())
    gradients: Tensor = vmap(each, in_dims=(None, 0, 0))(w, X, Y)
    return gradients.mean(dim=0)


def along(model: FlatModel, w: Tensor) -> Tensor:
    derivative: Tensor = jvp(partial(mean_loss, model), (w,), (w,))[1]
    return derivative


def curvature_along(model: FlatModel, w: Tensor) -> Tensor:
    product: Tensor = jvp(grad(partial(mean_loss, model)), (w,), (w,))[1]
    return product


# Forward mode brings in parts of torch that torch itself has deprecated.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (mean_loss, (5, 0, 0)),
        (slope, (5, 5, 0)),
        (prepared, (5, 5, 0)),  # a graph that nobody goes back through is no second derivative
        (curvature, (5, 10, 5)),  # back through the backward pass, and from there through the forward pass
        (one_by_one, (5, 5, 0)),
        (along, (5, 5, 0)),
        (curvature_along, (5, 10, 5)),
    ],
)
def test_every_way_to_differentiate_is_counted(
    work: Callable[[FlatModel, Tensor], Tensor], expected: tuple[int, int, int]
) -> None:
    model, tally, w = counting()
    result = work(model, w)
    assert (tally.forward, tally.backward, tally.second) == expected
    plain = FlatModel(fresh(lambda: mlp(6, (8,), 3), generator(0)))
    torch.testing.assert_close(result, work(plain, w))  # counting changes nothing


def test_backward_in_place_is_counted_too() -> None:
    model, tally, w = counting()
    leaf = w.clone().requires_grad_()
    mean_loss(model, leaf).backward()  # type: ignore[no-untyped-call]
    assert (tally.forward, tally.backward, tally.second) == (5, 5, 0)


def paper(settings: F2ctoSettings) -> Callable[[Given], F2cto]:
    return lambda given: F2cto(settings, 2 * float(given.w.norm()), given.valid)


# Weights hardly move, so that all samples keep some and none is left out of a pass.
STILL = Weighting(step=1e-9)


def test_passes_of_f2cto() -> None:
    """R attack steps; one step of w^ unless it rests; losses under w, and under w^ unless it rests; one step of w."""
    steps, every = 4, 2
    settings = F2ctoSettings(
        weighting=STILL,
        proxy=Proxy(sync_every=every),
        perturbation=Perturbation(steps=steps),
        stopping=Stopping(iterations=6),
        choice=Choice.AVERAGE,
    )
    row = probe("f2cto", 3, paper(settings))
    moving = 1 - 1 / every
    assert row.passes == pytest.approx(Passes(steps + moving + 1 + moving, steps + moving + 1, 0))
    assert row.floats == 4
    assert (row.order, row.federated, row.iterations, row.exchanges) == (Order.FIRST, True, 6, 12)


def test_passes_of_the_penalty_form() -> None:
    """By the letter of Eqs. (7)-(14).

    R steps of each of p* and q*; p^ and w^ one step each, the latter at p^ and p*; forwards for alpha at p, p* and
    w^, p^; one step of q; a step of w at q, q* and, from memory, p, p*; one step of p.
    """
    settings = F2ctoSettings(
        weighting=STILL,
        proxy=Proxy(sync_every=1, waits=False, step=0.01, hat_step=0.01),
        perturbation=Perturbation(form=Form.PENALTY, steps=3),
        penalties=Penalties(2, 1, 2, 2),
        stopping=Stopping(iterations=3),
    )
    row = probe("f2cto", 3, paper(settings))
    assert row.passes.forward == pytest.approx(2 * 3 + 3 + 3 + 1 + 2 + 1)
    assert row.passes.backward == pytest.approx(2 * 3 + 3 + 1 + 4 + 1)


def test_f2cto_is_held_by_all_four_sets() -> None:
    settings = F2ctoSettings(
        proxy=Proxy(step=0.5, hat_step=1.0), perturbation=Perturbation(ramp=5), stopping=Stopping(iterations=20)
    )
    assert probe("f2cto", 3, paper(settings)).constraints == Constraints(Bound.HELD, Bound.HELD, Bound.HELD, Bound.HELD)
    assert probe("ubv", 2, paper(upper_bilevel(settings))).constraints.p is Bound.ABSENT


def test_periodic_exchanges_cost_a_fifth() -> None:
    row = probe("f2cto+p", 3, paper(periodic(F2ctoSettings(stopping=Stopping(iterations=10), choice=Choice.AVERAGE))))
    assert row.floats == pytest.approx(4 / 5)
    assert (row.iterations, row.exchanges) == (10, 4)


def test_random_does_nothing() -> None:
    row = probe("random", 0, partial(make_selector, "random", {}))
    nothing = Passes(0, 0, 0)
    assert row == Properties("random", 0, Constraints(*[Bound.ABSENT] * 4), Order.NONE, 0, 0, nothing, nothing, 0.0)
    assert not row.federated


def test_tsg_takes_second_derivatives_and_leaves_every_set() -> None:
    row = probe("tsg", 3, lambda given: Tsg(TsgSettings(iterations=5, levels=Levels(middle=2.0)), given))
    assert row.order is Order.SECOND
    assert row.passes.second > 0
    assert row.floats == 2
    assert row.constraints == Constraints(*[Bound.LEFT] * 4)


def test_tsg_with_projections_leaves_none() -> None:
    settings = TsgSettings(iterations=5, levels=Levels(middle=2.0), project=True)
    row = probe("tsg", 3, lambda given: Tsg(settings, given))
    assert Bound.LEFT not in (row.constraints.alpha, row.constraints.q, row.constraints.w, row.constraints.p)


def test_error_feedback_is_first_order() -> None:
    settings = ErrorFeedbackSettings(filtering=Filtering(rounds=3, since=1), proxies=Proxies(count=1, steps=1))
    row = probe("f2cto-ef", 3, lambda given: ErrorFeedback(settings, given))
    assert (row.order, row.federated) == (Order.FIRST, True)
    assert row.iterations == 3 + 1 + 12  # the filter, the proxy, and twelve places


def test_a_lifted_method_works_after_its_iterations() -> None:
    """Training: one forward for the loss, and batches of ten attacked twice. Choosing: one look at all samples."""

    def look(shard: object, w: Tensor, rng: torch.Generator) -> object:
        shard.model.losses(w, shard.x, shard.y)  # type: ignore[attr-defined]
        return evenly(uniform(shard, rng))  # type: ignore[arg-type]

    pretraining = Pretraining(rounds=3, local=Training(steps=4, batch=10, attack_steps=2, ramp=0.0, restarts=0))
    row = probe("lifted", 1, lambda given: Lifted(look, pretraining, given))  # type: ignore[arg-type]
    assert row.passes == pytest.approx(Passes(1 + 4 * 3 * 10 / 20, 4 * 3 * 10 / 20, 0))
    assert row.passes_outside == pytest.approx(Passes(1, 0, 0))
    assert row.floats == 2


def test_states_are_searched_by_the_names_of_their_fields() -> None:
    one, two, three = torch.zeros(1), torch.ones(2), torch.ones(3)
    state = (4, {"alpha": one, "rest": [two, None]}, Given(three))
    assert [(name, tensor.shape[0]) for name, tensor in tensors(state)] == [("alpha", 1), ("rest", 2), ("w", 3)]


@pytest.mark.parametrize(
    ("alpha", "bound"),
    [([0.5, 0.5, 0.0], Bound.HELD), ([0.6, 0.5, -0.1], Bound.LEFT), ([0.5, 0.4, 0.0], Bound.LEFT)],
)
def test_weights_on_a_simplex(alpha: list[float], bound: Bound) -> None:
    assert on_simplex(torch.tensor(alpha)) is bound


@pytest.mark.parametrize(
    ("size", "bound"), [(0.0, Bound.ABSENT), (0.4, Bound.INSIDE), (1.0, Bound.HELD), (1.01, Bound.LEFT)]
)
def test_sizes_beside_a_limit(size: float, bound: Bound) -> None:
    assert by_size(size, 1.0) is bound


def test_perturbed_samples_count_like_their_perturbations() -> None:
    shard = federation()[0]
    moved = (shard.x + 0.1).clamp(max=1)
    assert in_box(moved, shard) is in_box(moved - shard.x, shard) is Bound.HELD
    assert in_box(torch.full_like(shard.x, 0.11), shard) is Bound.LEFT
    assert in_box(torch.full_like(shard.x, 0.09), shard) is Bound.LEFT  # some feature is near 1, and leaves the range


@pytest.fixture
def two_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    few = MappingProxyType({name: METHODS[name] for name in ("f2cto", "random")})
    monkeypatch.setattr(f2cto.bench.properties, "METHODS", few)


@pytest.mark.usefixtures("two_methods")
def test_settings_by_name_reach_the_method() -> None:
    rows = properties({"f2cto": {"stopping": {"iterations": 2}}})
    assert [(row.name, row.iterations) for row in rows] == [("f2cto", 2), ("random", 0)]


@pytest.mark.usefixtures("two_methods")
def test_the_command_shows_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--properties", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    methods = {method["name"]: method for method in shown["methods"]}
    assert list(methods) == list(METHODS)
    assert methods["f2cto"]["levels"] == 3
    assert "Jiao" in methods["f2cto"]["reference"]
    measured = methods["f2cto"]["properties"]
    assert (measured["floats"], measured["order"], measured["federated"]) == (4.0, "first", True)
    assert measured["constraints"] == dict.fromkeys(("alpha", "q", "w", "p"), "held")
    assert measured["passes"]["second"] == 0
    assert methods["random"]["properties"]["floats"] == 0


@pytest.mark.usefixtures("two_methods")
def test_the_table_has_a_row_for_each(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["list", "--properties"]) == 0
    shown = capsys.readouterr().out
    (row,) = [line for line in shown.splitlines() if "f2cto" in line]
    assert [cell.strip() for cell in row.split("│")][3:7] == ["held"] * 4
    assert "4 d" in row
    assert "federated whether master and workers talk more than once" in shown
