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
    is_bearer: bool = False
    """It is whosever has its handle: it was made by a client without sessions."""

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


class _Account:
    """What one session has stored, and what is on its way to be."""

    __slots__ = ("artifacts", "held_artifacts", "held_bytes", "held_uploads", "size_bytes", "uploads")

    def __init__(self) -> None:
        self.uploads: dict[str, Upload] = {}
        self.artifacts: dict[str, StoredArtifact] = {}
        self.size_bytes = 0
        self.held_bytes = 0
        self.held_uploads = 0
        self.held_artifacts = 0

    @property
    def is_empty(self) -> bool:
        return not (self.uploads or self.artifacts or self.held_uploads or self.held_artifacts)


class Hold:
    """Room that is taken for files which are not stored yet. Whoever has it releases it, once."""

    __slots__ = ("artifacts", "sid", "size_bytes", "uploads")

    def __init__(self, sid: str, size_bytes: int, *, uploads: int = 0, artifacts: int = 0) -> None:
        self.sid = sid
        self.size_bytes = size_bytes
        self.uploads = uploads
        self.artifacts = artifacts


class Shelf:
    """Bounded in bytes and in files, for each session and over all; what is on its way counts as if it were there."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._accounts: dict[str, _Account] = {}
        self._total_bytes = 0
        self._total_files = 0

    # --- Room -----------------------------------------------------------------------------------------------------

    def room(self, sid: str) -> int:
        """Bytes that may still be stored for a session."""
        limits, account = self._desk.limits, self._accounts.get(sid)
        used = 0 if account is None else account.size_bytes + account.held_bytes
        return max(0, min(limits.session_storage_max_bytes - used, limits.storage_max_bytes - self._total_bytes))

    def upload_slots(self, sid: str) -> int:
        """How many more uploads a session may have."""
        account = self._accounts.get(sid)
        used = 0 if account is None else len(account.uploads) + account.held_uploads
        return self._slots(self._desk.limits.uploads_per_session_max - used)

    def artifact_slots(self, sid: str) -> int:
        """How many more artifacts a session may have."""
        account = self._accounts.get(sid)
        used = 0 if account is None else len(account.artifacts) + account.held_artifacts
        return self._slots(self._desk.limits.artifacts_per_session_max - used)

    def _slots(self, left: int) -> int:
        return max(0, min(left, self._desk.limits.stored_files_max - self._total_files))

    def hold(self, sid: str, size_bytes: int, *, uploads: int = 0, artifacts: int = 0) -> Hold:
        """Take room that there is."""
        hold = Hold(sid, size_bytes, uploads=uploads, artifacts=artifacts)
        self._count(hold, 1)
        return hold

    def release(self, hold: Hold) -> None:
        """The files are stored now, or never will be."""
        self._count(hold, -1)

    def _count(self, hold: Hold, sign: int) -> None:
        account = self._accounts.setdefault(hold.sid, _Account())
        account.held_bytes += sign * hold.size_bytes
        account.held_uploads += sign * hold.uploads
        account.held_artifacts += sign * hold.artifacts
        self._total_bytes += sign * hold.size_bytes
        self._total_files += sign * (hold.uploads + hold.artifacts)
        self._tidy(hold.sid, account)

    def _account(self, sid: str, size_bytes: int, files: int) -> _Account:
        account = self._accounts.setdefault(sid, _Account())
        account.size_bytes += size_bytes
        self._total_bytes += size_bytes
        self._total_files += files
        return account

    def _tidy(self, sid: str, account: _Account) -> None:
        assert min(account.size_bytes, account.held_bytes, account.held_uploads, account.held_artifacts) >= 0
        assert min(self._total_bytes, self._total_files) >= 0
        if account.is_empty:
            assert account.size_bytes == account.held_bytes == 0
            del self._accounts[sid]

    # --- Uploads --------------------------------------------------------------------------------------------------

    def add_upload(self, record: StoredUpload) -> None:
        self._account(record.sid, record.size_bytes, 1).uploads[record.uid] = Upload(record)
        self._keep_upload(record.sid, record.uid)

    def find_upload(self, server: str, sid: str, uid: str) -> Upload | None:
        """Finding it is using it: its time starts anew. The caller is of the session `sid`."""
        account = self._accounts.get(sid)
        upload = None if account is None else account.uploads.get(uid)
        if upload is None or upload.record.server != server:
            return None
        self._keep_upload(sid, uid)
        return upload

    def _keep_upload(self, sid: str, uid: str) -> None:
        at = self._desk.now + self._desk.limits.upload_ttl_s
        self._desk.timers.set(("upload", (sid, uid)), at, "upload unused")

    def handle_upload_timeout(self, sid: str, uid: str) -> None:
        account = self._accounts.get(sid)
        upload = None if account is None else account.uploads.get(uid)
        if upload is not None and upload.pins:
            self._keep_upload(sid, uid)
        elif upload is not None:
            self._drop_upload(upload)

    def _drop_upload(self, upload: Upload) -> None:
        record = upload.record
        account = self._account(record.sid, -record.size_bytes, -1)
        del account.uploads[record.uid]
        self._tidy(record.sid, account)
        self._desk.timers.cancel(("upload", (record.sid, record.uid)))
        self._desk.order(Forget(key=record.key))
        self._desk.order(Discard(blob=record.blob))

    # --- Artifacts ------------------------------------------------------------------------------------------------

    def add_artifact(self, record: StoredArtifact) -> None:
        self._account(record.sid, record.size_bytes, 1).artifacts[record.aid] = record
        at = record.expires_at_unix - self._desk.unix_at_zero
        self._desk.timers.set(("artifact", (record.sid, record.aid)), at, "artifact expired")

    def find_artifact(self, sid: str, aid: str) -> StoredArtifact | None:
        account = self._accounts.get(sid)
        return None if account is None else account.artifacts.get(aid)

    def artifacts_of(self, sid: str) -> list[StoredArtifact]:
        """Oldest first."""
        account = self._accounts.get(sid)
        return [] if account is None else list(account.artifacts.values())

    def handle_artifact_timeout(self, sid: str, aid: str) -> None:
        record = self.find_artifact(sid, aid)
        if record is None:
            return
        account = self._account(sid, -record.size_bytes, -1)
        del account.artifacts[aid]
        self._tidy(sid, account)
        self._desk.order(Forget(key=record.key))
        self._desk.order(Discard(blob=record.blob))

    # --- Sessions -------------------------------------------------------------------------------------------------

    def close_session(self, sid: str) -> None:
        """Its uploads go; its artifacts live until their deadline."""
        account = self._accounts.get(sid)
        for upload in [] if account is None else list(account.uploads.values()):
            self._drop_upload(upload)
