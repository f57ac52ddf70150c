"""A small MCP client: one session over Streamable HTTP, or with a process on stdio, for `starts.py`.

The client speaks revision 2025-11-25, and uses the standard library alone. Each HTTP request has a connection of its
own, which takes a tenth of a millisecond.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from programs import Failed

REVISION: Final = "2025-11-25"
HELLO: Final = {
    "protocolVersion": REVISION,
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}
TRIED_EVERY_S: Final = 0.01
"""Seconds between two attempts to connect. A refused one takes some 50 µs, so seven clients that wait take less than
half a percent of a processor."""


@dataclass(frozen=True)
class Endpoint:
    """The URL of a proxy's endpoint, in parts.

    Attributes:
        prefix: stands in front of the names of the server's tools there.
    """

    port: int
    path: str = "/mcp"
    prefix: str = ""


class Session(Protocol):
    """A session with a server."""

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Returns the result of a request.

        Raises:
            Failed: the response is an error, or there is none.
        """

    def notify(self, method: str) -> None: ...


class HttpSession:
    """A session at an endpoint. Its first request waits until the endpoint accepts connections, up to `deadline`."""

    def __init__(self, endpoint: Endpoint, deadline: float) -> None:
        self._endpoint, self._deadline = endpoint, deadline
        self._ids = itertools.count(1)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        id = next(self._ids)
        with self._post({"jsonrpc": "2.0", "id": id, "method": method, "params": params}) as response:
            if response.status != 200:
                raise Failed(f"{method}: HTTP {response.status}: {response.read(300)!r}")
            if method == "initialize":
                self._headers["MCP-Protocol-Version"] = REVISION
                if session := response.headers["Mcp-Session-Id"]:
                    self._headers["Mcp-Session-Id"] = session
            is_stream = response.headers["Content-Type"].startswith("text/event-stream")
            return result_of(id, events(response) if is_stream else [response.read()])

    def notify(self, method: str) -> None:
        with self._post({"jsonrpc": "2.0", "method": method}) as response:
            if response.status not in (200, 202):
                raise Failed(f"{method}: HTTP {response.status}: {response.read(300)!r}")

    @contextlib.contextmanager
    def _post(self, message: dict[str, Any]) -> Any:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise Failed(f"{message['method']}: no answer in time")
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._endpoint.port, timeout=left_s)) as one:
            while True:
                try:
                    one.connect()
                    break
                except ConnectionRefusedError:
                    if time.monotonic() >= self._deadline:
                        raise Failed(f"port {self._endpoint.port} accepts no connection") from None
                    time.sleep(TRIED_EVERY_S)
            one.request("POST", self._endpoint.path, json.dumps(message), self._headers)
            yield one.getresponse()


class ProcessSession:
    """A session with a server's process, which the caller has started with pipes and ends."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._ids = itertools.count(1)

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        id = next(self._ids)
        self._write({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        assert self._process.stdout is not None
        return result_of(id, self._process.stdout)

    def notify(self, method: str) -> None:
        self._write({"jsonrpc": "2.0", "method": method})

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()


def begin(session: Session) -> None:
    session.request("initialize", HELLO)
    session.notify("notifications/initialized")


def tools_of(session: Session) -> set[str]:
    """Returns the names of all tools, in a session that has begun."""
    names: set[str] = set()
    params: dict[str, Any] = {}
    while True:
        page = session.request("tools/list", params)
        names |= {tool["name"] for tool in page["tools"]}
        if not page.get("nextCursor"):
            return names
        params = {"cursor": page["nextCursor"]}


def events(lines: Iterable[bytes]) -> Iterable[bytes]:
    """Yields the data of each event of a stream of server-sent events."""
    data: list[bytes] = []
    for line in lines:
        line = line.rstrip(b"\r\n")
        if line.startswith(b"data:"):
            data.append(line[5:].lstrip())
        elif not line and data:
            yield b"\n".join(data)
            data = []


def result_of(id: int, messages: Iterable[bytes]) -> dict[str, Any]:
    """Returns the result in the response to request `id`, and passes over what comes before it.

    Raises:
        Failed: the response is an error, or there is none.
    """
    for text in messages:
        message = json.loads(text) if text.strip() else {}
        if message.get("id") == id and "method" not in message:
            if "result" not in message:
                raise Failed(f"request {id}: {message.get('error')}")
            result: dict[str, Any] = message["result"]
            return result
    raise Failed(f"request {id}: no response")
