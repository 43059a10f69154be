"""What a run leaves behind, as plain values: the only thing files and reports are made from."""

from __future__ import annotations

import platform
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def provenance(command: Sequence[str]) -> dict[str, Any]:
    """Where figures come from: the command, the date, the versions and, in a checkout, the commit that made them."""
    return {
        "command": shlex.join(command),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {name: version(name) for name in ("f2cto", "torch")} | {"python": platform.python_version()},
        **commit_of(Path(__file__).parents[2]),
    }


def commit_of(root: Path) -> dict[str, str]:
    """The commit of a checkout, marked where files differ from it; nothing elsewhere, or without git."""
    if not (root / ".git").exists():
        return {}
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"commit": found.stdout.strip()}


@dataclass(frozen=True)
class Score:
    """An accuracy over several draws or training seeds, as fractions in [0, 1]."""

    mean: float
    std: float
    draws: int
    collapsed: int = 0  # how many of the models only guess, on their own training data too


@dataclass(frozen=True)
class Row:
    """What a comparison finds: the accuracy of one final learner on one task under one attack.

    What it cost is the cost of selecting that task's coreset, the same in the rows of all attacks.
    """

    method: str  # a name, with what differs from its settings: `f2cto:local_rounds=5`
    seed: int
    task: int  # counted from 1
    attack: str
    accuracy: float
    seconds: float
    floats: int  # sent and received by a worker
    passes: int  # samples passed forwards or backwards through the network
    worst_class: float  # the accuracy in the class that has the lowest
    forgetting: float | None  # the accuracy just after the task was learned less the final one; none for the last task
    collapsed: bool | None = None  # whether the learner only guessed just after this task; None: nobody looked


@dataclass(frozen=True, eq=False)
class Kept:
    """One sample of a coreset."""

    worker: int
    index: int  # its position in the worker's shard
    row: int  # its row in the file or source
    label: str  # the name of its class
    weight: float
    file: str = ""  # where the source is a folder of files
    picture: NDArray[np.float64] | None = None  # (height, width) or (height, width, 3) in [0, 1], if it is an image


@dataclass(frozen=True)
class RunRecord:
    """One selection with its evaluation."""

    method: str
    seed: int
    iterations: int
    stopped: str
    seconds: float
    gap: float
    floats_per_worker: int
    accuracy: Mapping[str, Mapping[str, Score]]  # method -> attack ("clean", "fgsm", "pgd") -> score
    history: Sequence[Mapping[str, Any]]  # one row an iteration: iteration, objective, gap, seconds, robust_accuracy
    kept: Sequence[Kept]
    settings: Mapping[str, Any]

    def summary(self) -> dict[str, Any]:
        """The run in one JSON object: means only, fractions in [0, 1]."""
        return {
            "method": self.method,
            "seed": self.seed,
            "iterations": self.iterations,
            "stopped": self.stopped,
            "seconds": round(self.seconds, 3),
            "gap": self.gap,
            "floats_per_worker": self.floats_per_worker,
            "accuracy": {
                name: {attack: score.mean for attack, score in scores.items()} for name, scores in self.accuracy.items()
            },
            "collapsed": {name: max(s.collapsed for s in of.values()) for name, of in self.accuracy.items() if of},
        }
