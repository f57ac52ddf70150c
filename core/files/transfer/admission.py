"""Admission of uploads, however their bytes arrive: who may upload, and which record is saved.

A signed link is the whole credential, and is used up by the first upload that succeeds. Where files are of a principal
(`FileScope`), and for clients without sessions (`Grant.is_bearer`), it is valid by itself. Otherwise its session must
still be open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...base.plan import FileScope, ServerPlan
from ...base.storage import StoredFile
from ...downstream.sessions import Sessions
from ...state.context import Context
from ...state.storage_orders import StorageOrders
from ..calls import offers
from ..store import handles
from ..store.owners import Account
from ..store.store import FileStore, Reservation, StoredUpload
from ..store.uploads import Uploader, discard_uploads, save_uploads, upload_record


class Refusal(NamedTuple):
    """The refusal of a request: `status` for HTTP, `code` for programs, `text` for people."""

    status: int
    code: str
    text: str


class Permit(NamedTuple):
    """A link that was found good, with its server and its grant."""

    server: ServerPlan
    nonce: str
    grant: handles.Grant


GONE = Refusal(409, "session_gone", "the session this link belongs to has ended")
FOREIGN = Refusal(403, "bad_credential", "this link was given to another caller: call the upload tool for your own")
USED = Refusal(403, "bad_credential", "this link was used already, by another upload")
FULL = Refusal(
    507,
    "storage_full",
    "your storage is full, or uploads under way take what is left: let files expire first",
)


class UploadAdmission:
    """Admits uploads, and saves the records of what they brought."""

    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        file_store: FileStore,
        nonces: handles.Nonces,
        storage_orders: StorageOrders,
    ) -> None:
        self._context = context
        self._sessions = sessions
        self._file_store = file_store
        self._nonces = nonces
        self._storage_orders = storage_orders
        self._saving: set[str] = set()  # nonces of uploads whose records are being written

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
        nonce = handles.nonce_of(query)
        grant = None if nonce is None else self._nonces.find(nonce)
        helper = offers.helper_name(server.id) if grant is None else grant.tool or offers.helper_name(server.id)
        if nonce is None or grant is None:
            text = f"this link is not valid, or was used already: call the tool {helper} for a new one"
            return Refusal(403, "bad_credential", text)
        fault = handles.check_upload(
            self._context.plan.link_key, query, server=server.id, sid=grant.sid, now_unix=self._context.now_unix
        )
        if fault is not None:
            self._context.note("warning", f"upload refused: link {fault}", server.id)
            problem = "this link has expired" if fault == "expired" else "this link is not valid"
            return Refusal(403, "bad_credential", f"{problem}: call the tool {helper} for a new one")
        if not self.holds(grant):
            return GONE
        if principal is not None and principal != self.owner(grant):
            self._context.note("warning", "upload refused: another caller than the one that got the link", server.id)
            return FOREIGN
        if session is not None and not self.names(session, grant):
            return Refusal(403, "session_mismatch", "Mcp-Session-Id names another session than the link")
        return Permit(server, nonce, grant)

    def holds(self, grant: handles.Grant) -> bool:
        """True if the session that the link was given to is still open, or the link needs none."""
        return not self.needs_session(grant) or self.is_open(grant)

    def is_open(self, grant: handles.Grant) -> bool:
        """True if the session that the link was given to is still open."""
        return self._sessions.by_sid(grant.sid) is not None

    def needs_session(self, grant: handles.Grant) -> bool:
        """True if the link is good only while its session is open."""
        return self._context.plan.file_scope is FileScope.SESSION and not grant.is_bearer

    def account(self, grant: handles.Grant) -> Account:
        """Returns the account of what the link brings."""
        return self._file_store.account(self.owner(grant), grant.sid)

    def owner(self, grant: handles.Grant) -> str:
        """Returns the principal that the link was given to."""
        session = self._sessions.by_sid(grant.sid)
        return grant.principal if session is None else session.principal

    def names(self, header: str, grant: handles.Grant) -> bool:
        """True if an `Mcp-Session-Id` header may come with the link: it names its session, by one of its names. A link
        that is of all sessions of a principal may come with the name of any other, also of one that has ended."""
        if self._context.plan.file_scope is FileScope.PRINCIPAL:
            return True
        session = self._sessions.by_sid(grant.sid)
        return header == grant.sid or (session is not None and header == session.id)

    # --- Records ----------------------------------------------------------------------------------------------------

    def record(self, grant: handles.Grant, blob: str, file: StoredFile) -> StoredUpload:
        """Returns the record to be saved for a file that lies in `blob`, with a fresh upload id."""
        uploader = Uploader(grant.server, grant.sid, self.owner(grant), grant.is_bearer)
        return upload_record(self._context, uploader, blob, file)

    def begin(self, nonce: str) -> None:
        """Marks an upload with this link as under way: the link stays good until `release`."""
        self._nonces.begin(nonce)

    def release(self, nonce: str, reservation: Reservation) -> None:
        """Marks that upload as over, and releases its reservation."""
        self._file_store.release(reservation)
        self._nonces.end(nonce)

    def keep(
        self,
        nonce: str,
        grant: handles.Grant,
        reservation: Reservation,
        records: Sequence[StoredUpload],
        then: Callable[[Refusal | None], None],
    ) -> None:
        """Saves the records, spends the link, and releases it and the reservation.

        Calls `then` with None once the uploads are in the store, or else with the refusal; then nothing is left of
        them, their blobs included.
        """
        refusal = None if self.holds(grant) else GONE
        # Uploads with one link may run at the same time: the first whose records are being saved wins.
        if refusal is None and (nonce in self._saving or self._nonces.find(nonce) is None):
            refusal = USED
        if refusal is not None:
            self.release(nonce, reservation)
            discard_uploads(self._context, records)
            then(refusal)
            return
        session = self._sessions.by_sid(grant.sid)
        self._saving.add(nonce)

        def judge(problem: str) -> Refusal | None:
            self._saving.remove(nonce)
            self.release(nonce, reservation)
            if problem:
                return Refusal(507, "storage_failed", problem)
            # The session may have closed while the records were being saved.
            if self.needs_session(grant) and self._sessions.by_sid(grant.sid) is not session:
                return GONE
            self._nonces.spend(nonce)
            return None

        save_uploads(self._context, self._file_store, self._storage_orders, records, judge, then)

    def reply(self, records: Sequence[StoredUpload]) -> bytes:
        """Returns the JSON that describes uploads to their client. There is at least one."""
        scheme = self._context.servers[records[0].server].upload_scheme
        return offers.reply_of(records, scheme)
