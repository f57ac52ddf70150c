"""Tests of recovery: servers that forget sessions, die, refuse requests or do not start.

A tool call is written once, unless it is certain that it did not run.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from driving import (
    DONE,
    FORGOTTEN,
    NO_STREAM,
    Client,
    Driver,
    connect,
    driver,
    error,
    initialized_client,
    new_client,
    notification,
    request,
    result,
)
from isthmus.core.base.effects import Delete, Dial, Listen, Post, Spawn
from isthmus.core.base.events import Cause, Connected, End, Queued
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.methods import SAFE_TO_REPEAT
from isthmus.core.base.plan import Kind, ServerPlan

DIED = Cause(End.BROKEN, detail="exit 1: out of memory")
RESET = Cause(End.BROKEN, detail="connection reset")
UNREACHABLE = Cause(End.UNREACHABLE, detail="connection refused", unsent=True)


def failure(world: Driver, channel: ChannelId) -> dict[str, object]:
    """Returns the error that ended the request on a channel."""
    seen = json.loads(world.messages(channel)[-1])["error"]
    assert isinstance(seen, dict)
    return seen


def starts(world: Driver) -> int:
    """Returns how often a server was started, or got `initialize` over HTTP."""
    targets = [dial.target for dial in world.dials]
    greetings = [t for t in targets if isinstance(t, Post) and json.loads(t.message).get("method") == "initialize"]
    return len([t for t in targets if isinstance(t, Spawn)]) + len(greetings)


def lose(world: Driver, up: str) -> None:
    """Ends the upstream session with nothing open on it: the process dies, or the GET stream gets 404."""
    if up == "pipe":
        world.end(world.last_dial(Spawn).channel, DIED)
        return
    stream = world.last_dial(Listen).channel
    world.end(stream, RESET)
    world.wait(1.0)
    world.end(world.last_dial(Listen).channel, FORGOTTEN)


# --- The server forgot the session ------------------------------------------------------------------------------------


def test_a_forgotten_session_is_made_anew_once_and_the_request_sent_again_once() -> None:
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/call", '{"n":1}')
    first = world.take_sent("tools/call")
    world.end(first.channel, FORGOTTEN)
    world.start_server(session="S2")
    second = world.take_sent("tools/call")
    assert second.frame["params"] == {"n": 1}
    assert second.id != first.id
    assert second.post is not None
    assert second.post.session == "S2"
    world.answer(second, '{"done":1}')
    assert world.messages(channel) == [result("1", '{"done":1}')]
    assert starts(world) == 2
    assert not world.unread


def test_many_refusals_at_once_make_one_new_session() -> None:
    world = driver()
    client = connect(world, "http", "http")
    channels = [client.request(str(n), "tools/call", f'{{"n":{n}}}') for n in range(4)]
    calls = [world.take_sent("tools/call") for _ in channels]
    world.end(calls[0].channel, FORGOTTEN)
    world.end(calls[1].channel, FORGOTTEN)
    world.start_server(session="S2")
    world.end(calls[2].channel, FORGOTTEN)
    world.end(calls[3].channel, FORGOTTEN)
    again = [world.take_sent("tools/call") for _ in channels]
    for call in again:
        world.answer(call, json.dumps(call.frame["params"]))
    assert [world.only_message(channel)["result"] for channel in channels] == [{"n": n} for n in range(4)]
    assert starts(world) == 2
    assert not world.unread


def test_a_second_refusal_is_the_requests_end() -> None:
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/list")
    world.end(world.take_sent("tools/list").channel, FORGOTTEN)
    world.start_server(session="S2")
    world.end(world.take_sent("tools/list").channel, FORGOTTEN)
    assert failure(world, channel)["code"] == -31004
    assert failure(world, channel)["data"] == {"httpStatus": 404, "body": ""}
    assert not world.unread


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_the_plan_sets_how_often_a_refused_request_is_sent_again(retries: int) -> None:
    world = driver(ServerPlan(id="http", kind=Kind.HTTP, session_retries=retries))
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/call", "{}")
    written = 0
    while world.was_sent("tools/call"):
        written += 1
        world.end(world.take_sent("tools/call").channel, FORGOTTEN)
        if world.was_sent("initialize"):
            world.start_server(session=f"T{written}")
    assert written == 1 + retries
    assert failure(world, channel)["code"] == -31004


def test_404_of_a_server_without_sessions_is_an_ordinary_refusal() -> None:
    world = driver()
    client = new_client(world, "http", "http")
    init = client.initialize()
    world.answer(world.take_sent("initialize"), '{"protocolVersion":"2025-11-25","capabilities":{}}', session=None)
    world.end(world.take_sent("server/discover").channel, FORGOTTEN)
    world.acknowledge(world.take_sent("notifications/initialized"))
    world.end(world.last_dial(Listen).channel, NO_STREAM)
    client.session = world.sent[init][-1].session
    channel = client.request("1", "tools/list")
    world.end(world.take_sent("tools/list").channel, FORGOTTEN)
    assert failure(world, channel)["code"] == -31004
    assert starts(world) == 1


def test_calls_on_their_own_streams_outlive_a_forgotten_session() -> None:
    """A server that forgets a session may still finish a running call."""
    world = driver()
    client = connect(world, "http", "http")
    long = client.request("1", "tools/call", "{}")
    call = world.take_sent("tools/call")
    client.request("2", "tools/list")
    world.end(world.take_sent("tools/list").channel, FORGOTTEN)
    world.answer(call, '{"n":1}')
    assert world.messages(long) == [result("1", '{"n":1}')]


def test_a_question_of_a_forgotten_session_is_not_asked() -> None:
    """The new session does not know the question, so its answer could not be delivered."""
    world = driver()
    client = connect(world, "http", "http")
    long = client.request("1", "tools/call", "{}")
    call = world.take_sent("tools/call")
    client.request("2", "tools/list")
    world.end(world.take_sent("tools/list").channel, FORGOTTEN)
    world.start_server(session="S2")
    world.answer(world.take_sent("tools/list"))
    world.open(call.channel, Connected(session=None))
    world.send(call.channel, request("9", "elicitation/create", "{}"))
    assert world.messages(long) == []
    assert not world.unread
    world.send(call.channel, result(str(call.id)))
    assert world.messages(long) == [result("1")]


def test_a_notification_that_finds_the_session_forgotten_makes_the_next_request_start_anew() -> None:
    world = driver()
    client = connect(world, "http", "http")
    client.notify("vendor/notice")
    world.end(world.take_sent("vendor/notice").channel, FORGOTTEN)
    assert starts(world) == 1
    client.request("1", "tools/list")
    assert starts(world) == 2
    world.start_server(session="S2")
    assert world.was_sent("tools/list")


# --- Restored state ---------------------------------------------------------------------------------------------------


def settle(world: Driver, client: Client, method: str, params: str, *, fails: bool = False) -> None:
    client.request("9", method, params)
    received = world.take_sent(method)
    if fails:
        world.reply(received, error(str(received.id), '{"code":-1,"message":"no"}'))
    else:
        world.answer(received)


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_log_level_and_subscriptions_are_set_again_before_the_first_request(up: str) -> None:
    world = driver()
    client = connect(world, "http", up, listens=True)
    settle(world, client, "logging/setLevel", '{"level":"info"}')
    settle(world, client, "logging/setLevel", '{"level":"debug", "_meta":{"progressToken":1}}')
    for name in "abc":
        settle(world, client, "resources/subscribe", f'{{"uri":"file:///{name}"}}')
    settle(world, client, "resources/unsubscribe", '{"uri":"file:///b"}')
    settle(world, client, "resources/subscribe", '{"uri":"file:///refused"}', fails=True)
    lose(world, up)
    client.request("1", "tools/list")
    world.start_server(session="S2")
    replayed = world.unread[:]
    assert [(h.frame["method"], h.frame["params"]) for h in replayed] == [
        ("logging/setLevel", {"level": "debug"}),
        ("resources/subscribe", {"uri": "file:///a"}),
        ("resources/subscribe", {"uri": "file:///c"}),
    ]
    world.answer(world.take_sent("logging/setLevel"))
    world.answer(world.take_sent("resources/subscribe"))
    assert not world.was_sent("tools/list"), "not before everything is as it was"
    received = world.take_sent("resources/subscribe")
    world.reply(received, error(str(received.id), '{"code":-32002,"message":"gone"}'))
    assert world.was_sent("tools/list"), "state that cannot be restored holds up no request"


def test_a_session_forgotten_while_it_is_set_up_again_is_not_used() -> None:
    """Restoring a subscription gets 404. Waiting clients get errors, and the next request makes another session."""
    world = driver()
    client = connect(world, "http", "http")
    settle(world, client, "resources/subscribe", '{"uri":"file:///a"}')
    channel = client.request("1", "tools/list")
    world.end(world.take_sent("tools/list").channel, FORGOTTEN)
    world.start_server(session="S2")
    world.end(world.take_sent("resources/subscribe").channel, FORGOTTEN)
    assert failure(world, channel)["code"] == -31004
    assert not world.unread
    world.wait(Limits().restart_backoff_s)
    client.request("2", "tools/list")
    world.start_server(session="S3")
    again = world.take_sent("resources/subscribe")
    assert again.post is not None
    assert again.post.session == "S3"
    world.answer(again)
    received = world.take_sent("tools/list")
    assert received.post is not None
    assert received.post.session == "S3"


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_subscriptions_restart_a_lost_upstream_without_a_request(up: str) -> None:
    world = driver()
    client = connect(world, "http", up, listens=True)
    settle(world, client, "resources/subscribe", '{"uri":"file:///a"}')
    lose(world, up)
    assert starts(world) == 2
    world.start_server(session="S2")
    assert world.take_sent("resources/subscribe").frame["params"] == {"uri": "file:///a"}


def test_subscriptions_restart_it_even_when_the_first_start_fails() -> None:
    world = driver(limits=Limits(restart_backoff_s=1.0, restart_backoff_max_s=4.0))
    client = connect(world, "http", "pipe")
    settle(world, client, "resources/subscribe", '{"uri":"file:///a"}')
    lose(world, "pipe")
    for count, pause in enumerate([1.0, 2.0, 4.0, 4.0], start=2):
        assert starts(world) == count
        world.end(world.last_dial(Spawn).channel, UNREACHABLE)
        world.wait(pause - 0.01)
        assert starts(world) == count
        world.wait(0.01)
    assert starts(world) == 6
    world.start_server()
    assert world.was_sent("resources/subscribe")


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_without_subscriptions_a_lost_upstream_is_restarted_by_the_next_request(up: str) -> None:
    world = driver()
    client = connect(world, "http", up, listens=True)
    lose(world, up)
    world.wait(600)
    assert starts(world) == 1
    client.request("1", "tools/list")
    assert starts(world) == 2


def test_a_new_session_has_the_same_handshake() -> None:
    world = driver()
    client = new_client(world, "http", "pipe")
    params = '{"protocolVersion":"2025-06-18", "capabilities":{"roots":{}},"clientInfo":{"name":"\\u00e9"}}'
    init = client.initialize(params)
    first = world.last_dial(Spawn).target
    world.start_server()
    client.session = world.sent[init][-1].session
    world.end(world.last_dial(Spawn).channel, DIED)
    channel = client.request("1", "tools/list")
    assert world.last_dial(Spawn).target == first, "the same folders"
    world.open(world.last_dial(Spawn).channel, Connected())
    assert world.unread[0].raw.endswith(b'"params":' + params.encode() + b"}")
    world.start_server()
    world.answer(world.take_sent("tools/list"))
    assert world.messages(channel) == [result("1")], "the result of the second handshake reaches no client"
    assert len(world.sent[init]) == 1


# --- A process died ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", ["pipe", "http"])
def test_a_tool_call_whose_fate_is_unknown_fails_and_is_never_written_again(down: str) -> None:
    world = driver()
    client = connect(world, down, "pipe")
    channel = client.request("1", "tools/call", "{}")
    world.take_sent("tools/call")
    world.end(world.dials[0].channel, DIED)
    seen = failure(world, channel)
    assert seen["code"] == -31001
    assert seen["data"] == {"outcome": "unknown"}
    assert "out of memory" in str(seen["message"])
    client.request("2", "tools/list")
    world.start_server()
    world.answer(world.take_sent("tools/list"))
    assert not world.unread


@pytest.mark.parametrize("method", sorted(SAFE_TO_REPEAT))
def test_requests_that_only_read_are_repeated_once(method: str) -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    channel = client.request("1", method, '{"uri":"a"}')
    world.take_sent(method)
    world.end(world.last_dial(Spawn).channel, DIED)
    world.start_server()
    assert not world.sent[channel]
    assert world.take_sent(method).frame["params"] == {"uri": "a"}
    world.end(world.last_dial(Spawn).channel, DIED)
    assert failure(world, channel)["code"] == -31001
    assert starts(world) == 2
    assert not world.unread


@pytest.mark.parametrize("method", ["tools/call", "vendor/unheard"])
def test_requests_that_may_do_something_are_not_repeated(method: str) -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    channel = client.request("1", method, "{}")
    world.take_sent(method)
    world.end(world.last_dial(Spawn).channel, DIED)
    assert failure(world, channel)["code"] == -31001
    assert starts(world) == 1


def test_a_repeated_request_keeps_its_progress_token() -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    channel = client.request("1", "resources/read", '{"_meta":{"progressToken":"t"}}')
    world.take_sent("resources/read")
    world.end(world.last_dial(Spawn).channel, DIED)
    world.start_server()
    call = world.take_sent("resources/read")
    params = f'{{"progressToken":{call.frame["params"]["_meta"]["progressToken"]},"progress":1}}'
    world.send(call.channel, notification("notifications/progress", params))
    assert world.only_message(channel)["params"] == {"progressToken": "t", "progress": 1}


@pytest.mark.parametrize("cause", [RESET, DONE, Cause(End.GONE), Cause(End.TIMED_OUT)])
def test_a_post_that_ends_without_its_answer_leaves_the_outcome_unknown(cause: Cause) -> None:
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/call", "{}")
    call = world.take_sent("tools/call")
    world.open(call.channel, Connected())
    world.end(call.channel, cause)
    assert failure(world, channel)["code"] == -31001
    assert failure(world, channel)["data"] == {"outcome": "unknown"}
    assert not world.unread
    assert starts(world) == 1, "the session is not in doubt"


@pytest.mark.parametrize("cause", [RESET, DONE])
def test_a_reading_post_that_ends_without_its_answer_is_repeated_once(cause: Cause) -> None:
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/list")
    world.end(world.take_sent("tools/list").channel, cause)
    world.end(world.take_sent("tools/list").channel, cause)
    assert failure(world, channel)["code"] == -31001
    assert not world.unread


def test_a_request_that_never_left_is_sent_again_once_even_a_tool_call() -> None:
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/call", "{}")
    world.end(world.take_sent("tools/call").channel, UNREACHABLE)
    world.end(world.take_sent("tools/call").channel, UNREACHABLE)
    seen = failure(world, channel)
    assert seen["code"] == -31004
    assert seen["data"] == {"outcome": "not_executed"}
    assert "connection refused" in str(seen["message"])
    assert not world.unread


# --- Refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (501, b"Not Implemented"),
        (503, b"try later"),
        (422, b"<!doctype html><title>Nothing here</title>"),
        (410, b"\xff\xfe<html>"),
        (400, b'{"error":"invalid_token"}'),
        (429, b'{"detail":"slow down"}'),
        (413, b'{"error":[]}'),
    ],
)
@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
def test_a_refusal_says_its_status_and_is_not_repeated(status: int, body: bytes, method: str) -> None:
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", method, "{}")
    world.end(world.take_sent(method).channel, Cause(End.REFUSED, status=status, body=body))
    seen = failure(world, channel)
    assert seen["code"] == -31004
    assert seen["data"] == {"httpStatus": status, "body": body.decode(errors="replace")}
    assert str(status) in str(seen["message"])
    assert not world.unread


@pytest.mark.parametrize("status", [500, 502, 504, 599])
def test_the_outcome_of_a_server_error_is_unknown(status: int) -> None:
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/call", "{}")
    world.end(world.take_sent("tools/call").channel, Cause(End.REFUSED, status=status, body=b"oops"))
    seen = failure(world, channel)
    assert seen["code"] == -31001
    assert seen["data"] == {"outcome": "unknown", "httpStatus": status, "body": "oops"}
    assert not world.unread


def test_the_text_of_a_long_refusal_is_cut() -> None:
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/list", "{}")
    world.end(world.take_sent("tools/list").channel, Cause(End.REFUSED, status=500, body=b"x" * 60_000))
    assert len(world.messages(channel)[0]) < 1000


@pytest.mark.parametrize("id", ["null", '"server-error"', "1"])
def test_a_json_rpc_error_in_a_refusal_is_passed(id: str) -> None:
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/call", "{}")
    text = '{"code":-32602, "message":"Bad","data":1.0}'
    world.end(world.take_sent("tools/call").channel, Cause(End.REFUSED, status=400, body=error(id, text) + b"\n"))
    assert world.messages(channel) == [error("1", text)]


def test_a_refused_session_ends_the_call_but_not_the_client_session() -> None:
    world = driver()
    client = connect(world, "http", "http")
    client.request("1", "tools/call", "{}")
    world.end(world.take_sent("tools/call").channel, Cause(End.REFUSED, status=500))
    channel = client.request("2", "tools/call", "{}")
    world.answer(world.take_sent("tools/call"))
    assert world.messages(channel) == [result("2")]


# --- Starting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", ["pipe", "http"])
@pytest.mark.parametrize("up", ["pipe", "http"])
@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (UNREACHABLE, "connection refused"),
        (DIED, "out of memory"),
        (Cause(End.REFUSED, status=401), "401"),
        (Cause(End.REFUSED, status=500, body=b"<html>"), "500"),
        (Cause(End.UNREACHABLE), "cannot be reached"),
    ],
)
def test_a_client_whose_server_does_not_start_gets_the_reason_and_no_session(
    down: str, up: str, cause: Cause, reason: str
) -> None:
    world = driver()
    client = new_client(world, down, up)
    channel = client.initialize()
    world.end(world.dials[0].channel, cause)
    seen = failure(world, channel)
    assert seen["code"] == -31004
    if cause.detail or up == "http":  # processes have no HTTP status
        assert reason in str(seen["message"])
    assert world.sent[channel][0].session is None
    assert world.engine.session_count == 0
    assert world.engine.next_timeout() is None, "nothing is left of it"
    again = client.initialize()
    world.start_server()
    assert world.sent[again][-1].message.startswith(b'{"jsonrpc":"2.0","id":0,"result"'), "the client may try again"


@pytest.mark.parametrize("down", ["pipe", "http"])
@pytest.mark.parametrize("up", ["pipe", "http"])
def test_initialize_refused_by_the_server_gives_the_client_that_error_and_no_session(down: str, up: str) -> None:
    world = driver()
    client = new_client(world, down, up)
    channel = client.initialize()
    if up == "pipe":
        world.open(world.dials[0].channel, Connected())
    init = world.take_sent("initialize")
    text = '{"code":-32602,"message":"Unsupported protocol version","data":{"supported":["2024-11-05"]}}'
    world.reply(init, error(str(init.id), text))
    assert world.messages(channel) == [error("0", text)]
    assert world.sent[channel][0].session is None
    assert world.engine.session_count == 0
    if up == "pipe":
        assert world.dials[0].channel in world.closed


def test_an_error_in_a_refused_initialize_is_passed() -> None:
    world = driver()
    client = new_client(world, "http", "http")
    channel = client.initialize()
    text = '{"code":-32000,"message":"Unauthorized"}'
    world.end(world.dials[0].channel, Cause(End.REFUSED, status=400, body=error("null", text)))
    assert world.messages(channel) == [error("0", text)]


@pytest.mark.parametrize("text", ["[]", "1", '{"protocolVersion":"a","protocolVersion":"b"}'])
def test_an_unusable_answer_to_initialize_is_a_failed_start(text: str) -> None:
    world = driver()
    client = new_client(world, "http", "pipe")
    channel = client.initialize()
    world.open(world.dials[0].channel, Connected())
    world.answer(world.take_sent("initialize"), text)
    assert failure(world, channel)["code"] == -31004
    assert world.engine.session_count == 0


@pytest.mark.parametrize("up", ["pipe", "http"])
@pytest.mark.parametrize("stage", ["dialled", "initializing", "confirming"])
def test_a_server_that_is_silent_while_starting_is_given_up_and_closed(up: str, stage: str) -> None:
    world = driver(limits=Limits(start_timeout_s=7.0))
    client = connect(world, "http", up)
    lose(world, "pipe") if up == "pipe" else client.notify("vendor/notice")
    if up == "http":
        world.end(world.take_sent("vendor/notice").channel, FORGOTTEN)
    channel = client.request("1", "tools/call", "{}")
    silent = world.dials[-1].channel
    if stage != "dialled" and up == "pipe":
        world.open(silent, Connected())
    if stage == "confirming" and up == "http":
        world.answer(world.take_sent("initialize"), '{"protocolVersion":"2025-11-25","capabilities":{}}', session="S2")
        silent = world.take_sent("notifications/initialized").channel
    world.wait(6.9)
    assert not world.sent[channel]
    world.wait(0.2)
    assert failure(world, channel)["code"] == -31004
    assert "7 s" in str(failure(world, channel)["message"])
    assert silent in world.closed, "what was dialled is not left hanging"


def later_start(world: Driver, up: str) -> tuple[Client, Callable[[], ChannelId]]:
    """Returns a session whose server is lost, and a function that needs the server."""
    client = connect(world, "http", up, listens=True)
    lose(world, up)
    return client, lambda: client.request("1", "tools/call", "{}")


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_the_pauses_between_failed_starts_grow(up: str) -> None:
    world = driver(limits=Limits(restart_backoff_s=2.0, restart_backoff_max_s=10.0, crash_loop_failures=100))
    _, need = later_start(world, up)
    count = starts(world)
    for pause in [2.0, 4.0, 8.0, 10.0, 10.0]:
        channel = need()
        count += 1
        assert starts(world) == count
        world.end(world.dials[-1].channel, UNREACHABLE)
        assert failure(world, channel)["code"] == -31004
        assert "connection refused" in str(failure(world, channel)["message"])
        world.wait(pause - 0.1)
        early = need()
        assert starts(world) == count, "too early: refused without trying"
        assert failure(world, early)["code"] == -31004
        assert failure(world, early)["data"] == {"outcome": "not_executed"}
        assert "connection refused" in str(failure(world, early)["message"])
        world.wait(0.1)
    need()
    assert starts(world) == count + 1


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_a_successful_start_ends_the_pauses(up: str) -> None:
    world = driver(limits=Limits(restart_backoff_s=2.0))
    _, need = later_start(world, up)
    for _ in range(3):
        need()
        world.end(world.dials[-1].channel, UNREACHABLE)
        world.wait(60)
    need()
    world.start_server(session="S3", listens=True)
    world.answer(world.take_sent("tools/call"))
    lose(world, up)
    count = starts(world)
    need()
    assert starts(world) == count + 1, "at once"
    world.end(world.dials[-1].channel, UNREACHABLE)
    world.wait(2.0)
    need()
    assert starts(world) == count + 2, "the first pause again"


def test_a_server_that_dies_while_starting_fails_all_who_wait() -> None:
    world = driver()
    client, need = later_start(world, "pipe")
    channels = [need(), client.request("2", "tools/list"), client.request("3", "prompts/list")]
    world.end(world.dials[-1].channel, DIED)
    assert [failure(world, channel)["code"] for channel in channels] == [-31004] * 3
    assert not world.was_sent("tools/call")


def test_requests_that_wait_for_a_start_are_sent_in_order() -> None:
    world = driver()
    client, need = later_start(world, "pipe")
    need()
    client.request("2", "tools/list")
    client.request("3", "prompts/list")
    world.start_server()
    assert [received.frame["method"] for received in world.unread] == ["tools/call", "tools/list", "prompts/list"]


# --- The server's event stream ----------------------------------------------------------------------------------------


def test_the_first_requests_wait_for_the_event_stream() -> None:
    """A server may send a question on the stream as soon as it has a call."""
    world = driver()
    client, stream = initialized_client(world)
    client.request("1", "tools/call", "{}")
    assert not world.unread
    world.open(stream, Connected())
    assert world.was_sent("tools/call")


def test_the_first_requests_do_not_wait_longer_than_the_limit() -> None:
    world = driver(limits=Limits(listen_wait_s=1.5))
    client, stream = initialized_client(world)
    client.request("1", "tools/call", "{}")
    world.wait(1.4)
    assert not world.unread
    world.wait(0.2)
    assert world.was_sent("tools/call")
    world.open(stream, Connected())
    world.send(stream, request('"q"', "roots/list"))
    assert any(
        frame["method"] == "roots/list" for c in list(world.sent) for frame in world.frames(c) if "method" in frame
    )


def test_nothing_is_sent_before_initialized_was_accepted() -> None:
    world = driver()
    client = new_client(world, "http", "http")
    init = client.initialize()
    world.answer(world.take_sent("initialize"), '{"protocolVersion":"2025-11-25","capabilities":{}}', session="S1")
    client.session = world.sent[init][-1].session
    confirmation = world.take_sent("notifications/initialized")
    client.request("1", "tools/call", "{}")
    assert not world.unread
    assert not [dial for dial in world.dials if isinstance(dial.target, Listen)]
    world.acknowledge(confirmation)
    world.end(world.last_dial(Listen).channel, NO_STREAM)
    assert world.was_sent("tools/call")


@pytest.mark.parametrize(("cause", "is_ended"), [(FORGOTTEN, False), (RESET, True)])
def test_a_session_that_its_server_has_forgotten_is_not_deleted(cause: Cause, is_ended: bool) -> None:
    """A client does not name a session again after a 404 (2025-11-25 basic/transports, "Session Management")."""
    world = driver()
    new_client(world, "http", "http").initialize()
    world.answer(world.take_sent("initialize"), '{"protocolVersion":"2025-11-25","capabilities":{}}', session="S1")
    world.end(world.take_sent("notifications/initialized").channel, cause)
    assert [dial.target.session for dial in world.dials if isinstance(dial.target, Delete)] == ["S1"] * is_ended


@pytest.mark.parametrize("status", [405, 400, 401, 403, 204])
def test_the_get_stream_is_not_retried_after_405(status: int) -> None:
    world = driver()
    client, stream = initialized_client(world)
    client.request("1", "tools/call", "{}")
    world.end(stream, Cause(End.REFUSED, status=status))
    assert world.was_sent("tools/call")
    assert not [effect for effect in world.wait(500) if isinstance(effect, Dial)]


@pytest.mark.parametrize("cause", [Cause(End.REFUSED, status=503), UNREACHABLE, RESET, Cause(End.TIMED_OUT)])
def test_a_stream_that_cannot_be_opened_is_tried_with_growing_pauses(cause: Cause) -> None:
    world = driver(limits=Limits(listen_retry_s=1.0, listen_retry_max_s=5.0, session_idle_ttl_s=500))
    client, stream = initialized_client(world)
    client.request("1", "tools/call", "{}")
    for pause in [1.0, 2.0, 4.0, 5.0, 5.0]:
        world.end(stream, cause)
        assert world.unread, "requests do not wait for it"
        assert not [effect for effect in world.wait(pause - 0.01) if isinstance(effect, Dial)]
        (dial,) = [effect for effect in world.wait(0.02) if isinstance(effect, Dial)]
        assert isinstance(dial.target, Listen)
        stream = dial.channel


@pytest.mark.parametrize("cause", [RESET, DONE, Cause(End.GONE)])
def test_a_stream_that_broke_is_opened_again_and_a_good_one_ends_the_pauses(cause: Cause) -> None:
    world = driver(limits=Limits(listen_retry_s=1.0))
    _, stream = initialized_client(world)
    for _ in range(4):
        world.open(stream, Connected())
        world.end(stream, cause)
        (dial,) = [effect for effect in world.wait(1.0) if isinstance(effect, Dial)]
        stream = dial.channel


def test_a_stream_that_broke_while_state_is_restored_is_opened_again() -> None:
    world = driver()
    client = connect(world, "http", "http", listens=True)
    settle(world, client, "resources/subscribe", '{"uri":"a"}')
    lose(world, "http")
    stream = world.start_server(session="S2", listens=True)
    assert stream is not None
    slow = world.take_sent("resources/subscribe")
    world.end(stream, RESET)
    world.wait(3.0)
    again = world.last_dial(Listen)
    assert again.channel != stream
    world.answer(slow)
    world.open(again.channel, Connected())
    world.send(again.channel, notification("notifications/tools/list_changed"))
    assert len(world.messages(client.listen())) == 1


def test_404_on_the_event_stream_means_the_session_is_forgotten() -> None:
    world = driver()
    client = connect(world, "http", "http", listens=True)
    lose(world, "http")
    client.request("1", "tools/list")
    world.start_server(session="S2")
    post = world.take_sent("tools/list").post
    assert post is not None
    assert post.session == "S2"


def test_the_session_is_deleted_at_its_server() -> None:
    world = driver()
    client = connect(world, "http", "http", session="S9", listens=True)
    stream = world.last_dial(Listen).channel
    client.delete()
    delete = world.dials[-1]
    assert type(delete.target).__name__ == "Delete"
    assert getattr(delete.target, "session") == "S9"  # noqa: B009
    assert stream not in world.closed, "it is the server's to end"
    assert not world.end(delete.channel, Cause(End.REFUSED, status=405)), "any response is accepted"


def test_the_server_ends_the_stream_of_a_deleted_session() -> None:
    """Closing the stream would cost the connection, and the next session would need a new one."""
    world = driver()
    client = connect(world, "http", "http", listens=True)
    stream = world.last_dial(Listen).channel
    client.delete()
    (delete,) = [dial for dial in world.dials if isinstance(dial.target, Delete)]
    world.wait(0.5)
    before = len(world.log)
    world.send(stream, notification("notifications/tools/list_changed"))
    world.send(stream, request("7", "roots/list"))
    assert world.log[before:] == [], "later messages on it are dropped"
    world.end(stream)
    world.end(delete.channel, Cause(End.DONE, status=200))
    assert stream not in world.closed
    assert world.engine.next_timeout() is None


def test_a_stream_that_its_server_does_not_end_is_closed() -> None:
    world = driver(limits=Limits(stream_farewell_s=2.0))
    client = connect(world, "http", "http", listens=True)
    stream = world.last_dial(Listen).channel
    client.delete()
    (delete,) = [dial for dial in world.dials if isinstance(dial.target, Delete)]
    world.end(delete.channel, Cause(End.DONE, status=200))
    world.wait(1.9)
    assert stream not in world.closed
    world.wait(0.2)
    assert stream in world.closed
    world.end(stream)
    assert world.engine.next_timeout() is None


@pytest.mark.parametrize("is_queued", [False, True])
def test_a_stream_that_is_not_open_yet_is_closed(is_queued: bool) -> None:
    """A GET without a response has no connection to keep."""
    world = driver()
    client, stream = initialized_client(world)
    if is_queued:
        world.open(stream, Queued())
    client.delete()
    assert stream in world.closed


@pytest.mark.parametrize("noise", [b"[", b'[{"jsonrpc":"2.0","id":7,"method":"roots/list"}', b"[\xff]"])
def test_invalid_messages_of_a_deleted_session_are_ignored(noise: bytes) -> None:
    world = driver()
    client = connect(world, "http", "http", listens=True)
    stream = world.last_dial(Listen).channel
    client.delete()
    before = len(world.log)
    world.send(stream, noise)
    assert world.log[before:] == []


def test_streams_left_open_are_bounded_by_kept_connections() -> None:
    world = driver(limits=Limits(pool_idle_max=2))
    clients, streams = [], []
    for session in ("S1", "S2", "S3", "S4"):
        clients.append(connect(world, "http", "http", session=session, listens=True))
        streams.append(world.last_dial(Listen).channel)
    for client in clients[:3]:
        client.delete()
    assert [stream in world.closed for stream in streams] == [False, False, True, False]
    world.end(streams[0])
    clients[3].delete()
    assert streams[3] not in world.closed, "there is room again"


def test_without_a_session_the_stream_is_closed_at_once() -> None:
    """A server without sessions gets no DELETE, so it does not end the stream."""
    world = driver()
    client = connect(world, "http", "http", session=None, listens=True)
    stream = world.last_dial(Listen).channel
    client.delete()
    assert stream in world.closed


def test_a_proxy_that_stops_waits_for_no_stream() -> None:
    world = driver()
    client = connect(world, "http", "http", listens=True)
    stream = world.last_dial(Listen).channel
    client.delete()
    world.stop()
    assert stream in world.closed


def test_an_unanswered_delete_is_given_up() -> None:
    world = driver(limits=Limits(notification_timeout_s=5.0))
    client = connect(world, "http", "http")
    client.delete()
    (delete,) = [dial for dial in world.dials if isinstance(dial.target, Delete)]
    world.wait(4.9)
    assert delete.channel not in world.closed
    world.wait(0.2)
    assert delete.channel in world.closed
    world.end(delete.channel)
    assert world.engine.next_timeout() is None


def test_a_process_is_closed_with_its_session() -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    client.delete()
    assert world.dials[0].channel in world.closed


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.SOCKET])
@pytest.mark.parametrize("has_started", [False, True])
def test_the_error_says_whether_the_server_was_reached(kind: Kind, has_started: bool) -> None:
    """A process that could not be started, or a port without a listener, has another error than a server that is
    silent."""
    world = driver(ServerPlan(id="s", kind=kind))
    channel = new_client(world, "http", "s").initialize()
    child = world.dials[0].channel
    if has_started:
        world.open(child, Connected())
        world.take_sent("initialize")
    world.end(child, Cause(End.BROKEN if has_started else End.UNREACHABLE, "no such thing"))
    error = world.only_message(channel)["error"]
    is_stage = not has_started and kind is Kind.PIPE
    assert error["data"] == {"outcome": "not_executed", **({"stage": "start"} if is_stage else {})}
    verb = "started" if kind is Kind.PIPE else "connected to"
    assert error["message"].startswith(f"the server could not be {verb}: no such thing")
