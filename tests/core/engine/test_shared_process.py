"""Tests of several sessions on one shared process: ids, questions, log levels and subscriptions are kept apart."""

from __future__ import annotations

import json

import pytest
from driving import LATEST, Client, Driver, driver, new_client, notification, request, result
from isthmus.core.base.effects import Close, Dial, Effect, Pause, Spawn
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan, Sharing, UploadConsumer

HANDSHAKE = '{"protocolVersion":"2025-11-25","capabilities":{"logging":{},"resources":{"subscribe":true}}}'
ABLE = '{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{},"sampling":{}}}'


def shared(sharing: Sharing = Sharing.CONCURRENT, *, limits: Limits | None = None) -> Driver:
    return driver(ServerPlan(id="s", kind=Kind.PIPE, sharing=sharing), limits=limits)


def child(world: Driver) -> ChannelId:
    return world.last_dial(Spawn).channel


def spawned(world: Driver) -> int:
    return sum(isinstance(dial.target, Spawn) for dial in world.every(Dial))


def join(world: Driver, down: str = "pipe", params: str = ABLE) -> Client:
    """Returns a client that has finished its handshake."""
    client = new_client(world, down, "s")
    channel = client.initialize(params)
    if child(world) not in world.over and not world.messages(channel):
        world.open(child(world), Connected())
        world.answer(world.take_sent("initialize"), HANDSHAKE)
        world.take_sent("notifications/initialized")
    client.session = world.sent[channel][-1].session
    client.notify("notifications/initialized")
    if client.pipe is not None:
        world.sent[client.pipe].clear()
    return client


def last(world: Driver, client: Client) -> dict[str, object]:
    assert client.pipe is not None
    frame = json.loads(world.messages(client.pipe)[-1])
    assert isinstance(frame, dict)
    return frame


def test_all_sessions_have_one_process_and_are_answered_under_their_own_ids() -> None:
    world = shared()
    clients = [join(world) for _ in range(5)]
    assert spawned(world) == 1
    for client in clients:
        client.request("1", "tools/call", '{"name":"x"}')
    received = [world.take_sent("tools/call") for _ in clients]
    assert len({one.id for one in received}) == 5
    for index, one in reversed(list(enumerate(received))):
        world.answer(one, f'{{"n":{index}}}')
    for index, client in enumerate(clients):
        assert last(world, client) == {"jsonrpc": "2.0", "id": 1, "result": {"n": index}}


def test_the_handshake_declares_all_capabilities() -> None:
    world = shared()
    client = new_client(world, "pipe", "s")
    client.initialize('{"protocolVersion":"2025-03-26","capabilities":{}}')
    world.open(child(world), Connected())
    greeting = world.take_sent("initialize")
    assert greeting.frame["params"]["capabilities"].keys() == {"roots", "sampling", "elicitation"}
    world.answer(greeting, HANDSHAKE)
    answer = last(world, client)["result"]
    assert isinstance(answer, dict)
    assert answer["protocolVersion"] == "2025-03-26", "the client's own, since the server's is newer"


def test_sessions_that_come_while_it_starts_wait() -> None:
    world = shared()
    first, second = new_client(world, "pipe", "s"), new_client(world, "http", "s")
    first.initialize(ABLE)
    channel = second.initialize(ABLE)
    assert spawned(world) == 1
    world.open(child(world), Connected())
    world.answer(world.take_sent("initialize"), HANDSHAKE)
    assert not world.was_sent("initialize")
    assert "result" in last(world, first)
    assert "result" in world.only_message(channel)


def test_a_process_that_does_not_start_fails_all_waiting_sessions() -> None:
    world = shared()
    clients = [new_client(world, "pipe", "s") for _ in range(3)]
    for client in clients:
        client.initialize(ABLE)
    world.end(child(world), Cause(End.UNREACHABLE, "no such file"))
    for client in clients:
        error = last(world, client)["error"]
        assert isinstance(error, dict)
        assert "no such file" in error["message"]
    assert world.engine.session_count == 0


