"""An authorization server and an MCP server that wants its tokens, whose every answer can be changed.

It listens on a port of this machine, in threads of its own. What came is in `seen`, and `saw` finds it.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

PATIENCE_S = 60.0
KNOWN = "/.well-known"
BROWSER = f"{sys.executable} {Path(__file__).parents[1] / 'real/clients/browser.py'} %s"
"""The setting of a browser that opens a page, and follows it to its end."""


Answer = tuple[int, dict[str, str], bytes]


class Seen(NamedTuple):
    """A request that came. `form` has the parameters of its query or its body."""

    method: str
    path: str
    form: dict[str, str]
    authorization: str
    body: bytes


class Provider:
    """The two servers at one port.

    Attributes:
        access_token: what the MCP server takes.
        token_answer: the status and the members of the answer of the token endpoint.
        returned: the parameters with which the browser is sent back, beside the state.
        resource: the metadata of the MCP server.
        metadata: those of the authorization server.
        challenge: the `WWW-Authenticate` of the MCP server.
        answers: the answers of paths that have another one: status, headers and body, or a function that makes them.
    """

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.answers: dict[str, Answer | Callable[[Seen], Answer]] = {}
        self.clients = 0
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                provider.answer(self, b"")

            def do_DELETE(self) -> None:
                provider.answer(self, b"")

            def do_POST(self) -> None:
                provider.answer(self, self.rfile.read(int(self.headers.get("content-length", 0))))

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.mcp = f"{self.url}/mcp"
        self.access_token, self.code = f"access-of-{self.name}", f"code-of-{self.name}"
        self.token_answer: tuple[int, dict[str, Any]] = (
            200,
            {
                "access_token": self.access_token,
                "refresh_token": f"refresh-of-{self.name}",
                "token_type": "Bearer",
                "expires_in": 3600,
            },
        )
        self.returned: dict[str, str] = {"code": self.code, "iss": self.url}
        self.resource: dict[str, Any] = {"resource": self.mcp, "authorization_servers": [self.url]}
        self.metadata: dict[str, Any] = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "introspection_endpoint": f"{self.url}/introspect",
            "jwks_uri": f"{self.url}/keys",
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
        self.challenge = f'Bearer resource_metadata="{self.url}{KNOWN}/oauth-protected-resource/mcp"'
        self._thread.start()

    @property
    def name(self) -> str:
        return self.url.rpartition(":")[2]

    def saw(self, path: str) -> list[Seen]:
        """Returns the requests for a path."""
        return [each for each in self.seen if each.path == path]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(PATIENCE_S)
        self._server.server_close()

    def answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        parts = urlsplit(handler.path)
        is_form = "form" in handler.headers.get("content-type", "")
        form = dict(parse_qsl(body.decode() if is_form else parts.query))
        authorization = handler.headers.get("authorization", "")
        self.seen.append(Seen(handler.command, parts.path, form, authorization, body))
        answer = self.answers.get(parts.path, self._usual)
        status, headers, content = answer(self.seen[-1]) if callable(answer) else answer
        handler.send_response(status)
        for name, value in ({"content-type": "application/json"} | headers).items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    def _usual(self, seen: Seen) -> Answer:
        match seen.method, seen.path:
            case "GET", "/.well-known/oauth-protected-resource/mcp":
                return 200, {}, json.dumps(self.resource).encode()
            case "GET", "/.well-known/oauth-authorization-server":
                return 200, {}, json.dumps(self.metadata).encode()
            case "POST", "/register":
                self.clients += 1
                return 201, {}, json.dumps({"client_id": f"client-{self.clients}-of-{self.name}"}).encode()
            case "GET", "/authorize":
                back = urlencode({"state": seen.form["state"]} | self.returned)
                return 302, {"location": f"{seen.form['redirect_uri']}?{back}"}, b""
            case "POST", "/token":
                status, members = self.token_answer
                return status, {}, json.dumps(members).encode()
            case "POST", "/mcp":
                return self._mcp(seen)
        return 404, {}, b"{}"

    def _mcp(self, seen: Seen) -> Answer:
        if seen.authorization != f"Bearer {self.access_token}":
            said = seen.authorization or "nothing"
            described = f'{self.challenge}, error_description="got {said}"'
            return 401, {"www-authenticate": described}, json.dumps({"error": f"got {said}"}).encode()
        message = json.loads(seen.body)
        if "id" not in message:
            return 202, {}, b""
        result: dict[str, Any] = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
        if message["method"] == "initialize":
            revision, info = message["params"]["protocolVersion"], {"name": "guarded", "version": "1"}
            result = {"protocolVersion": revision, "capabilities": {"tools": {}}, "serverInfo": info}
        elif message["method"] == "tools/call":
            result = {"content": [{"type": "text", "text": "called"}]}
        elif message["method"] != "tools/list":
            return 200, {}, json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": NO_METHOD}).encode()
        return 200, {}, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()


NO_METHOD = {"code": -32601, "message": "no such method"}


@contextmanager
def provider() -> Iterator[Provider]:
    found = Provider()
    try:
        yield found
    finally:
        found.close()


class Trap:
    """A port of this machine to which nobody may connect. `count` says how many did."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.port = int(self._socket.getsockname()[1])

    def count(self) -> int:
        found = 0
        while True:
            try:
                self._socket.accept()[0].close()
            except BlockingIOError:
                return found
            found += 1

    def close(self) -> None:
        self._socket.close()
