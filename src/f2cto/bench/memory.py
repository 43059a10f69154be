"""The memory of an iteration above that of the data, for CIFAR-shaped samples on one worker.

Each size runs in a process of its own, since peaks never come down again.
"""

from __future__ import annotations

import subprocess
import sys

from f2cto.bench.measure import Running, Say, peak, random_shards
from f2cto.methods.f2cto_settings import F2ctoSettings, Perturbation
from f2cto.methods.lockstep import F2cto
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator

SIZES = (5_000, 20_000, 50_000)


def memory(repeats: int, say: Say) -> dict[str, int]:
    """Peak bytes above the data for each number of samples; the largest of `repeats` runs."""
    results = {}
    for size in SIZES:
        command = [sys.executable, "-c", f"from f2cto.bench.memory import peak_of; print(peak_of({size}))"]
        runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(repeats)]  # noqa: S603
        results[str(size)] = max(int(run.stdout) for run in runs)
        say(f"{size} samples: {results[str(size)] / 2**30:.2f} GiB above {size * 3072 * 4 / 2**30:.2f} GiB of data")
    return results


def peak_of(size: int) -> int:
    """Peak bytes above the data over two iterations with `size` samples: in the second, w and w^ have come apart."""
    model = FlatModel(fresh(lambda: mlp(3072, (256,), 10), generator(0)))
    shards = random_shards(model, (3, 32, 32), [size], 10)
    before = peak()
    Running(F2cto(F2ctoSettings(perturbation=Perturbation(ramp=0)), radius=1e6), shards)
    return peak() - before
