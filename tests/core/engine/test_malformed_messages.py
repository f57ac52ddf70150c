"""Tests of messages with repeated, missing or wrong members: they are refused or dropped, and everything else goes
on."""

from __future__ import annotations

import gc
import json
from types import FrameType

import pytest
from driving import LATEST, Client, Driver, connect, driver, error, new_client, notification, request, result
from isthmus.core.base.effects import Spawn
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from isthmus.core.base.revisions import Era
from stateless_driving import ACCEPT, FORM, Modern, handshake_client, modern, respond, served, start_stateless_server
from stateless_server import grant

ALL = '{"tools":{},"logging":{},"resources":{"subscribe":true}}'


def assert_goes_on(world: Driver, client: Client) -> None:
    """A call is still answered."""
    channel = client.request('"last"', "tools/call", '{"name":"t"}')
    world.answer(world.take_sent("tools/call"), '{"content":[]}')
    assert json.loads(world.messages(channel)[-1]) == {"jsonrpc": "2.0", "id": "last", "result": {"content": []}}


# --- From servers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "params", "revision"),
    [
        ("sampling/createMessage", '{"_meta":{"progressToken":1,"progressToken":2}}', LATEST),
        ("elicitation/create", '{"message":"a","message":"b","mode":"url","mode":"form"}', "2025-06-18"),
        ("sampling/createMessage", '{"messages":[],"messages":[{}],"maxTokens":1}', "2024-11-05"),
    ],
)
def test_a_question_with_a_repeated_member_is_refused_or_passes_unchanged(
    method: str, params: str, revision: str
) -> None:
    """A question with a repeated member is refused, or sent unchanged where the proxy need not read it."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE))
    client = new_client(world, "pipe", "s")
    able = '{"elicitation":{"form":{},"url":{}},"sampling":{}}'
    client.initialize(f'{{"protocolVersion":"{revision}","capabilities":{able}}}')
    world.start_server(capabilities=ALL, revision=revision)
    client.notify("notifications/initialized")
    assert client.pipe is not None
    world.sent[client.pipe].clear()
    world.send(world.last_dial(Spawn).channel, request('"q"', method, params))
    shown = [message for message in world.messages(client.pipe) if b'"method"' in message]
    if world.was_sent(""):
        assert "error" in world.take_sent("").frame
        assert shown == []
    else:
        assert [message[message.index(b'"params"') + 9 : -1] for message in shown] == [params.encode()]
    assert_goes_on(world, client)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("notifications/tasks/status", '{"taskId":"a","taskId":"b"}'),
        ("notifications/progress", '{"progressToken":1,"progressToken":2}'),
        ("notifications/cancelled", '{"requestId":1,"requestId":2}'),
        ("notifications/elicitation/complete", '{"elicitationId":"a","elicitationId":"b"}'),
        ("notifications/resources/updated", '{"uri":"a:b","uri":"c:d"}'),
        ("notifications/message", '{"level":"info","level":"error","data":1}'),
    ],
)
@pytest.mark.parametrize("era", list(Era))
def test_a_notification_with_a_repeated_member_is_harmless(era: Era, method: str, params: str) -> None:
    """Servers of either era send it, to clients with a session and without one."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, era=era))
    client = new_client(world, "pipe", "s")
    client.initialize()
    if era is Era.STATELESS:
        start_stateless_server(world)
        grant(world, world.take_sent("subscriptions/listen"))
    else:
        world.start_server(capabilities=ALL)
    client.notify("notifications/initialized")
    world.send(world.last_dial(Spawn).channel, notification(method, params))
    channel = client.request('"last"', "tools/call", '{"name":"t"}')
    for received in [one for one in world.unread if one.frame.get("method") == "tools/list"]:
        world.unread.remove(received)
        world.answer(received, '{"tools":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}')
    world.answer(world.take_sent("tools/call"), '{"content":[],"resultType":"complete"}')
    assert json.loads(world.messages(channel)[-1])["id"] == "last"


