"""Tests of the headers that repeat parts of a request for a stateless server over HTTP, which the proxy adds for
clients."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Driver, SentMessage, driver, new_client
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.events import Cause, End
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind
from isthmus.core.base.revisions import LATEST_MODERN
from isthmus.core.wire.http.mcp_headers import decode_value
from stateless_server import (
    META,
    Pair,
    discovered,
    fail,
    failure,
    input_required_result,
    modern_call,
    modern_plan,
    pair,
    posts,
    refuse,
    tell,
)

DONE = '{"resultType":"complete","content":[]}'


def tool(name: str = "t", **annotated: str) -> dict[str, Any]:
    """A tool with arguments that are mirrored: their types, by name."""
    properties = {key: {"type": kind, "x-mcp-header": key.capitalize()} for key, kind in annotated.items()}
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


def page(*tools: dict[str, Any], cursor: str | None = None) -> str:
    parts = {"resultType": "complete", "tools": list(tools), "ttlMs": 0, "cacheScope": "private"}
    return json.dumps(parts | ({} if cursor is None else {"nextCursor": cursor}))


def headers(received: SentMessage) -> dict[str, str]:
    assert received.post is not None
    assert received.post.revision == LATEST_MODERN
    assert received.post.session is None
    found = dict(received.post.mirrored)
    assert len(found) == len(received.post.mirrored), "each header once"
    return found


def call(both: Pair, arguments: str = "{}", id_raw: str = "1", name: str = "t") -> Any:
    """Calls a tool. Returns the channel of the response."""
    return both.client.request(id_raw, "tools/call", f'{{"name":{json.dumps(name)},"arguments":{arguments}}}')


def pair_with_tools(*tools: dict[str, Any], **rest: Any) -> Pair:
    """A pair whose server's tools are known."""
    both = pair("pipe", Kind.HTTP, **rest)
    channel = call(both, "{}", "0", "none")
    both.world.answer(both.world.take_sent("tools/list"), page(*tools))
    both.world.answer(both.world.take_sent("tools/call"), DONE)
    both.world.sent[channel].clear()
    return both


# --- Standard headers -------------------------------------------------------------------------------------------------


@given(
    name=st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.sampled_from(["=?base64?QQ==?=", "=?base64??=", " a", "a ", "a\r\nX: y", "\0", "é", "=?BASE64?x?=", ""]),
    method=st.sampled_from(["tools/call", "prompts/get", "resources/read", "prompts/list", "completion/complete"]),
)
def test_headers_have_the_values_of_the_body(name: str, method: str) -> None:
    """Every name and URI is the decoded header's value, also text that looks encoded."""
    both = pair_with_tools(tool())
    both.client.request("1", method, json.dumps({"name": name, "uri": name}))
    received = both.world.take_sent(method)
    found = headers(received)
    assert found.pop("mcp-method") == method
    if method.endswith(("call", "get", "read")):
        assert decode_value(found.pop("mcp-name")) == name
    assert found == {}
    assert received.frame["params"]["name"] == name


def test_a_client_s_own_headers_are_not_copied() -> None:
    """Headers are computed from the request that goes up, whatever a client with a session may have sent."""
    world = driver(modern_plan(Kind.HTTP))
    client = new_client(world, "http", "http", headers=(("x-trace", "1"),))
    opened = client.initialize()
    discovered(world)
    client.session = world.sent[opened][-1].session
    client.request("1", "prompts/get", '{"name":"p"}')
    received = world.take_sent("prompts/get")
    assert headers(received) == {"mcp-method": "prompts/get", "mcp-name": "p"}
    assert received.post is not None
    assert received.post.headers == (("x-trace", "1"),)


def test_our_own_requests_have_their_headers_too() -> None:
    """The probe, the subscription and the proxy's list request are requests like any other."""
    both = pair("pipe", Kind.HTTP, capabilities='{"tools":{"listChanged":true}}')
    call(both)
    both.world.answer(both.world.take_sent("tools/list"), page(tool()))
    for post in posts(both.world):
        frame = json.loads(post.message)
        assert ("mcp-method", frame["method"]) in post.mirrored
        assert post.revision == frame["params"]["_meta"][f"{META}protocolVersion"]


def test_half_a_surrogate_pair_fits_into_no_header() -> None:
    """Corner case 61: the proxy refuses it with -32602, and nothing goes up."""
    both = pair_with_tools(tool(text="string"))
    for name, arguments in (('"\\ud800"', "{}"), ('"t"', '{"text":"\\udc00"}')):
        channel = both.client.request("1", "tools/call", f'{{"name":{name},"arguments":{arguments}}}')
        answer = both.answer(channel)
        assert answer is not None
        assert answer["error"]["code"] == -32602
        assert not both.world.was_sent("tools/call")


