"""ResNet-18 for small images, with group normalisation so that the output for a sample depends on that sample only.

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, 2016; Wu, He: Group Normalization, 2018. Two things
without which it learned far less in a few hundred steps of adversarial training (docs/lab-book.md, 23):
pixels are centred inside the network, so that attacks see them in [0, 1], and every block begins as its way around
(Goyal et al.: Accurate, Large Minibatch SGD, 2017).
"""

from __future__ import annotations

from torch import Tensor, nn


def resnet18(channels: int, classes: int, width: int = 64, stride: int = 1) -> nn.Module:
    """Four stages of two blocks each; a first layer of 3 x 3 without pooling, as is usual for 32 x 32 pixels.

    A first layer with a `stride` of 2 leaves a quarter of the work. With longer strides it sees wider patches, so that
    no pixel is passed over.
    """
    widths = [width, 2 * width, 4 * width, 8 * width]
    stages = [
        nn.Sequential(Block(before, after, step), Block(after, after, 1))
        for before, after, step in zip([width, *widths], widths, [1, 2, 2, 2], strict=False)
    ]
    reach = max(1, stride - 1)
    look = nn.Conv2d(channels, width, 2 * reach + 1, stride=stride, padding=reach, bias=False)
    first = [Centred(), look, normal(width), nn.ReLU()]
    return nn.Sequential(*first, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, classes))


class Centred(nn.Module):
    """Pixels in [0, 1] about zero, with about unit deviation."""

    def forward(self, x: Tensor) -> Tensor:
        """The pixels less their middle, in units of a quarter of their range."""
        return (x - 0.5) / 0.25


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        """Make the layers; the way around is a convolution only where the shape changes."""
        super().__init__()
        self.through = nn.Sequential(
            nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False),
            normal(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            last := normal(after),
        )
        nn.init.zeros_(last.weight)
        self.around: nn.Module = nn.Identity()
        if before != after or stride != 1:
            self.around = nn.Sequential(nn.Conv2d(before, after, 1, stride=stride, bias=False), normal(after))

    def forward(self, x: Tensor) -> Tensor:
        """Both ways, added."""
        result: Tensor = nn.functional.relu(self.through(x) + self.around(x))
        return result


def normal(width: int) -> nn.GroupNorm:
    """Group normalisation in groups of about 16 channels."""
    groups = max(1, width // 16)
    return nn.GroupNorm(groups if width % groups == 0 else 1, width)
