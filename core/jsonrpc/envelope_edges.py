"""The envelope of a large answer, known by its edges: whatever lies between them is neither read nor copied.

Servers write the members of an envelope in one of few ways: `jsonrpc` and `id` stand before the result or behind it.
What begins or ends so is an answer, and of what it is one, whatever its result holds: in JSON, nothing within a string
or a nested object can stand there. What is written otherwise, and what is no answer, is for `jsonrpc.decode`.

Nothing is known of what was not looked at: it may have the id again, or be no JSON at all. Whoever passes it on gives
its reader what its writer wrote.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

EDGE_BYTES: Final = 128
"""So much of either end shows the envelope: its members take 60 bytes with the longest number, and some spaces."""

PARTS_MIN_BYTES: Final = 256 * 1024
"""A message below this is not passed on in parts: it is there after a read or two, and takes little memory."""

_VERSION: Final = rb'"jsonrpc": ?"2\.0"'
_ID: Final = rb'"id": ?(?P<quote>"?)(?P<number>[0-9]{1,15})(?P=quote)'  # some echo the number as a string
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


class Front(NamedTuple):
    """The result begins at `size_bytes`; `number` is the id before it."""

    number: int
    size_bytes: int


class Answer(NamedTuple):
    """A whole answer: what `number` was asked for, and the message but for its envelope, which ends with a brace."""

    number: int
    pieces: tuple[bytes, ...]


def read_front(beginning: bytes) -> Front | None:
    """The envelope of a message that begins with it. None: it does not, or `beginning` is too short to say."""
    for form in _IN_FRONT:
        found = form.match(beginning)
        if found is not None:
            return Front(int(found["number"]), found.end())
    return None


def read_whole(pieces: tuple[bytes, ...]) -> Answer | None:
    """A whole message in pieces, of which only the first and the last are looked at. None: it is no answer, or one
    that has to be read."""
    first, last = pieces[0], pieces[-1]
    front = read_front(first)
    if front is not None:
        if _CLOSED.search(last[-EDGE_BYTES:]) is None:
            return None
        return Answer(front.number, (first[front.size_bytes :], *pieces[1:]))
    begun = _BEGUN.match(first)
    if begun is None:
        return None
    at = max(0, len(last) - EDGE_BYTES)
    for form in _BEHIND:
        found = form.search(last, at)
        if found is not None:
            start, stop = found.span(1)
            if len(pieces) == 1:
                return Answer(int(found["number"]), (first[begun.end() : start], last[stop:]))
            return Answer(int(found["number"]), (first[begun.end() :], *pieces[1:-1], last[:start], last[stop:]))
    return None
