"""A scripted MCP client of exactly one protocol revision, over any wire.

The client answers questions by their content, in either era: a server request by a response, an `input_required` by a
retry. Each frame that it receives is kept for validation, with the method of the request that it answers.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from abilities import ABILITIES, K, client_capabilities
from raw_clients import Client

PATIENCE_S: Final = 10.0
"""A limit that only a broken run meets."""
IMPATIENCE_S: Final = 1.0
"""The limit after one wait has failed, so that a broken pair reports all scenarios soon."""
ROUNDS: Final = 10
"""The bound on rounds, as official clients have it."""
INFO: Final = {"name": "scripted-client", "version": "1"}
Frame = dict[str, Any]


class Silence(AssertionError):
    """Raised when an expected frame did not come."""


class Reply(NamedTuple):
    """The end of a request, and the notifications before it.

    Attributes:
        rounds: the number of `input_required` results before it.
    """

    frame: Frame
    notifications: list[Frame]
    rounds: int = 0

    @property
    def result(self) -> dict[str, Any]:
        if "result" not in self.frame:
            raise AssertionError(f"got {self.frame}, expected a result")
        found: dict[str, Any] = self.frame["result"]
        return found

    @property
    def error(self) -> dict[str, Any]:
        if "error" not in self.frame:
            raise AssertionError(f"got {self.frame}, expected an error")
        found: dict[str, Any] = self.frame["error"]
        return found

    @property
    def text(self) -> str:
        """The joined text blocks of a tool's result."""
        return "\n".join(block["text"] for block in self.result["content"] if block["type"] == "text")


class ReceivedFrame(NamedTuple):
    """A frame, and the method that it answers."""

    frame: Any
    of: str | None


