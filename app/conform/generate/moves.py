"""What a conversation is made of: orderly moves, and rude ones that a server has to stand."""

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
    said,
)
from ..script.survey import Survey, can

IDS: Final[tuple[str | int, ...]] = (1, 0, -1, "1", "a", "ü ✓", 2**53 - 1, "x" * 100)
LARGE_CHARS: Final = 64 * 1024
"""More than a pipe holds, and less than any server's limit."""


class Scene:
    """What a move is made for: a server, one of its revisions, a client's manner, and the ids that were used."""

    def __init__(self, survey: Survey, pick: Source, manner: Manner = Manner.NONE) -> None:
        self.survey = survey
        self.revision = survey.revision
        self.manner = manner
        self.pick = pick
        self.used: list[str | int] = []

    def id(self) -> str | int:
        """One that was not used yet."""
        drawn: str | int = self.pick(IDS)
        fresh: str | int = drawn if drawn not in self.used else 1000 + len(self.used)
        self.used.append(fresh)
        return fresh

    def ask(self, method: str, params: Json | None = None, **more: Any) -> Step:
        return request(self.revision, self.id(), method, params, self.manner, **more)

    def greet(self, wire: int = 0) -> tuple[Step, Step]:
        """What a session begins with."""
        return handshake(self.revision, wire, self.manner)

    def tell(self, method: str, params: Json | None = None, **more: Any) -> Step:
        return notification(self.revision, method, params, **more)

    def listen(self) -> Step:
        """A GET, on whose stream a session's server may ask."""
        return Step(verb=Verb.GET, headers=headers_of(self.revision, {}), waits=False)

    def plain(self, **more: Any) -> Step:
        """A request that every server answers."""
        return self.ask("server/discover" if self.revision in MODERN else "ping", **more)

    def call(self, **more: Any) -> Step:
        """A call of a tool, or what else can be asked."""
        if not self.survey.tools:
            return self.plain(**more)
        tool = self.pick(self.survey.tools)
        params: Json = {"name": tool.name, "arguments": arguments_of(tool.schema, self.pick)}
        return self.ask("tools/call", params, **more)


# --- Moves ----------------------------------------------------------------------------------------------------------


def _list(scene: Scene) -> list[Step]:
    kinds = tuple(name for name in ("tools", "prompts", "resources") if can(scene.survey, name))
    return [scene.ask(f"{scene.pick(kinds)}/list") if kinds else scene.plain()]


def _list_from(scene: Scene) -> list[Step]:
    kinds = tuple(name for name in ("tools", "prompts", "resources") if can(scene.survey, name))
    return [scene.ask(f"{scene.pick(kinds)}/list", {"cursor": "no-such-cursor"}) if kinds else scene.plain()]


def _get_prompt(scene: Scene) -> list[Step]:
    if not scene.survey.prompts:
        return [scene.plain()]
    prompt = scene.pick(scene.survey.prompts)
    wanted = [each for each in prompt.get("arguments") or [] if isinstance(each, dict) and each.get("required")]
    values = {str(each.get("name")): scene.pick(TEXTS) for each in wanted}
    return [scene.ask("prompts/get", {"name": prompt["name"], "arguments": values})]


def _read(scene: Scene) -> list[Step]:
    uris = scene.survey.resources
    return [scene.ask("resources/read", {"uri": scene.pick(uris)}) if uris else scene.plain()]


def _unknown_name(scene: Scene) -> list[Step]:
    asks: dict[str, tuple[str, Json]] = {
        "tools": ("tools/call", {"name": "no-such-tool", "arguments": {}}),
        "prompts": ("prompts/get", {"name": "no-such-prompt"}),
        "resources": ("resources/read", {"uri": "isthmus-conform:///no-such-resource"}),
    }
    known = tuple(name for name in asks if can(scene.survey, name))
    return [scene.ask(*asks[scene.pick(known)]) if known else scene.plain()]


def _wrong_arguments(scene: Scene) -> list[Step]:
    if not scene.survey.tools:
        return [scene.plain()]
    tool = scene.pick(scene.survey.tools)
    wanted = tool.schema.get("required")
    if not isinstance(wanted, list) or not wanted:  # nothing would be wrong with it, and it would be called
        return [scene.ask("tools/call", {"name": "no-such-tool", "arguments": []})]
    return [scene.ask("tools/call", {"name": tool.name, "arguments": scene.pick(({}, {str(wanted[0]): {"a": []}}))})]


def _without_params(scene: Scene) -> list[Step]:
    method = scene.pick(("tools/call", "prompts/get", "resources/read", "resources/subscribe", "logging/setLevel"))
    return [scene.ask(method)]


def _unknown_method(scene: Scene) -> list[Step]:
    return [scene.ask(scene.pick(("no/such/method", "", "tools", "TOOLS/LIST")))]


def _unknown_notice(scene: Scene) -> list[Step]:
    return [scene.tell(scene.pick(("notifications/no-such", "notifications/roots/list_changed")))]


