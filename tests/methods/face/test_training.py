"""Robust training of many networks side by side, against the steps written out for one linear model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from f2cto.attacks.base import Range
from f2cto.counting import Tally, counted
from f2cto.methods.f2cto import stacked
from f2cto.methods.f2cto.stacked import Stacked
from f2cto.methods.f2cto.training import Ball, Schedule, Sets, Trained, _batches, attacked, local_round, shortened
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from f2cto.training import Training

BALL = Ball(0.1, Range())
PLAIN = Training(rate=0.5, momentum=0.0, ramp=0.0, warm_up=0.0, clip=0.0)
ALONE = torch.float64


def linear(features: int = 2, hidden: tuple[int, ...] = ()) -> Stacked:
    return Stacked(FlatModel(fresh(lambda: mlp(features, hidden, 2), generator(3)).double()))


def numbers(*values: object) -> Tensor:
    return torch.tensor(values, dtype=ALONE)


def one_step(w: Tensor, x: Tensor, y: int, training: Training = PLAIN, ball: Ball = BALL) -> Trained:
    """A single step on a single sample."""
    sets = Sets.fresh(x[None, None], torch.tensor([[y]]))
    return local_round(linear(len(x)), w[None], sets, ball, Schedule(training, 1, 1, 1), 0, generator(0))


def test_a_step_on_a_linear_model_by_hand() -> None:
    """From w = 0 both classes have probability 1/2: the residual is (-1/2, 1/2), the gradient its product with x."""
    done = one_step(torch.zeros(6, dtype=ALONE), numbers(0.2, 0.6), 0)
    torch.testing.assert_close(done.w[0], -0.5 * numbers(-0.1, -0.3, 0.1, 0.3, -0.5, 0.5))
    torch.testing.assert_close(done.losses, numbers([math.log(2)]))
    assert done.visits.tolist() == [1]
    assert not done.p.any()  # nothing to climb along


def test_a_gradient_that_is_too_long_is_shortened_before_the_step_by_hand() -> None:
    """Its squared norm is 2 (0.01 + 0.09 + 0.25) = 0.7."""
    done = one_step(torch.zeros(6, dtype=ALONE), numbers(0.2, 0.6), 0, replace(PLAIN, clip=0.1))
    expected = -0.5 * numbers(-0.1, -0.3, 0.1, 0.3, -0.5, 0.5) * 0.1 / math.sqrt(0.7)
    torch.testing.assert_close(done.w[0], expected)


def test_a_perturbation_climbs_half_a_radius_by_hand() -> None:
    """The gradient in x is W' (softmax - onehot) = c (-1, 2) with c > 0: down in the first, up in the second."""
    done = one_step(numbers(1.0, -2.0, 0.0, 0.0, 0.0, 0.0), numbers(0.5, 0.5), 0)
    torch.testing.assert_close(done.p[0, 0], numbers(-0.05, 0.05))


def test_a_perturbation_stays_in_the_valid_range_by_hand() -> None:
    done = one_step(numbers(1.0, -2.0, 0.0, 0.0, 0.0, 0.0), numbers(0.02, 0.99), 0)
    torch.testing.assert_close(done.p[0, 0], numbers(-0.02, 0.01))


def test_each_network_has_its_own_gradient_shortened() -> None:
    rows = numbers([3.0, 4.0], [0.3, 0.4], [0.0, 0.0])
    torch.testing.assert_close(shortened(rows, 1.0), numbers([0.6, 0.8], [0.3, 0.4], [0.0, 0.0]))
    assert torch.equal(shortened(rows, 0), rows)


@pytest.mark.parametrize("steps", [1, 7, 30])
def test_the_rate_warms_up_and_falls_over_the_steps_of_this_training(steps: int) -> None:
    """Not over those of the task's: its number of steps is another."""
    schedule = Schedule(Training(steps=1000, rate=0.4, warm_up=0.2), 3, steps, 10)
    for t in range(steps):
        cosine = (1 + math.cos(math.pi * t / steps)) / 2
        assert schedule.rate(t) == pytest.approx(0.4 * cosine * min(1, (t + 1) / (0.2 * steps)))


def test_the_radius_grows_over_the_ramp() -> None:
    schedule = Schedule(Training(ramp=0.5), 1, 8, 10)
    assert [schedule.growth(t) for t in range(8)] == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1, 1, 1])
    assert Schedule(Training(ramp=0.0), 1, 8, 10).growth(0) == 1


@pytest.mark.parametrize(("steps", "rounds"), [(7, 3), (3, 3), (100, 8)])
def test_rounds_share_the_steps_out(steps: int, rounds: int) -> None:
    spans = [Schedule(PLAIN, rounds, steps, 1).span(number) for number in range(rounds)]
    assert [t for span in spans for t in span] == list(range(steps))
    assert max(map(len, spans)) - min(map(len, spans)) <= 1


def softmax(logits: list[float]) -> list[float]:
    odds = [math.exp(z) for z in logits]
    return [o / sum(odds) for o in odds]


