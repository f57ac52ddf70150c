"""An MCP client over HTTP that shows everything: one connection a request, h11 below, messages as they arrive."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import anyio
import h11
from anyio.abc import ByteStream
from isthmus.app.gateway import Gateway

PATIENCE_S = 20.0
USUAL = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
MARK = {"x-requested-with": "test"}
"""The header of a command without a body."""
Json = dict[str, Any]


class Response:
    """A response that is being read. `messages` gives JSON-RPC messages one by one, from JSON or from events, and
    `last_event_id` is that of the last one given."""

    def __init__(self, stream: ByteStream, http: h11.Connection) -> None:
        self._stream = stream
        self._http = http
        self.status = 0
        self.headers: dict[str, str] = {}
        self.last_event_id: str | None = None

    async def _event(self) -> h11.Event:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            try:
                self._http.receive_data(await self._stream.receive())
            except anyio.EndOfStream:
                self._http.receive_data(b"")
        assert not isinstance(event, type)
        return event

    async def read_head(self) -> None:
        event = await self._event()
        assert isinstance(event, h11.Response)
        self.status = event.status_code
        self.headers = {name.decode(): value.decode() for name, value in event.headers}

    async def _pieces(self) -> AsyncIterator[bytes]:
        while not isinstance(event := await self._event(), h11.EndOfMessage):
            assert isinstance(event, h11.Data)
            yield bytes(event.data)

    async def body(self) -> bytes:
        return b"".join([piece async for piece in self._pieces()])

    async def json(self) -> Json:
        decoded: Json = json.loads(await self.body())
        return decoded

    async def messages(self) -> AsyncIterator[Json]:
        if self.headers.get("content-type") == "application/json":
            yield await self.json()
            return
        text = b""
        async for piece in self._pieces():
            text += piece
            *events, text = text.split(b"\n\n")
            for event in events:
                for line in event.split(b"\n"):
                    if line.startswith(b"id:"):
                        self.last_event_id = line[3:].strip().decode()
                lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
                if any(lines):
                    yield json.loads(b"\n".join(lines))


@asynccontextmanager
async def requested(
    url: str, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
) -> AsyncIterator[Response]:
    """Sends one request, and gives its response once the head is there. Leaving hangs up."""
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    fields = {"host": parts.netloc, **{name.lower(): value for name, value in (headers or {}).items()}}
    if body:
        fields["content-length"] = str(len(body))
    http = h11.Connection(h11.CLIENT)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    with anyio.fail_after(PATIENCE_S):
        async with await anyio.connect_tcp(parts.hostname, parts.port) as stream:
            out = http.send(h11.Request(method=method, target=target, headers=list(fields.items()))) or b""
            out += http.send(h11.Data(data=body)) if body else b""  # type: ignore[operator]
            await stream.send(out + (http.send(h11.EndOfMessage()) or b""))
            response = Response(stream, http)
            await response.read_head()
            yield response


def operator(gateway: Gateway) -> dict[str, str]:
    """The header of an operator of this machine; none if the gateway has no local token."""
    return {} if gateway.local_token is None else {"authorization": f"Bearer {gateway.local_token}"}


async def fetch(url: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> tuple[int, Json]:
    """Status and JSON body."""
    async with requested(url, method, headers) as response:
        return response.status, await response.json()


class Caller:
    """One session with the server at `url`."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.headers = USUAL | dict(headers or {})
        self.session: str | None = None
        self._last_id = 0

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    @asynccontextmanager
    async def post(self, **members: object) -> AsyncIterator[Response]:
        headers = self.headers if self.session is None else self.headers | {"mcp-session-id": self.session}
        body = json.dumps({"jsonrpc": "2.0", **members}).encode()
        async with requested(self.url, "POST", headers, body) as response:
            yield response

    async def send(self, **members: object) -> None:
        """Sends a notification, or a response."""
        async with self.post(**members) as response:
            assert response.status == 202, await response.body()

    async def request(self, method: str, params: Json | None = None) -> Json:
        """The response. Other messages on its stream are dropped."""
        id = self.next_id()
        async with self.post(id=id, method=method, params=params or {}) as response:
            self.session = response.headers.get("mcp-session-id", self.session)
            async for message in response.messages():
                if message.get("id") == id and "method" not in message:
                    return message
        raise AssertionError(f"{method} was not answered")

    async def initialize(self, **capabilities: Json) -> Json:
        """Begins the session; returns the result."""
        info = {"name": "caller", "version": "0"}
        params = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": info}
        answer = await self.request("initialize", params)
        if "result" not in answer:
            raise AssertionError(answer["error"]["message"])
        await self.send(method="notifications/initialized")
        result: Json = answer["result"]
        return result

    async def call(self, tool: str, **arguments: object) -> str:
        """The text of a tool's result."""
        answer = await self.request("tools/call", {"name": tool, "arguments": arguments})
        text: str = answer["result"]["content"][0]["text"]
        return text
