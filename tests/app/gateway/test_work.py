"""Tests of the work of one call, counted instead of timed: a change that makes the proxy do more for each fails here.

The tests count calls of functions of the product during a fixed conversation over real sockets, and those of
coroutines among them: on asyncio a call within one era needs none. The budgets are today's numbers with some room. A
change that needs fewer lowers them, so that the next one cannot use up the gain.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Final, NamedTuple

import anyio
import isthmus.core
import pytest
from isthmus.app.config.telemetry_settings import Telemetry, Traces
from working_stub import (
    EVENTS,
    PATIENCE_S,
    Client,
    ModernStub,
    PacedStub,
    Stub,
    TellingStub,
    connected,
    connected_through_another,
)

PRODUCT: Final = tuple(
    f"{Path(isthmus.core.__file__).parent.parent / part}/" for part in ("app", "core", "storage", "transports")
)
CALLS: Final = 50
"""The number of calls counted together, so that rare work, like the Date of replies, hardly shows."""
ROOM: Final = 1.08
"""The tolerance: interpreters differ a little in what they call a function."""


# --- Counting -------------------------------------------------------------------------------------------------------


class Work(NamedTuple):
    """The work of one call: functions of the product that were called, and steps of coroutines among them."""

    functions: float
    steps: float


class Counter:
    def __init__(self) -> None:
        self.functions = self.steps = 0

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PRODUCT):
            self.functions += 1
            self.steps += bool(frame.f_code.co_flags & inspect.CO_COROUTINE)


async def counted(call: Callable[[int], Awaitable[None]], calls: int = CALLS) -> Work:
    for number in range(1, 11):  # the caches are filled now
        await call(number)
    counter, before = Counter(), sys.getprofile()
    sys.setprofile(counter)
    try:
        for number in range(11, 11 + calls):
            await call(number)
    finally:
        sys.setprofile(before)
    return Work(counter.functions / calls, counter.steps / calls)


BUDGETS: Final = {
    ("legacy", "legacy", 0): Work(173, 0),
    ("modern", "modern", 0): Work(194, 0),
    ("modern", "legacy", 0): Work(198, 0),
    ("legacy", "modern", 0): Work(187, 0),
    ("legacy", "legacy", 5): Work(193, 0),
    ("legacy", "legacy", 50): Work(193, 0),
    ("modern", "legacy", 5): Work(220, 0),
}
"""The budgets by the eras of client and server, over HTTP, and the servers of the profile that the call goes through;
0: there is none. A profile adds a tenth, however many servers it has. Some 20 are the events of the call and their
counting for `/metrics`."""


@pytest.mark.parametrize(("client_era", "server_era", "profile"), BUDGETS)
def test_a_call_over_http_takes_no_more_work_than_it_did(client_era: str, server_era: str, profile: int) -> None:
    async def run() -> Work:
        stub = ModernStub if server_era == "modern" else Stub
        with anyio.fail_after(PATIENCE_S):
            async with connected(stub, is_modern=client_era == "modern", profile=profile) as client:
                return await counted(client.call)

    work, budget = anyio.run(run), BUDGETS[client_era, server_era, profile]
    assert work.functions <= budget.functions * ROOM
    assert work.steps <= budget.steps + 0.2
    assert work.functions > budget.functions * 0.8, f"it takes less now, which is to be kept: write {work}"


UNTRACED_FUNCTIONS: Final = 4
"""The functions that a call takes more where others have spans, and it has none."""


def test_a_call_without_a_span_takes_hardly_more_work_than_one_of_a_gateway_without_spans() -> None:
    traces = Traces(endpoint="http://127.0.0.1:1", ratio=1e-12)

    async def run(telemetry: Telemetry) -> Work:
        with anyio.fail_after(PATIENCE_S):
            async with connected(Stub, is_modern=False, telemetry=telemetry) as client:
                return await counted(client.call)

    without, within = (anyio.run(run, one) for one in (Telemetry(), Telemetry(traces=traces)))
    assert within.functions <= without.functions + UNTRACED_FUNCTIONS


PASSED_BUDGET: Final = Work(283, 0)
"""The budget of a call that comes to another worker than that of its session, at both together."""


@pytest.mark.parametrize("clients", [1, 3])
def test_a_call_that_is_passed_on_takes_no_more_work_than_it_did(tmp_path: Path, clients: int) -> None:
    """However many clients take turns: the heads of each come on a connection of their own to the other worker."""

    async def run() -> Work:
        with anyio.fail_after(PATIENCE_S):
            async with connected_through_another(Stub, tmp_path, clients) as callers:
                return await counted(lambda number: callers[number % clients].call(number))

    work = anyio.run(run)
    assert work.functions <= PASSED_BUDGET.functions * ROOM
    assert work.steps <= PASSED_BUDGET.steps + 0.5
    assert work.functions > PASSED_BUDGET.functions * 0.8, f"it takes less now, which is to be kept: write {work}"


PROGRESS_BUDGETS: Final = {TellingStub: Work(3.8, 0), PacedStub: Work(64.4, 0)}
"""The budget of one progress notification, a hundredth of its call included: where all of them come at once, and one
by one."""


@pytest.mark.parametrize("stub", PROGRESS_BUDGETS)
def test_a_step_of_progress_takes_no_more_work_than_it_did(stub: type[TellingStub]) -> None:
    async def run() -> Work:
        with anyio.fail_after(PATIENCE_S):
            async with connected(stub, is_modern=False) as client:
                return await counted(client.call_for_progress, calls=5)

    work, budget = anyio.run(run), PROGRESS_BUDGETS[stub]
    functions, steps = work.functions / EVENTS, work.steps / EVENTS
    assert functions <= budget.functions * ROOM
    assert steps <= budget.steps + 0.2
    assert functions > budget.functions * 0.8, f"it takes less now, which is to be kept: write {functions:.1f}"


class LargeStub(Stub):
    """A server with large answers."""

    def answer(self, body: bytes, id: bytes) -> bytes:
        response = super().answer(body, id)
        return response.replace(b'"text":"hello"', b'"text":"hello","also":"%b"' % (b"x" * 100_000))


LARGE_BUDGET: Final = 174
"""The functions for a call whose large answer came in one read: as for any other."""


def test_a_large_answer_takes_no_more_work_than_a_small_one() -> None:
    async def run() -> list[float]:
        with anyio.fail_after(PATIENCE_S):
            async with connected(LargeStub, is_modern=False) as client:
                return [(await counted(client.call, calls=1)).functions for _ in range(CALLS)]

    least = min(anyio.run(run))  # the system decides how many reads it takes
    assert least <= LARGE_BUDGET * ROOM
    assert least > LARGE_BUDGET * 0.8, f"it takes less now, which is to be kept: write {least}"


class SessionStub(Stub):
    """A server with a stream for each session, which ends with the session."""

    streams: ClassVar[list[SessionStub]] = []

    def reply(self, head: bytes, body: bytes) -> bytes:
        if head.startswith(b"GET"):
            self.streams.append(self)
            return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        if head.startswith(b"DELETE"):
            while self.streams:
                self.streams.pop().transport.write(b"0\r\n\r\n")
            return b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
        return super().reply(head, body)


SESSIONS: Final = 20
SESSION_BUDGET: Final = Work(1413, 0.0)
"""The work of a session: opened, with one call in it, and closed. No connection is made for its stream to the
server: that of the session before can be used."""


def test_a_session_over_http_takes_no_more_work_than_it_did() -> None:
    async def live(client: Client, headers: bytes) -> None:
        client.headers = headers
        await client.open()
        await client.call(1)
        await client.post(b"", method=b"DELETE")

    async def run() -> Work:
        with anyio.fail_after(PATIENCE_S):
            async with connected(SessionStub, is_modern=False) as client:
                headers = client.headers[: client.headers.index(b"mcp-session-id")]
                for _ in range(5):
                    await live(client, headers)
                counter, before = Counter(), sys.getprofile()
                sys.setprofile(counter)
                try:
                    for _ in range(SESSIONS):
                        await live(client, headers)
                finally:
                    sys.setprofile(before)
                return Work(counter.functions / SESSIONS, counter.steps / SESSIONS)

    work = anyio.run(run)
    assert work.functions <= SESSION_BUDGET.functions * ROOM
    assert work.steps <= SESSION_BUDGET.steps + 0.5
    assert work.functions > SESSION_BUDGET.functions * 0.8, f"it takes less now, which is to be kept: write {work}"


IDLE_SESSIONS: Final = 200
IDLE_BUDGET_BYTES: Final = 8_750
"""The memory of the product's objects for a session that holds a stream to its client and one to its server."""
IDLE_ROOM: Final = 1.1
"""The tolerance: interpreters differ in how large objects are."""


