"""The engine: what happens is told to it, and it answers with what to do.

Each input returns the effects it caused, in the order to carry them out, and leaves nothing to drain. Nothing here
reads a clock, a socket or a file; equal inputs give equal effects, byte for byte. The driver's one rule: it awaits
nothing between calling an input and queueing all that it returned.

The engine composes: `posts`, `pipes`, `clients`, `courier` and `streams` (the downstream half), `servers` (the upstream
half), `plane`, `calls` and `counter` (files), round one `desk`. It holds no rule of its own beyond who is asked what.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Sequence
from typing import Final

from .base.effects import (
    Cause,
    Connected,
    DeleteOpening,
    DownloadOpening,
    DraftOpening,
    Effect,
    EventPipeOpening,
    GetOpening,
    MessageOpening,
    Opening,
    PipeOpening,
    PostOpening,
    Primed,
    Queued,
    StorageAnswer,
    UploadOpening,
)
from .base.errors import OVERLOADED, LocalProtocolError
from .base.ids import ChannelId, Entropy, Ticket
from .base.limits import Limits
from .base.plan import Plan
from .base.timers import Deadline
from .bridge.request_state import Seal
from .downstream.event_store import Archive
from .downstream.event_streams import Streams
from .downstream.responder import Courier
from .downstream.sessions import Clients
from .endpoints.channels import MessageRole, PipeRole, PostRole, StreamRole
from .endpoints.fast_path import ShortWay
from .endpoints.pipes import Pipes
from .endpoints.stateless import Stateless
from .endpoints.stateless_responder import Legwork
from .endpoints.streamable_http import Posts
from .files.calls.calls import Calls
from .files.calls.linked_resources import Reading
from .files.plane import FilePlane
from .files.resources import OwnResources
from .files.store.handles import Nonces
from .files.store.records import FileEnds, FileStatus, StoredArtifact, StoredUpload
from .files.store.store import Shelf
from .files.store.workspaces import Folders
from .files.transfer.admission import Deposits
from .files.transfer.resumable import AppendRole, Drafts
from .files.transfer.transfers import Counter, UploadRole
from .input_required.call_state import Stating
from .input_required.deferred_questions import Deferring
from .input_required.suspended_calls import Parking
from .input_required.url_elicitation import Visits
from .jsonrpc import envelope
from .routing.router import Servers
from .state.context import Desk
from .state.exchange import ExchangeKey
from .state.link import ChildRole, FarewellRole, UpPostRole, UpStreamRole
from .state.session import Session
from .state.storage_orders import Waiting
from .status import Command, Status, report
from .tasks.local_tasks import Tasking
from .tasks.record import StoredTask, TaskStatus
from .tasks.store import TaskStore
from .tasks.table import TaskTable
from .upstream.progress import row_at
from .upstream.warm_pool import SpareRole
from .wire.websocket import GOING_AWAY

LINK_KEY_MIN_BYTES: Final = 16
"""Links are whole credentials: whoever guesses the key can make them."""

STATE_KEY_BYTES: Final = 32
"""Of a key that is made for one run: as many as its hash has."""

_SPEAKING_ROLES = (ChildRole, UpPostRole, UpStreamRole)
UPSTREAM_ROLES = (*_SPEAKING_ROLES, SpareRole)
_ENDING_UPSTREAM_ROLES = (*UPSTREAM_ROLES, FarewellRole)


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
        desk = Desk(plan, entropy=entropy, unix_at_zero=unix_at_zero, limits=limits or Limits())
        self._desk = desk
        self._waiting = Waiting(desk)
        self._streams = streams = Streams(desk, Archive(desk, self._waiting))
        self._legwork = legwork = Legwork(desk, streams)
        self._courier = courier = Courier(desk, streams, legwork)
        self._clients = clients = Clients(desk, courier, streams)
        store = TaskStore(desk, self._waiting)
        self._table = table = TaskTable()
        self._tasking = tasking = Tasking(desk, courier, store, table)
        seal = Seal(plan.state_keys or (entropy(STATE_KEY_BYTES),))
        stating = Stating(desk, seal, owner=desk.mint())
        legwork.sender = courier
        legwork.parking = Parking(desk, stating, legwork, courier)
        legwork.visits = Visits(desk, stating, courier)
        legwork.deferring = Deferring(desk, stating, courier)
        self._servers = servers = Servers(
            desk, self._clients, courier, legwork, legwork.deferring, legwork.visits, tasking, store, table
        )
        legwork.listens = servers.listens
        legwork.parking.up = legwork.visits.up = legwork.deferring.up = servers
        legwork.parking.deferring, legwork.deferring.parking = legwork.deferring, legwork.parking
        verdicts = servers.handshakes.verdicts
        crossings = servers.crossings
        self._stateless = stateless = Stateless(
            desk, courier, clients, legwork, seal, verdicts, crossings.schooling.advertised, crossings.replays
        )
        clients.forget, courier.over = self._forget, stateless.receive_settled
        courier.tasks = stateless.tasks = tasking
        clients.end_tasks = tasking.close_session
        courier.task_questions = tasking.asking
        tasking.parking, tasking.asking.up = legwork.parking, servers
        tasking.telling.watched, tasking.telling.session_by = legwork.listens, clients.by_sid
        tasking.restore(stored_tasks, desk.servers)
        self._posts = Posts(desk, courier, clients, streams, stateless)
        self._posts.short = self._short = ShortWay(desk, clients, courier, streams, stateless.known, servers)
        self._pipes = Pipes(desk, courier, clients, stateless)
        nonces, shelf = Nonces(), Shelf(desk, is_live=lambda sid: clients.by_sid(sid) is not None)
        self._shelf = shelf
        shelf.restore(stored_uploads, stored)
        folders = Folders(desk, self._waiting, is_used=clients.has_workspace)
        calls = Calls(desk, shelf, self._waiting, folders)

        def tell(session: Session, method: str, message: bytes) -> None:
            courier.deliver(session, method, message, None)

        self._resources = resources = OwnResources(desk, shelf, self._waiting, session_by=clients.by_sid, tell=tell)
        shelf.watch = resources.receive_change
        reading = Reading(desk, servers.uplink)
        self._plane = FilePlane(desk, shelf, nonces, calls, resources, reading)
        deposits = Deposits(desk, clients, shelf, nonces, self._waiting)
        self._counter = Counter(desk, shelf, deposits, self._waiting)
        self._drafts = Drafts(desk, shelf, deposits)
        clients.receives = nonces.is_used
        courier.up = self._servers
        self._servers.use(self._plane)
        self._plane.onward = calls.onward = resources.onward = self._servers

    # --- Queries ----------------------------------------------------------------------------------------------------

    @property
    def session_count(self) -> int:
        return len(self._clients.sessions)

    @property
    def exchange_count(self) -> int:
        """Requests of clients that are still owed an answer, uploads among them. A subscription is not: it has none
        before its end."""
        uploads = sum(isinstance(role, UploadRole | AppendRole) for _, role in self._desk.channels())
        return uploads + sum(session.in_flight - len(session.listens) for session in self._clients.sessions.values())

    def owes(self, channel: ChannelId) -> bool:
        """Whether the client of a pipe is still owed an answer."""
        role = self._desk.role_of(channel)
        if not isinstance(role, PipeRole):
            return False
        session = role.session
        return role.legs.is_waiting or (session is not None and session.in_flight > 0) or self._tasking.owes(channel)

    def passes(self, channel: ChannelId, beginning: bytes, size_bytes: int) -> bool:
        """Whether the message that begins to come on a channel to a server, and will have so many bytes, is to be given
        to `receive_part` as it comes. If not, it is one for `receive_message`, when it is there in full.

        Args:
            beginning: `edges.EDGE_BYTES` of it, or more.
        """
        return self._servers.passing.passes(channel, beginning, size_bytes)

    def report(self) -> tuple[Status, ...]:
        """How each server fares now."""
        return report(self._servers, Tally(session.server for session in self._clients.sessions.values()))

    def tasks(self) -> tuple[TaskStatus, ...]:
        """All tasks that there are, those that began first first."""
        return self._tasking.report()

    def files(self) -> tuple[FileStatus, ...]:
        """All files that are stored, those that were used last last."""
        return self._shelf.report()

    def file_ends(self) -> tuple[FileEnds, ...]:
        """How many files went since the start, and why."""
        return self._shelf.ends()

    def next_timeout(self) -> Deadline | None:
        """When `handle_timeout` is wanted next, and why."""
        return self._desk.timers.next_timeout()

    @property
    def earliest_at(self) -> float:
        """No deadline is earlier: of use to a driver that only wants to know whether to wake up sooner than it is to
        anyway. Asking `next_timeout` is exact, and takes longer."""
        return self._desk.timers.earliest_at

    # --- Inputs -----------------------------------------------------------------------------------------------------

    def new_channel(self) -> ChannelId:
        """A number for a downstream channel that is about to open."""
        return self._desk.new_channel()

    def receive_open(self, channel: ChannelId, opening: Opening, now: float) -> list[Effect]:
        """A channel exists: a downstream one numbered by `new_channel`, or one that a `Dial` ordered (`Connected`)."""
        self._begin(now, channel)
        self._open(channel, opening)
        return self._effects()

    def receive_message(self, channel: ChannelId, message: bytes, now: float) -> list[Effect]:
        """One message arrived, without framing: JSON-RPC on channels of the protocol, an `UploadManifest` or
        `Appended` on uploads.

        A message on a channel that has ended, or was never opened, is dropped: it crossed our own `Close`. A byte order
        mark before it is no part of it: some platforms write one before every text.
        """
        self._begin(now, channel)
        self._hear(channel, message)
        return self._effects()

    def receive_messages(self, channel: ChannelId, messages: Sequence[bytes], now: float) -> list[Effect]:
        """Several messages that arrived at once, in their order: the same as `receive_message` for each, where nothing
        is done about one before the next. What clients of HTTP are told may be ordered as `SendEvents`."""
        desk = self._desk
        if now < desk.now:
            raise _backwards(now, desk.now)
        desk.now, desk.source = now, channel
        if len(messages) == 1 and self._short.receive_answer(channel, messages[0]):
            effects, desk.out = desk.out, []
            return effects
        at, channels = 0, self._servers.channels
        while at < len(messages):
            row, role = row_at(messages, at), desk.role_if_open(channel)
            stop = at + (1 if row is None else len(row.messages))
            if row is None or not isinstance(role, _SPEAKING_ROLES) or not channels.receive_progress(role, row):
                for message in messages[at:stop]:
                    self._hear(channel, message)
            at = stop
        effects, desk.out = desk.out, []
        return effects

    def receive_pieces(self, channel: ChannelId, pieces: tuple[bytes, ...], now: float) -> list[Effect]:
        """`receive_message`, of a large one that its reader has not joined."""
        self._begin(now, channel)
        role = self._desk.role_if_open(channel)
        if isinstance(role, UPSTREAM_ROLES) and not envelope.is_marked(pieces):
            self._servers.channels.receive_pieces(role, channel, pieces)
        else:
            self._hear(channel, b"".join(pieces))
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
        """A part of a message that `passes`; with the first, that the channel is open, and with the last, how it ended.

        Args:
            pieces: with the first part, the first of them holds the `beginning` that `passes` was asked about.
            size_bytes: of the whole message, with its first part, and with no other.

        Raises:
            LocalProtocolError: this message does not pass, or is larger than was said. Nothing has changed.
        """
        passing, role = self._servers.passing, self._desk.role_if_open(channel)
        passing.check(channel, role, pieces, size_bytes)
        self._begin(now, channel)
        self._desk.ends_source = cause is not None
        if opening is not None:
            self._open(channel, opening)
        if isinstance(role, UpPostRole):
            passing.receive_first(role, pieces, size_bytes) if size_bytes else passing.receive_part(role, pieces)
        self._desk.source = None
        self._desk.ends_source = False
        if cause is not None:
            self._close(channel, cause)
        return self._effects()

    def receive_close(self, channel: ChannelId, cause: Cause, now: float) -> list[Effect]:
        """A channel is gone. Nothing is said of it afterwards; saying it twice does nothing."""
        self._begin(now, None)
        self._close(channel, cause)
        return self._effects()

    def receive_sent(self, channel: ChannelId, size_bytes: int, now: float) -> list[Effect]:
        """So many bytes of messages left for the peer of a channel."""
        desk = self._desk
        if now < desk.now:
            raise _backwards(now, desk.now)
        desk.now, desk.source = now, None
        desk.receive_sent(channel, size_bytes)
        effects, desk.out = desk.out, []
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
        """What is learnt of a channel in one moment: that it is open, what was said, how much has left, that it is
        gone. The same as the inputs for each of these in this order, where nothing is done about the one before the
        next."""
        desk = self._desk
        if now < desk.now:
            raise _backwards(now, desk.now)
        desk.now, desk.source = now, None
        if type(opening) is Connected and message is not None and cause is not None:
            if self._short.receive_reply(channel, opening, message, cause):
                effects, desk.out = desk.out, []
                return effects
        desk.source = channel
        desk.ends_source = cause is not None
        if opening is not None:
            self._open(channel, opening)
        if message is not None:
            self._hear(channel, message)
        desk.source = None
        desk.ends_source = False
        if size_bytes:
            desk.receive_sent(channel, size_bytes)
        if cause is not None:
            self._close(channel, cause)
        effects, desk.out = desk.out, []
        return effects

    def _open(self, channel: ChannelId, opening: Opening) -> None:
        if isinstance(opening, (Connected, Primed, Queued)):
            role = self._desk.role_of(channel)
            if isinstance(role, UPSTREAM_ROLES):
                self._servers.channels.receive_open(role, opening)
        elif isinstance(opening, PostOpening):
            if opening.server not in self._desk.servers:
                self._check_server(opening.server)
            self._posts.open_post(channel, opening)
        elif isinstance(opening, UploadOpening):
            self._counter.open_upload(channel, opening)
        elif isinstance(opening, DraftOpening):
            self._drafts.open(channel, opening)
        elif isinstance(opening, DownloadOpening):
            self._counter.open_download(channel, opening)
        else:
            self._check_server(opening.server)
            self._open_client(channel, opening)

    def _open_client(
        self,
        channel: ChannelId,
        opening: GetOpening | DeleteOpening | EventPipeOpening | MessageOpening | PipeOpening,
    ) -> None:
        if isinstance(opening, GetOpening):
            self._posts.open_stream(channel, opening)
        elif isinstance(opening, DeleteOpening):
            self._posts.open_delete(channel, opening)
        elif isinstance(opening, EventPipeOpening):
            self._pipes.open_event_pipe(channel, opening)
        elif isinstance(opening, MessageOpening):
            self._pipes.open_message(channel, opening)
        else:
            self._pipes.open_pipe(channel, opening)

    def _check_server(self, server: str) -> None:
        if server not in self._desk.servers:
            raise LocalProtocolError(f"there is no server {server!r} in the plan")

    def _hear(self, channel: ChannelId, message: bytes) -> None:
        message = message.removeprefix(envelope.MARK)
        role = self._desk.role_if_open(channel)
        if isinstance(role, PostRole):
            self._posts.receive_post(role, channel, message)
        elif isinstance(role, UPSTREAM_ROLES):
            self._servers.channels.receive_message(role, channel, message)
        elif isinstance(role, PipeRole):
            self._pipes.receive_pipe(role, channel, message)
        elif isinstance(role, MessageRole):
            self._pipes.receive_posted(role, channel, message)
        else:  # what is said of files counts after an answer too
            role = self._desk.role_of(channel)
            if isinstance(role, UploadRole):
                self._counter.receive_manifest(role, channel, message)
            elif isinstance(role, AppendRole):
                self._drafts.receive_report(role, channel, message)

    def _close(self, channel: ChannelId, cause: Cause) -> None:
        role = self._desk.release(channel)
        if isinstance(role, PostRole):
            self._posts.receive_post_close(role, channel, cause)
        elif isinstance(role, _ENDING_UPSTREAM_ROLES):
            self._servers.channels.receive_close(role, channel, cause)
        elif isinstance(role, UploadRole):
            self._counter.receive_close(role)
        elif isinstance(role, AppendRole):
            self._drafts.receive_close(role, channel)
        elif isinstance(role, StreamRole):
            self._posts.receive_stream_close(role, channel)
        elif isinstance(role, PipeRole):
            self._pipes.receive_close(role, channel)

    def receive_answer(self, ticket: Ticket, answer: StorageAnswer, now: float) -> list[Effect]:
        """A storage order was carried out, or failed. A second answer, or one that came too late, does nothing."""
        self._begin(now, None)
        self._waiting.receive_answer(ticket, answer)
        return self._effects()

    def receive_drain(self, now: float) -> list[Effect]:
        """Take no new sessions and requests from now on; what runs may finish. Subscriptions, which would not, end."""
        self._begin(now, None)
        self._desk.is_draining = True
        for session in list(self._clients.sessions.values()):
            self._legwork.listens.end_all(session)
        return self._effects()

    def receive_stop(self, now: float) -> list[Effect]:
        """End every session: each open request is answered, each upstream let go."""
        self._begin(now, None)
        self._tasking.stop()
        self._shelf.stop()
        self._desk.is_draining = True
        for session in list(self._clients.sessions.values()):
            self._legwork.listens.end_all(session)
            self._clients.close_session(session, "the proxy is shutting down", cut_off_code=OVERLOADED)
        self._drafts.stop()
        self._servers.stop()
        for channel, role in self._desk.channels():
            if isinstance(role, UploadRole):
                self._counter.stop(role, channel)
            is_left_slowly = isinstance(role, ChildRole) and role.link.leaving
            if isinstance(role, PipeRole | StreamRole | ChildRole | SpareRole | UpStreamRole) and not is_left_slowly:
                self._desk.close(channel, reason="the proxy is shutting down", code=GOING_AWAY)
        return self._effects()

    def receive_command(self, server: str, command: Command, now: float) -> list[Effect]:
        """An operator's order."""
        self._begin(now, None)
        if server not in self._desk.servers:
            raise LocalProtocolError(f"there is no server {server!r} in the plan")
        if command is not Command.START:
            self._servers.stop_server(server)
        if command is not Command.STOP:
            self._servers.start_server(server)
        return self._effects()

    def receive_task_cancel(self, id: str, now: float) -> list[Effect]:
        """An operator's order: nobody wants this task any more.

        Raises:
            LocalProtocolError: there is none, or it is over. Nothing has changed.
        """
        self._begin(now, None)
        task = self._table.tasks.get(id)
        if task is None or task.is_over:
            raise LocalProtocolError(f"there is no task {id[:40]!r}" if task is None else "the task is over already")
        self._tasking.cancel(task, "cancelled by an operator")
        return self._effects()

    def receive_file_delete(self, id: str, now: float) -> list[Effect]:
        """An operator's order: remove the upload or artifact of this id.

        Raises:
            LocalProtocolError: there is none, or a call uses it. Nothing has changed.
        """
        self._begin(now, None)
        file = next((file for file in self._shelf.report() if file.id == id), None)
        if file is None or file.pins:
            raise LocalProtocolError(f"there is no file {id[:40]!r}" if file is None else "a call uses the file")
        self._shelf.delete(file.kind, file.session, file.id)
        return self._effects()

    def handle_timeout(self, now: float) -> list[Effect]:
        """Do what is due. Early calls do nothing; afterwards the next deadline is later than `now`."""
        self._begin(now, None)
        while (due := self._desk.timers.take_due(now)) is not None:
            self._handle(*due)
        return self._effects()

    # --- Helpers ----------------------------------------------------------------------------------------------------

    def _begin(self, now: float, source: ChannelId | None) -> None:
        if now < self._desk.now:
            raise _backwards(now, self._desk.now)
        self._desk.now = now
        self._desk.source = source

    def _effects(self) -> list[Effect]:
        out, self._desk.out = self._desk.out, []
        return out

    def _forget(self, session: Session) -> None:
        """A session is about to end."""
        self._stateless.forget(session)
        self._drafts.close_session(session.sid)

    def _handle(self, purpose: str, whose: object) -> None:
        if purpose == "reply":
            self._handle_reply_timeout(whose)
        elif purpose in ("upload", "artifact"):
            assert isinstance(whose, tuple)
            self._shelf.handle_timeout("upload" if purpose == "upload" else "artifact", *whose)
        elif purpose == "ask":
            assert isinstance(whose, tuple)
            self._clients.handle_ask(*whose)
        elif purpose == "stream":
            assert isinstance(whose, tuple)
            self._clients.handle_stream(*whose)
        elif purpose == "resume":
            assert isinstance(whose, tuple)
            self._servers.handle_resume(*whose)
        elif purpose in ("round", "ack", "visit", "defer", "look", "adopt", "linked"):
            assert isinstance(whose, tuple)
            self._handle_call(purpose, *whose)
        elif purpose == "commit":
            self._streams.handle_commit()
        elif purpose == "greeting":
            assert isinstance(whose, int)
            self._pipes.handle_greeting(ChannelId(whose))
        elif purpose == "grace":
            assert isinstance(whose, int)
            self._handle_grace(ChannelId(whose))
        elif purpose == "storage":
            assert isinstance(whose, int)
            self._waiting.handle_timeout(Ticket(whose))
        else:
            assert isinstance(whose, str)
            self._handle_named(purpose, whose)

    def _handle_grace(self, channel: ChannelId) -> None:
        role = self._desk.role_of(channel)
        if isinstance(role, UpPostRole) and self._servers.passing.handle_silence(role):
            return
        self._desk.close(channel, reason="nobody waits for it any more")

    def _handle_named(self, purpose: str, whose: str) -> None:
        """What a session waits for, a parked call, or else a link."""
        parking = self._legwork.parking
        if purpose == "resources":
            self._resources.handle_change(whose)
        elif purpose == "idle":
            self._clients.handle_idle(whose)
        elif purpose == "room":
            self._shelf.make_room()
        elif purpose == "draft":
            self._drafts.handle_timeout(whose)
        elif purpose == "collect":
            parking.handle_collect(whose)
        elif purpose == "park":
            parking.handle_park(whose)
        elif purpose == "tick":
            parking.handle_tick(whose)
        elif purpose == "task":
            self._tasking.handle_end(whose)
        elif purpose == "task-tick":
            self._tasking.asking.handle_tick(whose, self._servers.tick)
        elif purpose == "task-look":
            self._servers.verbs.handle_look(whose)
        else:
            self._servers.handle_timeout(purpose, whose)

    def _handle_call(self, purpose: str, sid: str, key: ExchangeKey | int) -> None:
        """What one session waits for, or one request of it."""
        session = self._clients.by_sid(sid)
        if session is None:
            return
        if purpose == "defer":
            assert isinstance(key, int)
            self._legwork.deferring.handle_defer(session, key)
            return
        assert isinstance(key, ExchangeKey)
        if purpose == "linked":
            self._plane.handle_linked(key)
        elif purpose == "look":
            self._servers.handle_look(session, key)
        elif purpose == "adopt":
            self._tasking.handle_adopt(session, key)
        elif purpose == "round":
            self._servers.handle_round(session, key)
        elif purpose == "ack":
            self._servers.handle_ack(session, key)
        else:
            self._legwork.visits.handle_visit(sid, key)

    def _handle_reply_timeout(self, whose: object) -> None:
        assert isinstance(whose, tuple)
        sid, key = whose
        assert isinstance(key, ExchangeKey)
        session = self._clients.by_sid(sid)
        exchange = None if session is None else session.exchanges.get(key)
        if session is not None and exchange is not None:
            self._courier.time_out(session, exchange)


def _backwards(now: float, before: float) -> LocalProtocolError:
    return LocalProtocolError(f"time runs backwards: {now} after {before}")
