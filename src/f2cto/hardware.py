"""What the machine does well, by rules that were measured (`f2cto bench hardware`, docs/performance.md)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum

import torch

# Passes that hold less than this are slower on two threads than on one.
ONE_THREAD_BYTES = 2 * 2**20


class Precision(StrEnum):
    """The numbers that attacks are computed with; all else is computed with those of the data."""

    AUTO = "auto"  # bfloat16 where the network convolves and the processor is fast with it
    FULL = "full"  # as the data are
    BFLOAT16 = "bfloat16"


def threads(pass_bytes: int) -> int:
    """How many threads a pass of that many bytes should have: one for small ones, else all cores."""
    return 1 if pass_bytes < ONE_THREAD_BYTES else cores()


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def device(name: str) -> torch.device:
    """A device by name, once something has been computed on it."""
    try:
        found = torch.device(name)
        torch.zeros(1, device=found).add_(1)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        msg = f"There is no device `{name}` to compute on here; use `cpu`, or `cuda` where torch finds one."
        raise ValueError(msg) from error
    return found


def rough(wanted: Precision, device: torch.device, *, convolves: bool) -> bool:
    """Whether attacks on a network are computed in bfloat16."""
    return wanted is Precision.BFLOAT16 or (wanted is Precision.AUTO and convolves and fast_bfloat16(device))


def fast_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 natively; others emulate it, many times slower than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    # Versions of torch that do not list capabilities stay on the safe side.
    known: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return device.type == "cpu" and bool(known.get("avx512_bf16") or known.get("amx_bf16"))
