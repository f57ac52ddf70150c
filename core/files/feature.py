"""The parts of this room, constructed in order, as one feature."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from ..base.events import DownloadOpening, DraftOpening, UploadOpening
from ..downstream.downstream import Downstream
from ..state.context import Context
from ..state.feature import Feature
from ..state.listen_filter import ListenFilter
from ..state.records import FileEnds, FileStatus, StoredArtifact, StoredUpload
from ..state.session import Session
from ..state.storage_orders import StorageOrders
from ..upstream.upstream import Upstream
from .calls.calls import Calls
from .calls.inline_inputs import InlineInputs
from .calls.linked_resources import LinkedResources
from .calls.put_file import PutCalls
from .foreign_files import ForeignFiles
from .plane import FilePlane
from .resources import ArtifactResources
from .store.puts import Puts
from .store.room import Room
from .store.shared import SharedFiles
from .store.shares import TIMER as SHARE_TIMER
from .store.store import FileStore
from .store.workspaces import WorkspaceOrders
from .transfer.admission import UploadAdmission
from .transfer.resumable import AppendRole, ResumableUploads
from .transfer.transfers import FileTransfers, UploadRole


class Files(Feature):
    """Files that cross between clients and servers.

    Args:
        stored_uploads: the uploads that earlier runs left.
        stored: the artifacts that earlier runs left.
    """

    def __init__(
        self,
        context: Context,
        storage_orders: StorageOrders,
        downstream: Downstream,
        upstream: Upstream,
        *,
        stored_uploads: Iterable[StoredUpload],
        stored: Iterable[StoredArtifact],
    ) -> None:
        sessions = downstream.sessions
        self._context = context
        self._file_store = file_store = FileStore(context, lambda sid: sessions.by_sid(sid) is not None, storage_orders)
        file_store.restore(stored_uploads, stored)
        self._shared_files = shared_files = SharedFiles(context, file_store, storage_orders)
        room = Room(file_store, shared_files)
        self._puts = puts = Puts(
            context, file_store, storage_orders, room, is_live=lambda sid: sessions.by_sid(sid) is not None
        )
        self._workspaces = workspaces = WorkspaceOrders(context, storage_orders, is_used=sessions.has_workspace)
        linked_resources = LinkedResources(context, upstream.writer)
        inline_inputs = InlineInputs(context, file_store, puts)
        self._foreign_files = foreign_files = ForeignFiles(context, file_store, shared_files)
        calls = Calls(context, file_store, storage_orders, workspaces, linked_resources, inline_inputs, room)
        self._resources = resources = ArtifactResources(context, downstream, file_store, storage_orders)
        put_calls = PutCalls(context, puts)
        self._plane = plane = FilePlane(context, file_store, calls, resources, linked_resources, put_calls)
        self._admission = admission = UploadAdmission(context, sessions, file_store, storage_orders, room)
        transfers = FileTransfers(context, file_store, admission, shared_files)
        self._resumable_uploads = resumable_uploads = ResumableUploads(context, file_store, admission)
        self.interceptors = (foreign_files, plane)
        self.timers = {
            "linked": sessions.while_open(lambda session, key: linked_resources.handle_timeout(key)),
            "resources": resources.handle_change,
            "upload": self._handle_unused,
            "artifact": partial(file_store.handle_timeout, "artifact"),
            "room": lambda _: file_store.make_room(),
            "draft": resumable_uploads.handle_timeout,
            "put": puts.handle_timeout,
            SHARE_TIMER: file_store.handle_share,
        }
        self.openings = {
            UploadOpening: transfers.open_upload,
            DownloadOpening: transfers.open_download,
            DraftOpening: resumable_uploads.open,
        }
        self.channels = {UploadRole: transfers, AppendRole: resumable_uploads}

    def _handle_unused(self, sid: str, id: str) -> None:
        """Handles an upload that has not been used for its lifetime."""
        if self._context.plan.shares_storage:
            self._shared_files.handle_timeout(sid, id)
        else:
            self._file_store.handle_timeout("upload", sid, id)

    def receive_record(self, key: str, value: bytes | None) -> None:
        self._shared_files.receive_record(key, value)

    # --- Queries and orders of an operator ----------------------------------------------------------------------------

    def report(self) -> tuple[FileStatus, ...]:
        """All stored files, the most recently used last."""
        return self._file_store.report()

    def ends(self) -> tuple[FileEnds, ...]:
        """The number of files that were removed since the start, by reason."""
        return self._file_store.ends()

    def delete(self, file: FileStatus) -> None:
        """Deletes a file, which no call uses."""
        self._file_store.delete(file.kind, file.session, file.id)

    @property
    def request_count(self) -> int:
        return sum(isinstance(role, UploadRole | AppendRole) for _, role in self._context.channels())

    # --- Profiles -----------------------------------------------------------------------------------------------------

    def wait_for_files(self, params: bytes | None, then: Callable[[str], None]) -> bool:
        """See `FileDirectory`."""
        return self._context.plan.shares_storage and self._foreign_files.wait_for_files(params, then)

    def server_of(self, session: Session, uri: str) -> str:
        """See `FileDirectory`."""
        return self._resources.server_of(session, uri)

    def entries_of(self, session: Session) -> Mapping[str, bytes] | None:
        """See `FileDirectory`."""
        return self._resources.entries_of(session)

    def granted(self, session: Session, wanted: ListenFilter) -> ListenFilter:
        """See `FileDirectory`."""
        return self._resources.granted_at_profile(session, wanted)

    # --- Sessions -----------------------------------------------------------------------------------------------------

    def is_used(self, session: Session) -> bool:
        return self._admission.is_used(session.sid)

    def receive_closing(self, session: Session) -> None:
        self._resumable_uploads.close_session(session.sid)
        self._puts.close_session(session.sid)

    def receive_closed(self, session: Session) -> None:
        if self._has_files(session):
            self._file_store.close_session(session.principal, session.sid)
            self._resources.close_session(session)

    def receive_left(self, session: Session) -> None:
        if self._has_files(session):
            self._plane.sweep(session.workspace)

    def _has_files(self, session: Session) -> bool:
        return any(self._context.servers[server].has_files for server in self._context.endpoints[session.server])

    def receive_stop(self) -> None:
        self._file_store.stop()

    def receive_stopped(self) -> None:
        self._resumable_uploads.end_all()
        self._puts.end_all()
