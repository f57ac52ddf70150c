"""Tests of every input of the engine: it takes the time, refuses time that runs backwards, and returns all its
effects."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from driving import DONE, FORGOTTEN, connect, driver, new_client, notification, request, result
from isthmus.core.base.effects import Close, Dial, Effect, Pause, Resume, Send, Spawn
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.ids import ChannelId, Ticket
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import ArtifactProducer, Kind, Plan, ServerPlan, Sharing
from isthmus.core.base.storage import Saved
from isthmus.core.bulk import BulkEngine
from isthmus.core.jsonrpc import envelope
from isthmus.core.jsonrpc.envelope_edges import PARTS_MIN_BYTES
from isthmus.core.status import Command

UNKNOWN = ChannelId(99)
INPUTS: dict[str, Callable[[BulkEngine, float], list[Effect]]] = {
    "receive_message": lambda engine, now: engine.receive_message(UNKNOWN, b"{}", now),
    "receive_messages": lambda engine, now: engine.receive_messages(UNKNOWN, [b"{}"], now),
    "receive_messages of two": lambda engine, now: engine.receive_messages(UNKNOWN, [b"{}", b"{}"], now),
    "receive_pieces": lambda engine, now: engine.receive_pieces(UNKNOWN, (b"{", b"}"), now),
    "receive_close": lambda engine, now: engine.receive_close(UNKNOWN, DONE, now),
    "receive_sent": lambda engine, now: engine.receive_sent(UNKNOWN, 0, now),
    "receive_at_once": lambda engine, now: engine.receive_at_once(UNKNOWN, now, cause=DONE),
    "receive_answer": lambda engine, now: engine.receive_answer(Ticket(99), Saved(), now),
    "receive_drain": lambda engine, now: engine.receive_drain(now),
    "receive_stop": lambda engine, now: engine.receive_stop(now),
    "receive_command": lambda engine, now: engine.receive_command("pipe", Command.START, now),
    "receive_task_cancel": lambda engine, now: engine.receive_task_cancel("t", now),
    "receive_file_delete": lambda engine, now: engine.receive_file_delete("f", now),
    "handle_timeout": lambda engine, now: engine.handle_timeout(now),
}


@pytest.mark.parametrize("name", INPUTS)
def test_each_input_takes_the_time_and_refuses_an_earlier_one(name: str) -> None:
    """Input for an unknown channel, ticket or name advances the time all the same."""
    world = driver()
    engine, before = world.engine, world.now
    engine.handle_timeout(before)
    with pytest.raises(LocalProtocolError, match=f"time runs backwards: {before - 1} after {before}"):
        INPUTS[name](engine, before - 1)
    with contextlib.suppress(LocalProtocolError):
        assert INPUTS[name](engine, before + 5) == []
    with pytest.raises(LocalProtocolError, match=f"time runs backwards: {before + 4} after {before + 5}"):
        engine.handle_timeout(before + 4)


@pytest.mark.parametrize("size_bytes", [15, 16])
@pytest.mark.parametrize("has_files", [False, True])
def test_a_key_of_links_is_long_enough_where_there_are_links(size_bytes: int, has_files: bool) -> None:
    producers = (ArtifactProducer(tools=("t",)),) if has_files else ()
    plan = Plan(
        servers=(ServerPlan(id="s", kind=Kind.PIPE, producers=producers),),
        link_keys=(b"k" * size_bytes,),
        workspaces_path="/w",
    )
    may = contextlib.nullcontext()
    if size_bytes < 16:
        may = pytest.raises(LocalProtocolError, match=r"link_keys\[0\]: got 15 bytes, expected at")
    with may:
        BulkEngine(plan, entropy=bytes, unix_at_zero=0.0, has_storage=True)


@pytest.mark.parametrize("keys", [(), (b"0" * 32,)])
def test_a_key_that_is_made_for_one_run_is_as_long_as_its_hash(keys: tuple[bytes, ...]) -> None:
    """The key is the first thing that is drawn; where one is given, none is made."""
    drawn: list[int] = []

    def entropy(size: int) -> bytes:
        drawn.append(size)
        return bytes(size)

    servers = (ServerPlan(id="s", kind=Kind.PIPE),)
    BulkEngine(
        Plan(servers=servers, workspaces_path="/w", state_keys=keys),
        entropy=entropy,
        unix_at_zero=0.0,
    )
    assert (32 in drawn) is not bool(keys)


# --- Messages in pieces, and several at once --------------------------------------------------------------------------


@pytest.mark.parametrize("mark", [b"", envelope.MARK])
@pytest.mark.parametrize("down", ["pipe", "http"])
def test_a_message_in_pieces_is_the_message(down: str, mark: bytes) -> None:
    """Messages of clients and of servers may come in pieces, also after a byte order mark."""
    world = driver()
    client = connect(world, "pipe", down)
    assert client.pipe is not None
    body = mark + request("1", "tools/call", '{"name":"t"}')
    world.send_pieces(client.pipe, body[:4], body[4:9], body[9:])
    received = world.take_sent("tools/call")
    answer = mark + result(str(received.id), '{"n":1}')
    if received.post is not None:
        world.open(received.channel, Connected())
    world.send_pieces(received.channel, answer[:4], answer[4:5], answer[5:])
    assert world.messages(client.pipe) == [result("1", '{"n":1}')]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_messages_at_once_have_the_effects_of_messages_one_by_one(count: int) -> None:
    runs = []
    for is_at_once in (False, True):
        world = driver()
        client = connect(world, "pipe", "pipe")
        assert client.pipe is not None
        messages = [request(str(number), "tools/call", '{"name":"t"}') for number in range(count)]
        if is_at_once:
            effects = world._note(world.engine.receive_messages(client.pipe, messages, world.now))
        else:
            effects = [effect for message in messages for effect in world.send(client.pipe, message)]
        sent = [effect.message for effect in effects if isinstance(effect, Send)]
        answers = [result(str(world.take_sent("tools/call").id), '{"n":%d}' % number) for number in range(count)]  # noqa: UP031
        child = world.last_dial(Spawn).channel
        effects = world._note(world.engine.receive_messages(child, answers, world.now))
        sent += [effect.message for effect in effects if isinstance(effect, Send)]
        runs.append(sent)
        assert len(sent) == 2 * count
    assert runs[0] == runs[1]


def test_an_answer_that_comes_in_parts_is_passed_as_they_come() -> None:
    """The first part comes with the size, the last with the end of its channel."""
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request('"i"', "tools/call", '{"name":"t"}')
    received = world.take_sent("tools/call")
    body = result(str(received.id), '{"content":[],"x":"%s"}' % ("x" * PARTS_MIN_BYTES))
    assert world.engine.passes(received.channel, body[:1000], len(body))
    world.send_part(received.channel, body[:1000], size_bytes=len(body))
    assert world.engine.exchange_count == 1
    world.send_part(received.channel, body[1000:5000], body[5000:9000])
    assert not world.messages(channel)
    world.send_part(received.channel, body[9000:], is_last=True)
    assert json.loads(world.messages(channel)[0]) == {**json.loads(body), "id": "i"}
    assert world.engine.exchange_count == 0


BIG = '{"x":"%s"}' % ("y" * 4000)
SLOW = Limits(outbox_high_bytes=3000, outbox_low_bytes=1000)


@pytest.mark.parametrize("is_over", [False, True])
def test_bytes_sent_may_be_reported_with_other_input(is_over: bool) -> None:
    """The server of a client that takes its answers late is resumed when most was taken."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE), limits=SLOW)
    client = connect(world, "pipe", "s")
    assert client.pipe is not None
    client.request("1", "tools/call", '{"name":"t"}')
    received = world.take_sent("tools/call")
    world.send(received.channel, result(str(received.id), BIG))
    assert world.only(Pause).channel == received.channel
    waiting = sum(len(send.message) for send in world.sent[client.pipe])
    effects = world.engine.receive_at_once(
        client.pipe, world.now, size_bytes=waiting, cause=DONE if is_over else None
    )  # fmt: skip
    assert [effect.channel for effect in effects if isinstance(effect, Resume)][:1] == [received.channel]
    with pytest.raises(LocalProtocolError, match="got 1000000 bytes as sent on channel"):
        other = connect(world, "pipe", "s")
        assert other.pipe is not None
        world.engine.receive_at_once(other.pipe, world.now, size_bytes=10**6)


