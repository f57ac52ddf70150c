"""Asking a server, through the engine as any client would, who it is and what tools it has."""

from __future__ import annotations

import math
from collections.abc import Collection

import anyio
import msgspec

from ..core.effects import PipeOpening
from ..core.eras import LATEST_LEGACY
from ..transports.memory import MemoryClient
from .hub import Hub

PAGES_MAX = 100
"""Pages of `tools/list` that are read; a server with more is shown as having at least so many tools."""

CLOSED = "the session was closed before it answered"


class ServerReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a server said of itself. `problem` is empty when it answered.

    `schemas` are the input schemas of the tools that were asked for, in whatever shape the server gave them.
    """

    id: str
    name: str = ""
    version: str = ""
    revision: str = ""
    capabilities: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    schemas: dict[str, object] = {}
    problem: str = ""


class Refusal(Exception):
    """The server, or the engine in its place, answered with an error."""


async def probe(
    hub: Hub, server: str, version: str, *, with_schemas: Collection[str] = (), timeout_s: float = math.inf
) -> ServerReport:
    """Open a session of our own, read the tool list, and leave. A server that cannot be asked becomes a `problem`.

    Args:
        with_schemas: the tools whose input schemas are kept.
    """
    client = _Client(hub)
    try:
        with anyio.fail_after(timeout_s):
            return await _ask(client, server, version, with_schemas)
    except Refusal as refusal:
        return ServerReport(id=server, problem=str(refusal))
    except TimeoutError:
        return ServerReport(id=server, problem=f"no answer within {timeout_s:g} s")
    finally:
        client.leave()


async def _ask(client: _Client, server: str, version: str, with_schemas: Collection[str]) -> ServerReport:
    client.open(server)
    hello = await client.request(
        "initialize",
        {
            "protocolVersion": LATEST_LEGACY,
            "capabilities": {},
            "clientInfo": {"name": "isthmus", "version": version},
        },
    )
    client.notify("notifications/initialized")
    info = hello.get("serverInfo")
    capabilities = hello.get("capabilities")
    names = tuple(capabilities) if isinstance(capabilities, dict) else ()
    tools: list[str] = []
    schemas: dict[str, object] = {}
    cursor: object = None
    seen: list[object] = []
    for _ in range(PAGES_MAX if "tools" in names else 0):
        page = await client.request("tools/list", {} if cursor is None else {"cursor": cursor})
        entries = page.get("tools")
        for tool in entries if isinstance(entries, list) else []:
            if isinstance(tool, dict) and isinstance(tool.get("name"), str) and tool["name"] not in tools:
                tools.append(tool["name"])
                if tool["name"] in with_schemas:
                    schemas[tool["name"]] = tool.get("inputSchema")
        cursor = page.get("nextCursor")
        if cursor is None or cursor in seen:  # some servers say "" for the end, and take that for the beginning
            break
        seen.append(cursor)
    return ServerReport(
        id=server,
        name=str(info.get("name", "")) if isinstance(info, dict) else "",
        version=str(info.get("version", "")) if isinstance(info, dict) else "",
        revision=str(hello.get("protocolVersion", "")),
        capabilities=names,
        tools=tuple(tools),
        schemas=schemas,
    )


class _Client:
    """Requests and answers over a channel in our own process."""

    def __init__(self, hub: Hub) -> None:
        self._peer = MemoryClient(hub)
        self._last_id = 0

    def open(self, server: str) -> None:
        self._peer.open(PipeOpening(server=server))

    def leave(self) -> None:
        self._peer.leave()

    def notify(self, method: str) -> None:
        self._say({"jsonrpc": "2.0", "method": method})

    async def request(self, method: str, params: dict[str, object]) -> dict[str, object]:
        """The result. What else the server says is not for us: it asks nothing of a client without capabilities.

        Raises:
            Refusal: it answered with an error, or the session is over.
        """
        self._last_id += 1
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        self._say(message)
        while True:
            try:
                answer = msgspec.json.decode(await self._peer.receive())
            except anyio.EndOfStream:
                raise Refusal(CLOSED) from None
            if answer.get("id") == self._last_id and "method" not in answer:
                break
        error = answer.get("error")
        if isinstance(error, dict):
            raise Refusal(str(error.get("message", "it answered with an error")))
        result = answer.get("result")
        return result if isinstance(result, dict) else {}

    def _say(self, message: dict[str, object]) -> None:
        try:
            self._peer.say(msgspec.json.encode(message))
        except anyio.BrokenResourceError:
            raise Refusal(CLOSED) from None
