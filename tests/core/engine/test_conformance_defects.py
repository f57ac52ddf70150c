"""Tests of the defects that the official suites found between clients and servers of 2026-07-28."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest
from driving import LATEST, NO_STREAM, Driver, SentMessage, driver, error, request, result
from isthmus.core.base.effects import Dial, Listen, Spawn
from isthmus.core.base.events import Cause, Connected, End, PipeOpening, PostOpening
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


def call_stateless(
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
    """A request of a client of the stateless era over HTTP. Returns the channel of its response."""
    mirrored = (("mcp-method", method), *([("mcp-name", named)] if named else []), *(marked or {}).items())
    channel = world.engine.new_channel()
    world.open(channel, PostOpening(server, revision=header, mirrored=mirrored))
    world.send(channel, request(id_raw, method, params_of(members or {}, revision=revision)))
    return channel


def answer_discover(world: Driver) -> None:
    """Plays a server of the stateless era that answers `server/discover`."""
    if isinstance(world.last(Dial).target, Spawn):
        world.open(world.last(Dial).channel, Connected())
    world.answer(world.take_sent("server/discover"), DISCOVERED)


def called(world: Driver, server: str) -> tuple[ChannelId, SentMessage]:
    """A call that has reached its server, which is of the stateless era."""
    channel = call_stateless(world, server, "tools/call", {"name": "tool", "arguments": {}}, named="tool")
    answer_discover(world)
    if world.was_sent("tools/list"):
        world.answer(
            world.take_sent("tools/list"), '{"tools":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}'
        )
    return channel, world.take_sent("tools/call")


@pytest.mark.parametrize("server", ["pipe", "http"])
def test_an_error_between_two_of_one_era_passes(server: str) -> None:
    """The error of a server of 2026-07-28 arrives at a client of 2026-07-28 as it was sent, under the HTTP status that
    goes with its code."""
    world = driver()
    channel, received = called(world, server)
    sent = '{"code":-32021,"message":"no model","data":{"requiredCapabilities":{"sampling":{}}}}'
    world.reply(received, error(str(received.id), sent))
    assert world.only_message(channel) == {"jsonrpc": "2.0", "id": "q", "error": json.loads(sent)}
    assert world.sent[channel][0].status == 400


@pytest.mark.parametrize("code", [-32002, -32042, -32050])
def test_an_error_code_that_the_era_does_not_have_passes(code: int) -> None:
    """The proxy checks no error codes between a client and a server of one era."""
    world = driver()
    channel, received = called(world, "http")
    world.reply(received, error(str(received.id), json.dumps({"code": code, "message": "odd"})))
    assert world.only_message(channel)["error"] == {"code": code, "message": "odd"}


@pytest.mark.parametrize("revision", ["2999-01-01", "2025-11-25", "odd"])
def test_a_header_that_names_another_revision_is_a_mismatch(revision: str) -> None:
    """Header and body are compared first: a revision that is not supported is still a mismatch."""
    world = driver()
    channel = call_stateless(world, "http", "server/discover", revision=revision)
    assert world.only_message(channel)["error"]["code"] == MISMATCH
    assert world.only_message(channel)["id"] == "q"
    assert world.sent[channel][0].status == 400
    agreeing = call_stateless(world, "http", "server/discover", revision=revision, header=revision)
    assert world.only_message(agreeing)["error"]["code"] == UNSUPPORTED
    assert world.only_message(agreeing)["error"]["data"]["requested"] == revision


REFUSED: Final[Mapping[str, tuple[dict[str, Any], str, int]]] = {
    # opening and params of the request, and the code of its refusal
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
    headers, params, code = REFUSED[case]
    opening: dict[str, Any] = {"revision": REVISION, "mirrored": (("mcp-method", "server/discover"),)} | headers
    world = driver()
    channel = world.engine.new_channel()
    world.open(channel, PostOpening("http", **opening))
    world.send(channel, request(id_raw, "server/discover", params))
    assert world.only_message(channel)["error"]["code"] == code
    assert world.messages(channel)[0].startswith(b'{"jsonrpc":"2.0","id":%b,' % id_raw.encode())
    assert world.sent[channel][0].status == 400
    assert not world.unread


@pytest.mark.parametrize("id_raw", ['"q"', "7"])
@pytest.mark.parametrize(
    "case", ["no capabilities", "unknown revision", "a revision that is a number", "a member twice"]
)
def test_a_refusal_on_a_pipe_names_the_request(case: str, id_raw: str) -> None:
    """A refusal without HTTP headers has the id as well."""
    _, params, code = REFUSED[case]
    world = driver()
    channel = world.engine.new_channel()
    world.open(channel, PipeOpening("http"))
    world.send(channel, request(id_raw, "tools/list", params))
    assert world.only_message(channel)["error"]["code"] == code
    assert world.messages(channel)[0].startswith(b'{"jsonrpc":"2.0","id":%b,' % id_raw.encode())


@pytest.mark.parametrize("id_raw", ['"q"', "7"])
@pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel", "resources/subscribe"])
def test_a_removed_method_is_not_found(method: str, id_raw: str) -> None:
    """A method that 2026-07-28 removed is refused with 404, under the request's id."""
    world = driver()
    channel = call_stateless(world, "http", method, id_raw=id_raw)
    assert world.only_message(channel)["error"]["code"] == -32601
    assert world.only_message(channel)["id"] == json.loads(id_raw)
    assert world.sent[channel][0].status == 404


