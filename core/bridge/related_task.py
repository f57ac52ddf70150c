"""Which task a message belongs to, where that stands in `_meta`.

Source: 2025-11-25 basic/utilities/tasks, "Associating Task-Related Messages". The extension has nothing like it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..base.errors import INTERNAL_ERROR, RemoteProtocolError
from ..jsonrpc.envelope import described, member_of, text_of
from ..jsonrpc.splice import Edit, build_object, insert_members, members, remove_members, splice
from .input_requests import RELATED_TASK

RELATED: Final = RELATED_TASK

ID_SIZE_MAX_CHARS: Final = 1024
"""Real servers send UUIDs and tokens of some 200 characters. The name travels in a header, too."""


def with_related(data: bytes | None, id: str) -> bytes:
    """A result, or params, that say so; all else stays byte for byte.

    Raises:
        RemoteProtocolError: `data` is no object, or it or its `_meta` has a key twice.
    """
    data = b"{}" if data is None else data
    if not data.startswith(b"{"):
        raise RemoteProtocolError(f"got {described(data)}, expected an object", rpc_code=INTERNAL_ERROR)
    named = {RELATED: build_object({"taskId": msgspec.json.encode(id)})}
    span = members(data).get("_meta")
    if span is None:
        return insert_members(data, {"_meta": build_object(named)})
    meta = data[span.start : span.stop]
    kept = remove_members(meta, {RELATED}) if meta.startswith(b"{") else b"{}"
    return splice(data, [Edit(span.start, span.stop, insert_members(kept, named))])


def without_related(data: bytes | None) -> bytes | None:
    """What `with_related` was given, but for a `_meta` that had no member. What says nothing comes back as it came.

    Raises:
        RemoteProtocolError: `data`, or its `_meta`, has a key twice.
    """
    if data is None or not _may_be_related(data):
        return data
    span = members(data).get("_meta")
    if span is None or not data.startswith(b"{", span.start):
        return data
    meta = data[span.start : span.stop]
    kept = remove_members(meta, {RELATED})
    if kept == meta:
        return data
    return splice(data, [Edit(span.start, span.stop, kept)]) if members(kept) else remove_members(data, {"_meta"})


def related_id(data: bytes | None) -> str | None:
    """The task that a result, or params, belong to; None: they do not say, or not so that it can be read."""
    if data is None or not _may_be_related(data):
        return None
    try:
        return id_of(member_of(member_of(member_of(data, "_meta"), RELATED), "taskId"))
    except RemoteProtocolError:
        return None


def id_of(raw: bytes | None) -> str | None:
    """The text of the JSON, if a task can be called that."""
    text = text_of(raw)
    return text if text is not None and 1 <= len(text) <= ID_SIZE_MAX_CHARS else None


def _may_be_related(data: bytes) -> bool:
    """Whether it is worth looking: the name may be spelled with escapes."""
    return data.startswith(b"{") and (b"related-task" in data or b"\\u" in data)
