"""Benchmarks of the solver, each a ratio measured in one run: `f2cto bench`."""

from __future__ import annotations

from f2cto.bench.hypergradient import hypergradient
from f2cto.bench.iteration import iteration
from f2cto.bench.memory import memory
from f2cto.bench.scale import scale

BENCHMARKS = {"iteration": iteration, "hypergradient": hypergradient, "scale": scale, "memory": memory}

__all__ = ["BENCHMARKS"]