# --- Arguments --------------------------------------------------------------------------------------------------------

CARRIED = [
    ("string", '"plain"', "plain"),
    ("string", '"a\\r\\nb"', "a\r\nb"),
    ("string", '"\\u00e9"', "é"),
    ("string", '"=?base64?x?="', "=?base64?x?="),
    ("integer", "42", "42"),
    ("integer", "42.0", "42"),
    ("integer", "1e3", "1000"),
    ("integer", "-0", "0"),
    ("integer", "9007199254740991", "9007199254740991"),
    ("boolean", "true", "true"),
    ("boolean", "false", "false"),
    ("string", "null", None),
    ("integer", "null", None),
]


@pytest.mark.parametrize("kind, raw, text", CARRIED)
def test_an_argument_is_mirrored_as_servers_compare_it(kind: str, raw: str, text: str | None) -> None:
    """Integers are mirrored by their value, booleans as words, texts encoded where they must be; null not at all."""
    both = pair_with_tools(tool(arg=kind))
    call(both, f'{{"arg":{raw},"other":1}}')
    received = both.world.take_sent("tools/call")
    found = headers(received)
    if text is None:
        assert "mcp-param-arg" not in found
    else:
        assert decode_value(found["mcp-param-arg"]) == text
    assert f'"arguments":{{"arg":{raw},"other":1}}'.encode() in received.raw


@pytest.mark.parametrize(
    "kind, arguments",
    [
        ("integer", '{"arg":9007199254740992}'),
        ("integer", '{"arg":1.5}'),
        ("integer", '{"arg":1e400}'),
        ("string", '{"arg":"a","arg":"a"}'),
        ("string", '{"arg":"a","\\u0061rg":"b"}'),
    ],
)
def test_an_ambiguous_mirrored_argument_is_refused(kind: str, arguments: str) -> None:
    """Duplicates at a mirrored path, and numbers that no header carries: -32602, and nothing goes up."""
    both = pair_with_tools(tool(arg=kind))
    channel = call(both, arguments)
    answer = both.answer(channel)
    assert answer is not None
    assert answer["error"]["code"] == -32602
    assert not both.world.was_sent("tools/call")
    call(both, '{"arg":null}', "2")
    assert both.world.was_sent("tools/call"), "the next call is served"


def test_a_duplicate_that_is_not_mirrored_passes() -> None:
    """Arguments that are not mirrored are not checked."""
    both = pair_with_tools(tool(arg="string"))
    call(both, '{"x":{"y":1,"y":2}}')
    assert b'{"y":1,"y":2}' in both.world.take_sent("tools/call").raw


# --- Reading the list of tools ----------------------------------------------------------------------------------------


def test_the_list_is_read_once_before_the_first_call() -> None:
    """All pages are read, in order, each once; calls wait for them and go up in their order; later calls do not
    wait."""
    both = pair("pipe", Kind.HTTP)
    world = both.world
    for number in range(3):
        call(both, '{"arg":"x"}', str(number), f"t{number}")
    assert not world.was_sent("tools/call")
    for number, cursor in enumerate(["", "b", None]):
        received = world.take_sent("tools/list")
        assert received.frame["params"].get("cursor") == [None, "", "b"][number]
        world.answer(received, page(tool(f"t{number}", arg="string"), cursor=cursor))
    for number in range(3):
        received = world.take_sent("tools/call")
        assert received.frame["params"]["name"] == f"t{number}"
        assert headers(received)["mcp-param-arg"] == "x"
    call(both, "{}", "9", "unknown")
    assert world.was_sent("tools/call")
    assert not world.unread[1:]


def test_pages_are_bounded() -> None:
    """A list without an end does not keep calls."""
    both = pair("pipe", Kind.HTTP, limits=Limits(schema_pages_max=3))
    call(both)
    for number in range(3):
        both.world.answer(both.world.take_sent("tools/list"), page(cursor=str(number)))
    assert not both.world.was_sent("tools/list")
    assert both.world.was_sent("tools/call")


@pytest.mark.parametrize("how", ["error", "status", "cut", "nonsense", "asks"])
def test_a_list_that_cannot_be_read_does_not_keep_calls(how: str) -> None:
    """Calls go up without mirrored arguments: the server refuses them if it must."""
    both = pair("pipe", Kind.HTTP)
    call(both)
    received = both.world.take_sent("tools/list")
    if how == "error":
        fail(both.world, received, -32603)
    elif how == "status":
        refuse(both.world, received, 500)
    elif how == "cut":
        both.world.end(received.channel, Cause(End.BROKEN))
    elif how == "asks":
        both.world.answer(received, input_required_result(None, "s"))
    else:
        both.world.answer(received, '{"tools":7,"nextCursor":5}')
        if both.world.was_sent("tools/list"):
            fail(both.world, both.world.take_sent("tools/list"), -32602)
    assert both.world.was_sent("tools/call")


