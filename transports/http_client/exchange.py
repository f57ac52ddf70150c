"""One request to an upstream and its response, from the order to the end of its channel."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from ...core.base.effects import (
    Cause,
    Close,
    Connected,
    CookieChanges,
    Delete,
    End,
    Listen,
    Post,
    Primed,
    Queued,
    Send,
)
from ...core.base.errors import LocalProtocolError
from ...core.base.ids import ChannelId
from ...core.wire.headers import Headers
from ...core.wire.http.cookies import CookieStore, read_cookies
from ...core.wire.http.redirects import Redirect, judge_redirect
from ...core.wire.http.request import RequestForms
from ...core.wire.http.response import (
    ENDED_ORDERLY,
    Arrived,
    Begun,
    Dropped,
    Ended,
    Opened,
    Piece,
    ReplyEvent,
    ReplyReader,
)
from ...core.wire.http1.heads import PostHead
from ..base.port import Port

if TYPE_CHECKING:
    from .connection import Connection
    from .pool import Pool

_MESSAGES: Final = {Arrived}
_message_of: Final = attrgetter("message")
_log: Final = logging.getLogger("isthmus.http")


@dataclass(slots=True)
class Route:
    """What all requests to one endpoint share. `moved` is where the server has sent them for good."""

    pool: Pool
    target: bytes
    forms: RequestForms
    moved: bytes | None = None


class Reader(Protocol):
    """What a response is fed to; see `ReplyReader`."""

    @property
    def is_gathering(self) -> bool: ...
    def receive_head(self, status: int, headers: Headers) -> list[ReplyEvent]: ...
    def receive_body(self, data: bytes | bytearray) -> list[ReplyEvent]: ...
    def receive_eof(self, is_complete: bool, problem: str = "") -> list[ReplyEvent]: ...


class Exchange:
    """One request and its response: the `Outlet` of its channel. `Port.closed` is called for it exactly once.

    Attributes:
        is_lasting: it has a place among the streams that last, until it is over.
        post: the head of a request that has nothing of its own; `method` and `headers` of any other.
    """

    __slots__ = (
        "_channel",
        "_cookies",
        "_document",
        "_forms",
        "_is_lasting",
        "_opened",
        "_order",
        "_pool",
        "_port",
        "_reader",
        "_redirects",
        "_refusal",
        "_route",
        "body",
        "connection",
        "headers",
        "is_abandoned",
        "is_lasting",
        "is_over",
        "is_paused",
        "is_unsent",
        "may_be_whole",
        "method",
        "post",
        "target",
        "when_written",
    )

    def __init__(
        self,
        route: Route,
        target: Post | Listen | Delete,
        channel: ChannelId,
        port: Port,
        reader: Reader | None,
        path: bytes | None,
    ) -> None:
        self._order = target
        self._forms = route.forms
        self._reader = reader
        self.method = "POST"
        self.headers: list[tuple[bytes, bytes]] = []
        self.post: PostHead | None = None
        self._write()
        self.target = (route.moved or route.target) if path is None else path
        self.when_written: Callable[[], None] | None = None  # called once it is on its way whole
        self.connection: Connection | None = None
        self.is_unsent = True  # no byte of it was given to a socket
        self.may_be_whole = False  # its last byte was given to a socket
        self.is_abandoned = False
        self.is_over = False
        self.is_paused = False
        self.is_lasting = False
        self._route = route if path is None else None  # what is learnt of others' paths is of no further use
        self._pool = route.pool
        self._redirects = 0
        self._is_lasting = True  # so far, of all redirects
        self._refusal = ""  # why a redirect was not followed
        self._cookies: CookieChanges = ()  # not told yet
        self._opened: Connected | None = None  # not told yet, as is
        self._document: bytes | None = None
        self._channel = channel
        self._port = port

    def send(self, order: Send) -> None:
        raise LocalProtocolError("got a message for a request that was sent whole, expected a dial for each message")

    def close(self, order: Close) -> None:
        if self.is_over or self.is_abandoned:
            return
        self.is_abandoned = True
        if self.connection is not None:
            self.connection.give_up()
        elif self in self._pool.waiting:
            self._pool.waiting.remove(self)
            self._pool.client.end_soon(self, Cause(End.DONE))
        elif self in self._pool.client.queued:
            del self._pool.client.queued[self]
            self._pool.client.end_soon(self, Cause(End.DONE))

    def pause(self) -> None:
        self.is_paused = not self.is_over

    def resume(self) -> None:
        if self.is_paused:
            self.is_paused = False
            if self.connection is not None:
                self.connection.driver.resume()

    @property
    def reader(self) -> Reader:
        """What the response is fed to."""
        if self._reader is None:
            self._reader = ReplyReader(self._order, self._pool.client.limits)
        return self._reader

    @property
    def expects_document(self) -> bool:
        """Whether a success that is one document, or none, is all there is to know of it: no reader is needed then."""
        if self.post is None or self._reader is not None or self._redirects:
            return False
        return self._route is None or self._route.moved is None

    def report_document(self, opened: Connected, document: bytes) -> None:
        """The response is this, and is there in full; empty: what was sent was taken. Only if it `expects_document`."""
        self.is_over = True
        self._port.replied(self._channel, opened, document or None)

    def receive_head(self, status: int, headers: Headers) -> list[ReplyEvent] | None:
        """What the head of the final response tells. None: the server wants to be asked elsewhere, and has done nothing
        yet; the exchange is ready to be sent again."""
        for name, _ in headers:
            if name == b"set-cookie":
                self._receive_cookies(headers)
                break
        if 300 <= status <= 399 and self._follow(status, headers):
            return None
        if self._route is not None and (self._redirects or self._route.moved is not None):
            self._learn(self._route, status)
        return self.reader.receive_head(status, headers)

    def _receive_cookies(self, headers: Headers) -> None:
        address = self._pool.address
        self._cookies += read_cookies(
            headers, host=address.host, is_secure=address.scheme == "https", now_unix=time.time()
        )

    def _follow(self, status: int, headers: Headers) -> bool:
        """Whether the response is a redirect that is followed."""
        order = self._order
        is_personal = bool(order.headers or order.cookies or order.session is not None)
        found = judge_redirect(self._pool.address, self.target, status, headers, is_personal=is_personal)
        limit = self._pool.client.limits.redirects_max
        if isinstance(found, Redirect) and self._redirects < limit:
            self._redirects += 1
            self._is_lasting = self._is_lasting and found.is_lasting
            self.target = found.target
            self.is_unsent, self.may_be_whole = True, False
            if self._cookies:
                store = CookieStore(self._pool.client.limits)
                store.receive((*order.cookies, *self._cookies))
                self._order = msgspec.structs.replace(order, cookies=store.pairs)
                self._write()
            return True
        self._refusal = f"got more than {limit} redirects in a row" if isinstance(found, Redirect) else found or ""
        return False

    def _write(self) -> None:
        order = self._order
        self.post = self._forms.post_head(order) if isinstance(order, Post) else None
        if self.post is not None and isinstance(order, Post):
            self.body = order.message
            return
        self.method, self.headers, self.body = self._forms.fill(order)
        if self.method == "POST":
            self.headers.append((b"content-length", b"%d" % len(self.body)))

    def _learn(self, route: Route, status: int) -> None:
        """Later requests begin where this one was taken, and no longer where there is nothing any more. Many servers
        know neither GET nor DELETE, so what they say to these is no news."""
        if status < 300 and self._redirects and self._is_lasting:
            route.moved = self.target
        elif self.method == "POST" and status in (404, 405, 410) and route.moved == self.target:
            route.moved = None

    def report(self, fact: ReplyEvent) -> None:
        """Tell the port: of a reply that is one document, all at once, when it is there."""
        if self.is_abandoned:
            self.end(Cause(End.DONE))
        elif isinstance(fact, Opened) and self.reader.is_gathering:
            self._opened = self._connected(fact)
        elif isinstance(fact, Arrived) and self._opened is not None:
            self._document = fact.message
        elif isinstance(fact, Begun):
            self._begin(fact)
        elif isinstance(fact, Piece):
            self.is_over = fact.is_last
            self._port.part(self._channel, (fact.data,), is_last=fact.is_last)
        elif self._document is not None and isinstance(fact, Ended) and fact.cause is ENDED_ORDERLY:
            assert self._opened is not None
            self.is_over = True
            self.give_up_place()
            self._port.replied(self._channel, self._opened, self._document)
        else:
            self._report(fact)

    def report_messages(self, facts: Sequence[ReplyEvent]) -> bool:
        """Tell the port of several messages at once, if these facts are that and nothing else, and are wanted now. They
        come on an event stream: of a document there is one."""
        if self.is_paused or self.is_abandoned or set(map(type, facts)) != _MESSAGES:
            return False
        self._port.arrived(self._channel, list(map(_message_of, facts)))
        return True

    def _begin(self, fact: Begun) -> None:
        """Have the document passed on as it comes, if it may be."""
        opened, reader = self._opened, self.reader
        if opened is not None and self._port.passes(self._channel, fact.beginning, fact.size_bytes):
            assert isinstance(reader, ReplyReader)
            self._opened = None
            self._port.part(self._channel, reader.pass_on(), opening=opened, size_bytes=fact.size_bytes)

    def _report_held(self) -> None:
        """What waited for more does so in vain."""
        if self._opened is not None:
            opened, self._opened = self._opened, None
            self._port.opened(self._channel, opened)
        if self._document is not None:
            document, self._document = self._document, None
            self._port.message(self._channel, document)

    def _report(self, fact: ReplyEvent) -> None:
        self._report_held()
        if isinstance(fact, Arrived):
            self._port.message(self._channel, fact.message)
        elif isinstance(fact, Opened):
            self._port.opened(self._channel, self._connected(fact))
        elif isinstance(fact, Ended):
            self.end(fact.cause)
        elif isinstance(fact, Dropped):
            _log.warning("%s: %s; dropped", self._pool.address.authority.decode(), fact.detail)
        else:
            self._port.opened(self._channel, Primed())

    def _connected(self, fact: Opened) -> Connected:
        cookies, self._cookies = self._cookies, ()
        return Connected(fact.session, cookies)

    def end(self, cause: Cause) -> None:
        if not self.is_over:
            self.is_over = True
            self.give_up_place()
            if not self.is_abandoned:
                self._report_held()
            if self._refusal and cause.end is End.REFUSED:
                cause = msgspec.structs.replace(cause, detail=self._refusal)
            if self._cookies and not self.is_abandoned:
                cause = msgspec.structs.replace(cause, cookies=self._cookies)
            self._port.closed(self._channel, Cause(End.DONE) if self.is_abandoned else cause)

    def forget_request(self) -> None:
        """The server has taken it: it will not be sent again. Of streams that last there may be thousands."""
        self.headers, self.body = [], b""

    def take_place(self) -> None:
        """It goes on as long as its session does, and there is room for it."""
        self.is_lasting = True
        self._pool.note_lasting(1)
        self._pool.dispatch(self)

    def give_up_place(self) -> None:
        """It is about to be over: what its connection does from here on is no stream that lasts."""
        if self.is_lasting:
            self.is_lasting = False
            self._pool.note_lasting(-1)
            self._pool.client.admit_queued()

    async def report_queued(self) -> None:
        if self in self._pool.client.queued:
            self._port.opened(self._channel, Queued())

    async def end_later(self, cause: Cause) -> None:
        self.end(cause)


def stopped(is_unsent: bool) -> Cause:
    """What ends a request when the client stops."""
    return Cause(End.BROKEN, "shutting down", unsent=is_unsent)
