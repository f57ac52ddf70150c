"""Tests of the client of `isthmus conform`: its answers, retries and waits, with servers that are functions."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from isthmus.app.conform.clients.duplex import OBSERVATIONS_MAX, ScriptedClient
from isthmus.app.conform.script.answers import ANSWER, ROOTS, ROUNDS_MAX
from isthmus.app.conform.script.steps import (
    Conversation,
    Manner,
    Step,
    encode,
    handshake,
    notification,
    request,
    step_of,
)
from isthmus.app.conform.script.survey import Played
from isthmus.app.conform.verdict.servers import judge
from isthmus.core.oracle import PIPE_CHANNEL, AnyObservation, Role, Said, Transport

Json = dict[str, Any]
V2, V3, V4, V5 = "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"
INFO = {"name": "s", "version": "1"}
FORM = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
QUESTIONS: dict[str, Json] = {
    "sampling/createMessage": {"messages": [], "maxTokens": 5},
    "elicitation/create": {"message": "who?", "requestedSchema": FORM},
    "roots/list": {},
}


class Scripted:
    """A link to a server that is a function from each message to its answers. `waited` counts waits in vain."""

    def __init__(self, server: Callable[[Any], list[Any]]) -> None:
        self._server = server
        self._pending: deque[bytes] = deque()
        self.sent: list[Any] = []
        self.waited = 0

    def send(self, text: str) -> list[AnyObservation]:
        self.sent.append(json.loads(text))
        self._pending += [encode(each).encode() for each in self._server(self.sent[-1])]
        return [Said(PIPE_CHANNEL, Role.CLIENT, text.encode())]

    def receive(self, patience_s: float) -> AnyObservation:
        if self._pending:
            return Said(PIPE_CHANNEL, Role.SERVER, self._pending.popleft())
        self.waited += patience_s > 1
        raise TimeoutError


def played(link: Scripted, conversation: Conversation) -> tuple[Played, list[str]]:
    """The observations, and the rules that the server broke."""
    seen = ScriptedClient(link, conversation, 5.0).play()
    return seen, [violation.rule for violation in judge(conversation, seen, Transport.PIPE)]


def result(message: Json, **members: Any) -> Json:
    return {"jsonrpc": "2.0", "id": message["id"], "result": members}


def greeting(message: Json) -> list[Json]:
    version = message["params"]["protocolVersion"]
    return [result(message, protocolVersion=version, capabilities={"tools": {}}, serverInfo=INFO)]


# --- Questions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("manner", Manner)
@pytest.mark.parametrize("method", QUESTIONS)
def test_a_question_is_answered_as_the_manner_has_it(method: str, manner: Manner) -> None:
    def server(message: Json) -> list[Json]:
        if message.get("method") == "initialize":
            return greeting(message)
        if message.get("method") == "tools/call":
            return [{"jsonrpc": "2.0", "id": "q", "method": method, "params": QUESTIONS[method]}]
        if message.get("id") == "q":
            return [{"jsonrpc": "2.0", "id": 1, "result": {"content": []}}]
        return []

    link = Scripted(server)
    steps = (*handshake(V4, manner=manner), request(V4, 1, "tools/call", {"name": "t"}, manner))
    _, broken = played(link, Conversation(V4, steps, manner))
    assert broken == (["capability-undeclared"] if manner is Manner.NONE else [])
    answer = link.sent[-1]
    assert link.waited == 0
    if manner is Manner.NONE:
        assert answer["error"]["code"] == -32601
    elif manner is Manner.GIVES:
        accepted = {"action": "accept", "content": {"name": "a"}}
        expected = {"sampling/createMessage": ANSWER, "elicitation/create": accepted, "roots/list": ROOTS}
        assert answer["result"] == expected[method]
    else:
        assert answer.get("result", {}).get("action") == ("decline" if method == "elicitation/create" else None)


def test_a_server_that_asks_without_end_is_stopped() -> None:
    """The server is not blamed for what may have been cut off."""

    def server(message: Json) -> list[Json]:
        if message.get("method") == "initialize":
            return greeting(message)
        ids = range(OBSERVATIONS_MAX if message.get("method") == "ping" else 0)
        return [{"jsonrpc": "2.0", "id": id, "method": "ping"} for id in ids]

    seen, broken = played(Scripted(server), Conversation(V4, (*handshake(V4), request(V4, 1, "ping"))))
    assert seen.is_cut
    assert len(seen.seen) <= 2 * OBSERVATIONS_MAX
    assert "unanswered" not in broken


# --- Rounds ---------------------------------------------------------------------------------------------------------


def rounds(link: Scripted, manner: Manner) -> tuple[Played, list[str]]:
    step = request(V5, 1, "tools/call", {"name": "t", "arguments": {"a": 1}}, manner)
    return played(link, Conversation(V5, (step,), manner))


def needing(message: Json, **members: Any) -> Json:
    return result(message, resultType="input_required", _meta={"io.modelcontextprotocol/serverInfo": INFO}, **members)


def done(message: Json) -> Json:
    meta = {"io.modelcontextprotocol/serverInfo": INFO}
    return result(message, resultType="complete", content=[], _meta=meta)


def test_a_request_is_tried_again_with_its_answers() -> None:
    asked = {name: {"method": name, "params": params} for name, params in QUESTIONS.items()}

    def server(message: Json) -> list[Json]:
        again = "inputResponses" in message["params"]
        return [done(message)] if again else [needing(message, inputRequests=asked, requestState="s")]

    link = Scripted(server)
    _, broken = rounds(link, Manner.GIVES)
    assert broken == []
    first, second = link.sent
    assert second["id"] != first["id"]
    params = second["params"]
    assert params.pop("requestState") == "s"
    assert params.pop("inputResponses").keys() == QUESTIONS.keys()
    assert params == first["params"]


def test_what_is_not_given_is_not_tried_again() -> None:
    asked = {"q": {"method": "roots/list", "params": {}}}
    link = Scripted(lambda message: [needing(message, inputRequests=asked)])
    _, broken = rounds(link, Manner.DECLINES)
    assert (len(link.sent), broken) == (1, [])


def test_rounds_end() -> None:
    link = Scripted(lambda message: [needing(message, requestState="s")])
    rounds(link, Manner.NONE)
    assert len(link.sent) == 1 + ROUNDS_MAX


# --- Waits ----------------------------------------------------------------------------------------------------------


def test_an_array_may_be_refused_as_a_whole() -> None:
    """2025-06-18 has no arrays. A server of 2025-03-26 has to answer them, but the client does not wait for answers
    to a refused one."""
    refusal = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no arrays"}}

    def server(message: Any) -> list[Json]:
        if isinstance(message, list):
            return [refusal]
        return greeting(message) if message.get("method") == "initialize" else []

    for revision, broken in ((V3, []), (V2, ["unanswered"])):
        link = Scripted(server)
        pings = [{"jsonrpc": "2.0", "id": id, "method": "ping"} for id in (1, 2)]
        steps = (*handshake(revision), Step(body=encode(pings)))
        assert played(link, Conversation(revision, steps))[1] == broken
        assert link.waited == 0


@pytest.mark.parametrize("id", [None, 1.5, True, [], {}])
def test_an_id_that_is_none_may_come_back(id: object) -> None:
    def server(message: Json) -> list[Json]:
        if message.get("method") == "initialize":
            return greeting(message)
        return [result(message)] if "id" in message else []

    link = Scripted(server)
    odd = step_of(V4, {"jsonrpc": "2.0", "id": id, "method": "ping"})
    assert played(link, Conversation(V4, (*handshake(V4), odd)))[1] == []
    assert link.waited == 0
    own = Scripted(
        lambda message: greeting(message) if "id" in message else [{"jsonrpc": "2.0", "id": id, "result": {}}]
    )
    assert played(own, Conversation(V4, handshake(V4)))[1] == ["response-shape"]


def test_after_one_answer_that_never_came_less_is_waited() -> None:
    """A notification of cancellation ends a wait, whatever its params are."""
    steps = (
        request(V4, 1, "ping"),
        request(V4, 2, "ping"),
        request(V4, 3, "ping", waits=False),
        notification(V4, "notifications/cancelled", {"requestId": 3}),
        Step(body='{"jsonrpc":"2.0","method":"notifications/cancelled","params":[{}]}'),
    )
    link = Scripted(lambda message: [])
    _, broken = played(link, Conversation(V4, steps))
    assert (link.waited, broken) == (1, ["unanswered"])
