"""What workers propose: the right number of the right classes, and complements where workers' data are alike."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from f2cto.methods.coverage import herd
from f2cto.methods.f2cto import proposers
from f2cto.methods.f2cto.proposers import RULES, Group, Observed, Proposal, Space, candidates, spread
from f2cto.methods.quotas import Balance, dealt
from f2cto.methods.vectors import points
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from testing.shards import blobs

CLASSES = 3
EVERY = [
    Proposal(rule, space, share, balance) for rule, space, share, balance in product(RULES, Space, (1.0, 0.5), Balance)
]


def observed(count: int = 36, worker: int = 0, workers: int = 3, y: Tensor | None = None) -> Observed:
    """One worker's samples; all workers have the same ones."""
    model = FlatModel(fresh(lambda: mlp(6, (8,), CLASSES), generator(3)))
    x, labels = blobs(count, CLASSES, 5)
    return Observed(
        model=model,
        snapshots=(model.own(), 1.3 * model.own()),
        x=x,
        attacked=(x + 0.05).clamp(0, 1),
        y=labels if y is None else y,
        losses=torch.rand(count, generator=generator(8)),
        worker=worker,
        workers=workers,
    )


def group(seen: Observed, label: int) -> Group:
    return Group(seen, label, (seen.y == label).nonzero().flatten())


@pytest.mark.parametrize("space", Space)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("count", [1, 4, 9])
def test_a_rule_keeps_so_many_different_positions_of_those_it_may_choose_from(
    rule: str, space: Space, count: int
) -> None:
    some = torch.tensor([0, 1, 3, 4, 6, 7, 9, 10, 11])
    picks = RULES[rule](group(observed(), 1), space, some, count, generator(1)).tolist()
    assert len(picks) == len(set(picks)) == count
    assert set(picks) <= set(some.tolist())


@pytest.mark.parametrize("size", [1, 2, 7, 20, 36])
def test_every_candidate_is_so_many_different_rows_with_each_class_in_its_number(size: int) -> None:
    seen = observed(worker=2, y=(torch.arange(36) % 7).clamp(max=2))  # 6, 5 and 25 samples
    for proposal, rows in zip(EVERY, candidates(seen, size, EVERY, generator(1)), strict=True):
        assert len(set(rows.tolist())) == len(rows) == size
        found = torch.bincount(seen.y[rows], minlength=CLASSES)
        assert torch.equal(found, dealt(seen.y, size, seen.worker, proposal.balance))


def test_of_many_samples_some_are_chosen_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposers, "POOL", 6)
    seen = observed()  # 12 samples of each class
    for size in (3, 30):  # four for each that is kept, where that is more
        for rows in candidates(seen, size, EVERY, generator(1)):
            assert len(set(rows.tolist())) == size
    easiest = Proposal("easiest", balance=Balance.EVEN)
    looked_at = {int(i) for seed in range(9) for i in candidates(seen, 3, [easiest], generator(seed))[0]}
    assert len(looked_at) > 3  # by chance others are looked at, and so another one is the easiest


def test_classes_that_a_worker_does_not_have_are_passed_over() -> None:
    seen = observed(count=12, y=torch.tensor([0, 2] * 6))
    for rows in candidates(seen, 5, EVERY, generator(1)):
        assert len(set(rows.tolist())) == 5


@pytest.mark.parametrize("worker", range(4))
def test_every_prefix_is_as_balanced_as_can_be(worker: int) -> None:
    seen = observed(worker=worker, y=(torch.arange(36) % 7).clamp(max=2))
    for rows in candidates(seen, 20, EVERY, generator(1)):
        labels = seen.y[rows].tolist()
        all_of = Counter(labels)
        for length in range(1, 21):
            so_far = Counter(labels[:length])
            unfinished = [so_far[c] for c in all_of if so_far[c] < all_of[c]]
            assert max(so_far.values()) - min(unfinished, default=max(so_far.values())) <= 1


@pytest.mark.parametrize("rule", RULES)
def test_the_samples_with_the_highest_losses_are_set_aside(rule: str) -> None:
    seen = observed()
    (rows,) = candidates(seen, 9, [Proposal(rule, share=0.4)], generator(1))
    for label in range(CLASSES):
        own = group(seen, label)
        worst_allowed = own.losses.sort().values[math.ceil(0.4 * len(own.rows)) - 1]
        assert float(seen.losses[rows[seen.y[rows] == label]].max()) <= float(worst_allowed)


