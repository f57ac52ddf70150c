"""What is known of a stored file: its record as it is saved, and the file as an operator sees it."""

from __future__ import annotations

from typing import Literal

import msgspec

FileKind = Literal["upload", "artifact"]


class StoredArtifact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """An artifact's record, as it is saved.

    Attributes:
        is_bearer: of a client without sessions: it is for whoever of its principal names it.
        stored_at_unix: 0 if an earlier version saved it, which did not say.
    """

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
    is_bearer: bool = False
    stored_at_unix: float = 0.0

    @property
    def key(self) -> str:
        return artifact_key(self.sid, self.aid)

    @property
    def id(self) -> str:
        return self.aid

    @property
    def kind(self) -> FileKind:
        return "artifact"


class StoredUpload(msgspec.Struct, frozen=True, kw_only=True):
    """An upload's record, as it is saved.

    Attributes:
        is_bearer: as in `StoredArtifact`.
        expires_at_unix: when it goes if it is not used. It may be used without being saved again, so that it may live
            somewhat longer than is said here; 0 if that is not known.
        stored_at_unix: 0 if an earlier version saved it.
    """

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
    expires_at_unix: float = 0.0
    stored_at_unix: float = 0.0

    @property
    def key(self) -> str:
        return f"upload/{self.sid}/{self.uid}"

    @property
    def id(self) -> str:
        return self.uid

    @property
    def kind(self) -> FileKind:
        return "upload"


def artifact_key(sid: str, aid: str) -> str:
    return f"artifact/{sid}/{aid}"


class FileStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A stored file as an operator sees it.

    Attributes:
        id: of the upload or artifact.
        session: the public name of the session it was stored in.
        uri: what clients name it by.
        tool: that made it; "" for uploads.
        principal: whose it is; "" for anonymous.
        stored_at_unix, used_at_unix, expires_at_unix: wall time; 0 if it is not known.
        pins: calls that use it now.
        is_bearer: it is for whoever of its principal names it.
        is_live: its session goes on.
        blob: where its content is, in the storage.
    """

    id: str
    kind: FileKind
    server: str
    session: str
    uri: str
    filename: str
    mime_type: str
    size_bytes: int
    sha256: str
    tool: str
    principal: str
    stored_at_unix: float
    used_at_unix: float
    expires_at_unix: float
    pins: int
    is_bearer: bool
    is_live: bool
    blob: str


class FileEnds(msgspec.Struct, frozen=True, kw_only=True):
    """How many files of one server and kind went for one reason, since the start.

    Attributes:
        why: `expired`, `evicted`, `deleted` or `closed` (with their session).
    """

    server: str
    kind: FileKind
    why: str
    count: int
