"""Frames between processes: a line of JSON and raw numbers after it. Nothing in them is ever executed.

    8 bytes   length of the whole rest
    4 bytes   length of the header
    header    JSON: {"head": …, "arrays": [[name, dtype, shape], …]}
    arrays    one after the other, little-endian, C order

This module knows no torch, so that a process that only passes frames on starts quickly.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from socket import socket
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
DTYPES = ("float32", "float64", "int64")
LIMIT = 2**32  # bytes in a frame


class WireError(ValueError):
    """A frame that is none."""


@dataclass(frozen=True, eq=False)
class Frame:
    """What a frame holds."""

    head: Mapping[str, Any] = field(default_factory=dict)  # anything JSON can say
    arrays: Mapping[str, Array] = field(default_factory=dict)


def pack(frame: Frame) -> bytes:
    """A frame as bytes, without its length."""
    arrays = {name: np.ascontiguousarray(array) for name, array in frame.arrays.items()}
    for name, array in arrays.items():
        if array.dtype.name not in DTYPES:
            msg = f"Arrays in a frame are {', '.join(DTYPES)}; `{name}` is {array.dtype}."
            raise WireError(msg)
    listed = [[name, array.dtype.name, list(array.shape)] for name, array in arrays.items()]
    header = json.dumps({"head": dict(frame.head), "arrays": listed}).encode()
    little = (array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes() for array in arrays.values())
    return b"".join([struct.pack("<I", len(header)), header, *little])


def unpack(data: bytes) -> Frame:
    """A frame from its bytes; whatever they are, nothing but a frame or a `WireError` comes of them."""
    try:
        (length,) = struct.unpack_from("<I", data)
        header = json.loads(data[4 : 4 + length].decode())
        head, listed = dict(header["head"]), [_listed(entry) for entry in header["arrays"]]
    except (struct.error, ValueError, KeyError, TypeError, RecursionError) as error:
        msg = f"This is no frame: its header cannot be read ({error})."
        raise WireError(msg) from error
    arrays, at = dict[str, Array](), 4 + length
    for name, dtype, shape in listed:
        count = math.prod(shape)
        end = at + count * dtype.itemsize
        if end > len(data):
            msg = f"The frame ends before its array `{name}` does."
            raise WireError(msg)
        try:
            arrays[name] = np.frombuffer(data, dtype, count, at).reshape(shape).astype(dtype.newbyteorder("="))
        except (ValueError, OverflowError) as error:
            msg = f"The frame's array `{name}` has a shape that no array can have ({error})."
            raise WireError(msg) from error
        at = end
    if at != len(data):
        msg = f"The frame has {len(data) - at} bytes after its last array."
        raise WireError(msg)
    return Frame(head, arrays)


def send(to: socket, frame: Frame) -> None:
    """Write a frame with its length before it."""
    data = pack(frame)
    to.sendall(struct.pack("<Q", len(data)) + data)


def receive(come_from: socket, limit: int = LIMIT) -> Frame:
    """Read one frame."""
    (length,) = struct.unpack("<Q", _exactly(come_from, 8))
    if length > limit:
        msg = f"A frame of {length:,} bytes was announced, and at most {limit:,} are taken."
        raise WireError(msg)
    return unpack(_exactly(come_from, length))


def _exactly(come_from: socket, count: int) -> bytes:
    parts, left = list[bytes](), count
    while left:
        part = come_from.recv(min(left, 2**20))
        if not part:
            msg = f"The connection ended {left} bytes before the frame did."
            raise WireError(msg)
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _listed(entry: Any) -> tuple[str, np.dtype[Any], tuple[int, ...]]:  # noqa: ANN401  (whatever came)
    name, dtype, shape = entry
    if dtype not in DTYPES or not isinstance(name, str) or not all(isinstance(n, int) and n >= 0 for n in shape):
        msg = f"there is no array {entry}"
        raise ValueError(msg)
    return name, np.dtype(dtype).newbyteorder("<"), tuple(shape)
