"""Who must hear that a message was dropped for its size: read from the first and last bytes of it.

The dropped line is never parsed. What can be told of it rests on an anchored reading of its top-level members: from its
start up to the first that is not a number or a plain string, or back from its closing brace. Whatever does not match
exactly has no known owner.
"""

from __future__ import annotations

import re
from typing import Final

from ..base.errors import OVERLOADED

NOBODYS: Final = b"null"

# A member whose value is an integer or a string of plain ASCII without escapes, and the comma after it.
_MEMBER: Final = re.compile(
    rb'[ \t\r\n]*"(jsonrpc|id|method)"[ \t\r\n]*:[ \t\r\n]*'
    rb'(-?(?:0|[1-9][0-9]{0,18})|"[ !#-\[\]-~]{0,256}")[ \t\r\n]*,'
)
_NEXT_KEY: Final = re.compile(rb'[ \t\r\n]*"([a-z]+)"[ \t\r\n]*:')
# Some peers write the payload before the id. Nothing can close between these members and the last brace, so they are
# the message's own.
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
    """The error response that settles a dropped message, or None if `head` does not say whose it is.

    A dropped *response* is replaced by the answer on its way on; a dropped *request* (`is_request`) is refused with
    the answer on the way back. One is never taken for the other: the ids of the two directions mean different things.

    Args:
        head: how the message began, any number of bytes.
        size_bytes: its whole size; None if it was not read to its end.
        limit: the size that would have been taken, in bytes.
        tail: how it ended, any number of bytes.
        is_addressed: a response came where only one request's can come. If it does not say whose it is, the answer has
            the id null.
    """
    id_raw = owner_of(head, tail, is_request=is_request)
    if id_raw is None and is_addressed and _is_response(head):
        id_raw = NOBODYS
    return None if id_raw is None else refusal_of(id_raw, size_bytes, limit, is_request=is_request)


def refusal_of(id_raw: bytes, size_bytes: int | None, limit: int, *, is_request: bool = False) -> bytes:
    """The error response for the owner of the JSON id `id_raw`; see `answer_for`."""
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
    members, next_key = _first_members(head)
    if members.get(b"jsonrpc") != b'"2.0"' or b"id" not in members or next_key is None:
        return None
    if is_request:
        # The method's name may be the very thing that is too long.
        is_owned = (b"method" in members) != (next_key == b"method")
    else:
        is_owned = b"method" not in members and next_key in _OUTCOMES
    return members[b"id"] if is_owned else None


def _id_in_tail(head: bytes, tail: bytes, is_request: bool) -> bytes | None:
    """The id behind the payload; `jsonrpc` must be with it, or have come first, and nothing else before the payload."""
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
    """Whether what began so is a response, whosever it is."""
    members, next_key = _first_members(head)
    return b"method" not in members and next_key in _OUTCOMES


def _first_members(head: bytes) -> tuple[dict[bytes, bytes], bytes | None]:
    """The first members, as far as they are short, and the key of the one after them; none of it if a key is there
    twice: which of the two counts is for nobody to guess."""
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
