"""An authorization server that is scripted over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

PATIENCE_S = 60.0


class Provider:
    """An authorization server, and the metadata of a server. `answer` gives status and body of each token request.

    A token request waits for `goes_on`.
    """

    def __init__(self) -> None:
        self.forms: list[dict[str, str]] = []
        self.registrations = 0
        self.answer: Callable[[dict[str, str]], tuple[int, dict[str, Any]]] = self.granted
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.came = threading.Event()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = {
                    "/.well-known/oauth-protected-resource/mcp": {
                        "resource": f"{provider.url}/mcp",
                        "authorization_servers": [provider.url],
                        "scopes_supported": ["read"],
                    },
                    "/.well-known/oauth-authorization-server": {
                        "issuer": provider.url,
                        "token_endpoint": f"{provider.url}/token",
                        "authorization_endpoint": f"{provider.url}/authorize",
                        "registration_endpoint": f"{provider.url}/register",
                        "code_challenge_methods_supported": ["S256"],
                    },
                }.get(self.path)
                self.reply(404 if found is None else 200, found or {})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                if self.path == "/mcp":
                    self.reply(401, {})
                    return
                if self.path == "/register":
                    provider.registrations += 1
                    self.reply(201, {"client_id": f"registered-{provider.registrations}"})
                    return
                form = dict(parse_qsl(body))
                provider.forms.append(form)
                provider.came.set()
                assert provider.goes_on.wait(PATIENCE_S)
                self.reply(*provider.answer(form))

            def reply(self, status: int, found: dict[str, Any]) -> None:
                body = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def granted(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        number = len(self.forms)
        tokens = {"access_token": f"access-{number}", "refresh_token": f"refresh-{number}", "token_type": "Bearer"}
        return 200, {**tokens, "expires_in": 3600, **({"scope": form["scope"]} if "scope" in form else {})}

    def close(self) -> None:
        self.goes_on.set()
        self.server.shutdown()
        self.thread.join(PATIENCE_S)
        self.server.server_close()
