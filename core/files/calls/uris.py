"""Presentation of stored files to clients: their URI, and the signed link they can be downloaded from."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from ...base.plan import UPLOAD_SCHEME
from ...state.context import Context
from ...state.session import Session
from ..store import handles
from ..store.links import sign_download
from ..store.store import StoredArtifact, StoredUpload
from .artifact import Artifact
from .workspace_files import KnownFile


def uri_of(record: StoredArtifact | StoredUpload, scheme: str = UPLOAD_SCHEME) -> str:
    """Returns the URI that clients have for the file.

    Args:
        scheme: prefix of the upload handles of its server.
    """
    if isinstance(record, StoredArtifact):
        return handles.format_artifact(record.sid, record.aid, record.filename)
    return handles.format_upload(record.sid, record.uid, scheme)


def describe(context: Context, session: Session, record: StoredArtifact, known: KnownFile | None = None) -> Artifact:
    """Returns an artifact as it is described to the client of `session`.

    Args:
        known: what is known of the file that it was made of.
    """
    return Artifact(
        artifact_uri=uri_of(record),
        artifact_id=record.aid,
        filename=record.filename,
        mime_type=record.mime_type,
        size_bytes=record.size_bytes,
        sha256=record.sha256,
        expose_as_resource=record.is_exposed,
        expires_at_unix=record.expires_at_unix,
        download_url=link_to(context, session, record),
        version=1 if known is None else known.version,
        replaces=(known and known.replaces) or None,
    )


def link_to(context: Context, session: Session, record: StoredArtifact | StoredUpload) -> str | None:
    """Returns a signed link to the file that lasts as long as the file; None where nothing would serve it."""
    base = base_url(context, session)
    if not base or not context.plan.downloads_enabled:
        return None
    id = record.aid if isinstance(record, StoredArtifact) else record.uid
    query = sign_download(
        context.plan.link_key,
        server=record.server,
        sid=record.sid,
        artifact=id,
        filename=record.filename,
        expires_at_unix=int(record.expires_at_unix or context.now_unix + context.limits.upload_ttl_s),
    )
    path = f"/artifacts/{record.server}/{record.sid}/{id}/{quote(record.filename, safe='')}"
    return f"{base}{path}?{urlencode(query)}"


def base_url(context: Context, session: Session) -> str:
    """Returns the beginning of links handed to this client; empty if there is nothing that could serve them."""
    return context.plan.public_base_url or session.base_url or context.plan.fallback_base_url
