"""Resumable uploads: a file that arrives over several requests, and goes on after a broken connection.

A resumable upload is created with an upload link (`links.sign_upload`), has a link of its own from then on
(`links.sign_resumable`), and reserves room for the whole file. A client may add bytes to it, ask where to go on, ask
how far it is, or end it (`Verb`). One request at a time adds bytes. A request to add, resume or end is served once the
one that adds bytes has been made to stop: a client that comes back knows better than the proxy that its old connection
is dead. A request that only asks how far the upload is interrupts nothing. Bytes that arrived are kept.

The machine has one instance for each resumable upload. It starts OPEN, waiting for a request. APPEND stands for a
request that is allowed to add bytes; while APPENDING, the storage takes in the body and reports how much it has. A last
report that leaves bytes missing is STOP: the upload is OPEN again. A last report that has the whole file is COMPLETE:
the upload is SAVING, while its record is written as for a file that came in one request. SAVE says that the record is
written and the upload is in the file store. DONE keeps the response and the handle for a client that lost the
connection before it read them, until they expire or a new upload takes the place. The upload link is used up by then,
so every other resumable upload that was created with it ends; until then one link may create several.

END stands for expiry, the end of the session (where its link needs that) or of the proxy, a link that another upload
used up, a client's request, and bytes that turned out useless. An OPEN or DONE upload is ENDED at once. An APPENDING
one is ENDING until its request has stopped, since the storage still writes to the blob; whatever the last report says,
the blob is discarded then. While SAVING, END means only that the record could not be kept: all else waits for the
outcome, as the storage order has a time limit of its own. An upload without requests expires after
`upload_draft_ttl_s`, any after `upload_draft_max_s`, and none outlives the proxy. ENDED is terminal: the room is
released, and the link leads nowhere.
"""

from __future__ import annotations

import datetime
import enum
from typing import Final
from urllib.parse import quote, urlencode

import msgspec

from ...base.errors import LocalProtocolError
from ...base.events import Cause, DraftOpening, Headers, Verb
from ...base.ids import ChannelId
from ...base.setting_names import LARGER_FILES
from ...base.state_machine import Machine
from ...base.storage import Append, Appended, Cease, Discard, Halt, StoredFile
from ...state.context import ChannelRole, Context
from ...state.feature import ChannelHandler
from ...wire.http.dates import format_date
from ..store import handles
from ..store.filenames import HEAD_BYTES
from ..store.links import UploadGrant, check_resumable, sign_resumable
from ..store.store import FileStore, Reservation
from .admission import FOREIGN, FULL, GONE, Permit, Refusal, UploadAdmission

WAITING_MAX: Final = 4
"""Requests that may wait until an upload is free. A client has one; another may ask how far the upload is. At it: 423
`locked`."""


class ResumableUploadState(enum.Enum):
    OPEN = "open"  # waits for a request that adds bytes
    APPENDING = "appending"  # a request adds bytes
    ENDING = "ending"  # it was ended, and the request that adds bytes is being stopped
    SAVING = "saving"  # all bytes are there, and the record is being written
    DONE = "done"  # it is in the file store, and its handle can still be asked for
    ENDED = "ended"


class ResumableUploadInput(enum.Enum):
    APPEND = "append"  # a request is allowed to add bytes
    STOP = "stop"  # that request is over, and bytes are missing
    COMPLETE = "complete"  # that request brought the rest
    SAVE = "save"  # the record is written, and the upload is in the file store
    END = "end"  # it expired, was ended, or could not be kept; or its session, link or proxy is gone


