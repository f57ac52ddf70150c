"""Requests without a session over HTTP: what their bodies and their headers must say, and that they agree."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import LATEST, notification, request
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.base.effects import DeleteOpening, GetOpening
from stateless_driving import (
    REVISION,
    K,
    Modern,
    bridge,
    emerge,
    give,
    meta,
    modern,
    rise,
    served,
)


def refused(client: Modern, message: bytes, **said: Any) -> tuple[int, int, Any]:
    """(status, code, data) of a POST that is refused; nothing goes up for it."""
    world = client.driver
    channel = client.send(message, **said)
    (send,) = world.sent[channel]
    assert send.is_last
    assert not [heard for heard in world.heard if heard.frame.get("method") != "server/discover"]
    found = json.loads(send.message)["error"]
    return send.status, found["code"], found.get("data")


def body(version: Any = REVISION, **said: Any) -> bytes:
    """A call with this as its `_meta`'s revision; None: without an envelope."""
    envelope = {} if version is None else {"_meta": {**meta(), K + "protocolVersion": version}}
    return request("1", "tools/call", json.dumps({"name": "ask", **envelope, **said}))


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
def test_the_body_says_the_era_and_the_header_must_agree(
    version: Any, header: str | None, expected: tuple[int, int]
) -> None:
    """A request with an envelope is never taken for one of a session, nor the other way; what is refused for its
    revision is told which there are, and never one with sessions."""
    world, client, _ = served()
    status, code, data = refused(client, body(version), mirrored=MIRRORED, revision=header)
    assert (status, code) == expected
    if code == -32022:
        assert data == {"supported": [REVISION], "requested": version or header}
    assert world.engine.session_count == 1


def test_initialize_under_a_header_that_has_none_is_refused() -> None:
    world, client, _ = served()
    hello = request("1", "initialize", f'{{"protocolVersion":"{LATEST}","capabilities":{{}}}}')
    assert refused(client, hello, mirrored=())[:2] == (400, -32020)
    assert world.engine.session_count == 1


@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities"])
@pytest.mark.parametrize("down", ["pipe", "http"])
def test_what_a_request_must_say_is_named_when_it_is_missing(missing: str, down: str) -> None:
    """By the key. On a pipe a request that names no revision is one of a session instead."""
    world, client, _ = served(down=down)
    said = {key: value for key, value in meta().items() if key != K + missing}
    channel = client.send(request("1", "tools/list", json.dumps({"_meta": said})))
    found = client.answered(channel)["error"]
    if down == "http" or missing != "protocolVersion":
        assert found["code"] == -32602
        assert K + missing in found["message"]
    else:
        assert found["code"] == -32600
    assert not world.hears("tools/list")


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
    """Missing, different, twice, or encoded in another than the one way: 400 and -32020, and the server sees
    nothing."""
    _, client, _ = served()
    assert refused(client, body(), mirrored=mirrored)[:2] == (400, -32020)


