"""The client's side of a forwarded request: where its body comes from and its response goes to."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import h11
from anyio import CancelScope

from ...core.base.events import Cause, End
from ...core.base.limits import Limits
from ...core.wire.headers import Headers
from ...core.wire.http.error_responses import refusal
from ...core.wire.http.reply import Out
from ...core.wire.http.reverse_proxy import Sender
from ...core.wire.http.routes import ForwardRoute, Head, Refused
from ..base.wire import ClientWire, Gone, Silent
from ..reverse_proxy.forwarder import Forwarder
from ..reverse_proxy.request import ForwardedExchange, ForwardFailed
from .files import refuse_upload
from .framing import Framing, Phase
from .jobs import Jobs
from .writer import Writer

_log: Final = logging.getLogger("isthmus.http")


class ForwardedRequest:
    """A request to a transparent server, as the `ClientSide` of its `ForwardedExchange`.

    One task runs `pass_on`, one `bring_back`, and after a protocol switch a third runs `pass_bytes`.
    """

    def __init__(
        self,
        forwarder: Forwarder,
        route: ForwardRoute,
        head: Head,
        sender: Sender,
        *,
        framing: Framing,
        writer: Writer,
        wire: ClientWire,
        jobs: Jobs,
        limits: Limits,
    ) -> None:
        self._framing = framing
        self._writer = writer
        self._wire = wire
        self._jobs = jobs
        self._limits = limits
        # None once its response is complete or broken off.
        self._forwarded: ForwardedExchange | None = forwarder.begin(route, head, sender, self)

    # --- Client to server -------------------------------------------------------------------------------------------

    async def pass_on(self) -> None:
        """Forwards the request's body."""
        forwarded, framing = self._forwarded, self._framing
        if forwarded is not None:
            with CancelScope() as framing.intake:
                try:
                    await forwarded.pass_on(framing)
                except Gone:
                    self._writer.stop(Cause(End.GONE, "the client hung up during its request"))
                except (Silent, h11.RemoteProtocolError) as error:
                    framing.enter(Phase.CLOSING)
                    self._break_off(forwarded, refuse_upload(error)[0])
            framing.intake = None
        if framing.phase is Phase.FORWARD:  # the server wants no more of the body
            framing.enter(Phase.CLOSING)

    async def pass_bytes(self) -> None:
        """Forwards the client's bytes after a protocol switch, until either side leaves or both are silent."""
        forwarded, framing = self._forwarded, self._framing
        data = framing.held
        try:
            while forwarded is not None and await forwarded.pass_bytes(data):
                framing.enter(Phase.TUNNEL, self._limits.forward_idle_timeout_s)
                data = await framing.receive()
        except Gone:
            assert forwarded is not None
            await forwarded.pass_eof()
        except Silent:
            pass
        self._writer.stop(Cause(End.DONE))

    # --- Server to client -------------------------------------------------------------------------------------------

    async def bring_back(self) -> None:
        """Brings back the response, and after a protocol switch the server's bytes."""
        forwarded = self._forwarded
        if forwarded is None:  # the request broke off before its response was fetched
            return
        try:
            await forwarded.run()
        except ForwardFailed as error:
            _log.warning("a request could not be passed on: %s", error.detail)
            self._break_off(forwarded, refusal(error.status, error.detail, code=error.code))
        self._forwarded = None
        if self._framing.phase is Phase.TUNNEL:
            self._writer.stop(Cause(End.DONE))

    def _break_off(self, forwarded: ForwardedExchange, refused: Refused) -> None:
        """Answers with an error, or, if the response has begun, ends the connection so that the client sees it is
        incomplete."""
        forwarded.cancel()
        self._forwarded = None
        self._framing.stop_intake()
        exchange = self._writer.exchange
        if exchange is None:  # the client is gone
            return
        if not forwarded.has_begun:
            self._framing.leave_rest()
            exchange.answer(refused)
            return
        if self._framing.is_1_0 and not forwarded.is_complete:
            self._wire.cut()  # in HTTP/1.0 an orderly close would end the response
        self._writer.stop(Cause(End.BROKEN, "a part of it is missing"))

    def put(self, outs: Sequence[Out]) -> None:
        """Queues what follows of the response. See `ClientSide` for this and the next four methods."""
        if self._writer.exchange is not None:  # else the client is gone
            self._writer.exchange.put(outs)

    def put_bytes(self, data: bytes) -> None:
        self._framing.put_bytes(data)
        self._framing.enter(Phase.TUNNEL, self._limits.forward_idle_timeout_s)

    async def flush(self) -> None:
        await self._writer.flush()

    def ask_body(self) -> None:
        self._framing.ask_body()

    def switch(self, headers: Headers) -> None:
        self._framing.put_bytes(self._framing.switch(headers))
        self._framing.enter(Phase.TUNNEL, self._limits.forward_idle_timeout_s)
        self._jobs.start(self.pass_bytes)
