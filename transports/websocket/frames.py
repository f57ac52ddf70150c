"""The framing of one WebSocket, between its handshake and its end: bytes to events, and messages to bytes.

wsproto parses and makes frames. Here frames become messages, within a size limit that also holds for compressed
messages: never more is inflated than the limit allows. Apart from `Part`, events do not depend on how the bytes were
cut up.
"""

from __future__ import annotations

import zlib
from collections import deque
from typing import Final

import msgspec
from wsproto.extensions import Extension
from wsproto.frame_protocol import CloseReason, Frame, FrameDecoder, FrameProtocol, Opcode, ParseFailed, RsvBits

from ...core.base.budget import Share
from ...core.base.limits import KIB
from ...core.wire.truncated import HEAD_SIZE_MAX_BYTES
from ...core.wire.websocket import (
    INVALID_DATA,
    TOO_BIG,
    TRY_AGAIN_LATER,
    UNSUPPORTED_DATA,
    Deflate,
    SocketError,
    parse_close,
)

INFLATE_BYTES: Final = 4 * KIB
"""Bytes parsed at a time where messages may be compressed. Deflate expands them at most a thousandfold, so that the
copies stay small."""
DEFLATE_MIN_BYTES: Final = 1 * KIB
"""Bytes below which a message is not compressed: it fits into one packet either way."""
DEFLATE_LEVEL: Final = 1
"""The fastest level: while one message is compressed, all other connections wait."""

_TAIL: Final = b"\x00\x00\xff\xff"
"""The bytes that end each compressed message, and are left out on the wire (RFC 7692, 7.2.1)."""


class Text(msgspec.Struct, frozen=True):
    """A complete message, valid UTF-8."""

    data: bytes


class Part(msgspec.Struct, frozen=True):
    """Anything that needs no action: part of a message, a pong, or input after a failure."""


class Ping(msgspec.Struct, frozen=True):
    """A ping of the peer. It is to be answered with a pong of the same payload, at most 125 bytes."""

    payload: bytes


class Closed(msgspec.Struct, frozen=True):
    """The peer's Close frame. No event follows."""

    code: int | None
    reason: str


class Failed(msgspec.Struct, frozen=True):
    """A violation of the protocol by the peer, reported once: the connection is to be closed with `code`. Only `Part`
    and `Closed` follow. `head` is the beginning of a message over the limit."""

    code: int
    reason: str
    head: bytes = b""


FrameEvent = Text | Part | Ping | Closed | Failed

_PART: Final = Part()