def test_an_idle_session_takes_no_more_memory_than_it_did_and_no_timer() -> None:
    async def open_one(client: Client, headers: bytes) -> asyncio.StreamWriter:
        client.headers = headers
        await client.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", client.writer.get_extra_info("peername")[1])
        headers = client.headers.replace(b"application/json, text/event-stream", b"text/event-stream")
        writer.write(b"GET /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n%b\r\n" % headers)
        await reader.readuntil(b"\r\n\r\n")
        await client.post(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
        return writer

    async def run() -> tuple[float, float]:
        with anyio.fail_after(PATIENCE_S):
            async with connected(SessionStub, is_modern=False) as client:
                headers = client.headers[: client.headers.index(b"mcp-session-id")]
                writers = [await open_one(client, headers) for _ in range(10)]
                timers, size_bytes = timers_of(asyncio.get_running_loop()), of_product()
                writers += [await open_one(client, headers) for _ in range(IDLE_SESSIONS)]
                timers = timers_of(asyncio.get_running_loop()) - timers
                size_bytes = of_product() - size_bytes
                for writer in writers:
                    writer.close()
                return size_bytes / IDLE_SESSIONS, timers / IDLE_SESSIONS

    tracemalloc.start()
    try:
        size_bytes, timers = anyio.run(run)
    finally:
        tracemalloc.stop()
    assert size_bytes <= IDLE_BUDGET_BYTES * IDLE_ROOM
    assert timers < 0.5
    assert size_bytes > IDLE_BUDGET_BYTES * 0.8, f"it takes less now, which is to be kept: write {size_bytes:.0f}"


def timers_of(loop: asyncio.AbstractEventLoop) -> int:
    return sum(not timer.cancelled() for timer in loop._scheduled)  # type: ignore[attr-defined]


def of_product() -> int:
    gc.collect()
    kept = [tracemalloc.Filter(True, f"{folder}*") for folder in PRODUCT]
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(kept).traces)
