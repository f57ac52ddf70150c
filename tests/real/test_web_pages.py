"""Tests of a browser on this machine, Chromium: of a web page at another port, to which the MCP endpoint is open and a
command is not, and of a browser that opens the pages of operators, as one of an agent may."""

from __future__ import annotations

import json
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
import rig

pytestmark = pytest.mark.real

PATIENCE_S: Final = 60.0
TOOLBOX: Final = Path(__file__).parents[1] / "app" / "peers" / "toolbox.py"

SCRIPT: Final = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">
<iframe name="frame"></iframe>
<script>
const base = "BASE", json = {"Content-Type": "application/json"};
const call = JSON.stringify({name: "echo", arguments: {text: "x"}});
const attempt = (path, init) =>
  fetch(base + path, init).then(reply => reply.type + " " + reply.status, () => "blocked");
const submit = (path, enctype) => new Promise(resolve => {
  const form = document.createElement("form");
  Object.assign(form, {action: base + path, method: "post", enctype, target: "frame"});
  form.innerHTML = `<input name='{"name":"echo","a' value='":1}'>`;
  document.body.append(form);
  document.querySelector("iframe").onload = () => resolve("sent");
  form.submit();
});
(async () => {
  const hello = {jsonrpc: "2.0", id: 1, method: "initialize", params: {
    protocolVersion: "2025-11-25", capabilities: {}, clientInfo: {name: "page", version: "1"}}};
  const seen = {
    mcp: await attempt("/mcp/near", {method: "POST", body: JSON.stringify(hello),
      headers: {...json, "Accept": "application/json, text/event-stream"}}),
    simple: await attempt("/servers/far/start", {method: "POST"}),
    opaque: await attempt("/servers/far/start", {method: "POST", mode: "no-cors"}),
    marked: await attempt("/servers/far/start", {method: "POST", headers: {"X-Requested-With": "x"}}),
    call: await attempt("/mcp/far/tools/call", {method: "POST", headers: json, body: call}),
    text: await attempt("/mcp/far/tools/call", {method: "POST", mode: "no-cors", body: call}),
    stop: await attempt("/servers/near/stop", {method: "POST", mode: "no-cors"}),
    delete: await attempt("/files/x", {method: "DELETE"}),
    beacon: String(navigator.sendBeacon(base + "/servers/far/start")),
  };
  for (const type of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
    for (const path of ["/servers/far/start", "/mcp/far/tools/call", "/servers/near/stop"])
      seen[type + path] = await submit(path, type);
  await fetch("/seen", {method: "POST", body: JSON.stringify(seen)});
})();
</script>
"""


@contextmanager
def web_page(text: str) -> Iterator[tuple[str, dict[str, str], threading.Event]]:
    """Yields the URL of the page, what it reports, and the event that it has reported."""
    seen: dict[str, str] = {}
    reported = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(text.encode())

        def do_POST(self) -> None:
            seen.update(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._answer(b"")
            reported.set()

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", seen, reported
        finally:
            server.shutdown()
            thread.join(PATIENCE_S)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration that says nothing of tokens."""
    upstream = {"command": [sys.executable, str(TOOLBOX)]}
    servers = [{"id": id, "upstream": upstream, "warm": 0} for id in ("near", "far")]
    path = tmp_path / "isthmus.json"
    settings = {"core": {"port": 0}, "storage": {"root": str(tmp_path / "data")}, "servers": servers}
    path.write_text(json.dumps(settings))
    return path


def test_a_browser_that_opens_the_pages_of_operators_sees_and_starts_nothing(config: Path, tmp_path: Path) -> None:
    """Chromium sees them with the token, so that nothing else keeps it out."""
    browser = ["node", rig.CLIENTS / "chromium_pages.mjs", rig.require(rig.REAL / "node/node_modules")]
    with (
        rig.serve(config, folder=tmp_path) as proxy,
        rig.launched(browser, folder=tmp_path, has_stdin=True, code=None) as chromium,
    ):

        def opened(path: str, token: str = "") -> dict[str, Any]:
            since = len(chromium.lines)
            chromium.write_line(json.dumps({"url": proxy.base_url + path, "token": token}))
            return dict(json.loads(chromium.wait_line("status", since=since).string))

        before = states_of(proxy)
        for path in ("/files", "/servers", "/tasks", "/mcp/far/tools"):
            seen = opened(path)
            assert (seen["status"], seen["scripted"]) == (401, [401, 401]), path
            assert set(json.loads(seen["text"])) == {"error", "code"}
        assert {id: each["starts"] for id, each in states_of(proxy).items()} == {
            id: each["starts"] for id, each in before.items()
        }
        token = proxy.operator["Authorization"].removeprefix("Bearer ")
        for path in ("/files", "/servers", "/tasks", "/mcp/far/tools"):
            seen = opened(path, token)
            assert (seen["status"], seen["scripted"][0]) == (200, 200), path
        chromium.close_stdin()
        assert chromium.wait_exit() == 0, chromium.describe()


def test_a_page_at_another_port_uses_the_endpoint_and_commands_nothing(config: Path, tmp_path: Path) -> None:
    with rig.serve(config, folder=tmp_path) as proxy:
        before = states_of(proxy)
        with web_page(SCRIPT.replace("BASE", proxy.base_url)) as (url, seen, reported):
            profile = f"--user-data-dir={tmp_path / 'profile'}"
            options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", profile]
            with rig.launched(["chromium", *options, url], folder=tmp_path, code=None):
                assert reported.wait(PATIENCE_S)
        after = states_of(proxy)
    assert seen.pop("mcp") == "cors 200"
    assert seen.pop("beacon") == "true"
    assert {seen.pop(name) for name in ("opaque", "text", "stop")} == {"opaque 0"}, "they are sent"
    assert {seen.pop(name) for name in ("simple", "marked", "call", "delete")} == {"blocked"}
    assert len(seen) == 9 and set(seen.values()) == {"sent"}
    assert after["far"]["starts"] == before["far"]["starts"], "no request started it"
    assert after["near"]["starts"] == before["near"]["starts"] + 1, "the page has a session"
    assert after["near"]["status"] == "running", "no request stopped it"


def states_of(proxy: rig.Proxy) -> dict[str, dict[str, Any]]:
    asked = urllib.request.Request(f"{proxy.base_url}/servers", headers=proxy.operator)
    with urllib.request.urlopen(asked, timeout=PATIENCE_S) as response:
        return {server["name"]: server for server in json.load(response)["servers"]}