class Frames:
    """The codec of both directions: `receive_bytes` and `next_event` for input, the `encode_…` methods for output.

    Args:
        is_client: True on the client's side.
        takes_binary: accept a binary message as text if it is UTF-8.
        share: takes the bytes of a message that is arriving in several pieces and is larger than most.
    """

    def __init__(
        self,
        *,
        is_client: bool,
        message_size_max_bytes: int,
        deflate: Deflate | None = None,
        takes_binary: bool = False,
        share: Share | None = None,
    ) -> None:
        self._deflate = None if deflate is None else _DeflateExtension(deflate, message_size_max_bytes)
        extensions: list[Extension] = [] if self._deflate is None else [self._deflate]
        self._reader = FrameDecoder(is_client, extensions)
        self._writer = FrameProtocol(is_client, extensions)
        self._step = None if deflate is None else INFLATE_BYTES
        self._size_max = message_size_max_bytes
        self._takes_binary = takes_binary
        self._share = share
        self._waiting: deque[bytes] = deque()  # input that was not given to the reader yet
        self._opcode: Opcode | None = None  # of the current message
        self._message = bytearray()
        self._has_failed = False
        self._is_over = False  # all further input is ignored

    def receive_bytes(self, data: bytes) -> None:
        if self._is_over or not data:
            return
        step = self._step or len(data)
        self._waiting.extend(data[start : start + step] for start in range(0, len(data), step))

    def next_event(self) -> FrameEvent | None:
        """Returns the next event; None if more bytes are needed."""
        while not self._is_over:
            try:
                frame = self._reader.process_buffer()
                if frame is not None:
                    return self._receive_frame(frame)
            except ParseFailed as error:
                self.stop()
                return self._fail(error.code, f"got a malformed frame ({error}), expected RFC 6455")
            except SocketError as error:
                self.stop()
                return self._fail(error.code, error.message)
            if not self._waiting:
                return None
            self._reader.receive_bytes(self._waiting.popleft())
        return None

    def encode_text(self, text: str, *, is_last: bool) -> bytes:
        """Encodes a message, or the next part of one. Other frames may stand between the parts."""
        return bytes(self._writer.send_data(text, fin=is_last))

    def encode_ping(self) -> bytes:
        return bytes(self._writer.ping())

    def encode_pong(self, payload: bytes) -> bytes:
        return bytes(self._writer.pong(payload))

    def encode_close(self, code: int | None, reason: str) -> bytes:
        """Encodes the Close frame, the last frame.

        Args:
            reason: at most `REASON_MAX_BYTES`; must be empty without a code.
        """
        return bytes(self._writer.close(code, reason or None))

    def _receive_frame(self, frame: Frame) -> FrameEvent:
        payload = frame.payload
        assert isinstance(payload, bytes)
        if frame.opcode is Opcode.CLOSE:
            closed = Closed(*parse_close(payload))
            self.stop()
            return closed
        if frame.opcode is Opcode.PING and not self._has_failed:
            return Ping(payload)
        if frame.opcode.iscontrol():
            return _PART
        return self._receive_piece(frame, payload)

    def _receive_piece(self, frame: Frame, payload: bytes) -> FrameEvent:
        """Handles a piece of a message: a frame, or as much of it as has arrived."""
        if frame.opcode is Opcode.CONTINUATION:
            if self._opcode is None:
                raise SocketError("got a continuation of no message, expected a message's beginning")
        elif self._opcode is not None:
            raise SocketError("got a new message within another one, expected the rest of that")
        else:
            self._opcode = frame.opcode
        is_binary = self._opcode is Opcode.BINARY
        is_last = frame.frame_finished and frame.message_finished
        if is_last:
            self._opcode = None
        if self._has_failed:
            return _PART
        if is_binary and not self._takes_binary:
            return self._fail(UNSUPPORTED_DATA, "got a binary message, expected text")
        if self._deflate is not None and self._deflate.is_broken:
            return self._fail(INVALID_DATA, "got compressed data that cannot be inflated, expected a message")
        if len(self._message) + len(payload) > self._size_max:
            head_max = min(HEAD_SIZE_MAX_BYTES, self._size_max)
            head = bytes(self._message[:head_max] + payload[:head_max])[:head_max]
            return self._fail(TOO_BIG, f"got a message over the limit of {self._size_max} bytes", head)
        if not is_last:
            size_bytes = len(self._message) + len(payload)
            if self._share is not None and not self._share.hold(size_bytes):
                return self._fail(TRY_AGAIN_LATER, "other messages that are arriving have all the room: try again")
            self._message += payload
            return _PART
        if self._message:
            self._message += payload
            payload = bytes(self._message)
            self._drop()
        if not _is_utf8(payload):
            code, kind = (UNSUPPORTED_DATA, "a binary message") if is_binary else (INVALID_DATA, "text")
            return self._fail(code, f"got {kind} that is not UTF-8, expected UTF-8")
        return Text(payload)

    def _fail(self, code: int, reason: str, head: bytes = b"") -> FrameEvent:
        if self._has_failed:
            return _PART
        self._has_failed = True
        self._drop()
        return Failed(code, reason, head)

    def stop(self) -> None:
        """Drops what has arrived, and ignores all further input: the connection is over."""
        self._is_over = True
        self._waiting.clear()
        self._drop()

    def _drop(self) -> None:
        self._message = bytearray()
        if self._share is not None:
            self._share.give_all_back()


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class _DeflateExtension(Extension):
    """The `permessage-deflate` extension with agreed parameters. Of a message over the limit, one byte more than the
    limit is inflated, and no more.

    wsproto's own extension inflates any amount, and keeps what follows a stream's end for ever.

    Attributes:
        is_broken: input could not be inflated. This is no error here, since the frame's own errors come first.
    """

    name = "permessage-deflate"

    def __init__(self, agreed: Deflate, message_size_max_bytes: int) -> None:
        self._agreed = agreed
        self._size_max = message_size_max_bytes
        self._deflater: zlib._Compress | None = None  # while a compressed message is being written
        self._inflater: zlib._Decompress | None = None
        self._is_control = False  # the current frame
        self._is_compressed = False  # the current message
        self._room = 0  # bytes the current message may still inflate to; below zero once it is too long
        self.is_broken = False

    def enabled(self) -> bool:
        return True

    def offer(self) -> bool | str:
        raise AssertionError("the handshake was before")

    def frame_inbound_header(
        self, proto: FrameDecoder | FrameProtocol, opcode: Opcode, rsv: RsvBits, payload_length: int
    ) -> CloseReason | RsvBits:
        """Accepts the header of a frame. wsproto calls this again with the same header if it had not arrived in
        full."""
        self._is_control = opcode.iscontrol()
        is_first = opcode in (Opcode.TEXT, Opcode.BINARY)
        if is_first:
            self._is_compressed = rsv.rsv1
            self._room = self._size_max
        return RsvBits(is_first, False, False)  # elsewhere the bit is an error

    def frame_inbound_payload_data(self, proto: FrameDecoder | FrameProtocol, data: bytes) -> bytes:
        if self._is_control or not self._is_compressed:
            return data
        return self._inflate(data)

    def frame_inbound_complete(self, proto: FrameDecoder | FrameProtocol, fin: bool) -> bytes | None:
        if self._is_control or not fin or not self._is_compressed:
            return None
        rest = self._inflate(_TAIL)
        self._is_compressed = False  # a continuation of no message is not inflated
        if not self._agreed.peer_keeps_window:
            self._inflater = None
        return rest

    def frame_outbound(
        self, proto: FrameDecoder | FrameProtocol, opcode: Opcode, rsv: RsvBits, data: bytes, fin: bool
    ) -> tuple[RsvBits, bytes]:
        if opcode.iscontrol():
            return rsv, data
        if opcode is not Opcode.CONTINUATION:
            if len(data) < DEFLATE_MIN_BYTES:
                return rsv, data
            self._deflater = zlib.compressobj(DEFLATE_LEVEL, zlib.DEFLATED, -self._agreed.window_bits)
            rsv = rsv._replace(rsv1=True)
        if self._deflater is None:
            return rsv, data
        data = self._deflater.compress(data)
        if fin:
            data = (data + self._deflater.flush(zlib.Z_SYNC_FLUSH)).removesuffix(_TAIL)
            self._deflater = None
        return rsv, data

    def _inflate(self, data: bytes) -> bytes:
        if self._room < 0 or self.is_broken:
            return b""
        if self._inflater is None:
            self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            inflated = self._inflater.decompress(data, self._room + 1)
        except zlib.error:
            self.is_broken = True
            return b""
        self._room -= len(inflated)
        if self._room < 0:
            self._inflater = None  # drops the input that it holds too
        elif self._inflater.eof:  # a final block: no peer sends one, and another stream would follow it
            self.is_broken = True
        return inflated