# --- From clients -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "member", ['"requestState":"a","requestState":"b"', '"name":"x"', '"arguments":{},"arguments":{"a":1}']
)
def test_a_call_with_a_repeated_member_is_refused(member: str) -> None:
    """A repeated name leaves open which tool is meant; the client's next call is served."""
    world, client, _ = served("pipe", "pipe")
    channel = client.send(client.body("tools/call", name="t").replace(b'"name"', member.encode() + b', "name"'))
    if world.was_sent("tools/call"):
        received = world.take_sent("tools/call")
        respond(world, received)
        assert "result" in client.answered(channel, client.last_id)
    else:
        assert client.answered(channel, client.last_id)["error"]["code"] in (-32600, -32602, -32020)
    again = client.call()
    respond(world, world.take_sent("tools/call"))
    assert "result" in client.answered(again, client.last_id)


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ('{"level":"info","level":"error"}', -32602),
        ('{"level":"loud"}', -32602),
        ('{"level":7}', -32602),
        ("{}", -32602),
        ('{"level":"info"}', None),
    ],
)
def test_a_level_is_one_of_those_that_are_known(params: str, code: int | None) -> None:
    """A server of the stateless era gets the level with each request, so the proxy refuses a wrong one."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, era=Era.STATELESS))
    client = new_client(world, "pipe", "s")
    client.initialize()
    start_stateless_server(world)
    grant(world, world.take_sent("subscriptions/listen"))
    client.notify("notifications/initialized")
    channel = client.request("1", "logging/setLevel", params)
    (response,) = [frame for frame in world.frames(channel) if frame.get("id") == 1]
    assert response.get("error", {}).get("code") == code


def test_a_server_that_does_not_log_has_no_level() -> None:
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, era=Era.STATELESS))
    client = new_client(world, "pipe", "s")
    client.initialize()
    start_stateless_server(world, capabilities='{"tools":{}}')
    client.notify("notifications/initialized")
    channel = client.request("1", "logging/setLevel", '{"level":"info"}')
    (response,) = [frame for frame in world.frames(channel) if frame.get("id") == 1]
    assert response["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("method", "params", "is_refused"),
    [
        ("logging/setLevel", '{"level":"info","level":"error"}', True),
        ("logging/setLevel", '{"level":"loud"}', False),
        ("logging/setLevel", "{}", False),
        ("resources/subscribe", '{"uri":"a:b","uri":"c:d"}', True),
        ("resources/subscribe", '{"uri":7}', False),
        ("resources/unsubscribe", "{}", False),
    ],
)
def test_a_malformed_setting_on_a_shared_process_is_refused_by_the_proxy_or_the_server(
    method: str, params: str, is_refused: bool
) -> None:
    """The proxy refuses repeated members, and the shared server refuses wrong values."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, sharing=Sharing.CONCURRENT))
    client = connect(world, "pipe", "s", capabilities=ALL)
    channel = client.request("1", method, params)
    assert world.was_sent(method) is not is_refused
    if not is_refused:
        received = world.take_sent(method)
        assert json.loads(params) == received.frame["params"]
        world.send(received.channel, error(str(received.id), '{"code":-32602,"message":"no"}'))
    assert json.loads(world.messages(channel)[-1])["error"]["code"] in (-32600, -32602)
    assert_goes_on(world, client)


@pytest.mark.parametrize("params", ['{"requestId":1,"requestId":2}', "{}", '{"requestId":{}}', "[]"])
def test_a_malformed_cancellation_cancels_nothing(params: str) -> None:
    world, client, _ = served("pipe", "pipe")
    channel = client.call()
    received = world.take_sent("tools/call")
    assert client.pipe is not None
    world.send(client.pipe, notification("notifications/cancelled", params))
    assert not world.was_sent("notifications/cancelled")
    respond(world, received)
    assert "result" in client.answered(channel, client.last_id)


@pytest.mark.parametrize("params", ['{"progressToken":1,"progressToken":2}', '{"progressToken":[]}', "{}"])
def test_progress_of_a_client_that_belongs_to_nothing_is_dropped(params: str) -> None:
    """Progress of a client is for a question of its server, by a token of the proxy."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE))
    client = connect(world, "pipe", "s", capabilities=ALL)
    client.notify("notifications/progress", params)
    assert not world.was_sent("notifications/progress")
    assert_goes_on(world, client)


# --- URL elicitation --------------------------------------------------------------------------------------------------


def visit(world: Driver, client: Modern, pages: str, **params: str) -> dict[str, object]:
    """A request that its server refuses until pages are visited. Returns the client's response."""
    method = params.pop("method", "tools/call")
    channel = client.request(method, **params)
    received = world.take_sent(method)
    refusal = f'{{"code":-32042,"message":"visit","data":{{"elicitations":{pages}}}}}'
    world.reply(received, error(str(received.id), refusal))
    return client.answered(channel, client.last_id)


