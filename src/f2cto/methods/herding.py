"""Herding: the mean of what is kept stays near the mean of all.

Welling: Herding Dynamical Weights to Learn, ICML 2009; for coresets of training sets: Rebuffi, Kolesnikov, Sperl,
Lampert: iCaRL: Incremental Classifier and Representation Learning, CVPR 2017. Features are taken as they are, iCaRL
scales them to norm one.
"""

from __future__ import annotations

from torch import Generator

from f2cto.methods.base import Given, Selector
from f2cto.methods.by_class import Picks, alike
from f2cto.methods.coverage import herd
from f2cto.methods.spaces import CoverSettings, covering
from f2cto.methods.vectors import Vectors


def make(settings: CoverSettings, given: Given) -> Selector:
    """The method, ready to run."""
    return covering(_pick, settings, given)


def _pick(points: Vectors, count: int, rng: Generator) -> Picks:  # noqa: ARG001  (nothing is drawn)
    return alike(herd(points, count))
