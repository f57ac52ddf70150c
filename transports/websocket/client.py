"""An upstream server on a WebSocket: one two-way channel, from the dial to its end."""

from __future__ import annotations

import contextlib
import os
from typing import Final

import anyio
import h11
from anyio.abc import ByteStream

from ...core.base.budget import Share
from ...core.base.effects import Close, Listen
from ...core.base.errors import RemoteProtocolError
from ...core.base.events import Cause, Connected, End, Headers
from ...core.base.ids import ChannelId
from ...core.base.limits import Limits
from ...core.wire.http.coded_response import CodedReader, Reader
from ...core.wire.http.foreign_reply import explain_foreign
from ...core.wire.http.response import Ended, ReplyEvent, ResponseReader
from ...core.wire.http.withheld import withhold
from ...core.wire.oversize import answer_for
from ...core.wire.websocket import Deflate, check_accepted, request_headers
from ..base.decompressors import added_coding
from ..base.dialer import LOST, Dialer, Unreachable
from ..base.endpoint import Endpoint
from ..base.port import Port
from ..base.tokens import Authorization, UpstreamTokens, with_value
from .connection import Socket
from .frames import Frames

SWITCHING: Final = 101
NONCE_BYTES: Final = 16
HANG_UP_S: Final = 1.0
"""Seconds for closing a stream once all its messages are reported."""


