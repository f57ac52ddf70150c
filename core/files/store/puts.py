"""Uploads whose content comes in messages: in one piece, or in parts that follow one another.

A draft is an upload of which more is to come. The token of a draft names the draft and how many bytes it has, so that
a part which is sent twice, or too early, is refused and changes nothing. One part is stored at a time. Room is reserved
for what has come. A draft ends with its session, when no part comes for `upload_draft_ttl_s`, or after
`upload_draft_max_s`; then nothing is left of it. That of a client without sessions can be continued by any client of
its principal that has the token.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from ...base.ids import Ticket
from ...base.plan import FileScope
from ...base.storage import Discard, Extend, Extended, StorageAnswer, StoredFile
from ...state.context import Context
from ...state.session import Session
from ...state.storage_orders import StorageOrders, reason_of
from .filenames import HEAD_BYTES
from .owners import Account, Owner, user_of
from .room import Room
from .store import FileStore, Reservation, StoredUpload
from .uploads import Uploader, save_uploads, upload_record

_TOKEN: Final = re.compile(r"([0-9a-f]{32}):(0|[1-9][0-9]{0,17})")


class Part(NamedTuple):
    """A part of a file, or the whole of it.

    Attributes:
        filename, mime_type: of the file; only those of the first part count.
        append_to: the token of the draft that it goes on with; "" for a new file.
        is_last: the file is complete with it.
        sha256: what the digest of the whole file must be; "": anything.
    """

    data: bytes
    filename: str = ""
    mime_type: str | None = None
    append_to: str = ""
    is_last: bool = True
    sha256: str = ""


class Progress(NamedTuple):
    """A draft that has got a part. `token` goes on with it."""

    token: str
    size_bytes: int


class Problem(NamedTuple):
    """The reason why a part was not taken, for people: what was seen, and what to do."""

    text: str


Outcome = StoredUpload | Progress | Problem
Then = Callable[[Outcome], None]


class _Draft:
    """An upload of which more is to come, or whose last part is being stored.

    Attributes:
        owner: the owner of the session, see `core.base.budget`.
        reservation: the room for what has come; None before the first part.
        is_busy: a part is being stored.
        is_over: the draft has ended while a part was being stored.
    """

    __slots__ = (
        "blob",
        "dies_at",
        "file",
        "head",
        "id",
        "is_busy",
        "is_over",
        "owner",
        "reservation",
        "size_bytes",
        "uploader",
    )

    def __init__(self, id: str, blob: str, uploader: Uploader, owner: str, first: Part, dies_at: float) -> None:
        self.id = id
        self.blob = blob
        self.uploader = uploader
        self.owner = owner
        self.file = first.filename, first.mime_type
        self.dies_at = dies_at
        self.size_bytes = 0
        self.head = b""
        self.reservation: Reservation | None = None
        self.is_busy = False
        self.is_over = False

    @property
    def token(self) -> str:
        return f"{self.id}:{self.size_bytes}"

    def begin(self, reservation: Reservation) -> None:
        """Begins to store a part, for which room is reserved together with what came before."""
        self.reservation, self.is_busy = reservation, True

    def receive_stored(self, data: bytes) -> None:
        """Adds a part that is stored."""
        self.is_busy = False
        self.size_bytes += len(data)
        self.head = (self.head + data)[:HEAD_BYTES]

    def end(self) -> Reservation | None:
        """Ends the draft. Returns the reservation that is to be released, once."""
        reservation, self.reservation = self.reservation, None
        self.is_over = True
        return reservation


class Puts:
    """Stores content that comes in messages. Bounded in drafts: for each session, over all, and for each owner in about
    half of all, so that nobody takes the place of others.

    Args:
        is_live: returns True if a session of that public name is open.
    """

    def __init__(
        self,
        context: Context,
        file_store: FileStore,
        storage_orders: StorageOrders,
        room: Room,
        is_live: Callable[[str], bool],
    ) -> None:
        self._room = room
        self._context = context
        self._file_store = file_store
        self._storage_orders = storage_orders
        self._is_live = is_live
        self._drafts: dict[str, _Draft] = {}

    def __len__(self) -> int:
        return len(self._drafts)

    # --- Parts ------------------------------------------------------------------------------------------------------

    def put(self, session: Session, part: Part, then: Then) -> None:
        """Stores a part, of `upload_part_max_bytes` at most, and calls `then` with the upload, the progress, or the
        problem. A part that is refused changes nothing, except that a file which cannot be completed any more is
        dropped."""
        assert len(part.data) <= self._context.limits.upload_part_max_bytes
        account = self._file_store.account(session.principal, session.files_sid)

        def prepared(problem: str) -> None:
            if problem:
                then(Problem(f"The content could not be stored: {problem}. Try again."))
            else:
                self._put(session, part, then)

        self._room.prepare(account, len(part.data), prepared, uploads=0 if part.append_to else 1)

    def _put(self, session: Session, part: Part, then: Then) -> None:
        draft = self._continued(session, part) if part.append_to else self._begun(session, part)
        if isinstance(draft, Problem):
            then(draft)
            return
        whole_bytes, limits = draft.size_bytes + len(part.data), self._context.limits
        if whole_bytes > limits.upload_size_max_bytes:
            self._drop(draft)
            text = (
                f"The file would have {whole_bytes} bytes, and a file may have at most {limits.upload_size_max_bytes}."
            )
            then(Problem(f"{text} What came of it was dropped."))
            return
        if len(part.data) > self._file_store.room(self._account(draft)) or not self._has_slot(draft):
            then(Problem("Your storage is full: wait until files expire, or send a smaller file."))
            return
        self._drafts[draft.id] = draft
        if draft.reservation is None or part.data:  # there is room for the whole, of which one part is held already
            if draft.reservation is not None:
                self._file_store.release(draft.reservation)
            draft.begin(self._file_store.hold(self._account(draft), whole_bytes, uploads=1))
        else:
            draft.begin(draft.reservation)
        self._set_timer(draft)
        self._storage_orders.order(
            partial(_extending, draft.blob, draft.size_bytes, part),
            partial(self._receive_stored, draft, part, then),
            late=lambda _: self._context.order(Discard(blob=draft.blob)),
        )

    def _begun(self, session: Session, part: Part) -> _Draft | Problem:
        """Returns a new draft, or why there can be none."""
        limits, sid = self._context.limits, session.files_sid
        own = sum(draft.uploader.sid == sid for draft in self._drafts.values())
        of_owner = sum(draft.owner == session.owner != "" for draft in self._drafts.values())
        all_max = limits.upload_drafts_max
        if own >= limits.upload_drafts_per_session_max or len(self._drafts) >= all_max or of_owner > all_max // 2:
            return Problem("Too many uploads are under way: complete some with their last part first.")
        uploader = Uploader(session.server, sid, session.principal, session.is_stateless)
        dies_at = self._context.now + limits.upload_draft_max_s
        return _Draft(self._context.mint(), self._context.mint(), uploader, session.owner, part, dies_at)

    def _continued(self, session: Session, part: Part) -> _Draft | Problem:
        """Returns the draft that the part goes on with, or why it cannot."""
        found = _TOKEN.fullmatch(part.append_to)
        draft = None if found is None else self._drafts.get(found[1])
        if found is None or draft is None or not self._may_use(session, draft):
            seen = part.append_to[:80]
            return Problem(
                f"There is no upload {seen!r} under way: it is complete, has expired, or is of another session. Begin "
                "again without append_to."
            )
        if draft.is_busy:
            return Problem("The part before this one is still being stored: wait for its answer, then send this one.")
        if int(found[2]) != draft.size_bytes:
            return Problem(
                f"This upload has {draft.size_bytes} bytes now, and append_to is for {found[2]}: this part may have "
                f"come already. Go on with append_to {draft.token!r}."
            )
        return draft

    def _may_use(self, session: Session, draft: _Draft) -> bool:
        server, sid, principal, is_bearer = draft.uploader
        owner = Owner(server, principal, sid, is_bearer, is_restored=False)
        return session.server == server and user_of(self._context, session).may_use(
            owner, self._context.plan.file_scope, self._is_live
        )

    def _account(self, draft: _Draft) -> Account:
        return self._file_store.account(draft.uploader.principal, draft.uploader.sid)

    def _needs_session(self, draft: _Draft) -> bool:
        """True if the draft is good only while its session is open."""
        return self._context.plan.file_scope is FileScope.SESSION and not draft.uploader.is_bearer

    def _has_slot(self, draft: _Draft) -> bool:
        return draft.reservation is not None or bool(self._file_store.slots(self._account(draft), "upload"))

    def _receive_stored(self, draft: _Draft, part: Part, then: Then, answer: StorageAnswer) -> None:
        size_bytes = draft.size_bytes + len(part.data)
        if draft.is_over:
            self._context.order(Discard(blob=draft.blob))
            then(_GONE)
        elif not isinstance(answer, Extended) or answer.size_bytes != size_bytes:
            self._drop(draft)
            reason = "the storage has another size" if isinstance(answer, Extended) else reason_of(answer)
            then(
                Problem(f"The content could not be stored: {reason}. What came of the file was dropped: send it again.")
            )
        else:
            draft.receive_stored(part.data)
            if not part.is_last:
                self._set_timer(draft)
                then(Progress(draft.token, draft.size_bytes))
            elif part.sha256 and part.sha256.lower() != answer.sha256:
                self._drop(draft)
                text = f"The file's SHA-256 is {answer.sha256}, and {part.sha256} was announced."
                then(Problem(f"{text} What came of it was dropped: send it again."))
            else:
                self._save(draft, answer.sha256, then)

    def _save(self, draft: _Draft, sha256: str, then: Then) -> None:
        self._forget(draft)
        filename, mime_type = draft.file
        stored = StoredFile(filename, draft.size_bytes, sha256, mime_type, draft.head)
        record = upload_record(self._context, draft.uploader, draft.blob, stored)

        reservation = draft.reservation
        assert reservation is not None

        def judge(failure: StorageAnswer | None) -> Problem | None:
            draft.end()
            self._file_store.release(reservation)
            if failure is not None:
                return Problem(f"The content could not be stored: {reason_of(failure)}.")
            # The session may have closed while the record was being saved.
            return _GONE if self._needs_session(draft) and not self._is_live(draft.uploader.sid) else None

        def saved(problem: Problem | None) -> None:
            then(record if problem is None else problem)

        save_uploads(
            self._context, self._file_store, self._storage_orders, [record], self._room, reservation, judge, saved
        )

    # --- Ends -------------------------------------------------------------------------------------------------------

    def drop(self, token: str) -> None:
        """Ends a draft of which no client knows the token."""
        draft = self._drafts.get(token.partition(":")[0])
        if draft is not None and draft.token == token:
            self._drop(draft)

    def close_session(self, sid: str) -> None:
        """Ends the session's drafts that need it."""
        for draft in [draft for draft in self._drafts.values() if draft.uploader.sid == sid]:
            if self._needs_session(draft):
                self._drop(draft)

    def end_all(self) -> None:
        """Ends all drafts, since none outlives the proxy."""
        for draft in list(self._drafts.values()):
            self._drop(draft)

    def handle_timeout(self, id: str) -> None:
        """Ends a draft that was left alone, or took too long."""
        self._drop(self._drafts[id])

    def _drop(self, draft: _Draft) -> None:
        """Ends a draft, and removes what came of it. While a part is being stored, that is removed afterwards."""
        if draft.id in self._drafts:
            self._forget(draft)
        reservation = draft.end()
        if reservation is not None:
            self._file_store.release(reservation)
            self._context.order(Discard(blob=draft.blob))

    def _forget(self, draft: _Draft) -> None:
        del self._drafts[draft.id]
        self._context.timers.cancel(("put", draft.id))

    def _set_timer(self, draft: _Draft) -> None:
        at = draft.dies_at
        if not draft.is_busy:  # storing has a time limit of its own
            at = min(at, self._context.now + self._context.limits.upload_draft_ttl_s)
        self._context.timers.set(("put", draft.id), at, "upload left alone")


_GONE: Final = Problem("The upload has ended, with its session or because it took too long.")


def _extending(blob: str, offset: int, part: Part, ticket: Ticket) -> Extend:
    return Extend(ticket=ticket, blob=blob, offset=offset, data=part.data, is_last=part.is_last)
