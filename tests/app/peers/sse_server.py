"""A server of the HTTP+SSE transport of 2024-11-05, made of the standard library: `GET /sse`, `POST /messages?s=N`.

Its tools: `echo` returns its text; `headers` the request's headers; `ask` requests the client's roots and returns
their number; `forget` drops the session, so that the next POST gets 404; `hang_up` ends its stream. It prints its
port.
"""

from __future__ import annotations

import itertools
import json
import queue
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
SESSIONS: dict[str, queue.Queue[Json | None]] = {}
NUMBERS = itertools.count(1)
TOOLS = ("echo", "headers", "ask", "forget", "hang_up")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        session, messages = str(next(NUMBERS)), queue.Queue[Json | None]()
        SESSIONS[session] = messages
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()
        self.write_event("endpoint", f"/messages?s={session}")
        while (message := messages.get()) is not None:
            self.write_event("message", json.dumps(message))
        SESSIONS.pop(session, None)
        self.close_connection = True

    def write_event(self, event: str, data: str) -> None:
        self.wfile.write(f": hello\r\nevent: {event}\r\ndata: {data}\r\n\r\n".encode())

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        session = self.path.partition("?s=")[2]
        messages = SESSIONS.get(session)
        self.send_response(404 if messages is None else 202)
        self.send_header("Content-Length", "8")
        self.end_headers()
        self.wfile.write(b"Accepted")
        if messages is not None:
            self.answer(message, session, messages)

    def answer(self, message: Json, session: str, messages: queue.Queue[Json | None]) -> None:
        if message.get("method") == "initialize":
            info = {"name": "old", "version": "1"}
            result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}}}
            messages.put({"jsonrpc": "2.0", "id": message["id"], "result": {**result, "serverInfo": info}})
        elif message.get("method") == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
            messages.put({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": tools}})
        elif message.get("method") == "tools/call":
            self.call(message["id"], message["params"], session, messages)
        elif "result" in message:  # the answer to a server request, whose id contains the call's id
            messages.put(text(int(message["id"].removeprefix("for-")), f"{len(message['result']['roots'])} roots"))

    def call(self, id: int, params: Json, session: str, messages: queue.Queue[Json | None]) -> None:
        match params["name"]:
            case "echo":
                messages.put(text(id, params["arguments"]["text"]))
            case "headers":
                messages.put(text(id, json.dumps({name.lower(): value for name, value in self.headers.items()})))
            case "ask":
                messages.put({"jsonrpc": "2.0", "id": f"for-{id}", "method": "roots/list"})
            case "forget":
                del SESSIONS[session]
                messages.put(text(id, "forgotten"))
            case "hang_up":
                messages.put(None)

    def log_message(self, format: str, *args: object) -> None:
        pass


def text(id: int, value: str) -> Json:
    return {"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": value}]}}


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()  # until the parent process closes it


if __name__ == "__main__":
    main()
