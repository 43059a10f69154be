"""Requests to nodes over Flower's grid, and whatever came back."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from flwr.app import Error, Message
from flwr.serverapp import Grid
from httpx import HTTPError

from f2cto.federation.wire import Frame, WireError
from f2cto.flower.packing import ACTION, content_of, frame_of

EXPIRED, UNREAD, NO_NODE = 3, 4, 5  # of Flower's error codes, those that tell of the way and not of the app
LOOK = 5.0  # seconds between two looks at whether nodes were started anew
GRACE = 20.0  # seconds that a node has after its start to answer what was sent before


class AwayError(ConnectionError):
    """A site that cannot be reached though its node can."""


class LostNodeError(ConnectionError):
    """A node that cannot be reached; it may come back, also as another."""


class RefusedBySiteError(ValueError):
    """A site that was reached and said no."""


class UnreadableError(ValueError):
    """An answer that is none."""


class SuperLinkError(ConnectionError):
    """The SuperLink itself cannot be reached, and so nobody."""


Reply = Frame | Exception


@dataclass(frozen=True)
class Post:
    """Sends requests and waits for the answers.

    Args:
        grid: Flower's.
        seconds: how long a request may take; Flower forgets it then.
        poll: seconds between two looks.

    """

    grid: Grid
    seconds: float = 600.0
    poll: float = 0.2

    def online(self) -> set[int]:
        """The nodes that the SuperLink takes for connected; it notices a dead one after a minute."""
        try:
            return set(self.grid.get_node_ids())
        except HTTPError as error:
            raise _unreachable(error) from error

    def names(self) -> dict[int, str]:
        """The names that connected nodes were registered with; empty where they have none."""
        try:
            return {node.node_id: node.name for node in self.grid.get_nodes()}
        except HTTPError as error:
            raise _unreachable(error) from error

    def sent(self, requests: Mapping[int, Frame], seconds: float = 0.0) -> dict[int, Reply]:
        """What each node answered, or why it did not; `seconds` other than usual may be given."""
        seconds = seconds or self.seconds
        try:
            waiting = self._pushed(requests, seconds)
            unsent = LostNodeError("the SuperLink did not take the message; it may be too large")
            answers: dict[int, Reply] = dict.fromkeys(requests.keys() - waiting.values(), unsent)
            began, deadline, look = time.time(), time.monotonic() + seconds, time.monotonic() + LOOK
            while waiting:
                answers |= _taken(waiting, self.grid.pull_messages(list(waiting)))
                if not waiting or time.monotonic() >= deadline:
                    break
                if time.monotonic() >= look:
                    answers |= self._restarted(waiting, began)
                    look = time.monotonic() + LOOK
                time.sleep(self.poll)
        except HTTPError as error:
            raise _unreachable(error) from error
        return answers | {node: LostNodeError(f"no answer within {seconds:g} s") for node in waiting.values()}

    def _restarted(self, waiting: dict[str, int], since: float) -> dict[int, Reply]:
        """The nodes that were started anew after a message was sent; it is waited for no longer.

        Flower does not give a message that a killed node had taken to its successor, and says nothing about it. One
        that the killed node had not taken is answered soon after the start, so that it is let pass.
        """
        started = {node.node_id: _seconds(node.last_activated_at) for node in self.grid.get_nodes()}
        lost = {n: node for n, node in waiting.items() if since < started.get(node, 0.0) < time.time() - GRACE}
        for number in lost:
            del waiting[number]
        return {node: LostNodeError("its node was started anew and has lost the message") for node in lost.values()}

    def _pushed(self, requests: Mapping[int, Frame], seconds: float) -> dict[str, int]:
        """The nodes by the numbers of the messages to them."""
        # Most often all get the same, and packing parameters costs more than a look.
        contents = {id(frame): content_of(frame) for frame in requests.values()}
        messages = [
            Message(contents[id(frame)], dst_node_id=node, message_type=ACTION, ttl=seconds)
            for node, frame in requests.items()
        ]
        numbers = list(self.grid.push_messages(messages)) if messages else []
        return {number: node for number, node in zip(numbers, requests, strict=False) if number}


def _taken(waiting: dict[str, int], messages: Iterable[Message]) -> dict[int, Reply]:
    """What came, by node; it is waited for no longer. Errors come from the SuperLink, and only name the request."""
    found = dict[int, Reply]()
    for message in messages:
        node = waiting.pop(message.metadata.reply_to_message_id, None)
        if node is not None:
            found[node] = _why(message.error) if message.has_error() else _read(message)
    return found


def _read(message: Message) -> Reply:
    try:
        frame = frame_of(message.content)
    except WireError as error:
        return UnreadableError(str(error))
    if "error" not in frame.head:
        return frame
    said = str(frame.head["error"])[:500]
    return AwayError(said) if frame.head.get("away") else RefusedBySiteError(said)


def _why(error: Error) -> Exception:
    if error.code in {EXPIRED, UNREAD}:
        return LostNodeError("no answer in time")
    if error.code == NO_NODE:
        return LostNodeError("its node is not connected")
    return AwayError(f"the app at its node failed (Flower's error {error.code}: {error.reason})")


def _seconds(moment: str) -> float:
    """A moment as Flower writes it, in seconds since 1970; 0 where there is none."""
    try:
        return datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return 0.0


def _unreachable(error: HTTPError) -> SuperLinkError:
    return SuperLinkError(f"The SuperLink cannot be reached: {error}.")
