"""The counter where files are handed in and out over plain HTTP: signed uploads and signed downloads.

A link is the whole credential. An upload's nonce is spent by the first request that succeeds, so a refused one may be
tried again until the link expires; what a refused request stored is removed, and nothing else changes.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from . import catalog, handle
from .clients import Clients
from .desk import Desk, Role
from .effects import (
    Discard,
    DownloadOpening,
    Forget,
    Load,
    Loaded,
    Receive,
    Save,
    Saved,
    Serve,
    StorageAnswer,
    StorageFailed,
    StoredFile,
    UploadManifest,
    UploadOpening,
)
from .filename import mime_type_of, safe_filename
from .ids import ChannelId, Ticket
from .session import Session
from .shelf import Hold, Shelf, StoredArtifact, StoredUpload, artifact_key
from .waiting import Waiting

PART_OVERHEAD_MAX_BYTES: Final = 16 * 1024
"""What a form may hold for each part beside the part's content. Clients send 100 to 300 bytes."""


def overhead_max_bytes(files_max: int) -> int:
    """What the form of an upload may hold beside its files: a part a file, one for its hash, and what is round them."""
    return PART_OVERHEAD_MAX_BYTES * (1 + 2 * files_max)


class UploadRole(Role):
    """One upload under way.

    Attributes:
        hold: the room taken for it; None once it is over.
        is_settled: its manifest came, or never will.
    """

    __slots__ = ("blobs", "hold", "is_settled", "nonce", "server", "sid")

    def __init__(self, server: str, sid: str, nonce: str, blobs: tuple[str, ...], hold: Hold) -> None:
        self.server = server
        self.sid = sid
        self.nonce = nonce
        self.blobs = blobs
        self.hold: Hold | None = hold
        self.is_settled = False


class FileRole(Role):
    """A download, or a file request that was refused."""

    __slots__ = ()