PAGE = '{"mode":"url","elicitationId":"e","url":"http://x","message":"m"}'


@pytest.mark.parametrize("pages", ["7", "[]", "{}", "[7]", f'[{PAGE[:-1]},"url":"http://y"}}]', "null"])
def test_a_refusal_that_names_no_page_is_an_error(pages: str) -> None:
    """The client gets the error, and no question."""
    world, client, _ = served()
    assert "error" in visit(world, client, pages, name="t")


@pytest.mark.parametrize("answer", [{"action": "decline"}, {"action": "cancel"}, {}, {"action": 7}])
@pytest.mark.parametrize(("method", "target"), [("tools/call", {"name": "t"}), ("resources/read", {"uri": "a:b"})])
def test_a_request_whose_client_declines_to_visit_a_page_fails(
    answer: dict[str, object], method: str, target: dict[str, str]
) -> None:
    """A tool's result says so to the model; any other request fails. The server is not asked again."""
    world, client, _ = served()
    refused = visit(world, client, f"[{PAGE}]", method=method, **target)
    state = refused["result"]["requestState"]  # type: ignore[index]
    channel = client.request(method, requestState=state, inputResponses={"r1": answer}, **target)
    response = client.answered(channel, client.last_id)
    assert not world.was_sent(method)
    if method == "tools/call":
        assert response["result"]["isError"] is True
        assert "declined" in response["result"]["content"][0]["text"]
    else:
        assert "declined" in response["error"]["message"]


def test_a_visit_that_is_over_already_is_not_waited_for() -> None:
    """The server notified of the visit's end while the client was away: refused once more, the call goes up again at
    once."""
    world, client, _ = served()
    refused = visit(world, client, f"[{PAGE}]", name="t")
    state = refused["result"]["requestState"]  # type: ignore[index]
    world.send(
        world.last_dial(Spawn).channel, notification("notifications/elicitation/complete", '{"elicitationId":"e"}')
    )
    channel = client.request("tools/call", name="t", requestState=state, inputResponses={"r1": ACCEPT})
    received = world.take_sent("tools/call")
    world.reply(
        received, error(str(received.id), f'{{"code":-32042,"message":"m","data":{{"elicitations":[{PAGE}]}}}}')
    )
    respond(world, world.take_sent("tools/call"))
    assert "result" in client.answered(channel, client.last_id)


def test_a_visit_is_waited_for_only_so_long() -> None:
    """The call goes up again at the deadline, whatever has become of the visit."""
    world, client, _ = served()
    refused = visit(world, client, f"[{PAGE}]", name="t")
    state = refused["result"]["requestState"]  # type: ignore[index]
    channel = client.request("tools/call", name="t", requestState=state, inputResponses={"r1": ACCEPT})
    received = world.take_sent("tools/call")
    world.reply(
        received, error(str(received.id), f'{{"code":-32042,"message":"m","data":{{"elicitations":[{PAGE}]}}}}')
    )
    assert not world.was_sent("tools/call")
    world.wait(Limits().url_elicitation_wait_s - 0.1)
    assert not world.was_sent("tools/call")
    world.wait(0.2)
    respond(world, world.take_sent("tools/call"))
    assert "result" in client.answered(channel, client.last_id)


