"""Messages that tell little about any worker: clipped, noised, and without the scalars that others send along."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from f2cto.federation.engine import Program
from f2cto.message import Message
from f2cto.methods.base import Shard
from f2cto.privacy import Privacy, noised


@dataclass(frozen=True)
class PrivateProgram:
    """A program whose answers go out as moves from what the master sent, shortened and noised in one piece.

    A vector that the master did not send is a move from `w`. Noise comes from the operating system, not from the run's
    seed, which the master knows; so private runs cannot be repeated bit by bit.
    """

    inner: Program[Shard, Any]
    privacy: Privacy
    draw: Callable[[], Generator | None] = lambda: None  # none: the system's own randomness

    @property
    def entries(self) -> tuple[str, ...]:
        """The phases at which workers may join again."""
        return tuple(getattr(self.inner, "entries", ()))

    def start(self, shard: Shard) -> Any:  # noqa: ANN401  (the inner program's own)
        """The private state before the first message."""
        return self.inner.start(shard)

    def run(self, phase: str, shard: Shard, state: Any, message: Message) -> tuple[Any, Message]:  # noqa: ANN401
        """Answer one message."""
        state, reply = self.inner.run(phase, shard, state, message)
        return state, Message(self._hidden(message, reply))

    def _hidden(self, message: Message, reply: Message) -> dict[str, Tensor]:
        around = {name: message.vectors.get(name, message.vectors["w"]) for name in reply.vectors}
        move = torch.cat([vector - around[name] for name, vector in reply.vectors.items()])
        sent = noised(move.cpu(), self.privacy, self.draw()).to(move.device)
        parts = torch.split_with_sizes(sent, [len(vector) for vector in reply.vectors.values()])
        return {name: around[name] + part for name, part in zip(reply.vectors, parts, strict=True)}
