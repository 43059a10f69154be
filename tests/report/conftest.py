from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from f2cto.records import Kept, RunRecord, Score

WORKERS, CLASSES = 3, 4


@pytest.fixture
def record() -> RunRecord:
    """A small run with everything a run can have; tests replace what they are about."""
    rng = np.random.default_rng(0)
    return RunRecord(
        method="f2cto",
        seed=7,
        iterations=40,
        stopped="iterations",
        seconds=12.34,
        gap=4.56e-5,
        floats_per_worker=1_234_567,
        accuracy={
            "all": {"clean": Score(0.98, 0.0, 1), "fgsm": Score(0.9, 0.0, 1), "pgd": Score(0.85, 0.0, 1)},
            "f2cto": {"pgd": Score(0.7, 0.025, 5), "clean": Score(0.9125, 0.0104, 5), "fgsm": Score(0.8, 0.03, 5)},
            "random": {"clean": Score(0.8, 0.05, 20), "fgsm": Score(0.7, 0.05, 20), "pgd": Score(0.6, 0.05, 20)},
        },
        history=[
            {
                "iteration": float(t),
                "objective": 2.0 * math.exp(-t / 10),
                "gap": 10.0 ** (-t / 10),
                "seconds": 0.3 * t,
                "robust_accuracy": 1 - math.exp(-t / 10),
            }
            for t in range(1, 41)
        ],
        kept=[
            Kept(worker, label, 100 * worker + label, str(label), 0.1 * (label + 1), picture=rng.random((8, 8)))
            for worker in range(WORKERS)
            for label in range(CLASSES)
        ],
        settings={"data": "digits", "weighting": {"step": 0.05, "topk": 0.3}},
    )


@pytest.fixture
def chartless(record: RunRecord) -> RunRecord:
    """The same run without what charts are made of, as they take nearly all of a page's time."""
    return replace(record, history=(), accuracy={})