@given(name=st.text(min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_any_name_can_be_called(name: str) -> None:
    """Line ends, zeros, other alphabets and what looks encoded are encoded in the header, and agree with the body."""
    world, client, _ = served()
    channel = client.call(name)
    heard = world.hear("tools/call")
    assert heard.frame["params"]["name"] == name
    give(world, heard)
    assert "result" in client.answered(channel)


def test_half_a_character_in_a_name_fits_into_no_header() -> None:
    world, client, _ = served()
    half = client.body("tools/call", name="N").replace(b'"N"', b'"\\ud800"')
    assert refused(client, half, mirrored=(("mcp-method", "tools/call"),))[:2] == (400, -32602)
    piped = modern(world, "pipe", "pipe")
    piped.send(half)
    rise(world)
    assert world.hear("tools/call").raw.endswith(b'"params":{"name": "\\ud800"}}'), "elsewhere it passes as it is"


def test_an_argument_in_a_header_must_agree_once_the_schema_is_known() -> None:
    """Before its server has said which arguments are mirrored nothing can be said of them; afterwards what disagrees
    is refused."""
    world = bridge()
    client = modern(world, "http")
    listing = client.request("tools/list")
    emerge(world)
    schema = '{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}'
    hints = '"resultType":"complete","ttlMs":0,"cacheScope":"private"'
    give(world, world.hear("tools/list"), f'{{{hints},"tools":[{{"name":"ask","inputSchema":{schema}}}]}}')
    assert "result" in client.answered(listing)
    message = client.body("tools/call", name="ask", arguments={"region": "eu"})
    assert refused(client, message, mirrored=MIRRORED)[:2] == (400, -32020)
    assert refused(client, message, mirrored=(*MIRRORED, ("mcp-param-region", "us")))[:2] == (400, -32020)
    client.send(message, mirrored=(*MIRRORED, ("mcp-param-region", "eu"), ("mcp-param-other", "1")))
    heard = world.hear("tools/call")
    assert heard.post is not None
    assert ("mcp-param-region", "eu") in heard.post.mirrored
    assert ("mcp-param-other", "1") in heard.post.mirrored, "what is not known is passed on"


@pytest.mark.parametrize("session", ["S1", "nonsense"])
def test_a_session_header_means_nothing(session: str) -> None:
    """It is neither looked up nor echoed."""
    world, client, _ = served()
    channel = client.send(client.body("server/discover"), session=session)
    assert "result" in client.answered(channel)
    assert world.sent[channel][0].session is None


@pytest.mark.parametrize("opening", [GetOpening, DeleteOpening])
def test_other_methods_than_post_are_refused(opening: Any) -> None:
    """GET and DELETE under a revision without sessions: 405."""
    world, _, _ = served()
    channel = world.engine.new_channel()
    world.open(channel, opening("pipe", revision=REVISION))
    assert world.sent[channel][0].status == 405


def test_notifications_and_answers_reach_nobody() -> None:
    """A notification over HTTP is taken and dropped: the id in a cancellation could be another client's. An answer is
    refused, for nobody is asked."""
    world, client, _ = served()
    call = client.call(id_raw="1")
    heard = world.hear("tools/call")
    for name in ("cancelled", "initialized", "vendor"):
        message = notification(f"notifications/{name}", json.dumps({"requestId": 1, "_meta": meta()}))
        channel = client.send(message, mirrored=())
        assert world.closed[channel].status == 202
    assert refused(client, b'{"jsonrpc":"2.0","id":1,"result":{}}', mirrored=())[:2] == (400, -32600)
    assert not world.heard
    give(world, heard)
    assert "result" in client.answered(call)


def test_a_batch_has_no_request_without_a_session() -> None:
    _, client, _ = served()
    batch = b"[" + client.body("tools/list") + b"]"
    assert refused(client, batch, mirrored=())[:2] == (400, -32600)


@pytest.mark.parametrize("params", ['["a"]', "5", "null"])
def test_params_that_are_no_object_are_refused(params: str) -> None:
    """With nothing that says who asks: -32602, or no request at all."""
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
def test_what_is_judged_is_said_once(twice: str, down: str) -> None:
    """A member that two readers could read in two ways is refused, and the server sees nothing."""
    world, client, _ = served(down=down)
    said = json.dumps(meta())
    for mark, text in {
        "P": f'{{"_meta":{said}}}',
        "M": f'"_meta":{said}',
        "V": said[1:],
        "K": K + "protocolVersion",
    }.items():
        twice = twice.replace("<" + mark + ">", text)
    channel = client.send(twice.encode(), mirrored=(("mcp-method", "tools/list"),))
    (answer,) = world.frames(channel)
    assert answer["error"]["code"] in (-32600, -32602, -32020)
    assert not world.heard


@pytest.mark.parametrize("token", ["true", "1.5", "{}", "[]"])
def test_a_progress_token_that_is_none_is_refused(token: str) -> None:
    """Forwarded as it is it could be taken for the number of another request."""
    world, client, _ = served()
    message = client.body("tools/call", name="ask", token="T").replace(b'"T"', token.encode())
    assert refused(client, message, mirrored=MIRRORED)[:2] == (400, -32602)
    assert not world.engine.exchange_count


@pytest.mark.parametrize("depth, size, is_fine", [(30, 0, True), (40, 0, False), (1, 60_000, True), (1, 70_000, False)])
def test_capabilities_have_bounds(depth: int, size: int, is_fine: bool) -> None:
    """64 KiB and 32 levels: more is refused before a session is begun with it."""
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
