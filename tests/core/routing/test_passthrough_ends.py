"""What a large answer ends beside its call: the time of its reply, resumptions, and doubts about its server."""

from __future__ import annotations

import json

import pytest
from driving import Client, Driver, Heard, connect, driver
from isthmus.core.base.effects import Cause, Close, Connected, End, Note, Pass, Spawn
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.jsonrpc.envelope_edges import PARTS_MIN_BYTES
from stateless_driving import tables

LARGE = 300_000
GRACE_S = Limits().cancel_grace_s
LIMITS = Limits(session_idle_ttl_s=1e6)


def answer_to(heard: Heard, size_bytes: int = LARGE) -> bytes:
    """A message of so many bytes."""
    text = '{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%s"}]}}'
    return (text % (heard.id, "x" * (size_bytes - len(text % (heard.id, ""))))).encode()


def call(client: Client, id_raw: str = "1", method: str = "tools/call", params: str = '{"name":"t"}') -> ChannelId:
    return client.request(id_raw, method, params)


def called(up: str = "http", limits: Limits = LIMITS) -> tuple[Driver, Client, ChannelId, Heard]:
    world = driver(limits=limits)
    client = connect(world, "http", up)
    channel = call(client)
    return world, client, channel, world.hear("tools/call")


# --- What passes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("off", [-1, 0, 1])
def test_what_passes_in_parts_is_so_large_at_least_and_at_most(off: int) -> None:
    """Both bounds are within."""
    world, _, _, heard = called(limits=Limits(reply_size_max_bytes=LARGE))
    beginning = answer_to(heard)[:1000]
    assert world.engine.passes(heard.channel, beginning, PARTS_MIN_BYTES + off) is (off >= 0)
    assert world.engine.passes(heard.channel, beginning, LARGE + off) is (off <= 0)


@pytest.mark.parametrize("how", ["second beginning", "no beginning", "too much at once", "too much later"])
def test_a_part_that_cannot_be_one_is_refused_and_changes_nothing(how: str) -> None:
    """A message begins once, with bytes of its own, and has no more than it said."""
    world, _, channel, heard = called()
    message = answer_to(heard)
    if how == "no beginning":
        with pytest.raises(LocalProtocolError, match="does not pass"):
            world.say_part(heard.channel, size_bytes=LARGE)
    elif how == "too much at once":
        with pytest.raises(LocalProtocolError, match=f"more than the {LARGE} bytes"):
            world.say_part(heard.channel, message, b"x", size_bytes=LARGE)
    world.say_part(heard.channel, message[:1000], size_bytes=LARGE)
    if how == "second beginning":
        with pytest.raises(LocalProtocolError, match="does not pass"):
            world.say_part(heard.channel, message[:1000], size_bytes=LARGE)
    elif how == "too much later":
        with pytest.raises(LocalProtocolError, match=f"more than the {LARGE - 1000} bytes"):
            world.say_part(heard.channel, message[1000:], b"x")
    world.say_part(heard.channel, message[1000:], is_last=True)
    assert len(json.loads(world.messages(channel)[0])["result"]["content"][0]["text"]) > LARGE - 200


# --- Time -------------------------------------------------------------------------------------------------------------


def in_pieces(world: Driver, heard: Heard) -> None:
    message = answer_to(heard)
    world.open(heard.channel, Connected())
    world.say_pieces(heard.channel, message[:1000], message[1000:])


def at_once(world: Driver, heard: Heard) -> None:
    world.say_part(heard.channel, answer_to(heard), size_bytes=LARGE)


def in_parts(world: Driver, heard: Heard) -> None:
    message = answer_to(heard)
    world.say_part(heard.channel, message[:1000], size_bytes=LARGE)
    world.wait(2 * GRACE_S)
    assert heard.channel not in world.closed, "it is under way"
    world.say_part(heard.channel, message[1000:])


@pytest.mark.parametrize("way", [in_pieces, at_once, in_parts])
def test_a_reply_that_stays_open_behind_its_answer_is_ended(way: object) -> None:
    """Its server has a moment to do it."""
    world, _, channel, heard = called()
    assert callable(way)
    way(world, heard)
    assert len(world.messages(channel)) == 1
    world.wait(GRACE_S - 0.1)
    assert heard.channel not in world.closed
    world.wait(0.1)
    assert heard.channel in world.closed
    assert world.messages(channel) and world.engine.exchange_count == 0


def test_a_reply_that_brings_the_answer_to_another_stays_open_for_its_own() -> None:
    world, client, channel, heard = called()
    other_channel = call(client, "2")
    other = world.hear("tools/call")
    world.open(heard.channel, Connected())
    message = answer_to(other)
    world.say_pieces(heard.channel, message[:1000], message[1000:])
    assert len(world.messages(other_channel)) == 1
    world.wait(GRACE_S + 1)
    assert heard.channel not in world.closed
    world.answer(heard, '{"n":1}')
    assert world.said(channel)["result"] == {"n": 1}


def test_a_call_that_was_answered_is_not_given_up() -> None:
    """Its time to answer is over with the first part."""
    world, _, _, heard = called(limits=Limits(reply_timeout_s=50.0))
    world.wait(1)
    world.say_part(heard.channel, answer_to(heard)[:1000], size_bytes=LARGE)
    assert not [purpose for purpose, _ in world.engine._desk.timers._live if purpose == "reply"]
    world.wait(49)
    assert not world.hears("notifications/cancelled")


# --- Resumptions ------------------------------------------------------------------------------------------------------