class ScriptedClient:
    """One client. It runs only within its methods: a frame that came meanwhile is read by the next one."""

    def __init__(self, revision: str, wire: Client) -> None:
        self.revision, self._wire = revision, wire
        self.is_legacy = "handshake" in ABILITIES[revision]
        self.capabilities = client_capabilities(revision)
        self.log_level: str | None = None
        self.received: list[ReceivedFrame] = []
        self.asked: list[Frame] = []
        """Questions, in the order in which they came: method and params."""
        self.notifications: list[Frame] = []
        self._methods: dict[str, str] = {}
        self._answers: dict[str, Frame] = {}
        self._at = 0
        self._patience_s = PATIENCE_S
        self._numbers = itertools.count(1)

    # Requests

    def begin(self) -> Reply:
        """Sends the handshake, or `server/discover` in the stateless era."""
        if not self.is_legacy:
            return self.request("server/discover")
        params = {"protocolVersion": self.revision, "capabilities": self.capabilities, "clientInfo": INFO}
        reply = self.request("initialize", params)
        self._wire.confirm(encoded({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        return reply

    def call(self, name: str, **arguments: object) -> Reply:
        return self.request("tools/call", {"name": name, "arguments": arguments})

    def request(self, method: str, params: dict[str, Any] | None = None, *, token: object = None) -> Reply:
        """Sends a request, answers questions meanwhile, and waits for its end."""
        since, more, rounds = len(self.notifications), {}, 0
        while True:
            number = self.start(method, {**(params or {}), **more}, token=token)
            frame = self._wait_answer(number, method)
            result = frame.get("result", {})
            if self.is_legacy or not isinstance(result, dict) or result.get("resultType") != "input_required":
                return Reply(frame, self.notifications[since:], rounds)
            rounds += 1
            assert rounds <= ROUNDS, f"asked for input in more than {ROUNDS} rounds"
            more = self._input(result)

    def _wait_answer(self, number: int | str, method: str) -> Frame:
        self.pump(lambda: repr(number) in self._answers, f"the answer to {method}")
        return self._answers.pop(repr(number))

    def start(self, method: str, params: dict[str, Any] | None = None, *, token: object = None) -> int | str:
        """Sends a request without waiting. Returns its id."""
        count = next(self._numbers)
        number: int | str = count if count % 3 else f"é {count}"
        self._methods[repr(number)] = method
        params = dict(params or {})
        meta: dict[str, Any] = dict(params.get("_meta", {}))
        if not self.is_legacy:
            meta |= {
                K + "protocolVersion": self.revision,
                K + "clientCapabilities": self.capabilities,
                K + "clientInfo": INFO,
            }
            meta |= {} if self.log_level is None else {K + "logLevel": self.log_level}
        if token is not None:
            meta["progressToken"] = token
        if meta:
            params["_meta"] = meta
        self._send({"jsonrpc": "2.0", "id": number, "method": method} | ({"params": params} if params else {}))
        return number

    def cancel(self, number: int | str) -> None:
        """Sends a cancellation. Over HTTP without sessions, the wire hangs up instead."""
        self.notify("notifications/cancelled", {"requestId": number, "reason": "enough"})

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def answer_to(self, number: int | str) -> Frame | None:
        """Returns the answer to a started request, if it has come."""
        return self._answers.get(repr(number))

    def _send(self, frame: Frame) -> None:
        self._wire.send(encoded(frame))

    # Incoming frames

    def pump(self, until: Callable[[], bool], what: str) -> None:
        """Reads frames, in order, until a condition is true."""
        refused: list[object] = getattr(self._wire, "refused", [])
        while True:
            while self._at < len(self._wire.received):
                self._at += 1
                self._look_at(json.loads(self._wire.received[self._at - 1].message))
            if until():
                return
            assert not refused, f"waited for {what}; HTTP refused: {refused}"
            if not self._wire.wait_until(lambda: len(self._wire.received) > self._at or refused, self._patience_s):
                waited_s, self._patience_s = self._patience_s, IMPATIENCE_S
                raise Silence(f"waited {waited_s:g} s in vain for {what}")

    def wait_notification(self, method: str, since: int, **params: object) -> Frame:
        """Waits for such a notification, from number `since` on. Returns the first."""
        found: list[Frame] = []

        def has_come() -> bool:
            found[:] = [
                notification
                for notification in self.notifications[since:]
                if notification["method"] == method
                and all(notification.get("params", {}).get(name) == value for name, value in params.items())
            ]
            return bool(found)

        self.pump(has_come, method)
        return found[0]

    def _look_at(self, frame: Any) -> None:
        if not isinstance(frame, dict):
            self.received.append(ReceivedFrame(frame, None))
        elif "method" not in frame:
            key = repr(frame.get("id"))
            self.received.append(ReceivedFrame(frame, self._methods.get(key)))
            self._answers[key] = frame
        elif "id" not in frame:
            self.received.append(ReceivedFrame(frame, None))
            self.notifications.append(frame)
        else:
            self.received.append(ReceivedFrame(frame, None))
            answer = {"result": {}} if frame["method"] == "ping" else self._answer(frame)
            self._send({"jsonrpc": "2.0", "id": frame["id"], **answer})

    def _input(self, result: dict[str, Any]) -> dict[str, Any]:
        """Returns the members that a retry has beside the request's own params."""
        answers = {name: self._answer(asked)["result"] for name, asked in result.get("inputRequests", {}).items()}
        more: dict[str, Any] = {"inputResponses": answers} if answers else {}
        return more | ({"requestState": result["requestState"]} if "requestState" in result else {})

    # The script

    def _answer(self, asked: Frame) -> dict[str, Any]:
        method, params = asked["method"], asked.get("params", {})
        self.asked.append({"method": method, "params": params})
        if method == "roots/list":
            return {"result": {"roots": [{"uri": "file:///home/ada", "name": "home é"}]}}
        if method == "sampling/createMessage":
            return self._sample(params)
        if method == "elicitation/create":
            return {"result": filled(params)}
        return {"error": {"code": -32601, "message": "Method not found"}}

    def _sample(self, params: dict[str, Any]) -> dict[str, Any]:
        content = params["messages"][-1]["content"]
        block = content[0] if isinstance(content, list) else content
        if self.is_legacy and "refuse" in block["text"]:
            return {"error": {"code": -1, "message": "the user said no"}}
        reply = {"type": "text", "text": f"about: {block['text']}"}
        return {"result": {"role": "assistant", "content": reply, "model": "script", "stopReason": "endTurn"}}


def filled(params: dict[str, Any]) -> dict[str, Any]:
    """Returns an answer to an elicitation, with a value for each field."""
    if "decline" in params["message"]:
        return {"action": "decline"}
    if params.get("mode") == "url":
        return {"action": "accept"}
    fields = params["requestedSchema"]["properties"]
    return {"action": "accept", "content": {name: value_for(schema) for name, schema in fields.items()}}


def value_for(schema: dict[str, Any]) -> object:
    """Returns the last of several choices, all of a multiple choice, or a value that fits."""
    if "oneOf" in schema:
        return schema["oneOf"][-1]["const"]
    if "enum" in schema:
        return schema["enum"][-1]
    if schema["type"] == "array":
        items = schema["items"]
        return items["enum"] if "enum" in items else [one["const"] for one in items["anyOf"]]
    return {"string": "Ada é", "integer": 7, "number": 7, "boolean": True}[schema["type"]]


def encoded(frame: Frame) -> bytes:
    return json.dumps(frame, ensure_ascii=False).encode()
