from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from f2cto.federation.wire import Frame, WireError, pack, receive, send, unpack

FRAME = Frame({"phase": "refine", "serial": 3}, {"w": np.arange(5, dtype=np.float32), "t": np.zeros((2, 0))})


def test_a_frame_comes_back_as_it_was() -> None:
    again = unpack(pack(FRAME))
    assert again.head == FRAME.head
    assert {n: (a.dtype, a.shape) for n, a in again.arrays.items()} == {
        "w": (np.dtype("float32"), (5,)),
        "t": (np.dtype("float64"), (2, 0)),
    }
    assert np.array_equal(again.arrays["w"], FRAME.arrays["w"])
    again.arrays["w"][0] = 1.0  # the numbers are the receiver's own


def test_the_bytes_are_as_documented() -> None:
    data = pack(Frame({}, {"w": np.array([1.5], dtype=np.float32)}))
    (length,) = struct.unpack("<I", data[:4])
    assert json.loads(data[4 : 4 + length]) == {"head": {}, "arrays": [["w", "float32", [1]]]}
    assert data[4 + length :] == struct.pack("<f", 1.5)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_an_error(data: bytes) -> None:
    with suppress(WireError):
        unpack(data)


@given(st.data())
def test_damaged_frames_are_refused_or_read(data: st.DataObject) -> None:
    sound = bytearray(pack(FRAME))
    for _ in range(data.draw(st.integers(1, 3))):
        sound[data.draw(st.integers(0, len(sound) - 1))] = data.draw(st.integers(0, 255))
    with suppress(WireError):
        unpack(bytes(sound[: data.draw(st.integers(0, len(sound)))]))


def headed(header: str) -> bytes:
    return struct.pack("<I", len(header)) + header.encode()


@pytest.mark.parametrize(
    "header",
    [
        json.dumps({"head": {}, "arrays": [["w", "float32", [0, 10**30]]]}),
        json.dumps({"head": {}, "arrays": [["w", "float32", [0] * 70]]}),
        '{"arrays": [], "head": ' + "[" * 100_000,
    ],
    ids=["too long", "too many dimensions", "too deep"],
)
def test_impossible_headers_are_refused(header: str) -> None:
    with pytest.raises(WireError):
        unpack(headed(header))


@pytest.mark.parametrize("dtype", ["object", "complex64", "U5"])
def test_only_numbers_travel(dtype: str) -> None:
    with pytest.raises(WireError, match="float32, float64, int64"):
        pack(Frame({}, {"w": np.zeros(2, dtype=dtype)}))


def test_over_a_socket_and_within_limits() -> None:
    here, there = socket.socketpair()
    with here, there:
        threading.Thread(target=send, args=(here, FRAME)).start()
        assert receive(there).head == FRAME.head
        threading.Thread(target=send, args=(here, FRAME)).start()
        with pytest.raises(WireError, match="at most 10 are taken"):
            receive(there, limit=10)
    here, there = socket.socketpair()
    with there:
        here.sendall(struct.pack("<Q", 100) + b"half")
        here.close()
        with pytest.raises(WireError, match="ended 96 bytes before"):
            receive(there)


def test_it_knows_no_torch() -> None:
    code = "import sys, f2cto.federation.wire; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603
