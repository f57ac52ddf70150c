"""One request to a transparent server and its response, as a state machine without IO.

A driver connects, sends the head that a `ForwardPlan` has and the body as it comes, and feeds the machine what the
server says. The machine returns what the client gets. It decides what passes, what ends the exchange, how long the
server may be silent, and whether a request may be sent again.

An exchange ends in one of three ways: the response is complete; nothing of it was passed on yet, and the client gets an
error; or the client's connection is cut, so that a part of the response is not taken for the whole.

A request that has not left in full sets no time limit: the server may wait for the rest. A server that takes no more of
it has `LINGER_S` to say why.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from ...base.errors import RemoteProtocolError
from ...base.limits import Limits
from ...base.state_machine import Machine, Symbol
from ..headers import EVENTS, Headers, body_size
from ..http1.events import BODILESS, ResponseHead
from ..http1.heads import PostHead
from .codings import BodyDecoder, Coding, codings_for, describe_unread, without_codings
from .endpoint_rewrite import EndpointRewriter
from .foreign_reply import explain_foreign
from .reply import Out, ReplyBody, ReplyDocument, ReplyEnd, ReplyHead
from .reverse_proxy import HeaderRules, response_headers
from .reverse_proxy_target import LOCATIONS, ForwardTarget

INTERIM_MAX: Final = 100
"""Interim responses to one request that are skipped. A server that sends more is taken for one that never ends. At it:
502."""
LINGER_S: Final = 1.0
"""Seconds a server that takes no more of a request may still explain why, and one side of a WebSocket may still send
after the other has left."""

_REPEATABLE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_SWITCHING: Final = 101
_LENGTH: Final = b"content-length"


class ForwardFailed(Exception):
    """Raised when the server cannot be reached or its response breaks off. `status` and `code` are for a client that
    has received nothing yet."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail


class ForwardPlan:
    """The form in which requests with one head go to the server. Only the lengths of their bodies may differ.

    Args:
        headers: of the request to the server, with the framing of the client's request.
        requested: the request target at the server.
        is_upgrade: the client asks for a WebSocket.
        prefix: what stands before each request target, for a proxy that is told the whole URL.
        proxy_headers: headers for that proxy.

    Attributes:
        post: the prepared head of a POST with a body of known length; None for any other request.
        is_call: it is a request with an answer, rather than an event stream to listen on.
    """

    __slots__ = (
        "_headers",
        "_is_sized",
        "is_call",
        "is_chunked",
        "is_upgrade",
        "method",
        "post",
        "requested",
        "target",
    )

    def __init__(
        self,
        method: str,
        requested: bytes,
        headers: list[tuple[bytes, bytes]],
        *,
        is_upgrade: bool = False,
        prefix: bytes = b"",
        proxy_headers: Headers = (),
    ) -> None:
        if proxy_headers:
            headers = [field for field in headers if field[0] != b"proxy-authorization"] + list(proxy_headers)
        size = body_size(headers)
        self.method = method
        self.requested = requested
        self.target = prefix + requested
        self.is_call = method != "GET"
        self.is_upgrade = is_upgrade
        self.is_chunked = size is None
        self._is_sized = any(name == _LENGTH for name, _ in headers)
        self._headers = tuple(field for field in headers if field[0] != _LENGTH)
        self.post = PostHead(self._headers) if method == "POST" and self._is_sized else None

    def headers(self, size_bytes: int) -> Headers:
        """Returns the headers of a request whose body has `size_bytes` bytes, if it is not chunked."""
        return (*self._headers, (_LENGTH, b"%d" % size_bytes)) if self._is_sized else self._headers

    def may_repeat(self, size_bytes: int | None) -> bool:
        """True if a request with a body of `size_bytes` bytes may run twice."""
        return size_bytes == 0 and self.method in _REPEATABLE


class ForwardState(Symbol):
    CONNECTING = "connecting"  # there is no connection yet
    WAITING = "waiting"  # the request is being sent, or was; nothing of the response was passed on
    RESPONDING = "responding"  # the head of the response was passed on
    COMPLETE = "complete"  # all of the response was passed on
    SWITCHED = "switched"  # the bytes in both directions are not HTTP
    FAILED = "failed"  # no more of the response is passed on


class ForwardInput(Symbol):
    CONNECTED = "connected"  # the head of the request is about to be sent
    STALE = "stale"  # the server had closed the connection before it got the request
    HEAD = "head"  # the head of the final response came
    END = "end"  # the response is complete
    SWITCH = "switch"  # the server agreed to a WebSocket
    FAIL = "fail"  # the response broke off, or none came


