from __future__ import annotations

import logging
import random
import sys
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import f2cto
from f2cto.attacks import AutoAttack, Logits
from f2cto.attacks.base import Range
from f2cto.randomness import generator


def linear(weights: Tensor, bias: Tensor) -> Logits:
    return lambda x: x.flatten(1) @ weights.T + bias


def withstands(weights: Tensor, bias: Tensor, x: Tensor, y: Tensor, radius: float) -> Tensor:
    """Whether linear logits stay right everywhere in the ball and the range: per rival, the worst corner is known."""
    low, high = (x - radius).clamp(min=0), (x + radius).clamp(max=1)
    ahead = weights[y][:, None] - weights  # (M, classes, d): how the lead over each rival grows with x
    lead = torch.minimum(ahead * low[:, None], ahead * high[:, None]).sum(dim=2) + bias[y][:, None] - bias
    lead[torch.arange(len(y)), y] = torch.inf
    assert float(lead.abs().min()) > 1e-5, "a sample on the border: take another seed"
    return lead.min(dim=1).values > 0


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_linear_models_by_hand(classes: int) -> None:
    rng = generator(7, classes)
    x = torch.rand(40, 5, generator=rng)
    weights = torch.randn(classes, 5, generator=rng)
    bias = -weights.sum(dim=1) / 2  # all classes meet in the middle
    y = linear(weights, bias)(x).argmax(dim=1)
    y[:3] = (y[:3] + 1) % classes  # wrong without any attack
    expected = withstands(weights, bias, x, y, 0.05)
    assert 5 < int(expected.sum()) < 35
    attacked = AutoAttack(0.05, classes, queries=20).perturb(linear(weights, bias), x, y, generator(1))
    right = linear(weights, bias)(attacked).argmax(dim=1) == y
    assert right.tolist() == expected.tolist()
    assert torch.equal(attacked[:3], x[:3])


def test_square_alone_on_a_model_that_hands_its_input_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Square writes into the logits; were they the samples themselves, these would be spoilt and nothing found."""
    library = AutoAttack._library

    def square(*given: Any) -> Any:
        run = library(*given)
        run.attacks_to_run = ["square"]
        return run

    monkeypatch.setattr(AutoAttack, "_library", square)
    x = torch.tensor([[0.5, 0.2, 0.1], [0.5, 0.45, 0.1], [0.4, 0.5, 0.2], [0.1, 0.2, 0.9]])
    before, y = x.clone(), torch.tensor([0, 0, 1, 2])
    attacked = AutoAttack(0.1, 3, queries=100).perturb(lambda v: v, x, y, generator(1))
    assert attacked.argmax(dim=1).tolist() == [0, 1, 0, 2]
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((4,), torch.float64), ((2, 3), torch.float32), ((2, 3, 3), torch.float32)]
)
def test_models_see_samples_as_they_were_given(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    seen = set[tuple[tuple[int, ...], torch.dtype]]()

    def logits(x: Tensor) -> Tensor:
        seen.add((tuple(x.shape[1:]), x.dtype))
        return torch.stack([x.flatten(1).sum(dim=1), x.flatten(1).sum(dim=1) * 0 + 0.5], dim=1)

    x = torch.full((1, *shape), 0.5, dtype=dtype)
    attacked = AutoAttack(0.1, 2, queries=2).perturb(logits, x, torch.tensor([0]), generator(1))
    assert seen == {(shape, dtype)}
    assert attacked.shape == x.shape
    assert attacked.dtype == dtype


def test_ten_classes_get_the_standard_version() -> None:
    from pyautoattack import AutoAttack as Library  # noqa: PLC0415

    ours = AutoAttack(0.1, 10)._library(torch.nn.Identity(), torch.device("cpu"), 3)
    standard = Library(torch.nn.Identity(), norm="Linf", eps=0.1, seed=3, device=torch.device("cpu"))
    assert ours.attacks_to_run == standard.attacks_to_run == ["apgd-ce", "apgd-t", "fab-t", "square"]
    for part in ("apgd", "apgd_targeted", "fab", "square"):
        one, two = (
            {key: value for key, value in vars(getattr(run, part)).items() if isinstance(value, int | float | str)}
            for run in (ours, standard)
        )
        assert one == two
        assert len(one) > 5


@pytest.mark.parametrize(("classes", "targets"), [(2, 1), (3, 2), (4, 3), (9, 8), (10, 9), (100, 9)])
def test_no_more_targets_than_other_classes(classes: int, targets: int) -> None:
    run = AutoAttack(0.1, classes, queries=7)._library(torch.nn.Identity(), torch.device("cpu"), 3)
    assert run.square.n_queries == 7
    assert (run.fab.n_target_classes, run.apgd_targeted.n_target_classes) == (targets, targets)
    assert ("apgd-t" in run.attacks_to_run) == (classes >= 4)


def test_the_program_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The library seeds, switches tracing off, and warns: here of logits that look like probabilities."""
    monkeypatch.setattr(logging.root, "handlers", [])  # as in a program that knows nothing of logs
    trace = lambda frame, event, argument: None  # noqa: ARG005, E731
    numbers, states, before = np.random.get_state()[1].tolist(), random.getstate(), sys.gettrace()  # type: ignore[index]  # noqa: NPY002
    try:
        sys.settrace(trace)
        attack = AutoAttack(0.1, 2, queries=5)
        attack.perturb(lambda v: torch.cat([v, 1 - v], dim=1), torch.tensor([[0.9]]), torch.tensor([0]), generator(1))
        assert sys.gettrace() is trace
    finally:
        sys.settrace(before)
    assert np.random.get_state()[1].tolist() == numbers  # type: ignore[index]  # noqa: NPY002
    assert random.getstate() == states
    assert capfd.readouterr() == ("", "")


