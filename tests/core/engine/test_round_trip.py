"""Tests of two engines in a row with the other era between them: both ends see what they would see without the engines.

Params, results, errors, questions and their answers, progress, logs and changed lists come through unchanged.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from chain import Chain, chain, loads
from driving import Client, SentMessage, notification, request, result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from isthmus.core.base.events import Connected
from isthmus.core.base.plan import Kind
from isthmus.core.base.revisions import Era
from stateless_server import META, bare, discovery, grant, input_required_result, modern_call

KINDS = [Kind.PIPE, Kind.HTTP]
FORM: Any = {"message": "who?", "requestedSchema": {"type": "object", "properties": {"n": {"type": "string"}}}}
SAMPLE: Any = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}
ASK: dict[str, Any] = {"elicitation/create": FORM, "sampling/createMessage": SAMPLE, "roots/list": {}}
REPLIES: dict[str, Any] = {
    "elicitation/create": {"action": "accept", "content": {"n": "me"}},
    "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"},
    "roots/list": {"roots": [{"uri": "file:///a", "name": "é"}]},
}
DECLARED = '{"elicitation":{"form":{}},"sampling":{},"roots":{}}'
OFFERED = (
    '{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},'
    '"logging":{},"completions":{}}'
)
INTRODUCED = '"serverInfo":{"name":"s","version":"1"},"instructions":"do"'
LEGACY = f'{{"protocolVersion":"2025-11-25","capabilities":{OFFERED},{INTRODUCED}}}'

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6).map(lambda text: f"x{text}")
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(names, values, max_size=3)
blocks = st.lists(
    st.builds(lambda text, rest: {"type": "text", "text": text, **rest}, names, objects)
    | st.builds(lambda rest: {"type": "image", "data": "AAAA", "mimeType": "image/png", **rest}, objects)
    | st.builds(lambda uri: {"type": "resource_link", "uri": f"a:{uri}", "name": "n"}, names),
    max_size=3,
)


METHODS = ("tools/call", "prompts/get", "resources/read", "completion/complete", "tools/list", "vendor/do")


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Draws a method, and a result of any content or an error for it."""
    method = draw(
        st.sampled_from(
            ["tools/call", "prompts/get", "resources/read", "completion/complete", "tools/list", "vendor/do"]
        )
    )
    if draw(st.booleans()) and draw(st.booleans()):
        code = draw(st.sampled_from([-32602, -32603, -32601, 1, 42, -1, -31999, 7000]))
        error = {"code": code, "message": draw(names)} | ({"data": draw(objects)} if draw(st.booleans()) else {})
        return method, {"error": error}
    found: dict[str, Any] = draw(objects)
    if method == "tools/call":
        found["content"] = draw(blocks)
        if draw(st.booleans()):
            found["structuredContent"] = structure = draw(objects)
            found["content"].append({"type": "text", "text": json.dumps(structure)})
        if draw(st.booleans()):
            found["isError"] = draw(st.booleans())
    elif method == "resources/read":
        found["contents"] = [{"uri": "a:b", "text": draw(names)}]
    elif method == "prompts/get":
        found["messages"] = [{"role": "user", "content": block} for block in draw(blocks)]
    elif method == "tools/list":
        found["tools"] = [{"name": draw(names), "inputSchema": {"type": "object"}, **draw(objects)}]
    elif method == "completion/complete":
        found["completion"] = {"values": [draw(names)], "hasMore": draw(st.booleans())}
    if draw(st.booleans()):
        found["_meta"] = {"example.com/a": draw(values)}
    return method, {"result": found}


questions = st.lists(st.sampled_from(sorted(ASK)), max_size=2)
calls = st.lists(st.tuples(answers(), objects, questions, st.integers(0, 2)), min_size=1, max_size=3)
slow = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)


def as_legacy(capabilities: str = OFFERED, kind: Kind = Kind.PIPE) -> tuple[Chain, Client]:
    """Returns a client and a server of the handshake era, with a stateless hop between them, all ready."""
    both, client = chain(Era.STATELESS, kind)
    assert client.pipe is not None
    client.initialize(
        f'{{"protocolVersion":"2025-11-25","capabilities":{DECLARED},"clientInfo":{{"name":"c","version":"3"}}}}'
    )
    both.pump()
    greet(both)
    client.notify("notifications/initialized")
    both.wait(1.0)
    return both, client


