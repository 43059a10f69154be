"""A web server on this machine that can break off, forget about ranges and change its mind."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """What the server has, how it behaves, and what it was asked for."""

    files: dict[str, bytes] = field(default_factory=dict)  # by name
    url: str = ""
    ranges: bool = True  # whether it can send a part of a file
    breaks_after: int | None = None  # bytes it sends before it hangs up
    asked: list[tuple[str, str | None]] = field(default_factory=list)  # (name, the range asked for)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Send what is asked for."""
        name, wanted = handler.path.lstrip("/"), handler.headers["Range"]
        self.asked.append((name, wanted))
        content = self.files.get(name)
        if content is None:
            handler.send_error(404)
            return
        start = int(re.findall(r"\d+", wanted)[0]) if wanted and self.ranges else 0
        if start and start >= len(content):
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{len(content)}")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Length", str(len(content) - start))
        handler.end_headers()
        handler.wfile.write(content[start : self.breaks_after])


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Site]:
    """A running server with the given files."""
    site = Site(files)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.answer(self)

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
