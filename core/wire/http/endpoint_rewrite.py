"""Rewrites the `endpoint` event in the event stream of a transparent server, and nothing else in it.

The `endpoint` event names the path for messages (2024-11-05 basic/transports, "HTTP with SSE"). The server names a path
of its own there, which a client of the proxy cannot reach, so the value of the data line is replaced. Every other byte
passes unchanged, however the stream was cut. The type of an event is certain only at its end, because the last `event`
line counts. Each event is therefore held until its end, up to the size that an `endpoint` event can reasonably have.
Clients act on whole events, so holding one delays nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ...base.errors import RemoteProtocolError
from ..sse import BOM

HELD_MAX_BYTES: Final = 16 * 1024
"""The most bytes of an event that are held. At it: the event passes in pieces; an `endpoint` ends the stream."""

_TYPE: Final = b"endpoint"
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_EVENT_END: Final = (b"\n\n", b"\r\n\r\n")
_LINE_START_BYTES: Final = len(BOM) + len(b"event: endpoint\r\n") + 1  # enough to recognise an `event` line


class EndpointRewriter:
    """Takes the bytes of an event stream and returns them with the `endpoint` rewritten.

    Args:
        replace: returns the URI to send in place of the given one. Raises `RemoteProtocolError` for one that must not
            pass.

    Attributes:
        failure: the reason why nothing more may pass; None if there is none. The bytes before it were returned in full.
    """

    def __init__(self, replace: Callable[[str], str]) -> None:
        self.failure: RemoteProtocolError | None = None
        self._replace = replace
        self._held = bytearray()  # of the current event, up to HELD_MAX_BYTES
        self._is_passing = False  # the event is larger: `_held` is the start of the current line then
        self._line_at = 0  # where in `_held` the current line begins
        self._type = b""
        self._data: list[tuple[int, int]] = []  # where in `_held` the values of its data lines are
        self._after_cr = False  # the LF of a CRLF may be next
        self._is_first_line = True

    def receive_bytes(self, data: bytes) -> bytes:
        """Returns the bytes that may pass now; none after a `failure`."""
        if self.failure is not None or not data:
            return b""
        is_between = not self._held and not self._is_passing
        # The usual chunk: whole events without the word in them, so that there is nothing to rewrite.
        if is_between and not self._after_cr and data.endswith(_EVENT_END) and _TYPE not in data:
            self._is_first_line = False
            return data
        out = bytearray()
        start = 0
        if self._after_cr and data.startswith(b"\n"):
            start = 1
            if self._held and not self._is_passing:
                self._held += b"\n"
                self._line_at += 1
            else:
                out += b"\n"
        self._after_cr = data.endswith(b"\r")
        while start < len(data):
            found = _LINE_END.search(data, start)
            stop = len(data) if found is None else found.end()
            if not self._take(data[start:stop], 0 if found is None else stop - found.start(), out):
                break
            start = stop
        return bytes(out)

    def receive_eof(self) -> bytes:
        """Returns the rest, an unfinished event, which clients discard."""
        return b"" if self._is_passing or self.failure is not None else bytes(self._held)

    def _take(self, piece: bytes, end_size: int, out: bytearray) -> bool:
        """Takes a line or a part of one, of which the last `end_size` bytes are the line end. Returns True if more may
        pass."""
        if self._is_passing:
            out += piece
            self._held += piece[: max(0, _LINE_START_BYTES - len(self._held))]
        else:
            self._held += piece
            if len(self._held) > HELD_MAX_BYTES:
                out += self._held
                self._is_passing = True
                self._held = self._held[self._line_at : self._line_at + _LINE_START_BYTES]
                self._line_at = 0
        if end_size:
            self._finish_line(end_size, out)
        return self.failure is None

    def _finish_line(self, end_size: int, out: bytearray) -> None:
        line_at, end_at = self._line_at, len(self._held) - end_size
        if self._is_passing and len(self._held) >= _LINE_START_BYTES:
            end_at = len(self._held)  # too long for an `event: endpoint` line, and cut off
        if self._is_first_line and self._held.startswith(BOM, line_at):
            line_at += len(BOM)
        self._is_first_line = False
        if line_at >= end_at:
            self._finish_event(out)
            return
        line = bytes(self._held[line_at:end_at])
        name, _, value = line.partition(b":")
        is_comment = not name
        if name == b"event":
            self._type = value.removeprefix(b" ")
        elif name == b"data":
            self._data.append((end_at - len(value.removeprefix(b" ")), end_at))
        if self._is_passing:
            self._held.clear()
        elif is_comment and self._line_at == 0:  # a keep-alive comment between events need not wait
            out += self._held
            self._held.clear()
        else:
            self._line_at = len(self._held)

    def _finish_event(self, out: bytearray) -> None:
        held = bytes(self._held)
        if self._type != _TYPE:
            out += b"" if self._is_passing else held
        elif self._is_passing:
            self.failure = RemoteProtocolError(f"got an endpoint event over {HELD_MAX_BYTES} bytes, expected a URI")
        elif len(self._data) != 1:
            self.failure = RemoteProtocolError(f"got an endpoint of {len(self._data)} lines, expected one")
        else:
            ((start, stop),) = self._data
            try:
                replaced = self._replace(held[start:stop].decode("latin-1"))
            except RemoteProtocolError as error:
                self.failure = error.without_frames()
            else:
                out += held[:start] + replaced.encode() + held[stop:]
        self._held.clear()
        self._is_passing = False
        self._line_at = 0
        self._type = b""
        self._data.clear()
