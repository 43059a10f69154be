"""Benchmarks of the solver, each a ratio measured in one run: `f2cto bench`."""

from __future__ import annotations

from f2cto.bench.iteration import iteration
from f2cto.bench.scale import scale

BENCHMARKS = {"iteration": iteration, "scale": scale}

__all__ = ["BENCHMARKS"]
