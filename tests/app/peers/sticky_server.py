"""A server of Streamable HTTP as two machines behind a load balancer, made of the standard library.

It lives at `/mcp/`, and answers 307 at `/mcp`. Only the balancer's cookie names the machine of a session: without
it, or with another session's, there is no such session. Each response sets the cookie anew, and an older one is not
taken. Its tools: `echo` returns its text; `cookie` the request's `Cookie` headers; `path` the requested paths. It
prints its port.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
COOKIES: dict[str, str] = {}  # the cookie that each session's next request must have
NUMBERS = itertools.count(1)
PATHS: list[str] = []
TOOLS = ("echo", "cookie", "path")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.reply(405)

    def do_DELETE(self) -> None:
        if self.is_known():
            del COOKIES[self.headers["Mcp-Session-Id"]]
            self.reply(200)

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        PATHS.append(self.path)
        if self.path == "/mcp":
            self.reply(307, Location=f"http://{self.headers['Host']}/mcp/")
        elif message.get("method") == "initialize":
            info = {"name": "sticky", "version": "1"}
            result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}}}
            self.answer(message, f"S{next(NUMBERS)}", {**result, "serverInfo": info})
        elif self.is_known():
            session = self.headers["Mcp-Session-Id"]
            if "id" not in message:
                self.reply(202)
            elif message["method"] == "tools/list":
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
                self.answer(message, session, {"tools": tools})
            else:
                self.answer(message, session, {"content": [{"type": "text", "text": self.text_for(message["params"])}]})

    def is_known(self) -> bool:
        session = self.headers.get("Mcp-Session-Id", "")
        if session in COOKIES and COOKIES[session] in self.headers.get("Cookie", "").split("; "):
            return True
        self.reply(404)
        return False

    def text_for(self, params: Json) -> str:
        if params["name"] == "cookie":
            return json.dumps(self.headers.get_all("Cookie"))
        return json.dumps(PATHS) if params["name"] == "path" else str(params["arguments"]["text"])

    def answer(self, message: Json, session: str, result: Json) -> None:
        COOKIES[session] = cookie = f"lb={session}-{next(NUMBERS)}"
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        headers = {"Content-Type": "application/json", "Set-Cookie": f"{cookie}; Path=/; HttpOnly"}
        self.reply(200, body, **headers, **{"Mcp-Session-Id": session})

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()
