"""The audit log: who used what, who was rejected, and what operators ordered.

Records are made where things happen and wait in a queue. A thread writes all that wait together. With
`on_failure: refuse` each request waits for its own record: the records of requests that come meanwhile are written, and
brought to the disk, in one step.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, NamedTuple, Protocol

import anyio
import msgspec
from anyio import CapacityLimiter, to_thread

from ...core.base.decisions import Allowed, Decide, Decision, Denied
from ...core.base.storage import Serve
from ...core.base.telemetry import (
    NAME_MAX_CHARS,
    Outcome,
    RequestEnded,
    RequestKey,
    RequestSent,
    RequestStarted,
    TelemetryEvent,
)
from ...core.base.timestamps import format_time
from ...core.wire.http.admin_routes import Page
from ...core.wire.http.routes import PageRoute, Refused
from ...transports.http_server.shared import DENIED, Pages
from ..base.errors import StartError
from ..base.tags import tag_of
from ..config import audit_settings
from ..config.audit_checks import syslog_address
from .audit_file import AuditFile
from .audit_records import (
    TEXT_MAX_CHARS,
    CommandRecord,
    DeniedRecord,
    NoteRecord,
    Record,
    RequestRecord,
    Said,
    encode,
    read_params,
    read_started,
)
from .syslog import Syslog

QUEUE_MAX_BYTES: Final = 16 * 1024 * 1024
"""Bytes of records that wait to be written: some seconds of requests at full speed. At it: a further record counts as
one that cannot be written."""
OPEN_MAX: Final = 100_000
"""Requests that are known to be open: more than all sessions may have. At it: the oldest is forgotten, and its record
has less."""
GATHER_S: Final = 0.05
"""Seconds that a record for which nobody waits may wait for others, to be written in one step with them."""
CLOSE_TIMEOUT_S: Final = 10.0
"""Seconds that the last records may take to be written when Isthmus ends. At it: they are lost."""
TOLD_EVERY_S: Final = 60.0
"""Seconds between two lines of the log about records that are lost."""

QUIET: Final = frozenset({"initialize", "logging/setLevel", "ping", "server/discover"})
"""Methods without a record, beside those of lists, unless the gateway rejects them: they use nothing of a server."""
COMMANDS: Final = frozenset({Page.START, Page.STOP, Page.RESTART, Page.CANCEL, Page.DELETE, Page.REVOKE})
"""The pages whose use is a command of an operator."""
_OF_SECRET_IDS: Final = frozenset({Page.CANCEL, Page.DELETE})

LOGGER: Final = "isthmus.audit"
_log: Final = logging.getLogger("isthmus.server")


class Target(Protocol):
    """The place to which records are written."""

    name: str

    def open(self) -> None: ...

    def close(self) -> None: ...

    def write(self, lines: list[bytes]) -> None:
        """Writes lines, and removes those that are written from the list. Called in a thread.

        Raises:
            OSError: the lines that are left in the list are not written.
        """


class _Waiting(NamedTuple):
    """A request that waits for its record to be on the disk."""

    order: Decide
    id: str
    answer: Callable[[Decision], None]


class _Open(msgspec.Struct):
    """A request that has not ended."""

    said: Said
    at_unix: float
    client: str
    session: str
    server: str
    address: str
    id: str = ""
    servers: tuple[str, ...] = ()
    attempts: int = 0


class Audit:
    """The audit log of one process.

    Args:
        replica: the tag of the replica among several; "" if it is alone.
        worker: the tag of the process among several workers; "" if it is alone.

    Attributes:
        failures: the number of records that could not be written.
    """

    def __init__(
        self,
        settings: audit_settings.Audit,
        target: Target,
        *,
        replica: str = "",
        worker: str = "",
        wall_time: Callable[[], float] = time.time,
    ) -> None:
        self.failures = 0
        self.refuses = settings.on_failure == "refuse"
        self._arguments = settings.arguments
        self._target = target
        self._wall_time = wall_time
        self._tags = replica, worker
        self._run = os.urandom(4).hex()
        self._count = 0
        self._open: dict[RequestKey, _Open] = {}
        self._recorded: dict[RequestKey, str] = {}  # ids of records of requests that start when they are allowed
        self._lines: list[bytes] = []
        self._waiting: list[_Waiting] = []
        self._size_bytes = 0
        self._news = anyio.Event()
        self._is_hurried = anyio.Event()
        self._is_closed = False
        self._is_idle = False
        self._second = -1, ""
        self._is_failing = False
        self._told_at = -TOLD_EVERY_S
        self._thread = threading.get_ident()
        self._handlers: dict[type[TelemetryEvent], Callable[..., None]] = {
            RequestStarted: self._receive_started,
            RequestSent: self._receive_sent,
            RequestEnded: self._receive_ended,
        }

    # --- Requests ---------------------------------------------------------------------------------------------------

    def receive(self, event: TelemetryEvent) -> None:
        """Takes an event. It needs those of `Detail.STEPS`."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    def _receive_started(self, event: RequestStarted) -> None:
        if len(self._open) >= OPEN_MAX:
            del self._open[next(iter(self._open))]
        self._open[event.request] = _Open(
            read_started(event, self._arguments),
            self._wall_time(),
            event.client,
            tag_of(event.session),
            event.server,
            event.address,
            self._recorded.pop(event.request, ""),
        )

    def _receive_sent(self, event: RequestSent) -> None:
        found = self._open.get(event.request)
        if found is not None:
            found.attempts += 1
            if event.server not in found.servers:
                found.servers += (event.server,)

    def _receive_ended(self, event: RequestEnded) -> None:
        found = self._open.pop(event.request, None)
        attempts = 0 if found is None else found.attempts
        if is_quiet(event.method) and (event.outcome is not Outcome.ERROR or attempts):
            return
        if found is None:
            said, id, at_unix = Said(target=event.target), self._next_id(), self._wall_time() - event.duration_s
        else:
            said, id, at_unix = found.said, found.id or self._next_id(), found.at_unix
        is_recorded = found is not None and found.id != ""  # with its arguments
        self._put(
            RequestRecord(
                time=self._format(at_unix),
                event="request",
                id=id,
                replica=self._tags[0],
                worker=self._tags[1],
                principal=event.principal[:TEXT_MAX_CHARS],
                address="" if found is None else found.address,
                client=event.client,
                session=tag_of(event.session),
                server=event.server,
                method=event.method,
                target=said.target,
                task=said.task,
                argument_bytes={} if is_recorded else said.argument_bytes,
                arguments_more=0 if is_recorded else said.arguments_more,
                arguments=None if is_recorded else said.arguments,
                trace_id=said.trace_id,
                outcome=event.outcome.value.replace(" ", "_"),
                code=event.code,
                servers=() if found is None else found.servers,
                attempts=attempts,
                duration_ms=round(event.duration_s * 1000, 3),
                request_bytes=event.params_bytes,
                result_bytes=event.result_bytes,
            )
        )

    def decide(self, order: Decide, answer: Callable[[Decision], None]) -> None:
        """Records the start of a request. Answers when that is on the disk, or cannot be brought there."""
        if is_quiet(order.method):
            answer(Allowed())
            return
        found = self._open.get(order.request)
        if found is None:  # it starts only when it is allowed
            said = read_params(order.method, order.params, self._arguments)
        else:
            said = found.said
        record = RequestRecord(
            time=self._format(self._wall_time() if found is None else found.at_unix),
            event="started",
            id=self._next_id(),
            replica=self._tags[0],
            worker=self._tags[1],
            principal=order.principal[:TEXT_MAX_CHARS],
            address=order.address,
            client=said.client if found is None else found.client,
            session="" if found is None else found.session,
            server=order.server if found is None else found.server,
            method=order.method[:NAME_MAX_CHARS],
            target=said.target,
            task=said.task,
            argument_bytes=said.argument_bytes,
            arguments_more=said.arguments_more,
            arguments=said.arguments,
            trace_id=said.trace_id,
            request_bytes=0 if order.params is None else len(order.params),
        )
        if found is not None:
            found.id = record.id
        waiting = _Waiting(order, record.id, answer)
        if self._put(record):
            self._waiting.append(waiting)
            self._is_hurried.set()
        else:
            answer(self._refusal(order, "too many records wait to be written"))

    def _refusal(self, order: Decide, why: str) -> Denied:
        return Denied(f"{order.method[:NAME_MAX_CHARS]} did not run: the audit log cannot be written ({why})")

    # --- Everything else --------------------------------------------------------------------------------------------

    def receive_log(self, record: logging.LogRecord) -> None:
        """Takes a record of the logger `isthmus.audit`."""
        at, id, (replica, worker) = self._format(record.created), self._next_id(), self._tags
        denied = getattr(record, DENIED, None)
        if denied is None:
            text, level = record.getMessage()[:TEXT_MAX_CHARS], record.levelname.lower()
            self._put(
                NoteRecord(
                    time=at,
                    event="note",
                    id=id,
                    replica=replica,
                    worker=worker,
                    principal="",
                    level=level,
                    text=text,
                )
            )
            return
        method, path, address, reason = (each[:TEXT_MAX_CHARS] for each in denied)
        self._put(
            DeniedRecord(
                time=at,
                event="denied",
                id=id,
                replica=replica,
                worker=worker,
                principal="",
                address=address,
                http_method=method,
                path=path,
                reason=reason,
            )
        )

    def pages(self, pages: Pages) -> Pages:
        """Returns pages with a record for each command of an operator."""

        async def answer(route: PageRoute, body: bytes) -> Refused | Serve:
            if route.page not in COMMANDS:
                return await pages(route, body)
            at_unix, status = self._wall_time(), 0
            try:
                found = await pages(route, body)
                status = found.status if isinstance(found, Refused) else 200
                return found
            finally:
                self._record_command(route, at_unix, status)

        return answer

    def _record_command(self, route: PageRoute, at_unix: float, status: int) -> None:
        target = route.query.get("name", "") if route.page is Page.REVOKE else route.id
        self._put(
            CommandRecord(
                time=self._format(at_unix),
                event="command",
                id=self._next_id(),
                replica=self._tags[0],
                worker=self._tags[1],
                principal=route.identity.principal[:TEXT_MAX_CHARS],
                command=route.page.value,
                target=target[:TEXT_MAX_CHARS] if route.page not in _OF_SECRET_IDS else tag_of(target),
                status=status,
            )
        )

    # --- Writing ----------------------------------------------------------------------------------------------------

    def _format(self, at_unix: float) -> str:
        """Returns a time as `format_time` does. Most times are within the second of the last one."""
        at_ms = round(at_unix * 1000)
        second, ms = divmod(at_ms, 1000)
        if second != self._second[0]:
            self._second = second, format_time(second).removesuffix("000Z")
        return f"{self._second[1]}{ms:03}Z"

    def _next_id(self) -> str:
        self._count += 1
        return f"{self._run}-{self._count}"

    def _put(self, record: Record) -> bool:
        """Queues a record. Returns False if there is no room for it."""
        line = encode(record)
        if self._size_bytes + len(line) > QUEUE_MAX_BYTES:
            self._count_failures(1, "records come faster than they can be written")
            return False
        self._lines.append(line)
        self._size_bytes += len(line)
        if self._is_idle and threading.get_ident() == self._thread:
            self._is_idle = False
            self._news.set()
        return True

    async def run(self) -> None:
        """Writes records, until `close` is called and all are written."""
        limiter = CapacityLimiter(1)  # others may take all threads of the process, and wait
        while not self._is_closed or self._lines:
            if not self._lines:
                self._news, self._is_idle = anyio.Event(), True
                await self._news.wait()
            if not self._waiting and not self._is_closed:
                self._is_hurried = anyio.Event()
                with anyio.move_on_after(GATHER_S):
                    await self._is_hurried.wait()
            lines, waiting = self._lines, self._waiting
            self._lines, self._waiting, self._size_bytes = [], [], 0
            if lines:
                why = await to_thread.run_sync(self._write, lines, limiter=limiter, abandon_on_cancel=True)
                self._receive_written(lines, waiting, why)

    def _write(self, lines: list[bytes]) -> str:
        """Writes lines, in a thread. Returns why that failed; "" if it did not."""
        try:
            self._target.write(lines)
        except OSError as error:
            return error.strerror or str(error) or type(error).__name__
        return ""

    def _receive_written(self, left: list[bytes], waiting: list[_Waiting], why: str) -> None:
        if why:
            self._count_failures(len(left), why)
        elif self._is_failing:
            self._is_failing = False
            _log.warning("the audit log %s is written again; %d records are lost", self._target.name, self.failures)
        for order, id, answer in waiting:
            found = self._open.get(order.request)
            if why:
                if found is not None:
                    found.id = ""
                answer(self._refusal(order, why))
            elif found is not None:
                found.said.arguments = None
                answer(Allowed())
            else:
                self._recorded[order.request] = id
                answer(Allowed())
                self._recorded.pop(order.request, None)  # it continues a call that has started before

    def _count_failures(self, count: int, why: str) -> None:
        self.failures += count
        self._is_failing = True
        now = time.monotonic()
        if now - self._told_at >= TOLD_EVERY_S:
            self._told_at = now
            what = "requests are rejected" if self.refuses else "records are lost"
            _log.error("the audit log %s cannot be written (%s): %s", self._target.name, why, what)

    def close(self) -> None:
        """Lets `run` end when all records are written."""
        self._is_closed = True
        self._news.set()
        self._is_hurried.set()


