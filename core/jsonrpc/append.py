"""Adding to a peer's result without disturbing it.

What a server answered may have any shape. Where it does not have the one that could be added to, it stays as it came:
a good answer is never lost over an addition.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ..base.errors import RemoteProtocolError
from .envelope import text_of
from .splice import Span, elements, extend_array, members, set_member, take


def readable_members(data: bytes | None) -> dict[str, Span]:
    """The members of an object; none if `data` is anything else, or has a key twice."""
    if data is None or not data.startswith(b"{"):
        return {}
    try:
        return members(data)
    except RemoteProtocolError:
        return {}


def readable_elements(data: bytes | None) -> list[bytes]:
    """The JSON of an array's elements; none if `data` is anything else."""
    if data is None or not data.startswith(b"["):
        return []
    try:
        return [data[start:stop] for start, stop in elements(data)]
    except RemoteProtocolError:
        return []


def readable_text(raw: bytes | None) -> str | None:
    """The text of a JSON string, halves of surrogate pairs replaced; None if it is something else."""
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
    """The object `result` with `items` at the end of its array `key`, which is made if it is missing."""
    if not items or not _is_open(result):
        return result
    array = take(result, readable_members(result).get(key))
    if array is not None and not array.startswith(b"["):
        return result
    return set_member(result, key, extend_array(array or b"[]", items))


def add_members(result: bytes, key: str, additions: Mapping[str, bytes]) -> bytes:
    """The object `result` with members set in its object `key`, which is made if it is missing or null."""
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
    """Whether `data` is an object that can be read and added to."""
    try:
        members(data)
    except RemoteProtocolError:
        return False
    return data.startswith(b"{")
