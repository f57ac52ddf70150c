"""Tests of peers of either era whose messages cannot be read, or do not come: the request ends, and nothing is
raised."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import FORGOTTEN, GONE, driver, error, new_client, notification, request
from inside import Inside
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.limits import Limits
from isthmus.core.base.name_filter import NameFilter
from isthmus.core.base.plan import Affinity, Kind, ServerPlan, Sharing
from isthmus.core.base.revisions import Era
from stateless_driving import (
    ANSWERS,
    K,
    ask,
    assert_empty,
    bridge,
    modern,
    refuse_discovery,
    rounds,
    served,
    start_legacy_server,
    suspended,
)
from stateless_server import (
    LISTENING,
    Pair,
    connect_child,
    discovered,
    discovery,
    grant,
    input_required_result,
    modern_plan,
    pair,
)

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
    """2026-07-28 basic/patterns/mrtr: a client gets whole questions only; the server gets an error for any other."""
    world, client, get = served(up)
    channel = client.call()
    received = world.take_sent("tools/call")
    if not is_called:
        world.answer(received, '{"content":[]}')
    elif received.post is not None:
        world.open(received.channel, Connected())
    world.send(received.channel if is_called or get is None else get, request('"q"', method, UNREADABLE[method]))
    refusal = world.take_sent("")
    assert refusal.frame["id"] == "q"
    assert "error" in refusal.frame or method == "elicitation/create"
    world.acknowledge(refusal)
    if is_called:
        world.send(received.channel, b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}' % received.id)
    assert client.answered(channel)["result"]["resultType"] == "complete"
    assert not any(session.questions for session in Inside(world.engine).sessions.sessions.values())


def test_the_capabilities_of_a_retry_are_read_again() -> None:
    """Capabilities with a member twice are refused on a retry too; the round can still be claimed."""
    world, client, _ = served()
    received, _, state = suspended(world, client)
    answers = {"r1": ANSWERS["elicitation/create"]}
    body = client.body("tools/call", name="ask", arguments={}, requestState=state, inputResponses=answers)
    channel = client.send(body.replace(b'"roots": {}', b'"roots": {}, "roots": {}'))
    assert client.answered(channel)["error"]["code"] == -32602
    ask(world, received, id_raw='"second"')
    client.call(requestState=state, inputResponses=answers)
    assert world.take_sent("").frame["id"] == "q"


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
    world.answer(world.take_sent("logging/setLevel"))
    received = world.take_sent("tools/call")
    world.send(received.channel, notification(method, params))
    world.answer(received, '{"content":[]}')
    assert client.notifications(channel) == []
    assert client.answered(channel)["result"]["content"] == []
    assert len(client.notifications(listen)) <= 1
    assert world.notes("warning")


# --- Handshakes and discovery -----------------------------------------------------------------------------------------


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
def test_a_server_whose_handshake_cannot_be_read_is_used_all_the_same(rest: str) -> None:
    """Clients with sessions get such an answer as it is; others get no capabilities, and can call the server."""
    world = bridge()
    client = modern(world, "pipe")
    discover, call = client.request("server/discover"), client.call()
    world.open(world.dials[-1].channel, Connected())
    refuse_discovery(world)
    world.open(world.dials[-1].channel, Connected())
    world.answer(world.take_sent("initialize"), f'{{"protocolVersion":"2025-11-25"{rest}}}')
    world.answer(world.take_sent("tools/call"), '{"content":[]}')
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
def test_a_discovery_that_cannot_be_read_is_an_error(capabilities: str, rest: str) -> None:
    world = driver(modern_plan(Kind.PIPE))
    client = new_client(world, "pipe", "pipe")
    channel = client.initialize()
    connect_child(world)
    world.answer(world.take_sent("server/discover"), discovery(capabilities, rest=rest))
    assert world.only_message(channel)["error"]["code"]
    assert not world.engine.session_count


@pytest.mark.parametrize("up", [Kind.PIPE, Kind.HTTP])
def test_a_capability_with_a_repeated_member_grants_nothing(up: Kind) -> None:
    """A capability with a member twice is not granted, at once or at the deadline."""
    world = driver(modern_plan(up, tools=NameFilter(exclude=("hidden",))))
    client = modern(world, up.value)
    channel = client.request("subscriptions/listen", notifications={"toolsListChanged": True})
    if up is Kind.PIPE:
        connect_child(world)
    world.answer(world.take_sent("server/discover"), discovery('{"tools":{"listChanged":true,"listChanged":true}}'))
    world.wait(10)
    (granted,) = client.notifications(channel)
    assert granted["params"]["notifications"] == {}


def test_a_handshake_that_began_no_session_may_be_unreadable_where_there_is_a_discovery() -> None:
    world = driver()
    client = new_client(world, "http", "http")
    channel = client.initialize()
    received = world.take_sent("initialize")
    answer = '{"protocolVersion":"2025-11-25","protocolVersion":"2025-11-25","capabilities":{}}'
    world.reply(received, b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (received.id, answer.encode()))
    world.answer(world.take_sent("server/discover"), discovery())
    assert world.only_message(channel)["result"]["protocolVersion"] == "2025-11-25"


# --- URL elicitation --------------------------------------------------------------------------------------------------


def visits(*names: str) -> str:
    pages = [{"mode": "url", "message": "m", "url": "https://x", "elicitationId": name} for name in names]
    return json.dumps({"code": -32042, "message": "visit", "data": {"elicitations": pages}})


@pytest.mark.parametrize("names", [("v" * 5000,), ("\0" * 300, "\U0001f600" * 3000), tuple(map(str, range(16)))])
def test_elicitation_ids_may_have_any_length(names: tuple[str, ...]) -> None:
    """The request state stays small, and the elicitations are still recognized."""
    world, client, _ = served()
    channel = client.call()
    received = world.take_sent("tools/call")
    world.reply(received, error(str(received.id), visits(*names)))
    questions, state = rounds(client, channel)
    assert len(questions) == len(names)
    assert len(state) <= 4096
    answers = {key: {"action": "accept"} for key in questions}
    channel = client.call(requestState=state, inputResponses=answers)
    received = world.take_sent("tools/call")
    world.reply(received, error(str(received.id), visits(*names)))
    assert not world.was_sent("tools/call")
    for name in names:
        params = json.dumps({"elicitationId": name})
        world.send(received.channel, notification("notifications/elicitation/complete", params))
    world.answer(world.take_sent("tools/call"), '{"content":[]}')
    assert client.answered(channel)["result"]["content"] == []


def test_a_refusal_that_names_very_many_pages_is_an_error_like_any_other() -> None:
    world, client, _ = served()
    channel = client.call()
    received = world.take_sent("tools/call")
    world.reply(received, error(str(received.id), visits(*map(str, range(500)))))
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
def test_a_question_that_cannot_be_translated_ends_the_call(
    declared: str | None, revision: str, method: str, params: str
) -> None:
    one = pair(up=Kind.PIPE, revision=revision, **({} if declared is None else {"declared": declared}))
    channel, received = one.call()
    entry = f'{{"method":"{method}","params":{params}}}'
    one.world.answer(received, f'{{"resultType":"input_required","inputRequests":{{"a":{entry}}}}}')
    answer = one.answer(channel)
    assert answer is not None
    assert answer["error"]["code"] == -32603
    assert one.asked(channel) == []


@pytest.mark.parametrize(
    "refusal", ["1", "null", "[]", "{}", '{"message":5}', '{"message":"a","message":"b"}', '"\\ud800"']
)
def test_a_call_ends_with_any_error_to_its_question(refusal: str) -> None:
    one = pair(up=Kind.PIPE)
    channel, received = one.call()
    prompt = {"maxTokens": 1, "messages": []}
    one.world.answer(received, input_required_result({"a": ("sampling/createMessage", prompt)}))
    (question,) = one.asked(channel)
    one.client.send(error(str(question["id"]), refusal))
    answer = one.answer(channel)
    assert answer is not None
    assert answer["result"]["isError"] is True


# --- Servers that are lost --------------------------------------------------------------------------------------------


def test_the_session_of_one_request_is_lost_with_its_server() -> None:
    """A session of one request ends with the response, which has an unknown outcome, and so does everything else of
    it."""
    plan = ServerPlan(id="shared", kind=Kind.PIPE, sharing=Sharing.CONCURRENT, era=Era.HANDSHAKE)
    world = driver(plan, affinity=Affinity.REQUEST)
    client = modern(world, "shared")
    listen = client.request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:b"]})
    start_legacy_server(world)
    world.answer(world.take_sent("resources/subscribe"))
    channel = client.call()
    received = world.take_sent("tools/call")
    world.end(listen, GONE)
    assert world.was_sent("resources/unsubscribe")
    world.end(received.channel, DIED)
    assert client.answered(channel)["error"]["data"]["outcome"] == "unknown"
    assert_empty(world)


def test_a_server_that_forgets_the_session_of_one_request_each_time() -> None:
    """The request is answered after its second try, and its session is over by then."""
    plan = ServerPlan(id="http", kind=Kind.HTTP, era=Era.HANDSHAKE)
    world = driver(plan, affinity=Affinity.REQUEST)
    client = modern(world, "http")
    channel = client.call()
    for session in ("S1", "S2"):
        start_legacy_server(world, session=session)
        world.end(world.take_sent("tools/call").channel, FORGOTTEN)
    assert "error" in client.answered(channel)
    assert_empty(world)


# --- Requests of the proxy before a call ------------------------------------------------------------------------------


def test_a_list_of_tools_that_cannot_be_read_delays_no_call() -> None:
    one = pair()
    one.client.request("1", "tools/call", '{"name":"t"}')
    received = one.world.take_sent("tools/list")
    one.world.answer(received, '{"tools":[{"name":"a","x-mcp-header":1}],"tools":[]}')
    assert one.world.was_sent("tools/call")


def test_a_list_of_tools_that_does_not_come_delays_a_call_briefly() -> None:
    """The call goes up without the list, and a late list changes nothing."""
    one = pair(limits=Limits(lookup_s=7.0))
    channel = one.client.request("1", "tools/call", '{"name":"t"}')
    late = one.world.take_sent("tools/list")
    one.world.wait(6.9)
    assert not one.world.was_sent("tools/call")
    one.world.wait(0.2)
    assert late.channel in one.world.closed
    one.world.answer(one.world.take_sent("tools/call"), '{"content":[]}')
    assert one.answer(channel) is not None


def test_a_log_level_that_is_not_answered_delays_a_call_briefly() -> None:
    """2026-07-28 server/utilities/logging: the call does not depend on its log level."""
    world, client, _ = served(limits=Limits(lookup_s=7.0))
    channel = client.call(level="debug")
    level = world.take_sent("logging/setLevel")
    world.wait(7.1)
    received = world.take_sent("tools/call")
    world.answer(level)
    world.answer(received, '{"content":[]}')
    assert client.answered(channel)["result"]["content"] == []
    channel = client.call(level="debug")
    world.answer(world.take_sent("tools/call"), '{"content":[]}')
    assert client.answered(channel, 2) if client.pipe else client.answered(channel)


@pytest.mark.parametrize("up", [Kind.PIPE, Kind.HTTP])
def test_a_subscription_that_is_not_confirmed_delays_requests_briefly(up: Kind) -> None:
    """Requests wait for a subscription for as long as for an event stream, and no longer."""
    world = driver(modern_plan(up), limits=Limits(listen_wait_s=1.0))
    client = new_client(world, "pipe", up.value)
    client.initialize()
    discovered(world, LISTENING, grants=False)
    client.notify("notifications/initialized")
    client.request("1", "prompts/list", "{}")
    world.wait(0.9)
    assert not world.was_sent("prompts/list")
    world.wait(0.2)
    assert world.was_sent("prompts/list")
    world.wait(100.0)
    assert world.engine.session_count == 1


# --- Resources that clients with a session subscribe to, with servers that have none ----------------------------------


def subscribing(**limits: Any) -> tuple[Pair, Any, Any]:
    """A client that waits to be subscribed, and the proxy's subscription for it, which its server has not confirmed."""
    one = pair(up=Kind.PIPE, capabilities=LISTENING, limits=Limits(**limits) if limits else None)
    channel = one.client.request("5", "resources/subscribe", '{"uri":"a:b"}')
    one.world.wait(0.1)
    return one, channel, one.world.take_sent("subscriptions/listen")


def come_back(one: Pair) -> None:
    """The server is back, and confirms all that is requested."""
    one.world.wait(5.0)
    discovered(one.world, LISTENING)
    one.world.wait(1.0)
    while one.world.was_sent("subscriptions/listen"):
        grant(one.world, one.world.take_sent("subscriptions/listen"))


def test_a_subscription_request_waits_on_when_the_server_dies() -> None:
    one, channel, listen = subscribing()
    one.world.end(listen.channel, DIED)
    come_back(one)
    answer = one.answer(channel)
    assert answer is not None
    assert answer["result"] == {}


def test_a_cancelled_subscription_request_is_not_sent_when_the_server_is_back() -> None:
    one, channel, listen = subscribing()
    one.world.end(listen.channel, DIED)
    one.client.notify("notifications/cancelled", '{"requestId":5}')
    come_back(one)
    assert one.answer(channel) is None
    assert one.world.engine.exchange_count == 0


def test_a_subscription_request_times_out() -> None:
    one, channel, _ = subscribing(reply_timeout_s=50.0)
    one.world.wait(51.0)
    answer = one.answer(channel)
    assert answer is not None
    assert answer["error"]["data"]["outcome"] == "unknown"
