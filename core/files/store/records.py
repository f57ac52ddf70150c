"""Records of stored files: as they are saved, and as an operator sees them."""

from __future__ import annotations

from typing import Literal

import msgspec

FileKind = Literal["upload", "artifact"]


class StoredArtifact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The record of an artifact, as it is saved.

    Attributes:
        is_bearer: stored for a client without sessions: any client of the same principal that names it may use it.
        stored_at_unix: wall time; 0 if an earlier version saved the record, which did not have it.
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
    """The record of an upload, as it is saved.

    Attributes:
        is_bearer: as in `StoredArtifact`.
        expires_at_unix: when the upload goes if it is not used; 0 if not known. Use does not always save the record
            again, so the upload may live somewhat longer than this says.
        stored_at_unix: 0 if an earlier version saved the record.
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
        id: id of the upload or artifact.
        session: public name of the session it was stored in.
        uri: the handle or URI that clients name it by.
        tool: the tool that made it; "" for uploads.
        principal: the owner; "" for anonymous.
        stored_at_unix, used_at_unix, expires_at_unix: wall time; 0 if not known.
        pins: number of calls that use it now.
        is_bearer: any client of the same principal that names it may use it.
        is_live: its session is open.
        blob: key of its content in the storage.
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
    """The number of files of one server and kind that went for one reason, since the start.

    Attributes:
        why: `expired`, `evicted`, `deleted` or `closed` (with their session).
    """

    server: str
    kind: FileKind
    why: str
    count: int
