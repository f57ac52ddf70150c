"""The event stream of HTTP: server-sent events, read as a client does and written as a server does.

A stream is lines; a line is a field, a comment, or blank; a blank line ends an event. Line ends are CR, LF or CRLF, so
chunks are first brought to LF alone. What MCP servers send is nearly always the one block `event: message`,
`data: …`, blank, perhaps with an `id`: it is recognised by its prefix and a search. Everything else goes line by line.
Bytes are searched when they arrive and not again; an unfinished line waits in pieces that never hold a line end.

Source: WHATWG HTML, "Server-sent events", sections "Parsing" and "Interpreting an event stream".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from ..base.errors import LocalProtocolError
from .chunks import Pieces
from .truncated import HEAD_SIZE_MAX_BYTES, Remains

BOM: Final = b"\xef\xbb\xbf"
PLAIN: Final = b"event: message\ndata: "
DATA: Final = b"data: "

_PREFIX: Final = re.compile(
    rb"(?:id: (?P<early>[^\n\0]{0,128})\n)?(?:event: message\n)?(?:id: (?P<late>[^\n\0]{0,128})\n)?data: "
)
"""What stands before the data of a message, as the usual libraries write it."""

RETRY_MAX_MS: Final = 24 * 60 * 60 * 1000
"""A longer `retry` is read as a day: whoever says so does not want to be asked again."""

DROPPED_LINE_MAX_BYTES: Final = 16 * 1024
"""A line of an event that is dropped is still read if it is no longer: it may name the event's id, which fits into 8
KiB if it is to be of any use."""

COMMENT: Final = b": keep-alive\n\n"
"""Says nothing. Written on an idle stream, so that nobody in between takes it for dead."""


class Event(msgspec.Struct, frozen=True, tag=True, tag_field="fact", gc=False):
    """An event with data, which is never empty.

    `data` is what its data lines hold, joined by LF, as sent (UTF-8 is not checked); `id` is the stream's last event id
    after this event: None if the stream has named none yet, "" if the server has withdrawn it.
    """

    type: str
    data: bytes
    id: str | None


class Identified(msgspec.Struct, frozen=True, tag=True, tag_field="fact"):
    """An event without data that names the last event id, or withdraws it (""): there is something to resume from.

    Source: 2025-11-25 basic/transports, "Sending Messages to the Server": "an SSE event consisting of an event ID and
    an empty data field in order to prime the client to reconnect".
    """

    id: str


class Retry(msgspec.Struct, frozen=True, tag=True, tag_field="fact"):
    """The server wants to be left alone for so long before a lost stream is opened again; at most `RETRY_MAX_MS`."""

    ms: int


class Oversize(msgspec.Struct, frozen=True, tag=True, tag_field="fact"):
    """An event over the limit was dropped; the stream goes on.

    `size_bytes` is what the limit counted, and all that followed up to the event's end; `id` is the stream's last event
    id after it (see `Event.id`); `head` is how its data began (at most `HEAD_SIZE_MAX_BYTES` and at most the limit) and
    `tail` how it ended (at most `TAIL_SIZE_MAX_BYTES`), to find out whose it was. One that never ended has neither.
    """

    size_bytes: int
    id: str | None = None
    type: str = "message"
    head: bytes = b""
    tail: bytes = b""


SseEvent = Event | Identified | Retry | Oversize


class EventReader:
    """Bytes in, events out. `last_event_id` is what a request to resume this stream names (see `Event.id`).

    Two things differ from a browser: an event with empty data is not an `Event`, as no message is empty, and data stays
    bytes. An event over the limit still sets the last event id, so that resuming does not bring it back for ever.

    Args:
        event_size_max_bytes: the most that the `data`, `event` and `id` lines of one event, and any one line, may hold
            together, line ends not counted. About this much is ever buffered, and 20 KiB of an event that is dropped.
    """

    def __init__(self, *, event_size_max_bytes: int) -> None:
        assert event_size_max_bytes > 0
        self.last_event_id: str | None = None
        self._size_max = event_size_max_bytes
        self._is_first_line = True
        self._ends_in_cr = False  # the LF of a CRLF may be next
        self._is_at_eof = False
        # The line at hand.
        self._line = Pieces()
        # The event at hand.
        self._size = 0  # what counts towards the limit; above it, all bytes of lines until the event ends
        self._type = ""
        self._data: bytes | bytearray | None = None
        self._id: str | None = None
        # Above the limit, the ends of its data, and of the line at hand: `_data` and `_line` stay empty then.
        self._dropped: Remains | None = None
        self._dropped_line: Remains | None = None

    def receive_bytes(self, data: bytes) -> list[SseEvent]:
        """Take what arrived, cut anywhere; return the events it completed.

        Raises:
            LocalProtocolError: the stream has ended already. Nothing has changed.
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
                # The limit does not count line ends: what passes it only by those is judged line by line.
                if begin < end <= start + self._size_max and data.startswith(b"\n", end + 1):
                    self._is_first_line = False
                    if found is not None:
                        self._receive_id(found)
                    out.append(Event("message", data[begin:end], self.last_event_id))
                    start = end + 2
                    continue
            end = data.find(b"\n", start)
            if end < 0:
                break
            self._finish_line(data, start, end, out)
            start = end + 1
        if start < len(data):
            self._keep(data[start:])
        return out

    def take_plain(self, data: bytes) -> tuple[list[bytes], bytes]:
        """The data of events of type `message` at the beginning of what arrived, and the rest, for `receive_bytes`.

        They are taken where everything up to the last blank line is just that, written as most servers do, without
        ids: then each stands between two equal texts. How many line ends there are shows that nothing else is there.
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
        """The stream ended. An event cut off by that is discarded, and reported only if it was over the limit already.
        Asked again, there is nothing to report."""
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
        """`data` with LF for every line end. A CR ends its line at once, or a last event would wait for the next."""
        if not data:
            return data
        if self._ends_in_cr:
            data = data.removeprefix(b"\n")
        self._ends_in_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _finish_line(self, data: bytes, start: int, end: int, out: list[SseEvent]) -> None:
        """`data[start:end]` ends the line at hand."""
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
                # However long it is, it is copied once.
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

    def _keep(self, piece: bytes) -> None:
        """`piece`, not empty, continues the line at hand, whose end is not in sight."""
        if self._dropped is None and self._size + self._line.size_bytes + len(piece) > self._size_max:
            self._drop()
        if self._dropped is not None:
            self._keep_ends(piece)
        else:
            self._line.append(piece)

    def _drop(self) -> None:
        """The line at hand takes the event over the limit: from here on, only the ends of both are kept."""
        self._dropped = Remains(min(HEAD_SIZE_MAX_BYTES, self._size_max))
        self._dropped_line = Remains(DROPPED_LINE_MAX_BYTES)
        if self._data is not None:
            self._dropped.receive_bytes(self._data)
            self._data = b""
        self._keep_ends(self._line.take())

    def _keep_ends(self, piece: bytes) -> None:
        self._size += len(piece)
        assert self._dropped_line is not None
        self._dropped_line.receive_bytes(piece)

    def _finish_dropped_line(self, dropped: Remains, out: list[SseEvent]) -> None:
        """A line of a dropped event: what is no data is taken in as ever, unless it is overlong itself."""
        ends = self._dropped_line
        assert ends is not None
        if not ends.size_bytes:
            self._dispatch(out)
            return
        self._dropped_line = Remains(DROPPED_LINE_MAX_BYTES)
        start = len(BOM) if self._is_first_line and ends.head.startswith(BOM) else 0
        self._is_first_line = False
        name, colon, value = ends.head[start:].partition(b":")
        if name == b"data":
            if self._data is not None:
                dropped.receive_bytes(b"\n")
            self._data = b""
            value_start = start + len(name) + len(colon) + value.startswith(b" ")
            dropped.receive_remains(ends, value_start)
        elif ends.is_whole or name == b"event":  # the beginning of its type tells that it is none of ours
            self._receive_field(ends.head, start, len(ends.head), out)

    def _receive_field(self, line: bytes, start: int, end: int, out: list[SseEvent]) -> bool:
        """A line that is not blank. Returns whether it counts: a comment (no name), and a field we do not know, are
        not kept."""
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
                # Most events have one data line, kept as it is; many are gathered without an object for each.
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
                # Nine digits are more than a day. Python refuses to read thousands of them.
                digits = value.lstrip(b"0")
                out.append(Retry(RETRY_MAX_MS if len(digits) > 8 else min(int(digits or b"0"), RETRY_MAX_MS)))
            return False
        return True

    def _dispatch(self, out: list[SseEvent]) -> None:
        """A blank line: the event at hand is complete."""
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
        self._type = ""
        self._data = None
        self._id = None
        if self._dropped is not None:
            self._dropped = self._dropped_line = None


def encode_event(data: bytes, *, event: str = "message", id: str | None = None, retry_ms: int | None = None) -> bytes:
    """One event with LF line ends and one data line, which is what clients read most widely.

    Args:
        data: the JSON of one message, or other text in UTF-8. CR and LF in it become spaces: inside JSON text they can
            only be white space between tokens. Empty with an `id`: primes the client to resume (see `Identified`).
        id: the last event id from here on; None leaves it as it is.
        retry_ms: how long the client shall wait before it opens the stream again, should it be lost.

    Raises:
        LocalProtocolError: `event` or `id` holds a line end, or `id` a NUL, which readers would not take.
    """
    head = "event: message\n" if event == "message" else f"event: {_one_line('event', event)}\n"
    if id is not None:
        head += f"id: {_one_line('id', id)}\n"
    if retry_ms is not None:
        head += f"retry: {retry_ms:d}\n"
    return b"".join((head.encode(), b"data: ", without_line_ends(data), b"\n\n"))


def without_line_ends(data: bytes) -> bytes:
    """JSON text, or a part of it, with spaces for CR and LF."""
    return data.replace(b"\r", b" ").replace(b"\n", b" ")


def encode_events(messages: Sequence[bytes], ids: Sequence[str]) -> bytes:
    """`encode_event` of each message, with its id.

    Args:
        ids: as many as there are messages, of printable ASCII; or none.
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
