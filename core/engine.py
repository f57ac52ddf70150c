"""The engine: a driver reports what happened, and the engine returns what to do.

Each input (`receive_…`, `handle_timeout`) returns the effects that it caused, in the order in which they are to be
carried out, and leaves nothing to drain. The engine reads no clock, socket or file. Equal inputs give equal effects,
byte for byte. A driver follows one rule: it awaits nothing between calling an input and queueing all that it returned.

The engine constructs its rooms in their order, around one `Context` (the clock, the timers, the channel table and the
list of effects), and hands each of them to the next. It holds no rule of its own: three tables say which part handles
an opening, a channel or a timer. `BulkEngine` takes some inputs in bulk.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from .base.decisions import Decision
from .base.effects import Effect
from .base.errors import OUT_OF_MEMORY, OVERLOADED, LocalProtocolError
from .base.events import Cause, Connected, DraftOpening, End, Fact, Opening, Primed, Queued, Verb
from .base.ids import ChannelId, Entropy, Ticket
from .base.input_check import no_cause, no_member, no_message, no_opening
from .base.limits import Limits
from .base.plan import Plan
from .base.plan_check import check_plan
from .base.storage import StorageAnswer
from .base.timers import Deadline
from .downstream.downstream import Downstream
from .endpoints.channels import PipeRole
from .endpoints.endpoints import Endpoints
from .endpoints.exhausted import end_exhausted
from .endpoints.fast_path import ANSWERING_ROLES
from .features import features_of, plan_for
from .jsonrpc import envelope
from .profiles.router import profile_routers, timers_of
from .profiles.services import Services
from .routing.router import UPSTREAM_ROLES, Router
from .state.context import ChannelRole, Context
from .state.exchange import ExchangeKey
from .state.feature import ChannelHandler, OpeningHandler, TimerHandler
from .state.ports import SessionRouter
from .state.session import Session
from .state.storage_orders import StorageOrders
from .state.upstream_channels import DeleteRole, UpstreamPostRole
from .status import ChannelStatus, Command, Status, channel_status, report
from .subscriptions.subscriptions import Subscriptions
from .upstream.upstream import Upstream

if TYPE_CHECKING:
    from .state.records import FileEnds, FileStatus, StoredArtifact, StoredTask, StoredUpload, TaskStatus


class Engine:
    """One proxy.

    Args:
        plan: the servers and what is done for each.
        entropy: where names and secrets come from.
        unix_at_zero: wall time, in seconds since 1970, at which `now` was 0.
        has_storage: the driver carries out the orders that have a ticket. Files, tasks and stored events need them.
        limits: every bound.
        stored: the artifacts that earlier runs left, so that they expire, and count, as if this one had made them.
        stored_tasks: the records of tasks that earlier runs left.
        stored_uploads: the uploads that earlier runs left.

    All inputs take `now`, seconds on one monotonic clock that never runs backwards, and raise LocalProtocolError for
    what only their caller can have got wrong; what a peer got wrong is answered or noted, never raised.

    Raises:
        LocalProtocolError: the plan cannot be used, or asks for more than the driver or this copy can do.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        entropy: Entropy,
        unix_at_zero: float,
        has_storage: bool = False,
        limits: Limits | None = None,
        stored: Iterable[StoredArtifact] = (),
        stored_tasks: Iterable[StoredTask] = (),
        stored_uploads: Iterable[StoredUpload] = (),
    ) -> None:
        check_plan(plan, has_storage=has_storage)
        plan = plan_for(plan)
        self._context = context = Context(plan, entropy=entropy, unix_at_zero=unix_at_zero, limits=limits or Limits())
        self._storage_orders = storage_orders = StorageOrders(context)
        self._downstream = downstream = Downstream(context, storage_orders)
        self._upstream = upstream = Upstream(context, downstream)
        self._subscriptions = subscriptions = Subscriptions(context, downstream, upstream)
        features = features_of(
            context,
            storage_orders,
            downstream,
            upstream,
            subscriptions,
            stored=stored,
            stored_uploads=stored_uploads,
            stored_tasks=stored_tasks,
        )
        self._tasks, self._files, self._features = features.tasks, features.files, features.present
        self._router = router = Router(context, downstream, upstream, subscriptions, self._features)
        visits = None if features.questions is None else features.questions.url_elicitation
        services = Services(
            router=router,
            downstream=downstream,
            storage_orders=storage_orders,
            client_listens=subscriptions.client_listens,
            advertised=upstream.tool_discovery.advertised,
            tasks=features.tasks,
            files=features.files,
            visits=visits,
        )
        routers = profile_routers(context, services)

        def router_of(endpoint: str) -> SessionRouter:
            return routers.get(endpoint, router)

        self._endpoints = endpoints = Endpoints(
            context, downstream, upstream, subscriptions, router, router_of, features.questions
        )
        sessions = downstream.sessions
        self._openings: Mapping[type, OpeningHandler] = {
            **endpoints.openings,
            **{opening: handle for feature in self._features for opening, handle in feature.openings.items()},
        }
        self._channels: Mapping[type[ChannelRole], ChannelHandler] = {
            **endpoints.channels,
            **dict.fromkeys((*UPSTREAM_ROLES, DeleteRole), router.channels),
            **{role: handler for feature in self._features for role, handler in feature.channels.items()},
        }
        self._timers: Mapping[str, TimerHandler] = {
            "reply": sessions.while_open(self._handle_reply_timeout),
            "ask": sessions.handle_question_timeout,
            "stream": sessions.handle_stream,
            "idle": sessions.handle_idle,
            "grace": self._handle_grace,
            "storage": storage_orders.handle_timeout,
            "commit": lambda _: downstream.streams.handle_commit(),
            **router.timers,
            **endpoints.timers,
            **timers_of(routers),
            **{purpose: handle for feature in self._features for purpose, handle in feature.timers.items()},
        }

    # --- Queries ----------------------------------------------------------------------------------------------------

    @property
    def session_count(self) -> int:
        return len(self._downstream.sessions.sessions)

    @property
    def exchange_count(self) -> int:
        """The number of client requests that wait for their response, uploads included.

        A subscription is not counted: it has no response before its end.
        """
        sessions = self._downstream.sessions.sessions.values()
        of_sessions = sum(session.waiting_count for session in sessions)
        return of_sessions + sum(feature.request_count for feature in self._features)

    def owes(self, channel: ChannelId) -> bool:
        """True if the client on a pipe waits for a response."""
        role = self._context.role_of(channel)
        if not isinstance(role, PipeRole):
            return False
        session = role.session
        return (
            role.pipe_requests.is_waiting
            or (session is not None and session.in_flight > 0)
            or any(feature.owes(channel) for feature in self._features)
        )

    def channel(self, channel: ChannelId) -> ChannelStatus | None:
        """The status of a channel; None if it carries no messages of the protocol, or is gone."""
        return channel_status(self._context.role_of(channel))

    def session_name(self, id: str) -> str:
        """The public name of the session with this `Mcp-Session-Id`; "" if there is none."""
        session = self._downstream.sessions.sessions.get(id)
        return "" if session is None else session.sid

    def report(self) -> tuple[Status, ...]:
        """The status of each server, in the order of the plan."""
        sessions = Tally(session.server for session in self._downstream.sessions.sessions.values())
        return report(self._context, self._upstream.handshaker, self._router.links, sessions)

    def tasks(self) -> tuple[TaskStatus, ...]:
        """All tasks, the oldest first."""
        return () if self._tasks is None else self._tasks.report()

    def task(self, id: str) -> TaskStatus | None:
        """The task of this id; None if there is none."""
        return None if self._tasks is None else self._tasks.status_of(id)

    def files(self) -> tuple[FileStatus, ...]:
        """All stored files, the most recently used last."""
        return () if self._files is None else self._files.report()

    def file_ends(self) -> tuple[FileEnds, ...]:
        """The number of files that were removed since the start, by reason."""
        return () if self._files is None else self._files.ends()

    def next_timeout(self) -> Deadline | None:
        """The next deadline at which `handle_timeout` must be called, with its reason; None if there is none."""
        return self._context.timers.next_timeout()

    @property
    def spans_refused(self) -> int:
        """The number of requests that have no span though they were to have one: too many are made already
        (`Tracing.spans_per_second_max`)."""
        tracer = self._context.tracer
        return 0 if tracer is None else tracer.sampler.refused

    @property
    def earliest_at(self) -> float:
        """A moment before which no deadline is due.

        A driver uses it to decide whether it must wake up sooner than planned. `next_timeout` is exact and takes
        longer.
        """
        return self._context.timers.earliest_at

    # --- Inputs: channels -------------------------------------------------------------------------------------------

    def new_channel(self) -> ChannelId:
        """Returns the number of a downstream channel that is about to open."""
        return self._context.new_channel()

    def receive_open(self, channel: ChannelId, opening: Opening, now: float) -> list[Effect]:
        """Reports that a channel is open: one that `new_channel` numbered, or one that a `Dial` ordered
        (`Connected`)."""
        effects = self._context.begin(now, channel)
        self._open(channel, opening)
        return effects

    def receive_message(self, channel: ChannelId, message: bytes, now: float) -> list[Effect]:
        """Reports one message, without its framing.

        Args:
            message: JSON-RPC on a channel of the protocol; the JSON of an `UploadManifest` or `Appended` on an upload.
                A byte order mark before it is skipped: some platforms write one before every text.

        A message on a channel that has ended is dropped: it crossed a `Close` of the engine.

        Raises:
            LocalProtocolError: the channel was not reported as open.
        """
        if not isinstance(message, bytes):
            raise no_message(message)
        effects = self._context.begin(now, channel)
        self._receive(channel, message)
        return effects

    def receive_close(self, channel: ChannelId, cause: Cause, now: float) -> list[Effect]:
        """Reports that a channel is gone. A second report of the same channel does nothing."""
        if type(cause) is not Cause or type(cause.end) is not End:
            raise no_cause(cause)
        effects = self._context.begin(now, None)
        self._close(channel, cause)
        return effects

    def receive_sent(self, channel: ChannelId, size_bytes: int, now: float) -> list[Effect]:
        """Reports that `size_bytes` of messages were handed to the peer of a channel (flow control)."""
        effects = self._context.begin(now, None)
        self._context.receive_sent(channel, size_bytes)
        return effects

    # --- Inputs: storage, operators, time ---------------------------------------------------------------------------

    def receive_answer(self, ticket: Ticket, answer: StorageAnswer | Decision, now: float) -> list[Effect]:
        """Reports that an order with a ticket was carried out, or failed. A second or late answer does nothing."""
        effects = self._context.begin(now, None)
        is_decision = self._downstream.decisions.receive_answer(ticket, answer)
        if not is_decision and not isinstance(answer, Decision):
            self._storage_orders.receive_answer(ticket, answer)
        return effects

    def receive_drain(self, now: float) -> list[Effect]:
        """Refuses new sessions and requests from now on. Open requests may finish; subscriptions end."""
        effects = self._context.begin(now, None)
        self._context.drain()
        for session in list(self._downstream.sessions.sessions.values()):
            self._subscriptions.client_listens.end_all(session)
        return effects

    def receive_stop(self, now: float) -> list[Effect]:
        """Ends every session: each open request gets its response, each server is left."""
        effects = self._context.begin(now, None)
        for feature in self._features:
            feature.receive_stop()
        self._context.drain()
        sessions = self._downstream.sessions
        for session in list(sessions.sessions.values()):
            self._subscriptions.client_listens.end_all(session)
            sessions.close_session(session, "the proxy is shutting down", cut_off_code=OVERLOADED)
        for feature in self._features:
            feature.receive_stopped()
        self._router.links.stop()
        for channel, role in self._context.channels():
            if (handler := self._channels.get(type(role))) is not None:
                handler.stop(role, channel)
        return effects

    def receive_command(self, server: str, command: Command, now: float) -> list[Effect]:
        """Starts, stops or restarts a server, by order of an operator.

        Raises:
            LocalProtocolError: the plan has no such server.
        """
        effects = self._context.begin(now, None)
        if server not in self._context.servers:
            raise LocalProtocolError(f"there is no server {server!r} in the plan")
        if not isinstance(command, Command):
            raise no_member(command, Command, "command")
        if command is not Command.START:
            self._router.links.stop_server(server)
        if command is not Command.STOP:
            self._router.links.start_server(server)
        return effects

    def receive_task_cancel(self, id: str, now: float) -> list[Effect]:
        """Cancels a task, by order of an operator. It is over once that is stored; see `tasks`.

        Raises:
            LocalProtocolError: there is no such task, or it is over. Nothing has changed.
        """
        effects = self._context.begin(now, None)
        task = None if self._tasks is None else self._tasks.find(id)
        if self._tasks is None or task is None or task.is_over:
            raise LocalProtocolError(f"there is no task {id[:40]!r}" if task is None else "the task is over already")
        self._tasks.cancel(task, "cancelled by an operator")
        return effects

    def receive_file_delete(self, id: str, now: float) -> list[Effect]:
        """Removes the upload or artifact of this id, by order of an operator.

        Raises:
            LocalProtocolError: there is no such file, or a call uses it. Nothing has changed.
        """
        effects = self._context.begin(now, None)
        file = next((file for file in self.files() if file.id == id), None)
        if self._files is None or file is None or file.pins:
            raise LocalProtocolError(f"there is no file {id[:40]!r}" if file is None else "a call uses the file")
        self._files.delete(file)
        return effects

    def receive_records(self, records: Sequence[tuple[str, bytes | None]], now: float) -> list[Effect]:
        """Reports what the storage holds under some keys: records that other replicas have written, or, with None,
        removed. Any record may be reported, at any time and more than once. One that was not is found when a client
        names what it is about."""
        effects = self._context.begin(now, None)
        for key, value in records:
            self._router.receive_record(key, value)
            for feature in self._features:
                feature.receive_record(key, value)
        return effects

    def handle_timeout(self, now: float) -> list[Effect]:
        """Does what is due. An early call does nothing. Afterwards the next deadline is later than `now`."""
        effects = self._context.begin(now, None)
        while (due := self._context.timers.take_due(now)) is not None:
            purpose, key = due
            handle = self._timers[purpose]
            handle(*key) if isinstance(key, tuple) else handle(key)
        return effects

    # --- Dispatch ---------------------------------------------------------------------------------------------------

    def _open(self, channel: ChannelId, opening: Opening) -> None:
        if isinstance(opening, (Connected, Primed, Queued)):
            context, is_connected = self._context, isinstance(opening, Connected)
            role = context.receive_connected(channel) if is_connected else context.role_of(channel)
            if isinstance(role, UPSTREAM_ROLES):
                if channel in context.unopened and isinstance(opening, Primed):
                    context.check_was_open(channel, "Primed")
                self._router.channels.receive_open(role, opening)
            elif role is None:
                context.check_was_open(channel, type(opening).__name__)
            elif not isinstance(role, DeleteRole):
                raise LocalProtocolError(f"got {type(opening).__name__} on channel {channel}, which no Dial ordered")
            return
        handle = self._openings.get(type(opening))
        if handle is None:
            if not isinstance(opening, Fact):
                raise no_opening(opening)
            raise LocalProtocolError(f"this copy of the engine lacks the folder that handles {type(opening).__name__}")
        if type(opening) is DraftOpening and not isinstance(opening.verb, Verb):
            raise no_member(opening.verb, Verb, "DraftOpening.verb")
        handle(channel, opening)

    def _receive(self, channel: ChannelId, message: bytes) -> None:
        context = self._context
        role = context.role_of(channel)
        if role is None or channel in context.unopened:
            if channel in context.unopened or not 0 < channel <= context.last_channel:  # most messages here are late
                context.check_was_open(channel, "a message")
            return
        try:
            if isinstance(role, ANSWERING_ROLES) and self._endpoints.fast_path.receive_answer(role, channel, message):
                return
            handler = self._channels.get(type(role))
            if handler is not None and (not role.is_ending or handler.reads_late):
                handler.receive_message(role, channel, message.removeprefix(envelope.MARK))
        except OUT_OF_MEMORY:
            self._close(channel, end_exhausted(self._context, channel, role))

    def _close(self, channel: ChannelId, cause: Cause) -> None:
        role = self._context.release(channel)
        if role is None:
            if not 0 < channel <= self._context.last_channel:
                self._context.check_was_open(channel, "receive_close")
            return
        handler = self._channels.get(type(role))
        if handler is not None:
            handler.receive_close(role, channel, cause)

    def _handle_grace(self, channel: ChannelId) -> None:
        role = self._context.role_of(channel)
        if isinstance(role, UpstreamPostRole) and self._router.passthrough.handle_silence(role):
            return
        self._context.close(channel, reason="nobody waits for it any more")

    def _handle_reply_timeout(self, session: Session, key: ExchangeKey) -> None:
        if (exchange := session.exchanges.get(key)) is not None:
            self._downstream.responder.time_out(session, exchange)
