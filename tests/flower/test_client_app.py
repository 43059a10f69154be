"""The forwarder, called with real messages; a real socket at its other end."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from f2cto.federation.wire import Frame, WireError, pack, receive, send
from f2cto.flower.client_app import app
from f2cto.flower.packing import ACTION, content_of, frame_of

REQUEST = Frame({"kind": "ask", "serial": 3, "scalars": {"t": 0.1}}, {"w": np.linspace(0, 1, 7, dtype=np.float32)})
Serve = Callable[[Callable[[socket.socket], object]], str]


@pytest.fixture
def listening() -> Iterator[Serve]:
    """A socket with one connection, served by a function; tmp_path may be too long for its path."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        threads = list[threading.Thread]()

        def serve(answer: Callable[[socket.socket], object]) -> str:
            def one() -> None:
                connection, _ = server.accept()
                with connection:
                    answer(connection)

            server.bind(path := f"{folder}/s")
            server.listen(1)
            threads.append(threading.Thread(target=one))
            threads[0].start()
            return path

        yield serve
        for thread in threads:
            thread.join(5)


def reply_to(content: RecordDict, ttl: float = 5.0, **node_config: Any) -> Message:
    message = Message(content, dst_node_id=7, message_type=ACTION, ttl=ttl)
    message.metadata.__dict__["_message_id"] = "request 1"
    return app(message, Context(1, 7, node_config, RecordDict(), {}))


def answered(content: RecordDict, ttl: float = 5.0, **node_config: Any) -> dict[str, Any]:
    return dict(frame_of(reply_to(content, ttl, **node_config).content).head)


def test_it_imports_no_torch_and_nothing_of_the_data() -> None:
    code = "import sys, f2cto.flower.client_app; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    loaded = ended.stdout.split()
    assert "f2cto.flower.client_app" in loaded
    heavy = {"torch", "sklearn", "polars", "scipy", "pandas", "ray"}
    assert not heavy & {name.partition(".")[0] for name in loaded}
    ours = {name for name in loaded if name.startswith("f2cto")}
    assert ours <= {"f2cto", "f2cto.federation", "f2cto.federation.wire"} | {
        f"f2cto.flower{name}" for name in ("", ".client_app", ".packing")
    }


def test_a_request_goes_to_the_site_as_it_is_and_its_answer_comes_back(listening: Serve) -> None:
    got = list[Frame]()

    def site(connection: socket.socket) -> None:
        got.append(receive(connection))
        send(connection, Frame({"scalars": {"gap": 0.25}}, {"w": np.array([1.5, -2], np.float32)}))

    reply = reply_to(content_of(REQUEST), socket=listening(site))
    assert pack(got[0]) == pack(REQUEST)
    frame = frame_of(reply.content)
    assert frame.head == {"scalars": {"gap": 0.25}}
    assert frame.arrays["w"].dtype == np.float32
    assert frame.arrays["w"].tolist() == [1.5, -2]
    assert reply.metadata.reply_to_message_id == "request 1"


def test_nothing_else_travels_and_nothing_stays(listening: Serve) -> None:
    path = listening(lambda connection: send(connection, receive(connection)))
    message = Message(content_of(REQUEST), dst_node_id=7, message_type=ACTION)
    context = Context(1, 7, {"socket": path, "secret": "mine"}, RecordDict(), {})
    content = app(message, context).content
    assert set(content) == {"head", "arrays"}
    assert set(content["head"]) == {"json"}
    assert set(content["arrays"]) == {"w"}
    assert not context.state
    assert "mine" not in str(content)


def test_who_does_not_know_its_site_says_so() -> None:
    for config in ({}, {"socket": ""}, {"socket": 3}):
        head = answered(content_of(REQUEST), **config)
        assert head["away"] is True
        assert "--node-config" in head["error"]


