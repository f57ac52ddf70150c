"""Uploads that go on after a break: each a draft, which grows from request to request and becomes an upload at its end.

A draft is made with an upload link, has a link of its own from then on, and holds the room of the whole file. One
request at a time adds to it; whoever asks where to go on, or wants to add or to end it, is served once that request has
been made to stop, for a client that comes back knows better than we do that its old connection is dead. What arrived
stays. With the last byte the draft becomes an upload, as if it had come at once, and the link that it was made with is
used up; until then the same link may begin others. A draft that is left alone expires, and none outlives the proxy.
"""

from __future__ import annotations

import datetime
import enum
from typing import Final
from urllib.parse import quote, urlencode

import msgspec

from ...base.effects import Append, Appended, Cease, Discard, DraftOpening, Halt, Headers, StoredFile, Verb
from ...base.errors import LocalProtocolError
from ...base.ids import ChannelId
from ...base.state_machine import Machine
from ...state.context import Desk, Role
from ...wire.http.dates import format_date
from ..store import handles
from ..store.filenames import HEAD_BYTES
from ..store.store import Hold, Shelf
from .admission import FULL, GONE, Deposits, Permit, Refusal

WAITING_MAX: Final = 4
"""Requests that wait until a draft is free. A client has one; another may ask how far it is."""


class State(enum.Enum):
    OPEN = "open"  # waits for more
    APPENDING = "appending"  # a request adds to it
    ENDING = "ending"  # nobody wants it any more, and the request that adds to it is being stopped
    SAVING = "saving"  # it is complete, and its record is being written
    DONE = "done"  # it is an upload; that it was this draft can still be asked
    ENDED = "ended"


class Input(enum.Enum):
    APPEND = "append"  # a request is allowed to add
    STOP = "stop"  # that request is over, and more is to come
    COMPLETE = "complete"  # that request brought the rest
    SAVE = "save"  # the upload is on the shelf
    END = "end"  # it expired, its owner is gone, or somebody said so


# Source: tus 1.0.0, "Core Protocol" and "Termination".
# An input missing from a row is illegal in that state; an empty row is terminal.
TRANSITIONS: Final[dict[State, dict[Input, State]]] = {
    State.OPEN: {Input.APPEND: State.APPENDING, Input.END: State.ENDED},
    State.APPENDING: {Input.STOP: State.OPEN, Input.COMPLETE: State.SAVING, Input.END: State.ENDING},
    State.ENDING: {Input.STOP: State.ENDED, Input.COMPLETE: State.ENDED},
    State.SAVING: {Input.SAVE: State.DONE, Input.END: State.ENDED},
    State.DONE: {Input.END: State.ENDED},
    State.ENDED: {},
}


class Draft(Machine[State, Input]):
    """Moves along `TRANSITIONS` only.

    Attributes:
        offset: how many of its `size_bytes` are there.
        head: the first of them, 512 at most.
        hold: the room taken for it; None once that is another's to release.
        channel: the request that adds to it, while one does.
        is_unknown: its client has not been told yet where it is.
        is_ceasing: that request was told to stop.
        waiting: requests to be served when it is free, in order.
        expires_at: when it ends if nothing comes.
        dies_at: when it ends at the latest.
        reply: once it is an upload, what is said of that.
        handle: the handle of the upload.
    """

    __slots__ = (
        "blob",
        "channel",
        "dies_at",
        "expires_at",
        "handle",
        "head",
        "hold",
        "id",
        "is_ceasing",
        "is_unknown",
        "offset",
        "opening",
        "permit",
        "reply",
        "waiting",
    )

    TRANSITIONS = TRANSITIONS

    def __init__(self, id: str, blob: str, permit: Permit, opening: DraftOpening, hold: Hold, dies_at: float) -> None:
        super().__init__(State.OPEN)
        self.id = id
        self.blob = blob
        self.permit = permit
        self.opening = opening
        self.hold: Hold | None = hold
        self.dies_at = dies_at
        self.expires_at = dies_at
        self.offset = 0
        self.head = b""
        self.channel: ChannelId | None = None
        self.is_unknown = False
        self.is_ceasing = False
        self.waiting: list[tuple[ChannelId, DraftOpening]] = []
        self.reply: bytes | None = None
        self.handle = ""

    @property
    def sid(self) -> str:
        return self.permit.grant.sid

    @property
    def size_bytes(self) -> int:
        return self.opening.length


