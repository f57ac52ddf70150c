"""What a server may do to a client: orderly deeds, and rude ones that a client has to stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ....core.oracle import Transport
from ....core.oracle.methods import AUGMENTED, INTERACTIVE, V2, V3, V4, V5, declares
from ..script.arguments import Source
from ..script.behaviour import ANSWER, PAGE, SERVER_INFO, Deed, Line, When
from ..script.client_survey import ClientSurvey
from ..script.played_tasks import RELATED, TTL_MS, Fate
from ..script.steps import META, REVISIONS, Json, encode
from .moves import IDS, LARGE_CHARS

_BY_HAND, _ALL, _NEW = REVISIONS[:-1], REVISIONS, REVISIONS[-1:]
_STREAMABLE: Final = (Transport.HTTP,)
_FORM: Final[Json] = {
    "message": "a question",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
}
_SAMPLE: Final[Json] = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "a question"}}],
    "maxTokens": 10,
}
QUESTIONS: Final[dict[str, tuple[str, Json]]] = {
    "roots": ("roots/list", {}),
    "sampling": ("sampling/createMessage", _SAMPLE),
    "elicitation": ("elicitation/create", _FORM),
}
"""Capability → the method that needs it, and params of it."""
LAST: Final = Line(when=When.ANSWERED)
"""The answer, once the client has answered what it was asked."""
STATE: Final = "isthmus-conform-state"


class Scene:
    """What a deed is made for: a client, and what it says."""

    def __init__(self, survey: ClientSurvey, pick: Source) -> None:
        self.survey = survey
        self.pick = pick
        self.is_stateless = survey.revision == V5
        self._taken: set[str] = set()

    def cue(self, among: tuple[str, ...] = ()) -> str:
        """A request that the client makes: one about which nothing is done yet, as long as there is one."""
        mine = tuple(name for name in self.survey.requests if not among or name in among) or self.survey.requests
        later = tuple(name for name in mine if name not in ("initialize", "server/discover")) or mine
        free = tuple(name for name in reversed(later) if name not in self._taken) or later
        drawn: str = self.pick(free)
        self._taken.add(drawn)
        return drawn

    def hello(self) -> str:
        return "server/discover" if self.is_stateless else "initialize"

    def can(self) -> tuple[str, ...]:
        """What the client lets itself be asked."""
        has = [name for name in QUESTIONS if declares(self.survey.capabilities, name)]
        return tuple(name for name in has if name != "elicitation" or self.survey.revision in (V3, V4, V5))


def call(method: str, params: Json | None = None, **more: Any) -> str:
    """A request, with an `id`, or a notification."""
    return encode({"jsonrpc": "2.0", **more, "method": method, **({"params": params} if params else {})})


def _with(scene: Scene, *bodies: str, then: When = When.NOW) -> list[Deed]:
    """Lines before the answer."""
    return [Deed(scene.cue(), (*(Line(body) for body in bodies), Line(when=then)))]


def _asked(scene: Scene, *bodies: str) -> list[Deed]:
    """Questions that are answered before the answer. In 2026-07-28 there are none, and nobody waits for that."""
    return _with(scene, *bodies, then=When.NOW if scene.is_stateless else When.ANSWERED)


def _after(scene: Scene, *bodies: str, when: When = When.NOW) -> list[Deed]:
    """Lines after the answer."""
    return [Deed(scene.cue(), (Line(), *(Line(body, when) for body in bodies)))]


def _instead(scene: Scene, body: str) -> list[Deed]:
    return [Deed(scene.cue(), (Line(body),))]


# --- Orderly --------------------------------------------------------------------------------------------------------


def _by_events(scene: Scene) -> list[Deed]:
    return [Deed(scene.pick((scene.cue(), scene.hello())), is_events=True)]


def _taken_up(scene: Scene) -> list[Deed]:
    """A stream that is cut before the answer, and can be taken up."""
    body = call("notifications/message", {"level": "info", "data": "a"})
    return [Deed(scene.cue(), (Line(body), Line()), is_events=True, has_ids=True, cut_after=1)]


def _pages(scene: Scene) -> list[Deed]:
    lists = tuple(name for name in scene.survey.requests if name.endswith("/list"))
    if not lists:
        return _by_events(scene)
    method = scene.pick(lists)
    name = method.split("/")[-2].replace("templates", "resourceTemplates")
    result: Json = {name: [], "nextCursor": PAGE}
    if scene.is_stateless:
        result |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    return [Deed(method, (Line(encode({"jsonrpc": "2.0", "id": "$id", "result": result})),))]


def _progress(scene: Scene) -> list[Deed]:
    steps = scene.pick(((1,), (1, 2.5, 3), (0.1, 100)))
    told = [{"progressToken": "$token", "progress": each, "total": 100} for each in steps]
    return _with(scene, *(call("notifications/progress", each) for each in told))


def _log(scene: Scene) -> list[Deed]:
    data: object = scene.pick(("a text", {"a": [1]}, 1, None))
    return _with(scene, call("notifications/message", {"level": scene.pick(("info", "emergency")), "data": data}))


def _changes(scene: Scene) -> list[Deed]:
    kind = scene.pick(("tools", "prompts", "resources"))
    return _with(scene, call(f"notifications/{kind}/list_changed"))


def _changes_on_get(scene: Scene) -> list[Deed]:
    body = call("notifications/tools/list_changed")
    return [Deed("notifications/initialized", (Line(body, on_get=True),))]


def _ping(scene: Scene) -> list[Deed]:
    return _with(scene, call("ping", id=_id(scene)), then=When.ANSWERED)


def _ask(scene: Scene) -> list[Deed]:
    can = scene.can()
    if not can:
        return _ping(scene)
    method, params = QUESTIONS[scene.pick(can)]
    return _with(scene, call(method, params, id=_id(scene)), then=When.ANSWERED)


def _ask_at_once(scene: Scene) -> list[Deed]:
    asks = [call(*QUESTIONS[name], id=number) for number, name in enumerate(scene.can())]
    return _with(scene, *asks, call("ping", id="p"), call("ping", id="q"), then=When.ANSWERED)


def _ask_on_get(scene: Scene) -> list[Deed]:
    return [Deed("notifications/initialized", (Line(call("ping", id=_id(scene)), on_get=True),))]


def _ask_and_cancel(scene: Scene) -> list[Deed]:
    can = scene.can()
    method, params = QUESTIONS[scene.pick(can)] if can else ("ping", {})
    return _with(scene, call(method, params, id=7), call("notifications/cancelled", {"requestId": 7}))


def _rounds(scene: Scene) -> list[Deed]:
    """Questions in results, once or twice."""
    cue = scene.cue(INTERACTIVE)
    if cue not in INTERACTIVE:
        return [Deed(cue)]
    can = scene.can()
    asked = {name: {"method": QUESTIONS[name][0], "params": QUESTIONS[name][1]} for name in can}
    has_state = not asked or scene.pick((True, False))
    deeds = []
    for number in range(scene.pick((1, 2))):
        result: Json = {"resultType": "input_required", "_meta": {META + "serverInfo": SERVER_INFO}}
        result |= {"inputRequests": asked} if asked else {}
        result |= {"requestState": f"{STATE}-{number} ü"} if has_state else {}
        deeds.append(Deed(cue, (Line(encode({"jsonrpc": "2.0", "id": "$id", "result": result})),)))
    return deeds


def _error(scene: Scene) -> list[Deed]:
    code = scene.pick((-32603, -32602, -32601, -32000, 1))
    error: Json = {"code": code, "message": scene.pick(("no", "")), "data": scene.pick((None, {"a": 1}, "text"))}
    return _instead(scene, encode({"jsonrpc": "2.0", "id": "$id", "error": error}))


def _more_members(scene: Scene) -> list[Deed]:
    told = {"jsonrpc": "2.0", "id": "$id", "result": "$result", "com.example": {"a": 1}, "trace": "x"}
    return _instead(scene, encode(told))


def _large(scene: Scene) -> list[Deed]:
    return _with(scene, call("notifications/message", {"level": "info", "data": "x" * LARGE_CHARS}))


def _task(scene: Scene) -> list[Deed]:
    return [Deed("tools/call", fate=scene.pick(tuple(Fate)))]


def _task_that_asks(scene: Scene) -> list[Deed]:
    """By its result, as 2025-11-25 has it, or in itself."""
    can = scene.can()
    if not can:
        return _task(scene)
    method, params = QUESTIONS[scene.pick(can)]
    begun = Deed("tools/call", questions={"a": {"method": method, "params": params}})
    if scene.is_stateless:
        return [begun]
    asked = call(method, {**params, "_meta": {RELATED: {"taskId": "$taskId"}}}, id=_id(scene))
    return [begun, Deed("tasks/result", (Line(asked), LAST))]


def _task_told(scene: Scene) -> list[Deed]:
    return [
        Deed("tasks/get", (Line('{"jsonrpc":"2.0","method":"notifications/tasks/status","params":"$task"}'), Line()))
    ]


def _question_as_task(scene: Scene) -> list[Deed]:
    """Where the client has declared that it can be asked so; else it is asked as always."""
    can = [name for name in scene.can() if declares(scene.survey.capabilities, AUGMENTED.get(QUESTIONS[name][0], "-"))]
    if not can:
        return _ask(scene)
    method, params = QUESTIONS[scene.pick(tuple(can))]
    return _with(scene, call(method, {**params, "task": {"ttl": TTL_MS}}, id=_id(scene)), then=When.ANSWERED)


def _id(scene: Scene) -> str | int:
    return scene.pick((*IDS, "$id"))


# --- Rude -----------------------------------------------------------------------------------------------------------


def _undeclared(scene: Scene) -> list[Deed]:
    """What the client has not declared: it says so."""
    method, params = scene.pick(
        tuple(QUESTIONS[name] for name in QUESTIONS if name not in scene.can()) or (("no/such/method", {}),)
    )
    return _asked(scene, call(method, params, id=_id(scene)))


def _unknown_method(scene: Scene) -> list[Deed]:
    method = scene.pick(("no/such/method", "tools/list", "initialize", "", "tasks/get"))
    return _asked(scene, call(method, id=_id(scene)))


def _wrong_params(scene: Scene) -> list[Deed]:
    can = scene.can()
    method = QUESTIONS[scene.pick(can)][0] if can else "ping"
    return _asked(scene, call(method, {"messages": 1, "message": [], "_meta": {"a": 1}}, id=3))


def _early(scene: Scene) -> list[Deed]:
    """Questions before the handshake is through."""
    method, params = scene.pick(tuple(QUESTIONS[name] for name in scene.can()) or (("ping", {}),))
    return [Deed("initialize", (Line(call(method, params, id=5)), LAST))]


def _used_id(scene: Scene) -> list[Deed]:
    return _asked(scene, call("ping", id=1), call("ping", id=1))


def _unknown_notice(scene: Scene) -> list[Deed]:
    method = scene.pick(("notifications/no-such", "", "notifications/initialized", "tools/call"))
    return _with(scene, call(method, {"a": 1}))


def _odd_progress(scene: Scene) -> list[Deed]:
    token: object = scene.pick(("never-given", -1, "$token", None, 1.5))
    value: object = scene.pick((1, -1, 1e300, "1", None))
    body = call("notifications/progress", {"progressToken": token, "progress": value})
    return _with(scene, body, body) if scene.pick((True, False)) else _after(scene, body, body)


def _foreign_cancel(scene: Scene) -> list[Deed]:
    return _with(scene, call("notifications/cancelled", {"requestId": scene.pick(("$id", "never-used", None))}))


GARBAGE: Final = ("{", "", "[]", "null", "1", '"text"', '{"jsonrpc":"2.0"}', '{"jsonrpc":"1.0","id":"$id","result":{}}')


def _garbage(scene: Scene) -> list[Deed]:
    return _with(scene, scene.pick(GARBAGE))


def _odd_answer(scene: Scene) -> list[Deed]:
    """Before the answer, at once or long before: what is no answer leaves the client waiting for one."""
    odd: tuple[Json, ...] = (
        {"id": "$id"},
        {"id": "$id", "result": None},
        {"id": "$id", "result": []},
        {"id": "$id", "result": {}},
        {"id": "$id", "result": "$result", "error": {"code": 1, "message": "both"}},
        {"id": "$id", "error": "text"},
        {"id": "$id", "error": {"message": "no code"}},
        {"id": None, "error": {"code": -32700, "message": "that could not be read"}},
        {"id": "never-used", "result": {}},
        {"id": 987654, "error": {"code": 1, "message": "whose?"}},
        {"id": ["$id"], "result": {}},
        {"id": "$id", "method": "ping", "result": {}},
    )
    body = encode({"jsonrpc": "2.0", **scene.pick(odd)})
    return _with(scene, body, then=scene.pick((When.NOW, When.QUIET)))


def _twice(scene: Scene) -> list[Deed]:
    return _after(scene, ANSWER, when=scene.pick((When.NOW, When.QUIET)))


def _late(scene: Scene) -> list[Deed]:
    return [Deed(scene.cue(), (Line(when=When.QUIET),))]


def _odd_hello(scene: Scene) -> list[Deed]:
    version: object = scene.pick(("1999-01-01", "", None, 1))
    result = {"protocolVersion": version, "capabilities": {}, "serverInfo": SERVER_INFO}
    return [Deed("initialize", (Line(encode({"jsonrpc": "2.0", "id": "$id", "result": result})),))]


def _array(scene: Scene) -> list[Deed]:
    """With a question in it where the revision has clients take arrays (2025-03-26 basic, "Batching")."""
    asks = [call("ping", id=1)] if scene.survey.revision == V2 else []
    return _asked(scene, f"[{','.join([*asks, call('notifications/tools/list_changed')])}]")


def _cut(scene: Scene) -> list[Deed]:
    return [Deed(scene.cue(), cut_after=0)]


def _cut_later(scene: Scene) -> list[Deed]:
    body = call("notifications/message", {"level": "info", "data": "a"})
    return [Deed(scene.cue(), (Line(body), Line()), cut_after=1)]


def _lost_session(scene: Scene) -> list[Deed]:
    return [Deed(scene.cue(), (), status=404, forgets=True)]


def _status(scene: Scene) -> list[Deed]:
    error = encode({"jsonrpc": "2.0", "id": "$id", "error": {"code": -32000, "message": "no"}})
    status = scene.pick((500, 400, 403, 405, 406, 415, 429, 503, 202, 204, 302))
    lines = scene.pick(((), (Line(error),), (Line("not JSON"),)))
    on = scene.pick((scene.cue(), scene.hello(), "notifications/initialized"))
    return [Deed(on, () if status == 204 else lines, status=status)]


def _headers(scene: Scene) -> list[Deed]:
    wrong: dict[str, str] = scene.pick(
        (
            {"Content-Type": "text/plain"},
            {"Content-Type": ""},
            {"Content-Type": "application/json; charset=utf-8"},
            {"Mcp-Session-Id": "another-session"},
            {"Mcp-Session-Id": "with spaces in it"},
        )
    )
    return [Deed(scene.pick((scene.cue(), scene.hello())), headers=wrong)]


def _lost_task(scene: Scene) -> list[Deed]:
    error = {"code": -32602, "message": "there is no such task"}
    return [Deed("tasks/get", (Line(encode({"jsonrpc": "2.0", "id": "$id", "error": error})),))]


def _odd_task(scene: Scene) -> list[Deed]:
    """What is told of it is no task, once."""
    odd: tuple[Json, ...] = ({}, {"taskId": "$taskId", "status": "lost"}, {"taskId": "another", "status": "completed"})
    dressed = {"resultType": "complete"} if scene.is_stateless else {}
    told = {"jsonrpc": "2.0", "id": "$id", "result": {**scene.pick(odd), **dressed}}
    return [Deed("tasks/get", (Line(encode(told)),))]


class Kind(NamedTuple):
    """One kind of thing that a server may do."""

    make: Callable[[Scene], list[Deed]]
    revisions: tuple[str, ...] = _ALL
    on: tuple[Transport, ...] = tuple(Transport)
    is_of_tasks: bool = False


KINDS: Final[dict[str, Kind]] = {
    "plain": Kind(lambda scene: [Deed(scene.cue())]),
    "by events": Kind(_by_events, on=_STREAMABLE),
    "pages": Kind(_pages),
    "progress": Kind(_progress),
    "log messages": Kind(_log),
    "changes": Kind(_changes),
    "changes on the client's stream": Kind(_changes_on_get, _BY_HAND[1:], on=_STREAMABLE),
    "ping": Kind(_ping, _BY_HAND),
    "question": Kind(_ask, _BY_HAND),
    "questions at once": Kind(_ask_at_once, _BY_HAND),
    "question on the client's stream": Kind(_ask_on_get, _BY_HAND[1:], on=_STREAMABLE),
    "question, and never mind": Kind(_ask_and_cancel, _BY_HAND),
    "questions in results": Kind(_rounds, _NEW),
    "task": Kind(_task, (V4, V5), is_of_tasks=True),
    "task that asks": Kind(_task_that_asks, (V4, V5), is_of_tasks=True),
    "task whose status is told": Kind(_task_told, (V4,), is_of_tasks=True),
    "question that is to be a task": Kind(_question_as_task, (V4,)),
    "error": Kind(_error),
    "more members": Kind(_more_members),
    "large message": Kind(_large),
    "stream that is taken up": Kind(_taken_up, _BY_HAND[1:], on=_STREAMABLE),
    "late answer": Kind(_late),
    "question that is not declared": Kind(_undeclared),
    "unknown method": Kind(_unknown_method),
    "wrong params": Kind(_wrong_params),
    "question before its time": Kind(_early, _BY_HAND),
    "id used before": Kind(_used_id),
    "unknown notification": Kind(_unknown_notice),
    "odd progress": Kind(_odd_progress),
    "cancelling what is not its own": Kind(_foreign_cancel),
    "garbage": Kind(_garbage),
    "odd answer": Kind(_odd_answer),
    "answer twice": Kind(_twice),
    "odd version": Kind(_odd_hello, _BY_HAND),
    "array": Kind(_array),
    "lost task": Kind(_lost_task, (V4, V5), is_of_tasks=True),
    "odd task": Kind(_odd_task, (V4, V5), is_of_tasks=True),
    "cut": Kind(_cut),
    "cut before the answer": Kind(_cut_later),
    "lost session": Kind(_lost_session, _BY_HAND[1:], on=_STREAMABLE),
    "status": Kind(_status, on=(Transport.HTTP, Transport.EVENTS)),
    "wrong headers": Kind(_headers, on=_STREAMABLE),
}
"""Name → kind; the simplest first, as others are made smaller to those before them."""


def kinds_for(survey: ClientSurvey) -> tuple[Kind, ...]:
    """Of tasks there is nothing for a client that has none."""
    return tuple(
        kind
        for kind in KINDS.values()
        if survey.revision in kind.revisions
        and survey.transport in kind.on
        and (survey.has_tasks or not kind.is_of_tasks)
    )
