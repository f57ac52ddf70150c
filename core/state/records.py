"""Records of files and tasks: as they are saved, with which they outlive the process, and as an operator sees them."""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec

from .task import TaskState

FileKind = Literal["upload", "artifact"]
T = TypeVar("T")


def read(value: bytes | None, kind: type[T]) -> T | None:
    """Returns the record in a stored value; None if there is none, or it is of another release."""
    if value is None:
        return None
    try:
        return msgspec.json.decode(value, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


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
        counted_by: the replica in whose share the file counts (`ReplicaName.owner`); absent if there are no replicas.
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
    counted_by: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def key(self) -> str:
        return upload_key(self.sid, self.uid)

    @property
    def id(self) -> str:
        return self.uid

    @property
    def kind(self) -> FileKind:
        return "upload"


def upload_key(sid: str, uid: str) -> str:
    return f"upload/{sid}/{uid}"


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


# --- Tasks ---

TASK_PREFIX = "task/"
CANCEL_PREFIX = "cancel/"
"""The beginning of the keys of records that ask the replica of a task to cancel it; the id of the task follows."""
"""The beginning of the storage key of every record."""


class StoredTask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored record of one task. Its field names are those of the storage, and must not change.

    Attributes:
        id: the `taskId` that its client uses.
        server, tool: what was called.
        era: of its client, `handshake` or `stateless`: the form of the outcome.
        owner: a hash of its owner (`ownership.owner_of`).
        payer: a hash of the principal under which it counts (`ownership.payer_of`).
        sid: the public name of the session that owns it, where clients are anonymous; "" for all of an owner.
        status: the last one.
        message: the status message, for people.
        created_at, updated_at: ISO 8601, as clients see them.
        expires_at_unix: when it is removed, wall time.
        ttl_ms: its time to live from its creation.
        poll_ms: the poll interval that its client is given.
        upstream_task: the server's own `taskId`, if it is a task there.
        is_remote: its server may go on with it without this process.
        upstream_session: the `Mcp-Session-Id` that it was begun with, if any: some servers find it only with that.
        upstream_revision: the revision of that session.
        upstream_address: the name of the address where that session is, if its server has several.
        outcome: the result, or the error object, as JSON text; "" if there is none, or it is in `blob`.
        is_error: the outcome is an error object.
        blob: where the outcome is, if it is too large for a record.
        size_bytes: of the outcome.
        replica: the replica that runs it or has ended it (`ReplicaName.owner`); "" if there is only one.
    """

    id: str
    server: str
    tool: str
    era: str
    owner: str
    payer: str = ""
    sid: str = ""
    status: TaskState
    message: str = ""
    created_at: str
    updated_at: str
    expires_at_unix: float
    ttl_ms: int
    poll_ms: int
    upstream_task: str = ""
    is_remote: bool = False
    upstream_session: str = ""
    upstream_revision: str = ""
    upstream_address: str = ""
    outcome: str = ""
    is_error: bool = False
    blob: str | None = None
    size_bytes: int = 0
    replica: str = ""

    @property
    def key(self) -> str:
        return self.key_of(self.id)

    @staticmethod
    def key_of(id: str) -> str:
        return TASK_PREFIX + id


class TaskStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A task as an operator sees it.

    Attributes:
        kind: `proxied` (a task of its server too), `local` (a call that only the proxy made a task of).
        era: of its client, `handshake` or `stateless`.
        principal: who called; "" if anonymous, and for tasks of an earlier run.
        session: the public name of the session that it runs in; "" if it does not run.
        created_at_unix, updated_at_unix, expires_at_unix: wall time.
        size_bytes: of the outcome, once there is one.
    """

    id: str
    server: str
    tool: str
    kind: str
    era: str
    principal: str
    session: str
    status: str
    message: str
    created_at_unix: float
    updated_at_unix: float
    expires_at_unix: float
    size_bytes: int
