"""A server's tools as plain HTTP: `GET /mcp/<id>/tools` lists them, `POST /mcp/<id>/tools/call` calls one.

These pages are for scripts without an MCP client. Each request goes through the engine, in a session like any
client's, which the requests of one principal share. Results are returned as the server sent them, errors with the
members of the JSON-RPC error.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

import anyio
import msgspec

from ...core.access.identity import Identity
from ...core.base.errors import OVERLOADED, TIMED_OUT, UPSTREAM_UNAVAILABLE
from ...core.base.limits import Limits
from ...core.base.nearest import nearest
from ...core.upstream.auth_errors import FORBIDDEN
from ...core.upstream.rate_limiting import wait_of
from ...core.wire.http.error_responses import page_answer, page_error
from ...core.wire.http.failure import UNAUTHORIZED
from ...core.wire.http.routes import Refused
from ..config.settings import Server
from ..runtime.own_sessions import OwnSession, OwnSessions, Refusal
from ..runtime.probe import PAGES_MAX

_STATUSES: Final = {UPSTREAM_UNAVAILABLE: 503, OVERLOADED: 503, TIMED_OUT: 504}
"""HTTP statuses of the errors that the proxy itself makes. Every other error is the server's, hence 502."""

_Json = dict[str, msgspec.Raw]
"""A JSON object whose members stay as they came."""


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: _Json = {}
    meta: _Json | None = msgspec.field(default=None, name="_meta")


class _Listed(msgspec.Struct):
    tools: list[_Json]
    next_cursor: str | None = msgspec.field(default=None, name="nextCursor")


class _Unusable(Exception):
    """A malformed request; the message says what is wrong with it."""


class ToolPages:
    """The pages under `/mcp/<id>/tools`.

    Args:
        counts: for each server, the number of tools it had when its tools were listed last; kept up to date here.
    """

    def __init__(
        self,
        own_sessions: OwnSessions,
        servers: Mapping[str, Server],
        limits: Limits,
        *,
        counts: dict[str, int],
    ) -> None:
        self._own_sessions = own_sessions
        self._servers = servers
        self._limits = limits
        self._counts = counts

    async def show(self, server: str, query: Mapping[str, str], identity: Identity) -> Refused:
        async def ask(session: OwnSession) -> Refused:
            tools, is_complete = await self._tools(server, session)
            for tool in tools:
                if "inputSchema" in tool:
                    tool.setdefault("input_schema", tool["inputSchema"])
            rest = {} if is_complete else {"truncated": True}
            body = {"server": server, "tools": tools, "filter_active": bool(self._servers[server].tools.selection)}
            return page_answer(200, msgspec.json.encode(body | rest))

        return await self._ask(server, query, identity, ask)

    async def call(self, server: str, query: Mapping[str, str], body: bytes, identity: Identity) -> Refused:
        try:
            call = msgspec.json.decode(body, type=_Call)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return page_error(400, f"got a body that is no call ({error}), expected name and arguments as JSON")

        async def ask(session: OwnSession) -> Refused:
            if not await self._has_tool(server, session, call.name):
                return page_error(404, _unknown_tool(server, call.name, session.tool_names or ()))
            params = {"name": call.name, "arguments": call.arguments}
            if call.meta is not None:
                params["_meta"] = call.meta
            result = await session.request("tools/call", msgspec.json.encode(params))
            members = msgspec.json.decode(result, type=_Json)
            if "isError" in members:
                members.setdefault("is_error", members["isError"])
            body, wait_s = msgspec.json.encode(members), wait_of(result)
            if wait_s is None:
                return page_answer(200, body)
            return page_answer(429, body, ((b"retry-after", b"%d" % wait_s),))

        return await self._ask(server, query, identity, ask)

    async def _ask(
        self, server: str, query: Mapping[str, str], identity: Identity, ask: Callable[[OwnSession], Awaitable[Refused]]
    ) -> Refused:
        """Answers with what `ask` returns, or with the error it met. On timeout the request is cancelled at the server
        too."""
        try:
            timeout_s = self._timeout_s(server, query.get("timeout_s"))
        except _Unusable as error:
            return page_error(400, str(error))
        with anyio.move_on_after(timeout_s):
            try:
                with self._own_sessions.using(server, identity) as session:
                    return await ask(session)
            except Refusal as refusal:
                error_body = {"code": refusal.code, "message": str(refusal), "data": refusal.data}
                message = str(refusal)
                if refusal.status in (UNAUTHORIZED, FORBIDDEN) and self._servers[server].upstream.pass_headers:
                    message += "; calls of tools over plain HTTP pass no headers on: use an MCP client"
                return page_error(_STATUSES.get(refusal.code, 502), message, rpc=error_body)
            except (msgspec.DecodeError, RecursionError) as error:
                return page_error(502, f"the server's answer is unusable: {error}")
        return page_error(504, f"no answer within {timeout_s:g} s: it may still have an effect")

    def _timeout_s(self, server: str, given: str | None) -> float:
        longest = self._servers[server].call_timeout_seconds or self._limits.reply_timeout_s
        if given is None:
            return longest
        try:
            timeout_s = float(given)
        except ValueError:
            timeout_s = math.nan
        if not timeout_s > 0:
            raise _Unusable(f"got timeout_s {given[:40]!r}, expected seconds above 0")
        return min(timeout_s, longest)

    async def _has_tool(self, server: str, session: OwnSession, name: str) -> bool:
        known = session.tool_names
        if known is not None and name in known:
            return True
        tools, is_complete = await self._tools(server, session)
        names = frozenset(msgspec.json.decode(tool["name"]) for tool in tools if "name" in tool)
        session.tool_names = names
        return name in names or not is_complete

    async def _tools(self, server: str, session: OwnSession) -> tuple[list[_Json], bool]:
        """Returns the tools, and True if the list is complete: at most `PAGES_MAX` pages are read."""
        tools: list[_Json] = []
        cursor: str | None = None
        size_bytes = 0
        for _ in range(PAGES_MAX if await session.has_tools() else 0):
            params = {} if cursor is None else {"cursor": cursor}
            result = await session.request("tools/list", msgspec.json.encode(params))
            listed = msgspec.json.decode(result, type=_Listed)
            tools += listed.tools
            size_bytes += len(result)
            cursor = listed.next_cursor
            if cursor is None or size_bytes > self._limits.reply_size_max_bytes:
                break
        if cursor is None:
            self._counts[server] = len(tools)
        return tools, cursor is None


def _unknown_tool(server: str, name: str, known: Collection[str]) -> str:
    near = nearest(name, known)
    mend = f"did you mean {near}?" if near else f"GET /mcp/{server}/tools lists its tools"
    return f"{server} has no tool {name[:200]!r}; {mend}"
