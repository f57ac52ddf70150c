"""A server that speaks the JSON API of the live page, with events that are made up, for tests of the page alone."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import msgspec
from isthmus.app.watch.static_files import StaticFiles

TOKEN: Final = "s3cret token&more"
EVENTS_MAX: Final = 2000
Json = dict[str, Any]

PNG: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PDF: Final = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]>>endobj\ntrailer<</Root 1 0 R>>\n"
)
HOSTILE: Final = "<script>boom()</script> \x1b[31mred\x1b[0m \u202egnp.exe\u202c \U000e0041\x07"
"""Text that a terminal or a browser would obey, and a letter that nobody sees."""
SCRIPT: Final = "<svg xmlns='http://www.w3.org/2000/svg'><script>boom()</script></svg>"


class StandIn:
    """The state of the server. Its methods are called by the test.

    Attributes:
        commands: what the page ordered: (method, path, body).
    """

    def __init__(self) -> None:
        self.run = "run-1"
        self.events: list[Json] = []
        self.first = 1
        self.last = 0
        self.bodies: dict[int, tuple[Json, bytes, Json]] = {}
        self.commands: list[tuple[str, str, bytes]] = []
        self.token = TOKEN
        self.actions = True
        self.servers: list[Json] = []
        self.tasks: list[Json] = []
        self.files: dict[str, tuple[Json, bytes]] = {}
        self.replayed = b"{}"
        self.base_url = ""
        self._changed = threading.Condition()

    def add(self, *events: Json) -> None:
        with self._changed:
            for event in events:
                self.last += 1
                self.events.append({**event, "n": self.last})
            self._changed.notify_all()

    def drop(self, count: int) -> None:
        """Drops all events, and as many more that no page has seen."""
        with self._changed:
            self.events.clear()
            self.last += count
            self.first = self.last + 1

    def restart(self) -> None:
        with self._changed:
            self.run += "+"
            self.events.clear()
            self.first, self.last = 1, 0
            self._changed.notify_all()

    def after(self, number: int, wait_s: float) -> Json:
        with self._changed:
            run = self.run
            is_of_other_run = number > self.last
            wait_s = 0 if is_of_other_run else min(wait_s, 5)
            self._changed.wait_for(lambda: self.last > number or self.run != run, wait_s)
            at = max(0, number + 1 - self.first)
            found = self.events[at : at + EVENTS_MAX]
            skipped = max(0, self.first - number - 1) if found else 0
            return {"run": self.run, "after": number, "last": self.last, "skipped": skipped, "events": found}

    # --- What peers said --------------------------------------------------------------------------------------------

    def message(self, leg: str, way: str, body: bytes, **members: Any) -> None:
        """Adds a message. Its kind, id and method are read of the body."""
        about: Json = {"headers": [], "status": None, "redacted": members.pop("redacted", [])}
        about["headers"] = members.pop("headers", [])
        try:
            value = json.loads(body)
        except ValueError:
            value = {}
        kind = "unreadable" if not value else "response" if "method" not in value else "request"
        kind = "notification" if kind == "request" and "id" not in value else kind
        event: Json = {
            "type": "message",
            "at": 1790000000.0,
            "leg": leg,
            "way": way,
            "channel": 1,
            "session": "Xy3fQa",
            "server": "files",
            "kind": kind,
            "method": value.get("method", ""),
            "request": "",
            "event_id": "",
            "id": json.dumps(value["id"]) if "id" in value else "",
            "bytes": len(body),
            "is_cut": False,
            **members,
        }
        self.add(event)
        self.bodies[self.last] = ({**event, "n": self.last}, body[:65536], about)

    def call(self, number: int, tool: str, arguments: Json, result: Json, **members: Any) -> None:
        """Adds a request with its four messages."""
        name, at = f"{number}.0", members.get("at", 1790000000.0 + number)
        params = {"name": tool, "arguments": arguments}
        sent = members.pop("sent", params)
        answered = members.pop("answered", {"result": result})
        returned = members.pop("returned", answered)
        session, server = members.get("session", "Xy3fQa"), members.get("server", "files")
        asked, passed = ({"jsonrpc": "2.0", "id": id, "method": "tools/call"} for id in (number, number + 100))
        shared: Json = {"session": session, "server": server, "request": name}
        open_request = request(number, tool, at=at, state="open", outcome="", ms=None, session=session, server=server)
        self.message("client", "in", dumps({**asked, "params": params}), at=at, headers=HEADERS, **shared)
        self.add({**open_request, **{k: v for k, v in members.items() if k in ("client", "principal", "revision")}})
        self.message("server", "out", dumps({**passed, "params": sent}), at=at + 0.0006, channel=7, **shared)
        done = request(number, tool, **{"at": at, **members})
        late = at + (done["ms"] or 0) / 1000
        reply = {"jsonrpc": "2.0", "id": number + 100, **answered}
        self.message("server", "in", dumps(reply), at=late - 0.0004, channel=7, **shared)
        self.message("client", "out", dumps({"jsonrpc": "2.0", "id": number, **returned}), at=late, **shared)
        self.add(done)


HEADERS: Final = [["host", "127.0.0.1:8931"], ["mcp-protocol-version", "2025-11-25"], ["authorization", "[redacted]"]]


def dumps(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def request(number: int, target: str, **members: Any) -> Json:
    """Returns the event of a request that has been answered after 41.8 ms, or as `members` say."""
    at, server = members.get("at", 1790000000.0 + number), members.get("server", "files")
    ms = members.get("ms", 41.8)
    attempt = {"server": server, "at": at + 0.0006, "ms": None if ms is None else ms * 0.96, "channel": 7}
    return {
        "type": "request",
        "request": f"{number}.0",
        "at": at,
        "session": "Xy3fQa",
        "client": "claude-code 2.1",
        "principal": "token:ci",
        "server": server,
        "transport": "http",
        "revision": "2025-11-25",
        "id": str(number),
        "method": "tools/call",
        "target": target,
        "state": "over",
        "outcome": "result",
        "code": None,
        "ms": ms,
        "request_bytes": 120,
        "response_bytes": 2211,
        "questions": 0,
        "attempts": [{**attempt, "number": number + 100, "revision": "2024-11-05", "via": "pipe"}],
        **members,
    }


def session(name: str, client: str, server: str, **members: Any) -> Json:
    return {
        "type": "session",
        "session": name,
        "client": client,
        "principal": "token:ci",
        "server": server,
        "transport": "http",
        "revision": "2025-11-25",
        "state": "open",
        "reason": "",
        "requests": 3,
        "open_requests": 0,
        "at": 1790000000.0,
        "ended_at": None,
        **members,
    }


def server(name: str, state: str, **members: Any) -> Json:
    return {
        "name": name,
        "path": name,
        "type": "local",
        "status": state,
        "on_demand": False,
        "state": state,
        "kind": "pipe",
        "pids": [4711],
        "sessions": 1,
        "in_flight": 0,
        "processes": 1,
        "spares": 0,
        "starts": 1,
        "failures": 0,
        "noise": 0,
        "differences": {},
        "cache_hits": 12,
        "cache_misses": 30,
        "last_error": "",
        "urls": [],
        "eras": {},
        "era": "handshake",
        "protocol_version": "2024-11-05",
        "uptime_s": 3725.0,
        "capabilities": ["tools", "resources", "prompts"],
        "tools": 11,
        **members,
    }


def file(id: str, filename: str, mime_type: str, content: bytes, **members: Any) -> tuple[Json, bytes]:
    shown = {
        "id": id,
        "kind": "artifact",
        "server": "browser",
        "session": "Xy3fQa",
        "uri": f"artifact://{id}",
        "filename": filename,
        "mime_type": mime_type,
        "size_bytes": len(content),
        "sha256": "ab" * 32,
        "tool": "take_screenshot",
        "principal": "token:ci",
        "stored_at_unix": 1790000000.0,
        "is_live": True,
        "used_at_unix": 1790000000.0,
        "expires_at_unix": 1790003600.0,
        "pins": 0,
        "is_bearer": False,
        "age_s": 240.0,
        "idle_s": 30.0,
        "expires_in_s": 3360.0,
        **members,
    }
    return shown, content


def task(id: str, status: str, **members: Any) -> Json:
    return {
        "id": id,
        "server": "reports",
        "tool": "write_report",
        "kind": "proxied",
        "era": "handshake",
        "principal": "token:ci",
        "session": "Xy3fQa",
        "status": status,
        "message": "page 3 of 12",
        "size_bytes": 0,
        "created_at_unix": 1790000000.0,
        "updated_at_unix": 1790000000.0,
        "expires_at_unix": 1790003600.0,
        "age_s": 75.0,
        "expires_in_s": 3525.0,
        **members,
    }


@contextmanager
def serving(state: StandIn) -> Iterator[StandIn]:
    """Serves on a free port of this machine, until left."""
    static = StaticFiles()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self._answer("GET", b"")

        def do_POST(self) -> None:
            self._answer("POST", self.rfile.read(int(self.headers.get("Content-Length", 0))))

        def do_DELETE(self) -> None:
            self._answer("DELETE", b"")

        def _answer(self, method: str, body: bytes) -> None:
            url = urlsplit(self.path)
            if url.path == "/ui" or (url.path.startswith("/ui/") and not url.path.startswith("/ui/api/")):
                answer = static.answer(url.path[4:])
                headers = [(name.decode(), value.decode()) for name, value in answer.headers]
                return self._write(answer.status, answer.body, headers)
            if self.headers.get("Authorization") != f"Bearer {state.token}":
                return self._json(401, {"error": "expected the token of this page", "code": 401})
            if method != "GET":
                if self.headers.get("X-Requested-With") != "isthmus":
                    return self._json(403, {"error": "expected X-Requested-With"})
                state.commands.append((method, url.path, body))
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            parts = url.path.strip("/").split("/")
            match [method, *parts]:
                case ["GET", "ui", "api", "events"]:
                    return self._json(200, state.after(int(query["after"]), float(query["wait"])))
                case ["GET", "ui", "api", "overview"]:
                    names = [each["name"] for each in state.servers] or ["files"]
                    shown = {"run": state.run, "version": "1.0", "mode": "full", "actions": state.actions}
                    return self._json(200, {**shown, "ring": {}, "servers": names, "stderr": {}})
                case ["GET", "ui", "api", "sessions"]:
                    return self._json(200, {"sessions": []})
                case ["GET", "ui", "api", "messages", number, *rest] if int(number) in state.bodies:
                    event, content, about = state.bodies[int(number)]
                    if not rest:
                        return self._json(200, {**event, **about})
                    whole = [("X-Full-Size", str(event["bytes"])), ("X-SHA256", "cd" * 32)]
                    return self._write(200, content, [("Content-Type", "application/octet-stream"), *whole])
                case ["POST", "ui", "api", "replay"]:
                    return self._write(200, state.replayed, [("Content-Type", "application/json")])
                case ["GET", "servers"]:
                    return self._json(200, {"servers": state.servers})
                case ["GET", "tasks"]:
                    return self._json(200, {"tasks": state.tasks})
                case ["GET", "files"]:
                    return self._json(200, {"files": [shown for shown, _ in state.files.values()]})
                case ["GET", "files", id, "content"] if id in state.files:
                    shown, content = state.files[id]
                    guards = [("Content-Security-Policy", "sandbox"), ("Content-Type", shown["mime_type"])]
                    return self._write(200, content, guards)
                case ["DELETE", "files", id]:
                    state.files.pop(id, None)
                    return self._json(200, {"id": id})
                case ["POST", "servers" | "tasks", *_]:
                    return self._json(200, {})
            return self._json(404, {"error": f"no page {url.path}", "code": 404})

        def _json(self, status: int, value: Json) -> None:
            body = msgspec.json.encode(value)
            self._write(status, body, [("Content-Type", "application/json"), ("Cache-Control", "no-store")])

        def _write(self, status: int, body: bytes, headers: list[tuple[str, str]]) -> None:
            try:
                self.send_response(status)
                for name, value in headers:
                    if name.lower() != "content-length":
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                pass  # the browser has gone

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    state.base_url = f"http://127.0.0.1:{listener.server_port}"
    try:
        yield state
    finally:
        listener.shutdown()
        listener.server_close()
