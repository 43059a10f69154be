"""What threads, memory layout, bfloat16 and compilation do to a pass: the measurements behind `f2cto.hardware`."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from f2cto import hardware as machine
from f2cto.bench.measure import Say, interleaved
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from f2cto.resnet import resnet18

CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    # name: network, sample, samples
    "mlp 60-64-15, 250": (partial(mlp, 60, (64,), 15), (60,), 250),
    "mlp 60-64-15, 3000": (partial(mlp, 60, (64,), 15), (60,), 3000),
    "mlp 784-256-256-10, 50": (partial(mlp, 784, (256, 256), 10), (784,), 50),
    "mlp 784-256-256-10, 600": (partial(mlp, 784, (256, 256), 10), (784,), 600),
    "resnet18 width 16, 32": (partial(resnet18, 3, 10, 16), (3, 32, 32), 32),
}


def hardware(repeats: int, say: Say) -> dict[str, dict[str, float]]:
    """How many times faster an attack step gets by each means; below 1 it gets slower."""
    results = {}
    for name, (make, shape, count) in CASES.items():
        network = fresh(make, generator(0))
        rng = generator(1)
        x, y = torch.rand(count, *shape, generator=rng), torch.randint(10, (count,), generator=rng)
        results[name] = {
            "pass_bytes": float(FlatModel(network).pass_bytes(x[:1]) * count),
            **gains(network, x, y, repeats),
        }
        say(f"{name}: " + ", ".join(f"{key} {value:.3g}" for key, value in results[name].items()))
    return results


def gains(network: nn.Module, x: Tensor, y: Tensor, repeats: int) -> dict[str, float]:
    """The gains on one network, taken in turn."""
    model, w = FlatModel(network), FlatModel(network).own()
    step = partial(attack_step, model.evaluate, w, x, y)
    compiled, start_up = _compiled(model, w, x, y)
    tasks: dict[str, Callable[[], object]] = {
        "plain": step,
        "threads": partial(_with_threads, machine.cores(), step),
        "bfloat16": partial(attack_step, model.evaluate_roughly, w, x, y),
        "compiled": compiled,
    }
    if x.ndim == 4:
        tasks["channels_last"] = partial(
            attack_step, model.evaluate, w, x.contiguous(memory_format=torch.channels_last), y
        )
    seconds = interleaved(tasks, repeats)
    return {name: seconds["plain"] / seconds[name] for name in tasks if name != "plain"} | {
        "compile_seconds": start_up,
        "fast_bfloat16": float(machine.fast_bfloat16(x.device)),
    }


Evaluate = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def attack_step(evaluate: Evaluate, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The gradient of the losses in the inputs."""
    there = x.detach().requires_grad_()
    return torch.autograd.grad(evaluate(w, there, y)[0].sum(), there)[0]


def _compiled(model: FlatModel, w: Tensor, x: Tensor, y: Tensor) -> tuple[Callable[[], object], float]:
    """The same step compiled, and the seconds until it first ran."""
    began = time.perf_counter()
    evaluate = torch.compile(model.evaluate, dynamic=False)
    attack_step(evaluate, w, x, y)
    return partial(attack_step, evaluate, w, x, y), time.perf_counter() - began


def _with_threads(count: int, task: Callable[[], object]) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        task()
    finally:
        torch.set_num_threads(before)
