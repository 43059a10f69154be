from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from f2cto.methods import matching
from f2cto.methods.matching import EMPTY, gradient_gram, local_quotas, refill, union_quotas
from f2cto.randomness import generator
from testing.shards import federation

MASS = 0.1


def gradients(seed: int, count: int = 8) -> Tensor:
    return torch.randn(count, 5, generator=generator(seed), dtype=torch.float64)


def held(g: Tensor, place: int) -> Tensor:
    return g.mean(dim=0) if place == EMPTY else g[place]


def missing(g: Tensor, target: Tensor, places: Tensor) -> Tensor:
    """What is left of the target, from the definition."""
    return target - MASS * sum((held(g, s) for s in places.tolist()), start=torch.zeros_like(target))


@given(st.integers(0, 10**6), st.permutations(range(8)), st.booleans())
@settings(max_examples=50, deadline=None)
def test_a_place_goes_to_the_sample_that_leaves_least(seed: int, order: list[int], filled: bool) -> None:  # noqa: FBT001
    """Against trying all candidates and measuring what each leaves."""
    g = gradients(seed)
    target = MASS * torch.randn(5, generator=generator(seed, 1), dtype=torch.float64)
    places = torch.tensor([order[0] if filled else EMPTY, order[1], EMPTY])
    after = refill(g @ g.T, g @ missing(g, target, places), places, [0], MASS)
    left = {
        k: float(missing(g, target, torch.tensor([k, *places[1:].tolist()])).norm()) for k in order if k != order[1]
    }
    assert int(after[0]) == min(left, key=lambda k: left[k])
    assert after[1:].tolist() == places[1:].tolist()


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_places_filled_together_know_of_each_other(seed: int) -> None:
    """One call for three places is three calls for one, each told what is missing by then."""
    g = gradients(seed)
    target = MASS * torch.randn(5, generator=generator(seed, 1), dtype=torch.float64)
    places = one_by_one = torch.full((3,), EMPTY)
    for s in range(3):
        one_by_one = refill(g @ g.T, g @ missing(g, target, one_by_one), one_by_one, [s], MASS)
    assert refill(g @ g.T, g @ missing(g, target, places), places, range(3), MASS).tolist() == one_by_one.tolist()


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_refining_never_leaves_more(seed: int) -> None:
    g, places = gradients(seed), torch.tensor([0, 1, 2, 3])
    target = 4 * MASS * g.mean(dim=0)
    for _ in range(3):
        after = refill(g @ g.T, g @ missing(g, target, places), places, range(4), MASS)
        assert float(missing(g, target, after).norm()) <= float(missing(g, target, places).norm()) + 1e-12
        assert len(set(after.tolist())) == 4
        places = after


@pytest.mark.parametrize("block", [10**9, 600])  # bytes: all samples at once, or two
def test_the_gram_matrix_is_that_of_single_gradients(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "BLOCK_BYTES", block)
    shard = federation()[0]
    w, model = shard.model.own(), shard.model
    leaf = w.clone().requires_grad_()
    losses = model.losses(leaf, shard.x[:7], shard.y[:7])
    g = torch.stack([torch.autograd.grad(loss, leaf, retain_graph=True)[0] for loss in losses])
    torch.testing.assert_close(gradient_gram(model, w, shard.x[:7], shard.y[:7]), g @ g.T)


def test_no_candidates_have_an_empty_gram_matrix() -> None:
    shard = federation()[0]
    assert gradient_gram(shard.model, shard.model.own(), shard.x[:0], shard.y[:0]).shape == (0, 0)


@given(st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=5), st.data())
@settings(max_examples=60, deadline=None)
def test_quotas_are_within_what_there_is(counts: list[list[int]], data: st.DataObject) -> None:
    table = torch.tensor([[*row[:2], row[2] + 1] for row in counts])
    sizes = torch.tensor([data.draw(st.integers(1, int(row.sum()))) for row in table])
    for quotas in (union_quotas(table, sizes), local_quotas(table, sizes)):
        assert quotas.sum(dim=1).tolist() == sizes.tolist()
        assert bool((quotas <= table).all())


def test_classes_are_even_in_the_union() -> None:
    """The second worker has class 0 only; the first makes up for it, where each for itself would not."""
    counts, sizes = torch.tensor([[9, 9, 0], [9, 0, 0], [9, 9, 9]]), torch.tensor([3, 3, 3])
    assert union_quotas(counts, sizes).sum(dim=0).tolist() == [3, 3, 3]
    assert local_quotas(counts, sizes).sum(dim=0).max() > 3


def test_even_workers_get_even_places() -> None:
    counts, sizes = torch.full((4, 3), 9), torch.tensor([4, 4, 4, 4])
    places = union_quotas(counts, sizes)
    assert places.sum(dim=0).tolist() == [6, 5, 5]
    assert int(places.max() - places.min()) == 1