def _garbage(scene: Scene) -> list[Step]:
    body = scene.pick(("{", "[]", "null", "1", '{"jsonrpc":"2.0"}', '{"id":77,"method":"ping"}', "\x00"))
    return [Step(body=body, headers=headers_of(scene.revision, {}))]


def _unasked_answer(scene: Scene) -> list[Step]:
    return [said(scene.revision, {"jsonrpc": "2.0", "id": "nobody-asked", "result": {}})]


def _odd_id(scene: Scene) -> list[Step]:
    """An id that is none."""
    step = scene.plain()
    return [
        Step(body=encode({**json.loads(step.body), "id": scene.pick((None, 1.5, True, [], {}))}), headers=step.headers)
    ]


def _odd_params(scene: Scene) -> list[Step]:
    return [_with_member(scene.plain(), "params", scene.pick(([], "text", 1)))]


def _complete(scene: Scene) -> list[Step]:
    if not scene.survey.prompts or not can(scene.survey, "completions"):
        return [scene.plain()]
    ref = {"type": "ref/prompt", "name": scene.pick(scene.survey.prompts)["name"]}
    return [scene.ask("completion/complete", {"ref": ref, "argument": {"name": "a", "value": scene.pick(TEXTS)}})]


def _templates(scene: Scene) -> list[Step]:
    return [scene.ask("resources/templates/list") if can(scene.survey, "resources") else scene.plain()]


def _subscribe(scene: Scene) -> list[Step]:
    uris = scene.survey.resources
    if not uris or not can(scene.survey, "resources.subscribe"):
        return [scene.plain()]
    about = {"uri": scene.pick(uris)}
    return [scene.ask("resources/subscribe", about), scene.ask("resources/unsubscribe", about)]


def _batch(scene: Scene) -> list[Step]:
    asks = [json.loads(scene.plain().body) for _ in range(2)]
    return [Step(body=encode(asks), headers=headers_of(scene.revision, {}))]


def _used_id(scene: Scene) -> list[Step]:
    """An id again that was answered before: against the rules, and no reason to fall silent."""
    first = scene.plain()
    return [first, first]


def _at_once(scene: Scene) -> list[Step]:
    return [scene.call(waits=False), scene.plain(waits=False), scene.call()]


def _progress(scene: Scene) -> list[Step]:
    tokens: tuple[str | int, ...] = (0, "p", -5, "ü")
    return [_with_meta(scene.call(), {"progressToken": scene.pick(tokens)})]


def _large(scene: Scene) -> list[Step]:
    params = {"name": "no-such-tool", "arguments": {"text": "x" * LARGE_CHARS}}
    return [scene.ask("tools/call", params) if can(scene.survey, "tools") else scene.plain()]


def _cancel_unknown(scene: Scene) -> list[Step]:
    return [scene.tell("notifications/cancelled", {"requestId": scene.pick(("never-used", 987654, ""))})]


def _cancel_finished(scene: Scene) -> list[Step]:
    step = scene.plain()
    return [step, scene.tell("notifications/cancelled", {"requestId": scene.used[-1], "reason": "too late"})]


def _cancel_running(scene: Scene) -> list[Step]:
    step = scene.call(waits=False)
    return [step, scene.tell("notifications/cancelled", {"requestId": scene.used[-1]})]


def _second_handshake(scene: Scene) -> list[Step]:
    first = scene.greet()[0]
    return [Step(body=first.body.replace("hello-0", f"again-{len(scene.used)}"))]


def _set_level(scene: Scene) -> list[Step]:
    level = scene.pick(("debug", "emergency", "no-such-level"))
    return [scene.ask("logging/setLevel", {"level": level}) if can(scene.survey, "logging") else scene.plain()]


def _second_session(scene: Scene) -> list[Step]:
    steps = scene.greet(wire=1)
    return [*steps, scene.call(waits=False), scene.call(wire=1)]


def _wrong_session(scene: Scene) -> list[Step]:
    return [scene.plain(session=scene.pick((Session.WRONG, Session.NONE)))]


def _wrong_headers(scene: Scene) -> list[Step]:
    wrong = scene.pick(
        (
            {"Accept": "application/json"},
            {"Accept": "text/html"},
            {"Accept": ""},
            {"Content-Type": "text/plain"},
            {"MCP-Protocol-Version": "1999-01-01"},
        )
    )
    step = scene.plain()
    return [Step(body=step.body, headers={**step.headers, **wrong})]


def _get_stream(scene: Scene) -> list[Step]:
    return [scene.listen(), scene.plain()]


def _delete(scene: Scene) -> list[Step]:
    return [Step(verb=Verb.DELETE, headers=headers_of(scene.revision, {})), scene.plain()]


def _without_meta(scene: Scene) -> list[Step]:
    missing = scene.pick(("protocolVersion", "clientCapabilities", "clientInfo"))
    step = scene.plain()
    return [Step(body=step.body.replace(META + missing, "com.example/" + missing), headers=step.headers)]


