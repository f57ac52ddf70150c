"""The behaviour of a scripted server, as plain data that can be recorded and played again.

A scripted server answers every request correctly, except where its behaviour has a `Deed` for it.
"""

from __future__ import annotations

import enum
import json
from collections import Counter
from typing import Any, Final

import msgspec

from ....core.base.errors import METHOD_NOT_FOUND, UNSUPPORTED_VERSION
from ....core.base.revisions import LEGACY, is_known_modern
from ....core.oracle.methods import CACHEABLE, V4
from .simulated_tasks import OFFERED, Fate, SimulatedTasks
from .steps import META, Json, encode

SERVER_INFO: Final = {"name": "isthmus-conform", "version": "1"}
ANSWER: Final = '{"jsonrpc":"2.0","id":"$id","result":"$result"}'
"""The correct response: the result of the request, or an error if there is no such method."""
TEXT: Final = {"type": "text", "text": "an answer"}
PAGE: Final = "isthmus-conform-page-2"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
FULL: Final[Json] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "logging": {},
    "completions": {},
}


class When(enum.Enum):
    """The moment at which a line is sent, after the line before it."""

    NOW = "now"
    ANSWERED = "answered"  # the client has answered all server requests
    QUIET = "quiet"  # the client has sent nothing for a moment


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of the server.

    Attributes:
        body: the message, in which these strings are replaced: "$id" by the id of the request, "$token" by its progress
            token, "$result" by the correct result, "$task" by the task that the request became or names, and "$taskId"
            by the id of that task. A line with "$token", "$task" or "$taskId" is left out if there is none.
        on_get: over HTTP, send it on the stream that the client opened by GET, or not at all if there is none.
    """

    body: str = ANSWER
    when: When = When.NOW
    on_get: bool = False


class Deed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reaction of the server to one request or notification of a method.

    Attributes:
        on: the method. Of two deeds for one method, the second is used for the second request.
        lines: the messages to send.
        is_events: HTTP: answer with an event stream, even if one line would do.
        has_ids: HTTP: events have ids, so that the client can resume the stream.
        cut_after: close the stream or the pipe after so many lines; None: do not.
        status: the HTTP status; None: the usual one.
        headers: headers of the HTTP response, in place of the usual ones; "" leaves one out.
        forgets: HTTP: end the session, so that later requests in it get 404.
        fate: how the task ends that a call becomes.
        questions: what that task asks before, in the form of `inputRequests`.
    """

    on: str
    lines: tuple[Line, ...] = (Line(),)
    is_events: bool = False
    has_ids: bool = False
    cut_after: int | None = None
    status: int | None = None
    headers: dict[str, str] = {}
    forgets: bool = False
    fate: Fate = Fate.COMPLETED
    questions: Json = {}


class Behaviour(msgspec.Struct, frozen=True, omit_defaults=True):
    """A scripted server.

    Attributes:
        revision: the only revision that it speaks.
        deeds: its reactions that are not the correct one, or not the usual one.
        tools: names of its tools.
        is_bare: declare no capabilities.
        session: the id of its sessions over HTTP, to which a number is added; "": no session ids.
        has_stream: over HTTP, let the client open a stream by GET.
        tasks: turn calls into tasks if the client allows it, and report each as working so many times; None: no tasks.
    """

    revision: str
    deeds: tuple[Deed, ...] = ()
    tools: tuple[str, ...] = ()
    is_bare: bool = False
    session: str = "session-"
    has_stream: bool = True
    tasks: int | None = None

    @property
    def is_stateless(self) -> bool:
        return is_known_modern(self.revision)


class Script:
    """The deeds that remain in one connection or session.

    Args:
        before: the script of the connection or session before. Its deeds are not repeated.
    """

    def __init__(self, behaviour: Behaviour, before: Script | None = None) -> None:
        self.behaviour = behaviour
        self._done: Counter[str] = Counter() if before is None else before._done.copy()
        self._tasks: SimulatedTasks
        self._tasks = SimulatedTasks(behaviour.revision, behaviour.tasks) if before is None else before._tasks

    def deed_for(self, message: Json) -> Deed:
        """Returns the reaction to a request or a notification, and counts it."""
        method = str(message.get("method"))
        mine = [deed for deed in self.behaviour.deeds if deed.on == method]
        number = self._done[method]
        self._done[method] += 1
        deed = mine[number] if number < len(mine) else Deed(method, (Line(),) if "id" in message else ())
        self._tasks.begin(message, deed.fate, deed.questions)
        return deed

    def fill(self, body: str, message: Json) -> str | None:
        """Returns a line with its placeholders filled in for a message; None if it is left out."""
        if '"$token"' in body:
            params = message.get("params")
            meta = params.get("_meta") if isinstance(params, dict) else None
            if not isinstance(meta, dict) or "progressToken" not in meta:
                return None
            body = body.replace('"$token"', encode(meta["progressToken"]))
        if '"$task' in body:
            task = self._tasks.of(message)
            if task is None:
                return None
            body = body.replace('"$taskId"', encode(task.id)).replace('"$task"', encode(self._tasks.told(task)))
        if '"$result"' in body:
            found = self._result_of(message)
            if "error" in found:
                return encode({"jsonrpc": "2.0", "id": message.get("id"), "error": found["error"]})
            body = body.replace('"$result"', encode(found["result"]))
        return body.replace('"$id"', encode(message.get("id")))

    def _result_of(self, message: Json) -> Json:
        task_result = self._tasks.result_of(message, _call_result(self.behaviour))
        if task_result is None:
            return result_of(self.behaviour, message)
        if "result" in task_result and self.behaviour.is_stateless:
            return {"result": {**_complete(str(message["method"]), {}), **task_result["result"]}}
        return task_result


