"""Private states as flat named tensors and back, so that they can be written without pickle.

A state is a nest of dataclasses, mappings with texts for keys, tensors and numbers. What it looks like is known from a
fresh one; only the values are kept, and which of them are one and the same tensor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

T = TypeVar("T")
ALIASES = "aliases"  # of tensors that are the same one, beside what else a file says of itself


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


def each_once(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The different tensors, none in another's memory, and which names stand for the same as another.

    Refined perturbations often are the perturbations themselves, and each is as large as the data. Nor is it room alone
    that is saved: who knows that two points are one passes them through the network once, and who does not adds up in
    another order and comes to other last bits.
    """
    first, whole, aliases = dict[tuple[object, ...], str](), dict[str, Tensor](), dict[str, str]()
    pointers = set[int]()
    for name, value in state.items():
        place = value.untyped_storage().data_ptr()
        key = (place, value.storage_offset(), value.shape, value.stride(), value.dtype)
        if value.numel() and first.setdefault(key, name) != name:
            aliases[name] = first[key]
            continue
        alone = place not in pointers and value.untyped_storage().nbytes() == value.numel() * value.element_size()
        whole[name] = value.contiguous() if alone else value.clone().contiguous()
        pointers.add(place)
    return whole, aliases


def with_aliases(whole: Mapping[str, Tensor], aliases: Mapping[str, str]) -> dict[str, Tensor]:
    """All names again; those that stood for the same tensor do so again."""
    return {**whole, **{name: whole[of] for name, of in aliases.items()}}


def file_of(state: Mapping[str, Tensor], about: Mapping[str, str] | None = None) -> bytes:
    """A snapshot as a safetensors file, with a few texts about it."""
    whole, aliases = each_once(state)
    return save(whole, {**(about or {}), ALIASES: json.dumps(aliases)})


def read_file(path: Path, device: torch.device | str = "cpu") -> tuple[dict[str, Tensor], dict[str, str]]:
    """A snapshot and the texts about it."""
    with safe_open(path, framework="pt") as file:
        about = dict(file.metadata() or {})
        # Copied out of the file's buffer, so that memory is aligned and results are the same to the last bit.
        whole = {name: file.get_tensor(name).clone().to(device) for name in file.keys()}  # noqa: SIM118  (no mapping)
    return with_aliases(whole, json.loads(about.pop(ALIASES, "{}"))), about


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
