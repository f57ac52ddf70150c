"""Helpers of the file plane's tests: a client that shows every byte, uploads and downloads, and configurations.

The client uses no SDK, as that would hide members it does not know, and these tests compare whole results.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

import rig
import yaml

MINTED: Final = re.compile(r"[0-9a-f]{32}")
TIMEOUT_S: Final = 60.0


# --- Plain HTTP -----------------------------------------------------------------------------------------------------


class Reply(NamedTuple):
    """An HTTP response. Names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def fetch(
    url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> Reply:
    """Sends one request. Error statuses are returned as replies too."""
    request = urllib.request.Request(url, data=body, headers=dict(headers or {}), method=method)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            return _reply(response.status, response.headers.items(), response.read())
    except urllib.error.HTTPError as error:
        with error:
            return _reply(error.code, error.headers.items(), error.read())


def _reply(status: int, headers: Any, body: bytes) -> Reply:
    return Reply(status, {name.lower(): value for name, value in headers}, body)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


BOUNDARY: Final = "----a-boundary-that-no-file-holds"


def form(*files: tuple[str, bytes], hashes: Sequence[str] = ()) -> tuple[str, bytes]:
    """Returns content type and body of a multipart/form-data request, built by hand: files by name, then their
    hashes."""
    parts = [
        f'Content-Disposition: form-data; name="file"; filename="{name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n".encode()
        + content
        for name, content in files
    ]
    parts += [f'Content-Disposition: form-data; name="sha256"\r\n\r\n{digits}'.encode() for digits in hashes]
    body = b"".join(b"--%b\r\n%b\r\n" % (BOUNDARY.encode(), part) for part in parts)
    return f"multipart/form-data; boundary={BOUNDARY}", body + b"--%b--\r\n" % BOUNDARY.encode()


def post(url: str, *files: tuple[str, bytes], hashes: Sequence[str] = ()) -> Reply:
    """Uploads files to a link."""
    content_type, body = form(*files, hashes=hashes)
    return fetch(url, method="POST", headers={"Content-Type": content_type}, body=body)


# --- A client -------------------------------------------------------------------------------------------------------


class Client:
    """One session over Streamable HTTP, without an SDK.

    Attributes:
        capabilities: the capabilities that the server declared.
        session_id: the session, "" before there is one.
        headers: further headers of each request, such as a token.
    """

    def __init__(self, url: str, *, revision: str = "2025-11-25", headers: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.headers = dict(headers or {})
        self.session_id = ""
        self._last_id = 0
        params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "bare", "version": "1"}}
        self.capabilities: dict[str, Any] = self.request("initialize", params)["capabilities"]
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def exchange(self, method: str, params: object = None) -> dict[str, Any]:
        """Returns the answer to a request: the whole message that has its id."""
        self._last_id += 1
        reply = self._send({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params or {}})
        assert reply.status == 200, reply
        documents = [reply.body]
        if reply.headers["content-type"].startswith("text/event-stream"):
            documents = re.findall(rb"^data: ?(\S.*)$", reply.body, re.MULTILINE)  # a priming event has no data
        for document in documents:
            message: dict[str, Any] = json.loads(document)
            if message.get("id") == self._last_id and "method" not in message:
                return message
        raise AssertionError(f"{method} was not answered: {reply}")

    def request(self, method: str, params: object = None) -> dict[str, Any]:
        """Returns the result of a request that succeeds."""
        message = self.exchange(method, params)
        assert "result" in message, message
        result: dict[str, Any] = message["result"]
        return result

    def call(self, tool: str, arguments: object = None) -> dict[str, Any]:
        """Returns the result of a tool."""
        return self.request("tools/call", {"name": tool, "arguments": arguments or {}})

    def offer(self, **arguments: object) -> dict[str, Any]:
        """Returns an upload link, as the helper tool offers it."""
        names = [tool["name"] for tool in self.request("tools/list")["tools"]]
        helper = next(name for name in names if name.endswith("_get_upload_url"))
        offered: dict[str, Any] = self.call(helper, arguments)["structuredContent"]
        return offered

    def upload(self, *files: tuple[str, bytes]) -> list[str]:
        """Uploads files. Returns their handles."""
        reply = post(self.offer()["upload_url"], *files)
        assert reply.status == 200, reply
        handles: list[str] = reply.json["upload_handles"]
        return handles

    def listed(self) -> list[str]:
        """Returns the URIs of this session's artifacts among the resources."""
        uris = [resource["uri"] for resource in self.request("resources/list")["resources"]]
        return [uri for uri in uris if uri.startswith("artifact://")]

    def end(self) -> None:
        assert self._fetch("DELETE").status == 204

    def _send(self, message: dict[str, Any]) -> Reply:
        reply = self._fetch("POST", json.dumps(message).encode())
        self.session_id = reply.headers.get("mcp-session-id", self.session_id)
        return reply

    def _fetch(self, method: str, body: bytes | None = None) -> Reply:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **self.headers}
        if self.session_id:
            headers["Mcp-Session-Id"] = self.session_id
        return fetch(self.url, method=method, headers=headers, body=body)


@contextlib.contextmanager
def session(url: str, headers: Mapping[str, str] | None = None) -> Iterator[Client]:
    """Yields a client, and then ends its session."""
    client = Client(url, headers=headers)
    try:
        yield client
    finally:
        client.end()


# --- Results --------------------------------------------------------------------------------------------------------


def texts(result: Mapping[str, Any]) -> list[str]:
    """Returns the text blocks of a result."""
    return [block["text"] for block in result["content"] if block["type"] == "text"]


def complaint(result: Mapping[str, Any]) -> str:
    """Returns the text of a failed tool result."""
    assert result.get("isError") is True, result
    return "\n".join(texts(result))