HANDSHAKEN: Final = json.dumps({"protocolVersion": LATEST, "capabilities": {"tools": {}}})
SAMPLE: Final = '{"messages":[],"maxTokens":1}'


def refused_questions(world: Driver, server: str, *, calls: int = 1) -> list[tuple[ChannelId, SentMessage]]:
    """Calls whose server, of the handshake era, asks for sampling although the client has declared no such
    capability."""
    channels = []
    for number in range(calls):
        members = {"name": "tool", "arguments": {}}
        channels.append(call_stateless(world, server, "tools/call", members, named="tool", id_raw=str(number)))
        if number == 0:
            refuse_discover(world)
    found = [(channel, world.take_sent("tools/call")) for channel in channels]
    received = found[0][1]
    stream = received.channel
    if received.post is not None:
        world.open(stream, Connected())
    world.send(stream, request('"s"', "sampling/createMessage", SAMPLE))
    answer = world.take_sent("")
    world.acknowledge(answer)
    assert answer.frame["error"]["code"] == -32601
    return found


def finish(world: Driver, received: SentMessage, message: bytes) -> None:
    """The response on a stream that is open already."""
    world.send(received.channel, message)
    if received.post is not None:
        world.end(received.channel)


def refuse_discover(world: Driver) -> None:
    """Plays a server of the handshake era that starts because of a client of the stateless era."""
    if isinstance(world.last(Dial).target, Spawn):
        world.open(world.last(Dial).channel, Connected())
    refused = world.take_sent("server/discover")
    world.reply(refused, error(str(refused.id), '{"code":-32601,"message":"no"}'))
    if isinstance(world.last(Dial).target, Spawn) and world.last(Dial).channel != refused.channel:
        world.open(world.last(Dial).channel, Connected())
    world.answer(world.take_sent("initialize"), HANDSHAKEN, session="S1")
    world.acknowledge(world.take_sent("notifications/initialized"))
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
    """The client gets -32021 and 400 if its request needs a capability that it did not declare, also if the server asks
    first, is refused, and fails."""
    member, kept = FAILURES[failure]
    world = driver()
    ((channel, received),) = refused_questions(world, server)
    finish(world, received, f'{{"jsonrpc":"2.0","id":{received.id},{member}}}'.encode())
    response = world.only_message(channel)
    assert response["id"] == 0
    assert response["error"]["code"] == MISSING_CAPABILITY
    assert response["error"]["data"] == {"requiredCapabilities": {"sampling": {}}, **kept}
    assert world.sent[channel][0].status == 400


@pytest.mark.parametrize("server", ["pipe", "http"])
def test_a_call_that_does_without_a_capability_succeeds(server: str) -> None:
    """A server may ask, be refused, and succeed without: then nothing was required."""
    world = driver()
    ((channel, received),) = refused_questions(world, server)
    finish(world, received, result(str(received.id), '{"content":[]}'))
    assert world.only_message(channel)["result"]["content"] == []


