"""The way in for nodes on other machines: it passes on what nodes send and refuses the rest.

Flower's SuperLink has one port for everything, and who reaches it may start runs, and so have any code run, without
giving a name. It therefore listens on its own machine only, and this gate stands outside: of all paths only those of
nodes go through, and these the SuperLink checks itself, by the nodes' keys. Bodies are passed on as they are.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from pathlib import Path

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

NODES = re.compile("/v1/fleet/[a-z-]+")  # the paths of nodes, letter by letter: no dots, no slashes, no escapes
REFUSED = "This gate is for the nodes of sites; everything else is done on the master's own machine.\n"
# What belongs to one connection is not passed on to the next (RFC 9110, 7.6.1); lengths and coding are made anew.
HOP = frozenset(
    {
        *{"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host"},
        *{"accept-encoding", "content-encoding", "content-length"},
    }
)
LARGEST = 64 * 2**20  # bytes of a request; Flower sends arrays in pieces of 5 MiB
SECONDS = 120.0


def gate(port: int, certificate: Path | None) -> Starlette:
    """The gate to the SuperLink at `port` of this machine; `certificate` is its authority's, None without TLS."""
    secure = ssl.create_default_context(cafile=str(certificate)) if certificate else False
    base = f"http{'s' if certificate else ''}://127.0.0.1:{port}"
    inside = httpx.AsyncClient(base_url=base, verify=secure, timeout=SECONDS, trust_env=False)

    async def passed_on(request: Request) -> Response:
        path = request.scope["path"]
        if request.method != "POST" or not NODES.fullmatch(path):
            return Response(REFUSED, 403)
        if (body := await _body(request)) is None:
            return Response(f"A request has at most {LARGEST} bytes.\n", 413)
        try:
            reply = await inside.post(path, headers=_kept(request.headers), content=body)
        except httpx.HTTPError:
            return Response("The SuperLink does not answer.\n", 502)
        return Response(reply.content, reply.status_code, _kept(reply.headers))

    return Starlette(routes=[Route("/{path:path}", passed_on, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])])


async def _body(request: Request) -> bytes | None:
    """All of it; None where it is too large."""
    pieces, size = [], 0
    async for piece in request.stream():
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST:
            return None
    return b"".join(pieces)


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP}
