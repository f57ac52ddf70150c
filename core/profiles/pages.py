"""Pages of lists: the entries of those of servers, and those that clients of a profile get."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from ..base.errors import INVALID_PARAMS, RemoteProtocolError
from ..bridge.request_name import sole_member
from ..jsonrpc import envelope
from ..jsonrpc.splice import elements, members, take

PAGE_MAX_BYTES: Final = 1024 * 1024
"""Bytes of a page that a client gets. At it: the rest is on the next page."""
SERVERS: Final = "dev.isthmus/servers"
"""The member of `_meta` of a list that says which servers are missing, and why."""


def entries_of(result: bytes, array: str, name: str) -> list[tuple[str, bytes]]:
    """Returns the entries of a list by their names, as far as they have one.

    Raises:
        RemoteProtocolError: it is no list.
    """
    listed = take(result, members(result).get(array))
    if listed is None or not listed.startswith(b"["):
        raise RemoteProtocolError(f"got a result without {array}, expected an array")
    found = []
    for start, stop in elements(listed):
        entry = listed[start:stop]
        text = envelope.text_of(sole_member(entry, name)) if entry.startswith(b"{") else None
        if text is not None:
            found.append((text, entry))
    return found


def page_of(
    array: str, entries: Mapping[str, bytes], params: bytes | None, absent: Mapping[str, str], ttl_ms: int | None
) -> bytes:
    """Returns the result with the page that a client asks for.

    Args:
        ttl_ms: for how long the client may keep it; None for a client that knows no such thing.

    Raises:
        RemoteProtocolError: it asks for a page of another list.
    """
    names = sorted(entries)
    cursor = envelope.text_of(sole_member(params, "cursor"))
    first = 0
    if cursor is not None:
        seen, _, place = cursor.partition("-")
        if seen != _digest(names, entries) or not (place.isascii() and place.isdigit()) or int(place) >= len(names):
            text = "got the cursor of a list that has changed since, expected none: read the list again"
            raise RemoteProtocolError(text, rpc_code=INVALID_PARAMS)
        first = int(place)
    size_bytes, last = 0, first
    while last < len(names) and (last == first or size_bytes + len(entries[names[last]]) <= PAGE_MAX_BYTES):
        size_bytes += len(entries[names[last]]) + 1
        last += 1
    parts = [b'{"%b":[' % array.encode(), b",".join(entries[name] for name in names[first:last]), b"]"]
    if last < len(names):
        parts.append(b',"nextCursor":' + msgspec.json.encode(f"{_digest(names, entries)}-{last}"))
    if ttl_ms is not None:
        parts.append(b',"ttlMs":%d' % ttl_ms)
    if absent:
        parts.append(b',"_meta":' + msgspec.json.encode({SERVERS: dict(sorted(absent.items()))}))
    return b"".join((*parts, b"}"))


def _digest(names: list[str], entries: Mapping[str, bytes]) -> str:
    """Returns a digest of a list. Most lists have one page and need none: it takes as long as all the rest."""
    return hashlib.blake2b(b"\0".join(entries[name] for name in names), digest_size=6).hexdigest()