@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage"])
def test_a_question_goes_to_the_session_of_the_open_call(method: str) -> None:
    world = shared()
    clients = [join(world) for _ in range(3)]
    for client in clients:
        client.request("7", "tools/call", '{"name":"ask"}')
        call = world.take_sent("tools/call")
        world.send(child(world), request('"q"', method, "{}"))
        question = last(world, client)
        assert question["method"] == method
        client.send(result(str(question["id"]), '{"action":"accept"}'))
        answer = world.take_sent("")
        assert answer.frame == {"jsonrpc": "2.0", "id": "q", "result": {"action": "accept"}}
        world.answer(call)
        assert last(world, client)["id"] == 7


def test_a_question_that_may_belong_to_several_sessions_is_refused() -> None:
    world = shared()
    first, second = join(world), join(world)
    for client in (first, second):
        client.request("1", "tools/call", '{"name":"ask"}')
    world.send(child(world), request('"q"', "elicitation/create", "{}"))
    refusal = world.take_sent("").frame
    assert refusal["id"] == "q"
    assert "2 clients share this server" in refusal["error"]["message"]
    for client in (first, second):
        assert not world.messages(client.pipe or ChannelId(0))


def test_a_question_the_client_cannot_answer_is_refused_in_its_name() -> None:
    world = shared()
    join(world)
    plain = join(world, params='{"protocolVersion":"2025-11-25","capabilities":{}}')
    plain.request("1", "tools/call", '{"name":"ask"}')
    world.send(child(world), request('"q"', "elicitation/create", "{}"))
    assert world.take_sent("").frame["error"]["code"] == -32601


def test_a_question_may_belong_to_a_cancelled_call() -> None:
    world = shared(limits=Limits(cancelled_request_ttl_s=60.0))
    first, second = join(world), join(world)
    first.request("1", "tools/call", '{"name":"ask"}')
    first.notify("notifications/cancelled", '{"requestId":1}')
    world.take_sent("notifications/cancelled")
    second.request("1", "tools/call", '{"name":"ask"}')
    world.send(child(world), request('"q"', "elicitation/create", "{}"))
    assert "cannot be told" in world.take_sent("").frame["error"]["message"]
    world.wait(60)
    world.send(child(world), request('"r"', "elicitation/create", "{}"))
    assert last(world, second)["method"] == "elicitation/create"


def test_a_late_answer_ends_a_cancelled_call() -> None:
    world = shared()
    first, second = join(world), join(world)
    first.request("1", "tools/call", '{"name":"ask"}')
    call = world.take_sent("tools/call")
    first.notify("notifications/cancelled", '{"requestId":1}')
    world.take_sent("notifications/cancelled")
    world.answer(call)
    second.request("1", "tools/call", '{"name":"ask"}')
    world.send(child(world), request('"q"', "elicitation/create", "{}"))
    assert last(world, second)["method"] == "elicitation/create"


def test_serial_sharing_runs_one_call_at_a_time() -> None:
    world = shared(Sharing.SERIAL)
    clients = [join(world) for _ in range(10)]
    for client in clients:
        for number in range(1, 11):
            client.request(str(number), "tools/call", '{"name":"ask"}')
    asked = dict.fromkeys(range(10), 0)
    for _ in range(100):
        call = world.take_sent("tools/call")
        assert not world.was_sent("tools/call"), "one at a time"
        world.send(child(world), request('"q"', "elicitation/create", f'{{"of":{call.id}}}'))
        (index,) = (i for i, client in enumerate(clients) if last_method(world, client) == "elicitation/create")
        question = last(world, clients[index])
        world.sent[clients[index].pipe or ChannelId(0)].clear()
        clients[index].send(result(str(question["id"]), f'{{"by":{index}}}'))
        assert world.take_sent("").frame["result"] == {"by": index}
        asked[index] += 1
        world.answer(call)
        assert "result" in last(world, clients[index])
    assert set(asked.values()) == {10}


def last_method(world: Driver, client: Client) -> object:
    messages = world.messages(client.pipe or ChannelId(0))
    return json.loads(messages[-1]).get("method") if messages else None


def test_serial_sharing_lets_lists_pass() -> None:
    world = shared(Sharing.SERIAL)
    first, second = join(world), join(world)
    first.request("1", "tools/call", '{"name":"slow"}')
    second.request("1", "tools/list")
    second.request("2", "tools/call", '{"name":"next"}')
    world.answer(world.take_sent("tools/list"))
    slow = world.take_sent("tools/call")
    assert not world.was_sent("tools/call")
    world.answer(slow)
    assert world.take_sent("tools/call").frame["params"] == {"name": "next"}