def check_artifact(artifact: Mapping[str, Any], base_url: str, server: str) -> bytes:
    """Checks every member of `_meta.artifact` against the file behind its link. Returns that file's content."""
    assert set(artifact) - {"replaces"} == {
        "artifact_uri",
        "artifact_id",
        "filename",
        "mime_type",
        "size_bytes",
        "sha256",
        "expose_as_resource",
        "expires_at",
        "download_url",
        "version",
    }
    assert ("replaces" in artifact) == (artifact["version"] > 1)
    aid, name = artifact["artifact_id"], quote(artifact["filename"], safe="")
    assert MINTED.fullmatch(aid)
    place = re.fullmatch(r"artifact://sessions/([0-9a-f]{32})/([0-9a-f]{32})/(.+)", artifact["artifact_uri"])
    assert place is not None
    assert (place[2], place[3]) == (aid, name)
    link = urlsplit(artifact["download_url"])
    assert f"{link.scheme}://{link.netloc}" == base_url
    assert link.path == f"/artifacts/{server}/{place[1]}/{aid}/{name}"
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", artifact["expires_at"])
    reply = fetch(artifact["download_url"])
    assert reply.status == 200, reply
    assert reply.headers["content-type"] == artifact["mime_type"]
    assert (len(reply.body), sha256(reply.body)) == (artifact["size_bytes"], artifact["sha256"])
    return reply.body


def artifacts_of(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the artifacts that a result names, in their order."""
    meta = result.get("_meta", {})
    found: list[dict[str, Any]] = meta.get("artifacts", [meta["artifact"]] if "artifact" in meta else [])
    assert not found or found[0] == meta["artifact"]
    assert "artifacts" not in meta or len(found) > 1
    return found


def content_of(artifact: Mapping[str, Any]) -> bytes:
    """Downloads an artifact."""
    reply = fetch(artifact["download_url"])
    assert (reply.status, sha256(reply.body)) == (200, artifact["sha256"])
    return reply.body


# --- Storage --------------------------------------------------------------------------------------------------------


def workspaces(root: Path) -> list[str]:
    """Returns the workspaces of sessions below a storage root."""
    return sorted(path.name for path in (root / "workspaces").iterdir() if path.is_dir())


def blobs(root: Path) -> list[str]:
    """Returns the stored files below a storage root, unfinished ones too."""
    return sorted(path.name for path in (root / "blobs").iterdir())


# --- Servers that work with local paths -----------------------------------------------------------------------------


class Program(NamedTuple):
    """A released server.

    Attributes:
        launcher: the beginning of its command in `examples/files`.
        path: the program installed by setup.sh that replaces the launcher.
    """

    launcher: tuple[str, ...]
    path: Path


PROGRAMS: Final[Mapping[str, Program]] = {
    "playwright": Program(("npx", "-y", "@playwright/mcp"), rig.PLAYWRIGHT),
    "filesystem": Program(("npx", "-y", "@modelcontextprotocol/server-filesystem"), rig.FILESYSTEM),
    "markitdown": Program(("uvx", "markitdown-mcp"), rig.MARKITDOWN),
    "pandoc": Program(("uvx", "mcp-pandoc"), rig.PANDOC),
    "word": Program(("uvx", "--from", "office-word-mcp-server", "word_mcp_server"), rig.WORD),
    "excel": Program(("uvx", "excel-mcp-server"), rig.EXCEL),
}

CHROMIUM: Final = ("--executable-path", "/usr/bin/chromium", *(("--no-sandbox",) if os.geteuid() == 0 else ()))
"""Further options of Playwright, for this machine."""


def shipped(name: str, *options: str) -> dict[str, Any]:
    """Returns `examples/files/<name>.yaml` with the program that setup.sh has installed.

    Args:
        options: added to the command's own.
    """
    settings: dict[str, Any] = yaml.safe_load((rig.ROOT / f"examples/files/{name}.yaml").read_text())
    (server,) = settings["servers"]
    command = server["upstream"]["command"]
    launcher, path = PROGRAMS[name]
    assert tuple(command[: len(launcher)]) == launcher
    server["upstream"]["command"] = [str(rig.require(path)), *command[len(launcher) :], *options]
    return settings


def example(server: str, command: Sequence[str | Path], *options: str) -> dict[str, Any]:
    """Returns `examples/isthmus.yaml` with one of its servers only.

    Args:
        command: replaces the program, that is everything before its first option other than npx's -y.
        options: added to the server's own.
    """
    settings: dict[str, Any] = yaml.safe_load((rig.ROOT / "examples/isthmus.yaml").read_text())
    chosen = next(entry for entry in settings["servers"] if entry["id"] == server)
    own = [part for part in chosen["upstream"]["command"] if part != "-y"]
    first = next((at for at, part in enumerate(own) if part.startswith("-")), len(own))
    chosen["upstream"]["command"] = [*map(str, command), *own[first:], *options]
    return {**settings, "servers": [chosen]}


def configure(folder: Path, settings: Mapping[str, Any]) -> Path:
    """Writes a configuration file with these settings, a free port, and `folder/data` as its storage.

    Tests count processes and folders, so none is kept ready.
    """
    path = folder / "isthmus.json"
    core = {**settings.get("core", {}), "port": 0}
    servers = [{"warm": 0, **server} if "command" in server["upstream"] else server for server in settings["servers"]]
    storage = {"root": str(folder / "data")}
    path.write_text(json.dumps({**settings, "servers": servers, "core": core, "storage": storage}))
    return path


@contextlib.contextmanager
def gateway(folder: Path, settings: Mapping[str, Any]) -> Iterator[rig.Proxy]:
    """Runs `isthmus serve` with these settings, and its storage in `folder/data`."""
    with rig.serve(configure(folder, settings), folder=folder) as proxy:
        yield proxy
