"""One request to a server over HTTP, with its response, for a driver whose client library writes and reads HTTP.

A `ClientExchange` joins the rules of `wire/http` to a channel that the engine has ordered to be dialled: it builds the
request, follows the redirects that may be followed, decodes and reads the response, keeps its cookies, and reports all
of it on the channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from .base.effects import Close, Delete, Dial, Effect, Listen, Pause, Post, Resume, check_channel
from .base.errors import LocalProtocolError
from .base.events import Cause, Connected, CookieChanges, End, Primed
from .base.limits import Limits
from .wire.headers import Headers, check_form
from .wire.http.coded_response import CodedReader, Reader
from .wire.http.cookies import CookieStore, read_cookies
from .wire.http.redirects import Redirect, judge_redirect
from .wire.http.request import request_for
from .wire.http.response import Arrived, Ended, Opened, ReplyEvent, ResponseReader
from .wire.http.response import Primed as StreamPrimed
from .wire.http.url import parse_url

if TYPE_CHECKING:
    from .engine import Engine

_LIMITS: Final = Limits()


class ClientExchange:
    """The request that a `Dial` of a `Post`, a `Listen` or a `Delete` orders, and the response to it.

    A driver sends the request (`method`, `url`, `headers`, `body`) and reports the head of the response. As long as
    `is_to_be_sent`, the server has redirected it: the driver drops the response and sends the request as it is then.
    Otherwise it reports the body, a piece at a time, and its end. It gives the exchange each order for its channel, and
    stops reading while `is_paused`. Once `is_over`, what is left of the response is not wanted: the driver ends the
    connection, or reads on and drops it.

    Each input returns orders of the engine, which the driver queues as it does those of the engine's own inputs.

    Args:
        url: that of the server.
        headers: those that every request to this server has, such as credentials: pairs of bytes, names in lower case.
        unix_at_zero: that of the engine; the lifetime of cookies needs the date.

    Attributes:
        method: a text.
        headers: the headers of the request: pairs of bytes, names in lower case, without `host` and `content-length`.
        body: bytes; empty for a request without one.
        is_to_be_sent: the request is still to be sent, for the first time or to another URL.
        is_over: the end of the channel was reported.

    Raises:
        LocalProtocolError: the dial is of a two-way stream, the URL cannot be used, or a header is no pair of bytes in
            lower case.
    """

    def __init__(
        self,
        engine: Engine,
        dial: Dial,
        url: str,
        *,
        unix_at_zero: float,
        headers: Sequence[tuple[bytes, bytes]] = (),
        limits: Limits = _LIMITS,
    ) -> None:
        target = dial.target
        if not isinstance(target, Post | Listen | Delete):
            expected = "expected one of a Post, a Listen or a Delete"
            raise LocalProtocolError(f"got a dial of a {type(target).__name__}, {expected}")
        check_form(headers)
        self.channel = dial.channel
        self._engine = engine
        self._target = target
        self._own = headers
        self._limits = limits
        self._unix_at_zero = unix_at_zero
        try:
            self._address = parse_url(url)
        except ValueError as error:
            raise LocalProtocolError(str(error)) from error
        self._path = self._address.target
        self._reader: Reader = ResponseReader(target, limits)
        self._redirects = 0
        self._refusal = ""  # why a redirect was not followed
        self._cookies: CookieChanges = ()  # not reported yet
        self._is_answered = False
        self._is_reported = False  # the engine knows that the channel has ended
        self.is_to_be_sent = True
        self.is_paused = False
        self.is_over = False
        self.method, self.headers, self.body = request_for(target, headers)

    @property
    def url(self) -> str:
        """The URL to request."""
        return f"{self._address.scheme}://{self._address.authority.decode()}{self._path.decode()}"

    def receive_order(self, order: Effect) -> None:
        """Carries out an order of the engine for this channel. After a `Close` the driver ends the connection and calls
        `receive_end`.

        Raises:
            LocalProtocolError: the order is for another channel, or for none.
        """
        check_channel(order, self.channel)
        if isinstance(order, Pause):
            self.is_paused = True
        elif isinstance(order, Resume | Close):
            self.is_paused = False
            self.is_over = self.is_over or isinstance(order, Close)

    def receive_head(self, status: int, headers: Headers, now: float) -> list[Effect]:
        """Takes the head of the final response: `headers` are pairs of bytes, names in lower case.

        Raises:
            LocalProtocolError: the head of this response has come already, or a header has another form.
        """
        check_form(headers)
        if self.is_over:
            return []
        if not self.is_to_be_sent:
            raise LocalProtocolError("got a second head, expected the body of the response")
        self._cookies += read_cookies(
            headers,
            host=self._address.host,
            is_secure=self._address.scheme == "https",
            now_unix=self._unix_at_zero + now,
        )
        if 300 <= status <= 399 and self._follow(status, headers):
            return []
        self.is_to_be_sent = False
        coded = CodedReader.for_head(self._reader, headers, self._limits, added=lambda _: None)
        self._reader = coded or self._reader
        return self._report(self._reader.receive_head(status, headers), now)

    def receive_body(self, data: bytes, now: float) -> list[Effect]:
        """Takes a piece of the body. That of a redirect that is followed changes nothing.

        Raises:
            LocalProtocolError: no head has come.
        """
        if not self.is_over and self.is_to_be_sent and not self._redirects:
            raise LocalProtocolError("got a piece of a body before the head, expected `receive_head`")
        if self.is_over or self.is_to_be_sent:
            return []
        effects = self._report(self._reader.receive_body(data), now)
        while isinstance(self._reader, CodedReader) and self._reader.is_behind and not self.is_over:
            effects += self._report(self._reader.receive_body(b""), now)
        return effects

    def receive_end(self, now: float) -> list[Effect]:
        """Takes the end of a response that is whole, or the end that a `Close` has ordered."""
        return self._end(now, is_complete=True)

    def receive_failure(self, problem: str, now: float, *, is_unsent: bool) -> list[Effect]:
        """Takes the loss of the connection, or that there was none.

        Args:
            problem: for people, without payloads and secrets.
            is_unsent: no byte of the request can have reached the server, so that it may be sent again.
        """
        if self._is_answered or self.is_over:
            return self._end(now, is_complete=False, problem=problem)
        end = End.UNREACHABLE if is_unsent else End.BROKEN
        return self._close(Cause(end, problem, unsent=is_unsent), now)

    def _follow(self, status: int, headers: Headers) -> bool:
        """Prepares the request for the URL of a redirect. False if the redirect is not followed."""
        found = judge_redirect(self._address, self._path, status, headers)
        limit = self._limits.redirects_max
        if isinstance(found, Redirect) and self._redirects < limit:
            self._redirects += 1
            self._path = found.target
            if self._cookies:
                store = CookieStore(self._limits)
                store.receive((*self._target.cookies, *self._cookies))
                self._target = msgspec.structs.replace(self._target, cookies=store.pairs)
                self.method, self.headers, self.body = request_for(self._target, self._own)
            return True
        self._refusal = f"got more than {limit} redirects in a row" if isinstance(found, Redirect) else found or ""
        return False

    def _report(self, facts: Sequence[ReplyEvent], now: float) -> list[Effect]:
        effects: list[Effect] = []
        for fact in facts:
            if self.is_over:
                break
            if isinstance(fact, Opened):
                self._is_answered = True
                cookies, self._cookies = self._cookies, ()
                effects += self._engine.receive_open(self.channel, Connected(fact.session, cookies), now)
            elif isinstance(fact, StreamPrimed):
                effects += self._engine.receive_open(self.channel, Primed(), now)
            elif isinstance(fact, Arrived):
                effects += self._engine.receive_message(self.channel, fact.message, now)
            elif isinstance(fact, Ended):
                cause = fact.cause
                if self._refusal and cause.end is End.REFUSED:
                    cause = msgspec.structs.replace(cause, detail=self._refusal)
                effects += self._close(cause, now)
        return effects

    def _end(self, now: float, *, is_complete: bool, problem: str = "") -> list[Effect]:
        if self._is_reported:
            return []
        if self.is_over or self.is_to_be_sent:
            return self._close(Cause(End.DONE) if self.is_over else Cause(End.BROKEN, problem or "no response"), now)
        return self._report(self._reader.receive_eof(is_complete, problem), now)

    def _close(self, cause: Cause, now: float) -> list[Effect]:
        self.is_over = self._is_reported = True
        if self._cookies:
            cause = msgspec.structs.replace(cause, cookies=self._cookies)
        return self._engine.receive_close(self.channel, cause, now)
