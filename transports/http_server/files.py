"""The bodies of uploads and downloads, passed between a connection and the file service."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import anyio
import h11

from ...core.base.events import Cause, End
from ...core.wire.http.download import Download
from ...core.wire.http.error_responses import refusal
from ...core.wire.http.reply import ReplyBody, ReplyEnd, ReplyHead
from ...core.wire.http.routes import Refused
from ..base.port import BodySource, UploadRefused
from ..base.traffic import Traffic
from ..base.wire import Gone, Silent
from .replies import FileExchange

T = TypeVar("T")

_log: Final = logging.getLogger("isthmus.http")


class UploadBody:
    """An upload's body, read from the client only as fast as it is consumed.

    Attributes:
        failure: why the body broke off; kept because the file service may wrap the exception.
    """

    def __init__(self, source: BodySource, traffic: Traffic) -> None:
        self.failure: Exception | None = None
        self._source = source
        self._traffic = traffic
        self._is_over = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._is_over:
            raise StopAsyncIteration
        try:
            data = await self._source.receive_body()
        except (Gone, Silent, h11.RemoteProtocolError) as error:
            self._is_over, self.failure = True, error
            raise
        if data is None:
            self._is_over = True
            raise StopAsyncIteration
        self._traffic.note(len(data))
        return data


def refuse_upload(error: Exception) -> tuple[Refused, Cause]:
    """Returns the response and the channel's cause for an upload that failed with `error`."""
    if isinstance(error, UploadRefused):
        cause = Cause(End.REFUSED, error.detail, status=error.status)
        return refusal(error.status, error.detail, code=error.code), cause
    if isinstance(error, Silent):
        refused = refusal(408, "got no more of the body in time, expected it sooner")
        return refused, Cause(End.TIMED_OUT, "no more of the upload arrived in time")
    if isinstance(error, h11.RemoteProtocolError):
        refused = refusal(400, f"got a malformed body ({error}), expected HTTP/1.1 framing")
        return refused, Cause(End.BROKEN, "the framing of the upload is malformed")
    _log.error("an upload could not be stored", exc_info=error)
    refused = refusal(500, "the upload could not be stored", code="storage_failed")
    return refused, Cause(End.BROKEN, "the upload could not be stored")


async def deliver(
    exchange: FileExchange,
    plan: Download,
    read: Callable[[int, int], AsyncIterator[bytes | bytearray]],
    flush: Callable[[], Awaitable[None]],
) -> Cause | None:
    """Sends a file, or parts of it, chunk by chunk. The next chunk is read once the last one was written.

    Args:
        read: returns the bytes from a start to a stop.

    Returns:
        None when all is queued; otherwise why it is not. In that case the exchange was answered with an error if that
        was still possible. If not, its reply has no end, and the connection must be cut so that the client sees a
        broken reply.

    Raises:
        Exception: any that `flush` raises.
    """
    outs: list[ReplyHead | ReplyBody | ReplyEnd] = [ReplyHead(plan.status, plan.headers)]
    for part in plan.parts:
        if part.head:
            outs.append(ReplyBody(part.head))
        left = part.stop - part.start
        async with closed(read(part.start, part.stop)) as chunks:
            while left:
                try:
                    chunk = await anext(chunks, b"")
                except Exception as error:  # a storage backend's failure must not end the listener
                    _log.error("a file could not be read", exc_info=error)
                    chunk = b""
                if not 0 < len(chunk) <= left:
                    if exchange.traffic.status == 0:
                        exchange.answer(refusal(500, "the file could not be read", code="storage_failed"))
                    return Cause(End.BROKEN, "the file could not be read in full")
                left -= len(chunk)
                exchange.traffic.note(len(chunk))
                outs.append(ReplyBody(chunk))
                if left == 0 and part is plan.parts[-1]:
                    break
                exchange.put(outs)
                outs = []
                await flush()
    exchange.put([*outs, *([ReplyBody(plan.tail)] if plan.tail else []), ReplyEnd()])
    return None


@asynccontextmanager
async def closed(chunks: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Closes the iterator at the end, whatever happens meanwhile."""
    try:
        yield chunks
    finally:
        aclose = getattr(chunks, "aclose", None)
        if aclose is not None:
            with anyio.CancelScope(shield=True):
                await aclose()
