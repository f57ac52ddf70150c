"""The engine: a driver reports what happened, and the engine returns what to do.

Each input (`receive_…`, `handle_timeout`) returns the effects that it caused, in the order in which they are to be
carried out, and leaves nothing to drain. The engine reads no clock, socket or file. Equal inputs give equal effects,
byte for byte. A driver follows one rule: it awaits nothing between calling an input and queueing all that it returned.

The engine composes its parts around one `Context` (the clock, the timers, the channel table and the list of effects):
`endpoints` and `downstream` for clients, `routing` and `upstream` for servers, and between them `files`, `tasks`,
`subscriptions` and `input_required`. It holds no rule of its own: it finds the part that a channel, a timer or a ticket
belongs to, and calls it.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from .base.effects import Effect
from .base.errors import OVERLOADED, LocalProtocolError
from .base.events import (
    Cause,
    Connected,
    DeleteOpening,
    DownloadOpening,
    DraftOpening,
    EventPipeOpening,
    GetOpening,
    MessageOpening,
    Opening,
    PipeOpening,
    PostOpening,
    Primed,
    Queued,
    UploadOpening,
)
from .base.ids import ChannelId, Entropy, Ticket
from .base.limits import Limits
from .base.plan import Plan
from .base.storage import StorageAnswer
from .base.timers import Deadline
from .bridge.request_state import RequestStateSigner
from .downstream.event_store import EventStore
from .downstream.event_streams import Streams
from .downstream.responder import Responder
from .downstream.sessions import Sessions
from .endpoints.channels import MessageRole, PipeRole, PostRole, StreamRole
from .endpoints.fast_path import FastPath
from .endpoints.pipes import Pipes
from .endpoints.stateless import Stateless
from .endpoints.stateless_responder import StatelessResponder
from .endpoints.streamable_http import StreamableHttp
from .files.calls.calls import Calls
from .files.calls.linked_resources import LinkedResources
from .files.plane import FilePlane
from .files.resources import ArtifactResources
from .files.store.handles import Nonces
from .files.store.records import FileEnds, FileStatus, StoredArtifact, StoredUpload
from .files.store.store import FileStore
from .files.store.workspaces import WorkspaceOrders
from .files.transfer.admission import UploadAdmission
from .files.transfer.resumable import AppendRole, ResumableUploads
from .files.transfer.transfers import FileTransfers, UploadRole
from .input_required.call_state import CallState
from .input_required.deferred_questions import DeferredQuestions
from .input_required.suspended_calls import SuspendedCalls
from .input_required.url_elicitation import UrlElicitation
from .jsonrpc import envelope
from .routing.router import Router
from .state.context import Context
from .state.exchange import ExchangeKey
from .state.session import Session
from .state.storage_orders import StorageOrders
from .state.upstream_channels import DeleteRole, DuplexRole, UpstreamPostRole, UpstreamStreamRole
from .status import Command, Status, report
from .tasks.local_tasks import LocalTasks
from .tasks.record import StoredTask, TaskStatus
from .tasks.store import TaskStore
from .tasks.table import TaskTable
from .upstream.progress import row_at
from .upstream.warm_pool import WarmProcessRole
from .wire.websocket import GOING_AWAY

LINK_KEY_MIN_BYTES: Final = 16
"""The least size of the key that signs links. A client that guesses the key can make links of its own."""

STATE_KEY_BYTES: Final = 32
"""The size of the key that is made for one run, as many bytes as its hash has."""

_SPEAKING_ROLES = (DuplexRole, UpstreamPostRole, UpstreamStreamRole)
UPSTREAM_ROLES = (*_SPEAKING_ROLES, WarmProcessRole)
_ENDING_UPSTREAM_ROLES = (*UPSTREAM_ROLES, DeleteRole)


class Engine:
    """One proxy.

    Args:
        plan: the servers and what is done for each.
        entropy: where names and secrets come from.
        unix_at_zero: wall time, in seconds since 1970, at which `now` was 0.
        limits: every bound.
        stored: the artifacts that earlier runs left, so that they expire, and count, as if this one had made them.
        stored_tasks: the records of tasks that earlier runs left.
        stored_uploads: the uploads that earlier runs left.

    All inputs take `now`, seconds on one monotonic clock that never runs backwards, and raise LocalProtocolError for
    what only their caller can have got wrong; what a peer got wrong is answered or noted, never raised.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        entropy: Entropy,
        unix_at_zero: float,
        limits: Limits | None = None,
        stored: Iterable[StoredArtifact] = (),
        stored_tasks: Iterable[StoredTask] = (),
        stored_uploads: Iterable[StoredUpload] = (),
    ) -> None:
        if any(server.has_files for server in plan.servers) and len(plan.link_key) < LINK_KEY_MIN_BYTES:
            expected = f"expected at least {LINK_KEY_MIN_BYTES} secret bytes"
            raise LocalProtocolError(f"got a link_key of {len(plan.link_key)} bytes for servers with files, {expected}")
        context = Context(plan, entropy=entropy, unix_at_zero=unix_at_zero, limits=limits or Limits())
        self._context = context
        self._storage_orders = StorageOrders(context)
        self._streams = streams = Streams(context, EventStore(context, self._storage_orders))
        self._stateless_responder = stateless_responder = StatelessResponder(context, streams)
        self._responder = responder = Responder(context, streams, stateless_responder)
        self._sessions = sessions = Sessions(context, responder, streams)
        store = TaskStore(context, self._storage_orders)
        self._table = table = TaskTable()
        self._local_tasks = local_tasks = LocalTasks(context, responder, store, table)
        signer = RequestStateSigner(plan.state_keys or (entropy(STATE_KEY_BYTES),))
        call_state = CallState(context, signer, owner=context.mint())
        stateless_responder.sender = responder
        stateless_responder.suspended_calls = SuspendedCalls(context, call_state, stateless_responder, responder)
        stateless_responder.url_elicitation = UrlElicitation(context, call_state, responder)
        stateless_responder.deferred_questions = DeferredQuestions(context, call_state, responder)
        self._router = router = Router(
            context,
            self._sessions,
            responder,
            stateless_responder,
            stateless_responder.deferred_questions,
            stateless_responder.url_elicitation,
            local_tasks,
            store,
            table,
        )
        stateless_responder.client_listens = router.client_listens
        stateless_responder.suspended_calls.up = stateless_responder.url_elicitation.up = (
            stateless_responder.deferred_questions.up
        ) = router
        (
            stateless_responder.suspended_calls.deferred_questions,
            stateless_responder.deferred_questions.suspended_calls,
        ) = (
            stateless_responder.deferred_questions,
            stateless_responder.suspended_calls,
        )
        server_eras = router.handshaker.server_eras
        era_adapter = router.era_adapter
        self._stateless = stateless = Stateless(
            context,
            responder,
            sessions,
            stateless_responder,
            signer,
            server_eras,
            era_adapter.tool_discovery.advertised,
            era_adapter.replays,
        )
        sessions.forget, responder.over = self._forget, stateless.receive_settled
        responder.tasks = stateless.tasks = local_tasks
        sessions.end_tasks = local_tasks.close_session
        responder.task_questions = local_tasks.task_questions
        local_tasks.suspended_calls, local_tasks.task_questions.up = stateless_responder.suspended_calls, router
        local_tasks.task_notifications.watched, local_tasks.task_notifications.session_by = (
            stateless_responder.client_listens,
            sessions.by_sid,
        )
        local_tasks.restore(stored_tasks, context.servers)
        self._streamable_http = StreamableHttp(context, responder, sessions, streams, stateless)
        self._streamable_http.fast_path = self._fast_path = FastPath(
            context, sessions, responder, streams, stateless.known, router
        )
        self._pipes = Pipes(context, responder, sessions, stateless)
        nonces, file_store = Nonces(), FileStore(context, is_live=lambda sid: sessions.by_sid(sid) is not None)
        self._file_store = file_store
        file_store.restore(stored_uploads, stored)
        workspaces = WorkspaceOrders(context, self._storage_orders, is_used=sessions.has_workspace)
        calls = Calls(context, file_store, self._storage_orders, workspaces)

        def tell(session: Session, method: str, message: bytes) -> None:
            responder.deliver(session, method, message, None)

        self._resources = resources = ArtifactResources(
            context, file_store, self._storage_orders, session_by=sessions.by_sid, tell=tell
        )
        file_store.watch = resources.receive_change
        linked_resources = LinkedResources(context, router.writer)
        self._plane = FilePlane(context, file_store, nonces, calls, resources, linked_resources)
        admission = UploadAdmission(context, sessions, file_store, nonces, self._storage_orders)
        self._transfers = FileTransfers(context, file_store, admission, self._storage_orders)
        self._resumable_uploads = ResumableUploads(context, file_store, admission)
        sessions.receives = nonces.is_used
        responder.up = self._router
        self._router.use(self._plane)
        self._plane.onward = calls.onward = resources.onward = self._router
        self._handlers = self._timer_handlers()

    # --- Queries ----------------------------------------------------------------------------------------------------

    @property
    def session_count(self) -> int:
        return len(self._sessions.sessions)

    @property
    def exchange_count(self) -> int:
        """The number of client requests that wait for their response, uploads included.

        A subscription is not counted: it has no response before its end.
        """
        uploads = sum(isinstance(role, UploadRole | AppendRole) for _, role in self._context.channels())
        return uploads + sum(session.in_flight - len(session.listens) for session in self._sessions.sessions.values())

    def owes(self, channel: ChannelId) -> bool:
        """True if the client on a pipe waits for a response."""
        role = self._context.role_of(channel)
        if not isinstance(role, PipeRole):
            return False
        session = role.session
        return (
            role.pipe_requests.is_waiting
            or (session is not None and session.in_flight > 0)
            or self._local_tasks.owes(channel)
        )

    def passes(self, channel: ChannelId, beginning: bytes, size_bytes: int) -> bool:
        """True if a large message that begins to arrive from a server is passed on in parts.

        The driver then reports it with `receive_part` as it arrives. Otherwise the driver collects the whole message
        and reports it with `receive_message`.

        Args:
            beginning: the first `envelope_edges.EDGE_BYTES` of the message, or more.
            size_bytes: the size of the whole message.
        """
        return self._router.passthrough.passes(channel, beginning, size_bytes)

    def report(self) -> tuple[Status, ...]:
        """The status of each server, in the order of the plan."""
        return report(self._router, Tally(session.server for session in self._sessions.sessions.values()))

    def tasks(self) -> tuple[TaskStatus, ...]:
        """All tasks, the oldest first."""
        return self._local_tasks.report()

    def files(self) -> tuple[FileStatus, ...]:
        """All stored files, the most recently used last."""
        return self._file_store.report()

    def file_ends(self) -> tuple[FileEnds, ...]:
        """The number of files that were removed since the start, by reason."""
        return self._file_store.ends()

    def next_timeout(self) -> Deadline | None:
        """The next deadline at which `handle_timeout` must be called, with its reason; None if there is none."""
        return self._context.timers.next_timeout()

    @property
    def earliest_at(self) -> float:
        """A moment before which no deadline is due.

        A driver uses it to decide whether it must wake up sooner than planned. `next_timeout` is exact and takes
        longer.
        """
        return self._context.timers.earliest_at

    # --- Inputs -----------------------------------------------------------------------------------------------------

    def new_channel(self) -> ChannelId:
        """Returns the number of a downstream channel that is about to open."""
        return self._context.new_channel()

    def receive_open(self, channel: ChannelId, opening: Opening, now: float) -> list[Effect]:
        """Reports that a channel is open: one that `new_channel` numbered, or one that a `Dial` ordered
        (`Connected`)."""
        self._begin(now, channel)
        self._open(channel, opening)
        return self._effects()

    def receive_message(self, channel: ChannelId, message: bytes, now: float) -> list[Effect]:
        """Reports one message, without its framing.

        Args:
            message: JSON-RPC on a channel of the protocol; the JSON of an `UploadManifest` or `Appended` on an upload.
                A byte order mark before it is skipped: some platforms write one before every text.

        A message on a channel that has ended, or was never opened, is dropped: it crossed a `Close` of the engine.
        """
        self._begin(now, channel)
        self._receive(channel, message)
        return self._effects()

    def receive_messages(self, channel: ChannelId, messages: Sequence[bytes], now: float) -> list[Effect]:
        """Reports several messages that arrived together, in their order.

        The result is that of `receive_message` for each, with no effect carried out between two of them. Events for
        HTTP clients may be ordered together as `SendEvents`. A driver may do without this input.
        """
        context = self._context
        if now < context.now:
            raise _backwards(now, context.now)
        context.now, context.source = now, channel
        if len(messages) == 1 and self._fast_path.receive_answer(channel, messages[0]):
            effects, context.out = context.out, []
            return effects
        at, channels = 0, self._router.channels
        while at < len(messages):
            row, role = row_at(messages, at), context.role_if_open(channel)
            stop = at + (1 if row is None else len(row.messages))
            if row is None or not isinstance(role, _SPEAKING_ROLES) or not channels.receive_progress(role, row):
                for message in messages[at:stop]:
                    self._receive(channel, message)
            at = stop
        effects, context.out = context.out, []
        return effects

    def receive_pieces(self, channel: ChannelId, pieces: tuple[bytes, ...], now: float) -> list[Effect]:
        """Reports one message as the pieces in which it was read. The result is that of `receive_message`."""
        self._begin(now, channel)
        role = self._context.role_if_open(channel)
        if isinstance(role, UPSTREAM_ROLES) and not envelope.is_marked(pieces):
            self._router.channels.receive_pieces(role, channel, pieces)
        else:
            self._receive(channel, b"".join(pieces))
        return self._effects()

    def receive_part(
        self,
        channel: ChannelId,
        pieces: tuple[bytes, ...],
        now: float,
        *,
        opening: Connected | None = None,
        size_bytes: int = 0,
        cause: Cause | None = None,
    ) -> list[Effect]:
        """Reports a part of a message for which `passes` returned True.

        Args:
            pieces: the bytes of this part. In the first part, the first piece holds the `beginning` given to `passes`.
            opening: with the first part, that the channel is open.
            size_bytes: the size of the whole message with the first part; 0 with any other.
            cause: with the last part, how the channel ended.

        Raises:
            LocalProtocolError: the message is not passed on in parts, or is larger than announced. Nothing has changed.
        """
        passthrough, role = self._router.passthrough, self._context.role_if_open(channel)
        passthrough.check(channel, role, pieces, size_bytes)
        self._begin(now, channel)
        self._context.ends_source = cause is not None
        if opening is not None:
            self._open(channel, opening)
        if isinstance(role, UpstreamPostRole):
            passthrough.receive_first(role, pieces, size_bytes) if size_bytes else passthrough.receive_part(
                role, pieces
            )
        self._context.source = None
        self._context.ends_source = False
        if cause is not None:
            self._close(channel, cause)
        return self._effects()

    def receive_close(self, channel: ChannelId, cause: Cause, now: float) -> list[Effect]:
        """Reports that a channel is gone. A second report of the same channel does nothing."""
        self._begin(now, None)
        self._close(channel, cause)
        return self._effects()

    def receive_sent(self, channel: ChannelId, size_bytes: int, now: float) -> list[Effect]:
        """Reports that `size_bytes` of messages were handed to the peer of a channel (flow control)."""
        context = self._context
        if now < context.now:
            raise _backwards(now, context.now)
        context.now, context.source = now, None
        context.receive_sent(channel, size_bytes)
        effects, context.out = context.out, []
        return effects

    def receive_at_once(
        self,
        channel: ChannelId,
        now: float,
        *,
        opening: Opening | None = None,
        message: bytes | None = None,
        size_bytes: int = 0,
        cause: Cause | None = None,
    ) -> list[Effect]:
        """Reports all that was learnt of a channel in one moment.

        The result is that of `receive_open`, `receive_message`, `receive_sent` and `receive_close` in this order, with
        no effect carried out between them. A driver may do without this input.
        """
        context = self._context
        if now < context.now:
            raise _backwards(now, context.now)
        context.now, context.source = now, None
        if type(opening) is Connected and message is not None and cause is not None:
            if self._fast_path.receive_reply(channel, opening, message, cause):
                effects, context.out = context.out, []
                return effects
        context.source = channel
        context.ends_source = cause is not None
        if opening is not None:
            self._open(channel, opening)
        if message is not None:
            self._receive(channel, message)
        context.source = None
        context.ends_source = False
        if size_bytes:
            context.receive_sent(channel, size_bytes)
        if cause is not None:
            self._close(channel, cause)
        effects, context.out = context.out, []
        return effects

    def _open(self, channel: ChannelId, opening: Opening) -> None:
        if isinstance(opening, (Connected, Primed, Queued)):
            role = self._context.role_of(channel)
            if isinstance(role, UPSTREAM_ROLES):
                self._router.channels.receive_open(role, opening)
        elif isinstance(opening, PostOpening):
            if opening.server not in self._context.servers:
                self._check_server(opening.server)
            self._streamable_http.open_post(channel, opening)
        elif isinstance(opening, UploadOpening):
            self._transfers.open_upload(channel, opening)
        elif isinstance(opening, DraftOpening):
            self._resumable_uploads.open(channel, opening)
        elif isinstance(opening, DownloadOpening):
            self._transfers.open_download(channel, opening)
        else:
            self._check_server(opening.server)
            self._open_client(channel, opening)

    def _open_client(
        self,
        channel: ChannelId,
        opening: GetOpening | DeleteOpening | EventPipeOpening | MessageOpening | PipeOpening,
    ) -> None:
        if isinstance(opening, GetOpening):
            self._streamable_http.open_stream(channel, opening)
        elif isinstance(opening, DeleteOpening):
            self._streamable_http.open_delete(channel, opening)
        elif isinstance(opening, EventPipeOpening):
            self._pipes.open_event_pipe(channel, opening)
        elif isinstance(opening, MessageOpening):
            self._pipes.open_message(channel, opening)
        else:
            self._pipes.open_pipe(channel, opening)

    def _check_server(self, server: str) -> None:
        if server not in self._context.servers:
            raise LocalProtocolError(f"there is no server {server!r} in the plan")

    def _receive(self, channel: ChannelId, message: bytes) -> None:
        message = message.removeprefix(envelope.MARK)
        role = self._context.role_if_open(channel)
        if isinstance(role, PostRole):
            self._streamable_http.receive_post(role, channel, message)
        elif isinstance(role, UPSTREAM_ROLES):
            self._router.channels.receive_message(role, channel, message)
        elif isinstance(role, PipeRole):
            self._pipes.receive_pipe(role, channel, message)
        elif isinstance(role, MessageRole):
            self._pipes.receive_posted(role, channel, message)
        else:  # an upload reports its end after its response too
            role = self._context.role_of(channel)
            if isinstance(role, UploadRole):
                self._transfers.receive_manifest(role, channel, message)
            elif isinstance(role, AppendRole):
                self._resumable_uploads.receive_report(role, channel, message)

    def _close(self, channel: ChannelId, cause: Cause) -> None:
        role = self._context.release(channel)
        if isinstance(role, PostRole):
            self._streamable_http.receive_post_close(role, channel, cause)
        elif isinstance(role, _ENDING_UPSTREAM_ROLES):
            self._router.channels.receive_close(role, channel, cause)
        elif isinstance(role, UploadRole):
            self._transfers.receive_close(role)
        elif isinstance(role, AppendRole):
            self._resumable_uploads.receive_close(role, channel)
        elif isinstance(role, StreamRole):
            self._streamable_http.receive_stream_close(role, channel)
        elif isinstance(role, PipeRole):
            self._pipes.receive_close(role, channel)

    def receive_answer(self, ticket: Ticket, answer: StorageAnswer, now: float) -> list[Effect]:
        """Reports that a storage order was carried out, or failed. A second or late answer does nothing."""
        self._begin(now, None)
        self._storage_orders.receive_answer(ticket, answer)
        return self._effects()

    def receive_drain(self, now: float) -> list[Effect]:
        """Refuses new sessions and requests from now on. Open requests may finish; subscriptions end."""
        self._begin(now, None)
        self._context.is_draining = True
        for session in list(self._sessions.sessions.values()):
            self._stateless_responder.client_listens.end_all(session)
        return self._effects()

    def receive_stop(self, now: float) -> list[Effect]:
        """Ends every session: each open request gets its response, each server is left."""
        self._begin(now, None)
        self._local_tasks.stop()
        self._file_store.stop()
        self._context.is_draining = True
        for session in list(self._sessions.sessions.values()):
            self._stateless_responder.client_listens.end_all(session)
            self._sessions.close_session(session, "the proxy is shutting down", cut_off_code=OVERLOADED)
        self._resumable_uploads.stop()
        self._router.stop()
        for channel, role in self._context.channels():
            if isinstance(role, UploadRole):
                self._transfers.stop(role, channel)
            is_left_slowly = isinstance(role, DuplexRole) and role.link.leaving
            if (
                isinstance(role, PipeRole | StreamRole | DuplexRole | WarmProcessRole | UpstreamStreamRole)
                and not is_left_slowly
            ):
                self._context.close(channel, reason="the proxy is shutting down", code=GOING_AWAY)
        return self._effects()

    def receive_command(self, server: str, command: Command, now: float) -> list[Effect]:
        """Starts, stops or restarts a server, by order of an operator.

        Raises:
            LocalProtocolError: the plan has no such server.
        """
        self._begin(now, None)
        if server not in self._context.servers:
            raise LocalProtocolError(f"there is no server {server!r} in the plan")
        if command is not Command.START:
            self._router.stop_server(server)
        if command is not Command.STOP:
            self._router.start_server(server)
        return self._effects()

    def receive_task_cancel(self, id: str, now: float) -> list[Effect]:
        """Cancels a task, by order of an operator.

        Raises:
            LocalProtocolError: there is no such task, or it is over. Nothing has changed.
        """
        self._begin(now, None)
        task = self._table.tasks.get(id)
        if task is None or task.is_over:
            raise LocalProtocolError(f"there is no task {id[:40]!r}" if task is None else "the task is over already")
        self._local_tasks.cancel(task, "cancelled by an operator")
        return self._effects()

    def receive_file_delete(self, id: str, now: float) -> list[Effect]:
        """Removes the upload or artifact of this id, by order of an operator.

        Raises:
            LocalProtocolError: there is no such file, or a call uses it. Nothing has changed.
        """
        self._begin(now, None)
        file = next((file for file in self._file_store.report() if file.id == id), None)
        if file is None or file.pins:
            raise LocalProtocolError(f"there is no file {id[:40]!r}" if file is None else "a call uses the file")
        self._file_store.delete(file.kind, file.session, file.id)
        return self._effects()

    def handle_timeout(self, now: float) -> list[Effect]:
        """Does what is due. An early call does nothing. Afterwards the next deadline is later than `now`."""
        self._begin(now, None)
        while (due := self._context.timers.take_due(now)) is not None:
            self._handle(*due)
        return self._effects()

    # --- Helpers ----------------------------------------------------------------------------------------------------

    def _begin(self, now: float, source: ChannelId | None) -> None:
        if now < self._context.now:
            raise _backwards(now, self._context.now)
        self._context.now = now
        self._context.source = source

    def _effects(self) -> list[Effect]:
        out, self._context.out = self._context.out, []
        return out

    def _forget(self, session: Session) -> None:
        """Drops what other parts keep of a session that is about to end."""
        self._stateless.forget(session)
        self._resumable_uploads.close_session(session.sid)

    def _timer_handlers(self) -> dict[str, Callable[..., None]]:
        """Returns the handler of each timer by its purpose. A handler is called with the rest of the timer's key.

        Timers of links are not in this table: `Router.handle_timeout` has one of its own.
        """
        stateless_responder, router, sessions = self._stateless_responder, self._router, self._sessions
        suspended_calls, file_store = stateless_responder.suspended_calls, self._file_store
        url_elicitation, local_tasks = stateless_responder.url_elicitation, self._local_tasks
        of_session = self._of_session
        return {
            # keyed by session and request
            "reply": of_session(self._handle_reply_timeout),
            "round": of_session(router.handle_round),
            "ack": of_session(router.handle_ack),
            "look": of_session(router.handle_look),
            "adopt": of_session(local_tasks.handle_adopt),
            "linked": of_session(lambda session, key: self._plane.handle_linked(key)),
            "visit": of_session(lambda session, key: url_elicitation.handle_visit(session.sid, key)),
            "defer": of_session(stateless_responder.deferred_questions.handle_defer),
            "ask": sessions.handle_question_timeout,
            "stream": sessions.handle_stream,
            "resume": router.handle_resume,
            # keyed by session
            "idle": sessions.handle_idle,
            "resources": self._resources.handle_change,
            # keyed by file, or for all files
            "upload": partial(file_store.handle_timeout, "upload"),
            "artifact": partial(file_store.handle_timeout, "artifact"),
            "room": lambda _: file_store.make_room(),
            "draft": self._resumable_uploads.handle_timeout,
            # keyed by suspended call
            "collect": suspended_calls.handle_collect,
            "park": suspended_calls.handle_suspended_call,
            "tick": suspended_calls.handle_tick,
            # keyed by task
            "task": local_tasks.handle_expiry,
            "task-tick": lambda id: local_tasks.task_questions.handle_tick(id, router.tick),
            "task-look": router.task_requests.handle_look,
            # keyed by channel or ticket, or for all event streams
            "greeting": self._pipes.handle_greeting,
            "grace": self._handle_grace,
            "storage": self._storage_orders.handle_timeout,
            "commit": lambda _: self._streams.handle_commit(),
        }

    def _of_session(self, handle: Callable[[Session, Any], None]) -> Callable[[str, Any], None]:
        """A handler that does nothing once its session is over."""

        def handle_if_live(sid: str, key: Any) -> None:
            if (session := self._sessions.by_sid(sid)) is not None:
                handle(session, key)

        return handle_if_live

    def _handle(self, purpose: str, key: Any) -> None:
        handler = self._handlers.get(purpose)
        if handler is None:
            self._router.handle_timeout(purpose, key)
        elif isinstance(key, tuple):
            handler(*key)
        else:
            handler(key)

    def _handle_grace(self, channel: ChannelId) -> None:
        role = self._context.role_of(channel)
        if isinstance(role, UpstreamPostRole) and self._router.passthrough.handle_silence(role):
            return
        self._context.close(channel, reason="nobody waits for it any more")

    def _handle_reply_timeout(self, session: Session, key: ExchangeKey) -> None:
        if (exchange := session.exchanges.get(key)) is not None:
            self._responder.time_out(session, exchange)


def _backwards(now: float, before: float) -> LocalProtocolError:
    return LocalProtocolError(f"time runs backwards: {now} after {before}")