TRANSITIONS: Final[dict[ForwardState, dict[ForwardInput, ForwardState]]] = {
    ForwardState.CONNECTING: {
        ForwardInput.CONNECTED: ForwardState.WAITING,
        ForwardInput.FAIL: ForwardState.FAILED,
    },
    ForwardState.WAITING: {
        ForwardInput.STALE: ForwardState.CONNECTING,
        ForwardInput.HEAD: ForwardState.RESPONDING,
        ForwardInput.END: ForwardState.COMPLETE,
        ForwardInput.SWITCH: ForwardState.SWITCHED,
        ForwardInput.FAIL: ForwardState.FAILED,
    },
    ForwardState.RESPONDING: {
        ForwardInput.END: ForwardState.COMPLETE,
        ForwardInput.FAIL: ForwardState.FAILED,
    },
    ForwardState.COMPLETE: {},
    ForwardState.SWITCHED: {},
    ForwardState.FAILED: {},
}
"""A document that arrived in one piece goes from WAITING to COMPLETE at once."""


class ForwardedExchange(Machine[ForwardState, ForwardInput]):
    """A request that is forwarded, and its response.

    Args:
        size_bytes: the length of the request's body; None for a chunked one.
        name: of the server, in messages to people.
        target: translates the URLs that the server names; None: they are right as they are.
        added: returns a content coding beyond those that are built in, by its name.

    Attributes:
        has_begun: something of the response was passed on.
        is_behind: `receive_body` has more to return: call it with b"" before anything else.
    """

    __slots__ = (
        "_added",
        "_decoder",
        "_interim",
        "_is_refused",
        "_is_repeatable",
        "_is_sent",
        "_limits",
        "_name",
        "_plan",
        "_reply_timeout_s",
        "_rewriter",
        "_rules",
        "_target",
        "has_begun",
    )

    TRANSITIONS = TRANSITIONS

    def __init__(
        self,
        plan: ForwardPlan,
        size_bytes: int | None,
        *,
        name: str,
        rules: HeaderRules,
        target: ForwardTarget | None,
        limits: Limits,
        reply_timeout_s: float,
        added: Callable[[str], Coding | None],
    ) -> None:
        self.state = ForwardState.CONNECTING
        self.has_begun = False
        self._plan = plan
        self._name = name
        self._rules = rules
        self._target = target
        self._limits = limits
        self._reply_timeout_s = reply_timeout_s
        self._added = added
        self._is_repeatable = plan.may_repeat(size_bytes)
        self._is_sent = False
        self._is_refused = False  # the server takes no more of the request
        self._interim = 0
        self._rewriter: EndpointRewriter | None = None
        self._decoder: BodyDecoder | None = None  # of an event stream that is read though its server compresses it

    # --- The request ------------------------------------------------------------------------------------------------

    def receive_connected(self) -> None:
        """Records that there is a connection, on which the request begins."""
        self.step(ForwardInput.CONNECTED)

    def receive_sent(self) -> None:
        """Records that all of the request was given to the connection."""
        self._is_sent = True

    def receive_refused(self) -> None:
        """Records that the server takes no more of the request."""
        self._is_refused = True

    @property
    def timeout_s(self) -> float:
        """The seconds that the server may be silent from now on."""
        if self.has_begun:
            return self._limits.forward_idle_timeout_s
        if self._is_refused:
            return LINGER_S
        return self._reply_timeout_s if self._is_sent else float("inf")

    # --- The response -----------------------------------------------------------------------------------------------

    def receive_interim(self, status: int, headers: Headers) -> Headers | None:
        """Takes a 1xx response. Returns the headers of the 101 that the client gets, or None: the response is skipped.

        Raises:
            ForwardFailed: there were too many.
        """
        if status == _SWITCHING:
            assert self._plan.is_upgrade
            self.step(ForwardInput.SWITCH)
            self.has_begun = True
            return response_headers(headers, self._rules, status=status)
        self._interim += 1
        if self._interim > INTERIM_MAX:
            raise self._broken(f"sent more than {INTERIM_MAX} interim responses")
        return None

    def receive_head(self, head: ResponseHead) -> ReplyHead:
        """Takes the head of the final response.

        Raises:
            ForwardFailed: the body cannot be read, and has to be.
        """
        headers = head.headers
        target, is_read = self._target, False
        if target is not None and self._plan.method == "GET" and head.status == 200:
            is_read = _media_type(headers) == EVENTS.encode()
        if target is not None and is_read:
            if unread := describe_unread(headers):
                codings = codings_for(headers, self._added)
                if not codings:
                    raise self._broken(f"sent an event stream that cannot be read: {unread}")
                self._decoder = BodyDecoder(codings, self._limits)
                headers = without_codings(headers)
            self._rewriter = EndpointRewriter(partial(target.to_client, requested=self._plan.requested))
        self.step(ForwardInput.HEAD)
        self.has_begun = True
        passed = response_headers(headers, self._rules, status=head.status, keeps_length=not is_read)
        return ReplyHead(head.status, passed if target is None else target.relocate(passed, self._plan.requested))

    def receive_document(self, headers: Headers, status: int, body: bytes) -> ReplyDocument:
        """Takes a whole response, with the headers that `document_headers` returned for its head."""
        self.step(ForwardInput.END)
        self.has_begun = True
        return ReplyDocument(headers, (body,), status)

    def document_headers(self, head: ResponseHead) -> Headers | None:
        """Returns the headers that a response with this head passes on, without the length; None if it is not passed on
        in one piece. They depend on the server, the head and the method alone."""
        method, status = self._plan.method, head.status
        if method in ("GET", "HEAD") or status in BODILESS or any(name in LOCATIONS for name, _ in head.headers):
            return None
        passed = response_headers(head.headers, self._rules, status=status)
        return tuple(field for field in passed if field[0] != _LENGTH)

    def receive_body(self, data: bytes) -> list[Out]:
        """Takes a piece of the body.

        Raises:
            ForwardFailed: an event names an endpoint that clients must not follow, or the piece cannot be decoded. What
                may pass on is in its `outs`.
        """
        if self._rewriter is None:
            return [ReplyBody(data)]
        if self._decoder is not None:
            data = self._decode(self._decoder, data)
        return self._rewrite(self._rewriter, data)

    @property
    def is_behind(self) -> bool:
        return self._decoder is not None and self._decoder.is_behind

    def receive_end(self) -> list[Out]:
        """Takes the end of the body.

        Raises:
            ForwardFailed: a compressed body lacks its end.
        """
        outs: list[Out] = []
        if self._decoder is not None:
            try:
                self._decoder.finish()
            except RemoteProtocolError as error:
                raise self._broken(f"sent a malformed response: {error.message}") from None
        if self._rewriter is not None and (rest := self._rewriter.receive_eof()):
            outs.append(ReplyBody(rest))
        self.step(ForwardInput.END)
        return [*outs, ReplyEnd()]

    def _decode(self, decoder: BodyDecoder, data: bytes) -> bytes:
        try:
            return decoder.decode(data)
        except RemoteProtocolError as error:
            raise self._broken(f"sent a malformed response: {error.message}") from None

    def _rewrite(self, rewriter: EndpointRewriter, data: bytes) -> list[Out]:
        passed = rewriter.receive_bytes(data)
        return [ReplyBody(passed)] if passed else []

    def check(self) -> None:
        """Ends the exchange after an event that clients must not follow. Call it when all that `receive_body` returned
        was passed on.

        Raises:
            ForwardFailed: there was one.
        """
        if self._rewriter is not None and self._rewriter.failure is not None:
            raise self._broken(self._rewriter.failure.message)

    # --- Ends -------------------------------------------------------------------------------------------------------

    def receive_gone(self, *, is_stale: bool) -> None:
        """Takes the end of the connection before a byte of the response has come. Returns if the request may be sent
        again, on a new connection.

        Args:
            is_stale: the connection had carried a request before, so the server may have closed it since.

        Raises:
            ForwardFailed: it may not.
        """
        if not (is_stale and self._is_repeatable and self.state is ForwardState.WAITING):
            raise self._broken("closed the connection before its response")
        self.step(ForwardInput.STALE)
        self._is_sent = self._is_refused = False

    def explain_malformed(self, problem: str, held: bytes, *, is_ended: bool) -> ForwardFailed:
        """Returns the failure of a response that cannot be parsed.

        Args:
            held: the bytes that were not parsed.
            is_ended: the stream has ended behind them.
        """
        foreign = explain_foreign(held, "http" if self._target is None else self._target.base_url.partition(":")[0])
        if foreign and not self.has_begun:
            return self._broken(f"cannot be understood: {foreign}")
        reason = "closed the connection" if is_ended else f"is malformed ({problem[:200]})"
        return self._broken(f"{reason} within its response")

    def explain_end(self) -> ForwardFailed:
        """Returns the failure of a connection that ended where a response has to come."""
        return self._broken("closed the connection before its response")

    def handle_timeout(self) -> ForwardFailed:
        """Returns the failure of a server that was silent for `timeout_s`."""
        if self._is_refused and not self.has_begun:
            return self._broken("took no more of the request")
        self.fail()
        detail = f"{self._name} said nothing for {self.timeout_s:g} s"
        return ForwardFailed(504, "upstream_timed_out", detail)

    def fail(self) -> None:
        """Ends the exchange, unless it has ended."""
        if self.may(ForwardInput.FAIL):
            self.step(ForwardInput.FAIL)

    def _broken(self, what: str) -> ForwardFailed:
        self.fail()
        return ForwardFailed(502, "upstream_broken", f"{self._name} {what}")


def _media_type(headers: Headers) -> bytes:
    return dict(headers).get(b"content-type", b"").partition(b";")[0].strip().lower()