def written_out(
    w: list[float], x: list[list[float]], y: Sequence[int], schedule: Schedule, valid: Range, radius: float
) -> tuple[list[float], list[list[float]], list[float], list[list[list[float]]]]:
    """All steps of one round on the whole of two features, in plain numbers: w, p, losses and what was looked at."""
    training, p, velocity = schedule.training, [[0.0, 0.0] for _ in x], [0.0] * 6
    losses, looked_at = [0.0] * len(x), []
    for t in range(schedule.steps):
        reach = [0.0 if j in valid.fixed else radius * schedule.growth(t) for j in range(2)]
        slope, seen, moved = [0.0] * 6, [], []
        for i, (sample, label) in enumerate(zip(x, y, strict=True)):
            # nearest point of the ball, then of the valid range
            a = [sample[j] + min(max(p[i][j], -reach[j]), reach[j]) for j in range(2)]
            a = [min(max(v, valid.low), valid.high) for v in a]
            odds = softmax([w[2 * c] * a[0] + w[2 * c + 1] * a[1] + w[4 + c] for c in range(2)])
            losses[i] -= math.log(odds[label])
            residual = [odds[c] - (c == label) for c in range(2)]
            for c in range(2):
                for j in range(2):
                    slope[2 * c + j] += residual[c] * a[j] / len(x)
                slope[4 + c] += residual[c] / len(x)
            climb = [sum(residual[c] * w[2 * c + j] for c in range(2)) for j in range(2)]
            step = [schedule.climb * reach[j] * ((climb[j] > 0) - (climb[j] < 0)) for j in range(2)]
            moved.append([min(max(a[j] + step[j], valid.low), valid.high) - sample[j] for j in range(2)])
            seen.append(a)
        norm = math.sqrt(sum(g * g for g in slope))
        factor = min(1, training.clip / norm) if training.clip else 1
        velocity = [training.momentum * v + factor * g for v, g in zip(velocity, slope, strict=True)]
        w = [v - schedule.rate(t) * m for v, m in zip(w, velocity, strict=True)]
        p = moved
        looked_at.append(seen)
    return w, p, losses, looked_at


@pytest.mark.parametrize("fixed", [(), (1,)])
def test_a_round_equals_its_steps_written_out(fixed: tuple[int, ...]) -> None:
    """Momentum, warm-up, clipping, a growing radius, the climb, its projections: twelve steps in plain numbers."""
    training = Training(rate=0.9, momentum=0.8, ramp=0.6, warm_up=0.4, clip=0.3)
    schedule, valid = Schedule(training, 1, 12, 5), Range(0.0, 1.0, fixed)
    x = [[0.1, 0.98], [0.4, 0.5], [0.01, 0.03], [0.7, 0.2], [0.55, 0.6]]
    y, start = [0, 1, 1, 0, 1], [0.5, -1.0, -0.3, 0.4, 0.1, 0.0]
    w, p, losses, looked_at = written_out(start, x, y, schedule, valid, 0.2)
    sets = Sets.fresh(numbers(x), torch.tensor([y]))
    sets = Sets(sets.x[0][None], sets.y, sets.p[0][None])
    found = local_round(linear(), numbers(start), sets, Ball(0.2, valid), schedule, 0, generator(1))
    torch.testing.assert_close(found.w, numbers(w))
    torch.testing.assert_close(found.p, numbers(p))
    torch.testing.assert_close(found.losses, numbers(losses))
    assert found.visits.tolist() == [12] * 5
    far = (numbers(*looked_at) - numbers(*x)).abs()
    assert far.max() == pytest.approx(0.2)  # or the ball would not have been tried
    assert numbers(*looked_at).min() == 0  # nor the range


def three(rng_key: int = 5, n: int = 12, features: int = 4) -> tuple[Tensor, Sets]:
    """Three networks, each with samples of its own; some features lie at the end of the valid range."""
    rng, networks = generator(rng_key), linear(features, (6,))
    w = networks.model.own() + 0.3 * torch.randn(3, networks.model.size, generator=rng, dtype=ALONE)
    x = (1.4 * torch.rand(3, n, features, generator=rng, dtype=ALONE) - 0.2).clamp(0, 1)
    return w, Sets.fresh(x, torch.randint(2, (3, n), generator=rng))


SCHEDULE = Schedule(Training(rate=0.5, clip=0.5), 2, 9, 5)