@pytest.mark.parametrize("rule", RULES)
def test_what_is_set_aside_comes_back_where_places_would_stay_empty(rule: str) -> None:
    seen = observed()
    for size in (9, 30, 36):
        (rows,) = candidates(seen, size, [Proposal(rule, share=0.05)], generator(1))
        assert len(set(rows.tolist())) == size
    assert group(seen, 0).easiest(0.05, 10).tolist() == sorted(group(seen, 0).losses.argsort()[:10].tolist())


def test_easiest_takes_the_lowest_losses_best_first() -> None:
    seen = observed()
    (rows,) = candidates(seen, 9, [Proposal("easiest")], generator(1))
    for label in range(CLASSES):
        mine = seen.losses[rows[seen.y[rows] == label]]
        assert torch.equal(mine, group(seen, label).losses.sort().values[:3])


WHOLE = torch.arange(12)


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("label", range(CLASSES))
def test_workers_with_the_same_data_share_out_one_herding_order(workers: int, label: int) -> None:
    own = [group(observed(worker=i, workers=workers), label) for i in range(workers)]
    count = len(WHOLE) // workers
    picks = [spread(g, Space.INPUTS, WHOLE, count, generator(i)).tolist() for i, g in enumerate(own)]
    together = [k for one in picks for k in one]
    assert len(set(together)) == len(together)
    order = herd(points(own[0].seen.x[own[0].rows]), workers * count).tolist()
    assert sorted(together) == sorted(order)
    turns = [order.index(one[0]) for one in picks]
    assert sorted(turns) == list(range(workers))
    assert all(one == order[turn::workers] for one, turn in zip(picks, turns, strict=True))


def test_nobody_has_the_first_turn_in_every_class() -> None:
    seen = observed(worker=0, workers=3)
    first = [
        int(spread(g, Space.INPUTS, WHOLE, 4, generator(1))[0]) == int(herd(points(seen.x[g.rows]), 1))
        for g in (group(seen, label) for label in range(CLASSES))
    ]
    assert first.count(True) == 1


def test_where_places_are_fewer_than_samples_allow_turns_are_shared_evenly() -> None:
    """Seven workers, four places and twelve samples: three turns."""
    picks = [
        tuple(spread(group(observed(worker=i, workers=7), 1), Space.INPUTS, WHOLE, 4, generator(1)).tolist())
        for i in range(7)
    ]
    assert sorted(Counter(picks).values()) == [2, 2, 3]


def test_random_candidates_differ_and_are_the_same_for_the_same_generator() -> None:
    both = [Proposal("random"), Proposal("random", draw=1)]
    one, other = candidates(observed(), 9, both, generator(1))
    assert not torch.equal(one.sort().values, other.sort().values)
    assert torch.equal(one, candidates(observed(), 9, both, generator(1))[0])


def test_each_space_shows_another_side() -> None:
    proposals = [Proposal("medoids", space) for space in Space]
    found = {tuple(rows.tolist()) for rows in candidates(observed(), 12, proposals, generator(1))}
    assert len(found) == len(Space)


def test_gradients_are_those_of_attacked_samples_at_all_snapshots() -> None:
    seen = observed()
    own = group(seen, 1)
    found, leaf = own.vectors(Space.GRADIENTS).products(own.vectors(Space.GRADIENTS)), torch.zeros(len(own.rows))
    expected = torch.zeros(len(leaf), len(leaf), dtype=torch.float64)
    for w in seen.snapshots:
        at = w.double().requires_grad_()
        losses = seen.model.losses(at, seen.attacked[own.rows].double(), seen.y[own.rows])
        g = torch.stack([torch.autograd.grad(loss, at, retain_graph=True)[0] for loss in losses])
        expected += g @ g.T / g.square().sum(dim=1).mean()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_names_tell_candidates_apart() -> None:
    said = [p for p in EVERY if p.rule not in {"easiest", "random"}]
    assert len({p.name for p in said}) == len(said)
    assert Proposal("random").name != replace(Proposal("random"), draw=1).name