def test_a_waiting_call_can_be_cancelled() -> None:
    world = shared(Sharing.SERIAL)
    first, second, third = join(world), join(world), join(world)
    for client in (first, second, third):
        client.request("1", "tools/call", f'{{"name":"{client.pipe}"}}')
    running = world.take_sent("tools/call")
    second.notify("notifications/cancelled", '{"requestId":1}')
    assert not world.unread, "the server never got the call"
    world.answer(running)
    assert world.take_sent("tools/call").frame["params"] == {"name": str(third.pipe)}


def test_a_session_that_leaves_loses_its_turn() -> None:
    world = shared(Sharing.SERIAL)
    first, second = join(world), join(world)
    first.request("1", "tools/call", '{"name":"a"}')
    second.request("1", "tools/call", '{"name":"b"}')
    world.take_sent("tools/call")
    assert first.pipe is not None
    world.end(first.pipe, Cause(End.GONE))
    world.take_sent("notifications/cancelled")
    assert world.take_sent("tools/call").frame["params"] == {"name": "b"}
    assert spawned(world) == 1


def test_a_session_that_ends_with_a_question_open_has_it_refused() -> None:
    world = shared()
    first, second = join(world), join(world)
    first.request("1", "tools/call", '{"name":"ask"}')
    world.send(child(world), request('"q"', "elicitation/create", "{}"))
    assert first.pipe is not None
    world.end(first.pipe, Cause(End.GONE))
    frames = [received.frame for received in world.unread]
    assert any(frame.get("id") == "q" and "error" in frame for frame in frames)
    second.request("1", "tools/list")
    assert world.was_sent("tools/list")


def test_the_server_gets_the_lowest_log_level_and_each_session_its_own() -> None:
    world = shared()
    loud, quiet = join(world), join(world)
    quiet.request("1", "logging/setLevel", '{"level":"error"}')
    world.answer(world.take_sent("logging/setLevel"))
    loud.request("1", "logging/setLevel", '{"level":"info"}')
    change = world.take_sent("logging/setLevel")
    assert change.frame["params"] == {"level": "info"}
    world.answer(change)
    loud.request("2", "logging/setLevel", '{"level":"info"}')
    assert not world.unread, "it is set already"
    assert last(world, loud) == {"jsonrpc": "2.0", "id": 2, "result": {}}
    for client in (loud, quiet):
        world.sent[client.pipe or ChannelId(0)].clear()
    world.send(child(world), notification("notifications/message", '{"level":"info","data":"x"}'))
    assert last_method(world, loud) == "notifications/message"
    assert last_method(world, quiet) is None
    world.send(child(world), notification("notifications/message", '{"level":"alert","data":"x"}'))
    assert last_method(world, quiet) == "notifications/message"


def test_a_log_message_during_a_call_goes_to_its_session_alone() -> None:
    world = shared()
    first, second = join(world), join(world)
    first.request("1", "tools/call", '{"name":"x"}')
    world.send(child(world), notification("notifications/message", '{"level":"info","data":"of first"}'))
    assert last_method(world, first) == "notifications/message"
    assert last_method(world, second) is None


def test_updates_go_to_subscribers_and_the_last_one_ends_the_subscription() -> None:
    world = shared()
    first, second, third = join(world), join(world), join(world)
    for client in (first, second):
        client.request("1", "resources/subscribe", '{"uri":"file:///a"}')
        world.answer(world.take_sent("resources/subscribe"))
    world.send(child(world), notification("notifications/resources/updated", '{"uri":"file:///a"}'))
    assert [last_method(world, client) for client in (first, second, third)] == [
        "notifications/resources/updated",
        "notifications/resources/updated",
        None,
    ]
    first.request("2", "resources/unsubscribe", '{"uri":"file:///a"}')
    assert not world.unread, "the other still wants it"
    assert last(world, first)["result"] == {}
    assert second.pipe is not None
    world.end(second.pipe, Cause(End.GONE))
    assert world.take_sent("resources/unsubscribe").frame["params"] == {"uri": "file:///a"}


