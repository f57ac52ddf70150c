"""The transports of the scripted server: lines, Streamable HTTP with sessions or without, and HTTP+SSE."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import select
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from abilities import K

if TYPE_CHECKING:
    from scripted_server import Peer, Server

NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The param that a request repeats in its `Mcp-Name` header."""
STATUS: Final = {-32601: 404, -32020: 400, -32021: 400, -32022: 400, -32600: 400, -32700: 400}
"""HTTP statuses of errors at 2026-07-28. Others come with 200."""


def line_of(frame: dict[str, Any]) -> bytes:
    return json.dumps(frame, ensure_ascii=False).encode()


# --- stdio ------------------------------------------------------------------------------------------------------------


class Lines:
    """Standard output."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def write(self, frame: dict[str, Any]) -> None:
        with self._lock:
            sys.stdout.buffer.write(line_of(frame) + b"\n")
            sys.stdout.buffer.flush()

    def is_gone(self) -> bool:
        return False


def speak_stdio(server: Server) -> None:
    lines = Lines()
    peer = server.new_peer(lines)
    for line in sys.stdin.buffer:
        peer.receive(json.loads(line), lines)


# --- HTTP -------------------------------------------------------------------------------------------------------------


class Events:
    """An event stream. Frames wait in it until there is a connection."""

    def __init__(self) -> None:
        self._queue: queue.Queue[bytes | None] = queue.Queue()
        self._sock: socket.socket | None = None
        self._is_gone = False

    def write(self, frame: dict[str, Any]) -> None:
        self._queue.put(b"event: message\ndata: " + line_of(frame) + b"\n\n")

    def end(self) -> None:
        self._queue.put(None)

    def is_gone(self) -> bool:
        if self._sock is not None and not self._is_gone:
            with contextlib.suppress(OSError):
                if select.select([self._sock], [], [], 0)[0]:
                    self._is_gone = not self._sock.recv(1, socket.MSG_PEEK)
                return self._is_gone
            self._is_gone = True
        return self._is_gone

    def serve(self, handler: Handler, greeting: bytes = b"", headers: dict[str, str] | None = None) -> None:
        """Sends the stream in chunks, until its end."""
        self._sock = handler.connection
        handler.send_response(200)
        for name, value in {
            "Content-Type": "text/event-stream",
            "Transfer-Encoding": "chunked",
            **(headers or {}),
        }.items():
            handler.send_header(name, value)
        handler.end_headers()
        try:
            if greeting:
                self._chunk(handler, greeting)
            while (event := self._queue.get()) is not None:
                self._chunk(handler, event)
            handler.wfile.write(b"0\r\n\r\n")
        except OSError:
            self._is_gone = handler.close_connection = True

    def _chunk(self, handler: Handler, piece: bytes) -> None:
        handler.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        handler.wfile.flush()


class Once:
    """A reply of one JSON document."""

    def __init__(self) -> None:
        self.frame: dict[str, Any] = {}

    def write(self, frame: dict[str, Any]) -> None:
        self.frame = frame

    def is_gone(self) -> bool:
        return False


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    scripted: Server
    sessions: dict[str, tuple[Peer, Events]] = {}  # noqa: RUF012
    lock = threading.Lock()

    def do_POST(self) -> None:
        frame = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.scripted.is_legacy:
            self._post_alone(frame)
        elif self.path.startswith("/messages"):
            peer, events = self.sessions[self.path.partition("?s=")[2]]
            # a message POSTed next may overtake one whose 202 is already sent
            if isinstance(frame, dict) and "id" not in frame:
                peer.receive(frame, events)
                self._answer(202, b"")
            else:
                self._answer(202, b"")
                peer.receive(frame, events)
        else:
            self._post_in_session(frame)

    def _post_in_session(self, frame: Any) -> None:
        server, name = self.scripted, self.headers["Mcp-Session-Id"]
        is_first = isinstance(frame, dict) and frame.get("method") == "initialize"
        if is_first and name is None:
            name, events = os.urandom(8).hex(), Events()
            self.sessions[name] = server.new_peer(events), events
        elif name is None:
            if not (isinstance(frame, dict) and frame.get("method") == "server/discover"):
                server.violate("got a request without Mcp-Session-Id")
            self._refuse(400, frame, -32600, "Mcp-Session-Id is missing")
            return
        elif name not in self.sessions:
            self._refuse(404, frame, -32001, "no such session")
            return
        else:
            version = self.headers["MCP-Protocol-Version"]
            if "version header" in server.knows and version != server.revision:
                server.violate(f"got MCP-Protocol-Version {version}, expected {server.revision}")
                self._refuse(400, frame, -32600, f"unsupported version {version}")
                return
        peer, _ = self.sessions[name]
        self._reply(peer, frame, {"Mcp-Session-Id": name} if is_first else {})

    def _post_alone(self, frame: Any) -> None:
        server = self.scripted
        peer = server.new_peer(Once())
        try:
            if isinstance(frame, dict) and "id" in frame and "method" in frame:
                trouble = self._header_trouble(frame) if frame["method"] != "initialize" else None
                if trouble is not None:
                    server.violate(trouble)
                    self._refuse(400, frame, -32020, trouble)
                    return
            else:
                server.violate(f"got {str(frame)[:100]}, expected a request: over HTTP a client says nothing else")
            self._reply(peer, frame, {})
        finally:
            server.peers.remove(peer)

    def _header_trouble(self, frame: dict[str, Any]) -> str | None:
        params = frame.get("params", {})
        expected = {
            "MCP-Protocol-Version": params.get("_meta", {}).get(K + "protocolVersion"),
            "Mcp-Method": frame["method"],
        }
        if frame["method"] in NAMED:
            expected["Mcp-Name"] = params.get(NAMED[frame["method"]])
        for name, value in expected.items():
            seen = self.headers.get_all(name) or []
            if [unwrapped(one) for one in seen] != [value]:
                return f"got {name} {seen}, expected {value!r}"
        if "Mcp-Session-Id" in self.headers:
            return "got Mcp-Session-Id, where there are no sessions"
        return None

    def _reply(self, peer: Peer, frame: Any, headers: dict[str, str]) -> None:
        if not (isinstance(frame, dict) and "id" in frame and "method" in frame):
            peer.receive(frame, Once())
            self._answer(202, b"")
        elif frame["method"] in ("tools/call", "prompts/get", "subscriptions/listen"):
            if self.scripted.is_legacy or frame["method"] == "subscriptions/listen":
                events = Events()
                peer.receive(frame, events, events.end)
                events.serve(self, headers={"X-Accel-Buffering": "no"})
            else:
                self._reply_late(peer, frame)
        else:
            once = Once()
            peer.receive(frame, once)
            status = 200
            if not self.scripted.is_legacy and "error" in once.frame:
                status = STATUS.get(once.frame["error"]["code"], 200)
            self._answer(status, line_of(once.frame), headers)

    def _reply_late(self, peer: Peer, frame: dict[str, Any]) -> None:
        """Replies to a call. An error that comes first may have an HTTP status of its own. Any other reply is a
        stream."""
        late = Late()
        peer.receive(frame, late, late.end)
        first = late.wait()
        if "error" in first and (status := STATUS.get(first["error"]["code"])) is not None:
            self._answer(status, line_of(first))
        else:
            late.serve(self, headers={"X-Accel-Buffering": "no"})

    def do_GET(self) -> None:
        if self.path == "/sse":
            name, events = os.urandom(8).hex(), Events()
            self.sessions[name] = self.scripted.new_peer(events), events
            events.serve(self, f"event: endpoint\ndata: /messages?s={name}\n\n".encode())
        elif not self.scripted.is_legacy:
            self._answer(405, b"", {"Allow": "POST"})
        elif (found := self.sessions.get(self.headers["Mcp-Session-Id"])) is not None:
            found[1].serve(self)
        else:
            self._answer(404, b"")

    def do_DELETE(self) -> None:
        if not self.scripted.is_legacy:
            self._answer(405, b"", {"Allow": "POST"})
            return
        found = self.sessions.pop(self.headers["Mcp-Session-Id"], None)
        if found is not None:
            found[1].end()
            self.scripted.peers.remove(found[0])
        self._answer(404 if found is None else 204, b"")

    def _refuse(self, status: int, frame: Any, code: int, message: str) -> None:
        number = frame.get("id") if isinstance(frame, dict) else None
        error = {"code": code, "message": message}
        self._answer(status, line_of({"jsonrpc": "2.0", "id": number, "error": error}))

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            if body:
                self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Late(Events):
    """A stream whose first frame is read before its head is sent."""

    def __init__(self) -> None:
        super().__init__()
        self._first: queue.Queue[dict[str, Any]] = queue.Queue()

    def write(self, frame: dict[str, Any]) -> None:
        self._first.put(frame)
        super().write(frame)

    def end(self) -> None:
        self._first.put({})
        super().end()

    def wait(self) -> dict[str, Any]:
        """Returns the first frame. A script that runs until it is cancelled and reports no progress would never have
        one; there is none."""
        return self._first.get()


def unwrapped(value: str) -> str:
    """Returns the text of a header, decoded if it is in the Base64 sentinel."""
    if value.startswith("=?base64?") and value.endswith("?="):
        return base64.b64decode(value[9:-2]).decode()
    return value


class HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def speak_http(server: Server) -> None:
    Handler.scripted = server
    listener = HttpServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    is_old = "audio" not in server.knows
    scheme, path = ("sse+http", "/sse") if is_old else ("http", "/mcp")
    print(f"listening on {scheme}://127.0.0.1:{listener.server_port}{path}", flush=True)
    sys.stdin.read()  # until the parent process closes it
