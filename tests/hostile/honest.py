"""Honest clients: steady calls over Streamable HTTP and WebSocket, each of which must be answered once and rightly."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio.abc import TaskGroup
from callers import OVERLOAD, Caller, Cut, HttpCaller, Refused, SocketCaller
from ledger import Call, Ledger, Outcome

ROUTES: Final = (
    ("http", "plain"),
    ("http", "files"),
    ("http", "remote"),
    ("ws", "shared"),
    ("ws", "plain"),
    ("ws", "remote"),
)
"""The clients that keep one session: transport and server."""
PAUSE_S: Final = 0.03
"""The pause between two calls of a client, unless a test has another."""
CALL_TIMEOUT_S: Final = 60.0
"""The time after which a call that has no answer is lost. Only a broken run meets it."""
REFUSALS_MAX: Final = 100
"""Refusals in a row after which a call is lost."""
REFUSAL_PAUSE_S: Final = 0.1
REFUSED_SHARE_MAX: Final = 0.2
"""The largest share of calls that may be refused during a storm: most must be answered the first time."""
NAMES_LIMIT: Final = re.compile(r"overload|limit|at once|at most|more than|too many|too much|fewer|-31007", re.I)
"""Words of a refusal that says which bound was met."""


@dataclass
class Tally:
    """The honest calls of one period.

    Attributes:
        latencies_s: the time of each answered call, without refused attempts.
        lost: descriptions of calls that had no answer, or a wrong one.
    """

    latencies_s: list[float] = field(default_factory=list)
    refusals: int = 0
    lost: list[str] = field(default_factory=list)

    @property
    def answered(self) -> int:
        return len(self.latencies_s)

    def latency_ms(self, percent: float) -> float:
        """Returns the latency that `percent` of the answered calls do not exceed. Without calls it is NaN."""
        ordered = sorted(self.latencies_s)
        return ordered[math.ceil(len(ordered) * percent / 100) - 1] * 1000 if ordered else math.nan


class Honest:
    """All honest clients.

    Args:
        pause_s: the pause between two calls of a client.

    Attributes:
        tally: what happens from now on is entered here. The caller replaces it for each period.
    """

    def __init__(self, ledger: Ledger, port: Callable[[], int], pause_s: float) -> None:
        self.tally = Tally()
        self._pause_s = pause_s
        self._ledger = ledger
        self._port = port
        self._is_over = False
        self._may_call = anyio.Event()
        self._may_call.set()
        self._calling = 0
        self._rested = anyio.Event()

    def start(self, tasks: TaskGroup) -> None:
        for kind, server in ROUTES:
            tasks.start_soon(self._live, kind, server, False)
        tasks.start_soon(self._live, "http", "shared", True)

    async def pause(self) -> None:
        """Returns once no call is open and none will be before `go_on`. Sessions stay."""
        self._may_call = anyio.Event()
        if self._calling:
            self._rested = anyio.Event()
            with anyio.fail_after(2 * CALL_TIMEOUT_S):
                await self._rested.wait()

    def go_on(self) -> None:
        self._may_call.set()

    @property
    def session_count(self) -> int:
        """The number of sessions that stay while no call is made."""
        return len(ROUTES)

    def end(self) -> None:
        """Makes all clients leave, once their calls have ended."""
        self._is_over = True
        self._may_call.set()

    async def _live(self, kind: str, server: str, is_newcomer: bool) -> None:
        """Keeps a session, or as a newcomer begins one for each call."""
        while not self._is_over:
            await self._may_call.wait()
            self._calling += 1  # also while a session begins or ends
            try:
                async with anyio.create_task_group() as tasks:
                    caller = await self._begin(tasks, kind, server)
                    if caller is not None:
                        await self._call(caller, f"{kind}->{server}")
                        while not (is_newcomer or caller.is_over):
                            self._rest()
                            await anyio.sleep(self._pause_s)
                            await self._may_call.wait()
                            self._calling += 1
                            if self._is_over:
                                break
                            await self._call(caller, f"{kind}->{server}")
                        await caller.leave()
                    tasks.cancel_scope.cancel()
            finally:
                self._rest()
            await anyio.sleep(self._pause_s)

    def _rest(self) -> None:
        self._calling -= 1
        if not self._calling:
            self._rested.set()

    async def _begin(self, tasks: TaskGroup, kind: str, server: str) -> Caller | None:
        caller: Caller
        if kind == "http":
            # The GET stream keeps a session that makes no calls.
            caller = HttpCaller(self._ledger, tasks, port=self._port, path=f"/mcp/{server}", revision="2025-06-18")
        else:
            caller = SocketCaller(self._ledger, tasks, port=self._port, path=f"/ws/{server}", revision="2025-06-18")
        try:
            with anyio.fail_after(CALL_TIMEOUT_S):
                await caller.start()
        except Refused as refused:
            if refused.status in OVERLOAD or "-31007" in str(refused):
                await self._refuse(str(refused))
            else:
                self.tally.lost.append(f"{kind}->{server}: no session: {refused}")
        except (Cut, TimeoutError) as error:
            self.tally.lost.append(f"{kind}->{server}: no session: {error!r}")
        else:
            return caller
        caller.drop()
        return None

    async def _call(self, caller: Caller, route: str) -> None:
        """Makes one call, again for each refusal. Drops the session if it has no right answer."""
        call: Call
        for _ in range(REFUSALS_MAX):
            call = self._ledger.new_call("count", route)
            wrongs = len(self._ledger.wrongs)
            began_at = time.monotonic()
            with anyio.move_on_after(CALL_TIMEOUT_S):
                await caller.call(call)
            if call.outcome is Outcome.SUCCESS and len(self._ledger.wrongs) == wrongs:
                self.tally.latencies_s.append(time.monotonic() - began_at)
                return
            story = "; ".join(call.story)
            if call.outcome is not Outcome.NOT_EXECUTED or caller.is_over or "-31004" in story:
                break
            await self._refuse(story)
        outcome = "no answer" if call.outcome is None else call.outcome.value
        self.tally.lost.append(f"{call.key} {route}: {outcome}: {'; '.join(call.story)}")
        caller.drop()

    async def _refuse(self, text: str) -> None:
        self.tally.refusals += 1
        if NAMES_LIMIT.search(text) is None:
            self.tally.lost.append(f"a refusal that names no limit: {text}")
        await anyio.sleep(REFUSAL_PAUSE_S)
