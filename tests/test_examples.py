from __future__ import annotations

import torch

from examples import robust_hyperparameters as example


def test_learned_regularisation_beats_none_and_the_gap_falls() -> None:
    problems, _, _ = example.hospitals(1)
    learned, history = example.tune(problems, iterations=300)
    assert history[-1].gap < history[0].gap / 2
    x, y = (torch.cat([getattr(p, name) for p in problems]) for name in ("x_val", "y_val"))
    robust = {}
    for name, alpha in {"none": torch.full((10,), example.LOW).double(), "learned": learned}.items():
        w = example.train(problems, alpha, steps=200)
        robust[name] = float(example.loss(w, example.worst(w, x, y), y))
    assert robust["learned"] < robust["none"] - 0.01
