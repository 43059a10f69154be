"""What crosses between master and workers: vectors as long as the model's parameters, and scalars. Nothing else.

Some of the methods that F2CTO is compared with also send sums or means over classes, and say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Message:
    """Named parameter vectors and named numbers."""

    vectors: Mapping[str, Tensor] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)

    @property
    def floats(self) -> int:
        """How many numbers the vectors hold; what Theorem 2 counts."""
        return sum(v.numel() for v in self.vectors.values())


Ask = Callable[[str, Message], list[Message]]  # put a message to every worker, get one reply each, in worker order