def test_a_call_that_was_cancelled_while_it_waited_is_never_sent() -> None:
    """Corner case 15: a call that is cancelled before it was written does not go up; the others do."""
    both = pair("pipe", Kind.HTTP)
    call(both, "{}", "1")
    call(both, "{}", "2")
    both.client.notify("notifications/cancelled", '{"requestId":1}')
    both.world.answer(both.world.take_sent("tools/list"), page(tool()))
    both.world.take_sent("tools/call")
    assert not both.world.unread
    assert [frame for frame in both.world.frames(both.client.pipe or 0) if "id" in frame] == []  # type: ignore[arg-type]


def test_schemas_of_a_clients_own_list_are_used_too() -> None:
    """The schemas of a client's own list request are used as well; the client sees its annotations."""
    both = pair("pipe", Kind.HTTP)
    channel = both.client.request("1", "tools/list", "{}")
    both.world.answer(both.world.take_sent("tools/list"), page(tool(arg="string")))
    answer = both.answer(channel)
    assert answer is not None
    assert answer["result"]["tools"] == [tool(arg="string")]
    call(both, '{"arg":"x"}', "2")
    assert headers(both.world.take_sent("tools/call"))["mcp-param-arg"] == "x"


BROKEN: list[dict[str, Any]] = [
    {"arg": {"type": "string", "x-mcp-header": "no token"}},
    {"arg": {"type": "string", "x-mcp-header": ""}},
    {"arg": {"type": "string", "x-mcp-header": 5}},
    {"arg": {"type": "number", "x-mcp-header": "A"}},
    {"arg": {"type": "object", "x-mcp-header": "A"}},
    {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}},
]


@pytest.mark.parametrize("properties", BROKEN)
def test_a_tool_whose_marks_are_broken_is_not_shown(properties: dict[str, Any]) -> None:
    """The other tools can be called, and a warning names the tool that is left out."""
    both = pair("pipe", Kind.HTTP)
    broken = {"name": "broken", "inputSchema": {"type": "object", "properties": properties}}
    channel = both.client.request("1", "tools/list", "{}")
    both.world.answer(both.world.take_sent("tools/list"), page(tool("a", arg="string"), broken, tool("z")))
    answer = both.answer(channel)
    assert answer is not None
    assert [each["name"] for each in answer["result"]["tools"]] == ["a", "z"]
    assert any("broken" in note for note in both.world.notes("warning"))


def test_over_a_pipe_no_list_is_read_and_no_tool_is_left_out() -> None:
    """Marks mean nothing over a pipe: no list is read, no tool left out."""
    both = pair("pipe", Kind.PIPE)
    call(both)
    both.world.take_sent("tools/call")
    broken = {"name": "t", "inputSchema": {"type": "object", "properties": BROKEN[0]}}
    channel = both.client.request("2", "tools/list", "{}")
    both.world.answer(both.world.take_sent("tools/list"), page(broken))
    answer = both.answer(channel)
    assert answer is not None
    assert answer["result"]["tools"] == [broken]


def test_a_changed_list_is_read_again() -> None:
    """Corner case 93: `list_changed` makes the proxy forget the schemas."""
    both = pair("pipe", Kind.HTTP, capabilities='{"tools":{"listChanged":true}}')
    listen = next(post for post in reversed(both.world.dials) if b"subscriptions/listen" in post.target.message)  # type: ignore[union-attr]
    call(both)
    both.world.answer(both.world.take_sent("tools/list"), page(tool()))
    both.world.take_sent("tools/call")
    received = SentMessage(listen.channel, listen.target.message, listen.target)  # type: ignore[union-attr,arg-type]
    both.world.opened.add(listen.channel)
    tell(both.world, received, "notifications/tools/list_changed")
    call(both, '{"arg":"x"}', "2")
    both.world.answer(both.world.take_sent("tools/list"), page(tool(arg="string")))
    assert headers(both.world.take_sent("tools/call"))["mcp-param-arg"] == "x"


