"""Facility location: every sample is near one that is kept, on average.

Mirzasoleiman, Bilmes, Leskovec: Coresets for Data-efficient Training of Machine Learning Models (CRAIG), ICML 2020,
with distances between samples in the place of distances between gradients. Weights are CRAIG's: the number of samples
that each kept one stands for.
"""

from __future__ import annotations

from torch import Generator

from f2cto.methods.base import Given, Selector
from f2cto.methods.by_class import Picks
from f2cto.methods.coverage import cluster_sizes, facility_location
from f2cto.methods.spaces import CoverSettings, covering
from f2cto.methods.vectors import Vectors


def make(settings: CoverSettings, given: Given) -> Selector:
    """The method, ready to run."""
    return covering(_pick, settings, given)


def _pick(points: Vectors, count: int, rng: Generator) -> Picks:
    chosen = facility_location(points, count, rng)
    return chosen, cluster_sizes(points, chosen)