def _unknown_version(scene: Scene) -> list[Step]:
    step = scene.plain()
    headers = {**step.headers, "MCP-Protocol-Version": "1999-01-01"}
    return [Step(body=step.body.replace(scene.revision, "1999-01-01"), headers=headers)]


def _mismatch(scene: Scene) -> list[Step]:
    """A version header that is left out is no such thing: it may stand for 2025-03-26."""
    step = scene.call()
    name = scene.pick(("Mcp-Method", "Mcp-Name", "MCP-Protocol-Version"))
    wrong = "2025-11-25" if name == "MCP-Protocol-Version" else scene.pick(("", "something-else"))
    return [Step(body=step.body, headers={**step.headers, name: wrong})]


def _foreign_state(scene: Scene) -> list[Step]:
    if not scene.survey.tools:
        return [scene.plain()]
    params = {"name": scene.survey.tools[0].name, "requestState": "of-another-server", "inputResponses": {}}
    arguments = arguments_of(scene.survey.tools[0].schema, scene.pick)
    return [scene.ask("tools/call", {**params, "arguments": arguments})]


def _listen(scene: Scene) -> list[Step]:
    kinds = scene.pick(({"toolsListChanged": True}, {"promptsListChanged": True, "resourcesListChanged": True}, {}))
    return [scene.ask("subscriptions/listen", {"notifications": kinds}, waits=False), scene.plain()]


def _with_member(step: Step, name: str, value: object) -> Step:
    return msgspec.structs.replace(step, body=encode({**json.loads(step.body), name: value}))


def _with_meta(step: Step, meta: Json) -> Step:
    message = json.loads(step.body)
    params = message.setdefault("params", {})
    params["_meta"] = {**params.get("_meta", {}), **meta}
    return msgspec.structs.replace(step, body=encode(message))


class Move(NamedTuple):
    """One kind of thing that a client may do.

    Attributes:
        is_last: nothing that goes on can be judged after it.
    """

    make: Callable[[Scene], list[Step]]
    revisions: tuple[str, ...]
    on_pipes: bool = True
    is_last: bool = False


_BY_HAND, _ALL, _NEW = tuple(LEGACY), (*LEGACY, *MODERN), tuple(MODERN)

MOVES: Final[dict[str, Move]] = {
    "plain": Move(lambda scene: [scene.plain()], _ALL),
    "list": Move(_list, _ALL),
    "call": Move(lambda scene: [scene.call()], _ALL),
    "get a prompt": Move(_get_prompt, _ALL),
    "read a resource": Move(_read, _ALL),
    "list templates": Move(_templates, _ALL),
    "complete": Move(_complete, _ALL),
    "subscribe": Move(_subscribe, _BY_HAND),
    "several at once": Move(_at_once, _ALL),
    "ask for progress": Move(_progress, _ALL),
    "set the log level": Move(_set_level, _BY_HAND),
    "unknown name": Move(_unknown_name, _ALL),
    "unknown cursor": Move(_list_from, _ALL),
    "wrong arguments": Move(_wrong_arguments, _ALL),
    "no params": Move(_without_params, _ALL),
    "unknown method": Move(_unknown_method, _ALL),
    "unknown notification": Move(_unknown_notice, _ALL),
    "large arguments": Move(_large, _ALL),
    "cancel what is unknown": Move(_cancel_unknown, _BY_HAND),
    "cancel what is over": Move(_cancel_finished, _BY_HAND),
    "cancel what runs": Move(_cancel_running, _BY_HAND),
    "id used before": Move(_used_id, _ALL),
    "garbage": Move(_garbage, _ALL),
    "answer that nobody asked for": Move(_unasked_answer, _ALL),
    "id that is none": Move(_odd_id, _ALL),
    "params that are none": Move(_odd_params, _ALL),
    "array": Move(_batch, _ALL),
    "second handshake": Move(_second_handshake, _BY_HAND),
    "two sessions": Move(_second_session, _BY_HAND[1:], on_pipes=False),
    "wrong session": Move(_wrong_session, _BY_HAND[1:], on_pipes=False),
    "wrong headers": Move(_wrong_headers, _ALL[1:], on_pipes=False),
    "stream of its own": Move(_get_stream, _BY_HAND[1:], on_pipes=False),
    "end, and go on": Move(_delete, _BY_HAND[1:], on_pipes=False, is_last=True),
    "no envelope": Move(_without_meta, _NEW),
    "unknown version": Move(_unknown_version, _NEW),
    "headers that say something else": Move(_mismatch, _NEW, on_pipes=False),
    "state of another": Move(_foreign_state, _NEW),
    "listen": Move(_listen, _NEW),
}
"""Name → move; the simplest first, as others are made smaller to those before them."""


def moves_for(survey: Survey) -> tuple[Move, ...]:
    return tuple(
        move for move in MOVES.values() if survey.revision in move.revisions and (survey.is_http or move.on_pipes)
    )