def test_list_changes_go_to_all() -> None:
    world = shared()
    clients = [join(world) for _ in range(3)]
    world.send(child(world), notification("notifications/tools/list_changed"))
    assert {last_method(world, client) for client in clients} == {"notifications/tools/list_changed"}


def test_a_new_process_gets_the_state_of_all_sessions() -> None:
    world = shared()
    first, second = join(world), join(world)
    first.request("1", "resources/subscribe", '{"uri":"file:///a"}')
    world.answer(world.take_sent("resources/subscribe"))
    second.request("1", "tools/call", '{"name":"x"}')
    world.take_sent("tools/call")
    world.end(child(world), Cause(End.BROKEN, "killed"))
    error = last(world, second)["error"]
    assert isinstance(error, dict)
    assert error["data"] == {"outcome": "unknown"}
    assert spawned(world) == 2
    world.open(child(world), Connected())
    world.answer(world.take_sent("initialize"), HANDSHAKE)
    world.take_sent("notifications/initialized")
    world.answer(world.take_sent("resources/subscribe"))
    for client in (first, second):
        client.request("9", "tools/list")
    assert world.take_sent("tools/list").id != world.take_sent("tools/list").id


def test_a_process_lingers_after_its_last_session_and_is_used_again() -> None:
    world = shared(limits=Limits(shared_linger_s=60.0))
    first = join(world)
    assert first.pipe is not None
    world.end(first.pipe, Cause(End.GONE))
    world.wait(59)
    second = join(world)
    assert spawned(world) == 1
    world.wait(600)
    assert second.pipe is not None
    world.end(second.pipe, Cause(End.GONE))
    process = child(world)
    world.wait(61)
    assert process in world.closed
    join(world)
    assert spawned(world) == 2


def test_stopping_ends_a_shared_process_and_leaves_no_deadline() -> None:
    world = shared()
    join(world), join(world)
    world.stop()
    assert child(world) in {close.channel for close in world.every(Close)}
    world.end(child(world))
    assert world.engine.next_timeout() is None


def test_plans_that_cannot_be_shared_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be shared"):
        ServerPlan(id="s", kind=Kind.HTTP, sharing=Sharing.SERIAL)
    with pytest.raises(ValueError, match="cannot be shared"):
        consumer = UploadConsumer(tools=("t",), file_path_argument="p")
        ServerPlan(id="s", kind=Kind.PIPE, sharing=Sharing.SERIAL, consumers=(consumer,))


# --- Slow readers -----------------------------------------------------------------------------------------------------

SLOW = Limits(outbox_high_bytes=1000, outbox_low_bytes=300, outbox_max_bytes=5000)
BIG = '{"x":"' + "y" * 2000 + '"}'


def answered(world: Driver, text: str) -> list[Effect]:
    received = world.take_sent("tools/call")
    return world.send(received.channel, result(str(received.id), text))


@pytest.mark.parametrize("down", ["pipe", "http"])
def test_a_slow_reader_does_not_pause_the_process(down: str) -> None:
    """The other sessions are answered."""
    world = shared(limits=SLOW)
    stalled, other = join(world, down), join(world)
    stalled.request("1", "tools/call", "{}")
    effects = answered(world, BIG)
    assert not [effect for effect in effects if isinstance(effect, Pause)]
    other.request("1", "tools/call", "{}")
    world.answer(world.take_sent("tools/call"), '{"n":1}')
    assert last(world, other)["result"] == {"n": 1}


def test_a_reader_over_the_limit_is_closed() -> None:
    """The outbox holds at most its limit and one message. Only this session ends."""
    world = shared(limits=SLOW)
    stalled, other = join(world), join(world)
    assert stalled.pipe is not None
    closed: list[ChannelId] = []
    for n in range(1, 5):
        assert not closed, "no more than 5000 bytes waited before"
        stalled.request(str(n), "tools/call", "{}")
        closed = [effect.channel for effect in answered(world, BIG) if isinstance(effect, Close)]
    assert closed == [stalled.pipe]
    world.end(stalled.pipe)
    other.request("1", "tools/call", "{}")
    world.answer(world.take_sent("tools/call"), '{"n":1}')
    assert last(world, other)["result"] == {"n": 1}


