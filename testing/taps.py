"""Everything that crosses a SuperLink, read from its own database while it runs, and what of the data is in it.

Flower deletes what was delivered; triggers keep a copy of each object that comes in. Nothing else is changed.
"""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
KEEP = """
CREATE TABLE IF NOT EXISTS kept (content BLOB);
CREATE TRIGGER IF NOT EXISTS keep_new AFTER INSERT ON objects WHEN length(NEW.content) > 0
  BEGIN INSERT INTO kept VALUES (NEW.content); END;
CREATE TRIGGER IF NOT EXISTS keep_filled AFTER UPDATE OF content ON objects WHEN length(NEW.content) > 0
  BEGIN INSERT INTO kept VALUES (NEW.content); END;
"""


@dataclass(frozen=True)
class Crossed:
    """One object that crossed: its kind, the numbers of its parts and its length, a zero byte, its body."""

    content: bytes

    @property
    def kind(self) -> str:
        """Flower's name of it."""
        return self.content.split(b" ", 1)[0].decode()

    @property
    def body(self) -> bytes:
        """What it holds."""
        return self.content.split(b"\0", 1)[1]


def tap(database: Path) -> None:
    """From now on keep a copy of everything."""
    with closing(sqlite3.connect(database, timeout=30)) as db:
        db.executescript(KEEP)


def crossed(database: Path) -> list[Crossed]:
    """All that was kept."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as db:
        return [Crossed(content) for (content,) in db.execute("SELECT content FROM kept")]


def arrays(found: list[Crossed]) -> list[Floats]:
    """The arrays among them; each of these tests is smaller than a piece that Flower would cut it into."""
    bodies = [one.body for one in found if one.kind == "ArrayChunk"]
    return [np.load(io.BytesIO(body), allow_pickle=False) for body in bodies]


def heads(found: list[Crossed]) -> list[dict[str, Any]]:
    """The heads of requests and answers: the one text in each configuration record."""
    from flwr.app import ConfigRecord  # noqa: PLC0415  (seconds)

    records = [ConfigRecord.inflate(one.content) for one in found if one.kind == "ConfigRecord"]
    return [json.loads(str(record[key])) for record in records for key in record]


def leaks(found: list[Crossed], rows: Floats, near: float = 1e-4) -> Iterator[str]:
    """What of `rows`, (M, n), is in it: their bytes anywhere, in any usual type, or their numbers in any array."""
    everything = b"\n".join(one.content for one in found)
    for kind in ("<f4", "<f8", "<f2", ">f4", ">f8"):
        for number, row in enumerate(rows):
            if row.astype(kind).tobytes() in everything:
                yield f"row {number} as {kind}"
    for array in arrays(found):
        flat = array.reshape(-1).astype(np.float64)
        if len(flat) >= rows.shape[1]:
            windows = np.lib.stride_tricks.sliding_window_view(flat, rows.shape[1])
            for number, row in enumerate(rows):
                if float(np.abs(windows - row).max(axis=1).min()) < near:
                    yield f"the numbers of row {number} in an array of shape {array.shape}"
