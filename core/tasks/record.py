"""The stored record of a task, with which its result outlives the process, and its status for operators."""

from __future__ import annotations

import msgspec

from ..state.task import TaskState

PREFIX = "task/"
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
        outcome: the result, or the error object, as JSON text; "" if there is none, or it is in `blob`.
        is_error: the outcome is an error object.
        blob: where the outcome is, if it is too large for a record.
        size_bytes: of the outcome.
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
    outcome: str = ""
    is_error: bool = False
    blob: str | None = None
    size_bytes: int = 0

    @property
    def key(self) -> str:
        return self.key_of(self.id)

    @staticmethod
    def key_of(id: str) -> str:
        return PREFIX + id


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
