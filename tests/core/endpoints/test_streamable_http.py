"""Tests of Streamable HTTP: the outcome of each request, by the session and the revision that it names and by its
body."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import DONE, GONE, Client, Driver, connect, driver, new_client, notification, request, result
from isthmus.core.base.effects import Close
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.events import DeleteOpening, GetOpening, Opening, PostOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from stateless_driving import meta

SESSIONS = ["own", "none", "unknown", "foreign"]
NEGOTIATED, OTHER, MODERN, UNKNOWN = "2025-11-25", "2025-06-18", "2026-07-28", "1999-01-01"
REVISIONS = [None, NEGOTIATED, OTHER, MODERN, UNKNOWN]
META = json.dumps(meta())
BODIES = {
    "call": request("7", "tools/call", '{"name":"t"}'),
    "notification": notification("notifications/vendor"),
    "answer": result("99"),
    "initialize": request("7", "initialize", f'{{"protocolVersion":"{NEGOTIATED}","capabilities":{{}}}}'),
    "modern call": request("7", "tools/call", f'{{"name":"t","_meta":{META}}}'),
    "modern notification": notification("notifications/vendor", f'{{"_meta":{META}}}'),
    "batch": b"[" + request("7", "tools/list") + b"]",
    "garbage": b"{",
}
INVALID, PARAMS, MISMATCH, UNSUPPORTED, PARSE = -32600, -32602, -32020, -32022, -32700


def peopled() -> tuple[Driver, Client, dict[str, str | None]]:
    """Returns a driver with two clients of two principals, and the session ids that the first may name."""
    world = driver()
    client = connect(world, "http", "pipe")
    other = connect(world, "http", "pipe", principal="bob")
    return world, client, {"own": client.session, "none": None, "unknown": "nobody", "foreign": other.session}


def opened(world: Driver, opening: Opening) -> ChannelId:
    channel = world.engine.new_channel()
    world.open(channel, opening)
    return channel


def seen(world: Driver, channel: ChannelId) -> tuple[Any, ...]:
    """The (status, code, id) of the immediate response to a request; (status,) without a message; () without a
    response."""
    if channel in world.closed:
        return (world.closed[channel].status,)
    if not world.sent[channel]:
        return ()
    (sent,) = world.sent[channel]
    frame = json.loads(sent.message)
    return sent.status, frame["error"]["code"], frame["id"]


def expected(session: str, body: str, revision: str | None) -> tuple[Any, ...]:
    """The outcome that the specification demands, derived step by step."""
    lost = {"none": (400, INVALID, None), "unknown": (404, INVALID, None), "foreign": (404, INVALID, None)}
    if body == "garbage":
        return 400, PARSE, None
    if body == "batch":
        return lost.get(session, (400, INVALID, None))
    if body == "modern notification":
        return (202,)
    if body == "modern call":
        return 400, MISMATCH, 7  # the headers that mirror the body are missing
    if revision == MODERN:  # the stateless era, without its `_meta`
        return {
            "call": (400, PARAMS, 7),
            "notification": (202,),
            "answer": (400, INVALID, None),
            "initialize": (400, MISMATCH, 7),
        }[body]
    if body == "initialize":
        return {"none": ()}.get(session, lost.get(session, (400, INVALID, None)))
    if session == "none" and revision == UNKNOWN and body == "call":
        return 400, UNSUPPORTED, 7
    if session != "own":
        return lost[session]
    if revision == UNKNOWN:
        return 400, INVALID, None
    return () if body == "call" else (202,)


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("revision", REVISIONS)
def test_the_outcome_of_a_post(session: str, body: str, revision: str | None) -> None:
    """The status is compared, and whether the server gets the message or a session begins."""
    world, _, sessions = peopled()
    channel = opened(world, PostOpening("pipe", "", sessions[session], revision, base_url="http://here"))
    world.send(channel, BODIES[body])
    outcome = expected(session, body, revision)
    assert seen(world, channel) == outcome
    passes = session == "own" and body in ("call", "notification") and revision in (None, NEGOTIATED, OTHER)
    assert [received.frame["method"] for received in world.unread] == (
        [json.loads(BODIES[body])["method"]] if passes else []
    )
    assert world.engine.session_count == 2 + (body == "initialize" and outcome == ())


@pytest.mark.parametrize("kind", [GetOpening, DeleteOpening])
@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize("revision", REVISIONS)
def test_the_outcome_of_a_get_and_of_a_delete(kind: Any, session: str, revision: str | None) -> None:
    """A GET opens a stream and a DELETE ends the session. A client without a session may use neither."""
    world, _, sessions = peopled()
    channel = opened(world, kind("pipe", "", sessions[session], revision))
    if session == "none":
        outcome: tuple[Any, ...] = (405, INVALID, None) if revision == MODERN else (400, INVALID, None)
    elif session != "own":
        outcome = 404, INVALID, None
    elif revision in (MODERN, UNKNOWN):
        outcome = 400, INVALID, None
    else:
        outcome = () if kind is GetOpening else (204,)
    assert seen(world, channel) == outcome
    assert world.engine.session_count == 2 - (outcome == (204,))


def test_a_post_has_one_body() -> None:
    world, client, _ = peopled()
    channel = client.request("1", "tools/call", '{"name":"t"}')
    with pytest.raises(LocalProtocolError, match="has one body"):
        world.send(channel, BODIES["call"])


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_session_has_so_many_event_streams(count: int) -> None:
    """The bound itself is within. Beyond it the oldest stream is closed, and the others go on."""
    world = driver(limits=Limits(streams_per_session_max=2))
    client = connect(world, "http", "pipe")
    streams = [client.listen() for _ in range(count)]
    closed = [close for close in world.every(Close) if close.channel in streams]
    assert [close.channel for close in closed] == streams[: max(0, count - 2)]
    assert all("many event streams" in close.reason for close in closed)


def test_an_unknown_event_id_is_refused() -> None:
    """An unknown event id is refused. A new stream in its place would hide the loss."""
    world, client, _ = peopled()
    channel = client.resume("nothing/1")
    assert seen(world, channel) == (400, INVALID, None)


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_client_that_disconnects_before_it_knows_its_session_has_none(is_answered: bool) -> None:
    """A client that was not told its session id could never use the session. After that, the end of the response ends
    nothing."""
    world = driver()
    client = new_client(world, "http", "pipe")
    channel = client.initialize()
    assert world.engine.session_count == 1
    if is_answered:
        world.start_server()
        assert world.sent[channel][-1].session is not None
    world.end(channel, DONE if is_answered else GONE)
    assert world.engine.session_count == is_answered


def test_a_session_is_idle_from_the_end_of_its_stream_on() -> None:
    """A message without an answer begins the idle time anew."""
    world = driver(limits=Limits(session_idle_ttl_s=100.0))
    client = connect(world, "http", "pipe")
    stream = client.listen()
    world.wait(150)
    assert world.engine.session_count == 1, "a stream is open"
    world.end(stream)
    world.wait(60)
    client.notify("notifications/vendor")
    world.wait(99.9)
    assert world.engine.session_count == 1
    world.wait(0.1)
    assert world.engine.session_count == 0


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_the_messages_that_a_batch_may_have(revision: str) -> None:
    """A batch may have requests, notifications and answers, if the revision has batches. Each id may occur once, and
    `initialize` not at all."""
    world = driver()
    client = connect(world, "http", "pipe", revision=revision)
    has_batches = revision in ("2024-11-05", "2025-03-26")
    calls = [request(str(number), "tools/call", '{"name":"t"}') for number in (1, 2)]
    channel = client.post(b"[" + b",".join(calls) + b"]")
    assert seen(world, channel) == (() if has_batches else (400, INVALID, None))
    assert len(world.unread) == (2 if has_batches else 0)
    quiet = client.post(b"[" + BODIES["notification"] + b"," + BODIES["answer"] + b"]")
    assert seen(world, quiet) == ((202,) if has_batches else (400, INVALID, None))
    world.unread.clear()
    for wrong in ([calls[0], calls[0]], [BODIES["initialize"], calls[0]], [BODIES["modern call"]], [b"5"], []):
        refused = client.post(b"[" + b",".join(wrong) + b"]")
        assert seen(world, refused)[0] == 400
        assert not world.unread
