"""The client's side of an HTTP/2 connection, without sockets: encodes requests and parses responses.

One request is under way at a time, as in HTTP/1.1: further ones take connections of their own. So a response that is
not read holds up no other one, and a codec of either version is used in the same way.

h2 reads and writes the frames. It is given one frame at a time, for three reasons. An error loses nothing that came
before it. Few bytes may be many frames, which take turns with other connections (`begin_turn`). And GOAWAY is read
here: h2 would refuse the rest of a response behind it, which a server sends that stops in order.

What a response takes of the flow-control windows is given back as its pieces are taken with `next_event`, so a server
can send no more than a window ahead.

Source: RFC 9113.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    InformationalResponseReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import NoAvailableStreamIDError, ProtocolError
from h2.settings import SettingCodes, Settings

from ...core.base.errors import RemoteProtocolError
from ...core.base.limits import KIB, MIB
from ...core.wire.headers import Headers
from ...core.wire.http1.events import CLOSED, END, NEED_DATA, ClientEvent, Data, InformationalHead, ResponseHead

WINDOW_BYTES: Final = 1 * MIB
"""Bytes of a response that a server may send ahead: 10 MiB a second over a path of 100 ms. They wait in buffers of the
kernel, for no more is read than is wanted. At it: the server waits."""

FRAME_SIZE_MAX_BYTES: Final = 16 * KIB
"""The longest frame of a server: the least that RFC 9113, 4.2 allows, and what servers send. At it: the connection is
closed."""

IDLE_FRAMES_MAX: Final = 10_000
"""Frames in a row that bring nothing of a response, such as SETTINGS and PING, while nothing of a request is sent. A
server that sends a PING every ten seconds on a quiet stream needs a day for them. At it: the connection is closed."""

ANSWERS_MAX_BYTES: Final = 64 * KIB
"""Answers to PING and SETTINGS that wait to be written: some thousands. A server that asks for more does not read them.
At it: the connection is closed."""

TURN_FRAMES: Final = 200
"""Frames that are parsed before other connections get their turn: some milliseconds of work."""

CONNECTION_HEADERS: Final = frozenset(
    (b"host", b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"te")
)
"""Headers of a request that HTTP/2 does not have (RFC 9113, 8.2.2), or has as `:authority`."""

_HEADER_BYTES: Final = 9
_SETTINGS_TYPE: Final = 4
_GOAWAY_TYPE: Final = 7
_GOAWAY_MIN_BYTES: Final = 8
_HTTP1: Final = b"HTTP/1."
# What HTTP/1.1 allows: h2 lets more control characters through.
_VALUE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_ADDRESS: Final = re.compile(r" from <[^>]* at 0x[0-9a-f]+>")  # in errors of hpack
_NAME: Final = re.compile(rb"[-!#$%&'*+.^_`|~0-9a-z]+")


class Http2Codec:
    """The codec of one connection, for one request and response after another.

    Args:
        scheme: http or https.
        head_size_max_bytes: the longest head of a response, as HPACK counts it.

    Attributes:
        is_sent: the current request was given out in full.
        has_begun: something of the current response has arrived.
        is_unprocessed: the server has not run the current request, and says so.
        wants_http1: the server has not run the current request, since it speaks HTTP/1.1.
    """

    __slots__ = (
        "_answers_size",
        "_at",
        "_body",
        "_body_size",
        "_events",
        "_failure",
        "_farewell",
        "_frames_left",
        "_given_size",
        "_h2",
        "_has_settings",
        "_idle_count",
        "_input",
        "_is_at_eof",
        "_is_ended",
        "_last_stream",
        "_out",
        "_scheme",
        "_stream",
        "has_begun",
        "is_sent",
        "is_unprocessed",
        "wants_http1",
    )

    def __init__(self, *, scheme: str, head_size_max_bytes: int) -> None:
        self._scheme = scheme.encode()
        self._h2 = h2 = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        h2.local_settings = Settings(
            client=True,
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.MAX_CONCURRENT_STREAMS: 0,  # of the server
                SettingCodes.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
                SettingCodes.MAX_FRAME_SIZE: FRAME_SIZE_MAX_BYTES,
                SettingCodes.MAX_HEADER_LIST_SIZE: head_size_max_bytes,
            },
        )
        h2.decoder.max_header_list_size = head_size_max_bytes
        window_bytes = h2.inbound_flow_control_window
        h2.initiate_connection()
        h2.increment_flow_control_window(WINDOW_BYTES - window_bytes)
        self._out = bytearray(h2.data_to_send())  # what is to be written, apart from the body
        self._answers_size = 0  # bytes of answers to frames in it
        self._input = b""
        self._at = 0  # bytes of the input that are parsed
        self._is_at_eof = False
        self._has_settings = False  # the server's first frame, which must be SETTINGS
        self._frames_left = TURN_FRAMES  # in this turn
        self._idle_count = 0
        self._last_stream: int | None = None  # the last that a stopping server runs
        self._farewell = ""  # why it stops
        # The current request and its response.
        self._stream = 0  # 0: there is none
        self._body = b""  # until all of it is given out, or wanted no more
        self._body_size = 0
        self._given_size = 0  # bytes of the body given out
        self._events: deque[ResponseHead | InformationalHead | DataReceived | None] = deque()  # None: the end
        self._is_ended = False  # the end was taken
        self._failure: RemoteProtocolError | None = None
        self.is_sent = False
        self.has_begun = False
        self.is_unprocessed = False
        self.wants_http1 = False

    # --- The request ------------------------------------------------------------------------------------------------

    def begin_request(self, method: str, target: bytes, headers: Headers, body: bytes) -> bool:
        """Begins a request. Returns False if the connection can carry no other one.

        Args:
            headers: names in lower case, Host among them.
        """
        assert self._stream == 0
        h2 = self._h2
        is_full = h2.open_outbound_streams >= h2.remote_settings.max_concurrent_streams
        if is_full or self._is_at_eof or self._failure is not None or self._last_stream is not None:
            return False
        authority = dict(headers)[b"host"]
        fields = [(b":method", method.encode()), (b":scheme", self._scheme), (b":authority", authority)]
        fields.append((b":path", target))
        fields += [field for field in headers if field[0] not in CONNECTION_HEADERS]
        try:
            self._stream = stream = h2.get_next_available_stream_id()
        except NoAvailableStreamIDError:
            return False
        h2.send_headers(stream, fields, end_stream=not body)
        self._out += h2.data_to_send()
        self._body, self._body_size = body, len(body)
        return True

    def next_piece(self, size_max_bytes: int) -> bytes | None:
        """Returns the next bytes to write, with `size_max_bytes` of the body at most; None if there are none now."""
        piece = bytes(self._out)
        self._out.clear()
        self._answers_size = 0
        if self._body:
            piece += self._next_of_body(size_max_bytes)
        self.is_sent = self._stream > 0 and self._given_size == self._body_size
        return piece or None

    def _next_of_body(self, size_max_bytes: int) -> bytes:
        """Returns frames of the body, as far as the server's windows allow."""
        h2, body, at = self._h2, self._body, self._given_size
        stop = min(len(body), at + min(size_max_bytes, h2.local_flow_control_window(self._stream)))
        while at < stop:
            end = min(stop, at + h2.max_outbound_frame_size)
            h2.send_data(self._stream, body[at:end], end_stream=end == len(body))
            at = end
            self._idle_count = 0
        self._given_size = at
        if at == len(body):
            self._body = b""
        return h2.data_to_send()

    @property
    def has_output(self) -> bool:
        """True if `next_piece` has something."""
        return bool(self._out) or (bool(self._body) and self._h2.local_flow_control_window(self._stream) > 0)

    # --- The response -----------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Takes received bytes; b"" is the end of the stream."""
        if not data:
            self._is_at_eof = True
        elif self._at == len(self._input):
            self._input, self._at = data, 0
        else:
            self._input, self._at = self._input[self._at :] + data, 0

    def begin_turn(self) -> None:
        """Allows `TURN_FRAMES` further frames to be parsed."""
        self._frames_left = TURN_FRAMES

    @property
    def has_frames(self) -> bool:
        """True if there is more to parse in another turn."""
        return self._failure is None and self._next_size() is not None

    def next_event(self) -> ClientEvent:
        """Returns the next event of the response. NEED_DATA also means that the turn is over. Without a request, CLOSED
        means that the connection cannot carry another one.

        Raises:
            RemoteProtocolError: the response is malformed or broken off. Nothing more can be read.
        """
        while not self._events:
            if self._failure is not None:
                raise self._failure
            if not self._stream and self._last_stream is not None:
                return CLOSED
            size = self._next_size()
            if size is None and self._is_at_eof:
                if not self._stream:
                    return CLOSED
                self._fail(self._farewell)
            elif size is None or not self._frames_left:
                return NEED_DATA
            else:
                self._parse_frame(size)
        return self._take(self._events.popleft())

    def _take(self, event: ResponseHead | InformationalHead | DataReceived | None) -> ClientEvent:
        if event is None:
            self._is_ended = True
            return END
        if not isinstance(event, DataReceived):
            return event
        self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        self._out += self._h2.data_to_send()
        return Data(event.data)

    def go_on(self) -> bool:
        """Goes on to the next request, if it may. Returns True if it did."""
        if not self.is_sent or not self._is_ended or self._is_at_eof or self._failure is not None:
            return False
        if self._last_stream is not None:
            return False
        self._stream = self._given_size = 0
        self._is_ended = self.is_sent = self.has_begun = False
        return True

    # --- Frames -----------------------------------------------------------------------------------------------------

    def _next_size(self) -> int | None:
        """Returns the size of the next frame; None if not all of it has arrived."""
        header = self._input[self._at : self._at + _HEADER_BYTES]
        if not self._has_settings and header and header[: len(_HTTP1)] == _HTTP1[: len(header)]:
            return None if len(header) < len(_HTTP1) else len(header)
        if len(header) < _HEADER_BYTES:
            return None
        size = int.from_bytes(header[:3]) + _HEADER_BYTES
        is_whole = self._at + size <= len(self._input) or size > FRAME_SIZE_MAX_BYTES + _HEADER_BYTES
        return size if is_whole else None

    def _parse_frame(self, size: int) -> None:
        frame = self._input[self._at : self._at + size]
        self._at += size
        self._frames_left -= 1
        self._idle_count += 1
        if not self._has_settings:
            if frame.startswith(_HTTP1):
                self.wants_http1 = True
                return self._fail("got HTTP/1.1, expected HTTP/2")
            if frame[3] != _SETTINGS_TYPE:
                return self._fail("got no SETTINGS, expected them first")
            self._has_settings = True
        if size > FRAME_SIZE_MAX_BYTES + _HEADER_BYTES:
            return self._fail(f"got a frame of {size} bytes, expected {FRAME_SIZE_MAX_BYTES} at most")
        if frame[3] == _GOAWAY_TYPE:
            self._receive_goaway(frame)
        else:
            self._receive_frame(frame)
        if self._idle_count > IDLE_FRAMES_MAX:
            self._fail(f"got {self._idle_count} frames in a row with nothing of a response")
        return None

    def _receive_frame(self, frame: bytes) -> None:
        try:
            events = self._h2.receive_data(frame)
        except ProtocolError as error:
            return self._fail(f"got malformed HTTP/2: {_shown(_ADDRESS.sub('', str(error)))}")
        for event in events:
            self._receive_event(event)
        answers = self._h2.data_to_send()
        self._out += answers
        self._answers_size += len(answers)
        if self._answers_size > ANSWERS_MAX_BYTES:
            self._fail(f"got more PING and SETTINGS than it takes answers: {self._answers_size} bytes of them wait")
        return None

    def _receive_event(self, event: Event) -> None:
        match event:
            case ResponseReceived() | InformationalResponseReceived() if event.stream_id == self._stream:
                self._receive_head(event)
            case DataReceived() if event.stream_id == self._stream:
                if event.data:
                    self._idle_count = 0
                    self._events.append(event)
                else:  # padding alone
                    self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case StreamEnded() if event.stream_id == self._stream:
                self._events.append(None)
            case StreamReset() if event.stream_id == self._stream:
                self._receive_reset(event.error_code or 0)

    def _receive_head(self, event: ResponseReceived | InformationalResponseReceived) -> None:
        self.has_begun = True
        status, headers = 0, []
        for name, value in event.headers:
            assert isinstance(name, bytes) and isinstance(value, bytes)
            if name == b":status":
                if re.fullmatch(rb"[1-9][0-9]{2}", value) is None:
                    return self._fail("got another :status, expected three digits")
                status = int(value)
            elif _NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
                return self._fail(f"got a header {name[:50]!r} with characters that none may have")
            else:
                headers.append((name, value))
        if isinstance(event, InformationalResponseReceived):
            return self._events.append(InformationalHead(status, tuple(headers)))
        self._idle_count = 0
        return self._events.append(ResponseHead(status, tuple(headers), "2"))

    def _receive_reset(self, code: int) -> None:
        """Handles RST_STREAM. A response that was complete before is still taken."""
        if not self.has_begun:
            self.is_unprocessed = code == ErrorCodes.REFUSED_STREAM
            self.wants_http1 = code == ErrorCodes.HTTP_1_1_REQUIRED
        self._fail(f"got RST_STREAM ({_name(code)}), expected a response")

    def _receive_goaway(self, frame: bytes) -> None:
        """Handles GOAWAY. The server goes on with streams up to the one it names, and has not run later ones.

        Source: RFC 9113, 6.8.
        """
        if len(frame) < _HEADER_BYTES + _GOAWAY_MIN_BYTES or frame[5:_HEADER_BYTES].strip(b"\0"):
            return self._fail("got a malformed GOAWAY")
        fields = frame[_HEADER_BYTES:]
        last_stream = int.from_bytes(fields[:4]) & 0x7FFF_FFFF
        code = int.from_bytes(fields[4:8])
        self._last_stream = last_stream if self._last_stream is None else min(last_stream, self._last_stream)
        if code:
            shown = _shown(fields[_GOAWAY_MIN_BYTES:].decode("ascii", "replace"))
            self._farewell = f"got GOAWAY ({_name(code)}{': ' if shown else ''}{shown})"
        if self._stream > self._last_stream:
            self.is_unprocessed = not self.has_begun
            self.wants_http1 = self.is_unprocessed and code == ErrorCodes.HTTP_1_1_REQUIRED
            self._fail(self._farewell or "got GOAWAY, expected a response")
        return None

    def _fail(self, problem: str) -> None:
        """Ends the request behind what was received of its response. The rest of it is not sent."""
        self._body = b""
        self._failure = RemoteProtocolError(problem)


def _shown(text: str) -> str:
    """Returns the beginning of a text of the server, printable."""
    return "".join(c if " " <= c <= "~" else "?" for c in text[:200])


def _name(code: int) -> str:
    try:
        return ErrorCodes(code).name
    except ValueError:
        return hex(code)
