"""The client's connection as a passage sees it: where its request comes from, and its response goes to."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import h11
from anyio import CancelScope

from ...core.base.effects import Cause, End
from ...core.base.limits import Limits
from ...core.wire.headers import Headers
from ...core.wire.http.error_responses import refusal
from ...core.wire.http.reply import Out
from ...core.wire.http.reverse_proxy import Sender
from ...core.wire.http.routes import ForwardRoute, Head, Refused
from ..base.wire import Gone, Silent, Wire
from ..reverse_proxy.forwarder import Forwarder
from ..reverse_proxy.request import ForwardFailed, Passage
from .files import refuse_upload
from .framing import Framing, Phase
from .jobs import Jobs
from .writer import Writer

_log: Final = logging.getLogger("isthmus.http")


class ForwardedRequest:
    """A request to a transparent server: the `ClientSide` of its passage.

    One task runs `pass_on`, and one `bring_back`; a third `pass_bytes` after a switch.
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
        wire: Wire,
        jobs: Jobs,
        limits: Limits,
    ) -> None:
        self._framing = framing
        self._writer = writer
        self._wire = wire
        self._jobs = jobs
        self._limits = limits
        self._passage: Passage | None = forwarder.begin(route, head, sender, self)  # until its response is through

    # --- Client to server -------------------------------------------------------------------------------------------

    async def pass_on(self) -> None:
        """Hand on the request's body."""
        passage, framing = self._passage, self._framing
        if passage is not None:
            with CancelScope() as framing.intake:
                try:
                    await passage.pass_on(framing)
                except Gone:
                    self._writer.stop(Cause(End.GONE, "the client hung up during its request"))
                except (Silent, h11.RemoteProtocolError) as error:
                    framing.enter(Phase.CLOSING)
                    self._break_off(passage, refuse_upload(error)[0])
            framing.intake = None
        if framing.phase is Phase.FORWARD:  # nobody wants the rest
            framing.enter(Phase.CLOSING)

    async def pass_bytes(self) -> None:
        """After a switch: hand on what the client says, until either side leaves or both are silent."""
        passage, framing = self._passage, self._framing
        data = framing.held
        try:
            while passage is not None and await passage.pass_bytes(data):
                framing.enter(Phase.TUNNEL, self._limits.forward_idle_timeout_s)
                data = await framing.receive()
        except Gone:
            assert passage is not None
            await passage.pass_eof()
        except Silent:
            pass
        self._writer.stop(Cause(End.DONE))

    # --- Server to client -------------------------------------------------------------------------------------------

    async def bring_back(self) -> None:
        """Fetch the response, and what follows a switch."""
        passage = self._passage
        if passage is None:  # the request broke off before
            return
        try:
            await passage.run()
        except ForwardFailed as error:
            _log.warning("a request could not be passed on: %s", error.detail)
            self._break_off(passage, refusal(error.status, error.detail, code=error.code))
        self._passage = None
        if self._framing.phase is Phase.TUNNEL:
            self._writer.stop(Cause(End.DONE))

    def _break_off(self, passage: Passage, refused: Refused) -> None:
        """Say why there is no response, or show that there is no more of it."""
        passage.cancel()
        self._passage = None
        self._framing.stop_intake()
        exchange = self._writer.exchange
        if exchange is None:  # the client is gone
            return
        if not passage.has_begun:
            self._framing.leave_rest()
            exchange.answer(refused)
            return
        if self._framing.is_1_0 and not passage.is_complete:
            self._wire.cut()  # to such a client nothing but the connection's end tells the response's
        self._writer.stop(Cause(End.BROKEN, "a part of it is missing"))

    def put(self, outs: Sequence[Out]) -> None:
        """See `ClientSide`, and so the next four."""
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
