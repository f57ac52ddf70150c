"""The `_meta` key by which a message names the task it belongs to.

Source: 2025-11-25 basic/utilities/tasks, "Associating Task-Related Messages". The tasks extension has no such key.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..base.errors import INTERNAL_ERROR, RemoteProtocolError
from ..jsonrpc.envelope import described, member_of, text_of
from ..jsonrpc.outline import outline_of
from ..jsonrpc.splice import Edit, build_object, insert_members, members, remove_members, splice
from .input_requests import RELATED_TASK

RELATED: Final = RELATED_TASK

ID_SIZE_MAX_CHARS: Final = 1024
"""The longest task id. Real servers send UUIDs and tokens of some 200 characters; the id travels in a header, too."""


def with_related(data: bytes | None, id: str) -> bytes:
    """Returns a result, or params, that name the task `id`. All other bytes stay.

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
    """Reverses `with_related`, and removes a `_meta` that is empty then. Data that name no task come back unchanged.

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
    """Returns the id of the task that a result, or params, belong to; None if there is none that can be read."""
    if data is None or not _may_be_related(data):
        return None
    try:
        return id_of(member_of(member_of(member_of(data, "_meta"), RELATED), "taskId"))
    except RemoteProtocolError:
        return None


def id_of(raw: bytes | None) -> str | None:
    """Returns the text of the JSON, if it is a valid task id."""
    text = text_of(raw)
    return text if text is not None and 1 <= len(text) <= ID_SIZE_MAX_CHARS else None


def _may_be_related(data: bytes) -> bool:
    """True if the key may be in the data; it may be spelled with escapes."""
    words = outline_of(data)
    return data.startswith(b"{") and (b"related-task" in words or b"\\u" in words)
