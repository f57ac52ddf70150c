"""The outlets of HTTP requests: what the engine's owner holds while a reply is due."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import anyio

from ...core.base.effects import Close, Forward, Pass, Send, SendEvents
from ...core.base.errors import LocalProtocolError
from ...core.base.ids import ChannelId
from ...core.base.storage import Append, Cease, Receive, Serve
from ...core.wire.http.reply import (
    HttpReply,
    HttpReplyState,
    Out,
    ReplyBody,
    ReplyCut,
    ReplyDocument,
    ReplyEnd,
    ReplyHead,
)
from ...core.wire.http.routes import McpRoute, Refused, UploadRoute
from ..base.traffic import Traffic


class Sink(Protocol):
    """The connection of an exchange, which writes its reply."""

    def queue(self, exchange: Exchange, outs: Sequence[Out], message_bytes: int) -> None:
        """Writes `outs` when the peer takes them. `message_bytes` of them belong to messages."""

    def cut_off(self, exchange: Exchange, reason: str) -> None:
        """Ends the connection, and drops what it has not written of the reply, if that is still due."""

    def start_download(self, exchange: FileExchange, order: Serve) -> None:
        """Starts the task that sends a stored file."""

    def stop_intake(self) -> None:
        """Cancels the task that consumes the request's body, if there is one."""

    def forward(self, exchange: Exchange, order: Forward) -> None:
        """Passes the request on to another replica, if the reply is still due."""


Request = tuple[McpRoute | UploadRoute, bytes | None]
"""The route and the body of a request that another replica may have to answer. The body of an upload is None: it is
still to come."""


class Exchange:
    """One request and its reply: the `Outlet` of its channel.

    Attributes:
        channel: set once the engine knows of the request; None before, and after the engine was told of its end.
        is_ended: the end of the reply is queued.
        request: the request, if there are other replicas.
        leaves_at_once: nothing is added after the end of the reply is queued, so it can be written at once.
    """

    __slots__ = ("_is_due", "_is_passed", "_reply", "_sink", "channel", "head_only", "is_ended", "request")

    leaves_at_once = True

    def __init__(self, sink: Sink, reply: HttpReply, *, head_only: bool = False) -> None:
        self.channel: ChannelId | None = None
        self.head_only = head_only
        self.is_ended = False
        self.request: Request | None = None
        self._sink = sink
        self._reply = reply
        self._is_due = False  # the next call of `keep_alive` writes
        self._is_passed = False

    def send(self, order: Send) -> None:
        self.put(self._reply.receive_send(order), len(order.message))

    def send_events(self, order: SendEvents) -> None:
        self._sink.queue(self, self._reply.receive_events(order), sum(map(len, order.messages)))

    def pass_on(self, order: Pass) -> None:
        self.put(self._reply.receive_pass(order), sum(map(len, order.pieces)))

    def close(self, order: Close) -> None:
        if order.drops:
            self._sink.cut_off(self, order.reason)
        elif not (self.is_ended or self._is_passed):
            self.put(self._reply.receive_close(order))

    def forward(self, order: Forward) -> None:
        self._sink.forward(self, order)

    @property
    def has_begun(self) -> bool:
        """True if something of the reply was written, if only a comment."""
        return self._reply.state is not HttpReplyState.SILENT

    def hand_over(self) -> None:
        """Leaves the reply to another replica, whose bytes the connection writes."""
        self._is_passed = True

    def pause(self) -> None:
        """Does nothing: the request was read in full before the engine was told of it."""

    def resume(self) -> None:
        """Does nothing, see `pause`."""

    def open_stream(self) -> None:
        """Opens the event stream, so that the client sees its head, unless the reply has begun already."""
        if self._reply.state is HttpReplyState.SILENT:
            self.put(self._reply.open())

    def keep_alive(self) -> None:
        """Writes a comment at every second call, which opens a reply that has not begun. Called twice in each
        `Limits.keep_alive_s`, so that a reply is opened within that time, and none earlier than after half of it."""
        self._is_due = not self._is_due
        if not (self._is_due or self._is_passed) and (outs := self._reply.keep_alive()):
            self.put(outs)

    def answer(self, refused: Refused) -> None:
        """Replies without the engine. Nothing of a reply may have been written."""
        self.put([ReplyHead(refused.status, refused.headers), ReplyBody(refused.body), ReplyEnd()])

    def put(self, outs: Sequence[Out], message_bytes: int = 0) -> None:
        """Queues what follows of the reply. `message_bytes` of it belong to messages."""
        if isinstance(outs[-1], (ReplyDocument, ReplyEnd, ReplyCut)):
            self.is_ended = True
        self._sink.queue(self, outs, message_bytes)


class FileExchange(Exchange):
    """The exchange of an upload or a download. The engine allows it with `receive`, `append` or `serve`, or refuses it
    with `send`.

    Attributes:
        traffic: the counters of the transfer.
        decided: set when the engine has decided.
        receiving: the order to take in the body, if the engine gave one.
        is_ceased: the engine wants no more of the body.
    """

    __slots__ = ("_is_serving", "decided", "is_ceased", "receiving", "traffic")

    leaves_at_once = False  # the cause of a failed upload is reported after it was answered

    def __init__(self, sink: Sink, traffic: Traffic, *, head_only: bool = False) -> None:
        super().__init__(sink, HttpReply(accepts_events=False), head_only=head_only)
        self.traffic = traffic
        self.decided = anyio.Event()
        self.receiving: Receive | Append | None = None
        self.is_ceased = False
        self._is_serving = False

    def receive(self, order: Receive) -> None:
        self.receiving = order
        self.decided.set()

    def append(self, order: Append) -> None:
        self.receiving = order
        self.decided.set()

    def cease(self, order: Cease) -> None:
        self.is_ceased = True  # for a task that is about to begin
        if not self.is_ended:
            self._sink.stop_intake()

    def forward(self, order: Forward) -> None:
        super().forward(order)
        self.decided.set()

    def hand_over(self) -> None:
        super().hand_over()
        self.traffic.leave()

    def serve(self, order: Serve) -> None:
        if self._is_serving or self.is_ended:
            raise LocalProtocolError("got a second answer to a download, expected one")
        self._is_serving = True
        self._sink.start_download(self, order)

    def send(self, order: Send) -> None:
        if self._is_serving:
            raise LocalProtocolError("got a message for a download that is being served, expected none")
        super().send(order)

    def close(self, order: Close) -> None:
        if not self._is_serving:  # a file that is being served is delivered in full, and ends by itself
            super().close(order)

    def put(self, outs: Sequence[Out], message_bytes: int = 0) -> None:
        super().put(outs, message_bytes)
        if isinstance(outs[0], (ReplyDocument, ReplyHead)):
            self.traffic.status = outs[0].status
        if self.is_ended:
            self.decided.set()
            self._sink.stop_intake()
