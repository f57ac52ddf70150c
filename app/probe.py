"""Asking a server, through the engine as any client would, who it is and what tools it has."""

from __future__ import annotations

import math

import anyio
import msgspec

from ..core.effects import Cause, Close, End, PipeOpening, Send
from ..core.eras import LATEST_LEGACY
from ..core.ids import ChannelId
from .hub import Hub

PAGES_MAX = 100
"""Pages of `tools/list` that are read; a server with more is shown as having at least so many tools."""


class ServerReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a server said of itself. `problem` is empty when it answered."""

    id: str
    name: str = ""
    version: str = ""
    revision: str = ""
    capabilities: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    problem: str = ""


class Refusal(Exception):
    """The server, or the engine in its place, answered with an error."""


async def probe(hub: Hub, server: str, version: str, *, timeout_s: float = math.inf) -> ServerReport:
    """Open a session of our own, read the tool list, and leave. A server that cannot be asked becomes a `problem`."""
    client = _Client(hub)
    try:
        with anyio.fail_after(timeout_s):
            return await _ask(client, server, version)
    except Refusal as refusal:
        return ServerReport(id=server, problem=str(refusal))
    except TimeoutError:
        return ServerReport(id=server, problem=f"no answer within {timeout_s:g} s")
    finally:
        client.leave()


async def _ask(client: _Client, server: str, version: str) -> ServerReport:
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
    cursor: object = None
    for _ in range(PAGES_MAX if "tools" in names else 0):
        page = await client.request("tools/list", {} if cursor is None else {"cursor": cursor})
        entries = page.get("tools")
        for tool in entries if isinstance(entries, list) else []:
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                tools.append(tool["name"])
        cursor = page.get("nextCursor")
        if cursor is None:
            break
    return ServerReport(
        id=server,
        name=str(info.get("name", "")) if isinstance(info, dict) else "",
        version=str(info.get("version", "")) if isinstance(info, dict) else "",
        revision=str(hello.get("protocolVersion", "")),
        capabilities=names,
        tools=tuple(tools),
    )


class _Client:
    """A client in our own process, as the outlet of its channel."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._channel: ChannelId | None = None
        self._last_id = 0
        self._arrived = anyio.Event()
        self._answers: dict[int, dict[str, object]] = {}
        self._is_closed = False

    def open(self, server: str) -> None:
        self._channel = self._hub.open(PipeOpening(server=server), self)

    def leave(self) -> None:
        if self._channel is not None:
            self._hub.closed(self._channel, Cause(End.GONE))

    def notify(self, method: str) -> None:
        assert self._channel is not None
        self._hub.message(self._channel, msgspec.json.encode({"jsonrpc": "2.0", "method": method}))

    async def request(self, method: str, params: dict[str, object]) -> dict[str, object]:
        assert self._channel is not None
        self._last_id += 1
        number = self._last_id
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self._hub.message(self._channel, msgspec.json.encode(message))
        while number not in self._answers:
            if self._is_closed:
                raise Refusal("the session was closed")
            self._arrived = anyio.Event()
            await self._arrived.wait()
        answer = self._answers.pop(number)
        error = answer.get("error")
        if isinstance(error, dict):
            raise Refusal(str(error.get("message", "it answered with an error")))
        result = answer.get("result")
        return result if isinstance(result, dict) else {}

    def send(self, order: Send) -> None:
        message = msgspec.json.decode(order.message)
        if isinstance(message, dict) and isinstance(message.get("id"), int) and "method" not in message:
            self._answers[message["id"]] = message
            self._arrived.set()
        if self._channel is not None:
            self._hub.sent(self._channel, len(order.message))

    def close(self, order: Close) -> None:
        self._is_closed = True
        self._arrived.set()

    def pause(self) -> None:
        """What it sends is small."""

    def resume(self) -> None:
        """See `pause`."""
