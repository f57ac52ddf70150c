"""Parses the event stream in an HTTP response, as it arrives."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

from .duplex import MESSAGE_MAX_BYTES


class TooLong(Exception):
    """An event is too long; the rest of the stream cannot be read."""


def events(response: http.client.HTTPResponse) -> Iterator[tuple[str, str | None, bytes]]:
    """Yields type, id and data of each event that has data or an id.

    Raises:
        TooLong: a line, or the data of an event, is longer than `MESSAGE_MAX_BYTES`.
    """
    event, id, data, size_bytes = "message", None, list[bytes](), 0
    while line := response.readline(MESSAGE_MAX_BYTES + 1):
        line = line.rstrip(b"\r\n")
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        size_bytes += len(line)
        if size_bytes > MESSAGE_MAX_BYTES:
            raise TooLong
        if not line:
            if data or id is not None:
                yield event, id, b"\n".join(data)
            event, id, data, size_bytes = "message", None, [], 0
        elif name == b"event":
            event = value.decode(errors="replace") or "message"
        elif name == b"id":
            id = value.decode(errors="replace")
        elif name == b"data":
            data.append(value)
