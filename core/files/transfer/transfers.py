"""Uploads and downloads over plain HTTP, with signed links.

A link is the whole credential. The nonce of an upload link is spent by the first request that succeeds, so a refused
one may be tried again until the link expires. What a refused request stored is removed, and nothing else changes.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ...base.errors import LocalProtocolError
from ...base.events import Cause, DownloadOpening, UploadOpening
from ...base.ids import ChannelId
from ...base.setting_names import LARGER_FILES
from ...base.storage import Discard, Receive, Serve, UploadManifest
from ...state.context import ChannelRole, Context
from ...state.feature import ChannelHandler
from ...state.records import FileKind
from ..store.links import check_download
from ..store.owners import Account
from ..store.shared import FileName, SharedFiles
from ..store.store import FileStore, Reservation
from .admission import FULL, Permit, Refusal, UploadAdmission

PART_OVERHEAD_MAX_BYTES: Final = 16 * 1024
"""Bytes that a form may have for each part beside the part's content. Clients send 100 to 300 bytes."""


def overhead_max_bytes(files_max: int) -> int:
    """Returns how many bytes the form of an upload may have beside its files: a part for each file, one for its hash,
    and what encloses them."""
    return PART_OVERHEAD_MAX_BYTES * (1 + 2 * files_max)


KINDS: Final[tuple[FileKind, ...]] = ("artifact", "upload")
STOPPING: Final = Refusal(503, "shutting_down", "the proxy is shutting down: send it again when it is back")


class UploadRole(ChannelRole):
    """An upload under way.

    Attributes:
        reservation: the room reserved for it; None once its manifest came, or never will.
    """

    __slots__ = ("blobs", "permit", "reservation")

    def __init__(self, permit: Permit, blobs: tuple[str, ...], reservation: Reservation) -> None:
        self.permit = permit
        self.blobs = blobs
        self.reservation: Reservation | None = reservation


class FileRole(ChannelRole):
    """A download, or a file request that was refused."""

    __slots__ = ()