class SocketServer(Socket):
    """One session with a server. Run it as a task: `tasks.start_soon(server.run)`.

    Args:
        dialler: connects to the origin of `endpoint`.
        headers: sent with the upgrade request; they replace the endpoint's headers of the same names.
        share: takes the bytes of a message that is arriving and is larger than most.
        tokens: the tokens for the server; None: it wants none.
    """

    def __init__(
        self,
        dialer: Dialer,
        endpoint: Endpoint,
        headers: Headers,
        channel: ChannelId,
        port: Port,
        limits: Limits,
        *,
        share: Share | None = None,
        tokens: UpstreamTokens | None = None,
    ) -> None:
        super().__init__(port, limits, peer="the server", gone=End.BROKEN)
        self._channel = channel
        self._share = share
        self._dialer = dialer
        self._target = endpoint.address().target
        self._headers = _merged(endpoint.headers, headers)
        self._authorization = None if tokens is None else Authorization(tokens)
        self._connecting = anyio.CancelScope()
        self._is_ordered_to_close = False
        self._is_reported = False

    def close(self, order: Close) -> None:
        self._is_ordered_to_close = True
        self._connecting.cancel()
        super().close(order)

    async def run(self) -> None:
        """Connects, and runs until the end."""
        cause = Cause(End.BROKEN, "shutting down")
        try:
            cause = await self._live()
        except Exception:  # an error of our own: it goes to the caller, but the channel has to end too
            cause = Cause(End.BROKEN, "internal error")
            raise
        finally:
            self._report_end(Cause(End.DONE) if self._is_ordered_to_close else cause)

    def _end(self, cause: Cause, code: int | None, reason: str) -> None:
        """Begins the end. It is reported at once, not after the closing handshake, because messages sent from now on
        are dropped."""
        super()._end(cause, code, reason)
        if not self._is_ordered_to_close:
            self._report_end(cause)

    def _report_end(self, cause: Cause) -> None:
        if not self._is_reported:
            self._is_reported = True
            self._port.closed(self._channel, withhold(cause, self._sent_headers()))

    def _sent_headers(self) -> list[tuple[bytes, bytes]]:
        """Returns the headers of the upgrade that hold credentials, or may."""
        if self._authorization is None:
            return self._headers
        return with_value(self._headers, self._authorization.value or b"")

    async def _live(self) -> Cause:
        stream: ByteStream | None = None
        frames: Frames | None = None
        received = b""
        try:
            with self._connecting:
                cause = await self._authorize()
                while cause is None:
                    stream = await self._dialer.connect()
                    answer = await self._upgrade(stream)
                    if not isinstance(answer, Cause):
                        break
                    await anyio.aclose_forcefully(stream)
                    cause = await self._renew(answer)
                else:
                    return cause
                deflate, received = answer
                frames = Frames(
                    is_client=True,
                    message_size_max_bytes=self._limits.reply_size_max_bytes,
                    deflate=deflate,
                    takes_binary=True,
                    share=self._share,
                )
            if stream is None or frames is None:
                return Cause(End.DONE)
            if not self._is_ordered_to_close:
                self._port.opened(self._channel, Connected())
            return await self.carry(stream, frames, received=received)
        except Unreachable as error:
            return Cause(End.UNREACHABLE, str(error), unsent=True)
        finally:
            if frames is not None:
                frames.stop()
            if stream is not None:
                with anyio.move_on_after(HANG_UP_S, shield=True), contextlib.suppress(*LOST):
                    await stream.aclose()

    async def _authorize(self) -> Cause | None:
        """Waits for a token, if the server wants one. Returns the end if there is none."""
        authorization = self._authorization
        return None if authorization is None or authorization.value is not None else await authorization.prepare()

    async def _renew(self, refusal: Cause) -> Cause | None:
        """Returns the end of a session whose upgrade was refused; None if there is another token to try."""
        authorization = self._authorization
        if authorization is None:
            return refusal
        if not authorization.may_ask(refusal.status, is_challenged=bool(refusal.challenge)):
            return authorization.explain(refusal)
        return await authorization.renew(refusal)

    async def _upgrade(self, stream: ByteStream) -> tuple[Deflate | None, bytes] | Cause:
        """Performs the opening handshake. Returns the agreed compression and the bytes received behind the handshake,
        or the cause of its failure."""
        nonce = os.urandom(NONCE_BYTES)
        headers = [(b"host", self._dialer.address.authority), *request_headers(nonce), *self._sent_headers()]
        http = h11.Connection(h11.CLIENT, max_incomplete_event_size=self._limits.head_size_max_bytes)
        request = http.send(h11.Request(method="GET", target=self._target, headers=headers)) or b""
        http.send(h11.EndOfMessage())
        refusal: Reader | None = None
        coded: CodedReader | None = None
        try:
            await stream.send(request)
            received_bytes = 0
            while True:
                facts: list[ReplyEvent] = []
                event = http.next_event()
                if event is h11.NEED_DATA:
                    if refusal is None and received_bytes > self._limits.head_size_max_bytes:  # interim responses count
                        raise h11.RemoteProtocolError(
                            f"head over the limit of {self._limits.head_size_max_bytes} bytes"
                        )
                    data = await _receive(stream, self._limits.read_size_bytes)
                    received_bytes += len(data)
                    http.receive_data(data)
                elif isinstance(event, h11.InformationalResponse):
                    if event.status_code == SWITCHING:
                        return check_accepted(tuple(event.headers), nonce), http.trailing_data[0]
                elif isinstance(event, h11.Response):
                    if event.status_code < 300:
                        detail = f"got HTTP status {event.status_code}, expected 101; is it a WebSocket's URL?"
                        return Cause(End.BROKEN, detail)
                    refusal = ResponseReader(Listen(server=""), self._limits)
                    fields = tuple(event.headers)
                    coded = CodedReader.for_head(refusal, fields, self._limits, added=added_coding)
                    refusal = coded or refusal
                    facts = refusal.receive_head(event.status_code, fields)
                elif refusal is not None and isinstance(event, h11.Data):
                    facts = refusal.receive_body(event.data)
                    while coded is not None and coded.is_behind:  # not for long: a refusal ends at its limit
                        facts += coded.receive_body(b"")
                elif refusal is not None and isinstance(event, h11.EndOfMessage):
                    facts = refusal.receive_eof(is_complete=True)
                for fact in facts:
                    if isinstance(fact, Ended):
                        return fact.cause
        except (h11.RemoteProtocolError, *LOST) as error:
            if refusal is not None:
                (cut,) = refusal.receive_eof(is_complete=False)
                assert isinstance(cut, Ended)
                return cut.cause
            foreign = explain_foreign(http.trailing_data[0], self._dialer.address.scheme)
            if foreign:
                return Cause(End.BROKEN, foreign)
            seen = "a malformed" if isinstance(error, h11.RemoteProtocolError) else "no"
            return Cause(End.BROKEN, f"got {seen} HTTP response to the upgrade ({str(error)[:200]})")
        except RemoteProtocolError as error:
            return Cause(End.BROKEN, error.message)

    def _refuse(self, head: bytes) -> None:
        answer = answer_for(head, None, self._limits.reply_size_max_bytes)
        if answer is not None:
            self._port.message(self._channel, answer)


async def _receive(stream: ByteStream, size_bytes: int) -> bytes:
    """Returns received bytes; b"" at the end of the stream."""
    try:
        return await stream.receive(size_bytes)
    except anyio.EndOfStream:
        return b""


def _merged(ours: Headers, carried: Headers) -> list[tuple[bytes, bytes]]:
    replaced = {name.lower() for name, _ in carried}
    names = replaced | {name.lower() for name, _ in ours}
    headers = [(name, value) for name, value in ours if name.lower() not in replaced]
    if "user-agent" not in names:
        headers.insert(0, ("user-agent", "isthmus"))
    return [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in (*headers, *carried)]
