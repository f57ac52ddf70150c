"""The client's side of a forwarded request: where its body comes from and its response goes to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Final, NamedTuple

import h11

from ...core.base.events import Cause, End
from ...core.base.limits import Limits
from ...core.wire.headers import Headers
from ...core.wire.http.error_responses import refusal
from ...core.wire.http.reply import Out
from ...core.wire.http.reverse_proxy_exchange import LINGER_S, ForwardFailed, ForwardPlan
from ...core.wire.http.routes import Refused
from ...core.wire.http1.events import NEED_DATA, Data, Signal
from ..base.wire import ClientWire, Silent
from ..reverse_proxy.forwarder import Forwarder
from .files import refuse_upload
from .framing import Framing, Phase
from .jobs import Jobs
from .writer import Writer

_log: Final = logging.getLogger("isthmus.http")


class ConnectionParts(NamedTuple):
    """The parts of a client's connection that its forwarded requests use.

    Attributes:
        settle: writes what is queued, and goes on as far as that allows.
    """

    framing: Framing
    writer: Writer
    wire: ClientWire
    jobs: Jobs
    limits: Limits
    settle: Callable[[], None]


class ForwardedRequest:
    """A request to a transparent server, as the `ClientSide` of its `UpstreamRequest`.

    Args:
        parts: of the client's connection.
        server: the id of the server.

    Attributes:
        is_over: nothing more comes of it.
    """

    __slots__ = (
        "_framing",
        "_is_half_closed",
        "_jobs",
        "_limits",
        "_request",
        "_settle",
        "_wire",
        "_writer",
        "is_over",
    )

    def __init__(
        self, parts: ConnectionParts, forwarder: Forwarder, server: str, plan: ForwardPlan, size_bytes: int | None
    ) -> None:
        self.is_over = False
        self._framing, self._writer, self._wire, self._jobs, self._limits, self._settle = parts
        self._is_half_closed = False  # the client has ended its side of a tunnel
        self._request = forwarder.begin(server, plan, size_bytes, self)

    def begin(self, body: bytes | None) -> None:
        """Begins. `body` is the whole body; None: it is still to come."""
        self._jobs.add(self)
        self._request.start(body)

    # --- From the connection ----------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Goes on in both directions, as far as either side takes more."""
        if self.is_over:
            return
        if self._framing.phase is Phase.FORWARD:
            self._request.pump()
        elif self._framing.phase is Phase.TUNNEL:
            self._pass_bytes()
        self._request.resume()

    def cancel(self) -> None:
        """Ends the request because the connection ends."""
        self._end()
        self._request.cancel()

    def handle_timeout(self) -> bool:
        """Handles a client, or both sides of a tunnel, that was silent for too long. Returns False if that is no matter
        of this request."""
        if self.is_over:
            return False
        if self._framing.phase is Phase.FORWARD:
            self._break_off(Silent())
        elif self._framing.phase is Phase.TUNNEL:
            self._writer.stop(Cause(End.DONE))
        else:
            return False
        return True

    def receive_eof(self) -> bool:
        """Handles the end of the client's bytes. Returns False if that ends the request: only a tunnel goes on."""
        if self.is_over or self._framing.phase is not Phase.TUNNEL:
            return False
        self._pass_bytes()
        self._framing.tell_wire()
        return True

    def _pass_bytes(self) -> None:
        """Sends the client's bytes in a tunnel, and then the end of its side, after which the server has `LINGER_S` to
        finish."""
        framing = self._framing
        if self._is_half_closed or not self._request.takes_bytes:
            return
        if data := framing.take_tunnelled():
            framing.enter(Phase.TUNNEL, self._limits.forward_idle_timeout_s)
            self._request.send_bytes(data)
        if framing.is_gone and self._request.takes_bytes:
            self._is_half_closed = True
            framing.enter(Phase.TUNNEL, LINGER_S)
            self._request.end_bytes()
        framing.is_asked = self._request.takes_bytes and not framing.is_gone

    # --- From the request -------------------------------------------------------------------------------------------

    @property
    def is_behind(self) -> bool:
        return self._writer.is_behind

    def next_body(self) -> Data | Signal:
        """Returns the next event of the body. See `ClientSide` for this and the following methods."""
        framing = self._framing
        try:
            event = framing.next_of_body()
        except h11.RemoteProtocolError as error:
            self._break_off(error)
            return NEED_DATA
        if event is NEED_DATA:
            if framing.is_gone:
                self._writer.stop(Cause(End.GONE, "the client hung up during its request"))
            else:
                framing.is_asked = True
        return event

    def ask_body(self) -> None:
        self._framing.ask_body()

    def refuse_body(self) -> None:
        if self._framing.phase is Phase.FORWARD:
            self._framing.enter(Phase.CLOSING)
            self._settle()

    def put(self, outs: Sequence[Out]) -> None:
        try:
            self._writer.pass_on(outs)
        except Exception:  # an error of our own with one client must not end the connection to the server alone
            _log.exception("a connection failed")
            self._writer.stop(Cause(End.BROKEN, "the listener failed"))

    def hold(self) -> None:
        self._writer.is_held = True

    def finish(self, outs: Sequence[Out]) -> None:
        self._end()
        self._writer.is_held = False
        if outs:
            self.put(outs)
        else:
            self._settle()

    def fail(self, failure: ForwardFailed) -> None:
        _log.warning("a request could not be passed on: %s", failure.detail)
        self._refuse(refusal(failure.status, failure.detail, code=failure.code))

    def switch(self, headers: Headers) -> None:
        framing = self._framing
        framing.put_bytes(framing.switch(headers))
        framing.begin_tunnel(self._limits.forward_idle_timeout_s)
        self._settle()

    def put_bytes(self, data: bytes) -> None:
        self._framing.put_bytes(data)
        if not self._is_half_closed:
            self._framing.enter(Phase.TUNNEL, self._limits.forward_idle_timeout_s)
        self._settle()

    def end_bytes(self) -> None:
        self._end()
        self._writer.stop(Cause(End.DONE))

    def settle(self) -> None:
        self._settle()

    def start(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        self._jobs.start(work)

    # --- Ends -------------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        self.is_over = True
        self._jobs.remove(self)

    def _break_off(self, error: Silent | h11.RemoteProtocolError) -> None:
        """Ends the request because its body broke off."""
        self._framing.enter(Phase.CLOSING)
        self._request.cancel()
        self._refuse(refuse_upload(error)[0])

    def _refuse(self, refused: Refused) -> None:
        """Answers with an error, or, if the response has begun, ends the connection so that the client sees it is
        incomplete."""
        self._end()
        exchange, request = self._writer.exchange, self._request
        if exchange is None:  # the client is gone
            return
        if not request.has_begun:
            self._framing.leave_rest()
            exchange.answer(refused)
            self._settle()
            return
        if self._framing.is_1_0 and not request.is_complete:
            self._wire.cut()  # in HTTP/1.0 an orderly close would end the response
        self._writer.stop(Cause(End.BROKEN, "a part of it is missing"))
