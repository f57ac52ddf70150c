"""What says two things at once, too little or nothing at all: it is refused or dropped, and everything else goes on."""

from __future__ import annotations

import json

import pytest
from driving import LATEST, Client, Driver, connect, driver, error, newcomer, notification, request, result
from isthmus.core.base.effects import Spawn
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from isthmus.core.base.revisions import Era
from stateless_driving import ACCEPT, FORM, Modern, beside, emerge, give, modern, served
from stateless_server import grant

ALL = '{"tools":{},"logging":{},"resources":{"subscribe":true}}'


def assert_goes_on(world: Driver, client: Client) -> None:
    """A call still has its answer."""
    channel = client.request('"last"', "tools/call", '{"name":"t"}')
    world.answer(world.hear("tools/call"), '{"content":[]}')
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
def test_a_question_that_says_two_things_is_answered_with_an_error(method: str, params: str, revision: str) -> None:
    """Or, where nobody has to read what it says twice, shown as it came; never anything in between."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE))
    client = newcomer(world, "pipe", "s")
    able = '{"elicitation":{"form":{},"url":{}},"sampling":{}}'
    client.initialize(f'{{"protocolVersion":"{revision}","capabilities":{able}}}')
    world.shake_hands(capabilities=ALL, revision=revision)
    client.notify("notifications/initialized")
    assert client.pipe is not None
    world.sent[client.pipe].clear()
    world.say(world.last_dial(Spawn).channel, request('"q"', method, params))
    shown = [message for message in world.messages(client.pipe) if b'"method"' in message]
    if world.hears(""):
        assert "error" in world.hear("").frame
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
def test_a_notification_that_says_two_things_disturbs_nobody(era: Era, method: str, params: str) -> None:
    """Servers of either era, to a client that has a session and one that has none."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, era=era))
    client = newcomer(world, "pipe", "s")
    client.initialize()
    if era is Era.STATELESS:
        emerge(world)
        grant(world, world.hear("subscriptions/listen"))
    else:
        world.shake_hands(capabilities=ALL)
    client.notify("notifications/initialized")
    world.say(world.last_dial(Spawn).channel, notification(method, params))
    channel = client.request('"last"', "tools/call", '{"name":"t"}')
    for heard in [one for one in world.heard if one.frame.get("method") == "tools/list"]:
        world.heard.remove(heard)
        world.answer(heard, '{"tools":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}')
    world.answer(world.hear("tools/call"), '{"content":[],"resultType":"complete"}')
    assert json.loads(world.messages(channel)[-1])["id"] == "last"


# --- From clients -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "member", ['"requestState":"a","requestState":"b"', '"name":"x"', '"arguments":{},"arguments":{"a":1}']
)
def test_a_call_that_says_two_things_is_refused(member: str) -> None:
    """By a name said twice nobody can tell which tool is meant; the client's next call is as good as ever."""
    world, client, _ = served("pipe", "pipe")
    channel = client.send(client.body("tools/call", name="t").replace(b'"name"', member.encode() + b', "name"'))
    if world.hears("tools/call"):
        heard = world.hear("tools/call")
        give(world, heard)
        assert "result" in client.answered(channel, client.last_id)
    else:
        assert client.answered(channel, client.last_id)["error"]["code"] in (-32600, -32602, -32020)
    again = client.call()
    give(world, world.hear("tools/call"))
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
    """A server without sessions is told with each request: it is for us to say what is wrong with it."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, era=Era.STATELESS))
    client = newcomer(world, "pipe", "s")
    client.initialize()
    emerge(world)
    grant(world, world.hear("subscriptions/listen"))
    client.notify("notifications/initialized")
    channel = client.request("1", "logging/setLevel", params)
    (said,) = [frame for frame in world.frames(channel) if frame.get("id") == 1]
    assert said.get("error", {}).get("code") == code


def test_a_server_that_does_not_log_has_no_level() -> None:
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, era=Era.STATELESS))
    client = newcomer(world, "pipe", "s")
    client.initialize()
    emerge(world, capabilities='{"tools":{}}')
    client.notify("notifications/initialized")
    channel = client.request("1", "logging/setLevel", '{"level":"info"}')
    (said,) = [frame for frame in world.frames(channel) if frame.get("id") == 1]
    assert said["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("method", "params", "is_ours"),
    [
        ("logging/setLevel", '{"level":"info","level":"error"}', True),
        ("logging/setLevel", '{"level":"loud"}', False),
        ("logging/setLevel", "{}", False),
        ("resources/subscribe", '{"uri":"a:b","uri":"c:d"}', True),
        ("resources/subscribe", '{"uri":7}', False),
        ("resources/unsubscribe", "{}", False),
    ],
)
def test_a_wish_of_one_of_several_clients_is_understood_or_left_to_the_server(
    method: str, params: str, is_ours: bool
) -> None:
    """Of a process that several share: what says two things is refused here, what is merely wrong is the server's."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, sharing=Sharing.CONCURRENT))
    client = connect(world, "pipe", "s", capabilities=ALL)
    channel = client.request("1", method, params)
    assert world.hears(method) is not is_ours
    if not is_ours:
        heard = world.hear(method)
        assert json.loads(params) == heard.frame["params"]
        world.say(heard.channel, error(str(heard.id), '{"code":-32602,"message":"no"}'))
    assert json.loads(world.messages(channel)[-1])["error"]["code"] in (-32600, -32602)
    assert_goes_on(world, client)