# Source: tus 1.0.0, "Core Protocol" and "Termination".
# An input missing from a row is illegal in that state; an empty row is terminal.
TRANSITIONS: Final[dict[ResumableUploadState, dict[ResumableUploadInput, ResumableUploadState]]] = {
    ResumableUploadState.OPEN: {
        ResumableUploadInput.APPEND: ResumableUploadState.APPENDING,
        ResumableUploadInput.END: ResumableUploadState.ENDED,
    },
    ResumableUploadState.APPENDING: {
        ResumableUploadInput.STOP: ResumableUploadState.OPEN,
        ResumableUploadInput.COMPLETE: ResumableUploadState.SAVING,
        ResumableUploadInput.END: ResumableUploadState.ENDING,
    },
    ResumableUploadState.ENDING: {
        ResumableUploadInput.STOP: ResumableUploadState.ENDED,
        ResumableUploadInput.COMPLETE: ResumableUploadState.ENDED,
    },
    ResumableUploadState.SAVING: {
        ResumableUploadInput.SAVE: ResumableUploadState.DONE,
        ResumableUploadInput.END: ResumableUploadState.ENDED,
    },
    ResumableUploadState.DONE: {ResumableUploadInput.END: ResumableUploadState.ENDED},
    ResumableUploadState.ENDED: {},
}


class ResumableUpload(Machine[ResumableUploadState, ResumableUploadInput]):
    """A resumable upload. Moves along `TRANSITIONS` only.

    Attributes:
        offset: how many of its `size_bytes` have arrived.
        head: the first of these bytes, 512 at most.
        reservation: the room reserved for the file; None once released, or handed to `UploadAdmission.keep`.
        channel: the request that adds bytes, while one does.
        is_unknown: the request that created it has not been answered, so its client does not know its link.
        is_ceasing: the request that adds bytes was told to stop.
        waiting: requests to be served when no other adds bytes, in order.
        expires_at: when it ends if no request comes.
        dies_at: when it ends at the latest.
        reply: the JSON that describes the finished upload; None before.
        handle: the handle of the finished upload; "" before.
    """

    __slots__ = (
        "blob",
        "channel",
        "dies_at",
        "expires_at",
        "handle",
        "head",
        "id",
        "is_ceasing",
        "is_unknown",
        "offset",
        "opening",
        "permit",
        "reply",
        "reservation",
        "waiting",
    )

    TRANSITIONS = TRANSITIONS

    def __init__(
        self, id: str, blob: str, permit: Permit, opening: DraftOpening, reservation: Reservation, dies_at: float
    ) -> None:
        super().__init__(ResumableUploadState.OPEN)
        self.id = id
        self.blob = blob
        self.permit = permit
        self.opening = opening
        self.reservation: Reservation | None = reservation
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


class AppendRole(ChannelRole):
    """A request that adds bytes to a resumable upload."""

    __slots__ = ("upload",)

    def __init__(self, upload: ResumableUpload) -> None:
        self.upload = upload


class WaitRole(ChannelRole):
    """Any other request about a resumable upload."""

    __slots__ = ()


