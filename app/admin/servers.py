"""Operator pages of the servers: show their status, and start, stop and restart them.

A response tells the state reached, not the order given. A start is answered when the server has answered `initialize`
or has failed to, a stop when its processes are gone. The session that a start opens stays open, so a started server
runs until it is stopped, whether clients connect or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import anyio
import msgspec

from ...core.base.errors import OVERLOADED
from ...core.base.limits import Limits
from ...core.status import Command, Status
from ...core.wire.http.admin_routes import Page
from ...core.wire.http.error_responses import page_answer, page_error
from ...core.wire.http.routes import Refused
from ..config.settings import Server
from ..runtime.hub import Hub
from ..runtime.own_sessions import OwnSessions, Refusal

KINDS: Final[Mapping[str, str]] = {"pipe": "local"}
"""Values of `type`, as programs made for other gateways expect them; a kind that is not here is `remote`."""


class ServerPages:
    """The pages under `/servers`.

    A server that the engine does not know is transparent (`inspect: false`): its messages are passed on, so nothing
    is known of its state.

    Args:
        servers: all servers, in the order to show them.
        tool_counts: for each server, the number of tools it had when its tools were listed last.
    """

    def __init__(
        self,
        hub: Hub,
        own_sessions: OwnSessions,
        limits: Limits,
        servers: Sequence[Server],
        *,
        tool_counts: Mapping[str, int],
    ) -> None:
        self._hub = hub
        self._ids = [server.id for server in servers]
        self._with_client_headers = {server.id for server in servers if server.upstream.passes}
        self._own_sessions = own_sessions
        self._limits = limits
        self._tool_counts = tool_counts
        self._turns: dict[str, anyio.Lock] = {}
        self._actions = {Page.START: self._start, Page.STOP: self._stop, Page.RESTART: self._restart}

    # --- Show -------------------------------------------------------------------------------------------------------

    def show_all(self) -> Refused:
        return _answer(200, {"servers": [self._describe(id) for id in self._ids]})

    def show(self, id: str) -> Refused:
        return _answer(200, self._describe(id)) if id in self._ids else self._unknown(id)

    def unready(self) -> list[dict[str, object]]:
        """Returns the servers that clients would find unusable, each with its `name` and `state`.

        A failed server to which headers of clients are passed does not count: it may have failed only because the
        proxy has no credentials of its own for it.
        """
        states = [(status.id, status.state) for status in self._hub.engine.report()]
        bad = (
            (id, state)
            for id, state in states
            if state == "stopped" or (state == "failed" and id not in self._with_client_headers)
        )
        return [{"name": id, "state": state} for id, state in bad]

    def _find(self, id: str) -> Status | None:
        return next((status for status in self._hub.engine.report() if status.id == id), None)

    def _status(self, id: str) -> Status:
        status = self._find(id)
        assert status is not None
        return status

    def _unknown(self, id: str) -> Refused:
        return page_error(404, f"got the server {id[:80]!r}, expected one of {', '.join(self._ids)}")

    def _describe(self, id: str) -> dict[str, object]:
        status = self._find(id)
        if status is None:
            state = {"status": "running", "on_demand": False, "state": "transparent", "kind": "transparent"}
            return {"name": id, "path": id, "type": "remote", **state}
        processes = max(status.processes, self._hub.process_count(status.id))
        shown = status.state
        if shown in ("idle", "stopped"):
            shown = "stopping" if processes else "stopped"
        uptime_s = None if status.ready_at is None else round(self._hub.now() - status.ready_at, 3)
        return {
            "name": status.id,
            "path": status.id,
            "type": KINDS.get(status.kind, "remote"),
            "status": shown,
            "on_demand": status.state == "idle",
            "state": status.state,
            "kind": status.kind,
            "pids": self._hub.pids_of(status.id),
            "sessions": status.sessions,
            "in_flight": status.in_flight,
            "processes": processes,
            "spares": status.spares,
            "starts": status.starts,
            "failures": status.failures,
            "noise": status.noise,
            "differences": dict(status.differences),
            "cache_hits": status.cache_hits,
            "cache_misses": status.cache_misses,
            "last_error": status.last_error,
            "urls": [msgspec.to_builtins(address) for address in status.addresses],
            "eras": status.eras,
            "era": status.era,
            "protocol_version": status.revision,
            "capabilities": status.capabilities,
            "uptime_s": uptime_s,
            "tools": self._tool_counts.get(status.id),
        }

    # --- Act --------------------------------------------------------------------------------------------------------

    async def act(self, page: Page, id: str) -> Refused:
        """Starts, stops or restarts a server, and answers when that is done or has failed."""
        if id not in self._ids:
            return self._unknown(id)
        if self._find(id) is None:
            return page_error(409, f"{id} is transparent: what is sent to it is passed on, whether it runs or not")
        refused = await self._actions[page](id)
        if refused is not None:
            return refused
        body = {"name": id, "action": page.value, "status": "success", "server": self._describe(id)}
        return _answer(200, body)

    async def _start(self, id: str) -> Refused | None:
        async with self._turn(id):
            if self._status(id).state == "running":
                return page_error(409, f"{id} is running already")
            return await self._bring_up(id)

    async def _stop(self, id: str) -> Refused | None:
        # Without the turn: a stop does not wait for a start under way. That start fails and is answered so.
        if self._status(id).state == "stopped":
            return page_error(503, f"{id} is stopped already")
        return await self._bring_down(id)

    async def _restart(self, id: str) -> Refused | None:
        async with self._turn(id):
            return await self._bring_down(id) or await self._bring_up(id)

    def _turn(self, id: str) -> anyio.Lock:
        """Returns the lock that lets one start of a server run at a time, so that each reports its own outcome."""
        return self._turns.setdefault(id, anyio.Lock())

    async def _bring_up(self, id: str) -> Refused | None:
        self._hub.order(id, Command.START)
        try:
            await self._own_sessions.renew(id)
        except Refusal as refusal:
            return _not_started(id, refusal)
        await self._hub.wait_until(lambda: self._status(id).state != "starting")
        status = self._status(id)
        if status.state != "running":
            return page_error(502, f"{id} was started, and then lost: {status.last_error}")
        return None

    async def _bring_down(self, id: str) -> Refused | None:
        self._hub.order(id, Command.STOP)
        self._own_sessions.end(id)
        # A process gets its stdin closed, then TERM, then KILL: each of these takes stop_grace_s at most.
        with anyio.move_on_after(3 * self._limits.stop_grace_s + 2):
            await self._hub.wait_until(lambda: self._status(id).state != "stopped" or not self._hub.process_count(id))
            return None
        return page_error(500, f"{id} is stopped, but some of its processes do not end", pids=self._hub.pids_of(id))


def _answer(status: int, body: Mapping[str, object]) -> Refused:
    return page_answer(status, msgspec.json.encode(body))


def _not_started(id: str, refusal: Refusal) -> Refused:
    """Answers 500 if nothing could be connected to, 502 if it did not speak MCP, 503 if the proxy is at a limit."""
    status = 503 if refusal.code == OVERLOADED else 500 if refusal.stage == "start" else 502
    return page_error(status, str(refusal))