def greet(both: Chain) -> None:
    """Answers every handshake and discovery at the server."""
    both.pump()
    for dial in both.back.dials:
        if dial.channel not in both.back.opened:
            both.back.opened.add(dial.channel)
            both.back.open(dial.channel, Connected())
    while both.back.was_sent("initialize"):
        both.back.answer(both.back.take_sent("initialize"), LEGACY)
        both.back.take_sent("notifications/initialized")
        both.pump()
    while both.back.was_sent("server/discover"):
        both.back.answer(both.back.take_sent("server/discover"), discovery(OFFERED))
        both.pump()


def take(both: Chain, method: str) -> SentMessage:
    """Takes the message of that method at the server, after serving all that comes before it."""
    both.wait(0.1)
    greet(both)
    both.pump()
    while both.back.was_sent("subscriptions/listen"):
        grant(both.back, both.back.take_sent("subscriptions/listen"))
        both.pump()
    # The hop reads which arguments are in headers, and asks for logs, as a client that set no level gets some.
    for first, answer in (("tools/list", '{"resultType":"complete","tools":[]}'), ("logging/setLevel", "{}")):
        if first != method and not both.back.was_sent(method) and both.back.was_sent(first):
            both.back.answer(both.back.take_sent(first), answer)
            both.pump()
    return both.back.take_sent(method)


def frames_of(both: Chain, client: Client) -> list[dict[str, Any]]:
    both.pump()
    assert client.pipe is not None
    return loads(both.front.messages(client.pipe))


@slow
@given(script=calls, kind=st.sampled_from(KINDS))
def test_handshake_to_stateless_and_back(script: list[Any], kind: Kind) -> None:
    """Params reach the server, and results, errors, questions, answers and progress come back unchanged."""
    both, client = as_legacy(kind=kind)
    assert client.pipe is not None
    for number, ((method, reply), arguments, asked, ticks) in enumerate(script, 100):
        params = {"name": "t", "uri": "a:b", **arguments}
        if ticks:
            params["_meta"] = {"progressToken": f"p{number}", "example.com/k": 1}
        client.request(f'"{number}"', method, json.dumps(params))
        received = take(both, method)
        seen = json.loads(json.dumps(received.frame["params"]))
        if ticks:
            token = seen["_meta"].pop("progressToken")
            params["_meta"].pop("progressToken")
        assert seen == params
        may_ask = method in ("tools/call", "prompts/get", "resources/read")
        for tick in range(ticks):
            text = json.dumps({"progressToken": token, "progress": tick + 1, "total": 9, "message": "m"})
            both.back.send(received.channel, notification("notifications/progress", text))
            assert frames_of(both, client)[-1]["params"] == {
                "progressToken": f"p{number}",
                "progress": tick + 1,
                "total": 9,
                "message": "m",
            }
        for index, question in enumerate(asked if may_ask else []):
            both.back.send(received.channel, request(f'"q{number}.{index}"', question, json.dumps(ASK[question])))
            both.wait(0.1)
            frame = frames_of(both, client)[-1]
            assert (frame["method"], frame["params"]) == (question, ASK[question])
            client.send(result(json.dumps(frame["id"]), json.dumps(REPLIES[question])))
            both.wait(0.1)
            answer = both.back.take_sent("").frame
            assert answer == {"jsonrpc": "2.0", "id": f"q{number}.{index}", "result": REPLIES[question]}
        both.back.reply(received, json.dumps({"jsonrpc": "2.0", "id": received.id, **reply}).encode())
        both.wait(0.1)
        assert frames_of(both, client)[-1] == {"jsonrpc": "2.0", "id": str(number), **reply}
    assert not [received for received in both.back.unread if received.frame.get("method") not in PASSING]


PASSING = ("resources/subscribe", "logging/setLevel")


