"""Tests of tasks of an HTTP server that outlive the proxy, which dies or is stopped: the next one continues with them.

server-everything keeps its tasks apart by session, so they are found only in the session that they were begun in. The
client is bare, and has to begin a new session as every client does.
"""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from rig import everything_over_http, serve, until

pytestmark = pytest.mark.real

REVISION = "2025-11-25"
TOOL = "simulate-research-query"


class Caller:
    """A client with a session, one request after another."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        self._last = 0
        client = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "caller", "version": "1"}}
        self.request("initialize", client)
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._last += 1
        messages = self._post({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        (answer,) = [message for message in messages if message.get("id") == self._last and "method" not in message]
        return answer

    def _post(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        request = urllib.request.Request(self._url, json.dumps(message).encode(), self._headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            if session := response.headers.get("mcp-session-id"):
                self._headers["mcp-session-id"] = session
            body = response.read().decode()
        if not body:
            return []
        if body.lstrip().startswith("{"):
            return [json.loads(body)]
        lines = (line.removeprefix("data:") for line in body.splitlines() if line.startswith("data:"))
        return [json.loads(line) for line in lines if line.strip()]


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
def test_a_task_of_a_server_over_http_goes_on_with_the_next_proxy(is_killed: bool, tmp_path: Path) -> None:
    config = tmp_path / "isthmus.json"
    with everything_over_http(folder=tmp_path) as (_, url):
        servers = [{"id": "every", "upstream": {"url": url}, "tasks": {"offer": "auto"}}]
        config.write_text(json.dumps({"core": {"port": 0}, "storage": {"root": "data"}, "servers": servers}))
        call = {"name": TOOL, "arguments": {"topic": "isthmuses"}, "task": {"ttl": 60_000}}
        with serve(config, folder=tmp_path) as proxy:
            caller = Caller(proxy.url_of("every"))
            id = caller.request("tools/call", call)["result"]["task"]["taskId"]
            # On a busy machine the mark may come before the server has an id for the task.
            until(lambda: "statusMessage" in caller.request("tasks/get", {"taskId": id})["result"], "its name there")
            if is_killed:
                proxy.kill()
        with serve(config, folder=tmp_path) as proxy:
            caller = Caller(proxy.url_of("every"))
            assert caller.request("tasks/get", {"taskId": id})["result"]["status"] == "working"
            until(
                lambda: caller.request("tasks/get", {"taskId": id})["result"]["status"] != "working",
                "the end of the task",
            )
            first = caller.request("tasks/result", {"taskId": id})
            assert "isthmuses" in first["result"]["content"][0]["text"]
            assert caller.request("tasks/list", {})["result"]["tasks"][0]["taskId"] == id
        with serve(config, folder=tmp_path) as proxy:
            again = Caller(proxy.url_of("every")).request("tasks/result", {"taskId": id})
            assert again["result"] == first["result"]
