"""Where things are computed: on the device of the data, with the threads and numbers that pay."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import cosine_similarity
from torch.overrides import TorchFunctionMode

from f2cto import hardware
from f2cto.attacks import Pgd
from f2cto.federation.joint import in_this_process
from f2cto.hardware import Precision
from f2cto.methods.base import Shard
from f2cto.methods.f2cto_settings import F2ctoSettings, Perturbation, Weighting
from f2cto.methods.f2cto_stages import Team
from f2cto.methods.lockstep import F2cto
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from f2cto.resnet import resnet18
from f2cto.training import Training, train_robust
from f2cto.trilevel.coreset import RobustCoreset
from f2cto.trilevel.settings import Stopping
from testing.shards import federation

# Functions that make tensors out of nothing: without a device they are made on the processor, wherever the data are.
FACTORIES = {"zeros", "ones", "full", "arange", "empty", "rand", "randn", "randint", "randperm", "linspace", "eye"}
NUMBERS = {"tensor", "new_tensor", "as_tensor", "from_numpy"}  # take numbers of the host along
READS = {"__bool__", "__float__", "__int__", "item", "tolist", "nonzero"}  # the host waits for them


class Watch(TorchFunctionMode):
    """Notes what an accelerator would stumble over."""

    def __init__(self) -> None:
        super().__init__()
        self.homeless: list[str] = []
        self.copies: list[str] = []
        self.reads = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__
        if name in FACTORIES and (kwargs or {}).get("device") is None:
            self.homeless.append(name)
        if name in NUMBERS:
            self.copies.append(name)
        self.reads += name in READS
        return func(*args, **(kwargs or {}))


def watched(shards: list[Shard], settings: F2ctoSettings) -> list[Watch]:
    """What each iteration after the third does; schedules and caches have settled by then."""
    method = F2cto(settings, radius=99.0)
    engine = in_this_process(method.program(), shards)
    seen: list[Watch] = []

    def on_round(_: object) -> None:
        if seen:
            seen[-1].__exit__(None, None, None)  # type: ignore[no-untyped-call]
        seen.append(Watch())
        seen[-1].__enter__()  # type: ignore[no-untyped-call]

    try:
        method.lead_from(engine.ask, shards[0].model.own(), on_round, lambda _: None)  # Algorithm 1 alone
    finally:
        seen[-1].__exit__(None, None, None)  # type: ignore[no-untyped-call]
    return seen[3:-1]


@pytest.mark.parametrize("classwise", [False, True])
def test_the_loop_makes_every_tensor_where_the_data_are(classwise: bool) -> None:  # noqa: FBT001
    settings = F2ctoSettings(
        weighting=Weighting(classwise=classwise),
        perturbation=Perturbation(ramp=2),
        stopping=Stopping(iterations=9),
    )
    for iteration in watched(federation(workers=3, count=20, size=4), settings):
        assert iteration.homeless == []
        assert iteration.copies == []


def test_the_watch_would_see_a_tensor_without_a_device() -> None:
    with Watch() as watch:
        torch.zeros(3)
        torch.tensor([1.0])
        bool(torch.ones(1, device="cpu"))
    assert watch.homeless == ["zeros"]
    assert watch.copies == ["tensor"]
    assert watch.reads == 1


def test_the_host_waits_as_often_for_many_workers_as_for_few() -> None:
    settings = F2ctoSettings(perturbation=Perturbation(ramp=2), stopping=Stopping(iterations=6))
    few, many = (watched(federation(workers=n, count=20, size=4), settings)[0].reads for n in (2, 12))
    assert 0 < many <= few


def test_threads_by_the_size_of_a_pass() -> None:
    assert hardware.threads(2**20) == 1
    assert hardware.threads(2**24) == hardware.cores() >= 1


def test_an_unknown_device_is_refused() -> None:
    for name in ("nowhere", "cuda:99"):
        with pytest.raises(ValueError, match=f"no device `{name}`"):
            hardware.device(name)


def images(count: int) -> tuple[FlatModel, torch.Tensor, torch.Tensor]:
    model = FlatModel(fresh(lambda: resnet18(3, 4, width=4), generator(0)))
    return model, torch.rand(count, 3, 8, 8, generator=generator(1)), torch.arange(count) % 4


def test_bfloat16_serves_attacks_only() -> None:
    """Losses and parameter gradients stay those of float32; the attack found is nearly as strong."""
    model, x, y = images(16)
    shards = [Shard(x, y, 4, model, 0, 0)]
    found = {}
    for precision in (Precision.FULL, Precision.BFLOAT16):
        attack = Perturbation(0.03, 0.03, steps=5, ramp=0, precision=precision)
        method = F2cto(F2ctoSettings(perturbation=attack, stopping=Stopping(iterations=1)), radius=1e6)
        engine = in_this_process(method.program(), shards)
        solution = method.lead(engine.ask, model.own(), lambda _: None)
        (state,) = engine.states
        found[precision] = (solution, state.refined.q_star)  # type: ignore[union-attr]
    (full, q), (rough, rough_q) = found.values()
    assert not torch.equal(q, rough_q)
    assert (q.sign() == rough_q.sign()).double().mean() > 0.85
    clean = float(model.losses(model.own(), x, y).mean())
    gained = [float(model.losses(model.own(), x + attack, y).mean()) - clean for attack in (q, rough_q)]
    assert gained[1] > 0.9 * gained[0] > 0
    assert full.w.dtype == rough.w.dtype == torch.float32


def test_bfloat16_is_chosen_where_it_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network of matrices stays with float32, and so does a processor that emulates."""
    conv, x, y = images(8)
    flat = FlatModel(fresh(lambda: mlp(192, (8,), 4), generator(0)))
    for fast in (False, True):
        monkeypatch.setattr("f2cto.hardware.fast_bfloat16", lambda _, fast=fast: fast)
        for model in (conv, flat):
            stage = F2cto(F2ctoSettings(), radius=1e6).stages()(Team((Shard(x, y, 4, model, 0, 0),)), 0)
            chosen = fast and model is conv
            assert isinstance(stage.problem, RobustCoreset)
            assert (stage.problem.evaluate_roughly is not None) == chosen
            same = torch.equal(model.logits_to_attack(model.own(), x), model.logits(model.own(), x))
            assert same == (not chosen)


def test_training_attacks_in_bfloat16_and_learns_in_float32() -> None:
    """A step without an attack is the same to the bit; one with an attack is another, of nearly the same direction."""
    model, x, y = images(16)
    w = model.own()
    moved = {}
    for radius in (0.0, 0.03):
        for precision in (Precision.FULL, Precision.BFLOAT16):
            attack = Pgd(radius, steps=2, random_start=False)
            training = Training(steps=1, batch=16, ramp=0.0, precision=precision)
            moved[radius, precision] = train_robust(model, w, x, y, attack, training, generator(2)) - w
    assert torch.equal(moved[0.0, Precision.FULL], moved[0.0, Precision.BFLOAT16])
    full, rough = moved[0.03, Precision.FULL], moved[0.03, Precision.BFLOAT16]
    assert not torch.equal(full, rough)
    assert rough.dtype == torch.float32
    steps = (rough, moved[0.0, Precision.FULL])
    alike, unattacked = (float(cosine_similarity(full, step, dim=0)) for step in steps)
    assert alike > max(0.95, unattacked)
