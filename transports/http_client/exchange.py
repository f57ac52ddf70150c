"""One request to an upstream server and its response, from the order to the end of its channel."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import msgspec

from ...core.base.budget import Share
from ...core.base.effects import Close, Delete, Listen, Post, Send
from ...core.base.errors import LocalProtocolError
from ...core.base.events import Cause, Connected, CookieChanges, End, Primed, Queued
from ...core.base.ids import ChannelId
from ...core.wire.headers import Headers
from ...core.wire.http.coded_response import CodedReader, Reader
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
    ResponseReader,
)
from ...core.wire.http1.heads import PostHead
from ..base.decompressors import added_coding
from ..base.port import Port
from ..base.tokens import with_value

if TYPE_CHECKING:
    from .connection import Connection
    from .pool import Pool

_MESSAGES: Final = {Arrived}
_message_of: Final = attrgetter("message")
_log: Final = logging.getLogger("isthmus.http")


@dataclass(slots=True)
class Route:
    """The state that all requests to one endpoint share. `moved` is the target of a lasting redirect."""

    pool: Pool
    target: bytes
    headers: list[tuple[bytes, bytes]]
    forms: RequestForms
    moved: bytes | None = None
    authorized: tuple[bytes, RequestForms] | None = None

    def forms_with(self, value: bytes) -> RequestForms:
        """Returns the forms of requests with this `Authorization`; b"": with none. The last ones are kept."""
        authorized = self.authorized
        if authorized is None or authorized[0] != value:
            authorized = self.authorized = value, RequestForms(with_value(self.headers, value))
        return authorized[1]


class Exchange:
    """One request and its response: the `Outlet` of its channel. It calls `Port.closed`, or another report of the
    channel's end, exactly once.

    Attributes:
        coded: the reader, if the body of the response has a content coding.
        is_lasting: it has one of the places for event streams that last, until it is over.
        post: the prepared head of a POST without headers of its own; `method` and `headers` describe any other request.
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
        "_share",
        "body",
        "coded",
        "connection",
        "has_changed_version",
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
        self._share: Share | None = None  # of a response that needs a reader
        self.coded: CodedReader | None = None
        self.method = "POST"
        self.headers: list[tuple[bytes, bytes]] = []
        self.post: PostHead | None = None
        self._encode()
        self.target = (route.moved or route.target) if path is None else path
        self.when_written: Callable[[], None] | None = None  # called once it is written in full
        self.connection: Connection | None = None
        self.has_changed_version = False  # the server refused one version of HTTP
        self.is_unsent = True  # no byte of it was given to a socket
        self.may_be_whole = False  # its last byte was given to a socket
        self.is_abandoned = False
        self.is_over = False
        self.is_paused = False
        self.is_lasting = False
        self._route = route if path is None else None  # a redirect of another path is not remembered
        self._pool = route.pool
        self._redirects = 0
        self._is_lasting = True  # all redirects so far are lasting ones
        self._refusal = ""  # why a redirect was not followed
        self._cookies: CookieChanges = ()  # not reported yet
        self._opened: Connected | None = None  # not reported yet, like `_document`
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
        """The parser of the response, made on first use."""
        if self._reader is None:
            self._share = Share(self._pool.client.replies, self._order.server)
            self._reader = ResponseReader(self._order, self._pool.client.limits, share=self._share)
        return self._reader

    @property
    def expects_document(self) -> bool:
        """True if a success that is one document, or empty, can be reported without a reader."""
        if self.post is None or self._reader is not None or self._redirects:
            return False
        return self._route is None or self._route.moved is None

    def report_document(self, opened: Connected, document: bytes) -> None:
        """Reports a response that has arrived in full; an empty `document` means that the message was accepted. Call it
        only if it `expects_document`."""
        self.is_over = True
        self._port.replied(self._channel, opened, document or None)

    def receive_head(self, status: int, headers: Headers) -> list[ReplyEvent] | None:
        """Returns the events of the final response's head. Returns None for a redirect that is followed: the server has
        done nothing yet, and the exchange is ready to be sent again."""
        names = dict(headers)
        if b"set-cookie" in names:
            self._receive_cookies(headers)
        if 300 <= status <= 399 and self._follow_redirect(status, headers):
            return None
        if self._route is not None and (self._redirects or self._route.moved is not None):
            self._remember_redirect(self._route, status)
        if b"content-encoding" in names:
            self._expect_coding(headers)
        return self.reader.receive_head(status, headers)

    def _expect_coding(self, headers: Headers) -> None:
        """Has the body decoded, if its codings are known and available."""
        client = self._pool.client
        share = Share(client.replies, self._order.server)
        self.coded = CodedReader.for_head(self.reader, headers, client.limits, added=added_coding, share=share)
        self._reader = self.coded or self._reader

    def _receive_cookies(self, headers: Headers) -> None:
        address = self._pool.address
        self._cookies += read_cookies(
            headers, host=address.host, is_secure=address.scheme == "https", now_unix=time.time()
        )

    def _follow_redirect(self, status: int, headers: Headers) -> bool:
        """Follows a redirect. Returns True if the response is one that may be followed."""
        order = self._order
        is_personal = bool(order.headers or order.cookies or order.session is not None)
        found = judge_redirect(self._pool.address, self.target, status, headers, is_personal=is_personal)
        limit = self._pool.client.limits.redirects_max
        if isinstance(found, Redirect) and self._redirects < limit:
            self._redirects += 1
            self._is_lasting = self._is_lasting and found.is_lasting
            self.target = found.target
            self.start_over()
            if self._cookies:
                store = CookieStore(self._pool.client.limits)
                store.receive((*order.cookies, *self._cookies))
                self._order = msgspec.structs.replace(order, cookies=store.pairs)
                self._encode()
            return True
        self._refusal = f"got more than {limit} redirects in a row" if isinstance(found, Redirect) else found or ""
        return False

    def _encode(self) -> None:
        order = self._order
        self.post = self._forms.post_head(order) if isinstance(order, Post) else None
        if self.post is not None and isinstance(order, Post):
            self.body = order.message
            return
        self.method, self.headers, self.body = self._forms.fill(order)
        if self.method == "POST":
            self.headers.append((b"content-length", b"%d" % len(self.body)))

    def _remember_redirect(self, route: Route, status: int) -> None:
        """Remembers a lasting redirect for later requests, and forgets it once its target is gone. Only a POST's status
        counts as gone, since many servers implement neither GET nor DELETE."""
        if status < 300 and self._redirects and self._is_lasting:
            route.moved = self.target
        elif self.method == "POST" and status in (404, 405, 410) and route.moved == self.target:
            route.moved = None

    def report(self, fact: ReplyEvent) -> None:
        """Reports an event to the port. A reply that is one document is held until it is complete, and reported at
        once."""
        if self.is_abandoned:
            self.end(Cause(End.DONE))
        elif isinstance(fact, Opened) and self.reader.is_gathering:
            self._opened = self._connected(fact)
        elif isinstance(fact, Arrived) and self._opened is not None:
            self._document = fact.message
        elif isinstance(fact, Begun):
            self._begin_parts(fact)
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
        """Reports several messages at once. Returns False, and reports nothing, if the events are anything else or not
        wanted now. Several messages come only on an event stream: a document is one."""
        if self.is_paused or self.is_abandoned or set(map(type, facts)) != _MESSAGES:
            return False
        self._port.arrived(self._channel, list(map(_message_of, facts)))
        return True

    def _begin_parts(self, fact: Begun) -> None:
        """Has a large document passed on in parts, if the port allows it."""
        opened, reader = self._opened, self.reader
        if opened is not None and self._port.passes(self._channel, fact.beginning, fact.size_bytes):
            assert isinstance(reader, ResponseReader)
            self._opened = None
            self._port.part(self._channel, reader.pass_on(), opening=opened, size_bytes=fact.size_bytes)

    def _report_held(self) -> None:
        """Reports the held opening and document, since the reply will not be reported as a whole."""
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
        return Connected(fact.session, cookies, fact.status)

    def end(self, cause: Cause) -> None:
        if self._share is not None and self._share.amount:
            self._share.give_all_back()
        if self.coded is not None:
            self.coded.release()
        if not self.is_over:
            self.is_over = True
            self.give_up_place()
            if not self.is_abandoned:
                self._report_held()
            if cause.end is End.REFUSED:
                cause = self._forms.withhold(cause)
                if self._refusal:
                    cause = msgspec.structs.replace(cause, detail=self._refusal)
            if self._cookies and not self.is_abandoned:
                cause = msgspec.structs.replace(cause, cookies=self._cookies)
            self._port.closed(self._channel, Cause(End.DONE) if self.is_abandoned else cause)

    def forget_request(self) -> None:
        """Drops the request's headers and body: the server has accepted it, so it is not sent again. Thousands of
        streams may last."""
        self.headers, self.body = [], b""

    def start_over(self) -> None:
        """Records that the request is to be sent once more: the server has not run it."""
        self.is_unsent, self.may_be_whole = True, False

    def dispatch(self) -> None:
        """Sends the request on a connection of its pool, now or later."""
        self._pool.dispatch(self)

    def take_place(self) -> None:
        """Takes a place for event streams that last, and sends the request."""
        self.is_lasting = True
        self._pool.note_lasting(1)
        self._pool.dispatch(self)

    def give_up_place(self) -> None:
        """Gives the place up, because the stream is about to end. Its connection can then serve calls."""
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
    """Returns the cause with which requests end when the client stops."""
    return Cause(End.BROKEN, "shutting down", unsent=is_unsent)
