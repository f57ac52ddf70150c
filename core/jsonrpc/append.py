"""Helpers that add to the JSON of a peer's result without disturbing the rest.

A server's result may have any shape. Where it lacks the shape that could be added to, it is returned unchanged: a good
result is never lost over an addition.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ..base.errors import RemoteProtocolError
from .envelope import text_of
from .splice import Span, elements, extend_array, members, set_member, take


def readable_members(data: bytes | None) -> dict[str, Span]:
    """Returns the spans of an object's members; empty if `data` is anything else, or has a key twice."""
    if data is None or not data.startswith(b"{"):
        return {}
    try:
        return members(data)
    except RemoteProtocolError:
        return {}


def readable_elements(data: bytes | None) -> list[bytes]:
    """Returns the JSON of each element of an array; empty if `data` is anything else."""
    if data is None or not data.startswith(b"["):
        return []
    try:
        return [data[start:stop] for start, stop in elements(data)]
    except RemoteProtocolError:
        return []


def readable_text(raw: bytes | None) -> str | None:
    """Returns the text of a JSON string, each lone surrogate replaced by U+FFFD; None if `raw` is anything else."""
    text = text_of(raw)
    if text is not None or raw is None or not raw.startswith(b'"'):
        return text
    try:
        loaded = json.loads(raw)
    except ValueError:
        return None
    assert isinstance(loaded, str)
    return loaded.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def add_items(result: bytes, key: str, items: Sequence[bytes]) -> bytes:
    """Returns the object `result` with `items` appended to its array `key`, which is created if absent.

    `result` comes back unchanged if it is no readable object, or if `key` holds anything but an array.
    """
    if not items or not _is_open(result):
        return result
    array = take(result, readable_members(result).get(key))
    if array is not None and not array.startswith(b"["):
        return result
    return set_member(result, key, extend_array(array or b"[]", items))


def add_members(result: bytes, key: str, additions: Mapping[str, bytes]) -> bytes:
    """Returns the object `result` with members set in its object `key`, which is created if absent or null.

    `result` comes back unchanged if it, or what `key` holds, is no readable object.
    """
    if not additions or not _is_open(result):
        return result
    inner = take(result, readable_members(result).get(key)) or b"null"
    if inner == b"null":
        inner = b"{}"
    if not _is_open(inner):
        return result
    for name, value in additions.items():
        inner = set_member(inner, name, value)
    return set_member(result, key, inner)


def _is_open(data: bytes) -> bool:
    """True if `data` is an object without duplicate keys, so that members can be added."""
    try:
        members(data)
    except RemoteProtocolError:
        return False
    return data.startswith(b"{")