class ResumableUploads(ChannelHandler):
    """All resumable uploads. Bounded in number, for each session and over all; finished ones give way to new ones."""

    reads_late = True  # the storage reports how much it has of a body that was refused, too

    def __init__(self, context: Context, file_store: FileStore, admission: UploadAdmission) -> None:
        self._context = context
        self._file_store = file_store
        self._admission = admission
        self._uploads: dict[str, ResumableUpload] = {}

    def __len__(self) -> int:
        return len(self._uploads)

    # --- Requests ---------------------------------------------------------------------------------------------------

    def open(self, channel: ChannelId, opening: DraftOpening) -> None:
        """Receives a request about a resumable upload. It is answered, or its body is ordered, now or when the request
        before it has stopped."""
        self._context.register(channel, WaitRole())
        if opening.verb is Verb.CREATE:
            self._create(channel, opening)
            return
        if opening.draft not in self._uploads and self._context.forward(
            channel, opening.draft, is_returned=opening.is_returned
        ):
            return
        found = self._find(opening)
        if isinstance(found, Refusal):
            self._refuse(channel, found)
        elif opening.verb is Verb.LOOK:
            self._show(channel, found)
        elif found.state in (ResumableUploadState.OPEN, ResumableUploadState.DONE):
            self._serve(found, channel, opening)
        elif len(found.waiting) >= WAITING_MAX:
            self._refuse(channel, Refusal(423, "locked", "others wait for this upload already: try again later"))
        else:
            found.waiting.append((channel, opening))
            self._cease(found)

    def _find(self, opening: DraftOpening) -> ResumableUpload | Refusal:
        fault = check_resumable(
            self._context.plan.link_keys,
            opening.query,
            server=opening.server,
            draft=opening.draft,
            now_unix=self._context.now_unix,
        )
        if fault is not None:
            self._context.note("warning", f"upload refused: link {fault}", opening.server)
            fault_text = "has expired" if fault == "expired" else "is not valid"
            return Refusal(403, "bad_credential", f"the link of this upload {fault_text}: begin another")
        upload = self._uploads.get(opening.draft)
        if upload is None:
            return Refusal(404, "not_found", "there is no such upload any more: it has expired, or was ended")
        if not self._admission.holds(upload.permit.grant):
            return GONE
        if opening.principal is not None and opening.principal != upload.permit.grant.principal:
            return FOREIGN
        if opening.session is not None and not self._admission.names(opening.session, upload.permit.grant):
            return Refusal(403, "session_mismatch", "Mcp-Session-Id names another session than that of the upload")
        return upload

    def _create(self, channel: ChannelId, opening: DraftOpening) -> None:
        permit = self._admission.admit(opening.server, opening.query, opening.session, opening.principal)
        if isinstance(permit, Refusal):
            self._refuse(channel, permit)
            return

        def prepared(refusal: Refusal | None) -> None:
            if not self._context.is_open(channel):
                return  # the client has left meanwhile
            refusal = refusal or self._refusal_of(opening, permit.grant)
            if refusal is not None:
                self._refuse(channel, refusal)
            else:
                self._begin(channel, opening, permit)

        size_bytes = min(opening.length, self._context.limits.upload_size_max_bytes)
        self._admission.prepare(permit.grant, size_bytes, 1, prepared)

    def _begin(self, channel: ChannelId, opening: DraftOpening, permit: Permit) -> None:
        """Begins a new upload."""
        limits, now = self._context.limits, self._context.now
        account = self._admission.account(permit.grant)
        reservation = self._file_store.hold(account, opening.length, uploads=1, is_sure=False)
        self._admission.begin(permit.grant)
        upload = ResumableUpload(
            self._context.mint_tagged(),
            self._context.mint(),
            permit,
            opening,
            reservation,
            dies_at=now + limits.upload_draft_max_s,
        )
        self._uploads[upload.id] = upload
        self._restart_expiry(upload)
        # A creation without a body is answered at once; but an empty file is complete with it, and goes on to be saved.
        if opening.length and opening.size_bytes == 0:
            self._answer(channel, 201, self._described(upload, is_new=True))
        else:
            upload.is_unknown = True
            self._append(upload, channel, opening)

    def _refusal_of(self, opening: DraftOpening, grant: UploadGrant) -> Refusal | None:
        """Returns the refusal of a new upload; None if it may begin."""
        limits, length = self._context.limits, opening.length
        if length > limits.upload_size_max_bytes:
            most = limits.upload_size_max_bytes
            text = f"the file has {length} bytes, and a file may have at most {most}; {LARGER_FILES}"
            return Refusal(413, "file_too_large", text)
        if self._context.plan.require_sha256 and not opening.file.sha256:
            return Refusal(400, "sha256_required", "got no sha256 in Upload-Metadata, expected the file's SHA-256")
        own = [
            upload
            for upload in self._uploads.values()
            if upload.sid == grant.sid and upload.state is not ResumableUploadState.DONE
        ]
        if len(own) >= limits.upload_drafts_per_session_max or not self._make_slot(grant):
            return Refusal(429, "too_many_uploads", "too many uploads are under way: finish or end some first")
        account = self._admission.account(grant)
        room = self._file_store.room(account)
        if not room or not self._file_store.slots(account, "upload"):
            return FULL
        if length > room:
            return Refusal(413, "request_too_large", f"the file has {length} bytes, and there is room for {room}")
        if (opening.size_bytes or 0) > length:
            return _too_much(opening.size_bytes or 0, length)
        return None

    def _make_slot(self, grant: UploadGrant) -> bool:
        """True if there may be one more upload. If need be, ends one that is done, or else the owner's own whose
        session is over and which has waited for longest. One owner has half of all at most."""
        uploads, uploads_max = list(self._uploads.values()), self._context.limits.upload_drafts_max
        own = [upload for upload in uploads if grant.owner_tag and upload.permit.grant.owner_tag == grant.owner_tag]
        if len(own) >= max(1, uploads_max // 2):
            uploads = own
        elif len(uploads) < uploads_max:
            return True
        done = [upload for upload in uploads if upload.state is ResumableUploadState.DONE]
        left = [upload for upload in own if upload.state is ResumableUploadState.OPEN and self._is_left(upload)]
        left.sort(key=lambda upload: upload.expires_at)
        for upload in [*done, *left][:1]:
            self._end(upload)
        return bool(done or left)

    def _is_left(self, upload: ResumableUpload) -> bool:
        """True if the session of its link is over."""
        return not self._admission.is_open(upload.permit.grant)

    def _serve(self, upload: ResumableUpload, channel: ChannelId, opening: DraftOpening) -> None:
        """Serves a request to add, resume or end, at a time when no request adds bytes."""
        if opening.verb is Verb.RESUME:
            self._answer(channel, 200, (*self._described(upload), *_no_store()), b"{}")
        elif opening.verb is Verb.END:
            self._end(upload)
            self._answer(channel, 204, ())
        elif opening.offset != upload.offset:
            text = f"got Upload-Offset {opening.offset}, expected {upload.offset}"
            self._refuse(channel, Refusal(409, "offset_mismatch", text), (("upload-offset", str(upload.offset)),))
        elif (opening.size_bytes or 0) > (left := upload.size_bytes - upload.offset):
            self._refuse(channel, _too_much(opening.size_bytes or 0, left))
        elif upload.state is ResumableUploadState.DONE:
            self._answer(channel, 204, self._described(upload))
        else:
            self._append(upload, channel, opening)

    def _append(self, upload: ResumableUpload, channel: ChannelId, opening: DraftOpening) -> None:
        upload.step(ResumableUploadInput.APPEND)
        upload.channel, upload.is_ceasing = channel, False
        upload.head = upload.head[: upload.offset]  # bytes that were reported may have been taken back: a bad checksum
        upload.expires_at = upload.dies_at  # it does not expire for want of requests meanwhile
        self._set_timer(upload)
        self._context.assign(channel, AppendRole(upload))
        self._context.order(
            Append(
                channel=channel,
                blob=upload.blob,
                offset=upload.offset,
                size_bytes=upload.size_bytes,
                checksum=opening.checksum,
                sha256=upload.opening.file.sha256,
            )
        )

    def _cease(self, upload: ResumableUpload) -> None:
        if upload.channel is not None and not upload.is_ceasing:
            upload.is_ceasing = True
            self._context.order(Cease(channel=upload.channel))

    # --- Reports ----------------------------------------------------------------------------------------------------

    def receive_message(self, role: AppendRole, channel: ChannelId, message: bytes) -> None:
        """Receives the storage's report of how much has arrived.

        Raises:
            LocalProtocolError: the message is no report, or reports more bytes than were ordered.
        """
        upload = role.upload
        if upload.channel != channel:
            return  # its last report came before
        try:
            report = msgspec.json.decode(message, type=Appended)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise LocalProtocolError(f"got no report of a draft: {error}") from None
        if not 0 <= report.size_bytes <= upload.size_bytes:
            raise LocalProtocolError(f"got a draft of {report.size_bytes} bytes, ordered {upload.size_bytes}")
        upload.offset = report.size_bytes
        upload.head = (upload.head + report.head)[:HEAD_BYTES]
        if not report.is_over:
            return
        upload.channel = None
        if upload.state is ResumableUploadState.ENDING:
            upload.step(ResumableUploadInput.STOP)
            self._drop(upload)
            self._refuse(channel, Refusal(410, "ended", "this upload was ended, or has expired"))
        elif report.sha256:
            upload.step(ResumableUploadInput.COMPLETE)
            self._save(upload, channel, report.sha256)
            return
        else:
            upload.step(ResumableUploadInput.STOP)
            self._restart_expiry(upload)
            self._answer_stopped(upload, channel, report.halt)
        self._serve_waiting(upload)

    def _answer_stopped(self, upload: ResumableUpload, channel: ChannelId, halt: Halt) -> None:
        """Answers a request that stopped short of the whole file."""
        if halt is Halt.NONE:
            self._answer(channel, *self._progress(upload))
            return
        # Such content is useless; and a client that does not know the link can never go on.
        if halt in (Halt.MISMATCH, Halt.FAILED) or upload.is_unknown:
            self._end(upload)
        refusal = _HALTS.get(halt)
        if refusal is not None:
            self._refuse(channel, refusal)

    def _progress(self, upload: ResumableUpload) -> tuple[int, Headers]:
        """Returns status and headers of the response to a request whose bytes were kept."""
        is_new, upload.is_unknown = upload.is_unknown, False
        return (201 if is_new else 204), self._described(upload, is_new=is_new)

    def _save(self, upload: ResumableUpload, channel: ChannelId, sha256: str) -> None:
        """Makes an upload of a file that has arrived in full."""
        permit, file = upload.permit, upload.opening.file
        stored = StoredFile(file.filename, upload.size_bytes, sha256, file.mime_type, upload.head)
        record = self._admission.record(*permit, upload.blob, stored)
        reservation, upload.reservation = upload.reservation, None
        assert reservation is not None

        def kept(refusal: Refusal | None) -> None:
            if refusal is not None:
                upload.step(ResumableUploadInput.END)
                self._forget(upload)
                self._refuse(channel, refusal)
            else:
                upload.step(ResumableUploadInput.SAVE)
                upload.reply = self._admission.reply([record])
                upload.handle = handles.format_upload(record.sid, record.uid, permit.server.upload_scheme)
                self._restart_expiry(upload)
                self._answer(channel, *self._progress(upload))
                for other in [
                    other for other in self._uploads.values() if other.permit.grant.nonce == permit.grant.nonce
                ]:
                    if other is not upload:
                        self._end(other)  # their link is used up
            self._serve_waiting(upload)

        self._admission.keep(permit.grant, reservation, [record], kept)

    def _serve_waiting(self, upload: ResumableUpload) -> None:
        while upload.waiting and upload.state not in (
            ResumableUploadState.APPENDING,
            ResumableUploadState.ENDING,
            ResumableUploadState.SAVING,
        ):
            channel, opening = upload.waiting.pop(0)
            if not self._context.is_open(channel):
                continue
            if upload.state is ResumableUploadState.ENDED:
                self._refuse(channel, Refusal(404, "not_found", "there is no such upload any more: it was ended"))
            else:
                self._serve(upload, channel, opening)
        if upload.waiting:
            self._cease(upload)

    def receive_close(self, role: AppendRole, channel: ChannelId, cause: Cause) -> None:
        """Receives the close of a request of which there was no last report: its body had not begun.

        The upload stays as it was. If the storage has more bytes after all, the next request that adds to it learns of
        that.
        """
        upload = role.upload
        if upload.channel != channel:
            return  # its last report came before
        upload.channel = None
        upload.step(ResumableUploadInput.STOP)
        if upload.state is ResumableUploadState.ENDED:
            self._drop(upload)
        elif upload.is_unknown:
            self._end(upload)
        else:
            self._restart_expiry(upload)
        self._serve_waiting(upload)

    # --- Ends -------------------------------------------------------------------------------------------------------

    def close_session(self, sid: str) -> None:
        """Ends the session's uploads whose link needs the session."""
        for upload in [upload for upload in self._uploads.values() if upload.sid == sid]:
            if self._admission.needs_session(upload.permit.grant):
                self._end(upload)

    def end_all(self) -> None:
        """Ends all uploads, since none outlives the proxy."""
        for upload in list(self._uploads.values()):
            self._end(upload)

    def handle_timeout(self, id: str) -> None:
        upload = self._uploads[id]
        self._end(upload)
        if upload.state is ResumableUploadState.SAVING:  # `_end` left it: saving has a time limit of its own
            self._restart_expiry(upload)

    def _end(self, upload: ResumableUpload) -> None:
        """Ends an upload. One that a request adds to goes once that has stopped; one that is being saved stays."""
        if upload.state in (ResumableUploadState.SAVING, ResumableUploadState.ENDING, ResumableUploadState.ENDED):
            return
        upload.step(ResumableUploadInput.END)
        if upload.channel is not None:
            self._cease(upload)
        else:
            self._drop(upload)

    def _drop(self, upload: ResumableUpload) -> None:
        self._forget(upload)
        if upload.reservation is not None:
            reservation, upload.reservation = upload.reservation, None
            self._admission.release(upload.permit.grant, reservation)
            self._context.order(Discard(blob=upload.blob))

    def _forget(self, upload: ResumableUpload) -> None:
        del self._uploads[upload.id]
        self._context.timers.cancel(("draft", upload.id))

    def _restart_expiry(self, upload: ResumableUpload) -> None:
        """Restarts the time after which an upload without requests ends."""
        ttl = self._context.limits.upload_draft_ttl_s
        upload.expires_at = self._context.now + ttl
        if upload.state is ResumableUploadState.OPEN:
            upload.expires_at = min(upload.expires_at, upload.dies_at)
        self._set_timer(upload)

    def _set_timer(self, upload: ResumableUpload) -> None:
        self._context.timers.set(("draft", upload.id), upload.expires_at, "upload left alone")

    # --- Answers ----------------------------------------------------------------------------------------------------

    def _described(self, upload: ResumableUpload, *, is_new: bool = False) -> Headers:
        """Returns the headers of a response that describe an upload."""
        found = [("Upload-Offset", str(upload.offset))]
        if is_new:
            found.append(("Location", self._url(upload)))
        else:
            found.append(("Upload-Length", str(upload.size_bytes)))
            if upload.opening.metadata:
                found.append(("Upload-Metadata", upload.opening.metadata))
        if upload.handle:
            found.append(("Upload-Handle", upload.handle))
        else:
            found.append(("Upload-Expires", format_date(self._context.unix_at_zero + upload.expires_at)))
        return tuple(found)

    def _url(self, upload: ResumableUpload) -> str:
        server = upload.permit.server.id
        query = sign_resumable(
            self._context.plan.link_key,
            server=server,
            draft=upload.id,
            expires_at_unix=int(self._context.unix_at_zero + upload.dies_at),
        )
        base = self._context.plan.public_base_url or upload.opening.base_url
        return f"{base}/upload/{quote(server, safe='')}/tus/{upload.id}?{urlencode(query)}"

    def _show(self, channel: ChannelId, upload: ResumableUpload) -> None:
        body = upload.reply
        if body is None:
            at_unix = int(self._context.unix_at_zero + upload.expires_at)
            expires_at = datetime.datetime.fromtimestamp(at_unix, tz=datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            progress = {"offset": upload.offset, "length": upload.size_bytes, "expires_at": expires_at}
            body = msgspec.json.encode({**progress, "is_complete": False})
        self._answer(channel, 200, (*self._described(upload), *_no_store()), body)

    def _answer(self, channel: ChannelId, status: int, headers: Headers, body: bytes = b"") -> None:
        self._context.send(channel, body, is_last=True, status=status, headers=headers)

    def _refuse(self, channel: ChannelId, refusal: Refusal, headers: Headers = ()) -> None:
        body: dict[str, object] = {"detail": refusal.text, "code": refusal.code}
        self._context.refuse(channel, refusal.status, body, headers)


def _no_store() -> Headers:
    return (("Cache-Control", "no-store"),)


def _too_much(size_bytes: int, left: int) -> Refusal:
    text = f"got a body of {size_bytes} bytes, expected {left} at most: that is what is left of the file"
    return Refusal(413, "request_too_large", text)


_HALTS: Final = {  # not BROKEN: the driver answers a client that broke off
    Halt.CEASED: Refusal(409, "interrupted", "another request for this upload came: ask where to go on"),
    Halt.CHECKSUM: Refusal(460, "checksum_mismatch", "the body has not the checksum it was sent with: send it again"),
    Halt.TOO_LARGE: Refusal(413, "request_too_large", "the body is longer than what is left of the file"),
    Halt.MISMATCH: Refusal(400, "sha256_mismatch", "the file has not the sha256 it was announced with: begin another"),
    Halt.FULL: Refusal(507, "storage_full", "there is no room for this upload; try again later"),
    Halt.FAILED: Refusal(503, "storage_failed", "the upload could not be stored: begin another"),
}
