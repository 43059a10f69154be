"""The memory of one process that selects again and again: resident bytes after every so many selections of the digits.

Examples:
    python benchmarks/repeats.py                        # 300 selections of two iterations
    python benchmarks/repeats.py --method herding

"""

from __future__ import annotations

import argparse
import gc
from pathlib import Path

import torch
from sklearn.datasets import load_digits

from f2cto import select

PAGE = 4096
SETTINGS = {"f2cto": {"stopping": {"iterations": 2}}}


def main() -> None:
    """Select and print; the collector is off, so that only what is let go of at once is gone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--selections", type=int, default=300)
    parser.add_argument("--method", default="f2cto")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    gc.disable()
    x, y = load_digits(return_X_y=True)
    for seed in range(chosen.selections):
        select([(x / 16, y)], 20, method=chosen.method, settings=SETTINGS.get(chosen.method, {}), seed=seed)
        if seed in {4, 9} or (seed + 1) % 50 == 0:
            print(f"{seed + 1} selections: {resident() / 2**20:.0f} MiB", flush=True)


def resident() -> int:
    """The bytes of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


if __name__ == "__main__":
    main()
