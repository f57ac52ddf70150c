"""A server that knows one era or both, as its arguments say: on stdio, or over HTTP if the first argument is `http`.

On stdio the first request to a process decides its era. Over HTTP it prints its port, and has one session. What reaches
it is written to the file that `SEEN` in the environment names, one word a line: `start` of a process on stdio, the
method of each message, and the verb of each request over HTTP without a message.
"""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

IS_HTTP = sys.argv[1:2] == ["http"]
ERAS = sys.argv[1:]
INFO = {"name": "two-eras", "version": "1"}
TOOLS = {"tools": {"listChanged": True}}
STATELESS: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
PREFIX = "io.modelcontextprotocol"


def see(word: str) -> None:
    if "SEEN" in os.environ:
        with open(os.environ["SEEN"], "a") as file:
            file.write(f"{word}\n")


def era_of(message: dict[str, Any]) -> str:
    return "stateless" if f"{PREFIX}/protocolVersion" in message.get("params", {}).get("_meta", {}) else "handshake"


def answer(method: str, era: str) -> dict[str, Any] | None:
    if method == "initialize" and era == "handshake":
        return {"protocolVersion": "2025-06-18", "capabilities": {**TOOLS, "logging": {}}, "serverInfo": INFO}
    if method == "server/discover" and era == "stateless":
        meta = {f"{PREFIX}/serverInfo": INFO}
        capabilities = {**TOOLS, "completions": {}}
        return {**STATELESS, "supportedVersions": ["2026-07-28"], "capabilities": capabilities, "_meta": meta}
    if method == "tools/list":
        return {"tools": []} | (STATELESS if era == "stateless" else {})
    return None


def response(id: object, result: dict[str, Any] | None) -> str:
    outcome = {"error": {"code": -32601, "message": "unknown method"}} if result is None else {"result": result}
    return json.dumps({"jsonrpc": "2.0", "id": id, **outcome})


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        see("GET")
        self.reply(405)

    def do_DELETE(self) -> None:
        see("DELETE")
        self.reply(204)

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, era = message["method"], era_of(message)
        see(method)
        if "id" not in message:
            self.reply(202)
        elif (
            "handshake" in ERAS and method != "initialize" and "Mcp-Session-Id" not in self.headers and era not in ERAS
        ):
            self.reply(400, json.dumps({"error": "Missing session ID"}))
        else:
            result = answer(method, era) if era in ERAS else None
            session = {"Mcp-Session-Id": "one"} if method == "initialize" and result is not None else {}
            self.reply(404 if result is None else 200, response(message["id"], result), **session)

    def reply(self, status: int, body: str = "", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if body:
            self.send_header("Content-Type", "application/json")
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


def serve_http() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


def serve_lines() -> None:
    see("start")
    chosen = ""
    for line in sys.stdin:
        message = json.loads(line)
        see(message["method"])
        if "id" not in message:
            continue
        era = era_of(message)
        result = answer(message["method"], era) if era in ERAS and chosen in ("", era) else None
        if result is not None:
            chosen = era
        print(response(message["id"], result), flush=True)


(serve_http if IS_HTTP else serve_lines)()
