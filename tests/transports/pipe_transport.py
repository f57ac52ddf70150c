"""An asyncio transport over streams in memory, which calls its protocol in the order of a socket's transport."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from http_fakes import MemoryStream


class PipeTransport(asyncio.Transport):
    """Reads and writes `stream` for its protocol."""

    def __init__(self, stream: MemoryStream, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._stream = stream
        self._protocol: Any = protocol
        self._held = bytearray()
        self._high_bytes = 1 << 16
        self._is_closing = False
        self._is_eof = False
        self._has_read_eof = False
        self._is_paused = False
        self._is_blocked = False
        self._is_due = False
        for pipe in (stream.incoming, stream.outgoing):
            pipe.on_change = partial(self._change_after, pipe.on_change)  # another transport may be at the other end
        protocol.connection_made(self)
        self._change()

    def _change_after(self, other: Callable[[], None]) -> None:
        other()
        self._change()

    def _change(self) -> None:
        """Schedules a look at the stream."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._look)

    # --- asyncio.Transport ------------------------------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        raise AssertionError("abort is what our protocols call")

    def abort(self) -> None:
        if not self._is_closing:
            self._lose(None)

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._change()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self._high_bytes = high

    def get_write_buffer_size(self) -> int:
        return len(self._held)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self._is_eof
        self._held += data
        self._push()
        if len(self._held) > self._high_bytes and not self._is_blocked:
            self._is_blocked = True
            self._protocol.pause_writing()
        self._change()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._is_eof = True
        self._change()

    # --- The stream -------------------------------------------------------------------------------------------------

    def _push(self) -> None:
        pipe = self._stream.outgoing
        room = pipe.capacity - len(pipe.data)
        if room > 0 and self._held and not pipe.is_broken:
            pipe.data += self._held[:room]
            del self._held[:room]
            pipe.changed()

    def _lose(self, error: Exception | None) -> None:
        self._is_closing = True
        self._held.clear()
        self._stream.hang_up()
        asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error)
        self._change()

    def _look(self) -> None:
        self._is_due = False
        if not self._is_closing:
            self._read()
        if not self._is_closing:
            self._write()

    def _write(self) -> None:
        if self._held and self._stream.outgoing.is_broken:
            self._lose(BrokenPipeError())
            return
        self._push()
        if not self._held and self._is_blocked:
            self._is_blocked = False
            self._protocol.resume_writing()
        if self._is_eof and not (self._held or self._stream.outgoing.is_eof):
            self._stream.outgoing.is_eof = True
            self._stream.outgoing.changed()

    def _read(self) -> None:
        pipe = self._stream.incoming
        if self._is_paused or self._has_read_eof:
            return
        if pipe.data:
            data = bytes(pipe.data[:65536])
            del pipe.data[:65536]
            pipe.changed()
            self._protocol.data_received(data)
        elif pipe.is_eof:
            self._has_read_eof = True
            self._protocol.eof_received()
