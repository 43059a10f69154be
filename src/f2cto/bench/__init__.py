"""Benchmarks: of the solver, each a ratio measured in one run, of loading data and of the Ray engine. `f2cto bench`."""

from __future__ import annotations

from f2cto.bench.engines import engines
from f2cto.bench.hardware import hardware
from f2cto.bench.hypergradient import hypergradient
from f2cto.bench.iteration import iteration
from f2cto.bench.loading import load
from f2cto.bench.memory import memory
from f2cto.bench.paying import pays
from f2cto.bench.scale import scale

BENCHMARKS = {
    "iteration": iteration,
    "hypergradient": hypergradient,
    "scale": scale,
    "memory": memory,
    "hardware": hardware,
    "pays": pays,
    "load": load,
    "engines": engines,
}

__all__ = ["BENCHMARKS"]
