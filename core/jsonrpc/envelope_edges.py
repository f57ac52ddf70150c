"""The fast path for large results: the envelope is recognized by the first and last bytes of the message.

Servers write the members of an envelope in one of few ways: `jsonrpc` and `id` stand before the result or after it. A
message that begins or ends so is a response, and shows its id, whatever its result holds: in JSON, nothing inside a
string or a nested object can stand at those places. Any other message is left to `envelope.decode`.

The bytes between the edges are neither read nor copied. They may contain a second id, or be no JSON at all; the reader
of the forwarded message gets exactly what its writer wrote. tests/core/routing/test_passthrough.py compares the edges
with `envelope.decode`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

EDGE_BYTES: Final = 128
"""The bytes of either end that show the envelope: its members take 60 with the longest number, and some spaces."""

PARTS_MIN_BYTES: Final = 256 * 1024
"""The smallest message that is passed on in parts. A smaller one has arrived after a read or two, and takes little
memory."""

_VERSION: Final = rb'"jsonrpc": ?"2\.0"'
_ID: Final = rb'"id": ?(?P<quote>"?)(?P<number>[0-9]{1,15})(?P=quote)'  # some servers echo the number as a string
_RESULT: Final = rb'"result": ?(?=\{)'
_IN_FRONT: Final = (
    re.compile(rb"\{" + _VERSION + rb", ?" + _ID + rb", ?" + _RESULT),
    re.compile(rb"\{" + _ID + rb", ?" + _VERSION + rb", ?" + _RESULT),
)
_BEGUN: Final = re.compile(rb"\{" + _RESULT)
_BEHIND: Final = (
    re.compile(rb"(?<=\})(, ?" + _VERSION + rb", ?" + _ID + rb")\}\s*\Z"),
    re.compile(rb"(?<=\})(, ?" + _ID + rb", ?" + _VERSION + rb")\}\s*\Z"),
)
_CLOSED: Final = re.compile(rb"\}\}\s*\Z")
_NO_REQUEST: Final = re.compile(
    rb'\{"jsonrpc":"2\.0",(?:"method":|"id":(?:"(?:[^"\\]|\\.)*+"|[^",]*+),"(?:result|error)":)'
)


class EnvelopeStart(NamedTuple):
    """The start of a response: the result begins at offset `size_bytes`; `number` is the id before it."""

    number: int
    size_bytes: int


class WholeAnswer(NamedTuple):
    """A complete response.

    Attributes:
        number: the id of the request that it answers.
        pieces: the result followed by one closing brace, without the rest of the envelope.
    """

    number: int
    pieces: tuple[bytes, ...]


def is_request(message: bytes) -> bool:
    """False for a notification and a response that `envelope` has encoded: nothing answers them."""
    return _NO_REQUEST.match(message) is None


def read_front(beginning: bytes) -> EnvelopeStart | None:
    """Returns the envelope at the beginning of a message; None if there is none, or if `beginning` is too short to
    tell."""
    for form in _IN_FRONT:
        found = form.match(beginning)
        if found is not None:
            return EnvelopeStart(int(found["number"]), found.end())
    return None


def read_whole(pieces: tuple[bytes, ...]) -> WholeAnswer | None:
    """Returns the response in a complete message that came in `pieces`, of which only the first and the last are looked
    at.

    Returns None for a message that is no response, or that has to be decoded to tell.
    """
    first, last = pieces[0], pieces[-1]
    front = read_front(first)
    if front is not None:
        if _CLOSED.search(last[-EDGE_BYTES:]) is None:
            return None
        return WholeAnswer(front.number, (first[front.size_bytes :], *pieces[1:]))
    begun = _BEGUN.match(first)
    if begun is None:
        return None
    at = max(0, len(last) - EDGE_BYTES)
    for form in _BEHIND:
        found = form.search(last, at)
        if found is not None:
            start, stop = found.span(1)
            if len(pieces) == 1:
                return WholeAnswer(int(found["number"]), (first[begun.end() : start], last[stop:]))
            return WholeAnswer(int(found["number"]), (first[begun.end() :], *pieces[1:-1], last[:start], last[stop:]))
    return None
