"""The codecs with h11 doing all the work: the reference for the fast codecs, and their fallback.

h11 reads and writes everything that RFC 9112 allows, at ten to twenty times the cost. `H11Server` and `H11Client` have
the methods of `ServerCodec` and `ClientCodec` and define what these do. They can be told of messages that a fast codec
read or wrote, so that they can take over between any two messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import h11
from h11._receivebuffer import ReceiveBuffer

from ...core.wire.headers import body_size
from ...core.wire.http1.events import (
    BODILESS,
    CLOSED,
    END,
    NEED_DATA,
    PAUSED,
    REASONS,
    ClientEvent,
    Data,
    InformationalHead,
    RequestHead,
    ResponseHead,
    ServerEvent,
    Signal,
)
from ...core.wire.http1.fields import find_ambiguity, is_chunk_line


class H11Server:
    """The h11 codec of a server's side. See `ServerCodec` for its methods."""

    def __init__(self, *, head_size_max_bytes: int, version: bytes | None = None) -> None:
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=head_size_max_bytes)
        self._http._receive_buffer = RequestLines()
        self._http.their_http_version = version
        self._method = ""
        self._has_body = True  # the current response

    def receive_data(self, data: bytes) -> None:
        self._http.receive_data(data)

    def next_event(self) -> ServerEvent:
        event = self._http.next_event()
        if isinstance(event, h11.Data):
            return Data(bytes(event.data))
        if isinstance(event, h11.Request):
            self._method = event.method.decode()
            headers = tuple(event.headers)
            version = event.http_version.decode()
            return RequestHead(self._method, event.target.decode(), headers, version, body_size(headers))
        return _signal(event)

    @property
    def trailing_data(self) -> tuple[bytes, bool]:
        return self._http.trailing_data

    @property
    def version(self) -> bytes | None:
        return self._http.their_http_version

    @property
    def is_awaiting_continue(self) -> bool:
        return self._http.they_are_waiting_for_100_continue

    @property
    def is_through(self) -> bool:
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    def start_next_cycle(self) -> None:
        self._http.start_next_cycle()
        self._method = ""

    def encode_head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        reason = REASONS.get(status, b"")
        response = h11.Response(status_code=status, headers=list(headers), reason=reason)
        self._has_body = status not in BODILESS and self._method != "HEAD"
        return self._http.send(response) or b""

    def encode_data(self, data: bytes | bytearray) -> Sequence[bytes | bytearray]:
        if not data or not self._has_body:
            return []
        return self._http.send_with_data_passthrough(h11.Data(data=bytes(data))) or []

    def encode_end(self) -> bytes:
        return self._http.send(h11.EndOfMessage()) or b""

    def encode_whole(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bytes:
        return b"".join((self.encode_head(status, headers), *self.encode_data(body), self.encode_end()))

    def encode_informational(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        reason = REASONS.get(status, b"")
        return self._http.send(h11.InformationalResponse(status_code=status, headers=list(headers), reason=reason))


class H11Client:
    """The h11 codec of a client's side. See `ClientCodec` for its methods."""

    def __init__(self, *, head_size_max_bytes: int) -> None:
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=head_size_max_bytes)
        self._unsent_size = 0

    def encode_request(self, method: str, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        request = h11.Request(method=method, target=target, headers=list(headers))
        encoded = self._http.send(request) or b""
        self._unsent_size = body_size(request.headers) or 0
        return encoded

    def note_sent(self) -> None:
        if self._unsent_size:
            body = cast(bytes, _Sent(self._unsent_size))
            self._http.send_with_data_passthrough(h11.Data(data=body))
        self._http.send(h11.EndOfMessage())

    def receive_data(self, data: bytes) -> None:
        self._http.receive_data(data)

    def next_event(self) -> ClientEvent:
        event = self._http.next_event()
        if isinstance(event, h11.Data):
            return Data(bytes(event.data))
        if isinstance(event, h11.Response):
            return ResponseHead(event.status_code, tuple(event.headers), event.http_version.decode())
        if isinstance(event, h11.InformationalResponse):
            return InformationalHead(event.status_code, tuple(event.headers))
        return _signal(event)

    @property
    def trailing_data(self) -> tuple[bytes, bool]:
        return self._http.trailing_data

    @property
    def may_be_kept(self) -> bool:
        return self._http.their_state is h11.DONE

    @property
    def is_through(self) -> bool:
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    def start_next_cycle(self) -> None:
        self._http.start_next_cycle()


class H11Chunked:
    """The rest of one chunked body, of a request or a response, read by h11.

    Args:
        data: what has arrived of the body, starting where a chunk starts.
        is_ended: the stream has ended behind `data`.
        is_request: the body is a client's, whose lines are read as those of a request's head.
    """

    def __init__(self, data: bytes, is_ended: bool, *, head_size_max_bytes: int, is_request: bool) -> None:
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=head_size_max_bytes)
        if is_request:
            self._http._receive_buffer = RequestLines()
        self._http.receive_data(_CHUNKED_REQUEST)
        self._http.next_event()
        if data:
            self._http.receive_data(data)
        if is_ended:
            self._http.receive_data(b"")

    def receive_data(self, data: bytes) -> None:
        self._http.receive_data(data)

    def next_event(self) -> Data | Signal:
        event = self._http.next_event()
        return Data(bytes(event.data)) if isinstance(event, h11.Data) else _signal(event)

    @property
    def trailing_data(self) -> tuple[bytes, bool]:
        return self._http.trailing_data


class RequestLines(ReceiveBuffer):
    """The bytes that h11 has to parse of a client's requests. h11 reads lines that end in LF and folded lines, and
    gives no sign of them: they are refused here, where it takes lines out."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Takes out a head, or trailers, once all its lines are there.

        Raises:
            h11.LocalProtocolError: a line is ambiguous. h11 turns this into its `RemoteProtocolError`.
        """
        held = bytes(self)
        lines = super().maybe_extract_lines()
        if lines is not None and (problem := find_ambiguity(held[: len(held) - len(self)])) is not None:
            raise h11.LocalProtocolError(problem)
        return lines

    def maybe_extract_next_line(self) -> bytearray | None:
        """Takes out the line that begins a chunk, once it is there.

        Raises:
            h11.LocalProtocolError: it is malformed. h11 turns this into its `RemoteProtocolError`.
        """
        line = super().maybe_extract_next_line()
        if line is not None and not is_chunk_line(bytes(line)):
            raise h11.LocalProtocolError(f"got {bytes(line[:64])!r}, expected the size of a chunk")
        return line


_CHUNKED_REQUEST: Final = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


class _Sent:
    """A stand-in for a body that was written without h11. h11 uses only the length of what it passes through."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return self._size_bytes


def _signal(event: h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]) -> Signal:
    if event is h11.NEED_DATA:
        return NEED_DATA
    if event is h11.PAUSED:
        return PAUSED
    return END if isinstance(event, h11.EndOfMessage) else CLOSED