@pytest.mark.parametrize("params", ['{"requestId":1,"requestId":2}', "{}", '{"requestId":{}}', "[]"])
def test_what_cancels_two_things_cancels_none(params: str) -> None:
    world, client, _ = served("pipe", "pipe")
    channel = client.call()
    heard = world.hear("tools/call")
    assert client.pipe is not None
    world.say(client.pipe, notification("notifications/cancelled", params))
    assert not world.hears("notifications/cancelled")
    give(world, heard)
    assert "result" in client.answered(channel, client.last_id)


@pytest.mark.parametrize("params", ['{"progressToken":1,"progressToken":2}', '{"progressToken":"x"}', "{}"])
def test_progress_of_a_client_that_belongs_to_nothing_is_dropped(params: str) -> None:
    """It is told of what a server asked, by a token of ours; no other is known."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE))
    client = connect(world, "pipe", "s", capabilities=ALL)
    client.notify("notifications/progress", params)
    assert not world.hears("notifications/progress")
    assert_goes_on(world, client)


# --- Pages to visit ---------------------------------------------------------------------------------------------------


def visit(world: Driver, client: Modern, pages: str, **said: str) -> dict[str, object]:
    """A request that its server refuses until pages are visited. Returns what its client is answered."""
    method = said.pop("method", "tools/call")
    channel = client.request(method, **said)
    heard = world.hear(method)
    refusal = f'{{"code":-32042,"message":"visit","data":{{"elicitations":{pages}}}}}'
    world.reply(heard, error(str(heard.id), refusal))
    return client.answered(channel, client.last_id)


PAGE = '{"mode":"url","elicitationId":"e","url":"http://x","message":"m"}'


@pytest.mark.parametrize("pages", ["7", "[]", "{}", "[7]", f'[{PAGE[:-1]},"url":"http://y"}}]', "null"])
def test_a_refusal_that_names_no_page_is_one(pages: str) -> None:
    """Its client is told that it was refused, and not asked anything."""
    world, client, _ = served()
    assert "error" in visit(world, client, pages, name="t")


@pytest.mark.parametrize("answer", [{"action": "decline"}, {"action": "cancel"}, {}, {"action": 7}])
@pytest.mark.parametrize(("method", "target"), [("tools/call", {"name": "t"}), ("resources/read", {"uri": "a:b"})])
def test_who_declines_to_visit_a_page_gets_no_answer(
    answer: dict[str, object], method: str, target: dict[str, str]
) -> None:
    """A tool's failure says so to the model; any other request fails. The server is not asked again."""
    world, client, _ = served()
    said = visit(world, client, f"[{PAGE}]", method=method, **target)
    state = said["result"]["requestState"]  # type: ignore[index]
    channel = client.request(method, requestState=state, inputResponses={"r1": answer}, **target)
    told = client.answered(channel, client.last_id)
    assert not world.hears(method)
    if method == "tools/call":
        assert told["result"]["isError"] is True
        assert "declined" in told["result"]["content"][0]["text"]
    else:
        assert "declined" in told["error"]["message"]


