"""What every attack must do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from f2cto.attacks import Attack, AutoAttack, Clean, Pgd, Restarted, fgsm, robust_accuracy
from f2cto.attacks.base import Range, perturbations
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from f2cto.training import Training, train_robust
from testing.shards import blobs

RADIUS = 0.2
ATTACKS: dict[str, Attack] = {
    "clean": Clean(),
    "fgsm": fgsm(RADIUS),
    "pgd": Pgd(RADIUS),
    "pgd from zero": Pgd(RADIUS, random_start=False),
    "pgd, small steps": Pgd(RADIUS, steps=10, step=0.016),
    "radius 0": Pgd(0.0),
    "pgd, restarted": Restarted(Pgd(RADIUS), 3),
    "auto": AutoAttack(RADIUS, classes=3, queries=50),
}
every_attack = pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)


@pytest.fixture(scope="module")
def trained() -> tuple[Callable[[Tensor], Tensor], Tensor, Tensor]:
    x, y = blobs(150, 3, 1)
    flat = FlatModel(fresh(lambda: mlp(6, (16,), 3), generator(1)))
    w = train_robust(flat, flat.own(), x, y, Pgd(0.0), Training(steps=100, attack_steps=0), generator(2))
    return (lambda v: flat.logits(w, v)), x, y


@every_attack
def test_stays_in_ball_and_range(attack: Attack, trained: tuple[Callable[[Tensor], Tensor], Tensor, Tensor]) -> None:
    logits, x, y = trained
    before = x.clone()
    attacked = attack.perturb(logits, x, y, generator(3))
    assert float((attacked - x).abs().max()) <= attack.radius + 1e-6
    assert float(attacked.min()) >= 0
    assert float(attacked.max()) <= 1
    assert torch.equal(x, before)


@every_attack
def test_accuracy_does_not_rise(attack: Attack, trained: tuple[Callable[[Tensor], Tensor], Tensor, Tensor]) -> None:
    logits, x, y = trained
    clean = robust_accuracy(logits, Clean(), x, y, Range(), generator(3))
    attacked = robust_accuracy(logits, attack, x, y, Range(), generator(3))
    assert attacked <= clean
    if attack.radius:
        assert attacked < clean - 0.05


@every_attack
def test_same_generator_same_bits(attack: Attack, trained: tuple[Callable[[Tensor], Tensor], Tensor, Tensor]) -> None:
    logits, x, y = trained
    one, two = (attack.perturb(logits, x, y, generator(5)) for _ in range(2))
    assert torch.equal(one, two)


@every_attack
def test_leaves_no_gradients_in_the_model(attack: Attack) -> None:
    network = fresh(lambda: mlp(6, (16,), 3), generator(1))
    *_, bias = network.parameters()
    bias.data[0] += 100.0  # always class 0: no part of an attack succeeds and spares us the others
    attack.perturb(network, blobs(10, 3, 1)[0], torch.zeros(10, dtype=torch.long), generator(3))
    assert all(parameter.grad is None for parameter in network.parameters())


FIXED = Range(fixed=(0, 4))


@pytest.mark.parametrize(
    "attack",
    [fgsm(RADIUS, FIXED), Pgd(RADIUS, valid=FIXED), Restarted(Pgd(RADIUS, valid=FIXED), 2)],
    ids=["fgsm", "pgd", "pgd, restarted"],
)
def test_fixed_features_stay(attack: Attack, trained: tuple[Callable[[Tensor], Tensor], Tensor, Tensor]) -> None:
    logits, x, y = trained
    moved = (attack.perturb(logits, x, y, generator(3)) - x).abs().amax(dim=0)
    assert moved[[0, 4]].tolist() == [0.0, 0.0]
    assert bool((moved[[1, 2, 3, 5]] > RADIUS / 2).all())


def test_an_attack_that_moves_fixed_features_is_clipped(
    trained: tuple[Callable[[Tensor], Tensor], Tensor, Tensor],
) -> None:
    logits, x, y = trained
    everything = Range(fixed=tuple(range(6)))
    clean = robust_accuracy(logits, Clean(), x, y, Range(), generator(3))
    assert robust_accuracy(logits, Pgd(RADIUS), x, y, everything, generator(3)) == clean
    assert robust_accuracy(logits, Pgd(RADIUS), x, y, Range(), generator(3)) < clean


def test_fixed_features_of_images_are_positions_in_the_flattened_sample() -> None:
    box = perturbations(torch.full((2, 1, 2, 3), 0.5), 0.1, Range(fixed=(4,)))
    assert (box.upper > 0).flatten(1).tolist() == [[True, True, True, True, False, True]] * 2


@pytest.mark.parametrize(("fixed", "complaint"), [((-1,), "positions 0, 1"), ((6,), "features 0 to 5")])
def test_fixed_features_that_do_not_exist(fixed: tuple[int, ...], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        perturbations(torch.zeros(2, 6), 0.1, Range(fixed=fixed))


def test_fgsm_by_hand() -> None:
    """For two linear logits (0, w.x) and label 0 the loss grows along w: each feature moves by the sign of w."""
    w = torch.tensor([1.0, -2.0, 0.5])
    logits = lambda x: torch.stack([torch.zeros(len(x)), x @ w], dim=1)  # noqa: E731
    x = torch.tensor([[0.5, 0.5, 0.98]])
    attacked = fgsm(0.1).perturb(logits, x, torch.tensor([0]), generator(0))
    assert torch.allclose(attacked, torch.tensor([[0.6, 0.4, 1.0]]))


def test_features_on_the_border_still_give_gradients() -> None:
    """Black pixels: a clamp inside the loss would hide them from the attack after a random start."""
    w = torch.full((5,), 2.0)
    logits = lambda x: torch.stack([torch.zeros(len(x)), x @ w], dim=1)  # noqa: E731
    attacked = Pgd(0.1, steps=8).perturb(logits, torch.zeros(4, 5), torch.zeros(4, dtype=torch.long), generator(1))
    assert torch.allclose(attacked, torch.full((4, 5), 0.1))


def test_a_cheating_attack_is_clipped(trained: tuple[Callable[[Tensor], Tensor], Tensor, Tensor]) -> None:
    class Cheat:
        radius = 0.0

        def perturb(self, logits: object, x: Tensor, y: Tensor, rng: object) -> Tensor:  # noqa: ARG002
            return torch.zeros_like(x)

    logits, x, y = trained
    clean = robust_accuracy(logits, Clean(), x, y, Range(), generator(3))
    assert robust_accuracy(logits, Cheat(), x, y, Range(), generator(3)) == clean


def test_perturbations_respect_the_range() -> None:
    box = perturbations(torch.tensor([[0.0, 0.95, 0.5]]), 0.1, Range())
    assert torch.allclose(box.lower, torch.tensor([[0.0, -0.1, -0.1]]))
    assert torch.allclose(box.upper, torch.tensor([[0.1, 0.05, 0.1]]))


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ValueError, match="low < high"):
        Range(1.0, 1.0)