def test_a_server_of_one_session_is_paused_for_a_slow_reader() -> None:
    world = driver(ServerPlan(id="s", kind=Kind.PIPE), limits=SLOW)
    client = join(world)
    client.request("1", "tools/call", "{}")
    effects = answered(world, BIG)
    assert [type(effect) for effect in effects if isinstance(effect, Pause | Close)] == [Pause]


def test_a_setting_that_changes_nothing_is_not_sent() -> None:
    """A higher log level than that of another session is not sent. An unsubscribe without a subscription is."""
    world = shared()
    loud, quiet = join(world), join(world)
    loud.request("1", "logging/setLevel", '{"level":"info"}')
    world.answer(world.take_sent("logging/setLevel"))
    quiet.request("1", "logging/setLevel", '{"level":"error"}')
    assert not world.unread
    assert last(world, quiet) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    quiet.request("2", "resources/unsubscribe", '{"uri":"file:///a"}')
    assert world.take_sent("resources/unsubscribe").frame["params"] == {"uri": "file:///a"}


@pytest.mark.parametrize("requested", ['"2025-06-18"', '"2025-11-25"', '"1999-01-01"', "7"])
def test_each_session_gets_a_revision_that_it_knows(requested: str) -> None:
    """A client gets its own revision if the process speaks a newer one, otherwise that of the process."""
    world = shared()
    join(world)
    client = new_client(world, "pipe", "s")
    client.initialize(f'{{"protocolVersion":{requested},"capabilities":[]}}')
    shown = last(world, client)["result"]
    assert isinstance(shown, dict)
    assert shown["protocolVersion"] == ("2025-06-18" if "06" in requested else "2025-11-25")


def test_an_update_of_another_resource_goes_to_all_subscribers() -> None:
    """The resource may be a part of a subscribed one."""
    world = shared()
    first, second = join(world), join(world)
    first.request("1", "resources/subscribe", '{"uri":"file:///a"}')
    world.answer(world.take_sent("resources/subscribe"))
    world.send(child(world), notification("notifications/resources/updated", '{"uri":"file:///a/b"}'))
    assert last_method(world, first) == "notifications/resources/updated"
    assert last_method(world, second) is None


@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "roots/list"])
def test_a_question_without_any_session_is_refused(method: str) -> None:
    """The process lingers, but no client is left."""
    world = shared()
    client = join(world)
    assert client.pipe is not None
    world.end(client.pipe, Cause(End.GONE))
    world.send(child(world), request('"q"', method, "{}"))
    error = world.take_sent("").frame
    assert error["id"] == "q"
    assert error["error"] == {"code": -32603, "message": f"no client is there to answer {method}"}
    assert world.notes("info")[-1] == f"no client is there to answer {method}"


def test_a_question_unknown_to_an_older_client_is_refused() -> None:
    """The client knows forms but no URLs. A form reaches it without members that it does not know."""
    world = shared()
    client = join(world, params='{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{}}}')
    client.request("1", "tools/call", '{"name":"ask"}')
    world.take_sent("tools/call")
    page = '{"mode":"url","url":"http://x","message":"m","elicitationId":"e"}'
    world.send(child(world), request('"q"', "elicitation/create", page))
    refusal = world.take_sent("").frame
    assert (refusal["id"], refusal["error"]["code"]) == ("q", -32603)
    assert client.pipe is not None
    assert not world.messages(client.pipe)
    form = '{"mode":"form","message":"m","requestedSchema":{"type":"object","properties":{}}}'
    world.send(child(world), request('"r"', "elicitation/create", form))
    assert last(world, client)["params"] == {"message": "m", "requestedSchema": {"type": "object", "properties": {}}}


def test_the_handshake_of_a_shared_process_names_the_proxy() -> None:
    """The handshake declares all capabilities of any client, and no name of one."""
    world = shared()
    new_client(world, "pipe", "s").initialize(
        '{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"a"}}'
    )
    world.open(child(world), Connected())
    params = world.take_sent("initialize").frame["params"]
    assert params["clientInfo"]["name"] == "isthmus"
    assert params["protocolVersion"] == LATEST
    assert params["capabilities"] == {
        "roots": {"listChanged": True},
        "sampling": {},
        "elicitation": {"form": {}, "url": {}},
    }
