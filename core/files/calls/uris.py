"""How a stored artifact is shown to clients: its URI, and the signed link it can be downloaded from."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from ...base.plan import UPLOAD_SCHEME
from ...state.context import Desk
from ...state.session import Session
from ..store import handles
from ..store.store import StoredArtifact, StoredUpload
from .artifact import Artifact


def uri_of(record: StoredArtifact | StoredUpload, scheme: str = UPLOAD_SCHEME) -> str:
    """What clients call the file.

    Args:
        scheme: what handles of its server's uploads start with.
    """
    if isinstance(record, StoredArtifact):
        return handles.format_artifact(record.sid, record.aid, record.filename)
    return handles.format_upload(record.sid, record.uid, scheme)


def describe(desk: Desk, session: Session, record: StoredArtifact) -> Artifact:
    return Artifact(
        artifact_uri=uri_of(record),
        artifact_id=record.aid,
        filename=record.filename,
        mime_type=record.mime_type,
        size_bytes=record.size_bytes,
        sha256=record.sha256,
        expose_as_resource=record.is_exposed,
        expires_at_unix=record.expires_at_unix,
        download_url=link_to(desk, session, record),
    )


def link_to(desk: Desk, session: Session, record: StoredArtifact | StoredUpload) -> str | None:
    """A signed link to the file, as long as it lives; None where nothing would serve it."""
    base = base_url(desk, session)
    if not base or not desk.plan.downloads_enabled:
        return None
    id = record.aid if isinstance(record, StoredArtifact) else record.uid
    query = handles.sign_download(
        desk.plan.link_key,
        server=record.server,
        sid=record.sid,
        artifact=id,
        filename=record.filename,
        expires_at_unix=int(record.expires_at_unix or desk.now_unix + desk.limits.upload_ttl_s),
    )
    path = f"/artifacts/{record.server}/{record.sid}/{id}/{quote(record.filename, safe='')}"
    return f"{base}{path}?{urlencode(query)}"


def base_url(desk: Desk, session: Session) -> str:
    """What links handed to this client start with; empty if there is nothing that could serve them."""
    return desk.plan.public_base_url or session.base_url or desk.plan.fallback_base_url
