"""The hub owns the engine: it reports events to the engine and carries out its effects.

One rule keeps it free of locks: it awaits nothing between calling the engine and queueing what the engine returned.
Carrying out an effect may cause another input at once (a queue reports a message as sent). The effects of that input
are queued behind those that wait, so that all effects are carried out in the order in which the engine gave them.
"""

from __future__ import annotations

import functools
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import anyio
from anyio.abc import TaskGroup

from ...core.base.budget import Budget
from ...core.base.decisions import Decide, Decision
from ...core.base.effects import Close, Dial, Effect, Emit, Forward, Note, Pass, Pause, Resume, Send, SendEvents
from ...core.base.errors import LocalProtocolError
from ...core.base.events import Cause, Connected, End, Opening, PostOpening
from ...core.base.ids import ChannelId, Ticket
from ...core.base.limits import Limits
from ...core.base.plan import Plan
from ...core.base.storage import (
    Append,
    Cease,
    Discard,
    Forget,
    ForgetAll,
    Receive,
    Remove,
    Serve,
    StorageFailed,
    StorageOrder,
    Sweep,
)
from ...core.base.telemetry import STEPS, Detail
from ...core.bulk import BulkEngine
from ...core.state.records import FileStatus, TaskStatus
from ...core.status import Command
from ...core.wire.http.response import ENDED_ORDERLY
from ...transports.base.clock import loop_clock
from ...transports.base.driver import DRIVE, Drive
from ...transports.base.port import FileOutlet, Outlet, ReplyOutlet, RequestOutlet
from ...transports.base.tokens import TokensOf
from ...transports.http_client.client import HttpClient
from ...transports.memory import MemoryServer
from ...transports.stdio.server_process import Child
from ..base.listeners import Listener
from ..disk.workspaces import Workspaces
from .upstreams import UpstreamAddress, Upstreams

STORAGE_GRACE_S: Final = 10.0
"""The time, once everything else has stopped, that remaining storage orders may take. The next start removes what is
left then."""

_log = logging.getLogger("isthmus.hub")
_audit = logging.getLogger("isthmus.audit")


