"""Kinds of deeds of a scripted server: correct ones, and incorrect ones that a client must survive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ....core.oracle import Transport
from ....core.oracle.methods import AUGMENTED, INTERACTIVE, V2, V3, V4, V5, declares
from ..script.arguments import Source
from ..script.behaviour import ANSWER, PAGE, SERVER_INFO, Deed, Line, When
from ..script.client_survey import ClientSurvey
from ..script.simulated_tasks import RELATED, TTL_MS, Fate
from ..script.steps import META, REVISIONS, Json, encode
from .moves import IDS, LARGE_CHARS

_LEGACY, _ALL, _NEW = REVISIONS[:-1], REVISIONS, REVISIONS[-1:]
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
"""Capability → a method that needs it, and params for that method."""
LAST: Final = Line(when=When.ANSWERED)
"""The response, sent once the client has answered all server requests."""
STATE: Final = "isthmus-conform-state"


class DeedContext:
    """The client for which deeds are made, and the requests that already have one."""

    def __init__(self, survey: ClientSurvey, pick: Source) -> None:
        self.survey = survey
        self.pick = pick
        self.is_stateless = survey.revision == V5
        self._used: set[str] = set()

    def cue(self, among: tuple[str, ...] = ()) -> str:
        """Picks a method that the client calls, one without a deed if there is one left."""
        mine = tuple(name for name in self.survey.requests if not among or name in among) or self.survey.requests
        later = tuple(name for name in mine if name not in ("initialize", "server/discover")) or mine
        free = tuple(name for name in reversed(later) if name not in self._used) or later
        drawn: str = self.pick(free)
        self._used.add(drawn)
        return drawn

    def hello(self) -> str:
        return "server/discover" if self.is_stateless else "initialize"

    def can(self) -> tuple[str, ...]:
        """Returns the capabilities whose server requests the client accepts."""
        has = [name for name in QUESTIONS if declares(self.survey.capabilities, name)]
        return tuple(name for name in has if name != "elicitation" or self.survey.revision in (V3, V4, V5))


def call(method: str, params: Json | None = None, **more: Any) -> str:
    """Encodes a request, if `id` is given, or a notification."""
    return encode({"jsonrpc": "2.0", **more, "method": method, **({"params": params} if params else {})})


def _before(context: DeedContext, *bodies: str, then: When = When.NOW) -> list[Deed]:
    """Returns a deed that sends messages before the response."""
    return [Deed(context.cue(), (*(Line(body) for body in bodies), Line(when=then)))]


def _with_questions(context: DeedContext, *bodies: str) -> list[Deed]:
    """Returns a deed that sends server requests, and waits for their answers before its response.

    2026-07-28 has no server requests, so nothing is waited for there.
    """
    return _before(context, *bodies, then=When.NOW if context.is_stateless else When.ANSWERED)


def _after(context: DeedContext, *bodies: str, when: When = When.NOW) -> list[Deed]:
    """Returns a deed that sends messages after the response."""
    return [Deed(context.cue(), (Line(), *(Line(body, when) for body in bodies)))]


def _instead(context: DeedContext, body: str) -> list[Deed]:
    return [Deed(context.cue(), (Line(body),))]


# --- Correct --------------------------------------------------------------------------------------------------------


def _by_events(context: DeedContext) -> list[Deed]:
    return [Deed(context.pick((context.cue(), context.hello())), is_events=True)]


def _resumed(context: DeedContext) -> list[Deed]:
    """Makes a stream that breaks off before the response, and can be resumed."""
    body = call("notifications/message", {"level": "info", "data": "a"})
    return [Deed(context.cue(), (Line(body), Line()), is_events=True, has_ids=True, cut_after=1)]


def _pages(context: DeedContext) -> list[Deed]:
    lists = tuple(name for name in context.survey.requests if name.endswith("/list"))
    if not lists:
        return _by_events(context)
    method = context.pick(lists)
    name = method.split("/")[-2].replace("templates", "resourceTemplates")
    result: Json = {name: [], "nextCursor": PAGE}
    if context.is_stateless:
        result |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    return [Deed(method, (Line(encode({"jsonrpc": "2.0", "id": "$id", "result": result})),))]


def _progress(context: DeedContext) -> list[Deed]:
    steps = context.pick(((1,), (1, 2.5, 3), (0.1, 100)))
    updates = [{"progressToken": "$token", "progress": each, "total": 100} for each in steps]
    return _before(context, *(call("notifications/progress", each) for each in updates))


def _log(context: DeedContext) -> list[Deed]:
    data: object = context.pick(("a text", {"a": [1]}, 1, None))
    return _before(context, call("notifications/message", {"level": context.pick(("info", "emergency")), "data": data}))


def _changes(context: DeedContext) -> list[Deed]:
    kind = context.pick(("tools", "prompts", "resources"))
    return _before(context, call(f"notifications/{kind}/list_changed"))


def _changes_on_get(context: DeedContext) -> list[Deed]:
    body = call("notifications/tools/list_changed")
    return [Deed("notifications/initialized", (Line(body, on_get=True),))]


def _ping(context: DeedContext) -> list[Deed]:
    return _before(context, call("ping", id=_id(context)), then=When.ANSWERED)


def _question(context: DeedContext) -> list[Deed]:
    can = context.can()
    if not can:
        return _ping(context)
    method, params = QUESTIONS[context.pick(can)]
    return _before(context, call(method, params, id=_id(context)), then=When.ANSWERED)


def _questions_at_once(context: DeedContext) -> list[Deed]:
    asks = [call(*QUESTIONS[name], id=number) for number, name in enumerate(context.can())]
    return _before(context, *asks, call("ping", id="p"), call("ping", id="q"), then=When.ANSWERED)


def _question_on_get(context: DeedContext) -> list[Deed]:
    return [Deed("notifications/initialized", (Line(call("ping", id=_id(context)), on_get=True),))]


def _cancelled_question(context: DeedContext) -> list[Deed]:
    can = context.can()
    method, params = QUESTIONS[context.pick(can)] if can else ("ping", {})
    return _before(context, call(method, params, id=7), call("notifications/cancelled", {"requestId": 7}))


def _rounds(context: DeedContext) -> list[Deed]:
    """Makes one or two results with `input_required`."""
    cue = context.cue(INTERACTIVE)
    if cue not in INTERACTIVE:
        return [Deed(cue)]
    can = context.can()
    asked = {name: {"method": QUESTIONS[name][0], "params": QUESTIONS[name][1]} for name in can}
    has_state = not asked or context.pick((True, False))
    deeds = []
    for number in range(context.pick((1, 2))):
        result: Json = {"resultType": "input_required", "_meta": {META + "serverInfo": SERVER_INFO}}
        result |= {"inputRequests": asked} if asked else {}
        result |= {"requestState": f"{STATE}-{number} ü"} if has_state else {}
        deeds.append(Deed(cue, (Line(encode({"jsonrpc": "2.0", "id": "$id", "result": result})),)))
    return deeds


def _error(context: DeedContext) -> list[Deed]:
    code = context.pick((-32603, -32602, -32601, -32000, 1))
    error: Json = {"code": code, "message": context.pick(("no", "")), "data": context.pick((None, {"a": 1}, "text"))}
    return _instead(context, encode({"jsonrpc": "2.0", "id": "$id", "error": error}))


def _more_members(context: DeedContext) -> list[Deed]:
    updates = {"jsonrpc": "2.0", "id": "$id", "result": "$result", "com.example": {"a": 1}, "trace": "x"}
    return _instead(context, encode(updates))


def _large(context: DeedContext) -> list[Deed]:
    return _before(context, call("notifications/message", {"level": "info", "data": "x" * LARGE_CHARS}))


def _task(context: DeedContext) -> list[Deed]:
    return [Deed("tools/call", fate=context.pick(tuple(Fate)))]


def _task_that_asks(context: DeedContext) -> list[Deed]:
    """Makes a task that asks: while `tasks/result` waits (2025-11-25), or in its state (2026-07-28)."""
    can = context.can()
    if not can:
        return _task(context)
    method, params = QUESTIONS[context.pick(can)]
    begun = Deed("tools/call", questions={"a": {"method": method, "params": params}})
    if context.is_stateless:
        return [begun]
    asked = call(method, {**params, "_meta": {RELATED: {"taskId": "$taskId"}}}, id=_id(context))
    return [begun, Deed("tasks/result", (Line(asked), LAST))]


def _task_status(context: DeedContext) -> list[Deed]:
    return [
        Deed("tasks/get", (Line('{"jsonrpc":"2.0","method":"notifications/tasks/status","params":"$task"}'), Line()))
    ]


def _question_as_task(context: DeedContext) -> list[Deed]:
    """Makes a server request that is to run as a task, if the client declares that; else an ordinary one."""
    can = [
        name for name in context.can() if declares(context.survey.capabilities, AUGMENTED.get(QUESTIONS[name][0], "-"))
    ]
    if not can:
        return _question(context)
    method, params = QUESTIONS[context.pick(tuple(can))]
    return _before(context, call(method, {**params, "task": {"ttl": TTL_MS}}, id=_id(context)), then=When.ANSWERED)


def _id(context: DeedContext) -> str | int:
    return context.pick((*IDS, "$id"))


# --- Incorrect ------------------------------------------------------------------------------------------------------


def _undeclared(context: DeedContext) -> list[Deed]:
    """Makes a server request that the client has not declared; it must answer with an error."""
    method, params = context.pick(
        tuple(QUESTIONS[name] for name in QUESTIONS if name not in context.can()) or (("no/such/method", {}),)
    )
    return _with_questions(context, call(method, params, id=_id(context)))


def _unknown_method(context: DeedContext) -> list[Deed]:
    method = context.pick(("no/such/method", "tools/list", "initialize", "", "tasks/get"))
    return _with_questions(context, call(method, id=_id(context)))


def _wrong_params(context: DeedContext) -> list[Deed]:
    can = context.can()
    method = QUESTIONS[context.pick(can)][0] if can else "ping"
    return _with_questions(context, call(method, {"messages": 1, "message": [], "_meta": {"a": 1}}, id=3))


def _early(context: DeedContext) -> list[Deed]:
    """Makes a server request before the handshake is complete."""
    method, params = context.pick(tuple(QUESTIONS[name] for name in context.can()) or (("ping", {}),))
    return [Deed("initialize", (Line(call(method, params, id=5)), LAST))]


def _used_id(context: DeedContext) -> list[Deed]:
    return _with_questions(context, call("ping", id=1), call("ping", id=1))


def _unknown_notice(context: DeedContext) -> list[Deed]:
    method = context.pick(("notifications/no-such", "", "notifications/initialized", "tools/call"))
    return _before(context, call(method, {"a": 1}))


def _odd_progress(context: DeedContext) -> list[Deed]:
    token: object = context.pick(("never-given", -1, "$token", None, 1.5))
    value: object = context.pick((1, -1, 1e300, "1", None))
    body = call("notifications/progress", {"progressToken": token, "progress": value})
    return _before(context, body, body) if context.pick((True, False)) else _after(context, body, body)


def _foreign_cancel(context: DeedContext) -> list[Deed]:
    return _before(context, call("notifications/cancelled", {"requestId": context.pick(("$id", "never-used", None))}))


GARBAGE: Final = ("{", "", "[]", "null", "1", '"text"', '{"jsonrpc":"2.0"}', '{"jsonrpc":"1.0","id":"$id","result":{}}')


def _garbage(context: DeedContext) -> list[Deed]:
    return _before(context, context.pick(GARBAGE))


def _odd_answer(context: DeedContext) -> list[Deed]:
    """Makes a malformed response before the real one, at once or long before: the client still waits for that."""
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
    body = encode({"jsonrpc": "2.0", **context.pick(odd)})
    return _before(context, body, then=context.pick((When.NOW, When.QUIET)))


def _twice(context: DeedContext) -> list[Deed]:
    return _after(context, ANSWER, when=context.pick((When.NOW, When.QUIET)))


def _late(context: DeedContext) -> list[Deed]:
    return [Deed(context.cue(), (Line(when=When.QUIET),))]


def _odd_hello(context: DeedContext) -> list[Deed]:
    version: object = context.pick(("1999-01-01", "", None, 1))
    result = {"protocolVersion": version, "capabilities": {}, "serverInfo": SERVER_INFO}
    return [Deed("initialize", (Line(encode({"jsonrpc": "2.0", "id": "$id", "result": result})),))]


def _array(context: DeedContext) -> list[Deed]:
    """Makes an array, with a request in it if clients must accept arrays (2025-03-26 basic, "Batching")."""
    asks = [call("ping", id=1)] if context.survey.revision == V2 else []
    return _with_questions(context, f"[{','.join([*asks, call('notifications/tools/list_changed')])}]")


def _cut(context: DeedContext) -> list[Deed]:
    return [Deed(context.cue(), cut_after=0)]


def _cut_later(context: DeedContext) -> list[Deed]:
    body = call("notifications/message", {"level": "info", "data": "a"})
    return [Deed(context.cue(), (Line(body), Line()), cut_after=1)]


def _lost_session(context: DeedContext) -> list[Deed]:
    return [Deed(context.cue(), (), status=404, forgets=True)]


def _status(context: DeedContext) -> list[Deed]:
    error = encode({"jsonrpc": "2.0", "id": "$id", "error": {"code": -32000, "message": "no"}})
    status = context.pick((500, 400, 403, 405, 406, 415, 429, 503, 202, 204, 302))
    lines = context.pick(((), (Line(error),), (Line("not JSON"),)))
    on = context.pick((context.cue(), context.hello(), "notifications/initialized"))
    return [Deed(on, () if status == 204 else lines, status=status)]


def _headers(context: DeedContext) -> list[Deed]:
    wrong: dict[str, str] = context.pick(
        (
            {"Content-Type": "text/plain"},
            {"Content-Type": ""},
            {"Content-Type": "application/json; charset=utf-8"},
            {"Mcp-Session-Id": "another-session"},
            {"Mcp-Session-Id": "with spaces in it"},
        )
    )
    return [Deed(context.pick((context.cue(), context.hello())), headers=wrong)]


def _lost_task(context: DeedContext) -> list[Deed]:
    error = {"code": -32602, "message": "there is no such task"}
    return [Deed("tasks/get", (Line(encode({"jsonrpc": "2.0", "id": "$id", "error": error})),))]


def _odd_task(context: DeedContext) -> list[Deed]:
    """Makes one malformed response to `tasks/get`."""
    odd: tuple[Json, ...] = ({}, {"taskId": "$taskId", "status": "lost"}, {"taskId": "another", "status": "completed"})
    dressed = {"resultType": "complete"} if context.is_stateless else {}
    updates = {"jsonrpc": "2.0", "id": "$id", "result": {**context.pick(odd), **dressed}}
    return [Deed("tasks/get", (Line(encode(updates)),))]


class Kind(NamedTuple):
    """A kind of deed, and the clients that it is for."""

    make: Callable[[DeedContext], list[Deed]]
    revisions: tuple[str, ...] = _ALL
    on: tuple[Transport, ...] = tuple(Transport)
    is_of_tasks: bool = False


KINDS: Final[dict[str, Kind]] = {
    "plain": Kind(lambda context: [Deed(context.cue())]),
    "by events": Kind(_by_events, on=_STREAMABLE),
    "pages": Kind(_pages),
    "progress": Kind(_progress),
    "log messages": Kind(_log),
    "changes": Kind(_changes),
    "changes on the client's stream": Kind(_changes_on_get, _LEGACY[1:], on=_STREAMABLE),
    "ping": Kind(_ping, _LEGACY),
    "question": Kind(_question, _LEGACY),
    "questions at once": Kind(_questions_at_once, _LEGACY),
    "question on the client's stream": Kind(_question_on_get, _LEGACY[1:], on=_STREAMABLE),
    "question, and never mind": Kind(_cancelled_question, _LEGACY),
    "questions in results": Kind(_rounds, _NEW),
    "task": Kind(_task, (V4, V5), is_of_tasks=True),
    "task that asks": Kind(_task_that_asks, (V4, V5), is_of_tasks=True),
    "task whose status is told": Kind(_task_status, (V4,), is_of_tasks=True),
    "question that is to be a task": Kind(_question_as_task, (V4,)),
    "error": Kind(_error),
    "more members": Kind(_more_members),
    "large message": Kind(_large),
    "stream that is taken up": Kind(_resumed, _LEGACY[1:], on=_STREAMABLE),
    "late answer": Kind(_late),
    "question that is not declared": Kind(_undeclared),
    "unknown method": Kind(_unknown_method),
    "wrong params": Kind(_wrong_params),
    "question before its time": Kind(_early, _LEGACY),
    "id used before": Kind(_used_id),
    "unknown notification": Kind(_unknown_notice),
    "odd progress": Kind(_odd_progress),
    "cancelling what is not its own": Kind(_foreign_cancel),
    "garbage": Kind(_garbage),
    "odd answer": Kind(_odd_answer),
    "answer twice": Kind(_twice),
    "odd version": Kind(_odd_hello, _LEGACY),
    "array": Kind(_array),
    "lost task": Kind(_lost_task, (V4, V5), is_of_tasks=True),
    "odd task": Kind(_odd_task, (V4, V5), is_of_tasks=True),
    "cut": Kind(_cut),
    "cut before the answer": Kind(_cut_later),
    "lost session": Kind(_lost_session, _LEGACY[1:], on=_STREAMABLE),
    "status": Kind(_status, on=(Transport.HTTP, Transport.EVENTS)),
    "wrong headers": Kind(_headers, on=_STREAMABLE),
}
"""Name → kind; the simplest first, since Hypothesis shrinks towards the first."""


def kinds_for(survey: ClientSurvey) -> tuple[Kind, ...]:
    """Returns the kinds for a client; those about tasks only if it has tasks."""
    return tuple(
        kind
        for kind in KINDS.values()
        if survey.revision in kind.revisions
        and survey.transport in kind.on
        and (survey.has_tasks or not kind.is_of_tasks)
    )
