from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
import torch
from torch import Tensor

from f2cto.federation.in_process import InProcess
from f2cto.message import Message
from f2cto.methods import fedcs
from f2cto.methods.base import Given, Shard
from f2cto.methods.fedcs import FedcsSettings, class_means, distance_contrast, median_centres
from f2cto.methods.lifted import Pretraining
from f2cto.methods.running import run
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from testing.shards import federation

UNTRAINED = Pretraining(rounds=0)


def linear_shard(x: Tensor, y: list[int], size: int = 2) -> Shard:
    """A worker whose model has no hidden layer: features are the inputs themselves."""
    model = FlatModel(fresh(lambda: mlp(x.shape[1], (), 3), generator(0)))
    return Shard(x, torch.tensor(y), size, model, 0, 0)


def test_means_by_hand() -> None:
    x = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.2, 0.4], [0.5, 0.5], [0.7, 0.1]])
    shard = linear_shard(x, [0, 0, 1, 0, 1])
    sent = class_means(2, shard, shard.model.own())
    assert torch.allclose(sent.vectors["centres"].view(3, 2), torch.tensor([[0.5, 0.5], [0.45, 0.25], [0.0, 0.0]]))
    assert sent.vectors["known"].tolist() == [1, 1, 0]
    # With a minimum of 3, class 1 is too small.
    sent = class_means(3, shard, shard.model.own())
    assert torch.allclose(sent.vectors["centres"].view(3, 2), torch.tensor([[0.5, 0.5], [0.0, 0.0], [0.0, 0.0]]))
    assert sent.vectors["known"].tolist() == [1, 0, 0]


def summary(centres: list[list[float]], known: list[int]) -> Message:
    return Message({"centres": torch.tensor(centres).float().flatten(), "known": torch.tensor(known).float()})


def test_medians_by_hand() -> None:
    pooled = median_centres(
        [
            summary([[1, 9], [4, 4], [0, 0]], [1, 1, 0]),
            summary([[2, 0], [0, 0], [0, 0]], [1, 0, 0]),  # its zeros for class 1 are not a centre
            summary([[6, 3], [5, 8], [0, 0]], [1, 1, 0]),
        ]
    )
    # Each coordinate by itself: of 1, 2, 6 and of 9, 0, 3; of two workers, half way.
    assert pooled.vectors["centres"].view(3, 2).tolist() == [[2, 3], [4.5, 6], [0, 0]]
    assert pooled.vectors["known"].tolist() == [1, 1, 0]


def test_contrast_by_hand() -> None:
    centres = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 3.0], [0.1, 0.1]])
    known = torch.tensor([True, True, True, False])
    features = torch.tensor([[0.0, 0.0], [4.0, 3.0], [3.0, 0.0]])
    contrast = distance_contrast(features, torch.tensor([0, 1, 0]), centres, known)
    # 0 from its own, 3 from the next; 3 from its own, 4 from the next; 3 from its own, 1 from the next.
    assert contrast.tolist() == pytest.approx([3.0, 1.0, -2.0])


def test_where_no_other_class_is_known_the_distance_to_the_own_one_counts() -> None:
    centres, known = torch.tensor([[0.0], [1.0]]), torch.tensor([True, False])
    contrast = distance_contrast(torch.tensor([[0.5], [2.0]]), torch.tensor([0, 0]), centres, known)
    assert contrast.tolist() == pytest.approx([0.5, 2.0])
    assert inf not in contrast.tolist()


