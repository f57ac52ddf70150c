"""Replicas as processes, `isthmus serve` each, and a client that sends each request to any of them."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from command import Run, until
from file_world import PUPPET
from isthmus.core.access.static_tokens import digest_of
from record_servers import free_port
from s3_server import S3Server
from shared_gateways import ALICE, KEY, SharedStores

PATIENCE_S: Final = 40.0
PAUSE_S: Final = 0.05
SERVE: Final = "/mcp/auto"
FINAL: Final = {"completed", "failed", "cancelled"}
Json = dict[str, Any]

_ids = itertools.count(1)


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Replicas:
    """Processes with the tags a, b, c, … over one pair of stores."""

    def __init__(self, folder: Path, stores: SharedStores, blobs: S3Server, count: int) -> None:
        self.folder = folder
        self.stores = stores
        self.tags = [chr(ord("a") + number) for number in range(count)]
        self.ports = {tag: free_port() for tag in self.tags}
        self.internal_ports = {tag: free_port() for tag in self.tags}
        self.runs: dict[str, Run] = {}

    def settings(self, tag: str, root: Path) -> Json:
        internal = f"127.0.0.1:{self.internal_ports[tag]}"
        return {
            "core": {"host": "127.0.0.1", "port": self.ports[tag], "drain_seconds": 2, "link_keys": [KEY]},
            "auth": {"tokens": [{"name": "alice", "sha256": digest_of(ALICE).hex()}]},
            "storage": {"root": str(root / "data"), "records": self.stores.records, "blobs": self.stores.blobs},
            "sessions": {"request_state_keys": [KEY]},
            "cluster": {"replica": tag, "listen": internal, "advertise": f"http://{internal}", "secret": KEY},
            "servers": [
                {
                    "id": "auto",
                    "upstream": {"command": [sys.executable, PUPPET]},
                    "files": "auto",
                    "tasks": {"offer": "always"},
                }
            ],
        }

    def config(self, tag: str) -> Path:
        root = self.folder / tag
        root.mkdir(exist_ok=True)
        path = root / "isthmus.yaml"
        path.write_text(json.dumps(self.settings(tag, root)))  # JSON is YAML
        return path

    def start(self, tag: str) -> None:
        run = self.runs[tag] = Run("serve", str(self.config(tag)))
        run.__enter__()

    def wait_ready(self, tag: str) -> None:
        self.runs[tag].wait_line(r"listens on http")

    def stop(self, tag: str) -> None:
        self.runs.pop(tag).__exit__()

    def signal(self, tag: str, number: signal.Signals) -> None:
        self.runs[tag].signal(number)

    @property
    def live(self) -> list[str]:
        return list(self.runs)


@contextlib.contextmanager
def replicas(
    folder: Path, stores: SharedStores, blobs: S3Server, count: int, kind: type[Replicas] = Replicas
) -> Iterator[Replicas]:
    made = kind(folder, stores, blobs, count)
    try:
        for tag in made.tags:
            made.start(tag)
        for tag in made.tags:
            made.wait_ready(tag)
        yield made
    finally:
        for tag in list(made.runs):
            with contextlib.suppress(ProcessLookupError):
                made.signal(tag, signal.SIGCONT)
            made.stop(tag)


class Lost(Exception):
    """The session of a client has ended with its replica."""


class Client:
    """A client whose requests each go to any replica, as through a balancer without rules.

    Attributes:
        only: the tags of the replicas that it may reach; all of them by default.
        statuses: the HTTP statuses it got, in order.
    """

    def __init__(self, world: Replicas, seed: int = 0) -> None:
        self.world = world
        self.only: list[str] | None = None
        self.statuses: list[int] = []
        self._random = random.Random(seed)
        self.session: str | None = None

    def fetch(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Reply:
        """Sends a request to any replica, and again to another while one cannot be reached or asks to try again."""
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            tag = self._random.choice(self.only or self.world.live or self.world.tags)
            try:
                reply = self.fetch_at(tag, method, path, body, headers)
                self.statuses.append(reply.status)
                if reply.status == 502:
                    raise ConnectionError("the replica was lost during the request")
                if reply.status != 503:
                    return reply
            except OSError:
                if method == "POST" and b"tools/call" in body:
                    raise  # it may have run
            except http.client.HTTPException:
                raise OSError("the connection broke") from None
            assert time.monotonic() < give_up_at, f"no replica answers; the last statuses: {self.statuses[-5:]}"
            threading.Event().wait(PAUSE_S)

    def fetch_at(
        self, tag: str, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Reply:
        """Sends a request to a replica."""
        connection = http.client.HTTPConnection("127.0.0.1", self.world.ports[tag], timeout=PATIENCE_S)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def post(self, message: Json) -> Reply:
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "authorization": f"Bearer {ALICE}",
        }
        if self.session is not None:
            headers["mcp-session-id"] = self.session
        reply = self.fetch("POST", SERVE, json.dumps({"jsonrpc": "2.0", **message}).encode(), headers)
        if reply.status == 404 and self.session is not None:
            self.session = None
            raise Lost
        return reply

    def begin(self) -> None:
        """Begins a session."""
        self.session = None
        info = {"name": "client", "version": "0"}
        capabilities: Json = {"tasks": {"requests": {}}}
        params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info}
        reply = self.post({"id": 0, "method": "initialize", "params": params})
        assert reply.status == 200, reply
        self.session = reply.headers["mcp-session-id"]
        assert self.post({"method": "notifications/initialized"}).status == 202

    def request(self, method: str, params: Json) -> Json:
        """Returns the response, within a session that is begun anew where it was lost."""
        if self.session is None:
            self.begin()
        id = next(_ids)
        reply = self.post({"id": id, "method": method, "params": params})
        if "json" in reply.headers.get("content-type", ""):
            found: Json = reply.json
            return found
        frames = [json.loads(line[5:]) for line in reply.body.split(b"\n") if line[:5] == b"data:" and line[5:].strip()]
        return next(frame for frame in frames if frame.get("id") == id)

    def call(self, tool: str, task: bool = False, **arguments: object) -> Json:
        params: Json = {"name": tool, "arguments": arguments}
        response = self.request("tools/call", params | ({"task": {}} if task else {}))
        result: Json = response["result"]
        return result

    def text(self, tool: str, **arguments: object) -> str:
        result = self.call(tool, **arguments)
        assert not result.get("isError"), result
        text: str = result["content"][0]["text"]
        return text

    def upload(self, name: str, data: bytes) -> str:
        """Uploads a file. Returns its handle."""
        url = self.call("auto_get_upload_url")["structuredContent"]["upload_url"]
        path = "/" + url.split("/", 3)[3]
        reply = self.fetch("PUT", path, data, {"x-filename": name})
        if reply.status == 403 and b"used already" in reply.body:
            raise OSError("the connection of the upload broke after it was stored")
        assert reply.status == 200, reply
        handle: str = reply.json["upload_handle"]
        return handle


class Promises:
    """Promises to clients, which hold from then on.

    Attributes:
        files: the content of each uploaded file, by its handle.
        artifacts: that of each artifact, by its URI.
        tasks: the ids of tasks.
    """

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.artifacts: dict[str, str] = {}
        self.tasks: list[str] = []

    def make(self, client: Client, number: str) -> None:
        """Makes one of each kind."""
        text = f"content {number}"
        self.files[client.upload(f"{number}.txt", text.encode())] = text
        result = client.call("act", steps=[["write", f"{number}.txt", text]], text="{0}")
        for block in result["content"]:
            if block["type"] == "resource_link":
                self.artifacts[block["uri"]] = text
        created = client.call("act", task=True, steps=[], text=text)
        self.tasks.append(created["task"]["taskId"])

    def check(self, client: Client) -> None:
        """Checks that all of them are kept, at any replica."""
        for handle, text in self.files.items():
            assert client.text("act", steps=[["read", handle]], text="{0}") == text
        for uri, text in self.artifacts.items():
            contents = client.request("resources/read", {"uri": uri})["result"]["contents"]
            assert contents[0]["text"] == text
        for id in self.tasks:
            assert ended(client, id) in FINAL
            response = client.request("tasks/result", {"taskId": id})
            assert "the replica that ran the call was lost" in str(response) or "content" in str(response)


def status(client: Client, id: str) -> str:
    found: str = client.request("tasks/get", {"taskId": id})["result"]["status"]
    return found


def ended(client: Client, id: str) -> str:
    """Waits until a task is over. Returns its status."""
    until(lambda: status(client, id) in FINAL, f"task {id} is over")
    return status(client, id)
