"""What the official suites found wrong between clients and servers of 2026-07-28."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest
from driving import LATEST, NO_STREAM, Driver, Heard, driver, error, request, result
from isthmus.core.base.effects import Cause, Connected, Dial, End, Listen, PipeOpening, PostOpening, Spawn
from isthmus.core.base.ids import ChannelId

REVISION: Final = "2026-07-28"
KEY: Final = "io.modelcontextprotocol/"
DISCOVERED: Final = json.dumps(
    {
        "resultType": "complete",
        "supportedVersions": [REVISION],
        "capabilities": {"tools": {}},
        "ttlMs": 0,
        "cacheScope": "private",
    }
)

UNSUPPORTED: Final = -32022
MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021


def params_of(members: Mapping[str, Any], *, revision: str = REVISION) -> str:
    meta = {KEY + "protocolVersion": revision, KEY + "clientCapabilities": {}}
    return json.dumps({**members, "_meta": meta})


def ask(
    world: Driver,
    server: str,
    method: str,
    members: Mapping[str, Any] | None = None,
    *,
    named: str = "",
    marked: Mapping[str, str] | None = None,
    revision: str = REVISION,
    header: str | None = REVISION,
    id_raw: str = '"q"',
) -> ChannelId:
    """A request of a client without sessions over HTTP. Returns the channel of its answer."""
    mirrored = (("mcp-method", method), *([("mcp-name", named)] if named else []), *(marked or {}).items())
    channel = world.engine.new_channel()
    world.open(channel, PostOpening(server, revision=header, mirrored=mirrored))
    world.say(channel, request(id_raw, method, params_of(members or {}, revision=revision)))
    return channel


def is_discovered(world: Driver) -> None:
    """Be a server without sessions that says what it is."""
    if isinstance(world.last(Dial).target, Spawn):
        world.open(world.last(Dial).channel, Connected())
    world.answer(world.hear("server/discover"), DISCOVERED)


def called(world: Driver, server: str) -> tuple[ChannelId, Heard]:
    """A call that has reached its server, which is one without sessions."""
    channel = ask(world, server, "tools/call", {"name": "tool", "arguments": {}}, named="tool")
    is_discovered(world)
    if world.hears("tools/list"):
        world.answer(world.hear("tools/list"), '{"tools":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}')
    return channel, world.hear("tools/call")


@pytest.mark.parametrize("server", ["pipe", "http"])
def test_an_error_between_two_of_one_era_passes(server: str) -> None:
    """What a server of 2026-07-28 means by a code of 2026-07-28 is what a client of it understands: the error arrives
    as it was sent, under the status that goes with its code."""
    world = driver()
    channel, heard = called(world, server)
    said = '{"code":-32021,"message":"no model","data":{"requiredCapabilities":{"sampling":{}}}}'
    world.reply(heard, error(str(heard.id), said))
    assert world.said(channel) == {"jsonrpc": "2.0", "id": "q", "error": json.loads(said)}
    assert world.sent[channel][0].status == 400


@pytest.mark.parametrize("code", [-32002, -32042, -32050])
def test_an_error_that_nobody_of_the_era_may_send_is_hidden_no_more(code: int) -> None:
    """Between two of one era the proxy judges no codes."""
    world = driver()
    channel, heard = called(world, "http")
    world.reply(heard, error(str(heard.id), json.dumps({"code": code, "message": "odd"})))
    assert world.said(channel)["error"] == {"code": code, "message": "odd"}


@pytest.mark.parametrize("revision", ["2999-01-01", "2025-11-25", "odd"])
def test_a_header_that_names_another_revision_is_a_mismatch(revision: str) -> None:
    """Whether header and body agree comes first: what the body names need not be served for them to differ."""
    world = driver()
    channel = ask(world, "http", "server/discover", revision=revision)
    assert world.said(channel)["error"]["code"] == MISMATCH
    assert world.said(channel)["id"] == "q"
    assert world.sent[channel][0].status == 400
    agreeing = ask(world, "http", "server/discover", revision=revision, header=revision)
    assert world.said(agreeing)["error"]["code"] == UNSUPPORTED
    assert world.said(agreeing)["error"]["data"]["requested"] == revision


REFUSED: Final[Mapping[str, tuple[dict[str, Any], str, int]]] = {
    # what is asked, and the status and code of its refusal
    "no capabilities": ({}, '{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}', -32602),
    "no envelope": ({}, "{}", -32602),
    "no params": ({}, "null", -32602),
    "unknown revision": ({"revision": "2999-01-01"}, params_of({}, revision="2999-01-01"), UNSUPPORTED),
    "a revision that is a number": ({}, '{"_meta":{"io.modelcontextprotocol/protocolVersion":7}}', -32602),
    "a member twice": ({}, '{"_meta":{},"_meta":{}}', -32600),
    "an array": ({}, "[]", -32602),
    "another method in the header": ({"mirrored": (("mcp-method", "tools/list"),)}, params_of({}), MISMATCH),
    "no method in the header": ({"mirrored": ()}, params_of({}), MISMATCH),
    "no revision in the header": ({"revision": None}, params_of({}), MISMATCH),
    "two methods in the header": (
        {"mirrored": (("mcp-method", "server/discover"), ("mcp-method", "server/discover"))},
        params_of({}),
        MISMATCH,
    ),
}


@pytest.mark.parametrize("id_raw", ['"q"', "7", "12345678901234567890"])
@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_names_the_request(case: str, id_raw: str) -> None:
    """An error has the id of the request that it refuses, wherever that could be read, byte for byte."""
    said, params, code = REFUSED[case]
    opening: dict[str, Any] = {"revision": REVISION, "mirrored": (("mcp-method", "server/discover"),)} | said
    world = driver()
    channel = world.engine.new_channel()
    world.open(channel, PostOpening("http", **opening))
    world.say(channel, request(id_raw, "server/discover", params))
    assert world.said(channel)["error"]["code"] == code
    assert world.messages(channel)[0].startswith(b'{"jsonrpc":"2.0","id":%b,' % id_raw.encode())
    assert world.sent[channel][0].status == 400
    assert not world.heard


@pytest.mark.parametrize("id_raw", ['"q"', "7"])
@pytest.mark.parametrize(
    "case", ["no capabilities", "unknown revision", "a revision that is a number", "a member twice"]
)
def test_a_refusal_on_a_pipe_names_the_request(case: str, id_raw: str) -> None:
    """The same where there are no headers."""
    _, params, code = REFUSED[case]
    world = driver()
    channel = world.engine.new_channel()
    world.open(channel, PipeOpening("http"))
    world.say(channel, request(id_raw, "tools/list", params))
    assert world.said(channel)["error"]["code"] == code
    assert world.messages(channel)[0].startswith(b'{"jsonrpc":"2.0","id":%b,' % id_raw.encode())


@pytest.mark.parametrize("id_raw", ['"q"', "7"])
@pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel", "resources/subscribe"])
def test_a_removed_method_is_not_found(method: str, id_raw: str) -> None:
    """What 2026-07-28 took away is a method that is not there: 404, under the request's id."""
    world = driver()
    channel = ask(world, "http", method, id_raw=id_raw)
    assert world.said(channel)["error"]["code"] == -32601
    assert world.said(channel)["id"] == json.loads(id_raw)
    assert world.sent[channel][0].status == 404