def test_a_call_that_is_answered_elsewhere_is_not_resumed() -> None:
    """Its reply was cut, and was to be taken up again: the answer came on the event stream meanwhile."""
    world = driver(limits=LIMITS)
    client = connect(world, "http", "http", listens=True)
    stream = world.dials[-1].channel
    channel = call(client)
    heard = world.hear("tools/call")
    world.open(heard.channel, Connected())
    world.end(heard.channel, Cause(End.BROKEN, detail="reset", last_event_id="e1"))
    assert [purpose for purpose, _ in world.engine._desk.timers._live if purpose == "resume"]
    message = answer_to(heard)
    world.say_pieces(stream, message[:1000], message[1000:])
    assert len(world.messages(channel)) == 1 and world.every(Pass)
    assert not [purpose for purpose, _ in world.engine._desk.timers._live if purpose == "resume"]
    dials = len(world.dials)
    world.wait(60)
    assert len(world.dials) == dials


@pytest.mark.parametrize("speaks", [True, False])
def test_an_event_stream_that_brought_a_large_answer_was_not_idle(speaks: bool) -> None:
    """One that ends again and again is opened less and less often, until it brings something."""
    limits = Limits(session_idle_ttl_s=1e6, polling_pause_min_s=1.0, polling_idle_max_s=64.0)
    world = driver(limits=limits)
    client = connect(world, "http", "http", listens=True)
    for count in range(4):
        stream = world.dials[-1].channel
        if count:
            world.open(stream, Connected())
        if count == 3 and speaks:
            call(client)
            message = answer_to(world.hear("tools/call"))
            world.say_pieces(stream, message[:1000], message[1000:])
            assert world.every(Pass)
        world.end(stream, Cause(End.DONE, last_event_id="e", retry_ms=1000))
        due = next(at for (purpose, _), (at, *_) in world.engine._desk.timers._live.items() if purpose == "relisten")
        if count < 3:
            world.wait(due - world.now)
    assert due - world.now == (1.0 if speaks else 8.0)


# --- Doubts about its server ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lives", "starts"),
    [
        (("answers", "answers", "answers"), ["at once", "at once", "at once"]),
        (("silent", "silent", "answers", "silent"), ["at once", "soon", "at once", "soon"]),
        (("silent", "silent", "silent"), ["at once", "soon", "not soon"]),
    ],
)
def test_a_server_that_gave_a_large_answer_has_proved_itself(lives: tuple[str, ...], starts: list[str]) -> None:
    """Earlier deaths do not count. One that dies before it has answered anything, twice in a row, is left alone for a
    moment; for longer if that is a loop."""
    world = driver(limits=Limits(crash_loop_failures=2, restart_backoff_s=1.0))
    client = connect(world, "http", "pipe")
    call(client, "0")
    seen = []

    def is_started() -> bool:
        return any(isinstance(dial.target, Spawn) for dial in world.dials[before:])

    for number, life in enumerate(lives, start=1):
        heard = world.hear("tools/call")
        if life == "answers":
            channel = call(client, f"1{number}")
            message = answer_to(world.hear("tools/call"))
            passed = len(world.every(Pass))
            world.say_pieces(heard.channel, message[:1000], message[1000:])
            assert len(world.messages(channel)) == 1 and len(world.every(Pass)) == passed + 1
        world.end(heard.channel, Cause(End.BROKEN, "exited with code 1"))
        before = len(world.dials)
        call(client, str(number))
        at_once = is_started()
        if not at_once:
            world.wait(1.0)
            call(client, f"2{number}")
        seen.append("at once" if at_once else "soon" if is_started() else "not soon")
        if is_started():
            world.shake_hands()
    assert seen == starts


# --- Its session ------------------------------------------------------------------------------------------------------


def test_a_session_is_idle_from_its_last_large_answer_on() -> None:
    """It lives as long as others after that."""
    world, _, channel, heard = called(limits=Limits(session_idle_ttl_s=10.0))
    world.wait(4)
    in_pieces(world, heard)
    assert len(world.messages(channel)) == 1 and world.every(Pass)
    world.wait(9.9)
    assert world.engine.session_count == 1
    world.wait(0.1)
    assert world.engine.session_count == 0


# --- Broken off -------------------------------------------------------------------------------------------------------


def test_of_an_answer_that_breaks_off_the_log_and_its_client_learn() -> None:
    """How much was to come, and why it will not."""
    world, _, channel, heard = called()
    world.say_part(heard.channel, answer_to(heard)[:1000], size_bytes=LARGE)
    world.log.clear()
    world.end(heard.channel, Cause(End.BROKEN, "the connection was reset"))
    (note,) = world.every(Note)
    assert (note.level, note.server) == ("warning", "http")
    assert note.text.startswith(f"the server's answer was cut off, with {LARGE - 1000} bytes to come: ")
    assert "the connection was reset" in note.text
    (close,) = world.every(Close)
    assert (close.channel, close.reason) == (channel, "the server's answer was cut off")


def test_the_last_part_may_bring_the_end() -> None:
    """As the end by itself would have: nothing is ordered for the channel any more."""
    world, _, channel, heard = called()
    answer = answer_to(heard)
    world.say_part(heard.channel, answer[:1000], size_bytes=LARGE)
    world.say_part(heard.channel, answer[1000:], is_last=True)
    world.wait(2 * GRACE_S)
    assert heard.channel not in world.closed
    assert not any(link.posts for link in tables(world.engine)["links"])
    assert world.messages(channel)[-1].endswith(answer[-1000:])