def test_a_question_that_may_be_of_another_call_proves_nothing() -> None:
    """A question over a pipe names no call: with two calls open, neither failure is put down to it."""
    world = driver()
    for channel, received in refused_questions(world, "pipe", calls=2):
        finish(world, received, f'{{"jsonrpc":"2.0","id":{received.id},{FAILURES["result"][0]}}}'.encode())
        assert world.only_message(channel)["result"]["isError"] is True


MARKED: Final = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
PLAIN: Final = {"type": "object", "properties": {"region": {"type": "string"}}}
IN: Final = {"name": "tool", "arguments": {"region": "here"}}


def list_tools(world: Driver, server: str, schema: Mapping[str, Any], *, starts: bool = False) -> ChannelId:
    """The client lists the tools, of which there is one."""
    channel = call_stateless(world, server, "tools/list")
    if starts:
        refuse_discover(world)
    tools = json.dumps({"tools": [{"name": "tool", "inputSchema": schema}]})
    world.answer(world.take_sent("tools/list"), tools)
    return channel


@pytest.mark.parametrize("server", ["pipe", "http"])
def test_marked_arguments_are_compared_for_servers_of_either_era(server: str) -> None:
    """A server that processes the body MUST reject a request whose headers do not agree with it. For its clients that
    is the proxy, also in front of a server that knows no such headers. Clients see the marks unchanged."""
    world = driver()
    assert (
        world.only_message(list_tools(world, server, MARKED, starts=True))["result"]["tools"][0]["inputSchema"]
        == MARKED
    )
    for sent in ({}, {"mcp-param-region": "there"}):
        refused = call_stateless(world, server, "tools/call", IN, named="tool", marked=sent)
        assert world.only_message(refused)["error"]["code"] == MISMATCH
        assert not world.unread
    channel = call_stateless(world, server, "tools/call", IN, named="tool", marked={"mcp-param-region": "here"})
    world.answer(world.take_sent("tools/call"), '{"content":[]}')
    assert world.only_message(channel)["result"]["content"] == []


@pytest.mark.parametrize("server", ["pipe", "http"])
def test_a_mark_that_is_gone_is_not_required(server: str) -> None:
    """The schemas of one list hold until its first page is read again."""
    world = driver()
    list_tools(world, server, MARKED, starts=True)
    list_tools(world, server, PLAIN)
    channel = call_stateless(world, server, "tools/call", IN, named="tool")
    world.answer(world.take_sent("tools/call"), '{"content":[]}')
    assert world.only_message(channel)["result"]["content"] == []


REFUSAL: Final = '{"code":-32022,"message":"no","data":{"supported":["2026-07-28"],"requested":"2026-07-28"}}'


def refuse_revision(world: Driver, received: SentMessage) -> None:
    """Refuses a revision: over HTTP with 400, and the error as its body."""
    message = error(str(received.id), REFUSAL)
    if received.post is None:
        world.send(received.channel, message)
    else:
        world.end(received.channel, Cause(End.REFUSED, status=400, body=message))


@pytest.mark.parametrize("server", ["pipe", "http"])
def test_a_server_is_asked_again_in_a_revision_it_names(server: str) -> None:
    """A client whose revision is refused SHOULD try one of those that the error names; the proxy does so once."""
    world = driver()
    channel = call_stateless(world, server, "tools/list")
    if isinstance(world.last(Dial).target, Spawn):
        world.open(world.last(Dial).channel, Connected())
    refuse_revision(world, world.take_sent("server/discover"))
    world.answer(world.take_sent("server/discover"), DISCOVERED)
    world.answer(world.take_sent("tools/list"), '{"tools":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}')
    assert world.only_message(channel)["result"]["tools"] == []
    assert not world.was_sent("initialize")


@pytest.mark.parametrize("server", ["pipe", "http"])
def test_a_server_is_asked_again_only_once(server: str) -> None:
    """A server that refuses a revision that it has named itself is not asked for ever."""
    world = driver()
    call_stateless(world, server, "tools/list")
    if isinstance(world.last(Dial).target, Spawn):
        world.open(world.last(Dial).channel, Connected())
    for _ in range(2):
        refuse_revision(world, world.take_sent("server/discover"))
    assert not world.was_sent("server/discover")
