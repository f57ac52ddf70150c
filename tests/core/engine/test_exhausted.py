"""Tests of messages for which there is no memory: they are refused, and everyone else is served."""

from __future__ import annotations

import pytest
from driving import Driver, SentMessage, connect, driver, new_client, result
from driving import request as request_of
from isthmus.core.base.effects import Spawn
from isthmus.core.base.errors import OUT_OF_MEMORY
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.jsonrpc import envelope

MARK = "too large for this machine"


@pytest.fixture(autouse=True, params=OUT_OF_MEMORY)
def scarce(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has no memory for messages that contain `MARK`."""
    decode = envelope.decode

    def failing(message: bytes) -> envelope.Frame:
        if MARK.encode() in message:
            raise request.param
        return decode(message)

    monkeypatch.setattr(envelope, "decode", failing)


def call_is_answered(world: Driver, *, down: str) -> None:
    client = connect(world, down, "pipe")
    channel = client.request("5", "tools/call", '{"name":"t"}')
    world.answer(world.take_sent("tools/call"), '{"content":[]}')
    assert world.messages(channel)[-1] == result("5", '{"content":[]}')


@pytest.mark.parametrize("up", ["http", "pipe"])
def test_a_post_is_refused_with_503_and_its_session_goes_on(up: str) -> None:
    world = driver()
    client = connect(world, "http", up)
    channel = client.request("5", "tools/call", f'{{"name":"{MARK}"}}')
    assert world.sent[channel][-1].status == 503
    assert world.only_message(channel)["error"]["code"] == -31007
    assert not world.unread
    second = client.request("6", "tools/call", '{"name":"t"}')
    world.answer(world.take_sent("tools/call"), '{"content":[]}')
    assert world.messages(second) == [result("6", '{"content":[]}')]


def test_a_pipe_is_closed_and_its_session_ends() -> None:
    world = driver()
    client = connect(world, "pipe", "pipe")
    assert client.pipe is not None
    world.send(client.pipe, request_of("5", "tools/call", f'{{"name":"{MARK}"}}'))
    assert world.closed[client.pipe].code == 1013
    assert world.engine.session_count == 0
    call_is_answered(world, down="pipe")


@pytest.mark.parametrize("in_pieces", [False, True])
@pytest.mark.parametrize("up", ["http", "pipe"])
def test_the_call_of_an_answer_gets_an_error_and_the_next_call_an_answer(up: str, in_pieces: bool) -> None:
    world = driver()
    client = connect(world, "http", up)
    channel = client.request("5", "tools/call", '{"name":"t"}')
    received: SentMessage = world.take_sent("tools/call")
    if up == "http":
        world.open(received.channel, Connected())
    message = b" " + result(str(received.id), f'{{"x":"{MARK}"}}')
    world.send_pieces(received.channel, message[:9], message[9:]) if in_pieces else world.send(
        received.channel, message
    )
    assert received.channel in world.closed
    error = world.only_message(channel)["error"]
    assert error["code"] == -31001
    assert "no memory for the message" in error["message"]
    second = client.request("6", "tools/call", '{"name":"t"}')
    if up == "pipe":
        assert world.last_dial(Spawn).channel != received.channel
        world.start_server()
    world.answer(world.take_sent("tools/call"), '{"content":[]}')
    assert world.messages(second) == [result("6", '{"content":[]}')]
    assert any("there is no memory" in text for text in world.notes("error"))


def test_starts_for_which_this_machine_has_no_room_are_no_crash_loop() -> None:
    """Far more than `crash_loop_failures` of them leave the server to be started at once when there is room."""
    world = driver()
    client = new_client(world, "http", "pipe")
    for _ in range(20):
        channel = client.initialize()
        world.end(world.last_dial(Spawn).channel, Cause(End.UNREACHABLE, "no descriptor", unsent=True, is_ours=True))
        assert "no descriptor" in world.only_message(channel)["error"]["message"]
        assert "times in a row" not in world.only_message(channel)["error"]["message"]
        world.wait(60)
    status = next(status for status in world.engine.report() if status.id == "pipe")
    assert (status.failures, status.last_error) == (0, "no descriptor")
    call_is_answered(world, down="http")
