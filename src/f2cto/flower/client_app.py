"""What Flower starts at a site for every message: it passes the request on to the site's own process.

It imports neither torch nor anything that does, has no data and remembers nothing; `f2cto site` has all of it. Where
the site listens is said by the owner of the node: `flower-supernode --node-config 'socket="/path/of/site.sock"'`.
"""

from __future__ import annotations

import socket

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from f2cto.federation.wire import Frame, WireError, receive, send
from f2cto.flower.packing import ACTION, content_of, frame_of

app = ClientApp()


@app.query(ACTION.partition(".")[2])
def forward(message: Message, context: Context) -> Message:
    """Pass a request on and its answer back; failures come back as sentences, too."""
    try:
        answer = asked(context.node_config.get("socket"), frame_of(message.content), message.metadata.ttl)
    except WireError as error:
        answer = Frame({"error": str(error)})
    return Message(content_of(answer), reply_to=message)


def asked(path: object, request: Frame, seconds: float) -> Frame:
    """The answer of the site that listens at a path; `away` tells the master that it was not the site who spoke."""
    if not isinstance(path, str) or not path:
        return away("This node does not know where its site listens; start it with --node-config 'socket=\"PATH\"'.")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as to:
            to.settimeout(seconds)
            to.connect(path)
            send(to, request)
            return receive(to)
    except (OSError, WireError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        return away(f"The site's process does not answer ({reason}); start `f2cto site` there.")


def away(sentence: str) -> Frame:
    """The answer for a site that is not there. It names no path: the master need not know any."""
    return Frame({"error": sentence, "away": True})
