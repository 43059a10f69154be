"""A convolutional network over time, for what sensors record: small, and normalised sample by sample.

Convolutions with strides and a mean over time (Wang, Yan, Oates: Time Series Classification from Scratch with Deep
Neural Networks, 2017), group normalisation as in `resnet`. A perceptron on the same windows learned next to nothing in
a few hundred steps of adversarial training (docs/lab-book.md, 25).
"""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from f2cto.resnet import Centred, normal

REACH = 2  # readings to both sides that a layer looks at


def signal_network(channels: int, classes: int, width: int = 16) -> nn.Module:
    """Three layers, each with half the readings and twice the channels of the one before, and a mean over time."""
    widths = (channels, width, 2 * width, 4 * width)
    layers: list[nn.Module] = [Centred()]
    for before, after in pairwise(widths):
        look = nn.Conv1d(before, after, 2 * REACH + 1, stride=2, padding=REACH, bias=False)
        layers += [look, normal(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4 * width, classes))
