"""The error response for a message that was dropped for its size, with the id read from its first and last bytes.

The dropped message is never parsed. Its top-level members are read by anchored patterns: forward from its start up to
the first member that is neither an integer nor a plain string, or backward from its closing brace. A message that does
not match exactly has no known id.
"""

from __future__ import annotations

import re
from typing import Final

from ..base.errors import OVERLOADED

NULL_ID: Final = b"null"

# A member whose value is an integer or a string of plain ASCII without escapes, and the comma after it.
_MEMBER: Final = re.compile(
    rb'[ \t\r\n]*"(jsonrpc|id|method)"[ \t\r\n]*:[ \t\r\n]*'
    rb'(-?(?:0|[1-9][0-9]{0,18})|"[ !#-\[\]-~]{0,256}")[ \t\r\n]*,'
)
_NEXT_KEY: Final = re.compile(rb'[ \t\r\n]*"([a-z]+)"[ \t\r\n]*:')
# Some peers write the payload before the id. No object can close between these members and the last brace, so they
# belong to the message itself and not to a nested object.
_LAST_MEMBERS: Final = re.compile(
    rb'[}\]"0-9el][ \t\r\n]*,[ \t\r\n]*(?P<before>"jsonrpc"[ \t\r\n]*:[ \t\r\n]*"2\.0"[ \t\r\n]*,[ \t\r\n]*)?'
    rb'"id"[ \t\r\n]*:[ \t\r\n]*(?P<id>-?(?:0|[1-9][0-9]{0,18})|"[ !#-\[\]-~]{0,256}")[ \t\r\n]*'
    rb'(?P<after>,[ \t\r\n]*"jsonrpc"[ \t\r\n]*:[ \t\r\n]*"2\.0"[ \t\r\n]*)?\}[ \t\r\n]*\Z'
)
_OUTCOMES: Final = (b"result", b"error")
_START: Final = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\{")


def answer_for(
    head: bytes,
    size_bytes: int | None,
    limit: int,
    *,
    is_request: bool = False,
    tail: bytes = b"",
    is_addressed: bool = False,
) -> bytes | None:
    """Returns the error response for a dropped message, or None if its id is not known.

    In place of a dropped *response*, the error is delivered to the peer that waits for it. For a dropped *request*
    (`is_request`), the error is returned to the peer that sent it. A response is never taken for a request or the
    reverse: the ids of the two directions mean different things.

    Args:
        head: the first bytes of the message, any number.
        size_bytes: its whole size; None if it was not read to its end. Within the limit: other messages left no room.
        limit: the largest accepted size, in bytes.
        tail: the last bytes of the message, any number.
        is_addressed: the message arrived where only the response to one request can arrive. If a response there shows
            no id, the error has the id null.
    """
    id_raw = owner_of(head, tail, is_request=is_request)
    if id_raw is None and is_addressed and _is_response(head):
        id_raw = NULL_ID
    return None if id_raw is None else refusal_of(id_raw, size_bytes, limit, is_request=is_request)


def refusal_of(id_raw: bytes, size_bytes: int | None, limit: int, *, is_request: bool = False) -> bytes:
    """Returns the error response with the JSON id `id_raw`; see `answer_for`."""
    what = "the request" if is_request else "the server's answer"
    if size_bytes is not None and size_bytes <= limit:
        text = f"{what} has {size_bytes} bytes, for which other messages that are arriving leave no room: try again"
    else:
        size = "is" if size_bytes is None else f"has {size_bytes} bytes,"
        text = f"{what} {size} over the limit of {limit} bytes"
    return b'{"jsonrpc":"2.0","id":%b,"error":{"code":%d,"message":"%b"}}' % (id_raw, OVERLOADED, text.encode())


def owner_of(head: bytes, tail: bytes = b"", *, is_request: bool = False) -> bytes | None:
    """Returns the JSON of the id of the response (or request) with this head and tail; None if it is not certain."""
    return _id_in_head(head, is_request) or _id_in_tail(head, tail, is_request)


def _id_in_head(head: bytes, is_request: bool) -> bytes | None:
    members, next_key = _first_members(head)
    if members.get(b"jsonrpc") != b'"2.0"' or b"id" not in members or next_key is None:
        return None
    if is_request:
        # Exactly one `method`: read already, or the next key, as the name itself may be what is too long.
        is_owned = (b"method" in members) != (next_key == b"method")
    else:
        is_owned = b"method" not in members and next_key in _OUTCOMES
    return members[b"id"] if is_owned else None


def _id_in_tail(head: bytes, tail: bytes, is_request: bool) -> bytes | None:
    """Returns the id that stands after the payload. `jsonrpc` must stand next to it or first, and nothing else may
    stand before the payload (of a request, `method` may)."""
    members, payload = _first_members(head)
    last = _LAST_MEMBERS.search(tail)
    if last is None or payload not in ((b"method", b"params") if is_request else _OUTCOMES):
        return None
    if is_request and payload == b"params":
        members.pop(b"method", None)
    versions = [members.pop(b"jsonrpc")] if b"jsonrpc" in members else []
    versions += [b'"2.0"' for place in ("before", "after") if last[place]]
    return last["id"] if not members and versions == [b'"2.0"'] else None


def _is_response(head: bytes) -> bool:
    """True if a message with this head is a response, whatever its id."""
    members, next_key = _first_members(head)
    return b"method" not in members and next_key in _OUTCOMES


def _first_members(head: bytes) -> tuple[dict[bytes, bytes], bytes | None]:
    """Returns the first members, as far as they are short, and the key of the member after them. Returns neither if a
    key occurs twice: parsers disagree on which of the two counts."""
    start = _START.match(head)
    if start is None:
        return {}, None
    members: dict[bytes, bytes] = {}
    at = start.end()
    while (member := _MEMBER.match(head, at)) is not None:
        key, value = member.groups()
        if key in members:
            return {}, None
        members[key] = value
        at = member.end()
    next_key = _NEXT_KEY.match(head, at)
    return members, None if next_key is None else next_key[1]