class Hub:
    """A `transports.port.Port` over one engine.

    Args:
        make_engine: called once, inside the event loop, with the wall time at which the engine's clock was 0.
        upstreams: the address of each server of the plan.
        log_server: called as (server, line) with each line that a child writes to stderr, and with other notes about a
            server.
        drive: the way in which all transports move their bytes.
        tokens: the tokens for servers that want them, by id and principal.
        listeners: called with each telemetry event that the plan asks for.
        wall_time: returns the wall time, in seconds since 1970. Read once.
        decide: decides about a request by calling the function that it gets, at once or later. For plans with servers
            that have `decides`.

    Attributes:
        events_lost: events that a listener failed to receive.
    """

    def __init__(
        self,
        make_engine: Callable[[float], BulkEngine],
        plan: Plan,
        upstreams: Mapping[str, UpstreamAddress | tuple[UpstreamAddress, ...]],
        workspaces: Workspaces,
        limits: Limits,
        *,
        log_server: Callable[[str, str], None],
        drive: Drive = DRIVE,
        tokens: Mapping[str, TokensOf] = MappingProxyType({}),
        listeners: Sequence[Listener] = (),
        wall_time: Callable[[], float] = time.time,
        decide: Callable[[Decide, Callable[[Decision], None]], None] | None = None,
    ) -> None:
        self.events_lost = 0
        self._listeners = [listener.receive for listener in listeners]
        self._step_listeners = [listener.receive for listener in listeners if listener.detail >= Detail.STEPS]
        self._wall_time = wall_time
        self._decide = decide
        self.drive = drive
        self._tokens = tokens
        self._make_engine = make_engine
        self._plan = {server.id: server for server in plan.servers}
        self._upstreams = dict(upstreams)
        self._workspaces = workspaces
        self._limits = limits
        self._log_server = log_server
        self._outlets: dict[ChannelId, Outlet] = {}
        self._owners: dict[ChannelId, str] = {}  # whose process a channel is
        self._effects: deque[Effect] = deque()
        self._is_applying = False
        self._storing = 0  # storage orders under way
        self._alarm_at = float("inf")
        self._alarm = anyio.Event()
        self._all_done = anyio.Event()
        self._change: anyio.Event | None = None  # set once a task waits for a change
        self._now: Callable[[], float]
        self._unix_at_zero: float
        self._engine: BulkEngine
        self._tasks: TaskGroup
        self._servers: Upstreams

    @property
    def engine(self) -> BulkEngine:
        return self._engine

    @property
    def child_pids(self) -> list[int]:
        """The ids of the server processes that run now."""
        return [pid for server in self._plan for pid in self.pids_of(server)]

    def pids_of(self, server: str) -> list[int]:
        """The ids of the processes of a server that run now, those that are ending included."""
        return [child.pid for child in self._children_of(server) if child.pid is not None]

    def process_count(self, server: str) -> int:
        """The number of processes of a server, those that are being started included."""
        return len(self._children_of(server))

    def _children_of(self, server: str) -> list[Child]:
        outlets = [self._outlets[channel] for channel, owner in self._owners.items() if owner == server]
        return [outlet for outlet in outlets if isinstance(outlet, Child)]

    def now(self) -> float:
        """The engine's clock."""
        return self._now()

    def now_unix(self) -> float:
        """The wall time, in seconds since 1970, as the engine counts it."""
        return self._unix_at_zero + self._now()

    def order(self, server: str, command: Command) -> None:
        """Starts, stops or restarts a server, by order of an operator."""
        self._apply(self._engine.receive_command(server, command, self._now()))

    def tasks(self) -> tuple[TaskStatus, ...]:
        """All tasks, the oldest first."""
        return self._engine.tasks()

    def task(self, id: str) -> TaskStatus | None:
        """The task of this id; None if there is none."""
        return self._engine.task(id)

    def cancel_task(self, id: str) -> None:
        """Cancels a task, by order of an operator.

        Raises:
            LocalProtocolError: there is no such task, or it is over.
        """
        self._apply(self._engine.receive_task_cancel(id, self._now()))

    def files(self) -> tuple[FileStatus, ...]:
        """All stored files, the most recently used last."""
        return self._engine.files()

    def delete_file(self, id: str) -> None:
        """Removes a stored file, by order of an operator.

        Raises:
            LocalProtocolError: there is no such file, or a call uses it.
        """
        self._apply(self._engine.receive_file_delete(id, self._now()))

    def receive_records(self, records: Sequence[tuple[str, bytes | None]]) -> None:
        """Reports records that other replicas have written, or, with None, removed."""
        if not self._all_done.is_set():
            self._apply(self._engine.receive_records(records, self._now()))

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Runs until `stop` is through, or until cancelled. Every server is left then."""
        self._now = loop_clock()
        self._unix_at_zero = self._wall_time() - self._now()
        self._engine = self._make_engine(self._unix_at_zero)
        replies = Budget(self._limits.replies_max_bytes, self._limits.replies_per_server_max_bytes)
        client = HttpClient(self._limits, protocols=self.drive.protocols, only_h11=self.drive.only_h11, replies=replies)
        async with client, anyio.create_task_group() as self._tasks:
            self._servers = Upstreams(
                self._plan,
                self._upstreams,
                self._workspaces,
                self._limits,
                self,
                client,
                replies,
                log_server=self._log_server,
                protocols=self.drive.protocols,
                tokens=self._tokens,
            )
            self._tasks.start_soon(self._ring)
            task_status.started()
            await self._all_done.wait()
            self._tasks.cancel_scope.cancel()

    async def stop(self, grace_s: float) -> None:
        """Drains, then leaves every server and ends `run`."""
        await self.drain(grace_s)
        # Children close their stdin, then get TERM, then KILL: each of these takes stop_grace_s at most.
        with anyio.move_on_after(3 * self._limits.stop_grace_s + 2):
            while self._outlets:
                await self._wait_change()
        # What sessions leave is removed only when their servers are gone: files that users uploaded among it.
        with anyio.move_on_after(STORAGE_GRACE_S):
            while self._storing:
                await self._wait_change()
        self._all_done.set()

    async def drain(self, grace_s: float) -> None:
        """Refuses new work, lets open requests finish within `grace_s`, then ends every session. Safe to call again."""
        self._apply(self._engine.receive_drain(self._now()))
        with anyio.move_on_after(grace_s):
            await self.wait_idle()
        self._apply(self._engine.receive_stop(self._now()))

    async def wait_idle(self) -> None:
        """Returns when no client waits for a response."""
        await self.wait_until(lambda: not self._engine.exchange_count)

    async def wait_answered(self, channel: ChannelId) -> None:
        """Returns when the client of a pipe waits for no response."""
        await self.wait_until(lambda: not self._engine.owes(channel))

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        """Returns when `holds` is True of the engine, or of what was dialled."""
        while not holds():
            await self._wait_change()

    async def _wait_change(self) -> None:
        if self._change is None:
            self._change = anyio.Event()  # one for all who wait
        await self._change.wait()

    def _tell_change(self) -> None:
        if self._change is not None:
            self._change.set()
            self._change = None

    # --- The port ---------------------------------------------------------------------------------------------------

    def open(self, opening: Opening, outlet: Outlet) -> ChannelId:
        channel = self._engine.new_channel()
        effects = self._engine.receive_open(channel, opening, self._now())
        self._outlets[channel] = outlet
        self._apply(effects)
        return channel

    def posted(self, opening: PostOpening, message: bytes, outlet: Outlet) -> ChannelId:
        channel = self._engine.new_channel()
        effects = self._engine.receive_at_once(channel, self._now(), opening=opening, message=message)
        self._outlets[channel] = outlet
        self._apply(effects)
        return channel

    def opened(self, channel: ChannelId, opening: Opening) -> None:
        if channel in self._outlets:
            self._apply(self._engine.receive_open(channel, opening, self._now()))

    def message(self, channel: ChannelId, message: bytes) -> None:
        self._apply(self._engine.receive_message(channel, message, self._now()))

    def arrived(self, channel: ChannelId, messages: Sequence[bytes]) -> None:
        self._apply(self._engine.receive_messages(channel, messages, self._now()))

    def pieces(self, channel: ChannelId, pieces: tuple[bytes, ...]) -> None:
        self._apply(self._engine.receive_pieces(channel, pieces, self._now()))

    def passes(self, channel: ChannelId, beginning: bytes, size_bytes: int) -> bool:
        return self._engine.passes(channel, beginning, size_bytes)

    def part(
        self,
        channel: ChannelId,
        pieces: tuple[bytes, ...],
        *,
        opening: Connected | None = None,
        size_bytes: int = 0,
        is_last: bool = False,
    ) -> None:
        cause = ENDED_ORDERLY if is_last else None
        if (self._outlets.pop(channel, None) if is_last else self._outlets.get(channel)) is not None:
            now = self._now()
            self._apply(
                self._engine.receive_part(channel, pieces, now, opening=opening, size_bytes=size_bytes, cause=cause)
            )

    def replied(self, channel: ChannelId, opening: Connected, message: bytes | None) -> None:
        if self._outlets.pop(channel, None) is not None:
            now = self._now()
            self._apply(
                self._engine.receive_at_once(channel, now, opening=opening, message=message, cause=ENDED_ORDERLY)
            )

    def sent(self, channel: ChannelId, size_bytes: int) -> None:
        self._apply(self._engine.receive_sent(channel, size_bytes, self._now()))

    def delivered(self, channel: ChannelId, size_bytes: int) -> None:
        if self._outlets.pop(channel, None) is not None:
            now = self._now()
            self._apply(self._engine.receive_at_once(channel, now, size_bytes=size_bytes, cause=ENDED_ORDERLY))

    def closed(self, channel: ChannelId, cause: Cause) -> None:
        if self._outlets.pop(channel, None) is not None:
            self._owners.pop(channel, None)
            self._apply(self._engine.receive_close(channel, cause, self._now()))

    # --- Effects ----------------------------------------------------------------------------------------------------

    def _apply(self, effects: list[Effect]) -> None:
        queue = self._effects
        queue.extend(effects)
        effects.clear()  # the engine keeps this list until its next input, and with it every message
        if self._is_applying:
            return
        if queue:
            self._is_applying = True
            try:
                while queue:
                    self._carry_out(queue.popleft())
            finally:
                self._is_applying = False
        if self._change is not None:
            self._tell_change()
        if self._engine.earliest_at < self._alarm_at:
            self._alarm.set()

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            outlet = self._outlets.get(effect.channel)
            if outlet is not None:
                outlet.send(effect)
            return
        if isinstance(effect, Emit):
            event = effect.event
            for receive in self._step_listeners if type(event) in STEPS else self._listeners:
                try:
                    receive(event)
                except Exception:  # a defect in one must not take any session with it, nor fill the log
                    self.events_lost += 1
                    if self.events_lost == 1:
                        _log.exception("a telemetry event could not be received")
            return
        if isinstance(effect, SendEvents):
            reply: ReplyOutlet | None = self._outlets.get(effect.channel)  # type: ignore[assignment]
            if reply is not None:
                reply.send_events(effect)
            return
        if isinstance(effect, Dial):
            self._dial(effect)
            return
        match effect:
            case Pass():
                reply_outlet: ReplyOutlet | None = self._outlets.get(effect.channel)  # type: ignore[assignment]
                if reply_outlet is not None:
                    reply_outlet.pass_on(effect)
            case Close():
                outlet = self._outlets.get(effect.channel)
                if outlet is not None:
                    outlet.close(effect)
            case Forward():
                request_outlet: RequestOutlet | None = self._outlets.get(effect.channel)  # type: ignore[assignment]
                if request_outlet is not None:
                    request_outlet.forward(effect)
            case Pause() | Resume():
                outlet = self._outlets.get(effect.channel)
                if outlet is not None:
                    outlet.pause() if isinstance(effect, Pause) else outlet.resume()
            case Decide():
                assert self._decide is not None
                self._decide(effect, functools.partial(self._receive_decision, effect.ticket))
            case Note():
                level = logging.getLevelNamesMapping()[effect.level.upper()]
                log = _audit if effect.is_audit else _log
                log.log(level, "%s: %s" if effect.server else "%s%s", effect.server, effect.text)
            case Receive() | Append() | Cease() | Serve():
                self._carry_out_file_order(effect)
            case _:
                assert isinstance(effect, StorageOrder), effect
                self._storing += 1
                self._tasks.start_soon(self._store, effect)

    def _receive_decision(self, ticket: Ticket, decision: Decision) -> None:
        self._apply(self._engine.receive_answer(ticket, decision, self._now()))

    def _carry_out_file_order(self, effect: Receive | Append | Cease | Serve) -> None:
        outlet = self._outlets.get(effect.channel)
        if outlet is None:
            return
        file_outlet: FileOutlet = outlet  # type: ignore[assignment]  # only HTTP file requests are ordered this
        match effect:
            case Receive():
                file_outlet.receive(effect)
            case Append():
                file_outlet.append(effect)
            case Cease():
                file_outlet.cease(effect)
            case Serve():
                file_outlet.serve(effect)

    def _dial(self, order: Dial) -> None:
        channel = order.channel
        try:
            outlet, run = self._servers.reach(order.target, channel)
        except LocalProtocolError as error:  # what a peer said is to go into a header, and cannot
            cause = Cause(End.UNREACHABLE, str(error), unsent=True)
            self._apply(self._engine.receive_close(channel, cause, self._now()))
            return
        self._outlets[channel] = outlet
        if isinstance(outlet, Child):
            self._owners[channel] = order.target.server
        elif isinstance(outlet, MemoryServer):
            outlet.connect(channel)
        if run is not None:
            self._tasks.start_soon(self._look_after, run, channel)

    async def _look_after(self, run: Callable[[], Awaitable[None]], channel: ChannelId) -> None:
        try:
            await run()
        except Exception:  # a defect met with one server must not take the others with it
            _log.exception("a server could not be looked after")
            self.closed(channel, Cause(End.BROKEN, "internal error"))

    async def _store(self, order: StorageOrder) -> None:
        try:
            answer = await self._workspaces.carry_out(order)
        except Exception:  # a defect met with one order must not take every session with it
            _log.exception("%s failed", type(order).__name__)
            answer = StorageFailed("internal error")
        finally:
            self._storing -= 1
        try:
            if answer is not None and not isinstance(order, Forget | ForgetAll | Discard | Remove | Sweep):
                self._apply(self._engine.receive_answer(order.ticket, answer, self._now()))
        except Exception:
            _log.exception("the answer to %s could not be taken in", type(order).__name__)
        finally:
            self._tell_change()

    # --- Time -------------------------------------------------------------------------------------------------------

    async def _ring(self) -> None:
        """Calls the engine at its deadlines; sleeps until the earliest."""
        while True:
            self._alarm = anyio.Event()
            deadline = self._engine.next_timeout()
            self._alarm_at = float("inf") if deadline is None else deadline.at
            while True:
                with anyio.move_on_at(self._alarm_at):
                    await self._alarm.wait()
                if not self._alarm.is_set():
                    break
                # What is due sooner may be off before that: at the latest then it is looked at again.
                self._alarm = anyio.Event()
                self._alarm_at = min(self._alarm_at, self._engine.earliest_at)
            if self._now() >= self._alarm_at:
                try:
                    self._apply(self._engine.handle_timeout(self._now()))
                except Exception:  # a mistake of ours over one session must not end the others; what was due is off
                    _log.exception("a deadline could not be handled")