def test_the_seed_comes_from_the_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = list[int]()

    def library(self: AutoAttack, model: Logits, device: torch.device, seed: int) -> Any:  # noqa: ARG001
        seeds.append(seed)
        return SimpleNamespace(run_standard_evaluation=lambda x, y, batch_size: (x, y))  # noqa: ARG005

    monkeypatch.setattr(AutoAttack, "_library", library)
    rng = generator(1)
    for source in (rng, rng, generator(1)):
        AutoAttack(0.1, 2).perturb(lambda v: v, torch.zeros(1, 2), torch.tensor([0]), source)
    assert seeds[0] == seeds[2] != seeds[1]


@pytest.mark.parametrize(("shape", "image"), [((4,), (1, 1, 4)), ((2, 3), (1, 1, 6)), ((2, 3, 3), (2, 3, 3))])
def test_the_library_gets_images_in_batches(
    shape: tuple[int, ...], image: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = list[tuple[tuple[int, ...], int]]()

    def evaluate(x: Tensor, y: Tensor, batch_size: int) -> tuple[Tensor, Tensor]:
        given.append((tuple(x.shape), batch_size))
        return x, y

    monkeypatch.setattr(AutoAttack, "_library", lambda *_: SimpleNamespace(run_standard_evaluation=evaluate))
    x = torch.rand(5, *shape, generator=generator(1))
    attacked = AutoAttack(0.1, 2, batch=3).perturb(
        lambda v: v.flatten(1)[:, :2], x, torch.zeros(5).long(), generator(1)
    )
    assert given == [((5, *image), 3)]
    assert torch.equal(attacked, x)


def test_a_library_that_leaves_the_ball_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    far = SimpleNamespace(run_standard_evaluation=lambda x, y, batch_size: (x + 0.2, y))  # noqa: ARG005
    monkeypatch.setattr(AutoAttack, "_library", lambda *_: far)
    with pytest.raises(RuntimeError, match=r"moved a feature by 0\.2, the radius is 0\.1"):
        AutoAttack(0.1, 2).perturb(lambda v: v, torch.zeros(1, 2), torch.tensor([0]), generator(1))


@pytest.mark.parametrize("value", [-0.01, 1.01, float("nan")])
def test_data_out_of_range_are_refused(value: float) -> None:
    x = torch.tensor([[0.5, value]])
    with pytest.raises(ValueError, match=r"features in \[0, 1\] only; got values from"):
        AutoAttack(0.1, 2).perturb(lambda v: v, x, torch.tensor([0]), generator(1))


def test_another_number_of_logits_is_refused() -> None:
    with pytest.raises(ValueError, match="for 3 classes, but the model gives 2 logits"):
        AutoAttack(0.1, 3).perturb(lambda v: v, torch.zeros(1, 2), torch.tensor([0]), generator(1))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"valid": Range(-1.0, 1.0)}, r"\[0, 1\] only; got \[-1.0, 1.0\]"),
        ({"valid": Range(0.0, 255.0)}, r"\[0, 1\] only; got \[0.0, 255.0\]"),
        ({"valid": Range(fixed=(2, 3))}, "2 are said to be fixed"),
        ({"classes": 1}, "classes >= 2"),
        ({"batch": 0}, "batch >= 1"),
        ({"queries": 0}, "queries >= 1"),
        ({"radius": -0.1}, "radius >= 0"),
        ({"radius": float("nan")}, "radius >= 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        AutoAttack(**{"radius": 0.1, "classes": 3, **settings})


def test_a_missing_library_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    with pytest.raises(ImportError, match=r'pip install "f2cto\[attacks\]"'):
        AutoAttack(0.1, 3)


def test_the_library_is_imported_only_when_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f2cto, "attacks", f2cto.attacks)  # put back afterwards, like the modules
    for name in [name for name in sys.modules if name.startswith(("f2cto.attacks", "pyautoattack"))]:
        monkeypatch.delitem(sys.modules, name)
    import_module("f2cto.attacks")
    assert "f2cto.attacks.auto" in sys.modules
    assert "pyautoattack" not in sys.modules