def test_a_visit_that_is_over_already_is_not_waited_for() -> None:
    """Its server said so while the client was away: refused once more, the call goes up again at once."""
    world, client, _ = served()
    said = visit(world, client, f"[{PAGE}]", name="t")
    state = said["result"]["requestState"]  # type: ignore[index]
    world.say(
        world.last_dial(Spawn).channel, notification("notifications/elicitation/complete", '{"elicitationId":"e"}')
    )
    channel = client.request("tools/call", name="t", requestState=state, inputResponses={"r1": ACCEPT})
    heard = world.hear("tools/call")
    world.reply(heard, error(str(heard.id), f'{{"code":-32042,"message":"m","data":{{"elicitations":[{PAGE}]}}}}'))
    give(world, world.hear("tools/call"))
    assert "result" in client.answered(channel, client.last_id)


def test_a_visit_is_waited_for_only_so_long() -> None:
    """Then the call goes up again, whatever has become of the visit."""
    world, client, _ = served()
    said = visit(world, client, f"[{PAGE}]", name="t")
    state = said["result"]["requestState"]  # type: ignore[index]
    channel = client.request("tools/call", name="t", requestState=state, inputResponses={"r1": ACCEPT})
    heard = world.hear("tools/call")
    world.reply(heard, error(str(heard.id), f'{{"code":-32042,"message":"m","data":{{"elicitations":[{PAGE}]}}}}'))
    assert not world.hears("tools/call")
    world.wait(world.engine._desk.limits.visit_wait_s - 0.1)
    assert not world.hears("tools/call")
    world.wait(0.2)
    give(world, world.hear("tools/call"))
    assert "result" in client.answered(channel, client.last_id)


# --- Questions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ['{"action":"accept","action":"decline"}', '{"action":"dance"}', "{}"])
def test_an_answer_that_says_two_things_is_an_error_for_who_asked(answer: str) -> None:
    """Between two eras it has to be read; it is given on as it came only where nobody has to."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE))
    client = newcomer(world, "pipe", "s")
    client.initialize(f'{{"protocolVersion":"{LATEST}","capabilities":{{"elicitation":{{"form":{{}}}}}}}}')
    world.shake_hands(capabilities=ALL, revision="2025-06-18")
    client.notify("notifications/initialized")
    assert client.pipe is not None
    world.say(world.last_dial(Spawn).channel, request('"q"', "elicitation/create", FORM))
    (question,) = [frame for frame in world.frames(client.pipe) if frame.get("method") == "elicitation/create"]
    client.say(result(json.dumps(question["id"]), answer))
    heard = world.hear("")
    assert heard.frame["id"] == "q"
    assert "error" in heard.frame or heard.raw.endswith(answer.encode() + b"}")


def test_a_client_of_both_eras_is_owed_what_either_asked_for() -> None:
    """One pipe, a request of each kind open on it: a driver waits for both before it lets the pipe go."""
    world, client, _ = served("pipe", "pipe")
    assert client.pipe is not None
    assert not world.engine.owes(client.pipe)
    client.call()
    heard = world.hear("tools/call")
    assert world.engine.owes(client.pipe)
    give(world, heard)
    assert not world.engine.owes(client.pipe)
    assert not world.engine.owes(heard.channel), "a server's is none of a client"
    assert beside(client).pipe == client.pipe
    assert modern(world, "pipe").pipe is None


def test_time_does_not_run_backwards() -> None:
    """Whatever the input: the caller's fault is named, and nothing has changed."""
    from isthmus.core.base.effects import Cause, End
    from isthmus.core.base.errors import LocalProtocolError

    world = driver(ServerPlan(id="s", kind=Kind.PIPE))
    client = connect(world, "pipe", "s", capabilities=ALL)
    assert client.pipe is not None
    engine, pipe, before = world.engine, client.pipe, world.now - 1.0
    body = request("1", "tools/call", '{"name":"t"}')
    for ask in (
        lambda: engine.receive_message(pipe, body, before),
        lambda: engine.receive_messages(pipe, [body, body], before),
        lambda: engine.receive_at_once(pipe, before, message=body),
        lambda: engine.receive_pieces(pipe, [body], before),
        lambda: engine.receive_close(pipe, Cause(End.GONE), before),
        lambda: engine.receive_sent(pipe, 1, before),
        lambda: engine.handle_timeout(before),
    ):
        with pytest.raises(LocalProtocolError, match="back"):
            ask()
    assert_goes_on(world, client)
    assert engine.earliest_at <= engine.next_timeout().at  # type: ignore[union-attr]