def test_a_site_that_is_away_is_told_in_a_sentence_without_its_path(tmp_path: Path) -> None:
    head = answered(content_of(REQUEST), socket=str(tmp_path / "gone"))
    assert head["away"] is True
    assert "No such file or directory" in head["error"]
    assert "f2cto site" in head["error"]
    assert str(tmp_path) not in head["error"]


@pytest.mark.parametrize(
    "broken",
    [
        receive,  # takes the request and hangs up
        lambda connection: (receive(connection), connection.sendall(struct.pack("<Q", 100) + b"half")),
        lambda connection: (receive(connection), connection.sendall(struct.pack("<Q", 4) + b"\xff\xff\xff\xff")),
        lambda connection: (receive(connection), connection.sendall(struct.pack("<Q", 2**60))),
    ],
)
def test_a_site_that_breaks_off_or_sends_garbage_counts_as_away(listening: Serve, broken: Any) -> None:
    assert answered(content_of(REQUEST), socket=listening(broken))["away"] is True


def test_it_waits_no_longer_than_the_message_lives(listening: Serve) -> None:
    ended = threading.Event()
    head = answered(content_of(REQUEST), ttl=0.2, socket=listening(lambda _: ended.wait(5)))
    ended.set()
    assert head["away"] is True
    assert "timed out" in head["error"]


def no_pickle() -> Array:
    made = Array(np.zeros(1))
    made.data = b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(127) + b"\n."
    return made


HEAD, NONE = ConfigRecord({"json": "{}"}), ArrayRecord()
GARBAGE = {
    "nothing": RecordDict(),
    "no arrays": RecordDict({"head": HEAD}),
    "more": RecordDict({"head": HEAD, "arrays": NONE, "rows": ArrayRecord()}),
    "metrics": RecordDict({"head": MetricRecord({"json": 1.0}), "arrays": NONE}),
    "arrays for a head": RecordDict({"head": ArrayRecord(), "arrays": NONE}),
    "a head for arrays": RecordDict({"head": HEAD, "arrays": ConfigRecord()}),
    "no text": RecordDict({"head": ConfigRecord({"other": ""}), "arrays": NONE}),
    "no JSON": RecordDict({"head": ConfigRecord({"json": "{"}), "arrays": NONE}),
    "deep JSON": RecordDict({"head": ConfigRecord({"json": "[" * 100_000}), "arrays": NONE}),
    "a list": RecordDict({"head": ConfigRecord({"json": "[1]"}), "arrays": NONE}),
    "bytes": RecordDict({"head": HEAD, "arrays": ArrayRecord({"w": Array(np.zeros(2, np.int8))})}),
    "pickle": RecordDict({"head": HEAD, "arrays": ArrayRecord({"w": no_pickle()})}),
    "of torch": RecordDict({"head": HEAD, "arrays": ArrayRecord({"w": Array("float32", (1,), "torch", b"")})}),
    "cut off": RecordDict(
        {"head": HEAD, "arrays": ArrayRecord({"w": Array("float32", (1,), "numpy.ndarray", b"\x93N")})}
    ),
}


@pytest.mark.parametrize("content", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_an_error_and_nothing_else(content: RecordDict, tmp_path: Path) -> None:
    with pytest.raises(WireError):
        frame_of(content)
    head = answered(content, socket=str(tmp_path / "gone"))
    assert "away" not in head  # it never came as far as the socket
    assert "error" in head


def test_frames_survive_the_way() -> None:
    arrays = {"w": np.arange(6, dtype=np.float64), "n": np.array(3), "none": np.zeros((0,), np.float32)}
    frame = frame_of(content_of(Frame({"a": [1, None, "ü"], "b": {"c": 0.1}}, arrays)))
    assert frame.head == {"a": [1, None, "ü"], "b": {"c": 0.1}}
    assert {name: (array.dtype, array.tolist()) for name, array in frame.arrays.items()} == {
        name: (array.dtype, array.tolist()) for name, array in arrays.items()
    }
