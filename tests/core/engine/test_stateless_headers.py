"""Tests of the bodies and headers of stateless requests over HTTP, and that they agree."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import LATEST, notification, request
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.base.events import DeleteOpening, GetOpening
from stateless_driving import (
    REVISION,
    K,
    Modern,
    bridge,
    meta,
    modern,
    respond,
    served,
    start_legacy_server,
    start_stateless_server,
)


def refused(client: Modern, message: bytes, **rest: Any) -> tuple[int, int, Any]:
    """Sends a POST that is refused. Returns (status, code, data). The server gets nothing."""
    world = client.driver
    channel = client.send(message, **rest)
    (send,) = world.sent[channel]
    assert send.is_last
    assert not [received for received in world.unread if received.frame.get("method") != "server/discover"]
    found = json.loads(send.message)["error"]
    return send.status, found["code"], found.get("data")


def body(version: Any = REVISION, **rest: Any) -> bytes:
    """Returns a call with this revision in its `_meta`; None: without the members of the era."""
    envelope = {} if version is None else {"_meta": {**meta(), K + "protocolVersion": version}}
    return request("1", "tools/call", json.dumps({"name": "ask", **envelope, **rest}))


MIRRORED = (("mcp-method", "tools/call"), ("mcp-name", "ask"))


@pytest.mark.parametrize(
    "version, header, expected",
    [
        (REVISION, None, (400, -32020)),
        (REVISION, "2025-11-25", (400, -32020)),
        (REVISION, "2026-07-29", (400, -32020)),
        ("2025-11-25", "2025-11-25", (400, -32022)),
        ("2099-01-01", "2099-01-01", (400, -32022)),
        ("draft", "draft", (400, -32022)),
        (5, REVISION, (400, -32602)),
        (None, REVISION, (400, -32602)),
        (None, "2099-01-01", (400, -32022)),
        (None, "2025-11-25", (400, -32600)),
        (None, None, (400, -32600)),
    ],
)
def test_the_body_names_the_era_and_the_header_must_agree(
    version: Any, header: str | None, expected: tuple[int, int]
) -> None:
    """A stateless request is never taken for one of a session, nor the reverse. An unsupported revision is answered
    with the supported stateless ones."""
    world, client, _ = served()
    status, code, data = refused(client, body(version), mirrored=MIRRORED, revision=header)
    assert (status, code) == expected
    if code == -32022:
        assert data == {"supported": [REVISION], "requested": version or header}
    assert world.engine.session_count == 1


def test_initialize_with_a_stateless_header_is_refused() -> None:
    world, client, _ = served()
    hello = request("1", "initialize", f'{{"protocolVersion":"{LATEST}","capabilities":{{}}}}')
    assert refused(client, hello, mirrored=())[:2] == (400, -32020)
    assert world.engine.session_count == 1


@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities"])
@pytest.mark.parametrize("down", ["pipe", "http"])
def test_the_error_names_a_missing_member(missing: str, down: str) -> None:
    """Over HTTP the error names the key. On a pipe a request without a revision belongs to a session."""
    world, client, _ = served(down=down)
    members = {key: value for key, value in meta().items() if key != K + missing}
    channel = client.send(request("1", "tools/list", json.dumps({"_meta": members})))
    found = client.answered(channel)["error"]
    if down == "http" or missing != "protocolVersion":
        assert found["code"] == -32602
        assert K + missing in found["message"]
    else:
        assert found["code"] == -32600
    assert not world.was_sent("tools/list")


@pytest.mark.parametrize(
    "mirrored",
    [
        (),
        (("mcp-name", "ask"),),
        (("mcp-method", "tools/call"),),
        (("mcp-method", "Tools/Call"), ("mcp-name", "ask")),
        (("mcp-method", "tools/call"), ("mcp-name", "Ask")),
        (*MIRRORED, ("mcp-name", "ask")),
        (("mcp-method", "tools/call"), ("mcp-name", "=?base64?YXNr=?=")),
        (("mcp-method", "tools/call"), ("mcp-name", "=?base64?/w==?=")),
    ],
)
def test_headers_that_disagree_with_the_body_are_refused(mirrored: Any) -> None:
    """Missing, different, duplicate or wrongly encoded headers get 400 and -32020, and the server gets nothing."""
    _, client, _ = served()
    assert refused(client, body(), mirrored=mirrored)[:2] == (400, -32020)


@given(name=st.text(min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_any_name_can_be_called(name: str) -> None:
    """Line ends, zeros, other alphabets, and names that look encoded are encoded in the header, and agree with the
    body."""
    world, client, _ = served()
    channel = client.call(name)
    received = world.take_sent("tools/call")
    assert received.frame["params"]["name"] == name
    respond(world, received)
    assert "result" in client.answered(channel)


def test_half_a_surrogate_pair_in_a_name_is_refused() -> None:
    world, client, _ = served()
    half = client.body("tools/call", name="N").replace(b'"N"', b'"\\ud800"')
    assert refused(client, half, mirrored=(("mcp-method", "tools/call"),))[:2] == (400, -32602)
    piped = modern(world, "pipe", "pipe")
    piped.send(half)
    start_legacy_server(world)
    assert world.take_sent("tools/call").raw.endswith(b'"params":{"name": "\\ud800"}}'), "elsewhere it passes as it is"


def test_an_argument_in_a_header_must_agree_once_the_schema_is_known() -> None:
    """The header of an argument is checked once the server has named the mirrored arguments."""
    world = bridge()
    client = modern(world, "http")
    listing = client.request("tools/list")
    start_stateless_server(world)
    schema = '{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}'
    hints = '"resultType":"complete","ttlMs":0,"cacheScope":"private"'
    respond(world, world.take_sent("tools/list"), f'{{{hints},"tools":[{{"name":"ask","inputSchema":{schema}}}]}}')
    assert "result" in client.answered(listing)
    message = client.body("tools/call", name="ask", arguments={"region": "eu"})
    assert refused(client, message, mirrored=MIRRORED)[:2] == (400, -32020)
    assert refused(client, message, mirrored=(*MIRRORED, ("mcp-param-region", "us")))[:2] == (400, -32020)
    client.send(message, mirrored=(*MIRRORED, ("mcp-param-region", "eu"), ("mcp-param-other", "1")))
    received = world.take_sent("tools/call")
    assert received.post is not None
    assert ("mcp-param-region", "eu") in received.post.mirrored
    assert ("mcp-param-other", "1") in received.post.mirrored, "what is not known is passed on"


@pytest.mark.parametrize("session", ["S1", "nonsense"])
def test_a_session_header_is_ignored(session: str) -> None:
    """The header is neither looked up nor echoed."""
    world, client, _ = served()
    channel = client.send(client.body("server/discover"), session=session)
    assert "result" in client.answered(channel)
    assert world.sent[channel][0].session is None


@pytest.mark.parametrize("opening", [GetOpening, DeleteOpening])
def test_other_methods_than_post_are_refused(opening: Any) -> None:
    """GET and DELETE with a stateless revision get 405."""
    world, _, _ = served()
    channel = world.engine.new_channel()
    world.open(channel, opening("pipe", revision=REVISION))
    assert world.sent[channel][0].status == 405


def test_notifications_and_answers_do_not_reach_the_server() -> None:
    """A notification over HTTP is accepted and dropped, since the id in a cancellation could be that of another client.
    An answer is refused, since there are no questions."""
    world, client, _ = served()
    call = client.call(id_raw="1")
    received = world.take_sent("tools/call")
    for name in ("cancelled", "initialized", "vendor"):
        message = notification(f"notifications/{name}", json.dumps({"requestId": 1, "_meta": meta()}))
        channel = client.send(message, mirrored=())
        assert world.closed[channel].status == 202
    assert refused(client, b'{"jsonrpc":"2.0","id":1,"result":{}}', mirrored=())[:2] == (400, -32600)
    assert not world.unread
    respond(world, received)
    assert "result" in client.answered(call)


def test_a_stateless_request_in_a_batch_is_refused() -> None:
    _, client, _ = served()
    batch = b"[" + client.body("tools/list") + b"]"
    assert refused(client, batch, mirrored=())[:2] == (400, -32600)


@pytest.mark.parametrize("params", ['["a"]', "5", "null"])
def test_params_that_are_no_object_are_refused(params: str) -> None:
    """The code is -32602, or the message is no request at all."""
    _, client, _ = served()
    status, code, _ = refused(client, request("1", "tools/list", params), mirrored=(("mcp-method", "tools/list"),))
    assert status == 400
    assert code in (-32600, -32602)


@pytest.mark.parametrize(
    "twice",
    [
        '{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list","params":<P>}',
        '{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"ping","params":<P>}',
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b",<M>}}',
        '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"<K>":"x",<V>}}',
    ],
    ids=["id", "method", "name", "revision"],
)
@pytest.mark.parametrize("down", ["pipe", "http"])
def test_duplicate_members_are_refused(twice: str, down: str) -> None:
    """A member that can be read in two ways is refused, and the server gets nothing."""
    world, client, _ = served(down=down)
    members = json.dumps(meta())
    for mark, text in {
        "P": f'{{"_meta":{members}}}',
        "M": f'"_meta":{members}',
        "V": members[1:],
        "K": K + "protocolVersion",
    }.items():
        twice = twice.replace("<" + mark + ">", text)
    channel = client.send(twice.encode(), mirrored=(("mcp-method", "tools/list"),))
    (answer,) = world.frames(channel)
    assert answer["error"]["code"] in (-32600, -32602, -32020)
    assert not world.unread


@pytest.mark.parametrize("token", ["true", "1.5", "{}", "[]"])
def test_an_invalid_progress_token_is_refused(token: str) -> None:
    """A server could take such a token for the number of another request."""
    world, client, _ = served()
    message = client.body("tools/call", name="ask", token="T").replace(b'"T"', token.encode())
    assert refused(client, message, mirrored=MIRRORED)[:2] == (400, -32602)
    assert not world.engine.exchange_count


@pytest.mark.parametrize("depth, size, is_fine", [(30, 0, True), (40, 0, False), (1, 60_000, True), (1, 70_000, False)])
def test_capabilities_have_bounds(depth: int, size: int, is_fine: bool) -> None:
    """More than 64 KiB or 32 levels are refused before a session begins."""
    world, client, _ = served()
    deep: dict[str, Any] = {"x": "y" * size}
    for _ in range(depth - 1):
        deep = {"x": deep}
    channel = client.request("server/discover", capabilities={"experimental": deep})
    if is_fine:
        assert world.engine.session_count == 2
    else:
        assert client.answered(channel)["error"]["code"] == -32602
        assert world.engine.session_count == 1
