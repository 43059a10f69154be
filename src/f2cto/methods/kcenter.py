"""k-center greedy: no sample far from what is kept.

Gonzalez: Clustering to Minimize the Maximum Intercluster Distance, Theoretical Computer Science 38, 1985; for training
sets: Sener, Savarese: Active Learning for Convolutional Neural Networks: A Core-Set Approach, ICLR 2018.
"""

from __future__ import annotations

from torch import Generator

from f2cto.methods.base import Given, Selector
from f2cto.methods.by_class import Picks, alike
from f2cto.methods.coverage import k_center
from f2cto.methods.spaces import CoverSettings, covering
from f2cto.methods.vectors import Vectors


def make(settings: CoverSettings, given: Given) -> Selector:
    """The method, ready to run."""
    return covering(_pick, settings, given)


def _pick(points: Vectors, count: int, rng: Generator) -> Picks:
    return alike(k_center(points, count, rng))
