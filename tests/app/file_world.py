"""A proxy at work in a thread, servers that follow the instructions of each call, and a client that shows every byte.

Requests are plain and blocking, so that a test reads as the conversation it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec
from anyio.from_thread import start_blocking_portal
from isthmus.app.config.file_settings import ArtifactProducerAdapter, OutputLocator, UploadConsumerAdapter
from isthmus.app.config.settings import Core, Server, Settings, Storage, Upstream
from isthmus.app.gateway import Gateway, running
from isthmus.core.base.plan import LocatorMode

PATIENCE_S: Final = 20.0
PUPPET: Final = str(Path(__file__).parent / "peers" / "puppet.py")
Json = dict[str, Any]


def puppet(id: str, **more: Any) -> Server:
    return Server(id=id, upstream=Upstream(command=(sys.executable, PUPPET)), **{"warm": 0, **more})


AUTO: Final = puppet("auto", files="auto")
ADAPTED: Final = puppet(
    "adapted",
    adapters=(
        UploadConsumerAdapter(tools=("read",), file_path_argument="path"),
        ArtifactProducerAdapter(tools=("save",), output_path_argument="path"),
        ArtifactProducerAdapter(
            tools=("act",), output_locator=OutputLocator(mode=(LocatorMode.REGEX, LocatorMode.EMBEDDED))
        ),
    ),
)


class Reply(NamedTuple):
    """An HTTP response; names of headers in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class World:
    """One proxy, and `root`, the folder of its storage."""

    def __init__(self, gateway: Gateway, root: Path) -> None:
        self.gateway = gateway
        self.root = root
        self.url = gateway.base_url

    def fetch(
        self, target: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Reply:
        """Sends one request on a connection of its own, its target as it is."""
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
        try:
            connection.putrequest(method, target.removeprefix(self.url), skip_host="host" in (headers or {}))
            fields = dict(headers or {})
            if body is not None and "content-length" not in fields:
                fields["content-length"] = str(len(body))
            for name, value in fields.items():
                connection.putheader(name, value.encode())
            connection.endheaders(body)
            with connection.getresponse() as response:
                found = {name.lower(): value for name, value in response.getheaders()}
                return Reply(response.status, found, response.read())
        finally:
            connection.close()

    def is_well(self) -> bool:
        """True if it answers, and a new client's call succeeds."""
        if self.fetch("/healthz").status != 200:
            return False
        return Agent(self, "auto").text("act", text="well") == "well"

    def stored(self) -> dict[str, str]:
        """The stored files, without the database and the sessions' folders: path to digest."""
        found = {}
        for folder in ("blobs", "state"):
            for path in sorted((self.root / folder).rglob("*")):
                if path.is_file() and not path.name.startswith("records"):
                    with contextlib.suppress(FileNotFoundError):  # it was being removed
                        found[str(path.relative_to(self.root))] = hashlib.sha256(path.read_bytes()).hexdigest()
        return found


class Agent:
    """One session with the server `id`."""

    def __init__(self, world: World, id: str, *, roots: list[str] | None = None, headers: Json | None = None) -> None:
        self.world = world
        self.id = id
        self.helper = f"{id}_get_upload_url"
        self._last_id = 0
        self.headers: dict[str, str] = {
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            **(headers or {}),
        }
        self._roots = roots
        capabilities: Json = {} if roots is None else {"roots": {"listChanged": True}}
        info = {"name": "agent", "version": "0"}
        params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info}
        self.initialized = self.request("initialize", params)
        self.send(method="notifications/initialized")

    def post(self, **members: object) -> Reply:
        body = json.dumps({"jsonrpc": "2.0", **members}).encode(errors="surrogatepass")
        return self.world.fetch(f"/mcp/{self.id}", method="POST", headers=self.headers, body=body)

    def send(self, **members: object) -> None:
        assert self.post(**members).status == 202

    def exchange(self, method: str, params: Json | None = None) -> Json:
        """The whole answer to a request."""
        self._last_id += 1
        reply = self.post(id=self._last_id, method=method, params=params or {})
        if "mcp-session-id" in reply.headers:
            self.headers["mcp-session-id"] = reply.headers["mcp-session-id"]
        if reply.headers["content-type"] == "application/json":
            frame: Json = reply.json
            return frame
        frames = [json.loads(line[5:]) for line in reply.body.split(b"\n") if line[5:].strip() and line[:5] == b"data:"]
        return next(frame for frame in frames if frame.get("id") == self._last_id and "method" not in frame)

    def request(self, method: str, params: Json | None = None) -> Json:
        result: Json = self.exchange(method, params)["result"]
        return result

    def call(self, tool: str, **arguments: object) -> Json:
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    def text(self, tool: str, **arguments: object) -> str:
        """The first text of a result that is no error."""
        result = self.call(tool, **arguments)
        assert not result.get("isError"), result
        text: str = result["content"][0]["text"]
        return text

    def link(self) -> str:
        """The target of an upload link."""
        url: str = self.call(self.helper)["structuredContent"]["upload_url"]
        return url

    def put(self, name: str, data: bytes = b"hello", *, link: str | None = None, **headers: str) -> Reply:
        fields = {"x-filename": quote(name), **headers}
        return self.world.fetch(link or self.link(), method="PUT", headers=fields, body=data)

    def upload(self, name: str, data: bytes = b"hello") -> str:
        reply = self.put(name, data)
        assert reply.status == 200, reply.body
        handle: str = reply.json["upload_handle"]
        return handle

    def end(self) -> None:
        reply = self.world.fetch(f"/mcp/{self.id}", method="DELETE", headers=self.headers)
        assert reply.status in (200, 204), reply


@contextlib.contextmanager
def proxy(root: Path, *servers: Server, is_lasting: bool = True, **more: Any) -> Iterator[World]:
    """A proxy that stores below `root`, with the servers `AUTO` and `ADAPTED` unless others are given. `more` are
    sections."""
    settings = Settings(
        core=more.pop("core", Core(port=0, drain_seconds=2.0)),
        storage=Storage(root=str(root)),
        servers=servers or (AUTO, ADAPTED),
        **more,
    )
    with start_blocking_portal("asyncio") as portal:
        context = running(settings, listen=True, is_lasting=is_lasting, log_server=lambda server, line: None)
        with portal.wrap_async_context_manager(context) as gateway:
            yield World(gateway, root)


def artifacts(result: Json) -> list[Json]:
    meta = result.get("_meta", {})
    return list(meta.get("artifacts") or ([meta["artifact"]] if "artifact" in meta else []))


def until(is_so: Callable[[], bool], what: str) -> None:
    """Waits by polling for a change in the proxy or in a server."""
    import time

    give_up_at = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < give_up_at, what
        time.sleep(0.01)


def changed(server: Server, **more: Any) -> Server:
    return msgspec.structs.replace(server, **more)
