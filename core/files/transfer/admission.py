"""Admission of uploads, however their bytes arrive: who may upload, and which record is saved.

A signed link is the whole credential, and is used up by the first upload that succeeds: a record with its nonce is
saved before those of the files. Of several processes that share the storage, only one can save it. Where files are of a
principal (`FileScope`), and for clients without sessions (`UploadGrant.is_bearer`), a link is valid by itself.
Otherwise its session must still be open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ...base.plan import FileScope, ServerPlan
from ...base.storage import Conflicted, Forget, Save, Saved, StorageAnswer, StorageFailed, StoredFile
from ...downstream.sessions import Sessions
from ...state.context import Context
from ...state.storage_orders import StorageOrders, reason_of
from ..calls import offers
from ..store.links import BadLink, UploadGrant, read_upload
from ..store.owners import Account
from ..store.room import FULL as NO_ROOM
from ..store.room import Room
from ..store.store import FileStore, Reservation, StoredUpload
from ..store.uploads import Uploader, discard_uploads, save_uploads, upload_record


class Refusal(NamedTuple):
    """The refusal of a request: `status` for HTTP, `code` for programs, `text` for people."""

    status: int
    code: str
    text: str


class Permit(NamedTuple):
    """A link that was found good: its server and its grant."""

    server: ServerPlan
    grant: UploadGrant


USED_LINKS_MAX: Final = 4096
"""Used links that are known without asking the storage. Each is kept for minutes. At it: the oldest is forgotten, and
an upload with it is refused when its body has come."""
USED_PREFIX: Final = "used/"
"""Beginning of the keys of records of used links."""
USED_KEPT_S: Final = 60.0
"""Time for which a used link is remembered beyond its expiry. The clocks of processes that share a storage differ by
less."""
GONE = Refusal(409, "session_gone", "the session this link belongs to has ended")
FOREIGN = Refusal(403, "bad_credential", "this link was given to another caller: call the upload tool for your own")
USED = Refusal(403, "bad_credential", "this link was used already, by another upload")
FULL = Refusal(507, "storage_full", NO_ROOM)


class UploadAdmission:
    """Admits uploads, and saves the records of what they brought."""

    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        file_store: FileStore,
        storage_orders: StorageOrders,
        room: Room,
    ) -> None:
        self._room = room
        self._context = context
        self._sessions = sessions
        self._file_store = file_store
        self._storage_orders = storage_orders
        self._under_way: Counter[str] = Counter()  # uploads, by the session of their link
        self._used: dict[str, int] = {}  # nonces of used links, with their expiry, the oldest first

    # --- Admission --------------------------------------------------------------------------------------------------

    def admit(
        self, server_id: str, query: dict[str, str], session: str | None, principal: str | None
    ) -> Permit | Refusal:
        """Checks an upload link.

        Args:
            session: the `Mcp-Session-Id` header. It may be absent; if present, `names` decides.
            principal: the caller, who must be the one that got the link; None: the link is its only credential.
        """
        server = self._context.servers.get(server_id)
        if server is None:
            return Refusal(404, "unknown_server", f"there is no server {server_id!r}")
        if not self._context.plan.uploads_enabled or not server.takes_uploads:
            return Refusal(403, "uploads_disabled", f"server {server.id!r} takes no uploads")
        grant = read_upload(self._context.plan.link_keys, query, server=server.id, now_unix=self._context.now_unix)
        if isinstance(grant, BadLink):
            self._context.note("warning", f"upload refused: link {grant.fault}", server.id)
            problem = "this link has expired" if grant.fault == "expired" else "this link is not valid"
            helper = grant.tool or offers.helper_name(server.id)
            return Refusal(403, "bad_credential", f"{problem}: call the tool {helper} for a new one")
        if grant.nonce in self._used:
            helper = grant.tool or offers.helper_name(server.id)
            text = f"this link was used already: call the tool {helper} for a new one"
            return Refusal(403, "bad_credential", text)
        if not self.holds(grant):
            return GONE
        if principal is not None and principal != grant.principal:
            self._context.note("warning", "upload refused: another caller than the one that got the link", server.id)
            return FOREIGN
        if session is not None and not self.names(session, grant):
            return Refusal(403, "session_mismatch", "Mcp-Session-Id names another session than the link")
        return Permit(server, grant)

    def holds(self, grant: UploadGrant) -> bool:
        """True if the session that the link was given to is still open, or the link needs none."""
        return not self.needs_session(grant) or self.is_open(grant)

    def is_open(self, grant: UploadGrant) -> bool:
        """True if the session that the link was given to is still open."""
        return self._sessions.by_sid(grant.sid) is not None

    def needs_session(self, grant: UploadGrant) -> bool:
        """True if the link is good only while its session is open."""
        return self._context.plan.file_scope is FileScope.SESSION and not grant.is_bearer

    def account(self, grant: UploadGrant) -> Account:
        """Returns the account of what the link brings."""
        return self._file_store.account(grant.principal, grant.sid)

    def names(self, header: str, grant: UploadGrant) -> bool:
        """True if an `Mcp-Session-Id` header may come with the link: it names its session, by one of its names. A link
        that is of all sessions of a principal may come with the name of any other, also of one that has ended."""
        if self._context.plan.file_scope is FileScope.PRINCIPAL:
            return True
        session = self._sessions.by_sid(grant.sid)
        return header == grant.sid or (session is not None and header == session.id)

    # --- Records ----------------------------------------------------------------------------------------------------

    def record(self, server: ServerPlan, grant: UploadGrant, blob: str, file: StoredFile) -> StoredUpload:
        """Returns the record to be saved for a file that lies in `blob`, with a fresh upload id."""
        uploader = Uploader(server.id, grant.sid, grant.principal, grant.is_bearer)
        return upload_record(self._context, uploader, blob, file)

    def prepare(
        self, grant: UploadGrant, size_bytes: int, uploads: int, then: Callable[[Refusal | None], None]
    ) -> None:
        """Gets room for uploads as far as there is any (`Room.prepare`). Calls `then` with a refusal if the storage
        does not answer."""

        def prepared(problem: str) -> None:
            then(Refusal(503, "storage_failed", problem) if problem else None)

        self._room.prepare(self.account(grant), size_bytes, prepared, uploads=uploads)

    def begin(self, grant: UploadGrant) -> None:
        """Marks an upload with this link as under way, until `release`."""
        self._under_way[grant.sid] += 1

    def release(self, grant: UploadGrant, reservation: Reservation) -> None:
        """Marks that upload as over, and releases its reservation."""
        self._file_store.release(reservation)
        self._under_way[grant.sid] -= 1
        if not self._under_way[grant.sid]:
            del self._under_way[grant.sid]

    def is_used(self, sid: str) -> bool:
        """True if an upload with a link of that session is under way."""
        return sid in self._under_way

    def keep(
        self,
        grant: UploadGrant,
        reservation: Reservation,
        records: Sequence[StoredUpload],
        then: Callable[[Refusal | None], None],
    ) -> None:
        """Uses up the link, saves the records, and releases the link and the reservation.

        Calls `then` with None once the uploads are in the store, or else with the refusal; then nothing is left of
        them, their blobs included.
        """
        if not self.holds(grant):
            self.release(grant, reservation)
            discard_uploads(self._context, records)
            then(GONE)
            return
        session, key = self._sessions.by_sid(grant.sid), used_key(grant)

        def judge(failure: StorageAnswer | None) -> Refusal | None:
            self.release(grant, reservation)
            refusal = None if failure is None else _refusal_of(failure)
            # The session may have closed while the records were being saved.
            if self.needs_session(grant) and self._sessions.by_sid(grant.sid) is not session:
                refusal = refusal or GONE
            if refusal is None:
                self._remember_use(grant)
            else:
                self._context.order(Forget(key=key))  # the link may be tried again
            return refusal

        def used(answer: StorageAnswer) -> None:
            if isinstance(answer, Saved):
                save_uploads(
                    self._context,
                    self._file_store,
                    self._storage_orders,
                    records,
                    self._room,
                    reservation,
                    judge,
                    then,
                )
                return
            self.release(grant, reservation)
            discard_uploads(self._context, records)
            if isinstance(answer, Conflicted):
                self._remember_use(grant)
                then(USED)
            else:
                then(_refusal_of(answer))

        def used_late(answer: StorageAnswer) -> None:
            if isinstance(answer, Saved):
                self._context.order(Forget(key=key))

        at_unix = grant.expires_at_unix + USED_KEPT_S
        self._storage_orders.order(
            lambda ticket: Save(ticket, key=key, value=b"{}", expires_at_unix=at_unix, if_version=0),
            used,
            late=used_late,
        )

    def _remember_use(self, grant: UploadGrant) -> None:
        """Remembers that a link was used, so that another upload with it is refused before its body comes."""
        for nonce, expires_at_unix in list(self._used.items()):
            if len(self._used) < USED_LINKS_MAX and expires_at_unix >= self._context.now_unix:
                break
            del self._used[nonce]
        self._used[grant.nonce] = grant.expires_at_unix

    def reply(self, records: Sequence[StoredUpload]) -> bytes:
        """Returns the JSON that describes uploads to their client. There is at least one."""
        scheme = self._context.servers[records[0].server].upload_scheme
        return offers.reply_of(records, scheme)


def _refusal_of(failure: StorageAnswer) -> Refusal:
    """Returns the refusal of an upload whose record was not saved."""
    is_full = isinstance(failure, StorageFailed) and failure.is_full
    return Refusal(507 if is_full else 503, "storage_failed", reason_of(failure))


def used_key(grant: UploadGrant) -> str:
    """Returns the key of the record that says that a link was used."""
    return f"{USED_PREFIX}{grant.nonce}"