class AppendRole(Role):
    """A request that adds to a draft."""

    __slots__ = ("draft",)

    def __init__(self, draft: Draft) -> None:
        self.draft = draft


class WaitRole(Role):
    """Any other request about a draft."""

    __slots__ = ()


class Drafts:
    """All drafts. Bounded in number, for each session and over all; finished ones give way to new ones."""

    def __init__(self, desk: Desk, shelf: Shelf, deposits: Deposits) -> None:
        self._desk = desk
        self._shelf = shelf
        self._deposits = deposits
        self._drafts: dict[str, Draft] = {}

    def __len__(self) -> int:
        return len(self._drafts)

    # --- Requests ---------------------------------------------------------------------------------------------------

    def open(self, channel: ChannelId, opening: DraftOpening) -> None:
        """A request. It is answered, or its body is ordered, now or when what is under way has stopped."""
        self._desk.register(channel, WaitRole())
        if opening.verb is Verb.CREATE:
            self._create(channel, opening)
            return
        found = self._find(opening)
        if isinstance(found, Refusal):
            self._refuse(channel, found)
        elif opening.verb is Verb.LOOK:
            self._show(channel, found)
        elif found.state in (State.OPEN, State.DONE):
            self._serve(found, channel, opening)
        elif len(found.waiting) >= WAITING_MAX:
            self._refuse(channel, Refusal(423, "locked", "others wait for this upload already: try again later"))
        else:
            found.waiting.append((channel, opening))
            self._cease(found)

    def _find(self, opening: DraftOpening) -> Draft | Refusal:
        fault = handles.check_draft(
            self._desk.plan.link_key,
            opening.query,
            server=opening.server,
            draft=opening.draft,
            now_unix=self._desk.now_unix,
        )
        if fault is not None:
            self._desk.note("warning", f"upload refused: link {fault}", opening.server)
            said = "has expired" if fault == "expired" else "is not valid"
            return Refusal(403, "bad_credential", f"the link of this upload {said}: begin another")
        draft = self._drafts.get(opening.draft)
        if draft is None:
            return Refusal(404, "not_found", "there is no such upload any more: it has expired, or was ended")
        if not self._deposits.holds(draft.permit.grant):
            return GONE
        if opening.session is not None and not self._deposits.names(opening.session, draft.sid):
            return Refusal(403, "session_mismatch", "Mcp-Session-Id names another session than that of the upload")
        return draft

    def _create(self, channel: ChannelId, opening: DraftOpening) -> None:
        permit = self._deposits.admit(opening.server, opening.query, opening.session)
        refusal = permit if isinstance(permit, Refusal) else self._allowance(opening, permit.grant.sid)
        if refusal is not None:
            self._refuse(channel, refusal)
            return
        assert isinstance(permit, Permit)
        limits, now = self._desk.limits, self._desk.now
        hold = self._shelf.hold(permit.grant.sid, opening.length, uploads=1, is_sure=False)
        self._deposits.begin(permit.nonce)
        draft = Draft(
            self._desk.mint(), self._desk.mint(), permit, opening, hold, dies_at=now + limits.upload_draft_max_s
        )
        self._drafts[draft.id] = draft
        self._keep(draft)
        if opening.length and opening.size_bytes == 0:
            self._answer(channel, 201, self._described(draft, is_new=True))
        else:
            draft.is_unknown = True
            self._append(draft, channel, opening)

    def _allowance(self, opening: DraftOpening, sid: str) -> Refusal | None:
        """What stands against a new draft."""
        limits, length = self._desk.limits, opening.length
        if length > limits.upload_size_max_bytes:
            text = f"the file has {length} bytes, and a file may have at most {limits.upload_size_max_bytes}"
            return Refusal(413, "file_too_large", text)
        if self._desk.plan.require_sha256 and not opening.file.sha256:
            return Refusal(400, "sha256_required", "got no sha256 in Upload-Metadata, expected the file's SHA-256")
        own = [draft for draft in self._drafts.values() if draft.sid == sid and draft.state is not State.DONE]
        if len(own) >= limits.upload_drafts_per_session_max or not self._make_way():
            return Refusal(429, "too_many_uploads", "too many uploads are under way: finish or end some first")
        room = self._shelf.room(sid)
        if not room or not self._shelf.upload_slots(sid):
            return FULL
        if length > room:
            return Refusal(413, "request_too_large", f"the file has {length} bytes, and there is room for {room}")
        if (opening.size_bytes or 0) > length:
            return _too_much(opening.size_bytes or 0, length)
        return None

    def _make_way(self) -> bool:
        """Whether there can be one more, if need be instead of one that is done."""
        if len(self._drafts) < self._desk.limits.upload_drafts_max:
            return True
        done = next((draft for draft in self._drafts.values() if draft.state is State.DONE), None)
        if done is not None:
            self._end(done)
        return done is not None

    def _serve(self, draft: Draft, channel: ChannelId, opening: DraftOpening) -> None:
        """The draft is free, or an upload by now."""
        if opening.verb is Verb.RESUME:
            self._answer(channel, 200, (*self._described(draft), *_no_store()), b"{}")
        elif opening.verb is Verb.END:
            self._end(draft)
            self._answer(channel, 204, ())
        elif opening.offset != draft.offset:
            text = f"got Upload-Offset {opening.offset}, expected {draft.offset}"
            self._refuse(channel, Refusal(409, "offset_mismatch", text), (("upload-offset", str(draft.offset)),))
        elif (opening.size_bytes or 0) > (left := draft.size_bytes - draft.offset):
            self._refuse(channel, _too_much(opening.size_bytes or 0, left))
        elif draft.state is State.DONE:
            self._answer(channel, 204, self._described(draft))
        else:
            self._append(draft, channel, opening)

    def _append(self, draft: Draft, channel: ChannelId, opening: DraftOpening) -> None:
        draft.step(Input.APPEND)
        draft.channel, draft.is_ceasing = channel, False
        draft.head = draft.head[: draft.offset]  # what was brought may have been taken back
        draft.expires_at = draft.dies_at  # as long as it goes on
        self._set_timer(draft)
        self._desk.assign(channel, AppendRole(draft))
        self._desk.order(
            Append(
                channel=channel,
                blob=draft.blob,
                offset=draft.offset,
                size_bytes=draft.size_bytes,
                checksum=opening.checksum,
                sha256=draft.opening.file.sha256,
            )
        )

    def _cease(self, draft: Draft) -> None:
        if draft.channel is not None and not draft.is_ceasing:
            draft.is_ceasing = True
            self._desk.order(Cease(channel=draft.channel))

    # --- What became of it ------------------------------------------------------------------------------------------

    def receive_report(self, role: AppendRole, channel: ChannelId, message: bytes) -> None:
        """So much is there now."""
        draft = role.draft
        if draft.channel != channel:
            return
        try:
            report = msgspec.json.decode(message, type=Appended)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise LocalProtocolError(f"got no report of a draft: {error}") from None
        if not 0 <= report.size_bytes <= draft.size_bytes:
            raise LocalProtocolError(f"got a draft of {report.size_bytes} bytes, ordered {draft.size_bytes}")
        draft.offset = report.size_bytes
        draft.head = (draft.head + report.head)[:HEAD_BYTES]
        if not report.is_over:
            return
        draft.channel = None
        if draft.state is State.ENDING:
            draft.step(Input.STOP)
            self._drop(draft)
            self._refuse(channel, Refusal(410, "ended", "this upload was ended, or has expired"))
        elif report.sha256:
            draft.step(Input.COMPLETE)
            self._save(draft, channel, report.sha256)
            return
        else:
            draft.step(Input.STOP)
            self._keep(draft)
            self._tell(draft, channel, report.halt)
        self._serve_waiting(draft)

    def _tell(self, draft: Draft, channel: ChannelId, halt: Halt) -> None:
        """Answer the request that has stopped short of the whole file."""
        if halt is Halt.NONE:
            self._answer(channel, *self._gained(draft))
            return
        if halt in (Halt.MISMATCH, Halt.FAILED) or draft.is_unknown:
            self._end(draft)
        refusal = _HALTS.get(halt)
        if refusal is not None:
            self._refuse(channel, refusal)

    def _gained(self, draft: Draft) -> tuple[int, Headers]:
        is_new, draft.is_unknown = draft.is_unknown, False
        return (201 if is_new else 204), self._described(draft, is_new=is_new)

    def _save(self, draft: Draft, channel: ChannelId, sha256: str) -> None:
        """All of it is there: make an upload of it."""
        permit, file = draft.permit, draft.opening.file
        stored = StoredFile(file.filename, draft.size_bytes, sha256, file.mime_type, draft.head)
        record = self._deposits.record(permit.grant, draft.blob, stored)
        hold, draft.hold = draft.hold, None
        assert hold is not None

        def kept(refusal: Refusal | None) -> None:
            if refusal is not None:
                draft.step(Input.END)
                self._forget(draft)
                self._refuse(channel, refusal)
            else:
                draft.step(Input.SAVE)
                draft.reply = self._deposits.reply([record])
                draft.handle = handles.format_upload(record.sid, record.uid, permit.server.upload_scheme)
                self._keep(draft)
                self._answer(channel, *self._gained(draft))
                for other in [other for other in self._drafts.values() if other.permit.nonce == permit.nonce]:
                    if other is not draft:
                        self._end(other)  # their link is used up
            self._serve_waiting(draft)

        self._deposits.keep(permit.nonce, permit.grant, hold, [record], kept)

    def _serve_waiting(self, draft: Draft) -> None:
        while draft.waiting and draft.state not in (State.APPENDING, State.ENDING, State.SAVING):
            channel, opening = draft.waiting.pop(0)
            if not self._desk.is_open(channel):
                continue
            if draft.state is State.ENDED:
                self._refuse(channel, Refusal(404, "not_found", "there is no such upload any more: it was ended"))
            else:
                self._serve(draft, channel, opening)
        if draft.waiting:
            self._cease(draft)

    def receive_close(self, role: AppendRole, channel: ChannelId) -> None:
        """The request is gone, and nobody said that it was over: it had not begun. So the draft is what it was; should
        the storage know better, the next request to add to it is told."""
        draft = role.draft
        if draft.channel != channel:
            return
        draft.channel = None
        draft.step(Input.STOP)
        if draft.state is State.ENDED:
            self._drop(draft)
        elif draft.is_unknown:
            self._end(draft)
        else:
            self._keep(draft)
        self._serve_waiting(draft)

    # --- Ends -------------------------------------------------------------------------------------------------------

    def close_session(self, sid: str) -> None:
        """Its drafts end with it, but for those that are whosever has their link."""
        for draft in [draft for draft in self._drafts.values() if draft.sid == sid]:
            if not draft.permit.grant.is_bearer:
                self._end(draft)

    def stop(self) -> None:
        """None outlives the proxy."""
        for draft in list(self._drafts.values()):
            self._end(draft)

    def handle_timeout(self, id: str) -> None:
        draft = self._drafts[id]
        self._end(draft)
        if draft.state is State.SAVING:  # which has a time limit of its own
            self._keep(draft)

    def _end(self, draft: Draft) -> None:
        """Nobody wants it any more. What is being added to is gone once that has stopped; what is being saved stays."""
        if draft.state in (State.SAVING, State.ENDING, State.ENDED):
            return
        draft.step(Input.END)
        if draft.channel is not None:
            self._cease(draft)
        else:
            self._drop(draft)

    def _drop(self, draft: Draft) -> None:
        self._forget(draft)
        if draft.hold is not None:
            hold, draft.hold = draft.hold, None
            self._deposits.release(draft.permit.nonce, hold)
            self._desk.order(Discard(blob=draft.blob))

    def _forget(self, draft: Draft) -> None:
        del self._drafts[draft.id]
        self._desk.timers.cancel(("draft", draft.id))

    def _keep(self, draft: Draft) -> None:
        """Its time starts anew."""
        ttl = self._desk.limits.upload_draft_ttl_s
        draft.expires_at = self._desk.now + ttl
        if draft.state is State.OPEN:
            draft.expires_at = min(draft.expires_at, draft.dies_at)
        self._set_timer(draft)

    def _set_timer(self, draft: Draft) -> None:
        self._desk.timers.set(("draft", draft.id), draft.expires_at, "upload left alone")

    # --- Answers ----------------------------------------------------------------------------------------------------

    def _described(self, draft: Draft, *, is_new: bool = False) -> Headers:
        """What the head of an answer says of a draft."""
        found = [("Upload-Offset", str(draft.offset))]
        if is_new:
            found.append(("Location", self._url(draft)))
        else:
            found.append(("Upload-Length", str(draft.size_bytes)))
            if draft.opening.metadata:
                found.append(("Upload-Metadata", draft.opening.metadata))
        if draft.handle:
            found.append(("Upload-Handle", draft.handle))
        else:
            found.append(("Upload-Expires", format_date(self._desk.unix_at_zero + draft.expires_at)))
        return tuple(found)

    def _url(self, draft: Draft) -> str:
        server = draft.permit.server.id
        query = handles.sign_draft(
            self._desk.plan.link_key,
            server=server,
            draft=draft.id,
            expires_at_unix=int(self._desk.unix_at_zero + draft.dies_at),
        )
        base = self._desk.plan.public_base_url or draft.opening.base_url
        return f"{base}/upload/{quote(server, safe='')}/tus/{draft.id}?{urlencode(query)}"

    def _show(self, channel: ChannelId, draft: Draft) -> None:
        body = draft.reply
        if body is None:
            at_unix = int(self._desk.unix_at_zero + draft.expires_at)
            expires_at = datetime.datetime.fromtimestamp(at_unix, tz=datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            said = {"offset": draft.offset, "length": draft.size_bytes, "expires_at": expires_at}
            body = msgspec.json.encode({**said, "is_complete": False})
        self._answer(channel, 200, (*self._described(draft), *_no_store()), body)

    def _answer(self, channel: ChannelId, status: int, headers: Headers, body: bytes = b"") -> None:
        self._desk.send(channel, body, is_last=True, status=status, headers=headers)

    def _refuse(self, channel: ChannelId, refusal: Refusal, headers: Headers = ()) -> None:
        body: dict[str, object] = {"detail": refusal.text, "code": refusal.code}
        self._desk.refuse(channel, refusal.status, body, headers)


def _no_store() -> Headers:
    return (("Cache-Control", "no-store"),)


def _too_much(size_bytes: int, left: int) -> Refusal:
    text = f"got a body of {size_bytes} bytes, expected {left} at most: that is what is left of the file"
    return Refusal(413, "request_too_large", text)


_HALTS: Final = {  # of a client that broke off, the driver knows what to say
    Halt.CEASED: Refusal(409, "interrupted", "another request for this upload came: ask where to go on"),
    Halt.CHECKSUM: Refusal(460, "checksum_mismatch", "the body has not the checksum it was sent with: send it again"),
    Halt.TOO_LARGE: Refusal(413, "request_too_large", "the body is longer than what is left of the file"),
    Halt.MISMATCH: Refusal(400, "sha256_mismatch", "the file has not the sha256 it was announced with: begin another"),
    Halt.FULL: Refusal(507, "storage_full", "there is no room for this upload; try again later"),
    Halt.FAILED: Refusal(500, "storage_failed", "the upload could not be stored: begin another"),
}
