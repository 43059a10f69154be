from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from f2cto.message import Message
from f2cto.methods import acs, easy, gcfl
from f2cto.methods.acs import AcsSettings, Variant
from f2cto.methods.attacked import attacked
from f2cto.methods.base import Coreset, Given, Selector, Shard
from f2cto.methods.easy import EasySettings
from f2cto.methods.gcfl import GcflSettings, class_gradients, mean_gradients
from f2cto.methods.last_layer import last_layer
from f2cto.methods.lifted import Pretraining
from f2cto.methods.omp import Pick
from f2cto.methods.pooled import POOLED
from f2cto.methods.running import run
from f2cto.models import FlatModel
from f2cto.randomness import generator
from f2cto.training import Training
from testing.all_pairs import cluster_sizes, facility_location, similarities
from testing.shards import federation

UNTRAINED = Pretraining(rounds=0)
CLASSES, WIDTH = 3, 8  # of the network in `federation`


def doubles(count: int = 24, size: int = 6, workers: int = 3) -> list[Shard]:
    return [replace(shard, x=shard.x.double()) for shard in federation(workers=workers, count=count, size=size)]


def parameters(shards: list[Shard]) -> Tensor:
    return shards[0].model.own().to(shards[0].x)


def by_autograd(model: FlatModel, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The gradient of every sample's loss in the last layer: weights and, in a last column, biases."""
    rows = []
    for k in range(len(y)):
        v = w.clone().requires_grad_()
        (slope,) = torch.autograd.grad(model.losses(v, x[k : k + 1], y[k : k + 1]).sum(), v)
        last = slope[-(CLASSES * WIDTH + CLASSES) :]
        rows.append(torch.cat([last[:-CLASSES].view(CLASSES, WIDTH), last[-CLASSES:, None]], dim=1))
    return torch.stack(rows)


def test_last_layer_gradients_are_autograds() -> None:
    shard = doubles()[0]
    w = parameters([shard])
    every, slow = last_layer(shard.model, w, shard.x, shard.y), by_autograd(shard.model, w, shard.x, shard.y)
    rows, others = torch.tensor([3, 0, 17, 8]), torch.tensor([1, 3])
    gradients, weights = every.take(rows), torch.tensor([0.5, 0.1, 0.0, 2.0]).double()
    flat = slow[rows].flatten(1)
    direction = torch.randn(CLASSES, WIDTH + 1, generator=generator(1), dtype=torch.float64)
    assert len(gradients) == 4
    assert torch.allclose(gradients.products(every.take(others)), flat @ slow[others].flatten(1).T)
    assert torch.allclose(gradients.squares(), flat.square().sum(dim=1))
    assert torch.allclose(gradients.towards(direction), flat @ direction.flatten())
    assert torch.allclose(gradients.total(weights).flatten(), weights @ flat)
    assert torch.allclose(gradients.along(weights), flat @ (weights @ flat))
    own, mine = slow[rows, shard.y[rows]], every.own_row(shard.y).take(rows)
    assert torch.allclose(mine.products(mine), own @ own.T)
    bias = every.bias_only().take(rows)
    assert torch.allclose(bias.products(bias), slow[rows, :, -1] @ slow[rows, :, -1].T)


def rare(shard: Shard, count: int) -> Shard:
    """Only `count` samples of class 2 left; the others become class 1."""
    y = shard.y.clone()
    y[(y == 2).nonzero().flatten()[count:]] = 1
    return replace(shard, y=y)


def chosen(selector: Selector, shards: list[Shard]) -> list[Coreset]:
    return run(selector, shards, parameters(shards)).coresets


def of_class(shard: Shard, coreset: Coreset, label: int) -> tuple[Tensor, Tensor]:
    mine = shard.y[coreset.indices] == label
    return coreset.indices[mine], coreset.weights[mine]


def attacked_gradients(shard: Shard, given: Given, steps: int) -> Tensor:
    rng = generator(shard.seed, shard.worker, 3)
    return by_autograd(shard.model, given.w, attacked(shard, given.w, given, steps, rng), shard.y)


def test_attacks_are_strong_legal_and_the_same_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = doubles()[0]
    given = Given(parameters([shard]), radius=0.2)
    found = attacked(shard, given.w, given, 5, generator(1))
    losses = [float(shard.model.losses(given.w, x, shard.y).mean()) for x in (shard.x, found)]
    assert losses[1] > losses[0] + 0.02
    assert float((found - shard.x).abs().max()) <= 0.2 + 1e-9
    assert float(found.min()) >= 0
    assert float(found.max()) <= 1
    assert torch.equal(attacked(shard, given.w, given, 0, generator(1)), shard.x)
    monkeypatch.setattr("f2cto.methods.matching.PART_BYTES", 2000)  # a few samples
    assert torch.equal(attacked(shard, given.w, given, 5, generator(1)), found)


def test_acs_takes_first_what_is_best_aligned_under_attack() -> None:
    """One place per class: the largest inner product with the sum of the class's gradients, in the class's row."""
    shards = doubles(size=3)
    given = Given(parameters(shards), radius=0.3)
    selector = acs.make(AcsSettings(Variant.GRADMATCH, 4, pretraining=UNTRAINED), given)
    clean = acs.make(AcsSettings(Variant.GRADMATCH, 0, pretraining=UNTRAINED), given)
    differs = False
    for shard, coreset, other in zip(shards, chosen(selector, shards), chosen(clean, shards), strict=True):
        slow = attacked_gradients(shard, given, 4)
        for label in range(CLASSES):
            rows = (shard.y == label).nonzero().flatten()
            own = slow[rows, label]
            best = int((own @ own.sum(dim=0)).argmax())
            assert of_class(shard, coreset, label)[0].tolist() == [int(rows[best])]
        differs |= set(coreset.indices.tolist()) != set(other.indices.tolist())
    assert differs  # the attack matters


def test_acs_weights_rebuild_the_gradient_of_the_class() -> None:
    """All weights together sum to one, so that the classes' weighted gradients are in the ratio of their sums."""
    shards = [rare(shard, 3) for shard in doubles(size=24)]
    given = Given(parameters(shards))
    coresets = chosen(acs.make(AcsSettings(Variant.GRADMATCH, 2, pretraining=UNTRAINED), given), shards)
    for shard, coreset in zip(shards, coresets, strict=True):
        slow, ratios = attacked_gradients(shard, given, 2), []
        for label in range(CLASSES):
            indices, weights = of_class(shard, coreset, label)
            rebuilt, whole = weights @ slow[indices, label], slow[shard.y == label, label].sum(dim=0)
            ratio = float(rebuilt @ whole / (whole @ whole))
            assert torch.allclose(rebuilt, ratio * whole, atol=1e-4 * float(whole.norm()))
            ratios.append(ratio)
        assert max(ratios) == pytest.approx(min(ratios), rel=1e-3)


def test_craig_covers_the_gradients_of_the_logits() -> None:
    shards = doubles(size=6)
    given = Given(parameters(shards))
    settings = AcsSettings(Variant.CRAIG, 2, pretraining=UNTRAINED)
    for shard, coreset in zip(shards, chosen(acs.make(settings, given), shards), strict=True):
        slow = attacked_gradients(shard, given, 2)[:, :, -1]  # the biases'
        for label in range(CLASSES):
            rows = (shard.y == label).nonzero().flatten()
            similarity = similarities((slow[rows][:, None] - slow[rows][None]).square().sum(dim=2))
            indices, weights = of_class(shard, coreset, label)
            best = facility_location(similarity, 2)
            assert sorted(indices.tolist()) == sorted(rows[best].tolist())
            assert float(weights.sum()) == pytest.approx(len(rows) / len(shard.y))
            assert weights.tolist() == pytest.approx((cluster_sizes(similarity, best) / len(shard.y)).tolist())


def test_easy_keeps_the_lowest_robust_losses_of_each_class() -> None:
    shards = doubles(size=6)
    given = Given(parameters(shards), radius=0.2)
    coresets = chosen(easy.make(EasySettings(attack_steps=3, pretraining=UNTRAINED), given), shards)
    for shard, coreset in zip(shards, coresets, strict=True):
        x = attacked(shard, given.w, given, 3, generator(shard.seed, shard.worker, 3))
        losses = shard.model.losses(given.w, x, shard.y).tolist()
        for label in range(CLASSES):
            ranked = sorted((loss, k) for k, loss in enumerate(losses) if shard.y[k] == label)
            assert of_class(shard, coreset, label)[0].tolist() == [k for _, k in ranked[:2]]


def union(shards: list[Shard]) -> tuple[Tensor, Tensor]:
    return torch.cat([shard.x for shard in shards]), torch.cat([shard.y for shard in shards])


def test_the_pooled_target_is_the_gradient_on_the_union() -> None:
    """The workers have different numbers of each class; autograd of the mean loss of the class over all of them."""
    shards = [doubles(count=9)[0], doubles(count=30)[1], doubles(count=17)[2]]
    w = parameters(shards)
    pooled = mean_gradients([class_gradients(2, shard, w) for shard in shards])
    x, y = union(shards)
    slow = by_autograd(shards[0].model, w, x, y)
    wanted = torch.stack([slow[y == label, label].mean(dim=0) for label in range(CLASSES)])
    assert torch.allclose(pooled.vectors["gradients"].view(CLASSES, -1), wanted)
    assert pooled.vectors["counts"].tolist() == y.bincount().tolist()


def test_gradients_of_few_samples_are_not_sent() -> None:
    shard = doubles()[0]
    w = parameters([shard])
    sent, withheld = class_gradients(3, rare(shard, 3), w), class_gradients(3, rare(shard, 2), w)
    assert sent.vectors["counts"].tolist()[2] == 3
    assert float(sent.vectors["gradients"].view(CLASSES, -1)[2].abs().max()) > 0
    assert withheld.vectors["counts"].tolist()[2] == 0
    assert float(withheld.vectors["gradients"].view(CLASSES, -1)[2].abs().max()) == 0
    with pytest.raises(ValueError, match="at least 2"):
        GcflSettings(minimum=1)


def test_gcfl_matches_the_federation_and_not_the_worker() -> None:
    """One place per class, nearest rule: the sample whose gradient is nearest to the mean over the union."""
    shards = doubles(size=3)
    given = Given(parameters(shards))
    x, y = union(shards)
    slow = by_autograd(shards[0].model, given.w, x, y)
    coresets = chosen(gcfl.make(GcflSettings(pretraining=UNTRAINED), given), shards)
    alone = [chosen(gcfl.make(GcflSettings(pretraining=UNTRAINED), given), [shard])[0] for shard in shards]
    for shard, coreset in zip(shards, coresets, strict=True):
        mine = by_autograd(shard.model, given.w, shard.x, shard.y)
        for label in range(CLASSES):
            rows = (shard.y == label).nonzero().flatten()
            distances = (mine[rows, label] - slow[y == label, label].mean(dim=0)).norm(dim=1)
            assert of_class(shard, coreset, label)[0].tolist() == [int(rows[distances.argmin()])]
    assert any(set(a.indices.tolist()) != set(b.indices.tolist()) for a, b in zip(coresets, alone, strict=True))


def test_a_worker_matches_its_own_mean_where_nobody_sent_any() -> None:
    shards = [rare(shard, 2) for shard in doubles(size=3)]
    given = Given(parameters(shards))
    selector = gcfl.make(GcflSettings(pick=Pick.ALIGNED, ridge=0.0, pretraining=UNTRAINED), given)
    for shard, coreset in zip(shards, chosen(selector, shards), strict=True):
        mine = by_autograd(shard.model, given.w, shard.x, shard.y)
        rows = (shard.y == 2).nonzero().flatten()
        products = mine[rows, 2] @ mine[rows, 2].mean(dim=0)
        assert of_class(shard, coreset, 2)[0].tolist() == [int(rows[products.argmax()])]


def test_summaries_cross_once_each_way() -> None:
    shards = doubles()
    given = Given(parameters(shards))
    one_round = Pretraining(rounds=1, local=Training(steps=1))
    traffic = run(gcfl.make(GcflSettings(pretraining=one_round), given), shards, given.w).traffic
    summary, d = CLASSES * (WIDTH + 1) + CLASSES, shards[0].model.size
    assert traffic.up.floats == len(shards) * (d + summary)
    assert traffic.down.floats == len(shards) * (2 * d + summary)  # w to train from, and the final one


def test_pooled_phases_are_known() -> None:
    shard = doubles()[0]
    selector = gcfl.make(GcflSettings(), Given(parameters([shard])))
    program = selector.program()
    told = Message({"counts": torch.zeros(3)})
    state, reply = program.run(POOLED, shard, program.start(shard), told)
    assert state.pooled is told
    assert reply == Message()
    with pytest.raises(ValueError, match="nonsense"):
        program.run("nonsense", shard, state, Message({"w": parameters([shard])}))
