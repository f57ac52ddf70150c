"""Who must hear that a message was dropped for its size: read from the first and last bytes of it.

The dropped line is never parsed. What can be told of it rests on an anchored reading of its top-level members: from its
start up to the first that is not a number or a plain string, or back from its closing brace. Whatever does not match
exactly has no known owner.
"""

from __future__ import annotations

import re
from typing import Final

from ..errors import OVERLOADED

# A member whose value is an integer or a string of plain ASCII without escapes, and the comma after it.
_MEMBER: Final = re.compile(
    rb'[ \t\r\n]*"(jsonrpc|id|method)"[ \t\r\n]*:[ \t\r\n]*'
    rb'(-?(?:0|[1-9][0-9]{0,18})|"[ !#-\[\]-~]{0,256}")[ \t\r\n]*,'
)
_NEXT_KEY: Final = re.compile(rb'[ \t\r\n]*"([a-z]+)"[ \t\r\n]*:')
# Some peers write the payload first and the rest after it. Nothing can close between these members and the last brace,
# so they are the message's own.
_LAST_MEMBERS: Final = re.compile(
    rb'[}\]"0-9el][ \t\r\n]*,[ \t\r\n]*"jsonrpc"[ \t\r\n]*:[ \t\r\n]*"2\.0"[ \t\r\n]*,[ \t\r\n]*'
    rb'"id"[ \t\r\n]*:[ \t\r\n]*(-?(?:0|[1-9][0-9]{0,18})|"[ !#-\[\]-~]{0,256}")[ \t\r\n]*\}[ \t\r\n]*\Z'
)
_START: Final = re.compile(rb"[ \t\r\n]*\{")


def answer_for(
    head: bytes, size_bytes: int | None, limit: int, *, is_request: bool = False, tail: bytes = b""
) -> bytes | None:
    """The error response that settles a dropped message, or None if `head` does not say whose it is.

    A dropped *response* is replaced by the answer on its way on; a dropped *request* (`is_request`) is refused with
    the answer on the way back. One is never taken for the other: the ids of the two directions mean different things.

    Args:
        head: how the message began, any number of bytes.
        size_bytes: its whole size; None if it was not read to its end.
        limit: the size that would have been taken, in bytes.
        tail: how it ended, any number of bytes.
    """
    id_raw = owner_of(head, tail, is_request=is_request)
    if id_raw is None:
        return None
    what = "the request" if is_request else "the server's answer"
    size = "is" if size_bytes is None else f"has {size_bytes} bytes,"
    return b'{"jsonrpc":"2.0","id":%b,"error":{"code":%d,"message":"%b"}}' % (
        id_raw,
        OVERLOADED,
        f"{what} {size} over the limit of {limit} bytes".encode(),
    )


def owner_of(head: bytes, tail: bytes = b"", *, is_request: bool = False) -> bytes | None:
    """The JSON of the id of the response (or request) that begins and ends so, if that can be told for certain."""
    return _id_in_head(head, is_request) or _id_in_tail(head, tail, is_request)


def _id_in_head(head: bytes, is_request: bool) -> bytes | None:
    start = _START.match(head)
    if start is None:
        return None
    members: dict[bytes, bytes] = {}
    at = start.end()
    while (member := _MEMBER.match(head, at)) is not None:
        key, value = member.groups()
        if key in members:
            return None  # which of the two counts is for nobody to guess
        members[key] = value
        at = member.end()
    next_key = _NEXT_KEY.match(head, at)
    if members.get(b"jsonrpc") != b'"2.0"' or b"id" not in members or next_key is None:
        return None
    if is_request:
        # The method's name may be the very thing that is too long.
        is_owned = (b"method" in members) != (next_key[1] == b"method")
    else:
        is_owned = b"method" not in members and next_key[1] in (b"result", b"error")
    return members[b"id"] if is_owned else None


def _id_in_tail(head: bytes, tail: bytes, is_request: bool) -> bytes | None:
    start = _START.match(head)
    first_key = None if start is None else _NEXT_KEY.match(head, start.end())
    last = _LAST_MEMBERS.search(tail)
    if first_key is None or last is None:
        return None
    payload_first = (b"method", b"params") if is_request else (b"result", b"error")
    return last[1] if first_key[1] in payload_first else None
