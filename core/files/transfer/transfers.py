"""The counter where files are handed in and out over plain HTTP: signed uploads and signed downloads.

A link is the whole credential. An upload's nonce is spent by the first request that succeeds, so a refused one may be
tried again until the link expires; what a refused request stored is removed, and nothing else changes.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ...base.effects import (
    Discard,
    DownloadOpening,
    Load,
    Loaded,
    Receive,
    Serve,
    StorageAnswer,
    UploadManifest,
    UploadOpening,
)
from ...base.errors import LocalProtocolError
from ...base.ids import ChannelId
from ...state.context import Desk, Role
from ...state.storage_orders import Waiting
from ..store import handles
from ..store.store import Hold, Shelf, StoredArtifact, StoredUpload, artifact_key
from .admission import FULL, Deposits, Permit, Refusal

PART_OVERHEAD_MAX_BYTES: Final = 16 * 1024
"""What a form may hold for each part beside the part's content. Clients send 100 to 300 bytes."""


def overhead_max_bytes(files_max: int) -> int:
    """What the form of an upload may hold beside its files: a part a file, one for its hash, and what is round them."""
    return PART_OVERHEAD_MAX_BYTES * (1 + 2 * files_max)


STOPPING: Final = Refusal(503, "shutting_down", "the proxy is shutting down: send it again when it is back")


class UploadRole(Role):
    """One upload under way.

    Attributes:
        hold: the room taken for it; None once its manifest came, or never will.
    """

    __slots__ = ("blobs", "grant", "hold", "nonce")

    def __init__(self, nonce: str, grant: handles.Grant, blobs: tuple[str, ...], hold: Hold) -> None:
        self.nonce = nonce
        self.grant = grant
        self.blobs = blobs
        self.hold: Hold | None = hold


class FileRole(Role):
    """A download, or a file request that was refused."""

    __slots__ = ()


