"""Tasks of ours: calls whose clients were told of a task, and do not wait.

A call becomes one when its client wants that, when its server does, or when it takes long; from then on it goes on with
no request of a client behind it. Its answer becomes the task's outcome, what its server asks becomes the task's
questions, and everything that would have gone to its client on the way waits, is told, or is dropped.

A handle is told once the task's record lasts, and an outcome once that does: what a client has heard of, a restart does
not take away.

What clients ask of their tasks is in `taskverbs`.

Source: 2025-11-25 basic/utilities/tasks; the tasks extension.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from . import jsonrpc, owners
from .bridge import questions, related, tasks
from .bridge.capabilities import missing
from .bridge.shapes import METHODS
from .courier import Courier
from .desk import Desk
from .effects import Headers
from .errors import INTERNAL_ERROR, OVERLOADED, RemoteProtocolError
from .exchange import Exchange, ExchangeKey, Reply
from .ids import ChannelId
from .jsonrpc import Frame
from .moments import format_time
from .offers import tool_of
from .parking import NOT_ASKED, Parking, detached, fallback, refusal_of
from .session import Ask, Session
from .session import State as SessionState
from .task import Input, Outcome, State, Task, Wanted
from .taskrecord import StoredTask, TaskStatus
from .taskstore import TaskStore, record_of, restored

MESSAGE_MAX_CHARS: Final = 400
"""Of what is said of a state: the whole is in the outcome."""

TTL_MIN_MS: Final = 1000
"""A task that is gone before its client can look at it is of no use."""

OF_NOBODY: Final = ChannelId(0)
"""Where calls come in that no client made."""

STOPPED: Final = "the proxy was stopped while the call ran: what became of it is not known"
CANCELLED: Final = "the task was cancelled"


class Upward(Protocol):
    def reply(self, session: Session, ask: Ask, answer: Frame, headers: Headers) -> None: ...

    def expect_reply(self, session: Session, exchange: Exchange) -> None: ...


class Watched(Protocol):
    """The subscriptions of clients without sessions."""

    def tell_task(self, task: str, message: bytes) -> None: ...

    def is_watched(self, task: str) -> bool: ...


class Remotes(Protocol):
    """What servers have to do with it."""

    def is_http(self, server: str) -> bool: ...

    def leave(self, session: Session) -> None:
        """The server goes on with what it does, though the session ends."""


class Run:
    """A call that goes on.

    Attributes:
        leg: the request that is to be answered with the handle, until it is; and its id.
        outcome: what it came to, while that is being stored.
        is_left: the server goes on with it, and a later run may hear of it.
        created: what else the server said when it made a task of it.
    """

    __slots__ = ("created", "exchange", "id_raw", "is_left", "leg", "outcome", "session")

    def __init__(self, session: Session, exchange: Exchange) -> None:
        self.session = session
        self.exchange = exchange
        self.leg: Reply | None = exchange.reply
        self.id_raw = exchange.id_raw
        self.outcome: Outcome | None = None
        self.is_left = False
        self.created: bytes | None = None


class Tasking:
    """All tasks.

    Attributes:
        waiters: requests that wait for a task to be over, by its id, oldest first.
    """

    def __init__(self, desk: Desk, courier: Courier, store: TaskStore) -> None:
        self.up: Upward
        self.parking: Parking
        self.watched: Watched
        self.remotes: Remotes
        self.tell_waiters: Callable[[Task], None]
        self.forget_waiter: Callable[[Exchange], None]
        self.waiters: dict[str, list[tuple[Session, Exchange]]] = {}
        self.session_by: Callable[[str], Session | None]
        self._desk = desk
        self._courier = courier
        self._store = store
        self._tasks: dict[str, Task] = {}
        self._runs: dict[str, Run] = {}
        self._reserved: dict[ExchangeKey, Task] = {}
        self._by_owner: Counter[str] = Counter()
        self._by_sid: Counter[str] = Counter()
        self._last_ordinal = 0

    def __len__(self) -> int:
        return len(self._tasks) + len(self._runs) + len(self._reserved) + len(self._store)

    # --- Queries ----------------------------------------------------------------------------------------------------

    def all(self) -> Iterable[Task]:
        return self._tasks.values()

    def get(self, id: str) -> Task | None:
        return self._tasks.get(id)

    def run_of(self, task: Task) -> Run | None:
        return self._runs.get(task.id)

    def is_told(self, task: Task) -> bool:
        """Whether its client was given its id."""
        run = self._runs.get(task.id)
        return run is None or run.leg is None

    def report(self) -> tuple[TaskStatus, ...]:
        return tuple(self._status(task) for task in self._tasks.values())

    def _status(self, task: Task) -> TaskStatus:
        run = self._runs.get(task.id)
        return TaskStatus(
            id=task.id,
            server=task.server,
            tool=task.tool,
            kind="proxied" if task.upstream_task else "local",
            era="handshake" if task.is_legacy else "stateless",
            principal=task.principal,
            session="" if run is None else run.session.sid,
            status=task.state.value,
            message=task.message,
            created_at_unix=task.created_at_unix,
            updated_at_unix=task.updated_at_unix,
            expires_at_unix=task.expires_at_unix,
            size_bytes=task.size_bytes,
        )

    # --- A call is to become one ------------------------------------------------------------------------------------

    def reserve(self, session: Session, exchange: Exchange) -> None:
        """Keep a place for the task that a call may become.

        Raises:
            RemoteProtocolError: there is none left. Nothing has changed.
        """
        if exchange.key in self._reserved:
            return
        fault = self._full(session)
        if fault is not None:
            raise RemoteProtocolError(fault, rpc_code=OVERLOADED)
        self._reserved[exchange.key] = self._new(session, exchange)

    def _full(self, session: Session) -> str | None:
        limits = self._desk.limits
        owner = owners.owner_of(session)
        for name, limit in (
            ("tasks_max", limits.tasks_max),
            ("tasks_per_principal_max", limits.tasks_per_principal_max),
            ("tasks_per_session_max", limits.tasks_per_session_max),
        ):
            if self._used(name, owner, session.sid) < limit:
                continue
            for task in [task for task in self._tasks.values() if task.expires_at_unix <= self._desk.now_unix]:
                self._expire(task)
            if (count := self._used(name, owner, session.sid)) >= limit:
                return f"there are {count} tasks, the most allowed ({name}): wait until some are over their time"
        return None

    def _used(self, name: str, owner: str, sid: str) -> int:
        if name == "tasks_max":
            return len(self._tasks) + len(self._reserved)
        return self._by_owner[owner] if name == "tasks_per_principal_max" else self._by_sid[sid]

    def _new(self, session: Session, exchange: Exchange) -> Task:
        limits = self._desk.limits
        self._last_ordinal += 1
        ttl_ms = tasks.clamp_ttl(exchange.wish.ttl_ms, int(limits.task_ttl_s * 1000), int(limits.task_ttl_max_s * 1000))
        ttl_ms = max(ttl_ms, TTL_MIN_MS)
        task = Task(
            self._desk.mint(),
            ordinal=self._last_ordinal,
            server=session.server,
            tool=tool_of(exchange),
            owner=owners.owner_of(session),
            sid="" if session.is_stateless or session.principal else session.sid,
            principal=session.principal,
            is_legacy=not session.is_stateless,
            created_at=format_time(self._desk.now_unix),
            created_at_unix=self._desk.now_unix,
            ttl_ms=ttl_ms,
            poll_ms=int(limits.task_poll_s * 1000),
        )
        self._count(task, session.sid, 1)
        return task

    def _count(self, task: Task, sid: str, change: int) -> None:
        for counter, name in ((self._by_owner, task.owner), (self._by_sid, sid)):
            counter[name] += change
            if not counter[name]:
                del counter[name]
        task.counted_for = sid

    def adopt(self, session: Session, exchange: Exchange) -> bool:
        """A call becomes a task: its client is told so, once that lasts. False if there is no room for it.

        A client that is away for answers cannot be told anything: its call goes on as one.
        """
        if exchange.task is not None or exchange.is_over:
            return exchange.task is not None
        if _is_asked(exchange):
            return False
        try:
            self.reserve(session, exchange)
        except RemoteProtocolError as fault:
            self._desk.note("warning", f"a call goes on as one: {fault.message}", session.server)
            return False
        task = self._reserved.pop(exchange.key)
        run = Run(session, exchange)
        self._tasks[task.id], self._runs[task.id] = task, run
        exchange.task = task
        exchange.reply, exchange.id_key = detached(), ("task", task.id)
        session.adopted += 1
        self.parking.release(exchange)
        self._desk.timers.cancel(("adopt", (session.sid, exchange.key)))
        self._desk.timers.cancel(("reply", (session.sid, exchange.key)))
        self._expect_end(task)
        self._store.save(record_of(task), lambda fault: self._receive_saved(task, fault))
        return True

    def receive_answer(self, session: Session, exchange: Exchange, message: bytes) -> None:
        """A call whose client wants a task is over before it became one: a result is one's, an error is the call's."""
        if jsonrpc.decode(message).error is None:
            self.adopt(session, exchange)

    def adopt_later(self, session: Session, exchange: Exchange, pause_s: float) -> None:
        """Unless it is over by then."""
        at = self._desk.now + pause_s
        self._desk.timers.set(("adopt", (session.sid, exchange.key)), at, "call that becomes a task")

    def handle_adopt(self, session: Session, key: ExchangeKey) -> None:
        exchange = session.exchanges.get(key)
        if exchange is None or exchange.task is not None:
            return
        if _is_asked(exchange):
            self.adopt_later(session, exchange, self._desk.limits.task_after_s)
        else:
            self.adopt(session, exchange)

    def _expect_end(self, task: Task) -> None:
        at = task.expires_at_unix - self._desk.unix_at_zero
        self._desk.timers.set(("task", task.id), max(at, self._desk.now), "end of a task")

    def _receive_saved(self, task: Task, fault: str) -> None:
        """The record of a new task lasts, or cannot be made to."""
        run = self._runs.get(task.id)
        task.is_stored = task.is_stored or not fault
        if run is None or run.leg is None:
            return
        leg, run.leg = run.leg, None
        if fault:
            text = f"no task could be made of the call: {fault}"
            message = jsonrpc.encode_error(run.id_raw, INTERNAL_ERROR, text)
            self._courier.close(run.session, leg, message)
            self._cancel(task, text)
            self._remove(task)
            return
        shown = self._shape(task, state=State.WORKING)
        if task.is_legacy:
            result = tasks.legacy_created(shown)
            if run.created is not None:
                result = run.created[:-1] + b"," + result[1:]
        else:
            result = tasks.modern_created(shown)
        self._courier.close(run.session, leg, jsonrpc.encode_result(run.id_raw, result))
        if run.outcome is not None:
            self._keep(task, run)
        elif task.state is not State.WORKING:
            self._tell(task)

    def hang_up(self, session: Session, exchange: Exchange, reply: Reply) -> None:
        """The client of a call is gone. If it was not told of the task yet, it never will be."""
        task = exchange.task
        run = None if task is None else self._runs.get(task.id)
        if task is not None and run is not None and run.leg is reply:
            self._cancel(task, "its client was gone before it was told")
            self._remove(task)

    # --- From the server --------------------------------------------------------------------------------------------

    def receive_handle(self, session: Session, exchange: Exchange, created: tasks.Task, result: bytes) -> None:
        """The server made a task of a call."""
        wish = exchange.wish
        if wish.is_asked or wish.knows_tasks:
            self.adopt(session, exchange)
        task = exchange.task
        if task is None:
            return
        ttl_max_ms = int(self._desk.limits.task_ttl_max_s * 1000)
        task.ttl_ms = ttl_max_ms if created.ttl_ms is None else min(created.ttl_ms, ttl_max_ms)
        task.expires_at_unix = task.created_at_unix + task.ttl_ms / 1000
        self._expect_end(task)
        task.upstream_task, task.is_remote = created.id, self.remotes.is_http(session.server)
        if created.poll_ms is not None:
            task.poll_ms = created.poll_ms
        task.message = created.message or ""
        run = self._runs[task.id]
        if task.is_legacy and run.leg is not None:
            meta = jsonrpc.member_of(related.without_related(result), "_meta")
            if meta is not None and meta.startswith(b"{") and b"model-immediate-response" in meta:
                run.created = b'{"_meta":' + meta + b"}"
        self._store.save(record_of(task), lambda fault: None)

    def receive_status(self, session: Session, exchange: Exchange, seen: tasks.Task) -> None:
        """The server said how it fares: what that is in our words is known by its questions and its outcome."""
        task = exchange.task
        if task is None or task.is_over:
            return
        if seen.poll_ms is not None:
            task.poll_ms = seen.poll_ms
        if (seen.message or "") == task.message or seen.status in tasks.TERMINAL:
            return
        task.message = seen.message or ""
        self._touch(task)
        self._tell(task)

    def receive_progress(self, session: Session, exchange: Exchange, message: bytes) -> None:
        """Progress of a call that its client wants to hear of, while the task is under way."""
        task = exchange.task
        assert task is not None
        if not task.is_legacy or session.state is not SessionState.READY:
            return
        params = related.with_related(related.without_related(jsonrpc.decode(message).params), task.id)
        method = "notifications/progress"
        self._courier.deliver(session, method, jsonrpc.encode_notification(method, params), self._waiter_of(task))

    def is_awaited(self, exchange: Exchange) -> bool:
        task = exchange.task
        return task is not None and (bool(self.waiters.get(task.id)) or self.watched.is_watched(task.id))

    def receive_look(self, exchange: Exchange) -> None:
        if exchange.task is not None:
            self.tell_waiters(exchange.task)

    # --- Questions --------------------------------------------------------------------------------------------------

    def ask(self, session: Session, ask: Ask, params: bytes | None, exchange: Exchange) -> None:
        """The server asks in the course of a task."""
        task = exchange.task
        assert task is not None
        try:
            refused = self._ask(session, ask, params, exchange, task)
        except RemoteProtocolError as fault:
            refused = Frame(error=jsonrpc.error_object(fault.rpc_code, fault.message))
        if refused is not None:
            number = session.record_ask(ask)
            del session.asks[number]
            self.up.reply(session, ask._replace(number=number), refused, session.headers)

    def _ask(self, session: Session, ask: Ask, params: bytes | None, exchange: Exchange, task: Task) -> Frame | None:
        """Returns what the server is told if nobody can be asked."""
        if len(task.questions) >= self._desk.limits.task_questions_max or task.is_over:
            text = f"{len(task.questions)} questions of one task are open, the most allowed"
            return Frame(error=jsonrpc.error_object(INTERNAL_ERROR, text))
        bare = related.without_related(params)
        if session.is_stateless:
            if ask.method not in METHODS:
                return Frame(error=NOT_ASKED)
            able = b"{}" if exchange.leg is None else exchange.leg.capabilities
            if missing(able, ask.method, params) is not None:
                return refusal_of(ask.method)
            entry = questions.embed(ask.method, bare, capabilities=able)
        else:
            entry = related.with_related(bare, task.id)
        number = session.record_ask(ask._replace(of_task=exchange))
        if not session.is_stateless:
            if ask.token_raw is not None:
                entry = jsonrpc.replace_progress_token(entry, b"%d" % number)
            entry = jsonrpc.encode_request(b"%d" % number, ask.method, entry)
        before = task.state
        task.receive_question(Wanted(number, ask.method, entry))
        self._desk.timers.cancel(("reply", (session.sid, exchange.key)))
        if ask.token_raw is not None:
            self._tick_later(task)
        if before is not task.state:
            self._touch(task)
            self._tell(task)
        self.put_questions(session, task)
        return None

    def put_questions(self, session: Session, task: Task) -> None:
        """The client waits for the outcome: on that request's stream it is asked what has not reached it yet."""
        if not task.is_legacy or self._waiter_of(task) is None:
            return
        for wanted in list(task.questions.values()):
            ask = session.asks.get(wanted.number)
            if ask is None:
                continue
            is_lost = (
                ask.stream is not None and ask.stream.number is None and not self._desk.is_open(ask.stream.channel)
            )
            if wanted.number not in task.told or is_lost:
                task.told.add(wanted.number)
                self._courier.put_question(session, wanted.number, wanted.entry, self._waiter_of(task))

    def _waiter_of(self, task: Task) -> Exchange | None:
        waiting = [exchange for _, exchange in self.waiters.get(task.id, []) if exchange.method == "tasks/result"]
        return waiting[-1] if waiting else None

    def receive_settled_ask(self, exchange: Exchange, number: int) -> None:
        """A question was answered, or withdrawn."""
        task = exchange.task
        if task is None or not task.receive_answer(number):
            return
        if task.state is State.WORKING:
            self._touch(task)
            self._tell(task)
            run = self._runs.get(task.id)
            if run is not None:
                self.up.expect_reply(run.session, exchange)

    def answer_questions(self, task: Task, responses: Mapping[str, bytes], headers: Headers) -> None:
        """A client without a session answers some of them.

        Raises:
            RemoteProtocolError: an answer has not the form it must have. Nothing has changed.
        """
        run = self._runs.get(task.id)
        found = [(task.questions[key], response) for key, response in responses.items() if key in task.questions]
        for wanted, response in found:
            questions.check_response(wanted.method, response)
        for wanted, response in found:
            ask = None if run is None else run.session.asks.pop(wanted.number, None)
            if ask is None or run is None:
                continue
            self.receive_settled_ask(run.exchange, wanted.number)
            self.up.reply(run.session, ask, Frame(result=response), headers or run.session.headers)

    def withdraw(self, session: Session, number: int) -> bool:
        """The server withdrew a question to a client without a session. False if it is none of a task."""
        ask = session.asks.get(number)
        if ask is None or ask.of_task is None:
            return False
        del session.asks[number]
        self.receive_settled_ask(ask.of_task, number)
        return True

    def _tick_later(self, task: Task) -> None:
        at = self._desk.now + self._desk.limits.park_tick_s
        self._desk.timers.set(("task-tick", task.id), at, "sign of life")

    def handle_tick(self, id: str, tick: Callable[[Session, Ask, int], None]) -> None:
        """Servers give up on a question after a minute or so, unless they hear of progress."""
        task, run = self._tasks.get(id), self._runs.get(id)
        if task is None or run is None or not task.questions:
            return
        for wanted in task.questions.values():
            ask = run.session.asks.get(wanted.number)
            if ask is not None and ask.token_raw is not None:
                task.ticks += 1
                tick(run.session, ask, task.ticks)
        self._tick_later(task)

    # --- The outcome ------------------------------------------------------------------------------------------------

    def receive_settled(self, session: Session, exchange: Exchange, message: bytes | None) -> None:
        """A call is over; `message` is its answer, if it has one."""
        task = exchange.task
        assert task is not None
        session.adopted -= 1
        self._drop_questions(session, exchange, task)
        run = self._runs.get(task.id)
        if run is None or message is None or task.is_over:
            return
        frame = jsonrpc.decode(message)
        if frame.error is not None:
            run.outcome = Outcome(frame.error, is_error=True)
        else:
            assert frame.result is not None
            run.outcome = Outcome(frame.result, is_error=False)
        remote = exchange.remote
        task.message = "" if remote is None or remote.status not in tasks.TERMINAL else remote.message
        if remote is not None and remote.status == "cancelled" and run.outcome.is_error:
            self._end(task, Input.CANCEL, task.message or "the server cancelled it")
        elif run.leg is None:
            self._keep(task, run)

    def _keep(self, task: Task, run: Run) -> None:
        """Store the outcome; then it is told."""
        outcome = run.outcome
        assert outcome is not None
        if len(outcome.data) <= self._desk.limits.task_inline_max_bytes:
            self._save_outcome(task, outcome, None)
            return

        def stored(blob: str | None, fault: str) -> None:
            if task.is_over or self._tasks.get(task.id) is not task:
                if blob is not None:
                    self._store.drop(blob)
            elif blob is None:
                text = f"the call ended, but what it came to could not be stored: {fault}"
                self._save_outcome(task, Outcome(jsonrpc.error_object(INTERNAL_ERROR, text), is_error=True), None)
            else:
                self._save_outcome(task, outcome, blob)

        self._store.put(task, outcome, stored)

    def _save_outcome(self, task: Task, outcome: Outcome, blob: str | None) -> None:
        how = self._how(task, outcome)
        state = {Input.RETURN: State.COMPLETED, Input.FAIL: State.FAILED}[how]

        def saved(fault: str) -> None:
            if task.is_over or self._tasks.get(task.id) is not task:
                if blob is not None:
                    self._store.drop(blob)
                return
            if fault:
                self._desk.note("warning", f"what a task came to is lost with this process: {fault}", task.server)
            task.outcome, task.is_error = outcome, outcome.is_error
            task.blob, task.size_bytes = blob, len(outcome.data)
            self._end(task, how, task.message)

        self._touch(task)
        if how is Input.FAIL:
            task.message = task.message or _summary(outcome)
        self._store.save(record_of(task, state=state, outcome=outcome, blob=blob), saved)

    def _how(self, task: Task, outcome: Outcome) -> Input:
        """2025-11-25: a tool's own error makes the task fail. The extension: only an error of the protocol does."""
        if outcome.is_error:
            return Input.FAIL
        try:
            has_failed = task.is_legacy and jsonrpc.member_of(outcome.data, "isError") == b"true"
        except RemoteProtocolError:
            has_failed = False
        return Input.FAIL if has_failed else Input.RETURN

    def _end(self, task: Task, how: Input, message: str) -> None:
        """It is over, and whoever waits hears of it."""
        task.end(how)
        task.message = message
        self._touch(task)
        self._runs.pop(task.id, None)
        if how is Input.CANCEL:
            self._store.save(record_of(task), lambda fault: None)
        self._desk.timers.cancel(("task-tick", task.id))
        self._tell(task)
        self.tell_waiters(task)
        if task.blob is not None:
            task.outcome = None

    # --- They end ---------------------------------------------------------------------------------------------------

    def cancel(self, task: Task, why: str) -> None:
        """Nobody wants it any more: the server hears of that, and everybody else that it is cancelled."""
        assert not task.is_over
        self._cancel(task, why)

    def _cancel(self, task: Task, why: str) -> None:
        if task.is_over:
            return
        run = self._runs.get(task.id)
        self._end(task, Input.CANCEL, why)
        if run is not None and not run.exchange.is_over:
            reason = msgspec.json.encode({"requestId": 0, "reason": why})
            self._drop_questions(run.session, run.exchange, task)
            self._courier.cancel(run.session, run.exchange, reason, run.session.headers)
        if run is not None and run.leg is not None:
            message = jsonrpc.encode_error(run.id_raw, INTERNAL_ERROR, f"{CANCELLED}: {why}")
            leg, run.leg = run.leg, None
            self._courier.close(run.session, leg, message)

    def _drop_questions(self, session: Session, exchange: Exchange, task: Task) -> None:
        """Whoever asked hears what a client would say that closes the form."""
        for number, ask in [(n, a) for n, a in session.asks.items() if a.of_task is exchange]:
            self._desk.timers.cancel(("ask", (session.sid, number)))
            was_told = number in task.told
            if was_told and ask.stream is not None:
                reason = msgspec.json.encode({"requestId": 0, "reason": "the task is over"})
                self._courier.unask(session, number, reason)
            session.asks.pop(number, None)
            if ask.exchange is None:  # else whoever made it a question of the client's is told that the call is over
                self.up.reply(session, ask, fallback(ask.method), session.headers)

    def handle_end(self, id: str) -> None:
        """Its time is over."""
        task = self._tasks.get(id)
        if task is not None:
            self._expire(task)

    def _expire(self, task: Task) -> None:
        self._cancel(task, "its time was over before the call was")
        self._remove(task)

    def _remove(self, task: Task) -> None:
        """It is as if it had never been."""
        if self._tasks.pop(task.id, None) is None:
            return
        self._count(task, task.counted_for, -1)
        for purpose in ("task", "task-tick"):
            self._desk.timers.cancel((purpose, task.id))
        self.tell_waiters(task)
        self._store.forget(task)

    def release(self, session: Session, exchange: Exchange) -> None:
        """A request is over: a call that became no task, or one that waited for one's."""
        if exchange.awaits is not None:
            self.forget_waiter(exchange)
        self._desk.timers.cancel(("adopt", (session.sid, exchange.key)))
        task = self._reserved.pop(exchange.key, None)
        if task is not None:
            self._count(task, task.counted_for, -1)

    def close_session(self, session: Session) -> None:
        """What runs in it is not wanted any more."""
        if not session.adopted:
            return
        for exchange in list(session.exchanges.values()):
            if exchange.task is not None:
                self._cancel(exchange.task, "its session is over")

    def stop(self) -> None:
        """The proxy is about to go. What servers do without it goes on; of the rest nobody will hear any more."""
        for task in list(self._tasks.values()):
            run = self._runs.get(task.id)
            if run is None or task.is_over:
                continue
            if task.is_remote and run.exchange.remote is not None and run.leg is None:
                run.is_left = True
                self.remotes.leave(run.session)
                del self._runs[task.id]
                self._courier.cancel(run.session, run.exchange, b'{"requestId":0}', run.session.headers)
                continue
            error = jsonrpc.error_object(INTERNAL_ERROR, STOPPED)
            task.outcome, task.is_error, task.size_bytes = Outcome(error, is_error=True), True, len(error)
            self._store.save(record_of(task, state=State.FAILED, outcome=task.outcome), lambda fault: None)
            self._end(task, Input.FAIL, STOPPED)
            if run.leg is not None:
                leg, run.leg = run.leg, None
                self._courier.close(run.session, leg, jsonrpc.encode_error_raw(run.id_raw, error))
            if not run.exchange.is_over:
                reason = msgspec.json.encode({"requestId": 0, "reason": STOPPED})
                self._courier.cancel(run.session, run.exchange, reason, run.session.headers)

    # --- Of earlier runs --------------------------------------------------------------------------------------------

    def restore(self, records: Iterable[StoredTask], servers: Iterable[str]) -> None:
        """The tasks of earlier runs. What ran in those is lost; what servers do by themselves is asked for when its
        client comes."""
        known = set(servers)
        for record in sorted(records, key=lambda each: (each.expires_at_unix - each.ttl_ms / 1000, each.id)):
            self._last_ordinal += 1
            task = restored(record, ordinal=self._last_ordinal, now_unix=self._desk.unix_at_zero)
            self._tasks[task.id] = task
            self._count(task, "", 1)
            at = task.expires_at_unix - self._desk.unix_at_zero
            self._desk.timers.set(("task", task.id), at, "end of a task")
            if not task.is_over and not (task.is_remote and task.server in known):
                text = STOPPED
                error = jsonrpc.error_object(INTERNAL_ERROR, text)
                task.outcome, task.is_error, task.size_bytes = Outcome(error, is_error=True), True, len(error)
                task.end(Input.FAIL)
                task.message = text
                self._touch(task, at_unix=self._desk.unix_at_zero)

    def take_up(self, session: Session, task: Task) -> Exchange:
        """A task that an earlier run began, and whose client is there: the exchange that it goes on as."""
        self._last_ordinal += 1
        exchange = Exchange(
            ExchangeKey(OF_NOBODY, self._last_ordinal),
            detached(),
            sid=session.sid,
            id_raw=b"0",
            id_key=("task", task.id),
            method="tools/call",
            params=msgspec.json.encode({"name": task.tool}),
            token_raw=None,
            headers=session.headers,
        )
        self._count(task, task.counted_for, -1)
        self._count(task, session.sid, 1)
        exchange.task, exchange.is_augmented = task, True
        exchange.leg = session.client if session.is_stateless else None
        session.exchanges[exchange.key] = exchange
        session.adopted += 1
        run = self._runs[task.id] = Run(session, exchange)
        run.leg = None
        return exchange

    def pass_to(self, session: Session, task: Task) -> None:
        """Its session is over: it is this one's from now on."""
        self._count(task, task.counted_for, -1)
        self._count(task, session.sid, 1)
        task.sid = session.sid
        self._store.save(record_of(task), lambda fault: None)

    # --- What is told -----------------------------------------------------------------------------------------------

    def _touch(self, task: Task, *, at_unix: float | None = None) -> None:
        """By our own clock: the server's may be another, and what is shown of a time to live goes by ours."""
        task.updated_at_unix = self._desk.now_unix if at_unix is None else at_unix
        task.updated_at = format_time(task.updated_at_unix)

    def _shape(self, task: Task, *, state: State | None = None) -> tasks.Task:
        return tasks.Task(
            id=task.id,
            status=(state or task.state).value,
            created_at=task.created_at,
            updated_at=task.updated_at,
            ttl_ms=task.ttl_ms,
            poll_ms=task.poll_ms,
            message=task.message or None,
        )

    def shown(self, task: Task) -> bytes:
        """A task as a client with a session is told it."""
        return tasks.legacy_task(self._shape(task))

    def detailed(self, task: Task, outcome: Outcome | None, *, is_result: bool) -> bytes:
        """A task as a client without one is told it."""
        shape = self._shape(task)
        is_failed = task.state is State.FAILED
        return tasks.modern_detailed(
            shape,
            questions={key: wanted.entry for key, wanted in task.questions.items()},
            result=outcome.data if outcome is not None and task.state is State.COMPLETED else None,
            error=outcome.data if outcome is not None and is_failed else None,
            is_result=is_result,
        )

    def tell_now(self, task: Task, outcome: Outcome | None) -> None:
        """Tell whoever listens to a task what is known of it."""
        if task.state in (State.COMPLETED, State.FAILED) and outcome is None:
            return
        if self.watched.is_watched(task.id):
            params = self.detailed(task, outcome, is_result=False)
            self.watched.tell_task(task.id, jsonrpc.encode_notification("notifications/tasks", params))

    def _tell(self, task: Task) -> None:
        """Its state is another, or something is said of it."""
        run = self._runs.get(task.id)
        if run is not None and run.leg is not None:
            return  # its client does not know it yet
        if not task.is_legacy:
            self.tell_now(task, task.outcome)
            return
        session = self.session_by(task.counted_for)
        if session is not None and session.state is SessionState.READY:
            method = "notifications/tasks/status"
            self._courier.deliver(session, method, jsonrpc.encode_notification(method, self.shown(task)), None)


def _is_asked(exchange: Exchange) -> bool:
    """Whether its client is, or is about to be, away for answers."""
    return exchange.waits_for_client or (exchange.park is not None and bool(exchange.park.open))


def _summary(outcome: Outcome) -> str:
    """What is said of a failure beside the failure itself."""
    try:
        if outcome.is_error:
            said = jsonrpc.text_of(jsonrpc.member_of(outcome.data, "message")) or ""
            return said[:MESSAGE_MAX_CHARS]
    except RemoteProtocolError:
        pass
    return "the tool reported an error"
