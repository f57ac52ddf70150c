"""The wires of the scripted client to a server: bytes each way, and a thread for each stream that is read."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import threading
from typing import Any, Final

from abilities import ABILITIES, K
from raw_clients import PATIENCE_S, Client, HttpClient, OverHttp

NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class UnixClient(Client):
    """Lines over a Unix domain socket: the traffic of stdio, without a process of its own."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.settimeout(PATIENCE_S)
        self._sock.connect(path)
        self._sock.settimeout(None)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with self._sock.makefile("rb") as lines:
            for line in lines:
                self.take("pipe", line.removesuffix(b"\n"))

    def send(self, message: bytes) -> None:
        self._sock.sendall(message + b"\n")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._reader.join(PATIENCE_S)
        assert not self._reader.is_alive()
        self._sock.close()


class SessionHttpClient(HttpClient):
    """Streamable HTTP of the handshake revisions, with the headers of one."""

    def __init__(self, url: str, revision: str) -> None:
        super().__init__(url)
        self.revision = revision

    @property
    def _headers(self) -> dict[str, str]:
        headers = super()._headers
        if "version header" not in ABILITIES[self.revision]:
            headers.pop("MCP-Protocol-Version", None)
        return headers


class StatelessHttpClient(OverHttp):
    """Streamable HTTP of 2026-07-28: a POST for each request, which is cancelled by hanging up."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.statuses: dict[str, int] = {}
        """The HTTP status of each answer, by the request's id."""
        self._sockets: dict[str, socket.socket] = {}
        self._hung_up: set[str] = set()

    def send(self, message: bytes) -> None:
        frame = json.loads(message)
        if frame["method"] == "notifications/cancelled":
            self._hang_up(repr(frame["params"]["requestId"]))
        else:
            self.start(self._post, message, frame)

    def _hang_up(self, key: str) -> None:
        self._hung_up.add(key)
        if key in self._sockets:
            self._sockets[key].shutdown(socket.SHUT_RDWR)

    def _post(self, message: bytes, frame: dict[str, Any]) -> None:
        key = repr(frame["id"])
        connection = http.client.HTTPConnection(self._host, self._port, timeout=PATIENCE_S)
        self._open.add(connection)
        try:
            connection.request("POST", self._path, message, headers_of(frame))
            assert connection.sock is not None
            self._sockets[key] = connection.sock
            with connection.getresponse() as response:
                self._read(response, key)
        except (OSError, http.client.HTTPException):
            if key not in self._hung_up:
                raise
        finally:
            self._sockets.pop(key, None)
            self._open.discard(connection)
            connection.close()

    def _read(self, response: http.client.HTTPResponse, key: str) -> None:
        self.statuses[key] = response.status
        assert "Mcp-Session-Id" not in response.headers, "got a session, where there are none"
        kind = (response.getheader("Content-Type") or "").partition(";")[0]
        if kind == "text/event-stream":
            assert response.status == 200, response.status
            for _, data in self.events(response):
                self.take(f"post {key}", data)
        else:
            body = response.read()
            assert kind == "application/json", (response.status, kind, body[:300])
            self.take(f"post {key}", body)


def headers_of(frame: dict[str, Any]) -> dict[str, str]:
    headers = {
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": frame["params"]["_meta"][K + "protocolVersion"],
        "Mcp-Method": frame["method"],
    }
    if frame["method"] in NAMED:
        headers["Mcp-Name"] = wrapped(frame["params"][NAMED[frame["method"]]])
    return headers


def wrapped(value: str) -> str:
    """Returns the value for a header: unchanged if that is allowed, otherwise in the Base64 sentinel."""
    is_plain = value.isascii() and value.isprintable() and value == value.strip() and not value.startswith("=?")
    return value if is_plain else f"=?base64?{base64.b64encode(value.encode()).decode()}?="