@slow
@given(script=calls, kind=st.sampled_from(KINDS))
def test_stateless_to_handshake_and_back(script: list[Any], kind: Kind) -> None:
    """The server's questions reach the client in rounds. Its retry brings the answers under the server's own keys, with
    its state."""
    both, client = chain(Era.HANDSHAKE, kind)
    for number, ((method, reply), arguments, asked, _) in enumerate(script, 100):
        params = {"name": "t", "uri": "a:b", **arguments}
        channel = modern_call(client, str(number), method, json.dumps(params), declared=DECLARED)
        received = take(both, method)
        assert bare(received.frame["params"]) == params
        meta = received.frame["params"]["_meta"]
        assert meta[f"{META}clientCapabilities"] == json.loads(DECLARED)
        assert meta[f"{META}clientInfo"] == {"name": "c", "version": "1"}
        if method in ("tools/call", "prompts/get", "resources/read") and asked:
            wanted = {f"k{index}": (question, ASK[question]) for index, question in enumerate(asked)}
            both.back.answer(received, input_required_result(wanted, "s\u00e9"))
            both.wait(0.1)
            shown = loads(both.front.messages(channel))[-1]["result"]
            assert shown["resultType"] == "input_required"
            seen = [(entry["method"], entry.get("params")) for entry in shown["inputRequests"].values()]
            assert seen == list(wanted.values())
            responses = {key: REPLIES[entry["method"]] for key, entry in shown["inputRequests"].items()}
            retry = params | {"inputResponses": responses, "requestState": shown["requestState"]}
            modern_call(client, str(1000 + number), method, json.dumps(retry), declared=DECLARED)
            received = take(both, method)
            expected = {key: REPLIES[question] for key, (question, _) in wanted.items()}
            assert bare(received.frame["params"]) == params | {"inputResponses": expected, "requestState": "s\u00e9"}
        members = {
            kind: ({"resultType": "complete", **part} if kind == "result" else part) for kind, part in reply.items()
        }
        both.back.reply(received, json.dumps({"jsonrpc": "2.0", "id": received.id, **members}).encode())
        both.wait(0.1)
        seen = loads(both.front.messages(channel))[-1]
        if "error" in reply:
            assert seen["error"] == reply["error"]
            continue
        assert seen["result"].pop("resultType") == "complete"
        meta = seen["result"].pop("_meta", {})
        meta.pop(f"{META}serverInfo", None)
        for key in ("ttlMs", "cacheScope"):
            seen["result"].pop(key, None)
        assert seen["result"] | ({"_meta": meta} if meta else {}) == reply["result"]


@pytest.mark.parametrize("kind", KINDS)
def test_unread_bytes_cross_both_engines(kind: Kind) -> None:
    """Numbers, escapes and the order of members are kept both ways."""
    both, client = as_legacy(kind=kind)
    odd = '{"z":1.0,"a":1e2,"n":-0,"big":10000000000000000000000000000000000000000,"e":"\\u00e9\\/"}'
    client.request("7.0", "tools/call", f'{{"name":"t","arguments":{odd}}}')
    received = take(both, "tools/call")
    assert odd.encode() in received.raw
    both.back.answer(received, f'{{"content":[],"structuredContent":{odd},"vendor":{odd}}}')
    both.wait(0.1)
    assert client.pipe is not None
    answer = both.front.messages(client.pipe)[-1]
    assert answer.startswith(b'{"jsonrpc":"2.0","id":7.0,')
    assert answer.count(odd.encode()) >= 2


@pytest.mark.parametrize("kind", KINDS)
def test_client_and_server_info_cross_both_engines(kind: Kind) -> None:
    """The server gets the client's name and capabilities, and the client the server's."""
    both, client = as_legacy(kind=kind)
    seen = frames_of(both, client)[0]["result"]
    original = json.loads(LEGACY)
    assert seen["protocolVersion"] == original["protocolVersion"]
    assert seen["serverInfo"] == original["serverInfo"]
    assert seen["instructions"] == "do"
    assert seen["capabilities"].keys() == original["capabilities"].keys()
    client.request("1", "prompts/list")
    take(both, "prompts/list")
    hellos = [
        json.loads(m)["params"] for c in both.back.children for m in both.back.messages(c) if b'"initialize"' in m
    ]
    assert hellos[-1]["clientInfo"] == {"name": "c", "version": "3"}
    assert hellos[-1]["capabilities"] == json.loads(DECLARED)


