"""A Flower grid within one process: nodes are functions, messages are handed over as they are and kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from f2cto.federation.wire import Frame
from f2cto.flower.packing import content_of, frame_of

App = Callable[[Message, Context], Message]
SILENT = -1  # the code of an "error" that never arrives


class FailedError(Exception):
    """Lets a node fail with one of Flower's error codes."""

    def __init__(self, code: int, reason: str = "") -> None:
        """Keep both."""
        super().__init__(reason)
        self.code = code


@dataclass
class Node:
    """A connected node: an app and what Flower gives it."""

    app: App
    context: Context


@dataclass
class MemoryGrid(Grid):
    """Answers wait until they are pulled; whatever crossed is remembered.

    `before` is called with every message before it is handed over: it may raise as a killed master would.
    """

    nodes: dict[int, Node] = field(default_factory=dict)
    before: Callable[[Message], None] = lambda _: None
    crossed: list[RecordDict] = field(default_factory=list)
    sent: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Nothing has come yet."""
        self._waiting: dict[str, Message] = {}

    def connect(self, node: int, app: App, **config: str | int) -> None:
        """A node comes."""
        self.nodes[node] = Node(app, Context(1, node, dict(config), RecordDict(), {}))

    def set_run(self, run: Run) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Run:
        raise NotImplementedError

    def create_message(self, *args: object, **others: object) -> Message:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return [self._push(message) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._waiting.pop(number) for number in message_ids if number in self._waiting]

    def _push(self, message: Message) -> str:
        self.before(message)
        number = f"message {len(self.sent)}"
        message.metadata.__dict__["_message_id"] = number
        self.sent.append(message)
        self.crossed.append(message.content)
        try:
            reply = self._reply(message)
            self.crossed.append(reply.content)
        except FailedError as error:
            if error.code == SILENT:
                return number
            reply = Message(Error(error.code, str(error)), reply_to=message)
        self._waiting[number] = reply
        return number

    def _reply(self, message: Message) -> Message:
        if message.metadata.dst_node_id not in self.nodes:
            raise FailedError(5)
        node = self.nodes[message.metadata.dst_node_id]
        return node.app(message, node.context)


def app_of(answer: Callable[[Frame], Frame]) -> App:
    """An app that answers frames."""
    return lambda message, _: Message(content_of(answer(frame_of(message.content))), reply_to=message)