class Counter:
    def __init__(self, desk: Desk, shelf: Shelf, deposits: Deposits, waiting: Waiting) -> None:
        self._desk = desk
        self._shelf = shelf
        self._deposits = deposits
        self._waiting = waiting

    # --- In ---------------------------------------------------------------------------------------------------------

    def open_upload(self, channel: ChannelId, opening: UploadOpening) -> None:
        """Check the link, then order the body to be received."""
        found = self._deposits.admit(opening.server, opening.query, opening.session)
        if isinstance(found, Permit):
            found = self._allowance(opening, found.grant.sid) or found
        if isinstance(found, Refusal):
            self._refuse(channel, found)
            return
        limits, sid = self._desk.limits, found.grant.sid
        files_max = limits.upload_files_max if opening.raw is None else 1
        blobs = tuple(self._desk.mint() for _ in range(min(files_max, self._shelf.upload_slots(sid))))
        # What is not announced must be kept free; so much of it that others can upload at the same time.
        announced = limits.upload_size_max_bytes if opening.size_bytes is None else max(1, opening.size_bytes)
        total = min(self._total_max_bytes(sid, files_max), announced)
        hold = self._shelf.hold(sid, total, uploads=len(blobs), is_sure=False)  # it may be refused yet
        self._deposits.begin(found.nonce)
        self._desk.register(channel, UploadRole(found.nonce, found.grant, blobs, hold))
        self._desk.order(
            Receive(
                channel=channel,
                blobs=blobs,
                file_size_max_bytes=limits.upload_size_max_bytes,
                total_size_max_bytes=total,
                require_sha256=self._desk.plan.require_sha256,
                raw=opening.raw,
            )
        )

    def _allowance(self, opening: UploadOpening, sid: str) -> Refusal | None:
        """What stands against this body, as far as its head tells."""
        limits, size = self._desk.limits, opening.size_bytes or 0
        if not self._shelf.room(sid) or not self._shelf.upload_slots(sid):
            return FULL
        files_max = limits.upload_files_max if opening.raw is None else 1
        total = self._total_max_bytes(sid, files_max)
        if opening.raw is not None:
            if size > limits.upload_size_max_bytes:
                text = f"the file has {size} bytes, and a file may have at most {limits.upload_size_max_bytes}"
                return Refusal(413, "file_too_large", text)
            if self._desk.plan.require_sha256 and not opening.raw.sha256:
                return Refusal(
                    400, "sha256_required", "got no X-Content-SHA256 header, expected the file's SHA-256 in it"
                )
        if size > total + (overhead_max_bytes(files_max) if opening.raw is None else 0):
            text = f"the body has {size} bytes, and at most {total} bytes of files are taken"
            return Refusal(413, "request_too_large", text)
        return None

    def receive_close(self, role: UploadRole) -> None:
        """Its client is gone. A manifest that is being saved is saved all the same, or undone."""
        if role.hold is not None:
            hold, role.hold = role.hold, None
            self._deposits.release(role.nonce, hold)

    def stop(self, role: UploadRole, channel: ChannelId) -> None:
        """The proxy stops, and has waited for it. What is stored already is saved all the same."""
        if role.hold is not None:
            self.receive_close(role)
            self._answer(channel, STOPPING)

    def _total_max_bytes(self, sid: str, files_max: int) -> int:
        return min(self._shelf.room(sid), self._desk.limits.upload_size_max_bytes * files_max)

    def receive_manifest(self, role: UploadRole, channel: ChannelId, message: bytes) -> None:
        """The body is stored: make handles of it. Its files are no more and no larger than was ordered."""
        if role.hold is None:
            return
        try:
            manifest = msgspec.json.decode(message, type=UploadManifest)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise LocalProtocolError(f"got no manifest of an upload: {error}") from None
        if len(manifest.files) > len(role.blobs):
            raise LocalProtocolError(f"got a manifest of {len(manifest.files)} files, ordered {len(role.blobs)}")
        hold, role.hold = role.hold, None
        size = sum(file.size_bytes for file in manifest.files)
        used = role.blobs[: len(manifest.files)]
        if size > hold.size_bytes or not manifest.files:
            self._deposits.release(role.nonce, hold)
            for blob in used:
                self._desk.order(Discard(blob=blob))
            self._answer(channel, Refusal(507, "storage_failed", "what was stored is not what was to be"))
            return
        records = [self._deposits.record(role.grant, *pair) for pair in zip(used, manifest.files, strict=True)]

        def kept(refusal: Refusal | None) -> None:
            if refusal is None:
                self._desk.send(channel, self._deposits.reply(records), is_last=True)
            else:
                self._answer(channel, refusal)

        self._deposits.keep(role.nonce, role.grant, hold, records, kept)

    # --- Out --------------------------------------------------------------------------------------------------------

    def open_download(self, channel: ChannelId, opening: DownloadOpening) -> None:
        fault = handles.check_download(
            self._desk.plan.link_key,
            opening.query,
            server=opening.server,
            sid=opening.sid,
            artifact=opening.artifact,
            filename=opening.filename,
            now_unix=self._desk.now_unix,
        )
        if not self._desk.plan.downloads_enabled:
            self._refuse(channel, Refusal(404, "downloads_disabled", "downloads are switched off"))
            return
        if fault is not None:
            self._desk.note("warning", f"download refused: link {fault}", opening.server)
            said = "has expired" if fault == "expired" else "is not valid"
            text = f"this link {said}: call the tool again for a new one"
            self._refuse(channel, Refusal(403, "bad_credential", text))
            return
        self._desk.register(channel, FileRole())
        entry = self._shelf.find_any(opening.sid, opening.artifact)
        if entry is not None:
            self._serve(channel, opening, entry.record)
            return

        def loaded(answer: StorageAnswer) -> None:
            value = answer.value if isinstance(answer, Loaded) else None
            try:
                found = None if value is None else msgspec.json.decode(value, type=StoredArtifact)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                found = None
            self._serve(channel, opening, found)

        key = artifact_key(opening.sid, opening.artifact)
        self._waiting.order(lambda ticket: Load(ticket=ticket, key=key), loaded)

    def _serve(
        self, channel: ChannelId, opening: DownloadOpening, record: StoredArtifact | StoredUpload | None
    ) -> None:
        if record is None or record.server != opening.server or record.expires_at_unix < self._desk.now_unix:
            self._answer(channel, Refusal(404, "not_found", "this file has expired"))
            return
        if self._desk.is_open(channel):
            self._desk.order(
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
        self._desk.register(channel, FileRole())
        self._answer(channel, refusal)

    def _answer(self, channel: ChannelId, refusal: Refusal) -> None:
        self._desk.refuse(channel, refusal.status, {"detail": refusal.text, "code": refusal.code})
