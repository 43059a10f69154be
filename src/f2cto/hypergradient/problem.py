"""What a smooth trilevel problem is to this method: three objectives of three variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

Lowers = tuple[Tensor, ...]


class Trilevel(Protocol):
    """Three scalar objectives; f3 is strongly convex in z, and f2 in y once z follows."""

    def f1(self, x: Tensor, y: Tensor, z: Lowers, /) -> Tensor:
        """What the upper level minimises over x."""
        ...

    def f2(self, x: Tensor, y: Tensor, z: Lowers, /) -> Tensor:
        """What the middle level minimises over y."""
        ...

    def f3(self, x: Tensor, y: Tensor, z: Lowers, /) -> Tensor:
        """What the lower level minimises over z."""
        ...


@dataclass(frozen=True, eq=False)
class Point:
    """A value for each variable. Blocks of z that f3 does not tie together are solved apart."""

    x: Tensor
    y: Tensor
    z: Lowers