# --- Orders of operators ----------------------------------------------------------------------------------------------


def test_a_command_for_an_unknown_name_is_refused() -> None:
    world = driver()
    for order in (
        lambda: world.engine.receive_command("x", Command.STOP, world.now),
        lambda: world.engine.receive_task_cancel("t" * 50, world.now),
        lambda: world.engine.receive_file_delete("f" * 50, world.now),
    ):
        with pytest.raises(LocalProtocolError, match=r"^there is no (server 'x'|task 't{40}'$|file 'f{40}'$)"):
            order()


@pytest.mark.parametrize("command", list(Command))
def test_each_command_does_what_it_says(command: Command) -> None:
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, spares=1))
    client = connect(world, "pipe", "s")
    client.request("1", "tools/list")
    before = {dial.channel for dial in world.every(Dial)}
    running = {channel for channel in before if channel not in world.over}
    world._note(world.engine.receive_command("s", command, world.now))
    stops = command is not Command.START
    assert (running <= world.over) is stops
    (status,) = world.engine.report()
    assert status.state == ("stopped" if command is Command.STOP else "running" if not stops else status.state)
    late = new_client(world, "http", "s").initialize()
    assert bool(world.messages(late)) is (command is Command.STOP)


def test_stop_closes_every_channel() -> None:
    """Pipes are closed with code 1001."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, spares=2))
    client = connect(world, "pipe", "s")
    assert client.pipe is not None
    dialled = {dial.channel for dial in world.every(Dial)}
    assert len(dialled) == 3
    world.stop()
    assert dialled <= set(world.closed)
    assert world.closed[client.pipe].code == 1001
    (status,) = world.engine.report()
    assert (status.spares, status.sessions, status.in_flight) == (0, 0, 0)


# --- Servers whose client is gone -------------------------------------------------------------------------------------


def test_a_question_to_a_client_that_left_is_answered_with_an_error() -> None:
    able = '{"protocolVersion":"2025-11-25","capabilities":{"roots":{}}}'
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, sharing=Sharing.CONCURRENT))
    client = new_client(world, "pipe", "s")
    assert client.pipe is not None
    client.initialize(able)
    child = world.last_dial(Spawn).channel
    world.open(child, Connected())
    world.answer(world.take_sent("initialize"), able)
    world.take_sent("notifications/initialized")
    client.notify("notifications/initialized")
    client.request("1", "tools/call", '{"name":"t"}')
    world.send(child, request('"q"', "roots/list"))
    world.end(client.pipe, Cause(End.GONE))
    answers = [received.frame for received in world.unread if "error" in received.frame]
    assert answers == [{"jsonrpc": "2.0", "id": "q", "error": {"code": -32603, "message": "the client is gone"}}]


def test_a_notification_for_a_server_that_does_not_run_is_dropped_and_that_is_noted() -> None:
    """The note has the level debug: this is nothing unusual."""
    world = driver()
    client = connect(world, "pipe", "pipe")
    world.end(world.last_dial(Spawn).channel, Cause(End.BROKEN, "exited with code 1"))
    dials = len(world.dials)
    client.notify("notifications/roots/list_changed")
    assert len(world.dials) == dials
    assert world.notes("debug")[-1] == "notifications/roots/list_changed dropped: there is no upstream session"


@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
@pytest.mark.parametrize("is_shown", [False, True])
def test_delete_has_the_newest_headers_of_a_client(is_shown: bool, method: str) -> None:
    """DELETE has the newest headers: those of the first request may have been renewed."""
    world = driver()
    client = connect(world, "http", "http", headers=(("authorization", "old"),))
    client.headers = (("authorization", "new"),) if is_shown else ()
    client.request("1", method, '{"name":"t"}')
    world.answer(world.take_sent(method), '{"tools":[],"content":[]}')
    client.headers = ()
    client.delete()
    delete: Any = world.dials[-1].target
    assert dict(delete.headers) == {"authorization": "new" if is_shown else "old"}


def test_after_a_list_of_tools_was_read_no_deadline_waits_for_one() -> None:
    from isthmus.core.base.revisions import Era
    from stateless_driving import start_stateless_server

    world = driver(ServerPlan(id="s", kind=Kind.HTTP, era=Era.STATELESS))
    client = new_client(world, "http", "s")
    channel = client.initialize()
    start_stateless_server(world, capabilities='{"tools":{}}')
    client.session = world.sent[channel][-1].session
    client.notify("notifications/initialized")
    client.request("1", "tools/call", '{"name":"t","arguments":{}}')
    due = world.engine.next_timeout()
    assert due is not None
    received = world.take_sent("tools/list")
    world.answer(received, json.dumps({"resultType": "complete", "tools": [], "ttlMs": 0, "cacheScope": "private"}))
    reasons = set()
    for _ in range(20):
        due = world.engine.next_timeout()
        if due is None or due.at > world.now + 3600:
            break
        reasons.add(due.why)
        world.wait(due.at - world.now)
    assert "list of tools" not in reasons
    assert reasons


def test_a_stream_of_a_server_ends_with_its_session() -> None:
    world = driver()
    client = connect(world, "http", "http", listens=True)
    streams = [dial.channel for dial in world.dials if type(dial.target).__name__ == "Listen"]
    client.delete()
    world.wait(Limits().stream_farewell_s)
    assert [channel for channel in streams if channel in world.closed] == streams
    assert world.closed[streams[-1]] == Close(streams[-1], reason="nobody waits for it any more")


def test_a_list_is_sent_again_to_a_server_that_forgot_the_session() -> None:
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/list")
    world.end(world.take_sent("tools/list").channel, FORGOTTEN)
    world.start_server(session="S2")
    again = world.take_sent("tools/list")
    world.send(again.channel, notification("notifications/message", '{"level":"info","data":1}'))
    world.answer(again, '{"tools":[]}')
    assert json.loads(world.messages(channel)[-1])["result"] == {"tools": []}
