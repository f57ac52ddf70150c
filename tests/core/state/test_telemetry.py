"""Tests of what is told: a event for each session and request of a client, and none where nobody wants them."""

from __future__ import annotations

import pytest
from driving import Driver, connect, driver, error
from isthmus.core.base.effects import Emit
from isthmus.core.base.events import PipeOpening
from isthmus.core.base.telemetry import (
    NAME_MAX_CHARS,
    TOOLS_MAX,
    Detail,
    Outcome,
    RequestAnswered,
    RequestEnded,
    RequestSent,
    RequestStarted,
    SessionEnded,
    SessionStarted,
    TelemetryEvent,
    ToolsListed,
)
from isthmus.core.state import telemetry

LATEST = "2025-11-25"
CALL = '{"name":"echo","arguments":{"secret":1}}'


def told(world: Driver) -> list[TelemetryEvent]:
    return [effect.event for effect in world.every(Emit)]


@pytest.mark.parametrize("down", ["pipe", "http"])
@pytest.mark.parametrize("up", ["pipe", "http"])
def test_each_session_and_request_is_told_of(down: str, up: str) -> None:
    world = driver(telemetry=Detail.ENDS)
    client = connect(world, down, up)
    client.request("7", "tools/call", CALL)
    world.wait(0.5)
    world.answer(world.take_sent("tools/call"), '{"content":[],"isError":true}')
    client.request("8", "tools/list")
    world.reply(sent := world.take_sent("tools/list"), error(str(sent.id), '{"code":-32000,"message":"no"}'))
    client.request("9", "prompts/get", '{"name":"ask"}')
    client.notify("notifications/cancelled", '{"requestId":9}')
    if client.pipe is None:
        client.delete()
    else:
        world.end(client.pipe)
    begun, *requests, over = (one for one in told(world) if not isinstance(one, RequestAnswered))
    assert isinstance(begun, SessionStarted) and isinstance(over, SessionEnded)
    assert (begun.server, begun.revision, begun.session) == (up, LATEST, over.session)
    assert all(isinstance(one, RequestEnded) and one.session == begun.session for one in requests)
    seen = [(one.method, one.target, one.outcome, one.code) for one in requests if isinstance(one, RequestEnded)]
    assert seen == [
        ("initialize", "", Outcome.RESULT, None),
        ("tools/call", "echo", Outcome.TOOL_ERROR, None),
        ("tools/list", "", Outcome.ERROR, -32000),
        ("prompts/get", "ask", Outcome.CANCELLED, None),
    ]
    assert [one.duration_s for one in requests if isinstance(one, RequestEnded)][1] == 0.5
    assert "secret" not in repr(told(world))


def test_nothing_is_told_where_nobody_wants_it() -> None:
    world = driver()
    connect(world, "http", "http").request("7", "tools/call", CALL)
    world.answer(world.take_sent("tools/call"))
    assert told(world) == []


def test_only_calls_are_told_of_in_a_session_of_the_driver_s_own() -> None:
    """A call is made over plain HTTP by somebody; other requests, and those of a probe, are the proxy's own."""
    for sees_hidden, expected in ((False, ["echo"]), (True, [])):
        world = driver(telemetry=Detail.ENDS)
        pipe = world.engine.new_channel()
        world.open(pipe, PipeOpening("pipe", is_own=True, sees_hidden=sees_hidden))
        world.send(pipe, b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}')
        world.start_server()
        world.send(pipe, b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}')
        world.answer(world.take_sent("tools/call"))
        assert [one.target for one in told(world) if isinstance(one, RequestEnded)] == expected
        assert len(told(world)) == 2 * len(expected)  # answered, and ended


def test_names_are_cut() -> None:
    world = driver(telemetry=Detail.STEPS)
    client = connect(world, "http", "http")
    client.request(id := f'"{"7" * 99}"', "tools/call", f'{{"name":"{"n" * 99}"}}')
    world.answer(world.take_sent("tools/call"))
    (last,) = (one for one in told(world) if isinstance(one, RequestEnded) and one.target)
    assert last.target == "n" * NAME_MAX_CHARS
    (first,) = (one for one in told(world) if isinstance(one, RequestStarted) and one.target)
    assert (first.target, first.id_raw) == (last.target, id.encode()[: telemetry.ID_MAX_BYTES])


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_the_names_of_listed_tools_are_emitted(up: str) -> None:
    """An event has at most `TOOLS_MAX` of them, each cut. None is of a list that cannot be read, or is empty."""
    world = driver(telemetry=Detail.ENDS)
    client = connect(world, "http", up)
    many = ",".join(f'{{"name":"{"n" * 99}","title":"a"}}' for _ in range(TOOLS_MAX + 1))
    for page in ('[{"name":"a","inputSchema":{}},{"name":"b"}]', "[]", '[{"name":1}]', f"[{many}]"):
        client.request("7", "tools/list")
        world.answer(world.take_sent("tools/list"), f'{{"tools":{page}}}')
    first, last = (one for one in told(world) if isinstance(one, ToolsListed))
    assert (first.server, first.names) == (up, ("a", "b"))
    assert last.names == ("n" * NAME_MAX_CHARS,) * TOOLS_MAX


def test_a_large_result_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "LOOKED_AT_MAX_BYTES", 60)
    for text, outcome in (
        ('{"isError":true}', Outcome.TOOL_ERROR),
        ('{"isError": true}', Outcome.TOOL_ERROR),
        ('{"isError":false}', Outcome.RESULT),
        (f'{{"isError":true,"x":"{"x" * 60}"}}', Outcome.UNREAD),
    ):
        world = driver(telemetry=Detail.ENDS)
        connect(world, "http", "http").request("7", "tools/call", CALL)
        world.answer(world.take_sent("tools/call"), text)
        (last,) = (one for one in told(world) if isinstance(one, RequestEnded) and one.target)
        assert last.outcome is outcome


@pytest.mark.parametrize("down", ["pipe", "http"])
@pytest.mark.parametrize("up", ["pipe", "http"])
def test_the_steps_of_a_request_are_emitted_in_order(down: str, up: str) -> None:
    world = driver(telemetry=Detail.STEPS)
    client = connect(world, down, up)
    client.request('"s\\n"', "tools/call", CALL)
    sent = world.take_sent("tools/call")
    world.wait(0.5)
    world.answer(sent, '{"content":[]}')
    started, written, answered, ended = told(world)[-4:]
    assert isinstance(started, RequestStarted) and isinstance(written, RequestSent)
    assert isinstance(answered, RequestAnswered) and isinstance(ended, RequestEnded)
    assert (started.id_raw, started.target, started.params) == (b'"s\\n"', "echo", CALL.encode())
    assert {started.request, written.request, answered.request, ended.request} == {started.request}
    assert (written.server, str(written.number), written.channel) == (up, str(sent.id), sent.channel)
    assert (written.attempt, written.revision, written.is_pipe) == (1, LATEST, up == "pipe")
    assert (answered.server, answered.duration_s, answered.code) == (up, 0.5, None)
    assert (ended.params_bytes, ended.result_bytes) == (len(CALL), len('{"content":[]}'))
    assert started.is_pipe is ended.is_pipe is (down == "pipe")