class FileTransfers(ChannelHandler):
    """Handles uploads that come in one request, and downloads."""

    reads_late = True  # the storage reports the end of a body that was refused, too

    def __init__(
        self, context: Context, file_store: FileStore, admission: UploadAdmission, shared_files: SharedFiles
    ) -> None:
        self._context = context
        self._file_store = file_store
        self._admission = admission
        self._shared_files = shared_files

    # --- Uploads ----------------------------------------------------------------------------------------------------

    def open_upload(self, channel: ChannelId, opening: UploadOpening) -> None:
        """Checks the link, then orders the body to be received."""
        found = self._admission.admit(opening.server, opening.query, opening.session, opening.principal)
        self._context.register(channel, FileRole())
        if isinstance(found, Refusal):
            self._answer(channel, found)
            return
        limits = self._context.limits
        files_max = limits.upload_files_max if opening.raw is None else 1
        most = limits.upload_size_max_bytes
        size_bytes = most if opening.size_bytes is None else min(opening.size_bytes, most * files_max)

        def prepared(refusal: Refusal | None) -> None:
            if not self._context.is_open(channel):
                return  # the client has left meanwhile
            refusal = refusal or self._refusal_of(opening, self._admission.account(found.grant))
            if refusal is not None:
                self._answer(channel, refusal)
            else:
                self._receive(channel, opening, found)

        self._admission.prepare(found.grant, size_bytes, files_max, prepared)

    def _receive(self, channel: ChannelId, opening: UploadOpening, found: Permit) -> None:
        """Orders the body to be received."""
        limits, account = self._context.limits, self._admission.account(found.grant)
        files_max = limits.upload_files_max if opening.raw is None else 1
        slots = self._file_store.slots(account, "upload")
        blobs = tuple(self._context.mint() for _ in range(min(files_max, slots)))
        # A body of unknown length reserves room for one file of full size, so that others can upload at the same time.
        announced = limits.upload_size_max_bytes if opening.size_bytes is None else max(1, opening.size_bytes)
        total = min(self._total_max_bytes(account, files_max), announced)
        # Not sure: the body may still be refused.
        reservation = self._file_store.hold(account, total, uploads=len(blobs), is_sure=False)
        self._admission.begin(found.grant)
        self._context.assign(channel, UploadRole(found, blobs, reservation))
        self._context.order(
            Receive(
                channel=channel,
                blobs=blobs,
                file_size_max_bytes=limits.upload_size_max_bytes,
                total_size_max_bytes=total,
                require_sha256=self._context.plan.require_sha256,
                raw=opening.raw,
            )
        )

    def _refusal_of(self, opening: UploadOpening, account: Account) -> Refusal | None:
        """Returns the refusal of this body as far as its head tells; None if it may come."""
        limits, size = self._context.limits, opening.size_bytes or 0
        if not self._file_store.room(account) or not self._file_store.slots(account, "upload"):
            return FULL
        files_max = limits.upload_files_max if opening.raw is None else 1
        total = self._total_max_bytes(account, files_max)
        if opening.raw is not None:
            if size > limits.upload_size_max_bytes:
                most = limits.upload_size_max_bytes
                text = f"the file has {size} bytes, and a file may have at most {most}; {LARGER_FILES}"
                return Refusal(413, "file_too_large", text)
            if self._context.plan.require_sha256 and not opening.raw.sha256:
                return Refusal(
                    400, "sha256_required", "got no X-Content-SHA256 header, expected the file's SHA-256 in it"
                )
        if size > total + (overhead_max_bytes(files_max) if opening.raw is None else 0):
            text = f"the body has {size} bytes, and at most {total} bytes of files are taken"
            if total == limits.upload_size_max_bytes * files_max:
                text = f"{text}; {LARGER_FILES}"
            return Refusal(413, "request_too_large", text)
        return None

    def receive_close(self, role: UploadRole, channel: ChannelId, cause: Cause) -> None:
        """Releases the reservation of an upload whose client is gone. A manifest that is being saved is saved all the
        same, or undone."""
        self._release(role)

    def _release(self, role: UploadRole) -> None:
        if role.reservation is not None:
            reservation, role.reservation = role.reservation, None
            self._admission.release(role.permit.grant, reservation)

    def stop(self, role: UploadRole, channel: ChannelId) -> None:
        """Refuses an upload that is not stored yet when the stopping proxy waits no longer. A stored one is saved all
        the same."""
        if role.reservation is not None:
            self._release(role)
            self._answer(channel, STOPPING)

    def _total_max_bytes(self, account: Account, files_max: int) -> int:
        return min(self._file_store.room(account), self._context.limits.upload_size_max_bytes * files_max)

    def receive_message(self, role: UploadRole, channel: ChannelId, message: bytes) -> None:
        """Makes uploads of a body that is stored.

        If there are no files, or they are larger than was ordered, they are discarded and the request is refused.

        Raises:
            LocalProtocolError: the message is no manifest, or names more files than were ordered.
        """
        if role.reservation is None:
            return
        try:
            manifest = msgspec.json.decode(message, type=UploadManifest)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise LocalProtocolError(f"got no manifest of an upload: {error}") from None
        if len(manifest.files) > len(role.blobs):
            raise LocalProtocolError(f"got a manifest of {len(manifest.files)} files, ordered {len(role.blobs)}")
        reservation, role.reservation = role.reservation, None
        size = sum(file.size_bytes for file in manifest.files)
        used = role.blobs[: len(manifest.files)]
        if size > reservation.size_bytes or not manifest.files:
            self._admission.release(role.permit.grant, reservation)
            for blob in used:
                self._context.order(Discard(blob=blob))
            self._answer(channel, Refusal(507, "storage_failed", "what was stored is not what was to be"))
            return
        records = [self._admission.record(*role.permit, *pair) for pair in zip(used, manifest.files, strict=True)]

        def kept(refusal: Refusal | None) -> None:
            if refusal is None:
                self._context.send(channel, self._admission.reply(records), is_last=True)
            else:
                self._answer(channel, refusal)

        self._admission.keep(role.permit.grant, reservation, records, kept)

    # --- Downloads --------------------------------------------------------------------------------------------------

    def open_download(self, channel: ChannelId, opening: DownloadOpening) -> None:
        """Checks the link, then orders the file to be served."""
        fault = check_download(
            self._context.plan.link_keys,
            opening.query,
            server=opening.server,
            sid=opening.sid,
            artifact=opening.artifact,
            filename=opening.filename,
            now_unix=self._context.now_unix,
        )
        if not self._context.plan.downloads_enabled:
            self._refuse(channel, Refusal(404, "downloads_disabled", "downloads are switched off"))
            return
        if fault is not None:
            self._context.note("warning", f"download refused: link {fault}", opening.server)
            fault_text = "has expired" if fault == "expired" else "is not valid"
            text = f"this link {fault_text}: call the tool again for a new one"
            self._refuse(channel, Refusal(403, "bad_credential", text))
            return
        self._context.register(channel, FileRole())
        names = [FileName(kind, opening.sid, opening.artifact) for kind in KINDS]
        if any(self._file_store.has(*name) for name in names):
            self._serve(channel, opening)
        else:
            self._shared_files.load(names, lambda problem: self._serve(channel, opening, problem))

    def _serve(self, channel: ChannelId, opening: DownloadOpening, problem: str = "") -> None:
        if problem:
            self._answer(channel, Refusal(503, "storage_failed", problem))
            return
        entry = self._file_store.find_any(opening.sid, opening.artifact)
        record = None if entry is None else entry.record
        if record is None or opening.principal not in (None, record.principal) or record.server != opening.server:
            self._answer(channel, Refusal(404, "not_found", "this file has expired"))
            return
        if self._context.is_open(channel):
            self._context.order(
                Serve(
                    channel=channel,
                    blob=record.blob,
                    filename=record.filename,
                    mime_type=record.mime_type,
                    size_bytes=record.size_bytes,
                    sha256=record.sha256,
                    stored_at_unix=record.stored_at_unix,
                )
            )

    def _refuse(self, channel: ChannelId, refusal: Refusal) -> None:
        self._context.register(channel, FileRole())
        self._answer(channel, refusal)

    def _answer(self, channel: ChannelId, refusal: Refusal) -> None:
        self._context.refuse(channel, refusal.status, {"detail": refusal.text, "code": refusal.code})
