"""Server-sent events: a reader for the client's side of an event stream, and encoders for the server's side.

A stream consists of lines. A line is a field, a comment, or blank, and a blank line ends an event. Lines end in CR, LF
or CRLF, so `EventReader` first turns every line end into LF. Each byte is searched once, when it arrives; an unfinished
line is buffered in pieces that never hold a line end.

MCP servers nearly always send the block `event: message`, `data: …`, blank line, perhaps with an `id`. Two fast paths
skip the parser for it. `EventReader.receive_bytes` matches the prefix and searches for the line end; `take_plain`
splits a whole chunk of such blocks at once. Both take a block only where it is complete, within the limit and between
two events, so the line parser would return the same events. `tests/core/wire/test_sse.py` compares `receive_bytes` with
the algorithm of the standard, and `test_a_look_for_plain_events_changes_nothing` compares both ways.

Source: WHATWG HTML, "Server-sent events", sections "Parsing" and "Interpreting an event stream".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from ..base.budget import UNCOUNTED_MAX_BYTES, Share
from ..base.errors import LocalProtocolError
from .chunks import Chunks
from .truncated import HEAD_SIZE_MAX_BYTES, HeadAndTail

BOM: Final = b"\xef\xbb\xbf"
PLAIN: Final = b"event: message\ndata: "
DATA: Final = b"data: "

_PREFIX: Final = re.compile(
    rb"(?:id: (?P<early>[^\n\0]{0,128})\n)?(?:event: message\n)?(?:id: (?P<late>[^\n\0]{0,128})\n)?data: "
)
"""The lines before the data of a message, as the usual libraries write them."""

RETRY_MAX_MS: Final = 24 * 60 * 60 * 1000
"""The longest `retry` of a stream: a day. A server that wants more does not want the stream to be opened again. At it:
it is read as this."""

DROPPED_LINE_MAX_BYTES: Final = 16 * 1024
"""The longest line that is still read in an event that is dropped: it may name the event's id. An id over 8 KiB is of
no use, as no header can carry it."""

LINES_MAX: Final = 100_000
"""Lines of one event that are read, comments and unknown fields aside: each costs as much as a KiB of text. At it: the
event is dropped, and its further lines are skipped, ids among them."""

COMMENT: Final = b": keep-alive\n\n"
"""A comment without meaning, written on an idle stream so that intermediaries do not close it."""


class Event(msgspec.Struct, frozen=True, tag=True, tag_field="fact", gc=False):
    """An event with data, which is never empty.

    Attributes:
        data: the content of the data lines, joined by LF, as sent. UTF-8 is not checked.
        id: the last event id of the stream after this event: None if the stream has named none yet, "" if the server
            has withdrawn it.
    """

    type: str
    data: bytes
    id: str | None


class Identified(msgspec.Struct, frozen=True, tag=True, tag_field="fact"):
    """An event without data that sets the last event id, or withdraws it (""). With an id, the stream can be resumed.

    Source: 2025-11-25 basic/transports, "Sending Messages to the Server": "an SSE event consisting of an event ID and
    an empty data field in order to prime the client to reconnect".
    """

    id: str


class Retry(msgspec.Struct, frozen=True, tag=True, tag_field="fact"):
    """The time in ms that the server wants a client to wait before it reopens a lost stream; at most `RETRY_MAX_MS`."""

    ms: int


class Oversize(msgspec.Struct, frozen=True, tag=True, tag_field="fact"):
    """An event over the limit, which was dropped. The stream goes on.

    Attributes:
        size_bytes: the bytes that counted towards the limit, and all that followed up to the end of the event.
        id: the last event id of the stream after this event (see `Event.id`).
        type: the event type.
        head: the first bytes of its data, at most `HEAD_SIZE_MAX_BYTES` and at most the limit.
        tail: the last bytes of its data, at most `TAIL_SIZE_MAX_BYTES`. Head and tail serve to find the id of the
            message. An event that the end of the stream cut off has neither.
    """

    size_bytes: int
    id: str | None = None
    type: str = "message"
    head: bytes = b""
    tail: bytes = b""


SseEvent = Event | Identified | Retry | Oversize


class EventReader:
    """Splits a stream of bytes into events.

    Two things differ from a browser: an event with empty data is not an `Event`, as no message is empty, and data stays
    bytes. An event over the limit still sets the last event id, so that resuming does not deliver it again for ever.

    Args:
        event_size_max_bytes: the most bytes that the `data`, `event` and `id` lines of one event may have together with
            the current line of whatever kind, line ends not counted. About this much is buffered at most, and 20 KiB of
            an event that is dropped.
        share: takes the bytes of an event that is arriving and is larger than most. An event for which it has no room
            is dropped like one over the limit.

    Attributes:
        last_event_id: the id to send as `Last-Event-ID` to resume this stream (see `Event.id`).
    """

    def __init__(self, *, event_size_max_bytes: int, share: Share | None = None) -> None:
        assert event_size_max_bytes > 0
        self.last_event_id: str | None = None
        self._size_max = event_size_max_bytes
        self._share = share
        self._is_first_line = True
        self._ends_in_cr = False  # an LF that comes next belongs to that line end
        self._is_at_eof = False
        # The current line.
        self._line = Chunks()
        # The current event.
        self._size = 0  # bytes counted towards the limit; above it, all bytes of lines until the event ends
        self._line_count = 0  # of the lines that count
        self._type = ""
        self._data: bytes | bytearray | None = None
        self._id: str | None = None
        # Above the limit, head and tail of the data and of the current line; `_data` and `_line` stay empty then.
        self._dropped: HeadAndTail | None = None
        self._dropped_line: HeadAndTail | None = None
        self._is_skipping = False  # its further lines are not read

    def receive_bytes(self, data: bytes) -> list[SseEvent]:
        """Takes the bytes that arrived, cut anywhere, and returns the events that they complete.

        Raises:
            LocalProtocolError: the stream has ended already. The state is unchanged.
        """
        if self._is_at_eof:
            raise LocalProtocolError("got bytes after the end of the stream, expected a new EventReader")
        if self._ends_in_cr or b"\r" in data:
            data = self._unify_line_ends(data)
        out: list[SseEvent] = []
        start = 0
        while True:
            if not self._size and not self._line.size_bytes:
                is_plain = data.startswith(PLAIN, start)
                found = None if is_plain else _PREFIX.match(data, start)
                begin = start + len(PLAIN) if is_plain else found.end() if found is not None else 0
                end = data.find(b"\n", begin) if begin else -1
                # This counts line ends and the limit does not: an event near the limit is left to the line parser.
                if begin < end <= start + self._size_max and data.startswith(b"\n", end + 1):
                    self._is_first_line = False
                    if found is not None:
                        self._receive_id(found)
                    out.append(Event("message", data[begin:end], self.last_event_id))
                    start = end + 2
                    continue
            if self._is_skipping:
                start = self._skip_lines(data, start)
            end = data.find(b"\n", start)
            if end < 0:
                break
            self._finish_line(data, start, end, out)
            start = end + 1
        if start < len(data):
            self._keep(data[start:])
        return out

    def take_plain(self, data: bytes) -> tuple[list[bytes], bytes]:
        """Takes the plain `message` events at the beginning of a chunk. Returns their data, and the rest of the chunk,
        which the caller passes to `receive_bytes`.

        Events are taken only if everything up to the last blank line is such events without ids, all written with the
        same prefix. Then the chunk can be split at the text between two events, and the number of line ends proves that
        nothing else is in it. Otherwise nothing is taken, and the rest is the whole chunk. The events are those that
        `receive_bytes` would return (`test_a_look_for_plain_events_changes_nothing` in `tests/core/wire/test_sse.py`).
        """
        head = PLAIN if data.startswith(PLAIN) else DATA
        if self._size or self._line.size_bytes or self._ends_in_cr or self._is_at_eof or not data.startswith(head):
            return [], data
        stop = data.rfind(b"\n\n")
        if not 0 <= stop <= self._size_max:
            return [], data
        found = data[len(head) : stop].split(b"\n\n" + head)
        lines = head.count(b"\n") + 2
        if data.count(b"\n", 0, stop) != lines * len(found) - 2 or b"" in found or b"\r" in data:
            return [], data
        self._is_first_line = False
        return found, data[stop + 2 :]

    def receive_eof(self) -> list[Oversize]:
        """Ends the stream. An event that this cuts off is discarded, and reported only if it was over the limit
        already. A second call reports nothing."""
        self._is_at_eof = True
        out = [] if self._dropped is None else [Oversize(self._size, self.last_event_id, self._type or "message")]
        self._line.take()
        self._start_event()
        return out

    def _receive_id(self, prefix: re.Match[bytes]) -> None:
        early, late = prefix.groups()
        id = early if late is None else late
        if id is not None:
            self.last_event_id = id.decode("utf-8", "replace")

    def _unify_line_ends(self, data: bytes) -> bytes:
        """Returns `data` with LF for every line end. A CR at the end counts as a line end at once; otherwise the last
        event would be held until the next bytes."""
        if not data:
            return data
        if self._ends_in_cr:
            data = data.removeprefix(b"\n")
        self._ends_in_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _finish_line(self, data: bytes, start: int, end: int, out: list[SseEvent]) -> None:
        """Ends the current line with `data[start:end]`."""
        size_bytes = self._line.size_bytes + end - start
        if self._dropped is None and self._size + size_bytes > self._size_max:
            self._drop()
        if self._dropped is not None:
            self._keep_ends(data[start:end])
            self._finish_dropped_line(self._dropped, out)
            return
        line = data
        if self._line.size_bytes:
            self._line.append(data[start:end])
            if self._data is None and not self._is_first_line and self._line.startswith(DATA):
                # The usual case, a first data line: however long, it is copied once.
                self._data = self._line.take(len(DATA))
                self._size += size_bytes
                return
            line, start, end = self._line.take(), 0, size_bytes
        if self._is_first_line:
            self._is_first_line = False
            if line.startswith(BOM, start, end):
                start += len(BOM)
        if start == end:
            self._dispatch(out)
        elif self._receive_field(line, start, end, out):
            self._size += end - start
            self._line_count += 1
            if self._line_count > LINES_MAX:
                self._drop()
                self._is_skipping = True
            elif self._size > UNCOUNTED_MAX_BYTES and self._share is not None and not self._share.hold(self._size):
                self._drop()

    def _skip_lines(self, data: bytes, start: int) -> int:
        """Skips the lines that follow in an event with too many. Returns where the last one begins, or the blank line
        that ends the event."""
        assert self._dropped_line is not None
        if self._dropped_line.size_bytes or data.startswith(b"\n", start):
            return start
        end = data.find(b"\n\n", start)
        begin = 1 + (end if end >= 0 else data.rfind(b"\n", start))
        if begin <= start:
            return start
        self._size += begin - start - data.count(b"\n", start, begin)
        return begin

    def _keep(self, piece: bytes) -> None:
        """Adds `piece`, not empty, to the current line, whose end has not arrived."""
        if self._dropped is None:
            size_bytes = self._size + self._line.size_bytes + len(piece)
            if size_bytes > self._size_max or (self._share is not None and not self._share.hold(size_bytes)):
                self._drop()
        if self._dropped is not None:
            self._keep_ends(piece)
        else:
            self._line.append(piece)

    def _drop(self) -> None:
        """Starts to drop the event, as the current line takes it over the limit: from here on, only head and tail of
        its data and of the current line are kept."""
        self._dropped = HeadAndTail(min(HEAD_SIZE_MAX_BYTES, self._size_max))
        self._dropped_line = HeadAndTail(DROPPED_LINE_MAX_BYTES)
        if self._data is not None:
            self._dropped.receive_bytes(self._data)
            self._data = b""
        self._keep_ends(self._line.take())
        if self._share is not None:
            self._share.give_all_back()

    def _keep_ends(self, piece: bytes) -> None:
        self._size += len(piece)
        assert self._dropped_line is not None
        self._dropped_line.receive_bytes(piece)

    def _finish_dropped_line(self, dropped: HeadAndTail, out: list[SseEvent]) -> None:
        """Ends a line of a dropped event. A line other than data is still read, unless it is too long itself."""
        ends = self._dropped_line
        assert ends is not None
        if not ends.size_bytes:
            self._dispatch(out)
            return
        self._dropped_line = HeadAndTail(DROPPED_LINE_MAX_BYTES)
        if self._is_skipping:
            return
        start = len(BOM) if self._is_first_line and ends.head.startswith(BOM) else 0
        self._is_first_line = False
        name, colon, value = ends.head[start:].partition(b":")
        if name == b"data":
            if self._data is not None:
                dropped.receive_bytes(b"\n")
            self._data = b""
            value_start = start + len(name) + len(colon) + value.startswith(b" ")
            dropped.receive_ends(ends, value_start)
        elif ends.is_whole or name == b"event":  # the beginning of a long type shows that it is not `message`
            self._receive_field(ends.head, start, len(ends.head), out)

    def _receive_field(self, line: bytes, start: int, end: int, out: list[SseEvent]) -> bool:
        """Reads a line that is not blank. Returns True if it counts towards the limit: a comment (without a name) and
        an unknown field are not kept and do not count."""
        colon = line.find(b":", start, end)
        value_start = colon + 1
        if colon < 0:
            colon = value_start = end
        elif line.startswith(b" ", value_start, end):
            value_start += 1
        name = line[start:colon]
        value = line[value_start:end]
        if name == b"data":
            if self._data is None:
                self._data = value
            else:
                # Most events have one data line, kept as it is. Further lines are gathered in one buffer.
                if isinstance(self._data, bytes):
                    self._data = bytearray(self._data)
                self._data += b"\n"
                self._data += value
        elif name == b"event":
            self._type = value.decode("utf-8", "replace")
        elif name == b"id":
            if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
        else:
            if name == b"retry" and value.isdigit():
                # Nine digits are more than a day in ms. Python refuses to convert thousands of digits.
                digits = value.lstrip(b"0")
                out.append(Retry(RETRY_MAX_MS if len(digits) > 8 else min(int(digits or b"0"), RETRY_MAX_MS)))
            return False
        return True

    def _dispatch(self, out: list[SseEvent]) -> None:
        """Completes the current event, at a blank line."""
        if self._id is not None:
            self.last_event_id = self._id
        if (dropped := self._dropped) is not None:
            type = self._type or "message"
            out.append(Oversize(self._size, self.last_event_id, type, dropped.head, dropped.tail))
        elif self._data:
            out.append(Event(self._type or "message", bytes(self._data), self.last_event_id))
        elif self._id is not None:
            out.append(Identified(self._id))
        self._start_event()

    def _start_event(self) -> None:
        self._size = 0
        self._line_count = 0
        self._is_skipping = False
        self._type = ""
        self._data = None
        self._id = None
        if self._dropped is not None:
            self._dropped = self._dropped_line = None
        elif self._share is not None and self._share.amount:
            self._share.give_all_back()


def encode_event(data: bytes, *, event: str = "message", id: str | None = None, retry_ms: int | None = None) -> bytes:
    """Encodes one event with LF line ends and one data line, the form that most clients read.

    Args:
        data: the JSON of one message, or other text in UTF-8. CR and LF in it become spaces: inside JSON text they can
            only be white space between tokens. Empty together with an `id`, it primes the client to resume (see
            `Identified`).
        id: the last event id from here on; None leaves it as it is.
        retry_ms: the time that the client shall wait before it reopens the stream if it is lost.

    Raises:
        LocalProtocolError: `event` or `id` holds a line end or a NUL: readers would misread or ignore the line.
    """
    head = "event: message\n" if event == "message" else f"event: {_one_line('event', event)}\n"
    if id is not None:
        head += f"id: {_one_line('id', id)}\n"
    if retry_ms is not None:
        head += f"retry: {retry_ms:d}\n"
    return b"".join((head.encode(), b"data: ", without_line_ends(data), b"\n\n"))


def without_line_ends(data: bytes) -> bytes:
    """Returns JSON text, or a part of it, with spaces for CR and LF."""
    return data.replace(b"\r", b" ").replace(b"\n", b" ")


def encode_events(messages: Sequence[bytes], ids: Sequence[str]) -> bytes:
    """Encodes messages as events, with the same result as `encode_event` for each.

    Args:
        ids: one for each message, of printable ASCII; or an empty sequence for events without ids.
    """
    whole = b"".join(messages)
    if b"\n" in whole or b"\r" in whole:
        messages = [message.replace(b"\r", b" ").replace(b"\n", b" ") for message in messages]
    if not ids:
        return b"".join([b"event: message\ndata: %b\n\n" % message for message in messages])
    out: list[bytes] = []
    for message, id in zip(messages, ids, strict=True):
        out += (b"event: message\nid: ", id.encode(), b"\ndata: ", message, b"\n\n")
    return b"".join(out)


def _one_line(field: str, value: str) -> str:
    if any(c in value for c in "\r\n\0"):
        raise LocalProtocolError(f"got {value!r} for {field}, expected text without CR, LF and NUL")
    return value
