"""A secret of one's own for the Ray clusters that this program starts: they listen on every interface of the machine.

Ray knows tokens from 2.52 on. It reads the environment when it is imported, and again only if told to, for which there
is no public way; where that has changed, or Ray is older, clusters start without one, as Ray itself has it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable

MODE, TOKEN = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"


def guarded() -> Callable[[], None]:
    """Let nobody into clusters started from now on who has not a token made for them; what is returned undoes it.

    The token is in the environment of this program and of the cluster's processes, in no file and in no log. Whoever
    has set a mode already keeps it.
    """
    reread = _reader()
    if reread is None or MODE in os.environ:
        return lambda: None
    before = os.environ.get(TOKEN)
    os.environ |= {MODE: "token", TOKEN: secrets.token_hex(32)}
    reread()

    def undo() -> None:
        for name in (MODE, TOKEN):
            os.environ.pop(name, None)
        if before is not None:
            os.environ[TOKEN] = before
        reread()

    return undo


def _reader() -> Callable[[], None] | None:
    """What lets Ray look at the environment again; none where it knows no tokens."""
    try:
        from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]  # noqa: PLC0415
    except ImportError:
        return None

    def reread() -> None:
        AuthenticationTokenLoader.instance().reset_cache()
        Config.initialize("")

    return reread