@pytest.mark.parametrize("bytes_", [1, 10**9])
def test_a_network_learns_the_same_alone_and_beside_others(bytes_: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked, "GROUP_BYTES", bytes_)
    w, sets = three()
    together = local_round(linear(4, (6,)), w, sets, BALL, SCHEDULE, 1, generator(1))
    for k in range(3):
        one = slice(k, k + 1)
        alone = local_round(linear(4, (6,)), w[one], sets.network(one), BALL, SCHEDULE, 1, generator(1))
        torch.testing.assert_close(together.w[one], alone.w, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(together.p[one], alone.p, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(together.losses[one], alone.losses, rtol=1e-10, atol=1e-12)
        assert torch.equal(together.visits, alone.visits)
    assert not torch.allclose(together.w[0], together.w[1])


def test_perturbations_are_carried_from_round_to_round() -> None:
    w, sets = three()
    first = local_round(linear(4, (6,)), w, sets, BALL, SCHEDULE, 0, generator(1))
    carried = Sets(sets.x, sets.y, first.p)
    fresh_, later = (local_round(linear(4, (6,)), w, s, BALL, SCHEDULE, 1, generator(2)) for s in (sets, carried))
    assert bool((later.losses.sum(dim=1) > fresh_.losses.sum(dim=1)).all())


def test_what_came_in_is_left_alone() -> None:
    w, sets = three()
    before = [part.clone() for part in (w, sets.x, sets.y, sets.p)]
    local_round(linear(4, (6,)), w, sets, BALL, SCHEDULE, 0, generator(1))
    for part, was in zip((w, sets.x, sets.y, sets.p), before, strict=True):
        assert torch.equal(part, was)


def test_same_generator_same_bits_and_another_other_batches() -> None:
    w, sets = three()
    one, two, other = (local_round(linear(4, (6,)), w, sets, BALL, SCHEDULE, 0, generator(key)) for key in (1, 1, 2))
    for name in ("w", "p", "losses", "visits"):
        assert torch.equal(getattr(one, name), getattr(two, name))
    assert not torch.equal(one.w, other.w)


def test_a_step_is_one_pass_each_way() -> None:
    tally, (w, sets) = Tally(), three()
    networks = Stacked(FlatModel(counted(fresh(lambda: mlp(4, (6,), 2), generator(3)).double(), tally)))
    steps = len(SCHEDULE.span(0))
    local_round(networks, w, sets, BALL, SCHEDULE, 0, generator(1))
    assert tally == Tally(forward=3 * 5 * steps, backward=3 * 5 * steps)


@pytest.mark.parametrize(("count", "size", "steps"), [(12, 4, 7), (13, 4, 7), (5, 9, 3), (6, 6, 4), (7, 1, 20)])
def test_batches_are_permutations_cut_up(count: int, size: int, steps: int) -> None:
    batches = _batches(count, size, steps, generator(1), torch.device("cpu"))
    assert [len(rows) for rows in batches] == [min(size, count)] * steps
    each = count // min(size, count)
    for at in range(0, steps, each):
        rows = torch.cat(batches[at : at + each]).tolist()
        assert len(set(rows)) == len(rows)
        assert set(rows) <= set(range(count))
    again = _batches(count, size, steps, generator(1), torch.device("cpu"))
    assert all(torch.equal(a, b) for a, b in zip(batches, again, strict=True))


def test_epochs_come_in_different_orders() -> None:
    batches = _batches(12, 4, 6, generator(1), torch.device("cpu"))
    assert not torch.equal(torch.cat(batches[:3]), torch.cat(batches[3:]))


VALID = Range(0.0, 1.0, fixed=(1, 3))


def test_moves_are_cut_to_the_ball_and_the_range_and_fixed_features_stay() -> None:
    _, sets = three()
    moved = torch.randn(sets.x.shape, generator=generator(2), dtype=ALONE)
    found = Ball(0.1, VALID).around(sets.x, moved)
    free = [0, 2]
    expected = (sets.x + moved.clamp(-0.1, 0.1)).clamp(0, 1)
    torch.testing.assert_close(found[..., free], expected[..., free])
    assert torch.equal(found[..., [1, 3]], sets.x[..., [1, 3]])


def test_training_never_moves_a_fixed_feature() -> None:
    w, sets = three()
    done = local_round(linear(4, (6,)), w, sets, Ball(0.1, VALID), SCHEDULE, 0, generator(1))
    assert not done.p[..., [1, 3]].any()
    assert done.p[..., [0, 2]].any()


def test_attacks_stay_near_and_inside_and_raise_the_loss() -> None:
    w, sets = three()
    networks, ball = linear(4, (6,)), Ball(0.1, VALID)
    found = attacked(networks, w, sets.x, sets.y, ball, 5, generator(1))
    assert float((found - sets.x).abs().max()) <= 0.1 + 1e-12
    assert (float(found.min()), float(found.max())) == (0, 1)
    assert torch.equal(found[..., [1, 3]], sets.x[..., [1, 3]])
    before, after = networks.losses(w, sets.x, sets.y), networks.losses(w, found, sets.y)
    assert bool((after >= before - 1e-12).double().mean() > 0.95)
    assert bool((after.sum(dim=1) > before.sum(dim=1)).all())


def test_an_attack_on_a_linear_model_reaches_the_worst_corner() -> None:
    """2.5 radii of steps reach it from anywhere: x - radius sign(w_y - w_other)."""
    w, x = numbers([1.0, -2.0, 0.0, 0.0, 0.0, 0.0]), numbers([[0.5, 0.5], [0.3, 0.6]])
    found = attacked(linear(), w, x, torch.tensor([[0, 1]]), BALL, 3, generator(1))
    torch.testing.assert_close(found, numbers([[0.4, 0.6], [0.4, 0.5]]))


def test_no_steps_no_attack() -> None:
    w, sets = three()
    assert torch.equal(attacked(linear(4, (6,)), w, sets.x, sets.y, BALL, 0, generator(1)), sets.x)
