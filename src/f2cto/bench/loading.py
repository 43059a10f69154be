"""How long the data sets take to load, and the memory it needs; files are in the page cache, as after a first use."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from f2cto.bench.measure import Say, interleaved, peak
from f2cto.data.folder import data_folder
from f2cto.data.sources import SOURCES


def load(repeats: int, say: Say) -> dict[str, Any]:
    """The median seconds and the peak megabytes of loading each source that is in the data folder; which are absent."""
    root = data_folder()
    present = {name: source for name, source in SOURCES.items() if source.here(root)}
    seconds = interleaved({name: partial(source.load, root) for name, source in present.items()}, repeats)
    results: dict[str, Any] = {}
    for name in present:
        results[name] = {"seconds": seconds[name], "megabytes": _peak_apart(name, root) / 1e6}
        say(f"{name}: {seconds[name]:.3f} s, {results[name]['megabytes']:.0f} MB at the peak")
    results["absent"] = [name for name in SOURCES if name not in present]
    if results["absent"]:
        say(f"not in {root}: {', '.join(results['absent'])}; `f2cto data list` says how to come by them")
    return results


def peak_of(name: str, root: str) -> int:
    """Peak bytes of loading above what the process held before; mapped files count with what was read of them."""
    before = peak()
    SOURCES[name].load(Path(root))
    return peak() - before


def _peak_apart(name: str, root: Path) -> int:
    """The same in a process of its own, since peaks never come down again."""
    code = f"from f2cto.bench.loading import peak_of; print(peak_of({name!r}, {str(root)!r}))"
    return int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)  # noqa: S603
