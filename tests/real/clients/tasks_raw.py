"""A visit to the task workshop without an SDK, for features of 2026-07-28 tasks that no SDK has. See peers/README.md.

The client answers questions by `tasks/update` itself, subscribes to its tasks, and makes invalid requests. Over HTTP
only.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PATIENCE_S = 20.0
POLL_S = 0.05
REVISION = "2026-07-28"
TASKS = "io.modelcontextprotocol/tasks"
OVER = ("completed", "failed", "cancelled")
ids = itertools.count(1)


class Server:
    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)

    @contextlib.contextmanager
    def messages(
        self, method: str, params: dict[str, Any], *, name: str | None = None, knows_tasks: bool = True
    ) -> Iterator[Iterator[dict[str, Any]]]:
        """Yields the messages on the response of one request, until it ends or the caller wants no more."""
        capabilities = {"elicitation": {}} | ({"extensions": {TASKS: {}}} if knows_tasks else {})
        meta = {
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientInfo": {"name": "visitor", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        }
        body = {"jsonrpc": "2.0", "id": next(ids), "method": method, "params": {**params, "_meta": meta}}
        name = name or params.get("name") or params.get("taskId")
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": REVISION,
            "Mcp-Method": method,
        } | ({"Mcp-Name": name} if name else {})
        connection = http.client.HTTPConnection(self._url.netloc, timeout=PATIENCE_S)
        try:
            connection.request("POST", self._url.path, json.dumps(body), headers)
            response = connection.getresponse()
            is_stream = (response.getheader("Content-Type") or "").startswith("text/event-stream")
            yield events(response) if is_stream else iter([json.loads(response.read())])
        finally:
            connection.close()

    def fetch(self, method: str, params: dict[str, Any], **options: Any) -> dict[str, Any]:
        """Returns the answer: its result, or its error's code."""
        with self.messages(method, params, **options) as messages:
            answer = next(message for message in messages if "id" in message)
        return answer["result"] if "result" in answer else {"code": answer["error"]["code"], **answer["error"]}


def events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """Yields each message of an event stream. Each is on one line."""
    for line in response:
        if line.startswith(b"data:") and line[5:].strip():
            yield json.loads(line[5:])


def text_of(result: dict[str, Any]) -> str:
    text = "".join(part["text"] for part in result["content"])
    return f"error: {text}" if result.get("isError") else text


class Visit:
    def __init__(self, server: Server, marks: Path, label: str) -> None:
        self._server = server
        self._marks = marks
        self._label = label
        self.asked: list[str] = []

    def run(self) -> dict[str, Any]:
        fetch = self._server.fetch
        tools = fetch("tools/list", {})["tools"]
        seen: dict[str, Any] = {"offers": {tool["name"]: "execution" in tool for tool in tools}}
        seen["discover"] = TASKS in fetch("server/discover", {})["capabilities"].get("extensions", {})
        seen["plain"] = text_of(self.call("plain"))
        seen["quick"] = self.through("quick")
        task = self.call("must")
        seen["must"] = self.through("must", task)
        once, twice = self.get(task["taskId"])["result"], self.get(task["taskId"])["result"]
        seen["again"] = once == twice
        seen["related"] = "_meta" in once and "io.modelcontextprotocol/related-task" in once["_meta"]
        seen["asks"] = self.through("asks")[-1]
        for name in ("fails", "breaks"):
            seen[name] = self.through(name)[1:]
        self.stop(seen)
        self.misbehave(seen, task["taskId"])
        return seen | {"asked": self.asked}

    def stop(self, seen: dict[str, Any]) -> None:
        """Cancels a task while a subscription to it is open."""
        task = self.call("slow", label=f"cancel {self._label}")["taskId"]
        give_up_at = time.monotonic() + PATIENCE_S
        while f"started cancel {self._label}" not in self._marks.read_text().splitlines():
            assert time.monotonic() < give_up_at
            time.sleep(POLL_S)
        seen["working"] = self.get(task)["status"]
        with self._server.messages(
            "subscriptions/listen", {"notifications": {"taskIds": [task, "nothing"]}}
        ) as messages:
            acknowledged = next(messages)
            seen["listens"] = acknowledged.get("params", {}).get("notifications", {}).get("taskIds", []) == [task]
            ack = self._server.fetch("tasks/cancel", {"taskId": task})
            seen["cancel"] = [key for key in ack if key != "_meta"]
            if seen["listens"]:
                statuses = (message["params"] for message in messages if message.get("method") == "notifications/tasks")
                seen["heard"] = next(one["status"] for one in statuses if one["status"] in OVER)
        seen["cancelled"] = self.wait(task)["status"]
        seen["late"] = self._server.fetch("tasks/cancel", {"taskId": task}).get("code")

    def misbehave(self, seen: dict[str, Any], task: str) -> None:
        fetch = self._server.fetch
        stranger = {"taskId": "nothing"}
        seen["unknown"] = [
            fetch(f"tasks/{verb}", stranger | {"inputResponses": {}})["code"] for verb in ("get", "update")
        ]
        refused = fetch("tasks/get", {"taskId": task}, knows_tasks=False)
        seen["undeclared"] = [refused["code"], TASKS in refused["data"]["requiredCapabilities"]["extensions"]]
        seen["misnamed"] = fetch("tasks/get", {"taskId": task}, name="nothing")["code"]
        seen["gone"] = [fetch(f"tasks/{verb}", {"taskId": task})["code"] for verb in ("list", "result")]

    def call(self, name: str, **arguments: str) -> dict[str, Any]:
        return self._server.fetch("tools/call", {"name": name, "arguments": arguments})

    def get(self, task: str) -> dict[str, Any]:
        return self._server.fetch("tasks/get", {"taskId": task})

    def wait(self, task: str) -> dict[str, Any]:
        """Polls a task until it is over. Each question is answered twice, the second time in vain, and an unknown one
        too."""
        answered: set[str] = set()
        give_up_at = time.monotonic() + PATIENCE_S
        while (state := self.get(task))["status"] not in OVER:
            assert time.monotonic() < give_up_at, state
            for key, request in state.get("inputRequests", {}).items():
                if key not in answered:
                    answered.add(key)
                    self.asked.append(request["params"]["message"])
                    for name in ("Ada", "Eve"):
                        answer = {"action": "accept", "content": {"name": name}}
                        params = {"taskId": task, "inputResponses": {key: answer, "strange": answer}}
                        self._server.fetch("tasks/update", params)
            time.sleep(POLL_S)
        return state

    def through(self, name: str, task: dict[str, Any] | None = None) -> list[Any]:
        """Returns the first and the last status of a task, and its outcome. For a call that became no task, the outcome
        only."""
        task = task or self.call(name)
        if "content" in task:
            return [text_of(task)]
        state = self.wait(task["taskId"])
        ending = {"code": state["error"]["code"]} if "error" in state else text_of(state["result"])
        return [task["status"], state["status"], ending]


def main(path: str) -> None:
    plan = json.loads(Path(path).read_text())
    session_plan = plan["sessions"][0]
    visit = Visit(Server(plan["target"]["url"]), Path(session_plan["marks"]), session_plan["label"])
    print(json.dumps(visit.run()), flush=True)


main(sys.argv[1])
