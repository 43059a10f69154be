"""F2CTO beside the traditional hypergradient method (the paper's Q4): time and memory of an iteration.

TSG runs as its authors' code does (`FROZEN` Hessians, two Neumann terms, one middle step), with as many lower steps as
F2CTO has refinement steps, and once more with a single one. `exact` is the formula without the shortcut.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from f2cto.bench.measure import Running, Say, interleaved, peak, random_shards
from f2cto.hypergradient.adjoint import Adjoints
from f2cto.hypergradient.coreset import SoftRobustCoreset
from f2cto.hypergradient.levels import Hessian
from f2cto.hypergradient.linear import Adjoint
from f2cto.hypergradient.method import Settings, StepSizes, start, step
from f2cto.hypergradient.problem import Point
from f2cto.methods.base import Shard
from f2cto.methods.f2cto_settings import F2ctoSettings, Perturbation
from f2cto.methods.lockstep import F2cto
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from f2cto.resnet import resnet18

Task = Callable[[], object]
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], list[int], int]] = {
    # name: network, sample, shards, R
    "mlp": (partial(mlp, 784, (256, 256), 10), (784,), [600] * 5, 10),
    "resnet18": (partial(resnet18, 3, 10, 16), (3, 32, 32), [32] * 2, 10),
}


def hypergradient(repeats: int, say: Say) -> dict[str, dict[str, float]]:
    """TSG's time and memory over F2CTO's, per network."""
    results = {}
    for name in CASES:
        seconds = interleaved({method: task(name, method) for method in METHODS}, repeats)
        memory = {method: _peak_apart(name, method) for method in ("f2cto", "tsg", "exact")}
        results[name] = {
            "time_ratio": seconds["tsg"] / seconds["f2cto"],
            "memory_ratio": memory["tsg"] / memory["f2cto"],
            "time_ratio_one_step": seconds["tsg one step"] / seconds["f2cto"],
            "time_ratio_exact": seconds["exact"] / seconds["f2cto"],
            "memory_ratio_exact": memory["exact"] / memory["f2cto"],
            "seconds": seconds["f2cto"],
        }
        say(f"{name}: " + ", ".join(f"{key} {value:.3f}" for key, value in results[name].items()))
    return results


def task(case: str, method: str) -> Task:
    """One iteration of a method on a case, ready to be repeated."""
    make, shape, counts, steps = CASES[case]
    shards = random_shards(FlatModel(fresh(make, generator(0))), shape, counts, 10)
    return METHODS[method](shards, steps)


def _f2cto(shards: list[Shard], steps: int) -> Task:
    settings = F2ctoSettings(perturbation=Perturbation(steps=steps, ramp=0))
    return Running(F2cto(settings, radius=1e6), shards).iterate


def _tsg(shards: list[Shard], steps: int, hessian: Hessian = Hessian.FROZEN) -> Task:
    x, y, model = torch.cat([s.x for s in shards]), torch.cat([s.y for s in shards]), shards[0].model
    c = 1 / len(y)  # attacks of visible length; see `hypergradient.coreset`
    problem = SoftRobustCoreset(model.losses, x, y, penalty=c, ridge=1e-3)
    settings = Settings(
        StepSizes(x=1e-3, y=0.01, z=0.5 / c),
        Adjoints(lower=Adjoint(terms=2, eta=0.5 / c), middle=Adjoint(terms=2), hessian=hessian),
        middle_steps=1,
        lower_steps=steps,
    )
    zeros = torch.zeros_like(x)
    state = start(Point(torch.full((len(y),), 1 / len(y)), model.own(), (zeros, zeros)), settings)
    # Always from the same state: what is timed is the work of a step, and it must not depend on where earlier ones led.
    return lambda: step(problem, state, settings)


METHODS: dict[str, Callable[[list[Shard], int], Task]] = {
    "f2cto": _f2cto,
    "tsg": _tsg,
    "tsg one step": lambda shards, _: _tsg(shards, 1),
    "exact": partial(_tsg, hessian=Hessian.EXACT),
}


def peak_of(case: str, method: str) -> int:
    """Peak bytes of two iterations above what the data took."""
    make, shape, counts, steps = CASES[case]
    shards = random_shards(FlatModel(fresh(make, generator(0))), shape, counts, 10)
    before = peak()
    run = METHODS[method](shards, steps)
    run()
    run()
    return peak() - before


def _peak_apart(case: str, method: str) -> int:
    """The same in a process of its own, since peaks never come down again."""
    code = f"from f2cto.bench.hypergradient import peak_of; print(peak_of({case!r}, {method!r}))"
    return int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)  # noqa: S603
