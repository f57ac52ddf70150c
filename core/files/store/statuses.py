"""Stored files as an operator sees them."""

from __future__ import annotations

from collections.abc import Callable

from ...base.plan import UPLOAD_SCHEME
from ...state.context import Context
from ...state.records import FileStatus, StoredArtifact
from . import handles
from .entry import StoredEntry


def status_of(context: Context, entry: StoredEntry, is_live: Callable[[str], bool], *, is_bearer: bool) -> FileStatus:
    """Returns the status of a file.

    Args:
        is_live: returns True if a session of that public name is open.
        is_bearer: every file is for all clients of its principal.
    """
    record = entry.record
    if isinstance(record, StoredArtifact):
        uri, tool = handles.format_artifact(record.sid, record.aid, record.filename), record.tool
    else:
        server = context.servers.get(record.server)
        scheme = UPLOAD_SCHEME if server is None else server.upload_scheme
        uri, tool = handles.format_upload(record.sid, record.uid, scheme), ""
    return FileStatus(
        id=record.id,
        kind=record.kind,
        server=record.server,
        session=record.sid,
        uri=uri,
        filename=record.filename,
        mime_type=record.mime_type,
        size_bytes=record.size_bytes,
        sha256=record.sha256,
        tool=tool,
        principal=record.principal,
        stored_at_unix=record.stored_at_unix,
        used_at_unix=entry.used_at_unix,
        expires_at_unix=context.unix_at_zero + entry.expires_at,
        pins=entry.pins,
        is_bearer=record.is_bearer or is_bearer,
        is_live=is_live(record.sid),
        blob=record.blob,
    )
