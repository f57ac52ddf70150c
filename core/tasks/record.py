"""A task as it is saved, so that its result outlives the process that made it."""

from __future__ import annotations

import msgspec

from ..state.task import State

PREFIX = "task/"
"""What the keys of all these records start with."""


class StoredTask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Attributes:
    id: what its client names it by.
    server, tool: whose call it is.
    era: of its client, `handshake` or `stateless`: how its outcome is written.
    owner: a hash of whom it belongs to (`owners`).
    payer: a hash of the principal, among whose tasks it counts.
    sid: the public name of the session it belongs to, where nothing else tells its clients apart; "" for all of
        an owner.
    status: the last that was said.
    message: what was said with it, for people.
    created_at, updated_at: ISO 8601, as shown.
    expires_at_unix: when it is forgotten.
    ttl_ms: from its creation.
    poll_ms: how often its client is asked to look.
    upstream_task: the server's own name for it, if it is a task there.
    is_remote: the server may be at work on it, whatever becomes of this process.
    upstream_session: the `Mcp-Session-Id` that it was begun with, if any: some servers know it by that only.
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
    status: State
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
        kind: `proxied` (a task of the server's), `local` (a call that goes on here).
        era: of its client, `handshake` or `stateless`.
        principal: who called; "" for anonymous, and for tasks of an earlier run.
        session: the public name of the session it is run in; "" if there is none any more.
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