HANDSHAKEN: Final = json.dumps({"protocolVersion": LATEST, "capabilities": {"tools": {}}})
SAMPLE: Final = '{"messages":[],"maxTokens":1}'


def asks_in_vain(world: Driver, server: str, *, calls: int = 1) -> list[tuple[ChannelId, Heard]]:
    """Calls whose server, one with sessions, asks for the model of a client that has declared none."""
    channels = []
    for number in range(calls):
        members = {"name": "tool", "arguments": {}}
        channels.append(ask(world, server, "tools/call", members, named="tool", id_raw=str(number)))
        if number == 0:
            refuses_to_discover(world)
    found = [(channel, world.hear("tools/call")) for channel in channels]
    heard = found[0][1]
    asking = heard.channel
    if heard.post is not None:
        world.open(asking, Connected())
    world.say(asking, request('"s"', "sampling/createMessage", SAMPLE))
    answer = world.hear("")
    world.acknowledge(answer)
    assert answer.frame["error"]["code"] == -32601
    return found


def answers(world: Driver, heard: Heard, message: bytes) -> None:
    """The rest of an answer whose stream is open already."""
    world.say(heard.channel, message)
    if heard.post is not None:
        world.end(heard.channel)


def refuses_to_discover(world: Driver) -> None:
    """Be a server with sessions that starts because of a client without them."""
    if isinstance(world.last(Dial).target, Spawn):
        world.open(world.last(Dial).channel, Connected())
    refused = world.hear("server/discover")
    world.reply(refused, error(str(refused.id), '{"code":-32601,"message":"no"}'))
    if isinstance(world.last(Dial).target, Spawn) and world.last(Dial).channel != refused.channel:
        world.open(world.last(Dial).channel, Connected())
    world.answer(world.hear("initialize"), HANDSHAKEN, session="S1")
    world.acknowledge(world.hear("notifications/initialized"))
    if refused.post is not None:
        world.end(world.last_dial(Listen).channel, NO_STREAM)


FAILURES: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "result": (
        '"result":{"content":[],"isError":true}',
        {"dev.isthmus/originalResult": {"content": [], "isError": True}},
    ),
    "error": ('"error":{"code":-32601,"message":"no"}', {"dev.isthmus/originalCode": -32601}),
}