# --- Correct answers ------------------------------------------------------------------------------------------------


def result_of(behaviour: Behaviour, message: Json) -> Json:
    """Returns `{"result": …}`, or `{"error": …}` for a method that the revision does not have."""
    method, params = str(message.get("method")), message.get("params")
    params = params if isinstance(params, dict) else {}
    found = _introduction(behaviour, method, params)
    if found is not None:
        return found
    result = _results(behaviour, params).get(method)
    if result is None:
        return {"error": {"code": METHOD_NOT_FOUND, "message": "there is no such method"}}
    return {"result": _complete(method, result) if behaviour.is_stateless else result}


def _introduction(behaviour: Behaviour, method: str, params: Json) -> Json | None:
    if method == "initialize":
        if behaviour.is_stateless:
            detail = {"supported": [behaviour.revision], "requested": params.get("protocolVersion")}
            error = {"code": UNSUPPORTED_VERSION, "message": "there is no handshake here", "data": detail}
            return {"error": error}
        members = {"protocolVersion": behaviour.revision, "capabilities": _capabilities(behaviour)}
        return {"result": {**members, "serverInfo": SERVER_INFO}}
    if method == "server/discover" and behaviour.is_stateless:
        members = {"supportedVersions": [behaviour.revision], "capabilities": _capabilities(behaviour)}
        return {"result": _complete(method, members)}
    return None


def _capabilities(behaviour: Behaviour) -> Json:
    """Returns the capabilities of the server that exist in its revision."""
    if behaviour.is_bare:
        return {}
    features = LEGACY.get(behaviour.revision)
    has_completions = features is None or features.completions
    offered = OFFERED.get(behaviour.revision, {}) if behaviour.tasks is not None else {}
    return {name: value for name, value in FULL.items() if name != "completions" or has_completions} | offered


def _results(behaviour: Behaviour, params: Json) -> dict[str, Json]:
    schema = {"type": "object", "properties": {}}
    uri = str(params.get("uri", "isthmus-conform:///a"))
    allows = (
        {"execution": {"taskSupport": "optional"}} if behaviour.tasks is not None and behaviour.revision == V4 else {}
    )
    results: dict[str, Json] = {
        "tools/list": {"tools": [{"name": name, "inputSchema": schema, **allows} for name in behaviour.tools]},
        "tools/call": {"content": [TEXT]},
        "prompts/list": {"prompts": [{"name": "a-prompt"}]},
        "prompts/get": {"messages": [{"role": "user", "content": TEXT}]},
        "resources/list": {"resources": [{"uri": "isthmus-conform:///a", "name": "a"}]},
        "resources/templates/list": {"resourceTemplates": []},
        "resources/read": {"contents": [{"uri": uri, "text": "a"}]},
        "completion/complete": {"completion": {"values": []}},
    }
    if not behaviour.is_stateless:
        results |= {name: {} for name in ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")}
    return results


def _call_result(behaviour: Behaviour) -> Json:
    """Returns the result of every tool call, as a task contains it."""
    return {"content": [TEXT], **({"resultType": "complete"} if behaviour.is_stateless else {})}


def _complete(method: str, result: Json) -> Json:
    """Adds the members that every result of 2026-07-28 has."""
    hints = {"ttlMs": 0, "cacheScope": "private"} if method in CACHEABLE else {}
    return {**result, "resultType": "complete", **hints, "_meta": {META + "serverInfo": SERVER_INFO}}


def acknowledgement(message: Json) -> str:
    """Returns the correct acknowledgement of `subscriptions/listen`."""
    params = message.get("params")
    wanted: Any = params.get("notifications") if isinstance(params, dict) else None
    meta = {META + "subscriptionId": message.get("id")}
    members = {"notifications": wanted if isinstance(wanted, dict) else {}, "_meta": meta}
    return json.dumps({"jsonrpc": "2.0", "method": ACKNOWLEDGED, "params": members})
