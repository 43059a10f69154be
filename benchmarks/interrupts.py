"""Ctrl-C at random moments of `f2cto select`: exit code, seconds until the end, and what is said.

python benchmarks/interrupts.py --times 50 --seconds 8

Moments at which Python itself still starts belong to Python, and are not drawn: see --first. Fails if one call does not
end with exit code 130, within two seconds and with one sentence.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMAND = [sys.executable, "-c", "from f2cto.cli import program; program()", "select", "--preset", "digits"]
OPTIONS = ["--iterations", "100000", "--no-judge", "--quiet"]
BOUND = 2.0  # seconds


def interrupted(moment: float, out: Path) -> tuple[int, float, str]:
    """The exit code, the seconds that the end took, and what was said."""
    process = subprocess.Popen([*COMMAND, *OPTIONS, "--out", str(out)], stderr=subprocess.PIPE, text=True)  # noqa: S603
    time.sleep(moment)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    try:
        _, said = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        _, said = process.communicate()
    return process.returncode, time.monotonic() - began, said


def main() -> int:
    """One line a call that did not end well, and the sum."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=50, help="how many calls")
    parser.add_argument("--first", type=float, default=0.2, help="the earliest moment, in seconds")
    parser.add_argument("--seconds", type=float, default=8.0, help="the last one")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    rng, bad, slowest = random.Random(chosen.seed), 0, 0.0  # noqa: S311  (moments, no secrets)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(chosen.times):
            moment = rng.uniform(chosen.first, chosen.seconds)
            code, took, said = interrupted(moment, Path(folder, str(number)))
            slowest = max(slowest, took)
            if code != 130 or took > BOUND or said.count("\n") != 1:
                bad += 1
                print(f"at {moment:.2f} s: exit code {code} after {took:.2f} s: {said[-300:]}", flush=True)
    print(f"{chosen.times - bad} of {chosen.times} calls ended with 130 within {BOUND:g} s; slowest {slowest:.2f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
