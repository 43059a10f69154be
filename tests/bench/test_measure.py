from __future__ import annotations

import json
import os
import time
from importlib import import_module
from pathlib import Path

import pytest
import torch

import f2cto.bench
from f2cto.bench.hardware import attack_step
from f2cto.bench.hypergradient import METHODS
from f2cto.bench.iteration import ratios
from f2cto.bench.measure import interleaved, peak, random_shards
from f2cto.bench.paying import one
from f2cto.bench.scale import _exponent
from f2cto.cli import main
from f2cto.data.dataset import LabelledData
from f2cto.methods.base import Shard
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from f2cto.resnet import resnet18


def shards(count: int = 12) -> list[Shard]:
    return random_shards(FlatModel(fresh(lambda: mlp(6, (8,), 3), generator(0))), (6,), [count] * 2, 3)


def test_tasks_take_turns_and_the_first_turn_does_not_count() -> None:
    order: list[str] = []

    def slow() -> None:
        order.append("b")
        time.sleep(0.01)

    seconds = interleaved({"a": lambda: order.append("a"), "b": slow}, 3)
    assert order == ["a", "b"] * 4
    assert seconds["b"] >= 0.01 > seconds["a"]


def test_peak_memory_sees_a_large_array() -> None:
    before = peak()
    held = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    large = torch.ones((before - held + 64 * 2**20) // 4)  # other tests may have held more than is held now
    assert float(large[0]) == 1
    assert peak() - before > 32 * 2**20


def test_exponent_of_a_power() -> None:
    assert _exponent({m: 3e-4 * m**1.25 for m in (10, 100, 500)}) == pytest.approx(1.25)


def test_all_forms_of_an_iteration_run() -> None:
    found = ratios(shards(), steps=2, repeats=1)
    assert set(found) >= {"over_bare", "over_bare_unshared", "literal_over_fast"}
    assert all(value > 0 for value in found.values())


@pytest.mark.parametrize("method", METHODS)
def test_methods_beside_each_other_run(method: str) -> None:
    METHODS[method](shards(), 2)()


def test_the_command_writes_where_figures_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(f2cto.bench.BENCHMARKS, "memory", lambda repeats, _: {"repeats seen": repeats})
    assert main(["bench", "memory", "--repeats", "7", "--out", str(tmp_path)]) == 0
    written = json.loads((tmp_path / "memory.json").read_text())
    assert written["results"] == {"repeats seen": 7}
    assert {"command", "date", "versions", "threads"} <= set(written)


def test_scale_gives_the_worst_network_on_top_and_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("f2cto.bench.scale")
    monkeypatch.setattr(module, "WORKERS", (1, 200))
    monkeypatch.setattr(module, "TOTAL", 400)
    monkeypatch.setattr(module, "SAMPLES", (20, 40))
    monkeypatch.setattr(module, "NETWORKS", {"small": (6, (8,), 3), "wide": (6, (16,), 3)})
    assert main(["bench", "scale", "--repeats", "1", "--out", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "scale.json").read_text())["results"]
    for key in ("workers_200_over_1", "samples_exponent"):
        assert results[key] == max(found[key] for found in results["networks"].values())
    assert set(results["workers"]) == {"1", "200"}
    assert "<svg" in (tmp_path / "scale.svg").read_text()


def test_an_attack_step_is_an_input_gradient() -> None:
    (shard, _) = shards()
    w = shard.model.own()
    leaf = shard.x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(shard.model.losses(w, leaf, shard.y).sum(), leaf)
    assert torch.equal(attack_step(shard.model.evaluate, w, shard.x, shard.y), expected)


def test_what_selection_pays_is_held_against_training_as_briefly_on_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORKERS": 2, "SAMPLES": 20, "SHARE": 0.1, "EPOCHS": 1, "BATCH": 10}.items():
        monkeypatch.setattr(f"f2cto.bench.paying.{name}", value)
    x = torch.rand(60, 1, 28, 28, generator=generator(1))
    data = LabelledData(x, torch.arange(60) % 10)
    found = one(data, data, 0, {"stopping": {"iterations": 2}})
    ways = ("coreset", "random", "all_briefly", "all")
    assert set(found) == {
        "select_seconds",
        *(f"{name}_{what}" for name in ways for what in ("seconds", "clean", "pgd")),
    }


def test_senseless_repeats(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "scale", "--repeats", "0"]) == 2
    assert "--repeats and --threads must be at least 1; got 0 and 1." in capsys.readouterr().err


def test_resnet_treats_each_sample_on_its_own() -> None:
    flat = FlatModel(fresh(lambda: resnet18(3, 10, width=16), generator(0)))
    x = torch.rand(4, 3, 32, 32, generator=generator(1))
    together = flat.logits(flat.own(), x)
    assert together.shape == (4, 10)
    torch.testing.assert_close(flat.logits(flat.own(), x[2:3]), together[2:3], rtol=1e-4, atol=1e-5)
    assert len([p for p in resnet_layers(flat) if p == "Conv2d"]) == 1 + 16 + 3


def resnet_layers(flat: FlatModel) -> list[str]:
    return [type(part).__name__ for part in flat._module.modules()]
