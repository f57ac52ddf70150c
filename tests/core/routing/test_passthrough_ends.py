"""Tests of the side effects of large answers: on reply timeouts, resumptions, crash loops and idle sessions."""

from __future__ import annotations

import json

import pytest
from driving import Client, Driver, SentMessage, connect, driver
from isthmus.core.base.effects import Close, Note, Pass, Spawn
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.jsonrpc.envelope_edges import PARTS_MIN_BYTES
from stateless_driving import tables

LARGE = 300_000
GRACE_S = Limits().cancel_grace_s
LIMITS = Limits(session_idle_ttl_s=1e6)


def answer_to(received: SentMessage, size_bytes: int = LARGE) -> bytes:
    """A response of so many bytes."""
    text = '{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%s"}]}}'
    return (text % (received.id, "x" * (size_bytes - len(text % (received.id, ""))))).encode()


def call(client: Client, id_raw: str = "1", method: str = "tools/call", params: str = '{"name":"t"}') -> ChannelId:
    return client.request(id_raw, method, params)


def called(up: str = "http", limits: Limits = LIMITS) -> tuple[Driver, Client, ChannelId, SentMessage]:
    world = driver(limits=limits)
    client = connect(world, "http", up)
    channel = call(client)
    return world, client, channel, world.take_sent("tools/call")


# --- Parts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("off", [-1, 0, 1])
def test_an_answer_passes_in_parts_within_two_bounds(off: int) -> None:
    """The bounds themselves are within."""
    world, _, _, received = called(limits=Limits(reply_size_max_bytes=LARGE))
    beginning = answer_to(received)[:1000]
    assert world.engine.passes(received.channel, beginning, PARTS_MIN_BYTES + off) is (off >= 0)
    assert world.engine.passes(received.channel, beginning, LARGE + off) is (off <= 0)


@pytest.mark.parametrize("how", ["second beginning", "no beginning", "too much at once", "too much later"])
def test_an_invalid_part_is_refused_and_changes_nothing(how: str) -> None:
    """A message begins once, with at least one byte, and has no more bytes than were announced."""
    world, _, channel, received = called()
    message = answer_to(received)
    if how == "no beginning":
        with pytest.raises(LocalProtocolError, match="does not pass"):
            world.send_part(received.channel, size_bytes=LARGE)
    elif how == "too much at once":
        with pytest.raises(LocalProtocolError, match=f"more than the {LARGE} bytes"):
            world.send_part(received.channel, message, b"x", size_bytes=LARGE)
    world.send_part(received.channel, message[:1000], size_bytes=LARGE)
    if how == "second beginning":
        with pytest.raises(LocalProtocolError, match="does not pass"):
            world.send_part(received.channel, message[:1000], size_bytes=LARGE)
    elif how == "too much later":
        with pytest.raises(LocalProtocolError, match=f"more than the {LARGE - 1000} bytes"):
            world.send_part(received.channel, message[1000:], b"x")
    world.send_part(received.channel, message[1000:], is_last=True)
    assert len(json.loads(world.messages(channel)[0])["result"]["content"][0]["text"]) > LARGE - 200


# --- Time -------------------------------------------------------------------------------------------------------------


def in_pieces(world: Driver, received: SentMessage) -> None:
    message = answer_to(received)
    world.open(received.channel, Connected())
    world.send_pieces(received.channel, message[:1000], message[1000:])


def at_once(world: Driver, received: SentMessage) -> None:
    world.send_part(received.channel, answer_to(received), size_bytes=LARGE)


def in_parts(world: Driver, received: SentMessage) -> None:
    message = answer_to(received)
    world.send_part(received.channel, message[:1000], size_bytes=LARGE)
    world.wait(2 * GRACE_S)
    assert received.channel not in world.closed, "it is under way"
    world.send_part(received.channel, message[1000:])


@pytest.mark.parametrize("send", [in_pieces, at_once, in_parts])
def test_a_response_that_stays_open_after_its_answer_is_ended(send: object) -> None:
    """The server has a moment to end it by itself."""
    world, _, channel, received = called()
    assert callable(send)
    send(world, received)
    assert len(world.messages(channel)) == 1
    world.wait(GRACE_S - 0.1)
    assert received.channel not in world.closed
    world.wait(0.1)
    assert received.channel in world.closed
    assert world.messages(channel) and world.engine.exchange_count == 0


def test_a_response_with_the_answer_to_another_request_stays_open() -> None:
    world, client, channel, received = called()
    other_channel = call(client, "2")
    other = world.take_sent("tools/call")
    world.open(received.channel, Connected())
    message = answer_to(other)
    world.send_pieces(received.channel, message[:1000], message[1000:])
    assert len(world.messages(other_channel)) == 1
    world.wait(GRACE_S + 1)
    assert received.channel not in world.closed
    world.answer(received, '{"n":1}')
    assert world.only_message(channel)["result"] == {"n": 1}


def test_a_call_that_was_answered_is_not_given_up() -> None:
    """The reply timeout ends with the first part."""
    world, _, _, received = called(limits=Limits(reply_timeout_s=50.0))
    world.wait(1)
    world.send_part(received.channel, answer_to(received)[:1000], size_bytes=LARGE)
    assert not [purpose for purpose, _ in tables(world.engine)["timers"] if purpose == "reply"]
    world.wait(49)
    assert not world.was_sent("notifications/cancelled")


# --- Resumptions ------------------------------------------------------------------------------------------------------


