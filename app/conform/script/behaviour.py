"""A server's behaviour as plain data: orderly by itself, with deeds that are not. Played as often as wanted."""

from __future__ import annotations

import enum
import json
from collections import Counter
from typing import Any, Final

import msgspec

from ....core.base.errors import METHOD_NOT_FOUND, UNSUPPORTED_VERSION
from ....core.base.revisions import LEGACY, is_known_modern
from ....core.oracle.methods import CACHEABLE, V4
from .played_tasks import OFFERED, Fate, PlayedTasks
from .steps import META, Json, encode

SERVER_INFO: Final = {"name": "isthmus-conform", "version": "1"}
ANSWER: Final = '{"jsonrpc":"2.0","id":"$id","result":"$result"}'
"""The orderly line: the answer to the request, or the error where there is no such method."""
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
    """When a line is said, after the line before it."""

    NOW = "now"
    ANSWERED = "answered"  # the client has answered everything it was asked
    QUIET = "quiet"  # the client has said nothing for a moment


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of the server.

    Attributes:
        body: as it is said, but for these strings: "$id" is the request's id, "$token" its progress token, "$result"
            what an orderly server answers; "$task" is the task that the request has become or names, and "$taskId" its
            id. A line with "$token" or those is left out where there is none.
        on_get: over HTTP it comes on the stream that the client opened by GET, and not at all where it has none.
    """

    body: str = ANSWER
    when: When = When.NOW
    on_get: bool = False


class Deed(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the server does about one request or notification of a method.

    Attributes:
        on: the method. Of two deeds on one method the second is done about the second request.
        is_events: HTTP: answered by an event stream, even if one line would do.
        has_ids: HTTP: events have ids, so that the stream can be taken up where it was cut.
        cut_after: so many lines are said; then the stream, or the pipe, is cut. None: it is not.
        status: of HTTP.
        headers: of the HTTP response, over what it has; "" leaves one out.
        forgets: HTTP: the session is over, and is not found any more.
        fate: how the task ends that a call becomes.
        questions: what that task asks before, as `inputRequests` has it.
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
    """What one server is like.

    Attributes:
        revision: the one that it speaks.
        tools: names of its tools.
        is_bare: it declares no capabilities.
        session: the id of its sessions over HTTP, to which a number is added; "": it gives none.
        has_stream: over HTTP the client may open a stream of its own by GET.
        tasks: calls that may be tasks become tasks, said to be working so often; None: it offers none.
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
    """What is still to be done in one connection or session.

    Args:
        before: the one before it. What was done there is not done again.
    """

    def __init__(self, behaviour: Behaviour, before: Script | None = None) -> None:
        self.behaviour = behaviour
        self._done: Counter[str] = Counter() if before is None else before._done.copy()
        self._tasks: PlayedTasks
        self._tasks = PlayedTasks(behaviour.revision, behaviour.tasks) if before is None else before._tasks

    def deed_for(self, message: Json) -> Deed:
        """What is done about a request or a notification."""
        method = str(message.get("method"))
        mine = [deed for deed in self.behaviour.deeds if deed.on == method]
        number = self._done[method]
        self._done[method] += 1
        deed = mine[number] if number < len(mine) else Deed(method, (Line(),) if "id" in message else ())
        self._tasks.begin(message, deed.fate, deed.questions)
        return deed

    def fill(self, body: str, message: Json) -> str | None:
        """A line as it is said about a message; None: it is left out."""
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
        about_task = self._tasks.result_of(message, _of_call(self.behaviour))
        if about_task is None:
            return result_of(self.behaviour, message)
        if "result" in about_task and self.behaviour.is_stateless:
            return {"result": {**_dressed(str(message["method"]), {}), **about_task["result"]}}
        return about_task


# --- Orderly answers ------------------------------------------------------------------------------------------------


def result_of(behaviour: Behaviour, message: Json) -> Json:
    """`{"result": …}`, or `{"error": …}` for a method that the revision has not."""
    method, params = str(message.get("method")), message.get("params")
    params = params if isinstance(params, dict) else {}
    found = _greeting(behaviour, method, params)
    if found is not None:
        return found
    result = _results(behaviour, params).get(method)
    if result is None:
        return {"error": {"code": METHOD_NOT_FOUND, "message": "there is no such method"}}
    return {"result": _dressed(method, result) if behaviour.is_stateless else result}


def _greeting(behaviour: Behaviour, method: str, params: Json) -> Json | None:
    if method == "initialize":
        if behaviour.is_stateless:
            detail = {"supported": [behaviour.revision], "requested": params.get("protocolVersion")}
            error = {"code": UNSUPPORTED_VERSION, "message": "there is no handshake here", "data": detail}
            return {"error": error}
        told = {"protocolVersion": behaviour.revision, "capabilities": _capabilities(behaviour)}
        return {"result": {**told, "serverInfo": SERVER_INFO}}
    if method == "server/discover" and behaviour.is_stateless:
        told = {"supportedVersions": [behaviour.revision], "capabilities": _capabilities(behaviour)}
        return {"result": _dressed(method, told)}
    return None


def _capabilities(behaviour: Behaviour) -> Json:
    """What it declares, without what the revision does not have."""
    if behaviour.is_bare:
        return {}
    features = LEGACY.get(behaviour.revision)
    has_completions = features is None or features.completions
    offered = OFFERED.get(behaviour.revision, {}) if behaviour.tasks is not None else {}
    return {name: value for name, value in FULL.items() if name != "completions" or has_completions} | offered


def _results(behaviour: Behaviour, params: Json) -> dict[str, Json]:
    schema = {"type": "object", "properties": {}}
    uri = str(params.get("uri", "isthmus-conform:///a"))
    may = {"execution": {"taskSupport": "optional"}} if behaviour.tasks is not None and behaviour.revision == V4 else {}
    results: dict[str, Json] = {
        "tools/list": {"tools": [{"name": name, "inputSchema": schema, **may} for name in behaviour.tools]},
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


def _of_call(behaviour: Behaviour) -> Json:
    """The result of every call, as a task has it inside of it."""
    return {"content": [TEXT], **({"resultType": "complete"} if behaviour.is_stateless else {})}


def _dressed(method: str, result: Json) -> Json:
    """With what every result of 2026-07-28 has."""
    hints = {"ttlMs": 0, "cacheScope": "private"} if method in CACHEABLE else {}
    return {**result, "resultType": "complete", **hints, "_meta": {META + "serverInfo": SERVER_INFO}}


def acknowledgement(message: Json) -> str:
    """What an orderly server says to `subscriptions/listen`."""
    params = message.get("params")
    sought: Any = params.get("notifications") if isinstance(params, dict) else None
    meta = {META + "subscriptionId": message.get("id")}
    told = {"notifications": sought if isinstance(sought, dict) else {}, "_meta": meta}
    return json.dumps({"jsonrpc": "2.0", "method": ACKNOWLEDGED, "params": told})
