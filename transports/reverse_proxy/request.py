"""One request to a transparent server, between the client's connection and one to the server.

Nothing here waits, apart from the task that connects. `ForwardedExchange` has the rules; a request moves bytes between
its inputs and the two connections. Neither direction holds more than one read: reading stops on either side while the
other has not taken what came before.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

import h11
from anyio import CancelScope

from ...core.wire.headers import Headers
from ...core.wire.http.reply import Out
from ...core.wire.http.reverse_proxy_exchange import ForwardedExchange, ForwardFailed, ForwardPlan, ForwardState
from ...core.wire.http1.events import END, NEED_DATA, Data, InformationalHead, ResponseHead, Signal
from ..base.dialer import Dialer
from ..base.wire import FOREVER
from .client_side import ClientSide
from .connection import UpstreamConnection

if TYPE_CHECKING:
    from .forwarder import Forwarder

TURN_EVENTS: Final = 200
"""Events of a response, or pieces of a request, that are passed on before other connections get their turn."""


class NotLetIn(ForwardFailed):
    """Raised when the server, or a proxy on the way, refuses the request before it has looked at it."""


class _Next(enum.Enum):
    """The next step after parsing what has arrived of a response."""

    DATA = "data"  # more has to arrive
    TURN = "turn"  # more can be parsed, once others had their turn
    END = "end"  # the response is complete
    SWITCH = "switch"  # bytes that are not HTTP


class UpstreamRequest:
    """A request that is passed on, and its response.

    Args:
        server: the id of the server.
        size_bytes: the length of the body; None for a chunked one.

    Attributes:
        is_call: it is a request with an answer, rather than an event stream to listen on.
    """

    __slots__ = (
        "_client",
        "_connecting",
        "_dialer",
        "_exchange",
        "_failure",
        "_forwarder",
        "_is_answered",
        "_is_at_eof",
        "_is_busy",
        "_is_held",
        "_is_pump_due",
        "_is_refused",
        "_is_sent",
        "_link",
        "_plan",
        "_server",
        "_size_bytes",
        "_switched",
        "is_call",
    )

    def __init__(
        self,
        forwarder: Forwarder,
        server: str,
        plan: ForwardPlan,
        size_bytes: int | None,
        exchange: ForwardedExchange,
        dialer: Dialer,
        client: ClientSide,
    ) -> None:
        self.is_call = plan.is_call
        self._forwarder = forwarder
        self._server = server
        self._plan = plan
        self._size_bytes = size_bytes
        self._exchange = exchange
        self._dialer = dialer
        self._client = client
        self._link: UpstreamConnection | None = None
        self._connecting: CancelScope | None = None
        self._is_sent = False  # the request, in full
        self._is_refused = False  # the server takes no more of it
        self._is_answered = False  # the response is complete, and the request is not
        self._is_held = False  # the client has to take what came before
        self._is_at_eof = False  # the server's bytes have ended, and the client has not taken them all
        self._is_pump_due = False  # the body waits until what has arrived is read
        self._is_busy = False  # what has arrived is being passed on
        self._switched: Headers = ()
        self._failure: ForwardFailed | None = None  # once the client has taken what came before

    @property
    def has_begun(self) -> bool:
        """True if something of the response was passed on."""
        return self._exchange.has_begun

    @property
    def is_complete(self) -> bool:
        """True if all of the response was passed on."""
        return self._exchange.state is ForwardState.COMPLETE

    def start(self, body: bytes | None) -> None:
        """Begins.

        Args:
            body: the whole body; None: it has to be asked for.
        """
        self._forwarder.note_begin(self)
        self._take_link(body, is_new=False)

    def cancel(self) -> None:
        """Ends the request because the client's side broke off. The connection to the server is closed."""
        self._exchange.fail()
        self._end(may_be_kept=False)

    def _take_link(self, body: bytes | None, *, is_new: bool) -> None:
        try:
            link = self._forwarder.take(self._server, self._plan, is_call=self.is_call, is_new=is_new)
        except ForwardFailed as failure:
            self._fail(failure)
            return
        if link is None:
            self._connecting = CancelScope()
            self._client.start(lambda: self._connect(body))
        else:
            self._begin(link, body)

    async def _connect(self, body: bytes | None) -> None:
        assert self._connecting is not None
        with self._connecting:
            try:
                link = await self._forwarder.open(self._server, is_call=self.is_call)
            except ForwardFailed as failure:
                self._fail(failure)
            else:
                self._begin(link, body)

    def _begin(self, link: UpstreamConnection, body: bytes | None) -> None:
        plan, size_bytes = self._plan, self._size_bytes
        self._connecting = None
        self._link = link
        link.request = self
        link.plan = plan
        self._exchange.receive_connected()
        head: bytes
        if plan.post is not None and size_bytes is not None:
            head = link.http.encode_post(plan.post, plan.target, size_bytes)
        else:
            head = link.http.encode_request(plan.method, plan.target, plan.headers(size_bytes or 0))
        if body is not None:
            self._note_sent(link)
            parts: list[bytes | bytearray] = [head, body] if body else [head]
            link.write(parts)
            link.wire.set_timeout(self._exchange.timeout_s)
        else:
            self._client.ask_body()
            self._pump(link, [head])
            self._client.settle()

    # --- Client to server -------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Sends what has come of the body, as far as the server takes it."""
        link = self._link
        if link is None or self._is_sent or self._is_refused or link.is_blocked:
            return
        if link.has_input():  # it may be why the server takes no more: a write would fail, and lose it
            self._is_pump_due = True
            return
        self._pump(link, [])

    def _pump(self, link: UpstreamConnection, parts: list[bytes | bytearray]) -> None:
        event: Data | Signal = NEED_DATA
        for _ in range(TURN_EVENTS):
            event = self._client.next_body()
            if not isinstance(event, Data):
                break
            parts += _framed(event.data) if self._plan.is_chunked else (event.data,)
        else:
            link.wire.wake(False)
        if self._link is not link:  # the body broke off
            return
        if event is END:
            if self._plan.is_chunked:
                parts.append(b"0\r\n\r\n")
            self._note_sent(link)
        if parts:
            link.write(parts)
        if self._is_answered and self._is_sent:
            self._end(may_be_kept=True)
            self._client.finish(())
        elif not self._is_held:
            link.wire.set_timeout(self._exchange.timeout_s)

    def _note_sent(self, link: UpstreamConnection) -> None:
        self._is_sent = True
        link.http.note_sent()
        self._exchange.receive_sent()

    def handle_written(self) -> None:
        """Goes on with the body, or with the client's bytes, once the server has taken what came before."""
        if not self._is_sent or self._exchange.state is ForwardState.SWITCHED:
            self._client.settle()

    def receive_refused(self) -> None:
        """Handles a server that takes no more of the request. It may still say why."""
        link = self._link
        if link is None:
            return
        if self._is_answered or self._exchange.state is ForwardState.SWITCHED:
            self._receive_end(link)
            return
        self._is_refused = True
        self._exchange.receive_refused()
        self._client.refuse_body()
        if not self._is_held:
            link.wire.set_timeout(self._exchange.timeout_s)

    # --- Server to client -------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        link = self._link
        if link is None:
            return
        if self._exchange.state is ForwardState.SWITCHED:
            self._client.put_bytes(data)
            self._hold_or_read(link)
        elif self._is_answered:  # nothing can follow on this connection
            self._receive_end(link)
        else:
            link.http.receive_data(data)
            self._advance(link)

    def receive_eof(self) -> None:
        """Takes the end of the server's bytes, orderly or not."""
        link = self._link
        if link is None:
            return
        if self._is_answered or self._exchange.state is ForwardState.SWITCHED:
            self._receive_end(link)
        elif link.has_heard:
            link.http.receive_data(b"")
            self._advance(link)
        else:
            try:
                self._exchange.receive_gone(is_stale=link.was_used)
            except ForwardFailed as failure:
                self._fail(failure)
                return
            self._let_go(may_be_kept=False)
            self._is_sent = self._is_refused = False
            self._take_link(b"", is_new=True)

    def _receive_end(self, link: UpstreamConnection) -> None:
        """Takes the end of a connection whose response is complete, or that was switched."""
        if self._is_answered:
            self._end(may_be_kept=False)
            self._client.finish(())
        elif self._client.is_behind:
            self._is_at_eof = True
        else:
            self._end(may_be_kept=False)
            self._client.end_bytes()

    def resume(self) -> None:
        """Goes on with the response, if the client has taken what came before."""
        link = self._link
        if link is None or not self._is_held or self._is_busy or self._client.is_behind:
            return
        self._is_held = False
        if self._failure is not None:
            self._fail(self._failure)
        elif self._exchange.state is not ForwardState.SWITCHED:
            self._advance(link)
        elif self._is_at_eof:
            self._receive_end(link)
        else:
            link.read(True)

    def handle_wake(self) -> None:
        """Goes on after others had their turn."""
        link = self._link
        if link is not None:
            if self._exchange.state is not ForwardState.SWITCHED:
                self._advance(link)
            self._client.settle()

    def _advance(self, link: UpstreamConnection) -> None:
        """Passes on what has arrived of the response, as far as the client takes it."""
        if self._is_busy or self._is_held or self._is_answered:
            return
        outs: list[Out] = []
        failure: ForwardFailed | None = None
        following = _Next.DATA
        self._is_busy = True
        try:
            following = self._read(link, outs)
        except h11.RemoteProtocolError as error:
            held, is_ended = link.http.trailing_data
            failure = self._exchange.explain_malformed(str(error), held, is_ended=is_ended)
        except ForwardFailed as error:
            failure = error
        if following is _Next.END:
            self._is_busy = False
            self._complete(link, outs)
            return
        if outs:
            self._client.put(outs)
        self._is_busy = False
        if self._link is not link:  # the client is gone
            return
        if failure is not None and self._client.is_behind:
            self._failure = failure
            self._hold_or_read(link)
        elif failure is not None:
            self._fail(failure)
        elif following is _Next.SWITCH:
            self._switch(link)
        else:
            self._hold_or_read(link)
            if following is _Next.TURN and not self._is_held:
                link.wire.wake(False)
            if self._is_pump_due:
                self._is_pump_due = False
                self._client.settle()

    def _hold_or_read(self, link: UpstreamConnection) -> None:
        self._is_held = self._client.is_behind
        link.read(not self._is_held)
        is_limited = not self._is_held and self._exchange.state is not ForwardState.SWITCHED
        link.wire.set_timeout(self._exchange.timeout_s if is_limited else FOREVER)

    def _read(self, link: UpstreamConnection, outs: list[Out]) -> _Next:
        """Parses what has arrived, and adds what passes on to `outs`.

        Raises:
            ForwardFailed: the response has failed. What passes on before is in `outs`.
            h11.RemoteProtocolError: the response is malformed, or broken off.
        """
        http, exchange = link.http, self._exchange
        if self._receive_repeated(link, outs):
            return _Next.END
        if exchange.is_behind:
            self._receive_body(b"", outs)
            return _Next.TURN
        for _ in range(TURN_EVENTS):
            event = http.next_event()
            if isinstance(event, Data):
                if self._receive_body(event.data, outs):
                    return _Next.TURN
            elif event is NEED_DATA:
                return _Next.DATA
            elif event is END:
                outs += exchange.receive_end()
                return _Next.END
            elif isinstance(event, ResponseHead):
                if refusal := self._dialer.explain_refusal(event.status, event.headers):
                    exchange.fail()
                    raise NotLetIn(502, "upstream_unreachable", refusal)
                if self._receive_document(link, event, outs):
                    return _Next.END
                outs.append(exchange.receive_head(event))
            elif isinstance(event, InformationalHead):
                switched = exchange.receive_interim(event.status, event.headers)
                if switched is not None:
                    self._switched = switched
                    return _Next.SWITCH
            else:
                raise exchange.explain_end()
        return _Next.TURN

    def _receive_body(self, data: bytes, outs: list[Out]) -> bool:
        """Adds a piece of the body to `outs`. Returns True if more of it is to be decoded."""
        outs += self._exchange.receive_body(data)
        self._exchange.check()
        return self._exchange.is_behind

    def _receive_repeated(self, link: UpstreamConnection, outs: list[Out]) -> bool:
        """Adds a response to `outs` whose head repeats the last one, if exactly that has arrived."""
        head, _, headers = link.known  # of a POST or alike, as only responses to a POST can be taken so
        if head is None or headers is None or self._exchange.has_begun:
            return False
        body = link.http.take_repeated(head)
        if body is None:
            return False
        outs.append(self._exchange.receive_document(headers, head.status, body))
        return True

    def _receive_document(self, link: UpstreamConnection, head: ResponseHead, outs: list[Out]) -> bool:
        """Adds a response to `outs` that has arrived in full. Returns False if it has not, or has to be looked at."""
        if link.known[0] is not head or link.known[1] != self._plan.method:
            link.known = head, self._plan.method, self._exchange.document_headers(head)
        headers = link.known[2]
        body = None if headers is None else link.http.take_rest()
        if headers is None or body is None:
            return False
        outs.append(self._exchange.receive_document(headers, head.status, body))
        return True

    def _switch(self, link: UpstreamConnection) -> None:
        self._client.switch(self._switched)
        if held := link.http.trailing_data[0]:
            self._client.put_bytes(held)
        if self._link is link:
            self._hold_or_read(link)

    def _complete(self, link: UpstreamConnection, outs: list[Out]) -> None:
        """Passes on the end of the response. The connection is free before that, because that may bring a new
        request. A server that has answered may still want the rest of the request."""
        if self._is_sent or not link.http.may_be_kept:
            self._end(may_be_kept=self._is_sent)
            self._client.finish(outs)
        else:
            self._is_answered = True
            link.wire.set_timeout(FOREVER)
            self._client.hold()
            self._client.put(outs)

    # --- After a protocol switch ------------------------------------------------------------------------------------

    @property
    def takes_bytes(self) -> bool:
        """True if the server has taken all bytes that were sent."""
        return self._link is not None and not self._link.is_blocked

    def send_bytes(self, data: bytes) -> None:
        """Sends bytes that are not HTTP. Call it only if the server `takes_bytes`."""
        assert self._link is not None
        self._link.write([data])

    def end_bytes(self) -> None:
        """Ends the client's side. The server may still send."""
        if self._link is not None:
            self._link.wire.end_sending()

    # --- Ends -------------------------------------------------------------------------------------------------------

    def handle_timeout(self) -> None:
        """Handles a server that was silent for too long."""
        self._fail(self._exchange.handle_timeout())

    def receive_failure(self) -> None:
        """Ends the request because of an error of our own, or because the forwarder ends."""
        self._exchange.fail()
        self._fail(ForwardFailed(502, "upstream_broken", "the connection to the server was closed"))

    def _fail(self, failure: ForwardFailed) -> None:
        self._exchange.fail()
        self._end(may_be_kept=False)
        self._client.fail(failure)

    def _end(self, *, may_be_kept: bool) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        self._let_go(may_be_kept=may_be_kept)
        self._forwarder.note_end(self)

    def _let_go(self, *, may_be_kept: bool) -> None:
        link, self._link = self._link, None
        if link is not None and may_be_kept:
            self._forwarder.take_back(link)
        elif link is not None:
            self._forwarder.drop(link)


def _framed(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Returns the data as a chunk."""
    return b"%x\r\n" % len(data), data, b"\r\n"
