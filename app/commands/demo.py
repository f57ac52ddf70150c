"""`isthmus demo`: a file goes to a server that works with local paths, and one comes back, step by step.

The proxy listens on loopback, the server is a process of its own, and the client speaks HTTP. Each step prints the
requests and responses.
"""

from __future__ import annotations

import contextlib
import http.client
import sys
import textwrap
from typing import Any
from urllib.parse import urlsplit

import msgspec
from anyio import to_thread

from ...core.base.plan import LocatorMode
from ...core.base.revisions import LATEST_LEGACY
from ..base.output import OutputClosed, complain, cut, say
from ..config.file_settings import ArtifactProducerAdapter, OutputLocator, UploadConsumerAdapter
from ..config.settings import Core, Server, Settings, Upstream
from ..gateway import Gateway, running
from ..runtime.signals import Stop
from .server_table import WIDTH

SERVER = "demo"
TEXT = b"An isthmus joins two lands that could not meet.\n"
TIMEOUT_S = 20.0

_Json = dict[str, Any]
"""A JSON object of any shape."""


class DemoFailed(Exception):
    """A step did not give the result that it must."""


async def demonstrate(stop: Stop) -> int:
    """Runs all steps. Returns the exit code: 0 if every step gave the result that it must."""
    async with running(_settings(), listen=True, is_lasting=False, log_server=_show_server) as service:
        try:
            await to_thread.run_sync(_Client(service).run)
        except (DemoFailed, OutputClosed, OSError, http.client.HTTPException) as error:
            complain(f"\nthe demo failed: {error}")
            return 1
    return 0


def _show_server(server: str, line: str) -> None:
    with contextlib.suppress(OutputClosed):  # `run` meets the same error and reports it
        say(cut(f"    [{server} server] {line}", WIDTH))


def _settings() -> Settings:
    return Settings(
        core=Core(port=0),
        servers=(
            Server(
                id=SERVER,
                upstream=Upstream(command=(sys.executable, "-m", "isthmus.app.commands.demo_server")),
                adapters=(
                    UploadConsumerAdapter(tools=("count_words", "write_report"), file_path_argument="path"),
                    ArtifactProducerAdapter(
                        tools=("write_report",),
                        output_path_argument="output",
                        output_locator=OutputLocator(mode=LocatorMode.NONE),
                    ),
                ),
            ),
        ),
    )


class _Client:
    """The client, as if on another machine: it has the file, and the server does not."""

    def __init__(self, service: Gateway) -> None:
        self._base = urlsplit(service.base_url)
        self._session: str | None = None
        self._last_id = 0

    def run(self) -> None:
        say(f"isthmus listens on {self._base.geturl()}. It serves a stdio server")
        say("with the tools count_words and write_report, which take local paths.")
        say("The client has a file that the server cannot read.")

        self._step("1. initialize and list the tools")
        self._request("initialize", {"protocolVersion": LATEST_LEGACY, "capabilities": {}, "clientInfo": _INFO})
        self._notify("notifications/initialized")
        tools = [tool["name"] for tool in self._request("tools/list", {})["tools"]]
        _expect(f"{SERVER}_get_upload_url" in tools, "the helper tool is among the server's tools")

        self._step("2. ask for an upload link")
        offer = self._call(f"{SERVER}_get_upload_url", {})["structuredContent"]

        self._step("3. upload the file")
        handle = self._upload(offer["upload_url"])["upload_handle"]

        self._step("4. hand the upload:// handle to a tool that wants a path")
        counted = self._call("count_words", {"path": handle})
        _expect("9 words" in counted["content"][0]["text"], "the server opened the uploaded file")

        self._step("5. let a tool write a file")
        result = self._call("write_report", {"path": handle, "output": "report.md"})
        artifact = result["_meta"]["artifact"]

        self._step("6. read the artifact:// resource back")
        contents = self._request("resources/read", {"uri": artifact["artifact_uri"]})["contents"][0]
        _expect(contents["text"].startswith("# Report"), "the report came back through the protocol")

        self._step("7. download it by its signed link")
        status, body = self._exchange("GET", artifact["download_url"], b"", {})
        _expect(status == 200 and body.decode() == contents["text"], "the same bytes came over plain HTTP")
        say(f"\nthe report, {len(body)} bytes, sha256 {artifact['sha256'][:16]}…:\n")
        say(textwrap.indent(body.decode().strip(), "    "))
        self._exchange("DELETE", f"/mcp/{SERVER}", b"", self._headers())
        say("\ndone: the client uploaded a file and received a report")
        say("next, with a server of your own: isthmus wrap -- COMMAND [ARG …]")
        say("or all servers of a client: isthmus serve FILE, such as ~/.cursor/mcp.json")

    # --- The wire -----------------------------------------------------------------------------------------------

    def _step(self, title: str) -> None:
        say(f"\n{title}")

    def _headers(self) -> dict[str, str]:
        session = {} if self._session is None else {"Mcp-Session-Id": self._session}
        return {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **session}

    def _notify(self, method: str) -> None:
        body = msgspec.json.encode({"jsonrpc": "2.0", "method": method})
        self._exchange("POST", f"/mcp/{SERVER}", body, self._headers())

    def _call(self, tool: str, arguments: dict[str, object]) -> _Json:
        return self._request("tools/call", {"name": tool, "arguments": arguments})

    def _request(self, method: str, params: dict[str, object]) -> _Json:
        self._last_id += 1
        body = msgspec.json.encode({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        _, reply = self._exchange("POST", f"/mcp/{SERVER}", body, self._headers())
        answer = msgspec.json.decode(reply)
        if "error" in answer:
            raise DemoFailed(f"{method}: {answer['error']['message']}")
        result: _Json = answer["result"]
        if result.get("isError"):
            raise DemoFailed(f"{method}: {result['content'][0]['text']}")
        return result

    def _upload(self, url: str) -> _Json:
        boundary = "isthmus-demo"
        part = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="isthmus.txt"\r\n\r\n'
        body = part.encode() + TEXT + f"\r\n--{boundary}--\r\n".encode()
        status, reply = self._exchange("POST", url, body, {"Content-Type": f"multipart/form-data; boundary={boundary}"})
        _expect(status == 200, f"the upload was taken: {reply[:200]!r}")
        decoded: _Json = msgspec.json.decode(reply)
        return decoded

    def _exchange(self, method: str, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        parts = urlsplit(url)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        assert self._base.hostname is not None
        connection = http.client.HTTPConnection(self._base.hostname, self._base.port, timeout=TIMEOUT_S)
        try:
            connection.request(method, target, body or None, headers)
            response = connection.getresponse()
            reply = response.read()
        finally:
            connection.close()
        self._session = response.getheader("Mcp-Session-Id") or self._session
        say(cut(f"  → {method} {parts.path}  {_one_line(body)}".rstrip(), WIDTH))
        say(cut(f"  ← {response.status}  {_one_line(reply)}".rstrip(), WIDTH))
        return response.status, reply


_INFO = {"name": "isthmus-demo", "version": "1"}


def _one_line(body: bytes) -> str:
    """Returns a body on one line; of a JSON-RPC message what is beside its version and id."""
    try:
        message = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        message = None
    if isinstance(message, dict) and "jsonrpc" in message:
        words = [str(message["method"])] if "method" in message else []
        parts = [message[key] for key in ("params", "result", "error") if message.get(key)]
        return " ".join([*words, *(msgspec.json.encode(part).decode() for part in parts)])
    return " ".join(body.decode(errors="replace").split())


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise DemoFailed(f"expected that {what}")