# --- When headers and body disagree -----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 400])
def test_after_a_mismatch_the_list_is_read_again_and_the_call_repeated_once(status: int) -> None:
    """Corner case 94: -32020 is a fault of this hop: one new list, one retry under a new id."""
    both = pair_with_tools(tool())
    channel = call(both, '{"arg":"x"}')
    received = both.world.take_sent("tools/call")
    assert "mcp-param-arg" not in headers(received)
    fail(both.world, received, -32020, status=status)
    both.world.answer(both.world.take_sent("tools/list"), page(tool(arg="string")))
    again = both.world.take_sent("tools/call")
    assert again.id != received.id
    assert headers(again)["mcp-param-arg"] == "x"
    both.world.answer(again, DONE)
    assert both.answer(channel) == {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}


@pytest.mark.parametrize("down", ["pipe", "modern"])
@pytest.mark.parametrize("code", [-32020, -32022])
def test_faults_of_this_hop_never_reach_a_client(code: int, down: str) -> None:
    """-32020 and -32022 are faults of the proxy's request and not of the client's: -32603, after at most one retry."""
    world = driver(modern_plan(Kind.HTTP))
    client = new_client(world, "http" if down == "modern" else "pipe", "http")
    if down == "modern":
        channel = modern_call(client, "1", "tools/call", '{"name":"t"}')
        discovered(world)
    else:
        channel = client.initialize()
        discovered(world)
        client.request("1", "tools/call", '{"name":"t"}')
    sent = 0
    for _ in range(4):
        if world.was_sent("server/discover"):  # the revision is negotiated anew
            discovered(world)
        if world.was_sent("tools/list"):
            world.answer(world.take_sent("tools/list"), page(tool()))
        if world.was_sent("tools/call"):
            sent += 1
            data = {"supported": [LATEST_MODERN], "requested": LATEST_MODERN}
            received = world.take_sent("tools/call")
            refuse(world, received, 400, failure(code, data=data, id=received.id))
    assert sent <= 2
    frame = json.loads(world.messages(channel)[-1])
    assert frame["error"]["code"] == -32603
    assert not world.unread


@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
def test_a_missing_capability_is_named_to_a_client_with_a_session(method: str) -> None:
    """-32021 reaches a client with a session as words: in a tool's result, else as -32603 with what is required."""
    both = pair_with_tools(tool())
    channel = both.client.request("1", method, '{"name":"t"}')
    received = both.world.take_sent(method)
    data = {"requiredCapabilities": {"sampling": {"tools": {}}}}
    refuse(both.world, received, 400, failure(-32021, "needs sampling", data=data, id=received.id))
    answer = both.answer(channel)
    assert answer is not None
    if method == "tools/call":
        assert answer["result"]["isError"] is True
        assert "sampling" in answer["result"]["content"][0]["text"]
    else:
        assert answer["error"]["code"] == -32603
        assert answer["error"]["data"]["requiredCapabilities"] == data["requiredCapabilities"]


# --- Clients that send headers themselves -----------------------------------------------------------------------------


def modern_world() -> tuple[Driver, Any]:
    world = driver(modern_plan(Kind.HTTP))
    return world, new_client(world, "http", "http")


def test_unknown_mcp_headers_are_passed_on() -> None:
    """An intermediary passes on headers that it does not know; those that it knows it sends itself, once."""
    world, client = modern_world()
    extra = (("mcp-param-region", "eu"), ("mcp-param-x", "=?base64?w6k=?="))
    modern_call(client, "1", "tools/call", '{"name":"t","arguments":{}}', mirrored=extra)
    discovered(world)
    assert not world.was_sent("tools/list"), "the client has read it"
    found = headers(world.take_sent("tools/call"))
    assert found == {"mcp-method": "tools/call", "mcp-name": "t", **dict(extra)}


def test_arguments_of_a_client_that_mirrors_none_are_mirrored() -> None:
    """A client that has not read the list, or that came over a pipe, has its arguments mirrored by the proxy."""
    world, client = modern_world()
    modern_call(client, "1", "tools/call", '{"name":"t","arguments":{"arg":7}}')
    discovered(world)
    world.answer(world.take_sent("tools/list"), page(tool(arg="integer")))
    assert headers(world.take_sent("tools/call"))["mcp-param-arg"] == "7"


def test_a_mismatch_between_a_stateless_client_and_its_schema_is_refused() -> None:
    """The header is compared with the list last shown: 400 and -32020, and nothing goes to the server."""
    world, client = modern_world()
    modern_call(client, "1", "tools/list")
    discovered(world)
    world.answer(world.take_sent("tools/list"), page(tool(arg="string")))
    channel = modern_call(
        client, "2", "tools/call", '{"name":"t","arguments":{"arg":"a"}}', mirrored=(("mcp-param-arg", "b"),)
    )
    assert world.only_message(channel)["error"]["code"] == -32020
    assert world.sent[channel][-1].status == 400
    assert not world.was_sent("tools/call")
