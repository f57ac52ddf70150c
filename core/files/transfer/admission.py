"""What all uploads have in common, however their bytes come: who may make one, and what is written down of it.

A link is the whole credential, and is used up by the first upload that succeeds. It belongs to a session, which must
be there still; or to a client without sessions (`Grant.is_bearer`), and then it holds by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from ...base.effects import Discard, Forget, Save, Saved, StorageAnswer, StoredFile
from ...base.ids import Ticket
from ...base.plan import ServerPlan
from ...downstream.sessions import Clients
from ...state.context import Desk
from ...state.storage_orders import Waiting, reason_of
from ..calls import offers
from ..store import handles
from ..store.filenames import mime_type_of, safe_filename
from ..store.store import Hold, Shelf, StoredUpload


class Refusal(NamedTuple):
    """Why something is not taken: `status` for HTTP, `code` for programs, `text` for people."""

    status: int
    code: str
    text: str


class Permit(NamedTuple):
    """That a link is good, and what for."""

    server: ServerPlan
    nonce: str
    grant: handles.Grant


GONE = Refusal(409, "session_gone", "the session this link belongs to has ended")
USED = Refusal(403, "bad_credential", "this link was used already, by another upload")
FULL = Refusal(
    507,
    "storage_full",
    "this session's storage is full, or uploads under way take what is left: let files expire first",
)


class Deposits:
    """Admits uploads, and keeps what they brought."""

    def __init__(self, desk: Desk, clients: Clients, shelf: Shelf, nonces: handles.Nonces, waiting: Waiting) -> None:
        self._desk = desk
        self._clients = clients
        self._shelf = shelf
        self._nonces = nonces
        self._waiting = waiting
        self._saving: set[str] = set()  # nonces of uploads whose records are being written

    # --- Who may ----------------------------------------------------------------------------------------------------

    def admit(self, server_id: str, query: dict[str, str], session: str | None) -> Permit | Refusal:
        """Check a link.

        Args:
            session: the `Mcp-Session-Id` header. It need not be there; if it is, it must fit.
        """
        server = self._desk.servers.get(server_id)
        if server is None:
            return Refusal(404, "unknown_server", f"there is no server {server_id!r}")
        if not self._desk.plan.uploads_enabled or not server.takes_uploads:
            return Refusal(403, "uploads_disabled", f"server {server.id!r} takes no uploads")
        helper = offers.helper_name(server.id)
        nonce = handles.nonce_of(query)
        grant = None if nonce is None else self._nonces.find(nonce)
        if nonce is None or grant is None:
            text = f"this link is not valid, or was used already: call the tool {helper} for a new one"
            return Refusal(403, "bad_credential", text)
        fault = handles.check_upload(
            self._desk.plan.link_key, query, server=server.id, sid=grant.sid, now_unix=self._desk.now_unix
        )
        if fault is not None:
            self._desk.note("warning", f"upload refused: link {fault}", server.id)
            said = "this link has expired" if fault == "expired" else "this link is not valid"
            return Refusal(403, "bad_credential", f"{said}: call the tool {helper} for a new one")
        if not self.holds(grant):
            return GONE
        if session is not None and not self.names(session, grant.sid):
            return Refusal(403, "session_mismatch", "Mcp-Session-Id names another session than the link")
        return Permit(server, nonce, grant)

    def holds(self, grant: handles.Grant) -> bool:
        """Whether whom it was given to is still there."""
        return grant.is_bearer or self._clients.by_sid(grant.sid) is not None

    def names(self, header: str, sid: str) -> bool:
        """Whether an `Mcp-Session-Id` header is one of the names of that session."""
        session = self._clients.by_sid(sid)
        return header == sid or (session is not None and header == session.id)

    # --- What is kept -----------------------------------------------------------------------------------------------

    def record(self, grant: handles.Grant, blob: str, file: StoredFile) -> StoredUpload:
        """What is to be written down of a file that lies in `blob`, under a fresh id."""
        session = self._clients.by_sid(grant.sid)
        filename = safe_filename(file.filename, "upload")
        return StoredUpload(
            server=grant.server,
            sid=grant.sid,
            uid=self._desk.mint(),
            principal=grant.principal if session is None else session.principal,
            blob=blob,
            filename=filename,
            mime_type=mime_type_of(filename, file.head, file.mime_type),
            size_bytes=file.size_bytes,
            sha256=file.sha256,
            is_bearer=grant.is_bearer,
            stored_at_unix=self._desk.now_unix,
            expires_at_unix=self._desk.now_unix + self._desk.limits.upload_ttl_s,
        )

    def begin(self, nonce: str) -> None:
        """An upload with this link is under way: it stays good until `release`."""
        self._nonces.begin(nonce)

    def release(self, nonce: str, hold: Hold) -> None:
        """That upload is over: others may have its room."""
        self._shelf.release(hold)
        self._nonces.end(nonce)

    def keep(
        self,
        nonce: str,
        grant: handles.Grant,
        hold: Hold,
        records: Sequence[StoredUpload],
        then: Callable[[Refusal | None], None],
    ) -> None:
        """Write the records, use the link up, and release it. `then` is told None when the uploads are on the shelf, or
        else why nothing is left of them, their blobs included."""
        refusal = None if self.holds(grant) else GONE
        if refusal is None and (nonce in self._saving or self._nonces.find(nonce) is None):
            refusal = USED
        if refusal is not None:
            self.release(nonce, hold)
            self._undo(records)
            then(refusal)
            return
        session = self._clients.by_sid(grant.sid)
        left = len(records)
        problem = ""
        self._saving.add(nonce)

        def saved(answer: StorageAnswer) -> None:
            nonlocal left, problem
            left -= 1
            if not isinstance(answer, Saved):
                problem = reason_of(answer)
            if left:
                return
            self._saving.remove(nonce)
            self.release(nonce, hold)
            refusal = Refusal(507, "storage_failed", problem) if problem else None
            if refusal is None and not grant.is_bearer and self._clients.by_sid(grant.sid) is not session:
                refusal = GONE
            if refusal is not None:
                for record in records:
                    self._desk.order(Forget(key=record.key))
                self._undo(records)
                then(refusal)
                return
            self._nonces.spend(nonce)
            for record in records:
                self._shelf.add_upload(record)
            then(None)

        for record in records:
            self._waiting.order(partial(_saving, record), saved)

    def _undo(self, records: Sequence[StoredUpload]) -> None:
        for record in records:
            self._desk.order(Discard(blob=record.blob))

    def reply(self, records: Sequence[StoredUpload]) -> bytes:
        """The JSON that tells a client of its uploads, of which there is at least one."""
        server, sid = records[0].server, records[0].sid
        scheme = self._desk.servers[server].upload_scheme
        return offers.upload_reply(server, sid, [_uploaded(record) for record in records], scheme)


def _saving(record: StoredUpload, ticket: Ticket) -> Save:
    value = msgspec.json.encode(record)
    return Save(ticket=ticket, key=record.key, value=value, expires_at_unix=record.expires_at_unix)


def _uploaded(record: StoredUpload) -> offers.UploadedFile:
    return offers.UploadedFile(
        upload_id=record.uid,
        filename=record.filename,
        mime_type=record.mime_type,
        size_bytes=record.size_bytes,
        sha256=record.sha256,
    )