class Counter:
    def __init__(self, desk: Desk, clients: Clients, shelf: Shelf, nonces: handle.Nonces, waiting: Waiting) -> None:
        self._desk = desk
        self._clients = clients
        self._shelf = shelf
        self._nonces = nonces
        self._waiting = waiting
        self._saving: set[str] = set()  # nonces of uploads whose records are being written

    # --- In ---------------------------------------------------------------------------------------------------------

    def open_upload(self, channel: ChannelId, opening: UploadOpening) -> None:
        """Check the link, then order the body to be received."""
        plan, limits = self._desk.plan, self._desk.limits
        server = self._desk.servers.get(opening.server)
        nonce = handle.nonce_of(opening.query)
        grant = None if nonce is None else self._nonces.find(nonce)
        session = None if grant is None else self._clients.by_sid(grant.sid)
        if server is None:
            self._refuse(channel, 404, "unknown_server", f"there is no server {opening.server!r}")
        elif not plan.uploads_enabled or not server.consumers:
            self._refuse(channel, 403, "uploads_disabled", f"server {server.id!r} takes no uploads")
        elif nonce is None or grant is None:
            helper = catalog.helper_name(server.id)
            text = f"this link is not valid, or was used already: call the tool {helper} for a new one"
            self._refuse(channel, 403, "bad_credential", text)
        elif (fault := self._fault(opening, grant)) is not None:
            self._refuse(channel, 403, "bad_credential", fault)
        elif session is None:
            self._refuse(channel, 409, "session_gone", "the session this link belongs to has ended")
        elif opening.session is not None and opening.session not in (session.id, session.sid):
            self._refuse(channel, 403, "session_mismatch", "Mcp-Session-Id names another session than the link")
        elif (room := self._shelf.room(session.sid)) == 0 or not (slots := self._shelf.upload_slots(session.sid)):
            text = "this session's storage is full, or uploads under way take what is left: let files expire first"
            self._refuse(channel, 507, "storage_full", text)
        elif (opening.size_bytes or 0) > (total := self._total_max_bytes(room)) + overhead_max_bytes(
            limits.upload_files_max
        ):
            text = f"the body has {opening.size_bytes} bytes, and at most {total} bytes of files are taken"
            self._refuse(channel, 413, "request_too_large", text)
        else:
            blobs = tuple(self._desk.mint() for _ in range(min(limits.upload_files_max, slots)))
            # What is not announced must be kept free; so much of it that others can upload at the same time.
            announced = limits.upload_size_max_bytes if opening.size_bytes is None else max(1, opening.size_bytes)
            total = min(total, announced)
            hold = self._shelf.hold(session.sid, total, uploads=len(blobs), is_sure=False)  # it may be refused yet
            self._nonces.begin(nonce)
            self._desk.register(channel, UploadRole(server.id, session.sid, nonce, blobs, hold))
            self._desk.order(
                Receive(
                    channel=channel,
                    blobs=blobs,
                    file_size_max_bytes=limits.upload_size_max_bytes,
                    total_size_max_bytes=total,
                    require_sha256=plan.require_sha256,
                )
            )

    def receive_close(self, role: UploadRole) -> None:
        """Its client is gone. A manifest that is being saved is saved all the same, or undone."""
        if not role.is_settled:
            role.is_settled = True
            self._free(role)

    def _free(self, role: UploadRole) -> None:
        """The upload is over: others may have its room."""
        assert role.hold is not None
        self._shelf.release(role.hold)
        role.hold = None
        self._nonces.end(role.nonce)

    def _total_max_bytes(self, room: int) -> int:
        limits = self._desk.limits
        return min(room, limits.upload_size_max_bytes * limits.upload_files_max)

    def _fault(self, opening: UploadOpening, grant: handle.Grant) -> str | None:
        fault = handle.check_upload(
            self._desk.plan.link_key,
            opening.query,
            server=opening.server,
            sid=grant.sid,
            now_unix=self._desk.now_unix,
        )
        if fault is None:
            return None
        self._desk.note("warning", f"upload refused: link {fault}", opening.server)
        helper = catalog.helper_name(opening.server)
        said = "this link has expired" if fault == "expired" else "this link is not valid"
        return f"{said}: call the tool {helper} for a new one"

    def receive_manifest(self, role: UploadRole, channel: ChannelId, message: bytes) -> None:
        """The body is stored: make handles of it. Its files are no more and no larger than was ordered."""
        assert role.hold is not None
        manifest = msgspec.json.decode(message, type=UploadManifest)
        session = self._clients.by_sid(role.sid)
        size = sum(file.size_bytes for file in manifest.files)
        used = role.blobs[: len(manifest.files)]
        if session is None:
            self._undo(channel, role, used, 409, "session_gone", "the session this link belongs to has ended")
        elif size > role.hold.size_bytes or not manifest.files:
            self._undo(channel, role, used, 507, "storage_failed", "what was stored is not what was to be")
        elif role.nonce in self._saving or self._nonces.find(role.nonce) is None:
            self._undo(channel, role, used, 403, "bad_credential", "this link was used already, by another upload")
        else:
            records = [self._record(session, *pair) for pair in zip(used, manifest.files, strict=True)]
            self._save(role, channel, session, records)

    def _record(self, session: Session, blob: str, file: StoredFile) -> StoredUpload:
        filename = safe_filename(file.filename, "upload")
        return StoredUpload(
            server=session.server,
            sid=session.sid,
            uid=self._desk.mint(),
            principal=session.principal,
            blob=blob,
            filename=filename,
            mime_type=mime_type_of(filename, b"", file.mime_type),
            size_bytes=file.size_bytes,
            sha256=file.sha256,
            is_bearer=session.is_stateless,
            expires_at_unix=self._desk.now_unix + self._desk.limits.upload_ttl_s,
            stored_at_unix=self._desk.now_unix,
        )

    def _save(self, role: UploadRole, channel: ChannelId, session: Session, records: list[StoredUpload]) -> None:
        left = len(records)
        problem: str | None = None
        self._saving.add(role.nonce)

        def saved(answer: StorageAnswer) -> None:
            nonlocal left, problem
            left -= 1
            if not isinstance(answer, Saved):
                problem = answer.reason if isinstance(answer, StorageFailed) else "storage failed"
            if left:
                return
            self._saving.remove(role.nonce)
            if problem is not None or self._clients.by_sid(session.sid) is not session:
                for record in records:
                    self._desk.order(Forget(key=record.key))
                blobs = tuple(record.blob for record in records)
                self._undo(channel, role, blobs, 507, "storage_failed", problem or "the session has ended")
                return
            self._nonces.spend(role.nonce)
            self._free(role)
            for record in records:
                self._shelf.add_upload(record)
            scheme = self._desk.servers[session.server].upload_scheme
            body = catalog.upload_reply(session.server, session.sid, [_uploaded(record) for record in records], scheme)
            self._desk.send(channel, body, is_last=True)

        for record in records:
            self._waiting.order(partial(_saving, record), saved)

    def _undo(
        self, channel: ChannelId, role: UploadRole, blobs: tuple[str, ...], status: int, code: str, text: str
    ) -> None:
        self._free(role)
        for blob in blobs:
            self._desk.order(Discard(blob=blob))
        self._desk.refuse(channel, status, {"detail": text, "code": code})

    # --- Out --------------------------------------------------------------------------------------------------------

    def open_download(self, channel: ChannelId, opening: DownloadOpening) -> None:
        fault = handle.check_download(
            self._desk.plan.link_key,
            opening.query,
            server=opening.server,
            sid=opening.sid,
            artifact=opening.artifact,
            filename=opening.filename,
            now_unix=self._desk.now_unix,
        )
        if not self._desk.plan.downloads_enabled:
            self._refuse(channel, 404, "downloads_disabled", "downloads are switched off")
            return
        if fault is not None:
            self._desk.note("warning", f"download refused: link {fault}", opening.server)
            said = "has expired" if fault == "expired" else "is not valid"
            self._refuse(channel, 403, "bad_credential", f"this link {said}: call the tool again for a new one")
            return
        self._desk.register(channel, FileRole())
        record = self._shelf.find_artifact(opening.sid, opening.artifact)
        if record is not None:
            self._serve(channel, opening, record)
            return

        def loaded(answer: StorageAnswer) -> None:
            value = answer.value if isinstance(answer, Loaded) else None
            try:
                found = None if value is None else msgspec.json.decode(value, type=StoredArtifact)
            except msgspec.DecodeError:
                found = None
            self._serve(channel, opening, found)

        key = artifact_key(opening.sid, opening.artifact)
        self._waiting.order(lambda ticket: Load(ticket=ticket, key=key), loaded)

    def _serve(self, channel: ChannelId, opening: DownloadOpening, record: StoredArtifact | None) -> None:
        if record is None or record.server != opening.server or record.expires_at_unix < self._desk.now_unix:
            self._desk.refuse(channel, 404, {"detail": "this artifact has expired", "code": "not_found"})
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
                )
            )

    def _refuse(self, channel: ChannelId, status: int, code: str, text: str) -> None:
        self._desk.register(channel, FileRole())
        self._desk.refuse(channel, status, {"detail": text, "code": code})


def _saving(record: StoredUpload, ticket: Ticket) -> Save:
    value = msgspec.json.encode(record)
    return Save(ticket=ticket, key=record.key, value=value, expires_at_unix=record.expires_at_unix)


def _uploaded(record: StoredUpload) -> catalog.UploadedFile:
    return catalog.UploadedFile(
        upload_id=record.uid,
        filename=record.filename,
        mime_type=record.mime_type,
        size_bytes=record.size_bytes,
        sha256=record.sha256,
    )
