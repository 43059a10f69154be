"""How to time on a machine that others use too: turn by turn, several times, and take medians."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

import torch
from torch import Generator, Tensor

from f2cto.federation.joint import in_this_process
from f2cto.message import Message
from f2cto.methods.base import Shard
from f2cto.methods.lockstep import CoresetProgram, F2cto
from f2cto.models import FlatModel
from f2cto.randomness import generator
from f2cto.trilevel.master import average

Say = Callable[[str], None]


def interleaved(tasks: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The median seconds of each task, all in turn, `repeats` times, after one turn that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(repeats + 1):
        for name, task in tasks.items():
            began = time.perf_counter()
            task()
            if turn:
                seconds[name].append(time.perf_counter() - began)
    return {name: median(values) for name, values in seconds.items()}


def peak() -> int:
    """The most memory this process has held so far, in bytes.

    Linux's own count: that of `getrusage` begins with what the parent process held.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def random_shards(model: FlatModel, shape: tuple[int, ...], counts: list[int], classes: int) -> list[Shard]:
    """Shards of noise: speed does not ask what the pixels show."""
    rng: Generator = generator(1)
    return [
        Shard(
            torch.rand(count, *shape, generator=rng),
            torch.randint(classes, (count,), generator=rng),
            max(1, count // 20),
            model,
            worker,
            0,
        )
        for worker, count in enumerate(counts)
    ]


class Running:
    """A selection that can be asked for one more iteration; the first two, which warm up, are already done."""

    def __init__(self, method: F2cto, shards: list[Shard], program: CoresetProgram | None = None) -> None:
        """Start the workers."""
        self._ask = in_this_process(program or method.program(), shards).ask
        self._w = shards[0].model.own()
        for _ in range(2):
            self.iterate()

    def iterate(self) -> Tensor:
        """One iteration of Algorithm 1."""
        w_hat = average([r.vectors["w_hat"] for r in self._ask("refine", Message({"w": self._w}))])
        self._w = average([r.vectors["w"] for r in self._ask("update", Message({"w_hat": w_hat}))])
        return self._w
