"""One request of a client over HTTP, with the reply to it, for a driver whose server library reads and writes HTTP.

A `ServerExchange` joins the rules of `wire/http` to one channel of the engine: it routes the request, gathers its body,
opens the channel, turns the orders for it into a head, pieces of a body and an end, and says how the channel ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from .access.identity import Identity
from .base.effects import Close, Effect, Pass, Send, SendEvents, check_channel
from .base.errors import LocalProtocolError
from .base.events import Cause, End, EventPipeOpening, GetOpening
from .base.grants import NO_GRANTS, Grants
from .base.limits import Limits
from .wire.headers import check_form
from .wire.http.callers import of_caller
from .wire.http.error_responses import not_found, refusal
from .wire.http.reply import HttpReply, HttpReplyState, Out, ReplyBody, ReplyCut, ReplyDocument, ReplyEnd, ReplyHead
from .wire.http.routes import Head, McpRoute, Refused, Surface
from .wire.http.server import judge, reply_to, shared_headers

if TYPE_CHECKING:
    from .engine import Engine

_LIMITS: Final = Limits()

Written = ReplyHead | ReplyBody | ReplyEnd | ReplyCut
"""A part of a reply: a head, pieces of the body, then an end. `ReplyCut` in place of the end says that the reply is not
whole: the driver closes the connection, so that the client sees that."""


class ServerExchange:
    """One request to the paths `/mcp`, `/sse` and `/messages`, and its reply. Any other request gets a 404.

    `/mcp/ID` is the endpoint of a server, and `/mcp` that of the only one. `Surface.areas` names what of it is served.

    A driver feeds the body (`receive_body`) while `wants_body`, and calls `begin`. From then on it gives the exchange
    each order for its `channel` (`receive_order`), writes what `take` returns and says so (`written`), until `is_over`.
    Then, or as soon as the client is gone, it calls `end`. What `begin`, `written` and `end` return are orders of the
    engine for any channel, which the driver queues as it does those of the engine's own inputs. A request that is
    refused goes the same way: nothing of its body is wanted, and `begin` and `end` return nothing.

    Args:
        principal: the client, as the program around this one has authenticated it; "" is anonymous. A session is bound
            to it. Anonymous clients of 2026-07-28 may share a session with a server (`Plan.affinity`).
        address: where the request came from, for limits by address; "" if all clients may share one.
        grants: the client's scopes and groups, where the plan has access rules (`ServerPlan.access`).

    Attributes:
        channel: the number of its channel. The engine does not know it before `begin`.
        route: what the request asks for. A driver with pages of its own may serve a route that is no `McpRoute` itself.

    Raises:
        LocalProtocolError: a header is no pair of bytes, or its name is not in lower case.
    """

    def __init__(
        self,
        engine: Engine,
        surface: Surface,
        head: Head,
        *,
        limits: Limits = _LIMITS,
        scheme: str = "http",
        principal: str = "",
        address: str = "",
        grants: Grants = NO_GRANTS,
    ) -> None:
        check_form(head.headers)
        if head.root.endswith("/"):
            head = msgspec.structs.replace(head, root=head.root.rstrip("/"))
        self.channel = engine.new_channel()
        self.route = judge(head, surface, scheme=scheme, address=address)
        if isinstance(self.route, McpRoute):
            self.route = of_caller(self.route, Identity(principal, grants.scopes, grants.groups))
        self._engine = engine
        self._limits = limits
        self._shared = shared_headers(head, surface)
        self._body = bytearray()
        self._has_body = isinstance(self.route, McpRoute)  # all of it is here once this is False
        self._reply: HttpReply | None = None
        self._outs: list[Written] = []
        self._sent_bytes = 0  # of messages whose pieces `take` has returned, or will
        self._is_open = False
        self._is_written = False
        self._is_ended = False  # no further part of the reply follows those in `_outs`
        if not isinstance(self.route, McpRoute):
            self._refuse(
                self.route
                if isinstance(self.route, Refused)
                else not_found(head.target.partition("?")[0].removeprefix(head.root), surface, head.root)
            )

    @property
    def wants_body(self) -> bool:
        """True if the rest of the request's body is to be read."""
        return self._has_body and not self._is_ended

    @property
    def is_over(self) -> bool:
        """True if the reply has ended, and `take` has returned all of it."""
        return self._is_ended and not self._outs

    def receive_body(self, data: bytes, *, is_last: bool) -> None:
        """Takes a piece of the request's body. A body over `Limits.request_size_max_bytes` is refused (413).

        Raises:
            LocalProtocolError: the last piece has come already.
        """
        if self._is_ended:
            return
        if not self._has_body:
            raise LocalProtocolError("got a piece of a body after its last one, expected `begin`")
        self._has_body = not is_last
        limit = self._limits.request_size_max_bytes
        if len(self._body) + len(data) > limit:
            self._body.clear()
            self._refuse(refusal(413, f"got over {limit} bytes, expected at most {limit}", is_mcp=True))
        else:
            self._body += data

    def begin(self, now: float) -> list[Effect]:
        """Opens the channel, and reports the message of a POST.

        Raises:
            LocalProtocolError: the body is not whole, or the exchange has begun.
        """
        if self._is_ended:
            return []
        assert isinstance(self.route, McpRoute)
        if self._has_body or self._is_open:
            seen = "twice" if self._is_open else "before the whole body"
            raise LocalProtocolError(f"got `begin` {seen}, expected it once, after the last piece of the body")
        self._is_open = True
        self._reply = reply_to(self.route.opening)
        effects = self._engine.receive_open(self.channel, self.route.opening, now)
        if self.route.is_posted:
            message, self._body = bytes(self._body), bytearray()
            effects = effects + self._engine.receive_message(self.channel, message, now)
        is_stream = isinstance(self.route.opening, GetOpening | EventPipeOpening)
        if is_stream and not any(getattr(effect, "channel", None) == self.channel for effect in effects):
            self._put(self._reply.open())  # its client waits for the head
        return effects

    def receive_order(self, order: Effect) -> None:
        """Turns an order of the engine for this channel into what is to be written. Orders after the end of the reply,
        `Pause` and `Resume` change nothing.

        Raises:
            LocalProtocolError: the order is for another channel, or for none.
        """
        check_channel(order, self.channel)
        reply = self._reply
        if reply is None or self._is_ended:
            return
        if isinstance(order, Send):
            self._sent_bytes += len(order.message)
            self._put(reply.receive_send(order))
        elif isinstance(order, SendEvents):
            self._sent_bytes += sum(map(len, order.messages))
            self._put(reply.receive_events(order))
        elif isinstance(order, Pass):
            self._sent_bytes += sum(map(len, order.pieces))
            self._put(reply.receive_pass(order))
        elif isinstance(order, Close):
            self._put(reply.receive_close(order))

    def keep_alive(self) -> None:
        """Writes a comment on an event stream. A driver calls it after `Limits.keep_alive_s` without an order."""
        if self._reply is not None:
            self._put(self._reply.keep_alive())

    def take(self) -> list[Written]:
        """Removes and returns what is to be written: a `ReplyHead`, a `ReplyBody` for each piece, and a `ReplyEnd`, or
        a `ReplyCut` in its place if the reply stays incomplete."""
        outs, self._outs = self._outs, []
        return outs

    def written(self, now: float) -> list[Effect]:
        """Reports that all that `take` has returned was written. A driver does so after each `take`."""
        if self._outs:
            return []
        self._is_written = self.is_over
        if not self._sent_bytes:
            return []
        sent_bytes, self._sent_bytes = self._sent_bytes, 0
        return self._engine.receive_sent(self.channel, sent_bytes, now)

    def end(self, now: float) -> list[Effect]:
        """Reports the end of the channel: that the reply was written in full, or that the client is gone. Before
        `begin` there is none."""
        if not self._is_open:
            return []
        self._is_open = False
        self._is_ended = True
        self._outs.clear()
        return self._engine.receive_close(self.channel, Cause(End.DONE if self._is_written else End.GONE), now)

    def _refuse(self, refused: Refused) -> None:
        self._is_ended = True
        length = (b"content-length", b"%d" % len(refused.body))
        headers = (
            refused.headers if any(name == length[0] for name, _ in refused.headers) else (*refused.headers, length)
        )
        self._outs += [ReplyHead(refused.status, (*headers, *self._shared)), ReplyBody(refused.body), ReplyEnd()]

    def _put(self, outs: list[Out]) -> None:
        for out in outs:
            if isinstance(out, ReplyDocument):
                length = (b"content-length", b"%d" % sum(map(len, out.pieces)))
                self._outs.append(ReplyHead(out.status, (*out.headers, length, *self._shared)))
                self._outs += [*map(ReplyBody, out.pieces), ReplyEnd()]
            elif isinstance(out, ReplyHead):
                self._outs.append(ReplyHead(out.status, (*out.headers, *self._shared)))
            else:
                self._outs.append(out)
        self._is_ended = self._reply is not None and self._reply.state is HttpReplyState.ENDED