def test_a_call_that_is_answered_elsewhere_is_not_resumed() -> None:
    """The response was cut off and was to be resumed. Meanwhile the answer came on the event stream."""
    world = driver(limits=LIMITS)
    client = connect(world, "http", "http", listens=True)
    stream = world.dials[-1].channel
    channel = call(client)
    received = world.take_sent("tools/call")
    world.open(received.channel, Connected())
    world.end(received.channel, Cause(End.BROKEN, detail="reset", last_event_id="e1"))
    assert [purpose for purpose, _ in tables(world.engine)["timers"] if purpose == "resume"]
    message = answer_to(received)
    world.send_pieces(stream, message[:1000], message[1000:])
    assert len(world.messages(channel)) == 1 and world.every(Pass)
    assert not [purpose for purpose, _ in tables(world.engine)["timers"] if purpose == "resume"]
    dials = len(world.dials)
    world.wait(60)
    assert len(world.dials) == dials


@pytest.mark.parametrize("speaks", [True, False])
def test_an_event_stream_that_brought_a_large_answer_was_not_idle(speaks: bool) -> None:
    """A stream that ends again and again is opened less and less often, until it brings something."""
    limits = Limits(session_idle_ttl_s=1e6, polling_pause_min_s=1.0, polling_idle_max_s=64.0)
    world = driver(limits=limits)
    client = connect(world, "http", "http", listens=True)
    for count in range(4):
        stream = world.dials[-1].channel
        if count:
            world.open(stream, Connected())
        if count == 3 and speaks:
            call(client)
            message = answer_to(world.take_sent("tools/call"))
            world.send_pieces(stream, message[:1000], message[1000:])
            assert world.every(Pass)
        world.end(stream, Cause(End.DONE, last_event_id="e", retry_ms=1000))
        due = next(at for (purpose, _), (at, *_) in tables(world.engine)["timers"].items() if purpose == "relisten")
        if count < 3:
            world.wait(due - world.now)
    assert due - world.now == (1.0 if speaks else 8.0)


# --- Crash loops ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lives", "starts"),
    [
        (("answers", "answers", "answers"), ["at once", "at once", "at once"]),
        (("silent", "silent", "answers", "silent"), ["at once", "soon", "at once", "soon"]),
        (("silent", "silent", "silent"), ["at once", "soon", "not soon"]),
    ],
)
def test_a_server_that_gave_a_large_answer_has_proved_itself(lives: tuple[str, ...], starts: list[str]) -> None:
    """Earlier failures do not count. A server that dies twice in a row before it has answered anything is left alone
    for a moment, or for longer if that is a crash loop."""
    world = driver(limits=Limits(crash_loop_failures=2, restart_backoff_s=1.0))
    client = connect(world, "http", "pipe")
    call(client, "0")
    seen = []

    def is_started() -> bool:
        return any(isinstance(dial.target, Spawn) for dial in world.dials[before:])

    for number, life in enumerate(lives, start=1):
        received = world.take_sent("tools/call")
        if life == "answers":
            channel = call(client, f"1{number}")
            message = answer_to(world.take_sent("tools/call"))
            passed = len(world.every(Pass))
            world.send_pieces(received.channel, message[:1000], message[1000:])
            assert len(world.messages(channel)) == 1 and len(world.every(Pass)) == passed + 1
        world.end(received.channel, Cause(End.BROKEN, "exited with code 1"))
        before = len(world.dials)
        call(client, str(number))
        at_once = is_started()
        if not at_once:
            world.wait(1.0)
            call(client, f"2{number}")
        seen.append("at once" if at_once else "soon" if is_started() else "not soon")
        if is_started():
            world.start_server()
    assert seen == starts


# --- Sessions ---------------------------------------------------------------------------------------------------------


def test_a_session_is_idle_from_its_last_large_answer_on() -> None:
    """The session lives as long after that as after any other answer."""
    world, _, channel, received = called(limits=Limits(session_idle_ttl_s=10.0))
    world.wait(4)
    in_pieces(world, received)
    assert len(world.messages(channel)) == 1 and world.every(Pass)
    world.wait(9.9)
    assert world.engine.session_count == 1
    world.wait(0.1)
    assert world.engine.session_count == 0


# --- Broken off -------------------------------------------------------------------------------------------------------


def test_an_answer_that_breaks_off_is_noted_and_its_client_closed() -> None:
    """The note says how many bytes are missing, and why."""
    world, _, channel, received = called()
    world.send_part(received.channel, answer_to(received)[:1000], size_bytes=LARGE)
    world.log.clear()
    world.end(received.channel, Cause(End.BROKEN, "the connection was reset"))
    (note,) = world.every(Note)
    assert (note.level, note.server) == ("warning", "http")
    assert note.text.startswith(f"the server's answer was cut off, with {LARGE - 1000} bytes to come: ")
    assert "the connection was reset" in note.text
    (close,) = world.every(Close)
    assert (close.channel, close.reason) == (channel, "the server's answer was cut off")


def test_the_last_part_may_bring_the_end() -> None:
    """The effects are those of a separate end: the channel gets no more orders."""
    world, _, channel, received = called()
    answer = answer_to(received)
    world.send_part(received.channel, answer[:1000], size_bytes=LARGE)
    world.send_part(received.channel, answer[1000:], is_last=True)
    world.wait(2 * GRACE_S)
    assert received.channel not in world.closed
    assert not any(link.posts for link in tables(world.engine)["links"])
    assert world.messages(channel)[-1].endswith(answer[-1000:])
