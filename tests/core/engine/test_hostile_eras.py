"""Peers of either era that say what cannot be read, or nothing: that ends, harms nobody else, and is never raised."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import FORGOTTEN, GONE, driver, error, newcomer, notification, request
from isthmus.core.base.effects import Cause, Connected, End
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Affinity, Kind, ServerPlan, Sharing
from isthmus.core.base.revisions import Era
from stateless_driving import (
    ANSWERS,
    K,
    ask,
    assert_empty,
    bridge,
    modern,
    parked,
    refuse_discovery,
    rise,
    rounds,
    served,
)
from stateless_server import LISTENING, Pair, asking, connect_child, discovered, discovery, grant, modern_plan, pair

DIED = Cause(End.BROKEN, "exited with code 1")

# --- Questions of servers with sessions, for clients without ----------------------------------------------------------

UNREADABLE = {
    "elicitation/create": '{"mode":"form","mode":"url","message":"m","requestedSchema":{}}',
    "sampling/createMessage": '{"messages":[],"messages":[],"tools":[],"tools":[],"maxTokens":1}',
    "roots/list": "[1]",
}


@pytest.mark.parametrize("is_called", [True, False])
@pytest.mark.parametrize("method", sorted(UNREADABLE))
@pytest.mark.parametrize("up", ["pipe", "http"])
def test_a_question_that_cannot_be_read_is_refused(up: str, method: str, is_called: bool) -> None:
    """2026-07-28 basic/patterns/mrtr: a client is asked with whole questions; its server hears why it was not."""
    world, client, get = served(up)
    channel = client.call()
    heard = world.hear("tools/call")
    if not is_called:
        world.answer(heard, '{"content":[]}')
    elif heard.post is not None:
        world.open(heard.channel, Connected())
    world.say(heard.channel if is_called or get is None else get, request('"q"', method, UNREADABLE[method]))
    refusal = world.hear("")
    assert refusal.frame["id"] == "q"
    assert "error" in refusal.frame or method == "elicitation/create"
    world.acknowledge(refusal)
    if is_called:
        world.say(heard.channel, b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}' % heard.id)
    assert client.answered(channel)["result"]["resultType"] == "complete"
    assert not any(session.asks for session in world.engine._clients.sessions.values())


def test_a_retry_says_again_what_its_client_can_do_and_is_read_again() -> None:
    """Capabilities with a member twice are refused on a retry too; the round can still be claimed."""
    world, client, _ = served()
    heard, _, state = parked(world, client)
    answers = {"r1": ANSWERS["elicitation/create"]}
    body = client.body("tools/call", name="ask", arguments={}, requestState=state, inputResponses=answers)
    channel = client.send(body.replace(b'"roots": {}', b'"roots": {}, "roots": {}'))
    assert client.answered(channel)["error"]["code"] == -32602
    ask(world, heard, id_raw='"second"')
    client.call(requestState=state, inputResponses=answers)
    assert world.hear("").frame["id"] == "q"


# --- Notifications of servers with sessions, for clients without ------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("notifications/message", '{"level":"info","level":"error","data":1}'),
        ("notifications/elicitation/complete", '{"elicitationId":"a","elicitationId":"b"}'),
        ("notifications/resources/updated", '{"uri":"a:b","uri":"a:c"}'),
        ("notifications/tools/list_changed", "[1]"),
        ("notifications/progress", '{"progressToken":1,"progressToken":2}'),
        ("notifications/cancelled", '{"requestId":1,"requestId":2}'),
    ],
)
def test_a_notification_that_cannot_be_read_is_dropped(method: str, params: str) -> None:
    world, client, _ = served()
    listen = client.request("subscriptions/listen", notifications={"toolsListChanged": True})
    channel = client.call(level="debug", token=1)
    world.answer(world.hear("logging/setLevel"))
    heard = world.hear("tools/call")
    world.say(heard.channel, notification(method, params))
    world.answer(heard, '{"content":[]}')
    assert client.told(channel) == []
    assert client.answered(channel)["result"]["content"] == []
    assert len(client.told(listen)) <= 1
    assert world.notes("warning")


# --- How servers introduce themselves ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rest",
    [
        "",
        ',"capabilities":null',
        ',"capabilities":{},"serverInfo":{"name":"a","name":"b"}',
        ',"capabilities":{"extensions":{"a":{},"a":{}}}',
        ',"capabilities":{},"_meta":{"a":1,"a":2}',
    ],
)
def test_a_server_with_sessions_that_cannot_be_shown_is_used_all_the_same(rest: str) -> None:
    """Clients with sessions are shown such an answer as it is; others learn nothing of the server, and can call it."""
    world = bridge()
    client = modern(world, "pipe")
    discover, call = client.request("server/discover"), client.call()
    world.open(world.dials[-1].channel, Connected())
    refuse_discovery(world)
    world.open(world.dials[-1].channel, Connected())
    world.answer(world.hear("initialize"), f'{{"protocolVersion":"2025-11-25"{rest}}}')
    world.answer(world.hear("tools/call"), '{"content":[]}')
    assert client.answered(discover)["result"]["capabilities"] == {}
    assert client.answered(call)["result"]["content"] == []


@pytest.mark.parametrize(
    ("capabilities", "rest"),
    [
        ("{}", f',"_meta":{{"{K}serverInfo":{{"name":"x","name":"y"}}}}'),
        ("{}", ',"_meta":{"a":1,"a":2}'),
        ('{"tools":{},"tools":{}}', ""),
        ('{"extensions":{"a":{},"a":{}}}', ""),
    ],
)
def test_a_discovery_that_cannot_be_shown_is_no_discovery(capabilities: str, rest: str) -> None:
    world = driver(modern_plan(Kind.PIPE))
    client = newcomer(world, "pipe", "pipe")
    channel = client.initialize()
    connect_child(world)
    world.answer(world.hear("server/discover"), discovery(capabilities, rest=rest))
    assert world.said(channel)["error"]["code"]
    assert not world.engine.session_count


@pytest.mark.parametrize("up", [Kind.PIPE, Kind.HTTP])
def test_what_a_server_tells_of_is_nothing_where_that_is_said_twice(up: Kind) -> None:
    """What cannot be read in one way is not granted, at once or when time is up."""
    world = driver(modern_plan(up))
    client = modern(world, up.value)
    channel = client.request("subscriptions/listen", notifications={"toolsListChanged": True})
    if up is Kind.PIPE:
        connect_child(world)
    world.answer(world.hear("server/discover"), discovery('{"tools":{"listChanged":true,"listChanged":true}}'))
    world.wait(10)
    (granted,) = client.told(channel)
    assert granted["params"]["notifications"] == {}


def test_a_handshake_that_began_no_session_may_be_unreadable_where_there_is_a_discovery() -> None:
    world = driver()
    client = newcomer(world, "http", "http")
    channel = client.initialize()
    heard = world.hear("initialize")
    said = '{"protocolVersion":"2025-11-25","protocolVersion":"2025-11-25","capabilities":{}}'
    world.reply(heard, b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (heard.id, said.encode()))
    world.answer(world.hear("server/discover"), discovery())
    assert world.said(channel)["result"]["protocolVersion"] == "2025-11-25"


# --- Pages to visit ---------------------------------------------------------------------------------------------------


def visits(*names: str) -> str:
    pages = [{"mode": "url", "message": "m", "url": "https://x", "elicitationId": name} for name in names]
    return json.dumps({"code": -32042, "message": "visit", "data": {"elicitations": pages}})


@pytest.mark.parametrize("names", [("v" * 5000,), ("\0" * 300, "\U0001f600" * 3000), tuple(map(str, range(16)))])
def test_the_names_of_visits_are_as_long_as_their_server_likes(names: tuple[str, ...]) -> None:
    """What the client carries stays small, and the visits are still recognized."""
    world, client, _ = served()
    channel = client.call()
    heard = world.hear("tools/call")
    world.reply(heard, error(str(heard.id), visits(*names)))
    questions, state = rounds(client, channel)
    assert len(questions) == len(names)
    assert len(state) <= 4096
    answers = {key: {"action": "accept"} for key in questions}
    channel = client.call(requestState=state, inputResponses=answers)
    heard = world.hear("tools/call")
    world.reply(heard, error(str(heard.id), visits(*names)))
    assert not world.hears("tools/call")
    for name in names:
        params = json.dumps({"elicitationId": name})
        world.say(heard.channel, notification("notifications/elicitation/complete", params))
    world.answer(world.hear("tools/call"), '{"content":[]}')
    assert client.answered(channel)["result"]["content"] == []


def test_a_refusal_that_names_very_many_pages_is_an_error_like_any_other() -> None:
    world, client, _ = served()
    channel = client.call()
    heard = world.hear("tools/call")
    world.reply(heard, error(str(heard.id), visits(*map(str, range(500)))))
    assert client.answered(channel)["error"]["data"]["dev.isthmus/originalCode"] == -32042


# --- Questions of servers without sessions, for clients with one ------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "revision", "method", "params"),
    [
        (
            None,
            "2025-11-25",
            "elicitation/create",
            f'{{"message":"m","requestedSchema":{{}},"_meta":{{"{K}a":1,"{K}a":2}}}}',
        ),
        (
            None,
            "2025-06-18",
            "elicitation/create",
            '{"message":"m","requestedSchema":{"properties":{},"properties":{}}}',
        ),
        (
            '{"sampling":{"context":{},"context":{}}}',
            "2025-11-25",
            "sampling/createMessage",
            '{"messages":[],"maxTokens":1}',
        ),
    ],
)
def test_a_question_that_cannot_be_shown_ends_the_call(
    declared: str | None, revision: str, method: str, params: str
) -> None:
    one = pair(up=Kind.PIPE, revision=revision, **({} if declared is None else {"declared": declared}))
    channel, heard = one.call()
    entry = f'{{"method":"{method}","params":{params}}}'
    one.world.answer(heard, f'{{"resultType":"input_required","inputRequests":{{"a":{entry}}}}}')
    answer = one.answer(channel)
    assert answer is not None
    assert answer["error"]["code"] == -32603
    assert one.asked(channel) == []


@pytest.mark.parametrize(
    "said", ["1", "null", "[]", "{}", '{"message":5}', '{"message":"a","message":"b"}', '"\\ud800"']
)
def test_however_a_client_refuses_a_question_its_call_ends(said: str) -> None:
    one = pair(up=Kind.PIPE)
    channel, heard = one.call()
    prompt = {"maxTokens": 1, "messages": []}
    one.world.answer(heard, asking({"a": ("sampling/createMessage", prompt)}))
    (question,) = one.asked(channel)
    one.client.say(error(str(question["id"]), said))
    answer = one.answer(channel)
    assert answer is not None
    assert answer["result"]["isError"] is True


# --- Servers that are lost --------------------------------------------------------------------------------------------


def test_a_server_that_was_there_for_one_request_is_lost_with_it() -> None:
    """Its session ends with the answer, which is that nothing is known: whatever else was asked of it ends, too."""
    plan = ServerPlan(id="shared", kind=Kind.PIPE, sharing=Sharing.CONCURRENT, era=Era.HANDSHAKE)
    world = driver(plan, affinity=Affinity.REQUEST)
    client = modern(world, "shared")
    listen = client.request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:b"]})
    rise(world)
    world.answer(world.hear("resources/subscribe"))
    channel = client.call()
    heard = world.hear("tools/call")
    world.end(listen, GONE)
    assert world.hears("resources/unsubscribe")
    world.end(heard.channel, DIED)
    assert client.answered(channel)["error"]["data"]["outcome"] == "unknown"
    assert_empty(world)


def test_a_server_that_forgets_the_session_of_one_request_each_time() -> None:
    """The request is answered after its second try, and the session that was for it is over by then."""
    plan = ServerPlan(id="http", kind=Kind.HTTP, era=Era.HANDSHAKE)
    world = driver(plan, affinity=Affinity.REQUEST)
    client = modern(world, "http")
    channel = client.call()
    for session in ("S1", "S2"):
        rise(world, session=session)
        world.end(world.hear("tools/call").channel, FORGOTTEN)
    assert "error" in client.answered(channel)
    assert_empty(world)


# --- What comes before a call -----------------------------------------------------------------------------------------


def test_a_list_of_tools_that_cannot_be_read_holds_nobody_up() -> None:
    one = pair()
    one.client.request("1", "tools/call", '{"name":"t"}')
    heard = one.world.hear("tools/list")
    one.world.answer(heard, '{"tools":[{"name":"a","x-mcp-header":1}],"tools":[]}')
    assert one.world.hears("tools/call")


def test_a_list_of_tools_that_does_not_come_holds_nobody_up_for_long() -> None:
    """The call goes up as it can; what comes of the list later changes nothing."""
    one = pair(limits=Limits(lookup_s=7.0))
    channel = one.client.request("1", "tools/call", '{"name":"t"}')
    late = one.world.hear("tools/list")
    one.world.wait(6.9)
    assert not one.world.hears("tools/call")
    one.world.wait(0.2)
    assert late.channel in one.world.closed
    one.world.answer(one.world.hear("tools/call"), '{"content":[]}')
    assert one.answer(channel) is not None


def test_a_log_level_that_is_not_taken_holds_nobody_up_for_long() -> None:
    """2026-07-28 server/utilities/logging: the log is a wish, the answer is owed."""
    world, client, _ = served(limits=Limits(lookup_s=7.0))
    channel = client.call(level="debug")
    level = world.hear("logging/setLevel")
    world.wait(7.1)
    heard = world.hear("tools/call")
    world.answer(level)
    world.answer(heard, '{"content":[]}')
    assert client.answered(channel)["result"]["content"] == []
    channel = client.call(level="debug")
    world.answer(world.hear("tools/call"), '{"content":[]}')
    assert client.answered(channel, 2) if client.pipe else client.answered(channel)


@pytest.mark.parametrize("up", [Kind.PIPE, Kind.HTTP])
def test_a_subscription_that_is_not_confirmed_holds_up_no_request(up: Kind) -> None:
    """Requests wait for what is subscribed for as long as for an event stream, and no longer."""
    world = driver(modern_plan(up), limits=Limits(listen_wait_s=1.0))
    client = newcomer(world, "pipe", up.value)
    client.initialize()
    discovered(world, LISTENING, grants=False)
    client.notify("notifications/initialized")
    client.request("1", "prompts/list", "{}")
    world.wait(0.9)
    assert not world.hears("prompts/list")
    world.wait(0.2)
    assert world.hears("prompts/list")
    world.wait(100.0)
    assert world.engine.session_count == 1


# --- Resources that clients with a session subscribe to, with servers that have none ----------------------------------


def subscribing(**limits: Any) -> tuple[Pair, Any, Any]:
    """A client that waits to be subscribed, and our subscription for it, which its server has not confirmed."""
    one = pair(up=Kind.PIPE, capabilities=LISTENING, limits=Limits(**limits) if limits else None)
    channel = one.client.request("5", "resources/subscribe", '{"uri":"a:b"}')
    one.world.wait(0.1)
    return one, channel, one.world.hear("subscriptions/listen")


def again(one: Pair) -> None:
    """The server is back, and confirms whatever is wanted."""
    one.world.wait(5.0)
    discovered(one.world, LISTENING)
    one.world.wait(1.0)
    while one.world.hears("subscriptions/listen"):
        grant(one.world, one.world.hear("subscriptions/listen"))


def test_who_waits_to_be_subscribed_waits_on_when_the_server_dies() -> None:
    one, channel, listen = subscribing()
    one.world.end(listen.channel, DIED)
    again(one)
    answer = one.answer(channel)
    assert answer is not None
    assert answer["result"] == {}


def test_who_wants_no_answer_any_more_is_not_subscribed_when_the_server_is_back() -> None:
    one, channel, listen = subscribing()
    one.world.end(listen.channel, DIED)
    one.client.notify("notifications/cancelled", '{"requestId":5}')
    again(one)
    assert one.answer(channel) is None
    assert one.world.engine.exchange_count == 0


def test_who_waits_to_be_subscribed_does_not_wait_for_ever() -> None:
    one, channel, _ = subscribing(reply_timeout_s=50.0)
    one.world.wait(51.0)
    answer = one.answer(channel)
    assert answer is not None
    assert answer["error"]["data"]["outcome"] == "unknown"
