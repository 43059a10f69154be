"""How an iteration grows with workers and samples, and the memory it needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from f2cto.bench.measure import Running, Say, interleaved, random_shards
from f2cto.methods.f2cto_settings import F2ctoSettings, Perturbation
from f2cto.methods.lockstep import F2cto
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator

WORKERS = (1, 5, 20, 100, 200, 500)
TOTAL = 3000  # samples that the workers share
SAMPLES = (750, 1500, 3000, 6000, 12000)
NETWORKS = {"mlp 60-64-15": (60, (64,), 15), "mlp 784-256-256-10": (784, (256, 256), 10)}


def scale(repeats: int, say: Say) -> dict[str, Any]:
    """Seconds an iteration over 1 to 500 workers that share 3,000 samples, and over 750 to 12,000 samples of 5.

    The figures of each network, and on top those of the one where it is worst.
    """
    results: dict[str, dict[str, Any]] = {}
    for name, (inputs, hidden, classes) in NETWORKS.items():
        model = FlatModel(fresh(partial(mlp, inputs, hidden, classes), generator(0)))

        def running(
            counts: list[int], model: FlatModel = model, inputs: int = inputs, classes: int = classes
        ) -> Running:
            settings = F2ctoSettings(perturbation=Perturbation(steps=10, ramp=0))
            return Running(F2cto(settings, radius=1e6), random_shards(model, (inputs,), counts, classes))

        results[name] = _grown(running, repeats)
        ratio, exponent = results[name]["workers_200_over_1"], results[name]["samples_exponent"]
        say(f"{name}: 200 workers over 1: {ratio:.3f}, time ~ samples^{exponent:.3f}")
    worst = {key: max(found[key] for found in results.values()) for key in ("workers_200_over_1", "samples_exponent")}
    slower = max(results.values(), key=lambda found: found["workers_200_over_1"])
    return {"workers": slower["workers"], **worst, "networks": results}


def _grown(running: Callable[[list[int]], Running], repeats: int) -> dict[str, Any]:
    workers = interleaved({str(n): running(_shares(TOTAL, n)).iterate for n in WORKERS}, repeats)
    samples = interleaved({str(m): running(_shares(m, 5)).iterate for m in SAMPLES}, repeats)
    return {
        "workers": workers,
        "samples": samples,
        "workers_200_over_1": workers["200"] / workers["1"],
        "samples_exponent": _exponent({int(m): seconds for m, seconds in samples.items()}),
    }


def _shares(total: int, workers: int) -> list[int]:
    return [total // workers] * workers


def _exponent(seconds: dict[int, float]) -> float:
    """The slope of log time over log samples by least squares."""
    xs, ys = [math.log(m) for m in seconds], [math.log(s) for s in seconds.values()]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)
