"""What comes of each request over HTTP, by the session and the revision that it names, and by what is in it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import DONE, GONE, Client, Driver, connect, driver, newcomer, notification, request, result
from isthmus.core.base.effects import Close, DeleteOpening, GetOpening, Opening, PostOpening
from isthmus.core.base.errors import LocalProtocolError
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
    """Two clients, of two principals, and what the first may name as its session."""
    world = driver()
    client = connect(world, "http", "pipe")
    other = connect(world, "http", "pipe", principal="bob")
    return world, client, {"own": client.session, "none": None, "unknown": "nobody", "foreign": other.session}


def opened(world: Driver, opening: Opening) -> ChannelId:
    channel = world.engine.new_channel()
    world.open(channel, opening)
    return channel


def seen(world: Driver, channel: ChannelId) -> tuple[Any, ...]:
    """Status, code and id of what a request is answered with at once; the status alone, or nothing."""
    if channel in world.closed:
        return (world.closed[channel].status,)
    if not world.sent[channel]:
        return ()
    (sent,) = world.sent[channel]
    frame = json.loads(sent.message)
    return sent.status, frame["error"]["code"], frame["id"]


def expected(session: str, body: str, revision: str | None) -> tuple[Any, ...]:
    """By the specification, slowly."""
    lost = {"none": (400, INVALID, None), "unknown": (404, INVALID, None), "foreign": (404, INVALID, None)}
    if body == "garbage":
        return 400, PARSE, None
    if body == "batch":
        return lost.get(session, (400, INVALID, None))
    if body == "modern notification":
        return (202,)
    if body == "modern call":
        return 400, MISMATCH, 7  # it has not the headers of its body
    if revision == MODERN:  # without sessions, and without what that takes
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
def test_what_comes_of_a_post(session: str, body: str, revision: str | None) -> None:
    """Its status, and whether its server hears of it, or a session begins."""
    world, _, sessions = peopled()
    channel = opened(world, PostOpening("pipe", "", sessions[session], revision, base_url="http://here"))
    world.say(channel, BODIES[body])
    said = expected(session, body, revision)
    assert seen(world, channel) == said
    passes = session == "own" and body in ("call", "notification") and revision in (None, NEGOTIATED, OTHER)
    assert [heard.frame["method"] for heard in world.heard] == ([json.loads(BODIES[body])["method"]] if passes else [])
    assert world.engine.session_count == 2 + (body == "initialize" and said == ())


@pytest.mark.parametrize("kind", [GetOpening, DeleteOpening])
@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize("revision", REVISIONS)
def test_what_comes_of_a_get_and_of_a_delete(kind: Any, session: str, revision: str | None) -> None:
    """A stream, or the end of a session; of a client without sessions neither is known."""
    world, _, sessions = peopled()
    channel = opened(world, kind("pipe", "", sessions[session], revision))
    if session == "none":
        said: tuple[Any, ...] = (405, INVALID, None) if revision == MODERN else (400, INVALID, None)
    elif session != "own":
        said = 404, INVALID, None
    elif revision in (MODERN, UNKNOWN):
        said = 400, INVALID, None
    else:
        said = () if kind is GetOpening else (204,)
    assert seen(world, channel) == said
    assert world.engine.session_count == 2 - (said == (204,))


def test_a_post_has_one_body() -> None:
    world, client, _ = peopled()
    channel = client.request("1", "tools/call", '{"name":"t"}')
    with pytest.raises(LocalProtocolError, match="has one body"):
        world.say(channel, BODIES["call"])


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_session_has_so_many_event_streams(count: int) -> None:
    """The bound itself is within; then the oldest is closed, and the others go on."""
    world = driver(limits=Limits(streams_per_session_max=2))
    client = connect(world, "http", "pipe")
    streams = [client.listen() for _ in range(count)]
    closed = [close for close in world.every(Close) if close.channel in streams]
    assert [close.channel for close in closed] == streams[: max(0, count - 2)]
    assert all("many event streams" in close.reason for close in closed)


def test_a_stream_that_is_not_known_is_not_resumed() -> None:
    """Refused, not begun anew: that would hide what was lost."""
    world, client, _ = peopled()
    channel = client.resume("nothing/1")
    assert seen(world, channel) == (400, INVALID, None)


@pytest.mark.parametrize("is_told", [True, False])
def test_who_hangs_up_before_it_knows_its_session_has_none(is_told: bool) -> None:
    """Nobody could come back to it. Once it was told, the end of that reply ends nothing."""
    world = driver()
    client = newcomer(world, "http", "pipe")
    channel = client.initialize()
    assert world.engine.session_count == 1
    if is_told:
        world.shake_hands()
        assert world.sent[channel][-1].session is not None
    world.end(channel, DONE if is_told else GONE)
    assert world.engine.session_count == is_told


def test_a_session_is_idle_from_the_end_of_its_stream_on() -> None:
    """And from each message without an answer."""
    world = driver(limits=Limits(session_idle_ttl_s=100.0))
    client = connect(world, "http", "pipe")
    stream = client.listen()
    world.wait(150)
    assert world.engine.session_count == 1, "somebody listens"
    world.end(stream)
    world.wait(60)
    client.notify("notifications/vendor")
    world.wait(99.9)
    assert world.engine.session_count == 1
    world.wait(0.1)
    assert world.engine.session_count == 0


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_what_may_come_in_a_batch(revision: str) -> None:
    """Requests, notifications and answers where the revision has batches; each id once, and no `initialize`."""
    world = driver()
    client = connect(world, "http", "pipe", revision=revision)
    has_batches = revision in ("2024-11-05", "2025-03-26")
    calls = [request(str(number), "tools/call", '{"name":"t"}') for number in (1, 2)]
    channel = client.post(b"[" + b",".join(calls) + b"]")
    assert seen(world, channel) == (() if has_batches else (400, INVALID, None))
    assert len(world.heard) == (2 if has_batches else 0)
    quiet = client.post(b"[" + BODIES["notification"] + b"," + BODIES["answer"] + b"]")
    assert seen(world, quiet) == ((202,) if has_batches else (400, INVALID, None))
    world.heard.clear()
    for wrong in ([calls[0], calls[0]], [BODIES["initialize"], calls[0]], [BODIES["modern call"]], [b"5"], []):
        refused = client.post(b"[" + b",".join(wrong) + b"]")
        assert seen(world, refused)[0] == 400
        assert not world.heard
