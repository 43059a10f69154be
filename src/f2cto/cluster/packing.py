"""Messages as arrays: Ray hands arrays from process to process through shared memory, and tensors by copies."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from numpy.typing import NDArray

from f2cto.message import Message

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Packed:
    """A message on its way."""

    vectors: Mapping[str, NDArray[Any]]
    scalars: Mapping[str, float]


def packed(message: Message) -> Packed:
    """A message's numbers, wherever they were."""
    vectors = {name: vector.detach().cpu().numpy() for name, vector in message.vectors.items()}
    return Packed(vectors, dict(message.scalars))


def unpacked(sent: Packed, device: torch.device | str = "cpu") -> Message:
    """The message, in the shared memory it came in: as within one process, nobody may write to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        vectors = {name: torch.from_numpy(vector).to(device) for name, vector in sent.vectors.items()}
    return Message(vectors, dict(sent.scalars))


class ElsewhereError(RuntimeError):
    """Something went wrong in another process."""


@dataclass(frozen=True)
class Failure:
    """An error in words: not every exception survives the way into another process."""

    said: str
    trace: str

    def error(self) -> ElsewhereError:
        """As an exception of this process; its notes tell where it was raised."""
        error = ElsewhereError(self.said)
        error.add_note(self.trace)
        return error


def attempted(task: Callable[[], T]) -> T | Failure:
    """What a task gives, or how it failed."""
    try:
        return task()
    except Exception as error:  # noqa: BLE001  (whatever it is, the master's policy decides what becomes of it)
        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())