# --- Questions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ['{"action":"accept","action":"decline"}', '{"action":"dance"}', "{}"])
def test_an_answer_with_a_repeated_member_is_an_error_for_its_server(answer: str) -> None:
    """An answer passes unchanged only where the proxy need not read it; between two revisions it must."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE))
    client = new_client(world, "pipe", "s")
    client.initialize(f'{{"protocolVersion":"{LATEST}","capabilities":{{"elicitation":{{"form":{{}}}}}}}}')
    world.start_server(capabilities=ALL, revision="2025-06-18")
    client.notify("notifications/initialized")
    assert client.pipe is not None
    world.send(world.last_dial(Spawn).channel, request('"q"', "elicitation/create", FORM))
    (question,) = [frame for frame in world.frames(client.pipe) if frame.get("method") == "elicitation/create"]
    client.send(result(json.dumps(question["id"]), answer))
    received = world.take_sent("")
    assert received.frame["id"] == "q"
    assert "error" in received.frame or received.raw.endswith(answer.encode() + b"}")


def test_a_pipe_with_both_eras_owes_the_requests_of_both() -> None:
    """A pipe has a request of each era open: `owes` is true until both are answered."""
    world, client, _ = served("pipe", "pipe")
    assert client.pipe is not None
    assert not world.engine.owes(client.pipe)
    client.call()
    received = world.take_sent("tools/call")
    assert world.engine.owes(client.pipe)
    respond(world, received)
    assert not world.engine.owes(client.pipe)
    assert not world.engine.owes(received.channel), "a server's channel owes nothing to a client"
    assert handshake_client(client).pipe == client.pipe
    assert modern(world, "pipe").pipe is None


def test_time_does_not_run_backwards() -> None:
    """Every input names the caller's mistake, and changes nothing."""
    from isthmus.core.base.errors import LocalProtocolError
    from isthmus.core.base.events import Cause, End

    world = driver(ServerPlan(id="s", kind=Kind.PIPE))
    client = connect(world, "pipe", "s", capabilities=ALL)
    assert client.pipe is not None
    engine, pipe, before = world.engine, client.pipe, world.now - 1.0
    body = request("1", "tools/call", '{"name":"t"}')
    for receive in (
        lambda: engine.receive_message(pipe, body, before),
        lambda: engine.receive_messages(pipe, [body, body], before),
        lambda: engine.receive_at_once(pipe, before, message=body),
        lambda: engine.receive_pieces(pipe, [body], before),
        lambda: engine.receive_close(pipe, Cause(End.GONE), before),
        lambda: engine.receive_sent(pipe, 1, before),
        lambda: engine.handle_timeout(before),
    ):
        with pytest.raises(LocalProtocolError, match="back"):
            receive()
    assert_goes_on(world, client)
    assert engine.earliest_at <= engine.next_timeout().at  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "members",
    [
        '"id":{id},"id":{id},"result":{{}}',
        '"result":{{}},"id":{id},"id":{id}',
        '"id":{id},"id":999,"error":{{"code":1,"message":"m"}}',
        '"id":999,"id":{id},"result":{{}}',
        '"id":{id}, "id" : "x","result":{{}}',
    ],
)
def test_a_response_with_two_ids_ends_each_call_that_it_names(members: str) -> None:
    """Otherwise these calls would wait for their time limit: the server takes them for answered."""
    world, client, _ = served("pipe", "pipe")
    channel = client.call()
    ended, received = client.last_id, world.take_sent("tools/call")
    other = client.call()
    world.send(received.channel, f'{{"jsonrpc":"2.0",{members.format(id=received.id)}}}'.encode())
    problem = client.answered(channel, ended)["error"]
    assert problem["code"] == -32603 and "'id' twice" in problem["message"]
    respond(world, world.take_sent("tools/call"))
    assert "result" in client.answered(other, client.last_id)


@pytest.mark.parametrize(
    "members",
    [
        '"id":{id},"id":{id}',
        '"id":{id},"id":{id},"result":{{}},"error":{{}}',
        '"method":"x","id":{id},"id":{id},"result":{{}}',
        '"id":{id},"id":{id},"jsonrpc":"1.0","result":{{}}',
        '"params":{{"id":{id},"id":{id},"result":{{}}}}',
    ],
)
def test_what_is_no_response_ends_no_call(members: str) -> None:
    world, client, _ = served("pipe", "pipe")
    channel = client.call()
    received = world.take_sent("tools/call")
    world.send(received.channel, f'{{"jsonrpc":"2.0",{members.format(id=received.id)}}}'.encode())
    respond(world, received)
    assert "result" in client.answered(channel, client.last_id)


# --- Memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", [b" ", b'{"jsonrpc":"2.0","id":1}', b'["\\ud800"', b"[" * 10_000])
@pytest.mark.parametrize("is_pipe", [True, False])
def test_an_unreadable_message_leaves_no_garbage(message: bytes, is_pipe: bool) -> None:
    """An unreadable message is freed at once: a collection may come late, and a message may have megabytes."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE))
    client = new_client(world, "pipe" if is_pipe else "http", "s")
    client.initialize()
    gc.collect()
    gc.disable()
    try:
        client.send(message)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert [one for one in gc.garbage if isinstance(one, (FrameType, RemoteProtocolError))] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