def test_two_stages_by_hand() -> None:
    """A line with centres at 0.1 and 0.9: |contrast| is 2 |x - 0.5| between them."""
    x = torch.tensor([0.02, 0.06, 0.10, 0.14, 0.18, 0.82, 0.86, 0.90, 0.94, 0.98])[:, None]
    y = [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]
    shard = linear_shard(x, y, size=3)
    shard = replace(shard, x=x.index_fill(0, torch.tensor([4]), 0.3))  # the mean of class 0 moves to 0.124
    given = Given(shard.model.own())

    def kept(last: float) -> list[int]:
        selector = fedcs.make(FedcsSettings(last=last, pretraining=UNTRAINED), given)
        return run(selector, [shard], given.w).coresets[0].indices.tolist()

    # Centres 0.124 and 0.9; x = 0.3 has |0.6 - 0.176| = 0.424, then 0.14: 0.76 - 0.016, 0.10: 0.8 - 0.024, 0.06, 0.02;
    # 0.82: 0.696 - 0.08 = 0.616, 0.86: 0.736 - 0.04 = 0.696, then 0.776 for the rest.
    # One stage of 3 places: two of class 0, one of class 1.
    assert kept(0.0) == [4, 5, 3]
    # Two stages: 3 / (1 - 0.25) = 4 places, two of each class; the largest of 0.424, 0.744, 0.616, 0.696 goes.
    assert kept(0.25) == [4, 5, 6]


def test_a_sample_deep_in_another_class_is_as_far_off_as_one_deep_in_its_own() -> None:
    x = torch.tensor([0.0, 0.1, 0.2, 0.55, 0.85, 0.8, 0.9, 1.0])[:, None]
    shard = linear_shard(x, [0, 0, 0, 0, 0, 1, 1, 1], size=2)
    given = Given(shard.model.own())
    coreset = run(fedcs.make(FedcsSettings(last=0.0, pretraining=UNTRAINED), given), [shard], given.w).coresets[0]
    # Centres 0.34 and 0.9: 0.55 has contrast 0.35 - 0.21 = 0.14, 0.85 has 0.05 - 0.51 = -0.46; 0.8 has 0.46 - 0.1.
    assert coreset.indices.tolist() == [3, 5]


def test_a_class_without_a_centre_is_measured_from_the_workers_own_mean() -> None:
    """Two workers with two samples of every class: with a minimum of 3 nothing is sent, and both choose as if alone."""
    shards = [replace(shard, size=3) for shard in federation(workers=2, count=6)]
    given = Given(shards[0].model.own())
    selector = fedcs.make(FedcsSettings(minimum=3, pretraining=UNTRAINED), given)
    together = run(selector, shards, given.w).coresets
    alone = [run(selector, [shard], given.w).coresets[0] for shard in shards]
    sharing = run(fedcs.make(FedcsSettings(minimum=2, pretraining=UNTRAINED), given), shards, given.w).coresets
    for a, b in zip(together, alone, strict=True):
        assert torch.equal(a.indices, b.indices)
    assert any(not torch.equal(a.indices, b.indices) for a, b in zip(together, sharing, strict=True))


def crossing(shard: Shard, minimum: int) -> list[Tensor]:
    """All vectors of the exchange of centres."""
    selector = fedcs.make(FedcsSettings(minimum=minimum, pretraining=UNTRAINED), Given(shard.model.own()))
    engine, seen = InProcess(selector.program(), [shard]), list[Message]()

    def ask(phase: str, message: Message) -> list[Message]:
        replies = engine.ask(phase, message)
        seen.extend([message, *replies])
        return replies

    selector.lead(ask, shard.model.own(), lambda _: None)
    return [vector for message in seen for name, vector in message.vectors.items() if name == "centres"]


def test_no_sample_crosses_even_where_features_are_inputs() -> None:
    x = torch.rand(9, 5, generator=generator(3))
    shard = linear_shard(x, [0, 0, 0, 0, 1, 1, 1, 1, 2])  # class 2 has one sample: its mean is that sample
    vectors = crossing(shard, 2)
    assert len(vectors) == 2
    for vector in vectors:
        assert float(torch.cdist(vector.view(3, 5), x).min()) > 1e-3
    leaking, _ = fedcs._means(x, shard, shard.model.own())
    assert float(torch.cdist(leaking, x).min()) < 1e-6  # what would have been sent


@pytest.mark.parametrize(("wrong", "said"), [({"minimum": 1}, "at least 2"), ({"last": 1.0}, "share")])
def test_settings_that_cannot_work_are_refused(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        FedcsSettings(**wrong)  # type: ignore[arg-type]