def is_quiet(method: str) -> bool:
    """True if requests of a method have no record."""
    return method in QUIET or method.endswith("/list")


class _Handler(logging.Handler):
    """Hands the records of a logger to the audit log, and to the logger above it, whose level counts there."""

    def __init__(self, audit: Audit, above: logging.Logger | None) -> None:
        super().__init__()
        self._audit = audit
        self._above = above

    def emit(self, record: logging.LogRecord) -> None:
        self._audit.receive_log(record)
        if self._above is not None and self._above.isEnabledFor(record.levelno):
            self._above.handle(record)


@contextlib.contextmanager
def _listening(audit: Audit) -> Iterator[None]:
    """Records what the logger `isthmus.audit` gets, whatever the level of the log."""
    logger = logging.getLogger(LOGGER)
    before = logger.level, logger.propagate
    handler = _Handler(audit, logger.parent if logger.propagate else None)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]


@contextlib.asynccontextmanager
async def opened_audit(settings: audit_settings.Audit, replica: str, worker: str) -> AsyncIterator[Audit]:
    """Opens the audit log. When the context is left, all records are written.

    Raises:
        StartError: its file cannot be written.
    """
    address = None if settings.syslog is None else syslog_address(settings.syslog)
    target: Target
    if address is not None:
        target = Syslog(address)
    else:
        assert settings.file is not None
        target = AuditFile(settings.file, is_durable=settings.on_failure == "refuse")
    try:
        await to_thread.run_sync(target.open)
    except OSError as error:
        fix = "; make its folder, and let the user of Isthmus write there" if error.errno else ""
        raise StartError(f"the audit log {target.name} cannot be written: {error.strerror}{fix}") from None
    audit = Audit(settings, target, replica=replica, worker=worker)
    scope = anyio.CancelScope(shield=True)
    raised: Exception | None = None
    with _listening(audit):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_run, audit, scope)
            try:
                yield audit
            except Exception as error:  # which a task group would wrap
                raised = error
            finally:
                audit.close()
                scope.deadline = anyio.current_time() + CLOSE_TIMEOUT_S
    if not scope.cancelled_caught:  # else a thread still writes
        target.close()
    if raised is not None:
        raise raised


async def _run(audit: Audit, scope: anyio.CancelScope) -> None:
    with scope:
        await audit.run()
