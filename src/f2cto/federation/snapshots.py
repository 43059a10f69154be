"""Private states as flat named tensors and back, so that they can be written without pickle.

A state is a nest of dataclasses, mappings with texts for keys, tensors and numbers. What it looks like is known from a
fresh one; only the values are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class SnapshotError(ValueError):
    """A state that cannot be kept, or a snapshot that is not one of it."""


def flattened(state: object, path: str = "") -> dict[str, Tensor]:
    """All tensors and numbers of a state by their dotted paths."""
    if isinstance(state, Tensor):
        return {path: state.detach()}
    if isinstance(state, int | float):  # numbers and truth values; float64 holds all counts that occur
        return {path: torch.tensor(float(state), dtype=torch.float64)}
    found: dict[str, Tensor] = {}
    for name, part in _parts(state, path).items():
        found |= flattened(part, f"{path}.{name}" if path else name)
    return found


def rebuilt(like: T, flat: Mapping[str, Tensor], path: str = "") -> T:
    """A state of the same make as `like` with the values of a snapshot."""
    return _rebuilt(like, flat, path)  # type: ignore[no-any-return]


def _rebuilt(like: Any, flat: Mapping[str, Tensor], path: str) -> Any:  # noqa: ANN401
    if isinstance(like, Tensor):
        return _value(flat, path).to(like.device)
    if isinstance(like, int | float):
        return type(like)(_value(flat, path))
    parts = {
        name: _rebuilt(part, flat, f"{path}.{name}" if path else name) for name, part in _parts(like, path).items()
    }
    if like is None:
        return _nothing(flat, path)
    return parts if isinstance(like, Mapping) else replace(like, **parts)


def _parts(state: object, path: str) -> dict[str, Any]:
    if state is None:
        return {}
    if is_dataclass(state) and not isinstance(state, type):
        return {f.name: getattr(state, f.name) for f in fields(state)}
    if isinstance(state, Mapping) and all(isinstance(key, str) for key in state):
        return dict(state)
    msg = f"States that can be kept are made of dataclasses, tensors and numbers; `{path}` is a {type(state).__name__}."
    raise SnapshotError(msg)


def _nothing(flat: Mapping[str, Tensor], path: str) -> None:
    """Nothing, where a fresh state has nothing; a snapshot that has more cannot be put back."""
    if more := [name for name in flat if name == path or name.startswith(f"{path}.")]:
        msg = f"The snapshot has `{more[0]}`, and a fresh state has nothing there; this state can only be kept whole."
        raise SnapshotError(msg)


def _value(flat: Mapping[str, Tensor], path: str) -> Tensor:
    if path not in flat:
        msg = f"The snapshot has no `{path}`; it was made by another method or version. Start the worker afresh."
        raise SnapshotError(msg)
    return flat[path]
