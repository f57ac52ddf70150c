"""What an operator sees of the servers over HTTP, and may do with them.

An answer tells what is, not what was ordered: a start is answered when the server has greeted us or could not be made
to, a stop when its processes are gone. The session in which a start is proved stays open, so that a server that was
started runs until it is stopped, whether clients come or not.
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
from ..runtime.own_sessions import Conversations, Refusal

KINDS: Final[Mapping[str, str]] = {"pipe": "local"}
"""What programs made for other gateways know servers as: those that are processes of ours, and others."""


class ServerPages:
    """Args:
    servers: all of them, in the order to show them.
    tool_counts: how many tools a server was found to have when it was asked last.

    Those that the engine knows nothing of are transparent: what is sent to them is passed on, and nobody here can tell
    how they fare.
    """

    def __init__(
        self,
        hub: Hub,
        conversations: Conversations,
        limits: Limits,
        servers: Sequence[Server],
        *,
        tool_counts: Mapping[str, int],
    ) -> None:
        self._hub = hub
        self._ids = [server.id for server in servers]
        self._asking = {server.id for server in servers if server.upstream.passes}
        self._conversations = conversations
        self._limits = limits
        self._tool_counts = tool_counts
        self._turns: dict[str, anyio.Lock] = {}
        self._actions = {Page.START: self._start, Page.STOP: self._stop, Page.RESTART: self._restart}

    # --- What is ----------------------------------------------------------------------------------------------------

    def show_all(self) -> Refused:
        return _said(200, {"servers": [self._describe(id) for id in self._ids]})

    def show(self, id: str) -> Refused:
        return _said(200, self._describe(id)) if id in self._ids else self._unknown(id)

    def unready(self) -> list[dict[str, object]]:
        """The servers that clients would find unusable. Those that get the credentials of clients may well have failed
        for want of them."""
        states = [(status.id, status.state) for status in self._hub.engine.report()]
        bad = (one for one in states if one[1] == "stopped" or (one[1] == "failed" and one[0] not in self._asking))
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
            passed_on = {"status": "running", "on_demand": False, "state": "transparent", "kind": "transparent"}
            return {"name": id, "path": id, "type": "remote", **passed_on}
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
            "last_error": status.last_error,
            "eras": status.eras,
            "era": status.era,
            "protocol_version": status.revision,
            "capabilities": status.capabilities,
            "uptime_s": uptime_s,
            "tools": self._tool_counts.get(status.id),
        }

    # --- What is to be ----------------------------------------------------------------------------------------------

    async def act(self, page: Page, id: str) -> Refused:
        """Start, stop or restart a server."""
        if id not in self._ids:
            return self._unknown(id)
        if self._find(id) is None:
            return page_error(409, f"{id} is transparent: what is sent to it is passed on, whether it runs or not")
        refused = await self._actions[page](id)
        if refused is not None:
            return refused
        told = {"name": id, "action": page.value, "status": "success", "server": self._describe(id)}
        return _said(200, told)

    async def _start(self, id: str) -> Refused | None:
        async with self._turn(id):
            if self._status(id).state == "running":
                return page_error(409, f"{id} is running already")
            return await self._bring_up(id)

    async def _stop(self, id: str) -> Refused | None:
        """It waits for no start that is under way: that one fails, and says so."""
        if self._status(id).state == "stopped":
            return page_error(503, f"{id} is stopped already")
        return await self._bring_down(id)

    async def _restart(self, id: str) -> Refused | None:
        """Whatever its state."""
        async with self._turn(id):
            return await self._bring_down(id) or await self._bring_up(id)

    def _turn(self, id: str) -> anyio.Lock:
        """One start at a time, so that each is judged by what it did itself."""
        return self._turns.setdefault(id, anyio.Lock())

    async def _bring_up(self, id: str) -> Refused | None:
        self._hub.order(id, Command.START)
        try:
            await self._conversations.renew(id)
        except Refusal as refusal:
            return _not_started(id, refusal)
        await self._hub.wait_until(lambda: self._status(id).state != "starting")
        status = self._status(id)
        if status.state != "running":
            return page_error(502, f"{id} was started, and then lost: {status.last_error}")
        return None

    async def _bring_down(self, id: str) -> Refused | None:
        self._hub.order(id, Command.STOP)
        self._conversations.end(id)
        # A process gets its stdin closed, then TERM, then KILL: each of these takes stop_grace_s at most.
        with anyio.move_on_after(3 * self._limits.stop_grace_s + 2):
            await self._hub.wait_until(lambda: self._status(id).state != "stopped" or not self._hub.process_count(id))
            return None
        return page_error(500, f"{id} is stopped, but some of its processes do not end", pids=self._hub.pids_of(id))


def _said(status: int, body: Mapping[str, object]) -> Refused:
    return page_answer(status, msgspec.json.encode(body))


def _not_started(id: str, refusal: Refusal) -> Refused:
    """500 where there was nothing to speak to, 502 where that spoke no MCP, 503 where we have no room for it."""
    status = 503 if refusal.code == OVERLOADED else 500 if refusal.stage == "start" else 502
    return page_error(status, str(refusal))
