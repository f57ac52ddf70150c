"""TLS over anyio: a byte stream above the stream of a socket.

anyio's own TLS stream is not used: it sends from two tasks at once where the reader has to answer, which raises, and
raises errors of `ssl` for what a peer did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import anyio
from anyio.abc import ByteStream

from ..base.stream_socket import peer_host_of
from .server import ServerTls
from .session import TlsFailed

LOST = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class TlsStream(ByteStream):
    """The plain bytes of one connection. The handshake comes before the first of them, within its time limit.

    Attributes:
        session: the TLS session.
    """

    def __init__(self, stream: ByteStream, tls: ServerTls) -> None:
        self.session = tls.session()
        self._stream = stream
        self._tls = tls
        self._held = b""
        self._is_broken = False
        self._sending = anyio.Lock()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        return self._stream.extra_attributes

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await self._shake_hands()
        while not self._held:
            if self.session.is_ended:
                raise anyio.EndOfStream
            await self._read(max_bytes)
        data, self._held = self._held[:max_bytes], self._held[max_bytes:]
        return data

    async def send(self, item: bytes) -> None:
        await self._shake_hands()
        self.session.send(item)
        await self._flush()

    async def send_eof(self) -> None:
        self.session.close()
        await self._flush()

    async def aclose(self) -> None:
        """Closes. The client learns that nothing is missing, unless a write was broken off."""
        try:
            if not self._is_broken:
                self.session.close()
                await self._flush()
        except LOST:
            pass
        finally:
            await self._stream.aclose()

    async def _shake_hands(self) -> None:
        if self.session.is_open:
            return
        timeout_s = self._tls.handshake_timeout_s
        try:
            with anyio.fail_after(timeout_s):
                while not self.session.is_open:
                    await self._read(65536)
        except TimeoutError:
            self._fail(f"its handshake took more than {timeout_s:g} s")
        except LOST as error:
            cause = error.__cause__
            self._fail(str(cause) if isinstance(cause, TlsFailed) else "it hung up")

    def _fail(self, reason: str) -> None:
        self._is_broken = True
        self._tls.note_failure(peer_host_of(self._stream), reason)
        raise anyio.BrokenResourceError

    async def _read(self, max_bytes: int) -> None:
        """Reads once, and answers what TLS itself has to answer."""
        if self._is_broken:
            raise anyio.BrokenResourceError
        data = await self._stream.receive(max_bytes)
        try:
            self._held += self.session.receive(data)
        except TlsFailed as error:
            self.session.cut()
            await self._flush()  # tells the client why
            self._is_broken = True
            raise anyio.BrokenResourceError from error
        if self.session.has_output:  # a client that wants answers and reads none is not read either
            await self._flush()

    async def _flush(self) -> None:
        async with self._sending:
            while not self._is_broken and (data := self.session.take()):
                try:
                    await self._stream.send(data)
                except BaseException:  # cancellation too: what follows a part of a record makes no sense
                    self._is_broken = True
                    raise
