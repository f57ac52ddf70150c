"""Records of uploads, however their bytes arrive: made, saved, and undone if they cannot be kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from ...base.ids import Ticket
from ...base.storage import Discard, Forget, Save, Saved, StorageAnswer, StorageFailed, StoredFile
from ...state.context import Context
from ...state.storage_orders import StorageOrders
from .filenames import mime_type_of, safe_filename
from .room import Room
from .store import FileStore, Reservation, StoredUpload

Reason = TypeVar("Reason")


class Uploader(NamedTuple):
    """The client that uploads a file.

    Attributes:
        server: the server that the file is for.
        sid: the public name of the session.
        is_bearer: the client has no sessions, so any client of its principal that has the handle may use the file.
    """

    server: str
    sid: str
    principal: str
    is_bearer: bool


def upload_record(context: Context, uploader: Uploader, blob: str, file: StoredFile) -> StoredUpload:
    """Returns the record to be saved for a file that lies in `blob`, with a fresh upload id."""
    filename, replica = safe_filename(file.filename, "upload"), context.plan.replica
    return StoredUpload(
        server=uploader.server,
        sid=uploader.sid,
        uid=context.mint(),
        principal=uploader.principal,
        blob=blob,
        filename=filename,
        mime_type=mime_type_of(filename, file.head, file.mime_type),
        size_bytes=file.size_bytes,
        sha256=file.sha256,
        is_bearer=uploader.is_bearer,
        stored_at_unix=context.now_unix,
        expires_at_unix=context.now_unix + context.limits.upload_ttl_s,
        counted_by=msgspec.UNSET if replica is None else replica.owner,
    )


def save_uploads(
    context: Context,
    file_store: FileStore,
    storage_orders: StorageOrders,
    records: Sequence[StoredUpload],
    room: Room,
    reservation: Reservation,
    judge: Callable[[StorageAnswer | None], Reason | None],
    then: Callable[[Reason | None], None],
) -> None:
    """Saves the records of uploads, for which there is a reservation. There is at least one.

    Args:
        judge: called once all are written, with the answer of the storage to the last one that was not; None: all were.
            Returns the reason why the uploads are not kept; None: they are.
        then: called with that, once the uploads are in the store, or nothing is left of them, their blobs included.
    """
    left = len(records)
    failure: StorageAnswer | None = None

    def saved(answer: StorageAnswer) -> None:
        nonlocal left, failure
        left -= 1
        if not isinstance(answer, Saved):
            failure = answer
        if left:
            return
        reason = judge(failure)
        if reason is not None:
            for record in records:
                context.order(Forget(key=record.key))
            discard_uploads(context, records)
            then(reason)
            return
        for record in records:
            file_store.add_upload(record)
        then(None)

    def confirmed(failure: StorageFailed | None) -> None:
        if failure is None:
            for record in records:
                storage_orders.order(partial(_saving, record), saved)
            return
        reason = judge(failure)
        assert reason is not None
        discard_uploads(context, records)
        then(reason)

    room.confirm(records, reservation, confirmed)


def discard_uploads(context: Context, records: Sequence[StoredUpload]) -> None:
    """Removes the blobs of uploads that are not kept."""
    for record in records:
        context.order(Discard(blob=record.blob))


def _saving(record: StoredUpload, ticket: Ticket) -> Save:
    value = msgspec.json.encode(record)
    return Save(ticket=ticket, key=record.key, value=value, expires_at_unix=record.expires_at_unix)
