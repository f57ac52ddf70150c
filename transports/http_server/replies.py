"""The writing ends of HTTP requests: what the owner of the engine holds while a reply is due."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import anyio

from ...core.base.effects import Append, Cease, Close, Pass, Receive, Send, SendEvents, Serve
from ...core.base.errors import LocalProtocolError
from ...core.base.ids import ChannelId
from ...core.wire.http.reply import Out, Reply, ReplyBody, ReplyCut, ReplyDocument, ReplyEnd, ReplyHead, State
from ...core.wire.http.routes import Refused
from ..base.traffic import Traffic


class Sink(Protocol):
    """What an exchange asks of the connection it came on."""

    def queue(self, exchange: Exchange, outs: Sequence[Out], message_bytes: int) -> None:
        """Write `outs` when the peer takes them; `message_bytes` of them are a message's."""

    def start_download(self, exchange: FileExchange, order: Serve) -> None: ...

    def stop_intake(self) -> None: ...


class Exchange:
    """One request and its reply: the `Outlet` of its channel.

    Attributes:
        channel: set once the engine knows of it; None before, and again when it was told of the end.
        is_ended: the end of the reply is queued.
        leaves_at_once: whoever queues the end has nothing to add to it.
    """

    __slots__ = ("_reply", "_sink", "_was_silent", "channel", "head_only", "is_ended")

    leaves_at_once = True

    def __init__(self, sink: Sink, reply: Reply, *, head_only: bool = False) -> None:
        self.channel: ChannelId | None = None
        self.head_only = head_only
        self.is_ended = False
        self._sink = sink
        self._reply = reply
        self._was_silent = False

    def send(self, order: Send) -> None:
        self.put(self._reply.receive_send(order), len(order.message))

    def send_events(self, order: SendEvents) -> None:
        self._sink.queue(self, self._reply.receive_events(order), sum(map(len, order.messages)))

    def pass_on(self, order: Pass) -> None:
        self.put(self._reply.receive_pass(order), sum(map(len, order.pieces)))

    def close(self, order: Close) -> None:
        if not self.is_ended:
            self.put(self._reply.receive_close(order))

    def pause(self) -> None:
        """The request was read in full before the engine heard of it: there is nothing to pause."""

    def resume(self) -> None:
        """See `pause`."""

    def open_stream(self) -> None:
        """Show the client that its stream is open, unless the reply has begun already."""
        if self._reply.state is State.SILENT:
            self.put(self._reply.open())

    def keep_alive(self) -> None:
        """Called every so often: what has been silent for a whole round since the last call is kept alive."""
        if self._reply.state is State.SILENT and not self._was_silent:
            self._was_silent = True
        elif outs := self._reply.keep_alive():
            self.put(outs)

    def answer(self, refused: Refused) -> None:
        """Reply on our own account. Nothing may have been written."""
        self.put([ReplyHead(refused.status, refused.headers), ReplyBody(refused.body), ReplyEnd()])

    def put(self, outs: Sequence[Out], message_bytes: int = 0) -> None:
        """Queue what follows next of the reply; `message_bytes` of it are a message's."""
        if isinstance(outs[-1], (ReplyDocument, ReplyEnd, ReplyCut)):
            self.is_ended = True
        self._sink.queue(self, outs, message_bytes)


class FileExchange(Exchange):
    """An upload or a download: the engine allows it with `receive`, `append` or `serve`, or answers it with `send`.

    Attributes:
        traffic: what is counted of it.
        decided: set when the engine has decided.
        receiving: the permission to take in the body, if that was the decision.
        is_ceased: no more of it is wanted.
    """

    __slots__ = ("_is_serving", "decided", "is_ceased", "receiving", "traffic")

    leaves_at_once = False  # how an upload failed is told after it was answered

    def __init__(self, sink: Sink, traffic: Traffic, *, head_only: bool = False) -> None:
        super().__init__(sink, Reply(accepts_events=False), head_only=head_only)
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
        self.is_ceased = True  # for who is about to begin
        if not self.is_ended:
            self._sink.stop_intake()

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
        if not self._is_serving:  # what is being served is delivered, and ends by itself
            super().close(order)

    def put(self, outs: Sequence[Out], message_bytes: int = 0) -> None:
        super().put(outs, message_bytes)
        if isinstance(outs[0], (ReplyDocument, ReplyHead)):
            self.traffic.status = outs[0].status
        if self.is_ended:
            self.decided.set()
            self._sink.stop_intake()
