"""What makes each method quick enough to be tried on every federation; all else is left as it is."""

from __future__ import annotations

from typing import Any


def shared_model(rounds: int = 1) -> dict[str, Any]:
    """A shared model that is trained for a moment."""
    return {"pretraining": {"rounds": rounds, "local": {"steps": 2}}}


def quick(rounds: int = 1) -> dict[str, dict[str, Any]]:
    """Settings by method, for those that have settings of their own."""
    return {
        "f2cto-sparse": {"effort": "quick", "epochs": 1, "rounds": 2},
        "f2cto-ef": {
            "filtering": {"rounds": 2, "since": 1},
            "proxies": {"count": 1, "steps": 2},
            "feedback": {"sweeps": 1, "slots": 0},
        },
        **dict.fromkeys(("easy", "acs", "gcfl", "fedcs"), shared_model(rounds)),
        "bcsr": {"outer_steps": 3, **shared_model(rounds)},
        "tsg": {"iterations": 2},
        **{name: {"iterations": 4} for name in ("afto", "dtzo", "adbo")},
        "fednest": {"nesting": {"rounds": 2}},
    }