@pytest.mark.parametrize("kind", KINDS)
def test_changes_cross_both_engines(kind: Kind) -> None:
    """The client gets each change of the server at least once, and no other."""
    both, client = as_legacy(kind=kind)
    client.request("5", "resources/subscribe", '{"uri":"a:b"}')
    received = take(both, "resources/subscribe")
    assert bare(received.frame["params"]) == {"uri": "a:b"}
    both.back.answer(received)
    both.wait(6.0)
    assert [frame for frame in frames_of(both, client) if frame.get("id") == 5][-1]["result"] == {}
    before = len(frames_of(both, client))
    for method, params in (
        ("notifications/tools/list_changed", None),
        ("notifications/prompts/list_changed", None),
        ("notifications/resources/list_changed", None),
        ("notifications/resources/updated", '{"uri":"a:b"}'),
    ):
        both.back.send(received.channel, notification(method, params))
    both.wait(0.1)
    changes = [(frame["method"], frame.get("params", {}).get("uri")) for frame in frames_of(both, client)[before:]]
    assert changes == [
        ("notifications/tools/list_changed", None),
        ("notifications/prompts/list_changed", None),
        ("notifications/resources/list_changed", None),
        ("notifications/resources/updated", "a:b"),
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", ["debug", "warning", "emergency"])
def test_logs_of_the_set_level_cross_both_engines(level: str, kind: Kind) -> None:
    """The level that the client sets is set at the server before the next call, and its log messages come back."""
    both, client = as_legacy(kind=kind)
    client.request("5", "logging/setLevel", f'{{"level":"{level}"}}')
    client.request("6", "prompts/get", '{"name":"t"}')
    received = take(both, "logging/setLevel")
    assert received.frame["params"] == {"level": level}
    both.back.answer(received)
    call = take(both, "prompts/get")
    log = {"level": level, "logger": "l", "data": {"x": [1, None]}}
    both.back.send(call.channel, notification("notifications/message", json.dumps(log)))
    both.wait(0.1)
    assert frames_of(both, client)[-1] == {"jsonrpc": "2.0", "method": "notifications/message", "params": log}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hop", list(Era))
def test_a_cancellation_reaches_the_server(hop: Era, kind: Kind) -> None:
    """The server gets the cancellation under its own id, and the client gets nothing more of the call."""
    if hop is Era.STATELESS:
        both, client = as_legacy(kind=kind)
        channel = client.request("9", "tools/call", '{"name":"t"}')
    else:
        both, client = chain(hop, kind)
        channel = modern_call(client, "9", "tools/call", '{"name":"t"}', declared=DECLARED)
    received = take(both, "tools/call")
    client.notify("notifications/cancelled", '{"requestId":9,"reason":"enough"}')
    both.wait(0.1)
    assert both.back.take_sent("notifications/cancelled").frame["params"]["requestId"] == received.id
    before = len(both.front.messages(channel))
    both.back.answer(received, '{"resultType":"complete","content":[]}')
    both.wait(60.0)
    assert len(both.front.messages(channel)) == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("question", ["sampling/createMessage", "roots/list"])
def test_a_refusal_of_the_client_ends_its_call(question: str, kind: Kind) -> None:
    """The stateless hop cannot carry a refusal: the client gets one final answer, and the server does not wait."""
    both, client = as_legacy(kind=kind)
    client.request("9", "tools/call", '{"name":"t"}')
    received = take(both, "tools/call")
    both.back.send(received.channel, request('"q"', question, json.dumps(ASK[question])))
    both.wait(0.1)
    frame = frames_of(both, client)[-1]
    client.send(b'{"jsonrpc":"2.0","id":%d,"error":{"code":-1,"message":"no"}}' % frame["id"])
    both.wait(0.1)
    assert frames_of(both, client)[-1]["result"]["isError"] is True
    both.wait(700.0)
    assert "error" in both.back.take_sent("").frame