@pytest.mark.parametrize("server", ["pipe", "http"])
@pytest.mark.parametrize("failure", FAILURES)
def test_a_call_that_fails_for_want_of_a_capability_says_so(failure: str, server: str) -> None:
    """If processing a request requires a capability the client did not declare, it is told so, with -32021 and 400,
    also where the server is one that asks first, hears that there is none, and fails."""
    member, kept = FAILURES[failure]
    world = driver()
    ((channel, heard),) = asks_in_vain(world, server)
    answers(world, heard, f'{{"jsonrpc":"2.0","id":{heard.id},{member}}}'.encode())
    told = world.said(channel)
    assert told["id"] == 0
    assert told["error"]["code"] == MISSING_CAPABILITY
    assert told["error"]["data"] == {"requiredCapabilities": {"sampling": {}}, **kept}
    assert world.sent[channel][0].status == 400


@pytest.mark.parametrize("server", ["pipe", "http"])
def test_a_call_that_does_without_a_capability_succeeds(server: str) -> None:
    """A server may ask, hear no, and do without: then nothing was required."""
    world = driver()
    ((channel, heard),) = asks_in_vain(world, server)
    answers(world, heard, result(str(heard.id), '{"content":[]}'))
    assert world.said(channel)["result"]["content"] == []


def test_a_question_that_may_be_of_another_call_proves_nothing() -> None:
    """Over a pipe nothing says which of two calls a question is of: neither failure is put down to it."""
    world = driver()
    for channel, heard in asks_in_vain(world, "pipe", calls=2):
        answers(world, heard, f'{{"jsonrpc":"2.0","id":{heard.id},{FAILURES["result"][0]}}}'.encode())
        assert world.said(channel)["result"]["isError"] is True


MARKED: Final = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
PLAIN: Final = {"type": "object", "properties": {"region": {"type": "string"}}}
IN: Final = {"name": "tool", "arguments": {"region": "here"}}


def lists(world: Driver, server: str, schema: Mapping[str, Any], *, starts: bool = False) -> ChannelId:
    """The client lists the tools, of which there is one."""
    channel = ask(world, server, "tools/list")
    if starts:
        refuses_to_discover(world)
    tools = json.dumps({"tools": [{"name": "tool", "inputSchema": schema}]})
    world.answer(world.hear("tools/list"), tools)
    return channel


@pytest.mark.parametrize("server", ["pipe", "http"])
def test_marked_arguments_are_compared_whoever_the_server_is(server: str) -> None:
    """A server that processes the body MUST reject a request whose headers do not agree with it. For its clients that
    is the proxy, also where the server behind it knows no such headers; and it shows them the marks as they are."""
    world = driver()
    assert world.said(lists(world, server, MARKED, starts=True))["result"]["tools"][0]["inputSchema"] == MARKED
    for sent in ({}, {"mcp-param-region": "there"}):
        refused = ask(world, server, "tools/call", IN, named="tool", marked=sent)
        assert world.said(refused)["error"]["code"] == MISMATCH
        assert not world.heard
    channel = ask(world, server, "tools/call", IN, named="tool", marked={"mcp-param-region": "here"})
    world.answer(world.hear("tools/call"), '{"content":[]}')
    assert world.said(channel)["result"]["content"] == []


@pytest.mark.parametrize("server", ["pipe", "http"])
def test_a_mark_that_is_gone_is_wanted_no_more(server: str) -> None:
    """What a list said before holds until its first page is read again."""
    world = driver()
    lists(world, server, MARKED, starts=True)
    lists(world, server, PLAIN)
    channel = ask(world, server, "tools/call", IN, named="tool")
    world.answer(world.hear("tools/call"), '{"content":[]}')
    assert world.said(channel)["result"]["content"] == []


REFUSAL: Final = '{"code":-32022,"message":"no","data":{"supported":["2026-07-28"],"requested":"2026-07-28"}}'


def refuses(world: Driver, heard: Heard) -> None:
    """Refuse a revision: over HTTP with 400, and the error as its body."""
    said = error(str(heard.id), REFUSAL)
    if heard.post is None:
        world.say(heard.channel, said)
    else:
        world.end(heard.channel, Cause(End.REFUSED, status=400, body=said))


@pytest.mark.parametrize("server", ["pipe", "http"])
def test_a_server_is_asked_again_in_a_revision_it_names(server: str) -> None:
    """Whoever is refused its revision, and told others, SHOULD try one of them; once, or it would never end."""
    world = driver()
    channel = ask(world, server, "tools/list")
    if isinstance(world.last(Dial).target, Spawn):
        world.open(world.last(Dial).channel, Connected())
    refuses(world, world.hear("server/discover"))
    world.answer(world.hear("server/discover"), DISCOVERED)
    world.answer(world.hear("tools/list"), '{"tools":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}')
    assert world.said(channel)["result"]["tools"] == []
    assert not world.hears("initialize")


@pytest.mark.parametrize("server", ["pipe", "http"])
def test_a_server_is_asked_again_only_once(server: str) -> None:
    """One that refuses what it has named itself is not asked for ever."""
    world = driver()
    ask(world, server, "tools/list")
    if isinstance(world.last(Dial).target, Spawn):
        world.open(world.last(Dial).channel, Connected())
    for _ in range(2):
        refuses(world, world.hear("server/discover"))
    assert not world.hears("server/discover")
