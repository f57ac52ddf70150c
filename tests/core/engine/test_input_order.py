"""Inputs in a wrong order, or of a wrong type, are refused in words, and leave the engine as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from driving import DONE, LATEST, driver, request, result
from isthmus.core.base.effects import Dial, Effect, Send
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.events import (
    Cause,
    Connected,
    DraftOpening,
    End,
    GetOpening,
    PipeOpening,
    PostOpening,
    Primed,
    Queued,
)
from isthmus.core.base.ids import ChannelId
from isthmus.core.bulk import BulkEngine
from isthmus.core.status import Command

HELLO = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
WELCOME = {"protocolVersion": LATEST, "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
INITIALIZE = request("0", "initialize", json.dumps(HELLO))
NOW = 100.0


class Stage(NamedTuple):
    """An engine with a channel in each state.

    Attributes:
        new: a number from `new_channel`, not open yet.
        client: an open pipe, whose client has said `initialize`.
        dialled: the channel to its server, not open yet.
        over: a channel that was open, and is over.
        unknown: a number that was never given out.
    """

    engine: BulkEngine
    new: ChannelId
    client: ChannelId
    dialled: ChannelId
    over: ChannelId
    unknown: ChannelId


def stage(server: str) -> Stage:
    engine = driver(is_checked=False).engine
    client, over = engine.new_channel(), engine.new_channel()
    engine.receive_open(over, PipeOpening(server), NOW)
    engine.receive_close(over, DONE, NOW)
    engine.receive_open(client, PipeOpening(server), NOW)
    (dial,) = [order for order in engine.receive_message(client, INITIALIZE, NOW) if isinstance(order, Dial)]
    return Stage(engine, engine.new_channel(), client, dial.channel, over, ChannelId(99))


def goes_on(on: Stage, server: str) -> None:
    """Asserts that the handshake goes on, and that the new channel can still be opened."""
    engine = on.engine
    orders: list[Effect] = engine.receive_open(on.dialled, Connected("S"), NOW)
    number = json.loads(next((o.message for o in orders if isinstance(o, Send)), b'{"id":1}'))["id"]
    orders = engine.receive_message(on.dialled, result(str(number), json.dumps(WELCOME)), NOW)
    assert on.client in [order.channel for order in orders if isinstance(order, Send)]
    assert engine.receive_open(on.new, PipeOpening(server), NOW) == []
    assert any(isinstance(order, Dial) for order in engine.receive_message(on.new, INITIALIZE, NOW))


EARLY = "expected receive_open with"
REFUSED: dict[str, tuple[Callable[[Stage], object], str]] = {
    "a message before its channel is open": (
        lambda on: on.engine.receive_message(on.new, INITIALIZE, NOW),
        f"got a message on channel 4, {EARLY} an opening before",
    ),
    "several messages before": (
        lambda on: on.engine.receive_messages(on.new, [INITIALIZE], NOW),
        f"got a message on channel 4, {EARLY} an opening before",
    ),
    "a message in pieces before": (
        lambda on: on.engine.receive_pieces(on.new, (b"{", b"}"), NOW),
        f"got a message on channel 4, {EARLY} an opening before",
    ),
    "a message at once before": (
        lambda on: on.engine.receive_at_once(on.new, NOW, message=INITIALIZE, cause=DONE),
        f"got a message on channel 4, {EARLY} an opening before",
    ),
    "a message of a server before Connected": (
        lambda on: on.engine.receive_message(on.dialled, result("1"), NOW),
        f"got a message on channel 3, {EARLY} a Connected before",
    ),
    "several of a server": (
        lambda on: on.engine.receive_messages(on.dialled, [result("1"), result("2")], NOW),
        f"got a message on channel 3, {EARLY} a Connected before",
    ),
    "one of a server in pieces": (
        lambda on: on.engine.receive_pieces(on.dialled, (result("1"),), NOW),
        f"got a message on channel 3, {EARLY} a Connected before",
    ),
    "one of a server at once": (
        lambda on: on.engine.receive_at_once(on.dialled, NOW, message=result("1"), cause=DONE),
        f"got a message on channel 3, {EARLY} a Connected before",
    ),
    "one of a server in parts": (
        lambda on: on.engine.receive_part(on.dialled, (b"{",), NOW, size_bytes=10**6),
        f"got a message on channel 3, {EARLY} a Connected before",
    ),
    "an event id of a server": (
        lambda on: on.engine.receive_open(on.dialled, Primed(), NOW),
        f"got Primed on channel 3, {EARLY} a Connected before",
    ),
    "bytes sent before": (
        lambda on: on.engine.receive_sent(on.new, 5, NOW),
        f"got receive_sent on channel 4, {EARLY} an opening before",
    ),
    "bytes sent to a server, none ordered": (
        lambda on: on.engine.receive_sent(on.dialled, 5, NOW),
        "got 5 bytes as sent on channel 3, expected at most the 0 that were ordered and have not left",
    ),
    "bytes sent, less than none": (
        lambda on: on.engine.receive_sent(on.client, -1, NOW),
        "got -1 bytes as sent on channel 1, expected at most the 0 that were ordered and have not left",
    ),
    "too many bytes beside a message": (
        lambda on: on.engine.receive_at_once(on.client, NOW, message=request("1", "ping"), size_bytes=5),
        "got 5 bytes as sent on channel 1, expected at most the 0 that were ordered and have not left",
    ),
    "Connected for a client": (
        lambda on: on.engine.receive_open(on.client, Connected(), NOW),
        "got Connected on channel 1, which no Dial ordered",
    ),
    "Connected for a new channel": (
        lambda on: on.engine.receive_open(on.new, Connected(), NOW),
        f"got Connected on channel 4, {EARLY} an opening before",
    ),
    "a client on a dialled channel": (
        lambda on: on.engine.receive_open(on.dialled, PipeOpening("pipe"), NOW),
        "channel 3 is open already, expected a number from new_channel",
    ),
    "a channel opened twice": (
        lambda on: on.engine.receive_open(on.client, PipeOpening("pipe"), NOW),
        "channel 1 is open already, expected a number from new_channel",
    ),
    "a channel opened again": (
        lambda on: on.engine.receive_open(on.over, PipeOpening("pipe"), NOW),
        "channel 2 is over, or was never given out, expected a number from new_channel",
    ),
    "an unknown channel opened": (
        lambda on: on.engine.receive_open(on.unknown, PipeOpening("pipe"), NOW),
        "channel 99 is over, or was never given out, expected a number from new_channel",
    ),
    "Connected for an unknown channel": (
        lambda on: on.engine.receive_open(on.unknown, Connected(), NOW),
        "got Connected on channel 99, which was never given out",
    ),
    "a message on an unknown channel": (
        lambda on: on.engine.receive_message(on.unknown, b"{}", NOW),
        "got a message on channel 99, which was never given out",
    ),
    "bytes sent on an unknown channel": (
        lambda on: on.engine.receive_sent(on.unknown, 1, NOW),
        "got receive_sent on channel 99, which was never given out",
    ),
    "the end of an unknown channel": (
        lambda on: on.engine.receive_close(on.unknown, DONE, NOW),
        "got receive_close on channel 99, which was never given out",
    ),
    "time that is no number": (
        lambda on: on.engine.handle_timeout(float("nan")),
        "time runs backwards: nan after 100.0",
    ),
}


@pytest.mark.parametrize("server", ["pipe", "http"])
@pytest.mark.parametrize("name", REFUSED)
def test_an_input_out_of_order_is_refused_and_changes_nothing(name: str, server: str) -> None:
    on = stage(server)
    act, text = REFUSED[name]
    with pytest.raises(LocalProtocolError) as refused:
        act(on)
    assert str(refused.value) == text
    goes_on(on, server)


any_value: Any = "gone"
WRONG: dict[str, tuple[Callable[[Stage], object], str]] = {
    "a message that can change": (
        lambda on: on.engine.receive_message(on.client, bytearray(b"{}"), NOW),
        "got a message of type bytearray, expected bytes: pass bytes(…) of it",
    ),
    "a view of a message": (
        lambda on: on.engine.receive_message(on.client, memoryview(b"{}"), NOW),  # type: ignore[arg-type]
        "got a message of type memoryview, expected bytes: pass bytes(…) of it",
    ),
    "a text": (
        lambda on: on.engine.receive_message(on.client, any_value, NOW),
        "got a message of type str, expected bytes: encode it",
    ),
    "no message": (
        lambda on: on.engine.receive_message(on.client, None, NOW),  # type: ignore[arg-type]
        "got a message of type NoneType, expected bytes: pass bytes(…) of it",
    ),
    "a text after a message": (
        lambda on: on.engine.receive_messages(on.client, [request("1", "ping"), any_value], NOW),
        "got a message of type str, expected bytes: encode it",
    ),
    "a text after a piece": (
        lambda on: on.engine.receive_pieces(on.client, (b"{", any_value), NOW),
        "got a message of type str, expected bytes: encode it",
    ),
    "a text as a part": (
        lambda on: on.engine.receive_part(on.dialled, (any_value,), NOW, size_bytes=10**6),
        "got a message of type str, expected bytes: encode it",
    ),
    "a text at once": (
        lambda on: on.engine.receive_at_once(on.client, NOW, message=any_value),
        "got a message of type str, expected bytes: encode it",
    ),
    "a cause with a text": (
        lambda on: on.engine.receive_close(on.client, Cause(any_value), NOW),
        "Cause.end: got 'gone', expected one of End.DONE, End.GONE, End.REFUSED, End.UNREACHABLE, End.BROKEN, "
        "End.TIMED_OUT",
    ),
    "an end without a cause": (
        lambda on: on.engine.receive_close(on.client, End.GONE, NOW),  # type: ignore[arg-type]
        "got a cause of type End, expected a Cause",
    ),
    "a cause with a text beside a message": (
        lambda on: on.engine.receive_at_once(on.client, NOW, message=request("1", "ping"), cause=Cause(any_value)),
        "Cause.end: got 'gone', expected one of End.DONE, End.GONE, End.REFUSED, End.UNREACHABLE, End.BROKEN, "
        "End.TIMED_OUT",
    ),
    "an opening that is none": (
        lambda on: on.engine.receive_open(on.new, any_value, NOW),
        "got an opening of type str, expected one such as PipeOpening",
    ),
    "a class in place of an opening": (
        lambda on: on.engine.receive_open(on.new, PostOpening, NOW),  # type: ignore[arg-type]
        "got an opening of type StructMeta, expected one such as PipeOpening",
    ),
    "an upload with a text as its verb": (
        lambda on: on.engine.receive_open(on.new, DraftOpening("pipe", "append", {}), NOW),  # type: ignore[arg-type]
        "DraftOpening.verb: got 'append', expected one of Verb.CREATE, Verb.APPEND, Verb.RESUME, Verb.LOOK, Verb.END",
    ),
    "a command that is a text": (
        lambda on: on.engine.receive_command("pipe", "stop", NOW),  # type: ignore[arg-type]
        f"command: got 'stop', expected one of {', '.join(map(str, Command))}",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_input_of_a_wrong_type_is_refused_in_words_and_changes_nothing(name: str) -> None:
    on = stage("pipe")
    act, text = WRONG[name]
    with pytest.raises(LocalProtocolError) as refused:
        act(on)
    assert str(refused.value) == text
    goes_on(on, "pipe")


def test_what_crosses_the_end_of_a_channel_is_no_mistake() -> None:
    """The engine ordered a `Close`, and the driver had not carried it out yet; or the end was reported twice."""
    on = stage("pipe")
    engine = on.engine
    engine.receive_open(on.dialled, Connected(), NOW)
    closed = engine.receive_stop(NOW)
    assert {on.client, on.dialled} <= {getattr(order, "channel", None) for order in closed}
    for channel in (on.client, on.dialled, on.over):
        assert engine.receive_message(channel, request("9", "ping"), NOW) == []
        assert engine.receive_messages(channel, [request("9", "ping")], NOW) == []
        assert engine.receive_pieces(channel, (request("9", "ping"),), NOW) == []
        engine.receive_close(channel, DONE, NOW)
        for _ in range(2):
            assert engine.receive_message(channel, request("9", "ping"), NOW) == []
            assert engine.receive_sent(channel, 7, NOW) == []
            assert engine.receive_close(channel, DONE, NOW) == []
    for opening in (Connected(), Primed(), Queued()):
        assert engine.receive_open(on.over, opening, NOW) == []


def test_a_channel_may_end_before_it_opens() -> None:
    """A client hung up before its opening was reported, and a server could not be reached."""
    on = stage("pipe")
    assert on.engine.receive_close(on.new, Cause(End.GONE), NOW) == []
    assert on.engine.receive_message(on.new, b"{}", NOW) == []
    with pytest.raises(LocalProtocolError, match="channel 4 is over"):
        on.engine.receive_open(on.new, GetOpening("pipe"), NOW)
    orders = on.engine.receive_close(on.dialled, Cause(End.UNREACHABLE), NOW)
    assert on.client in [order.channel for order in orders if isinstance(order, Send)]
