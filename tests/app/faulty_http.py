"""The server of `faulty` over HTTP, in this process."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from faulty import REVISION, answers


class Faulty(ThreadingHTTPServer):
    """A server with a fault, and its open sessions. Faults of its own: after a body that is no message it "dies" or
    "hangs"."""

    daemon_threads = True

    def __init__(self, fault: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.fault = fault
        self.count = 0
        self.sessions: set[str] = set()
        self.is_stuck = False
        self.let_go = threading.Event()

    def shutdown(self) -> None:
        self.let_go.set()
        super().shutdown()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Faulty

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            message = json.loads(body)
        except ValueError:
            message = None
        if self.server.is_stuck:
            self.server.let_go.wait()
            self.close_connection = True
            return
        if self.server.fault.startswith("refuses"):
            self.reply(int(self.server.fault.split()[1]), b"{}")
            return
        if not isinstance(message, dict):
            if self.server.fault == "dies":
                self.server.shutdown()
                self.server.socket.close()
                self.close_connection = True
                return
            self.server.is_stuck = self.server.fault == "hangs"
            self.reply(400)
            return
        if self.headers.get("MCP-Protocol-Version", REVISION) != REVISION:
            self.reply(400)
            return
        session = self.headers["Mcp-Session-Id"]
        given = None
        if message.get("method") == "initialize":
            self.server.count += 1
            given = f"s{self.server.count}" if self.server.fault != "spaces" else f"s {self.server.count}"
            self.server.sessions.add(given)
        elif session not in self.server.sessions:
            self.reply(404 if session else 400)
            return
        replies = answers(message, self.server.fault)
        if not replies:
            self.reply(200 if self.server.fault == "status" else 202)
            return
        self.reply(200, json.dumps(replies[0]).encode(), given)

    def do_GET(self) -> None:
        self.reply(405)

    def do_DELETE(self) -> None:
        self.server.sessions.discard(self.headers["Mcp-Session-Id"])
        self.reply(200)

    def reply(self, status: int, body: bytes = b"", session: str | None = None) -> None:
        self.send_response(status)
        if session is not None:
            self.send_header("Mcp-Session-Id", session)
        if body:
            self.send_header("Content-Type", "text/plain" if self.server.fault == "plain" else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass
