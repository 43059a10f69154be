"""Frames as Flower carries them: the head as JSON text in a configuration record, the numbers in an array record.

This module knows no torch, so that the app which Flower starts for every message starts quickly.
"""

from __future__ import annotations

import json

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from f2cto.federation.wire import DTYPES, Frame, WireError

ACTION = "query.site"  # the one kind of message; what it asks for stands in its head
HEAD, ARRAYS, JSON = "head", "arrays", "json"


def content_of(frame: Frame) -> RecordDict:
    """A frame as a message's content."""
    head = ConfigRecord({JSON: json.dumps(dict(frame.head))})
    return RecordDict({HEAD: head, ARRAYS: ArrayRecord({name: Array(array) for name, array in frame.arrays.items()})})


def frame_of(content: RecordDict) -> Frame:
    """The frame in a message's content; whatever that is, nothing but a frame or a `WireError` comes of it."""
    try:
        if set(content) != {HEAD, ARRAYS}:
            msg = f"it holds {', '.join(sorted(content)) or 'nothing'}"
            raise WireError(msg)
        head = json.loads(str(content.config_records[HEAD][JSON]))
        if not isinstance(head, dict):
            msg = "its head is no mapping"
            raise WireError(msg)
        # Arrays are read by numpy without pickle, which is where code could hide.
        arrays = {str(name): array.numpy() for name, array in content.array_records[ARRAYS].items()}
    except (ValueError, KeyError, TypeError, EOFError, OSError, RecursionError) as error:
        msg = f"The message holds no frame: {error}."
        raise WireError(msg) from error
    for name, array in arrays.items():
        if array.dtype.name not in DTYPES:
            msg = f"The message holds no frame: its array `{name[:40]}` is of {array.dtype}."
            raise WireError(msg)
    return Frame(head, arrays)
