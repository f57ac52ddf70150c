"""A proxy in a thread of its own, and a blocking client of its file endpoints that shows every response as it is."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from anyio.from_thread import start_blocking_portal
from isthmus.app.config.file_settings import UploadConsumerAdapter
from isthmus.app.config.settings import Core, Server, Settings, Storage, Uploads, Upstream
from isthmus.app.gateway import running

TOOLBOX = str(Path(__file__).parent / "peers" / "toolbox.py")
PATIENCE_S = 20.0
TUS = {"Tus-Resumable": "1.0.0"}
BODY = {**TUS, "Content-Type": "application/offset+octet-stream"}


class Reply(NamedTuple):
    """An HTTP response; names of headers in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["code"])


@contextmanager
def served(root: Path, *, uploads: Uploads | None = None, **core: Any) -> Iterator[str]:
    """The address of a proxy whose server `a` takes uploads in its tool `echo`, which returns their paths."""
    adapters = (UploadConsumerAdapter(tools=("echo",), file_path_argument="text"),)
    server = Server(id="a", upstream=Upstream(command=(sys.executable, TOOLBOX, "a")), adapters=adapters)
    settings = Settings(
        core=Core(port=0, drain_seconds=5.0, **core),
        storage=Storage(root=str(root)),
        uploads=uploads or Uploads(),
        servers=(server,),
    )
    with start_blocking_portal() as portal:
        with portal.wrap_async_context_manager(running(settings, listen=True, is_lasting=True)) as gateway:
            yield gateway.base_url


class Caller:
    """An MCP client with a session, and the holders of its links."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.session = ""
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        reply = self._post({"id": 0, "method": "initialize", "params": hello})
        self.session = reply.headers["mcp-session-id"]
        self._post({"method": "notifications/initialized"})

    def _post(self, message: dict[str, Any]) -> Reply:
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if self.session:
            headers["Mcp-Session-Id"] = self.session
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        return self.fetch("POST", f"{self.base_url}/mcp/a", headers, body)

    def call(self, tool: str, **arguments: object) -> Any:
        reply = self._post({"id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
        text = reply.body.decode()
        if "event-stream" in reply.headers["content-type"]:
            text = text.rpartition("data:")[2]
        return json.loads(text)["result"]

    def link(self) -> str:
        """A new upload link, for one use."""
        return str(self.call("a_get_upload_url")["structuredContent"]["upload_url"])

    def end(self) -> None:
        """Ends the session, and its uploads with it."""
        reply = self.fetch("DELETE", f"{self.base_url}/mcp/a", {"Mcp-Session-Id": self.session})
        assert reply.status < 300

    def content(self, handle: str) -> bytes:
        """The file that the tool is given for a handle."""
        (block,) = self.call("echo", text=handle)["content"]
        return Path(block["text"].removeprefix("a says ")).read_bytes()

    def fetch(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | Iterable[bytes] | None = None,
    ) -> Reply:
        """Sends one request on a connection of its own. A body in pieces is chunked, unless a header gives its
        length."""
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        try:
            connection.request(method, target, body, dict(headers or {}))
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, found, response.read())
        finally:
            connection.close()

    def plug(self, method: str, url: str, headers: Mapping[str, str]) -> socket.socket:
        """A connection on which the head of a request was sent."""
        parts = urlsplit(url)
        lines = [f"{method} {parts.path}?{parts.query} HTTP/1.1", f"Host: {parts.netloc}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        plug = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=PATIENCE_S)
        plug.sendall("\r\n".join([*lines, "", ""]).encode())
        return plug

    def drop(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        """Sends the head of a request and a part of its body, and hangs up."""
        with self.plug(method, url, headers) as plug:
            plug.sendall(body)
            plug.shutdown(socket.SHUT_WR)
            while plug.recv(65536):
                pass


@contextmanager
def fail_after(seconds: float = PATIENCE_S) -> Iterator[None]:
    """Limits the time of a loop that polls."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"waited for {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
