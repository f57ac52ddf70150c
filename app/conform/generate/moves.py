"""Kinds of moves of a scripted client: correct ones, and incorrect ones that a server must survive."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from ....core.base.revisions import LEGACY, MODERN
from ....core.oracle.observations import Verb
from ..script.arguments import TEXTS, Source, arguments_of
from ..script.steps import (
    META,
    Json,
    Manner,
    Session,
    Step,
    encode,
    handshake,
    headers_of,
    notification,
    request,
    step_of,
)
from ..script.survey import Survey, can

IDS: Final[tuple[str | int, ...]] = (1, 0, -1, "1", "a", "ü ✓", 2**53 - 1, "x" * 100)
LARGE_CHARS: Final = 64 * 1024
"""Characters of a large message: more than a pipe buffers, less than the limit of any server."""


class MoveContext:
    """The server, revision and manner for which moves are made, and the request ids used so far."""

    def __init__(self, survey: Survey, pick: Source, manner: Manner = Manner.NONE) -> None:
        self.survey = survey
        self.revision = survey.revision
        self.manner = manner
        self.pick = pick
        self.used: list[str | int] = []

    def id(self) -> str | int:
        """Picks an id that was not used yet."""
        drawn: str | int = self.pick(IDS)
        fresh: str | int = drawn if drawn not in self.used else 1000 + len(self.used)
        self.used.append(fresh)
        return fresh

    def ask(self, method: str, params: Json | None = None, **more: Any) -> Step:
        return request(self.revision, self.id(), method, params, self.manner, **more)

    def greet(self, wire: int = 0) -> tuple[Step, Step]:
        """Returns the steps of the handshake."""
        return handshake(self.revision, wire, self.manner)

    def tell(self, method: str, params: Json | None = None, **more: Any) -> Step:
        return notification(self.revision, method, params, **more)

    def listen(self) -> Step:
        """Returns a GET that opens an event stream, on which the server may send requests."""
        return Step(verb=Verb.GET, headers=headers_of(self.revision, {}), waits=False)

    def plain(self, **more: Any) -> Step:
        """Returns a request that every server answers."""
        return self.ask("server/discover" if self.revision in MODERN else "ping", **more)

    def call(self, **more: Any) -> Step:
        """Returns a tool call, or another request if there are no tools."""
        if not self.survey.tools:
            return self.plain(**more)
        tool = self.pick(self.survey.tools)
        params: Json = {"name": tool.name, "arguments": arguments_of(tool.schema, self.pick)}
        return self.ask("tools/call", params, **more)


# --- Moves ----------------------------------------------------------------------------------------------------------


def _list(context: MoveContext) -> list[Step]:
    kinds = tuple(name for name in ("tools", "prompts", "resources") if can(context.survey, name))
    return [context.ask(f"{context.pick(kinds)}/list") if kinds else context.plain()]


def _list_from(context: MoveContext) -> list[Step]:
    kinds = tuple(name for name in ("tools", "prompts", "resources") if can(context.survey, name))
    return [context.ask(f"{context.pick(kinds)}/list", {"cursor": "no-such-cursor"}) if kinds else context.plain()]


def _get_prompt(context: MoveContext) -> list[Step]:
    if not context.survey.prompts:
        return [context.plain()]
    prompt = context.pick(context.survey.prompts)
    wanted = [each for each in prompt.get("arguments") or [] if isinstance(each, dict) and each.get("required")]
    values = {str(each.get("name")): context.pick(TEXTS) for each in wanted}
    return [context.ask("prompts/get", {"name": prompt["name"], "arguments": values})]


def _read(context: MoveContext) -> list[Step]:
    uris = context.survey.resources
    return [context.ask("resources/read", {"uri": context.pick(uris)}) if uris else context.plain()]


def _unknown_name(context: MoveContext) -> list[Step]:
    requests: dict[str, tuple[str, Json]] = {
        "tools": ("tools/call", {"name": "no-such-tool", "arguments": {}}),
        "prompts": ("prompts/get", {"name": "no-such-prompt"}),
        "resources": ("resources/read", {"uri": "isthmus-conform:///no-such-resource"}),
    }
    known = tuple(name for name in requests if can(context.survey, name))
    return [context.ask(*requests[context.pick(known)]) if known else context.plain()]


def _wrong_arguments(context: MoveContext) -> list[Step]:
    if not context.survey.tools:
        return [context.plain()]
    tool = context.pick(context.survey.tools)
    wanted = tool.schema.get("required")
    if not isinstance(wanted, list) or not wanted:  # the call would be correct, and the tool would run
        return [context.ask("tools/call", {"name": "no-such-tool", "arguments": []})]
    return [
        context.ask("tools/call", {"name": tool.name, "arguments": context.pick(({}, {str(wanted[0]): {"a": []}}))})
    ]


def _without_params(context: MoveContext) -> list[Step]:
    method = context.pick(("tools/call", "prompts/get", "resources/read", "resources/subscribe", "logging/setLevel"))
    return [context.ask(method)]


def _unknown_method(context: MoveContext) -> list[Step]:
    return [context.ask(context.pick(("no/such/method", "", "tools", "TOOLS/LIST")))]


def _unknown_notice(context: MoveContext) -> list[Step]:
    return [context.tell(context.pick(("notifications/no-such", "notifications/roots/list_changed")))]


def _garbage(context: MoveContext) -> list[Step]:
    body = context.pick(("{", "[]", "null", "1", '{"jsonrpc":"2.0"}', '{"id":77,"method":"ping"}', "\x00"))
    return [Step(body=body, headers=headers_of(context.revision, {}))]


def _unasked_answer(context: MoveContext) -> list[Step]:
    return [step_of(context.revision, {"jsonrpc": "2.0", "id": "nobody-asked", "result": {}})]


def _odd_id(context: MoveContext) -> list[Step]:
    """Makes a request with an invalid id."""
    step = context.plain()
    return [
        Step(
            body=encode({**json.loads(step.body), "id": context.pick((None, 1.5, True, [], {}))}), headers=step.headers
        )
    ]


def _odd_params(context: MoveContext) -> list[Step]:
    return [_with_member(context.plain(), "params", context.pick(([], "text", 1)))]


def _complete(context: MoveContext) -> list[Step]:
    if not context.survey.prompts or not can(context.survey, "completions"):
        return [context.plain()]
    ref = {"type": "ref/prompt", "name": context.pick(context.survey.prompts)["name"]}
    return [context.ask("completion/complete", {"ref": ref, "argument": {"name": "a", "value": context.pick(TEXTS)}})]


def _templates(context: MoveContext) -> list[Step]:
    return [context.ask("resources/templates/list") if can(context.survey, "resources") else context.plain()]


def _subscribe(context: MoveContext) -> list[Step]:
    uris = context.survey.resources
    if not uris or not can(context.survey, "resources.subscribe"):
        return [context.plain()]
    about = {"uri": context.pick(uris)}
    return [context.ask("resources/subscribe", about), context.ask("resources/unsubscribe", about)]


def _batch(context: MoveContext) -> list[Step]:
    requests = [json.loads(context.plain().body) for _ in range(2)]
    return [Step(body=encode(requests), headers=headers_of(context.revision, {}))]


def _used_id(context: MoveContext) -> list[Step]:
    """Makes a request with an id used before: incorrect, but no reason for a server to stop answering."""
    first = context.plain()
    return [first, first]


def _at_once(context: MoveContext) -> list[Step]:
    return [context.call(waits=False), context.plain(waits=False), context.call()]


def _progress(context: MoveContext) -> list[Step]:
    tokens: tuple[str | int, ...] = (0, "p", -5, "ü")
    return [_with_meta(context.call(), {"progressToken": context.pick(tokens)})]


def _large(context: MoveContext) -> list[Step]:
    params = {"name": "no-such-tool", "arguments": {"text": "x" * LARGE_CHARS}}
    return [context.ask("tools/call", params) if can(context.survey, "tools") else context.plain()]


def _cancel_unknown(context: MoveContext) -> list[Step]:
    return [context.tell("notifications/cancelled", {"requestId": context.pick(("never-used", 987654, ""))})]


def _cancel_finished(context: MoveContext) -> list[Step]:
    step = context.plain()
    return [step, context.tell("notifications/cancelled", {"requestId": context.used[-1], "reason": "too late"})]


def _cancel_running(context: MoveContext) -> list[Step]:
    step = context.call(waits=False)
    return [step, context.tell("notifications/cancelled", {"requestId": context.used[-1]})]


def _second_handshake(context: MoveContext) -> list[Step]:
    first = context.greet()[0]
    return [Step(body=first.body.replace("hello-0", f"again-{len(context.used)}"))]


def _set_level(context: MoveContext) -> list[Step]:
    level = context.pick(("debug", "emergency", "no-such-level"))
    return [context.ask("logging/setLevel", {"level": level}) if can(context.survey, "logging") else context.plain()]


def _second_session(context: MoveContext) -> list[Step]:
    steps = context.greet(wire=1)
    return [*steps, context.call(waits=False), context.call(wire=1)]


def _wrong_session(context: MoveContext) -> list[Step]:
    return [context.plain(session=context.pick((Session.WRONG, Session.NONE)))]


def _wrong_headers(context: MoveContext) -> list[Step]:
    wrong = context.pick(
        (
            {"Accept": "application/json"},
            {"Accept": "text/html"},
            {"Accept": ""},
            {"Content-Type": "text/plain"},
            {"MCP-Protocol-Version": "1999-01-01"},
        )
    )
    step = context.plain()
    return [Step(body=step.body, headers={**step.headers, **wrong})]


def _get_stream(context: MoveContext) -> list[Step]:
    return [context.listen(), context.plain()]


def _delete(context: MoveContext) -> list[Step]:
    return [Step(verb=Verb.DELETE, headers=headers_of(context.revision, {})), context.plain()]


def _without_meta(context: MoveContext) -> list[Step]:
    missing = context.pick(("protocolVersion", "clientCapabilities", "clientInfo"))
    step = context.plain()
    return [Step(body=step.body.replace(META + missing, "com.example/" + missing), headers=step.headers)]


def _unknown_version(context: MoveContext) -> list[Step]:
    step = context.plain()
    headers = {**step.headers, "MCP-Protocol-Version": "1999-01-01"}
    return [Step(body=step.body.replace(context.revision, "1999-01-01"), headers=headers)]


def _mismatch(context: MoveContext) -> list[Step]:
    # The version header is changed and never left out: without it a request may count as 2025-03-26.
    step = context.call()
    name = context.pick(("Mcp-Method", "Mcp-Name", "MCP-Protocol-Version"))
    wrong = "2025-11-25" if name == "MCP-Protocol-Version" else context.pick(("", "something-else"))
    return [Step(body=step.body, headers={**step.headers, name: wrong})]


def _foreign_state(context: MoveContext) -> list[Step]:
    if not context.survey.tools:
        return [context.plain()]
    params = {"name": context.survey.tools[0].name, "requestState": "of-another-server", "inputResponses": {}}
    arguments = arguments_of(context.survey.tools[0].schema, context.pick)
    return [context.ask("tools/call", {**params, "arguments": arguments})]


def _listen(context: MoveContext) -> list[Step]:
    kinds = context.pick(({"toolsListChanged": True}, {"promptsListChanged": True, "resourcesListChanged": True}, {}))
    return [context.ask("subscriptions/listen", {"notifications": kinds}, waits=False), context.plain()]


def _with_member(step: Step, name: str, value: object) -> Step:
    return msgspec.structs.replace(step, body=encode({**json.loads(step.body), name: value}))


def _with_meta(step: Step, meta: Json) -> Step:
    message = json.loads(step.body)
    params = message.setdefault("params", {})
    params["_meta"] = {**params.get("_meta", {}), **meta}
    return msgspec.structs.replace(step, body=encode(message))


class Move(NamedTuple):
    """A kind of move, and the servers that it is for.

    Attributes:
        is_last: the conversation cannot be judged after it, so it comes last.
    """

    make: Callable[[MoveContext], list[Step]]
    revisions: tuple[str, ...]
    on_pipes: bool = True
    is_last: bool = False


_LEGACY, _ALL, _NEW = tuple(LEGACY), (*LEGACY, *MODERN), tuple(MODERN)

MOVES: Final[dict[str, Move]] = {
    "plain": Move(lambda context: [context.plain()], _ALL),
    "list": Move(_list, _ALL),
    "call": Move(lambda context: [context.call()], _ALL),
    "get a prompt": Move(_get_prompt, _ALL),
    "read a resource": Move(_read, _ALL),
    "list templates": Move(_templates, _ALL),
    "complete": Move(_complete, _ALL),
    "subscribe": Move(_subscribe, _LEGACY),
    "several at once": Move(_at_once, _ALL),
    "ask for progress": Move(_progress, _ALL),
    "set the log level": Move(_set_level, _LEGACY),
    "unknown name": Move(_unknown_name, _ALL),
    "unknown cursor": Move(_list_from, _ALL),
    "wrong arguments": Move(_wrong_arguments, _ALL),
    "no params": Move(_without_params, _ALL),
    "unknown method": Move(_unknown_method, _ALL),
    "unknown notification": Move(_unknown_notice, _ALL),
    "large arguments": Move(_large, _ALL),
    "cancel what is unknown": Move(_cancel_unknown, _LEGACY),
    "cancel what is over": Move(_cancel_finished, _LEGACY),
    "cancel what runs": Move(_cancel_running, _LEGACY),
    "id used before": Move(_used_id, _ALL),
    "garbage": Move(_garbage, _ALL),
    "answer that nobody asked for": Move(_unasked_answer, _ALL),
    "id that is none": Move(_odd_id, _ALL),
    "params that are none": Move(_odd_params, _ALL),
    "array": Move(_batch, _ALL),
    "second handshake": Move(_second_handshake, _LEGACY),
    "two sessions": Move(_second_session, _LEGACY[1:], on_pipes=False),
    "wrong session": Move(_wrong_session, _LEGACY[1:], on_pipes=False),
    "wrong headers": Move(_wrong_headers, _ALL[1:], on_pipes=False),
    "stream of its own": Move(_get_stream, _LEGACY[1:], on_pipes=False),
    "end, and go on": Move(_delete, _LEGACY[1:], on_pipes=False, is_last=True),
    "no envelope": Move(_without_meta, _NEW),
    "unknown version": Move(_unknown_version, _NEW),
    "headers that say something else": Move(_mismatch, _NEW, on_pipes=False),
    "state of another": Move(_foreign_state, _NEW),
    "listen": Move(_listen, _NEW),
}
"""Name → move; the simplest first, since Hypothesis shrinks towards the first."""


def moves_for(survey: Survey) -> tuple[Move, ...]:
    return tuple(
        move for move in MOVES.values() if survey.revision in move.revisions and (survey.is_http or move.on_pipes)
    )
