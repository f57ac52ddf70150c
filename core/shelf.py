"""What is stored: the uploads and artifacts of every session, their sizes and their deadlines.

Each entry is a blob and a record that owns it. Uploads die with their session; artifacts live until their deadline, so
that a download link that was handed out keeps working.
"""

from __future__ import annotations

import msgspec

from .desk import Desk
from .effects import Discard, Forget


class StoredArtifact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """An artifact's record, as it is saved."""

    server: str
    sid: str
    aid: str
    principal: str
    blob: str
    filename: str
    mime_type: str
    size_bytes: int
    sha256: str
    tool: str
    is_exposed: bool
    expires_at_unix: float

    @property
    def key(self) -> str:
        return artifact_key(self.sid, self.aid)


class StoredUpload(msgspec.Struct, frozen=True, kw_only=True):
    """An upload's record, as it is saved."""

    server: str
    sid: str
    uid: str
    principal: str
    blob: str
    filename: str
    mime_type: str
    size_bytes: int
    sha256: str

    @property
    def key(self) -> str:
        return f"upload/{self.sid}/{self.uid}"


def artifact_key(sid: str, aid: str) -> str:
    return f"artifact/{sid}/{aid}"


class Upload:
    """An upload at hand.

    Attributes:
        path: where an upstream sees it, once it was placed there.
        pins: calls that use it; while there are any, it does not expire.
    """

    __slots__ = ("path", "pins", "record")

    def __init__(self, record: StoredUpload) -> None:
        self.record = record
        self.path: str | None = None
        self.pins = 0


class Shelf:
    """Bounded by `session_storage_max_bytes` and `storage_max_bytes`; `room` says what is left."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._uploads: dict[tuple[str, str], Upload] = {}
        self._artifacts: dict[tuple[str, str], StoredArtifact] = {}
        self._session_bytes: dict[str, int] = {}
        self._total_bytes = 0

    def room(self, sid: str) -> int:
        """Bytes that may still be stored for a session."""
        limits = self._desk.limits
        in_session = limits.session_storage_max_bytes - self._session_bytes.get(sid, 0)
        return max(0, min(in_session, limits.storage_max_bytes - self._total_bytes))

    # --- Uploads ------------------------------------------------------------------------------------------------

    def add_upload(self, record: StoredUpload) -> None:
        self._uploads[record.sid, record.uid] = Upload(record)
        self._account(record.sid, record.size_bytes)
        self._keep_upload(record.sid, record.uid)

    def find_upload(self, server: str, sid: str, uid: str) -> Upload | None:
        """Finding it is using it: its time starts anew."""
        upload = self._uploads.get((sid, uid))
        if upload is None or upload.record.server != server:
            return None
        self._keep_upload(sid, uid)
        return upload

    def _keep_upload(self, sid: str, uid: str) -> None:
        at = self._desk.now + self._desk.limits.upload_ttl_s
        self._desk.timers.set(("upload", (sid, uid)), at, "upload unused")

    def handle_upload_timeout(self, sid: str, uid: str) -> None:
        upload = self._uploads.get((sid, uid))
        if upload is not None and upload.pins:
            self._keep_upload(sid, uid)
        elif upload is not None:
            self._drop_upload(upload)

    def _drop_upload(self, upload: Upload) -> None:
        record = upload.record
        del self._uploads[record.sid, record.uid]
        self._account(record.sid, -record.size_bytes)
        self._desk.timers.cancel(("upload", (record.sid, record.uid)))
        self._desk.order(Forget(key=record.key))
        self._desk.order(Discard(blob=record.blob))

    # --- Artifacts ----------------------------------------------------------------------------------------------

    def add_artifact(self, record: StoredArtifact) -> None:
        self._artifacts[record.sid, record.aid] = record
        self._account(record.sid, record.size_bytes)
        at = self._desk.now + max(0.0, record.expires_at_unix - self._desk.now_unix)
        self._desk.timers.set(("artifact", (record.sid, record.aid)), at, "artifact expired")

    def find_artifact(self, sid: str, aid: str) -> StoredArtifact | None:
        return self._artifacts.get((sid, aid))

    def artifacts_of(self, sid: str) -> list[StoredArtifact]:
        """Oldest first."""
        return [record for (owner, _), record in self._artifacts.items() if owner == sid]

    def handle_artifact_timeout(self, sid: str, aid: str) -> None:
        record = self._artifacts.pop((sid, aid), None)
        if record is None:
            return
        self._account(sid, -record.size_bytes)
        self._desk.order(Forget(key=record.key))
        self._desk.order(Discard(blob=record.blob))

    # --- Sessions -----------------------------------------------------------------------------------------------

    def close_session(self, sid: str) -> None:
        for upload in [upload for (owner, _), upload in self._uploads.items() if owner == sid]:
            self._drop_upload(upload)

    def _account(self, sid: str, size_bytes: int) -> None:
        self._total_bytes += size_bytes
        left = self._session_bytes.get(sid, 0) + size_bytes
        assert left >= 0
        assert self._total_bytes >= 0
        if left:
            self._session_bytes[sid] = left
        else:
            self._session_bytes.pop(sid, None)
