"""Tests of passthrough: messages of either side reach the other byte for byte.

Source: 2025-11-25 schema (the list of methods), basic/utilities/{cancellation,progress,ping}, client/*, server/*.
"""

from __future__ import annotations

import json

import pytest
from driving import (
    Client,
    Driver,
    connect,
    driver,
    error,
    new_client,
    notification,
    request,
    result,
)
from isthmus.core.base.effects import Listen, Send
from isthmus.core.base.events import Cause, Connected, End, GetOpening
from isthmus.core.base.ids import ChannelId

ANY_PAIR = [(down, up) for down in ("pipe", "http") for up in ("pipe", "http")]

CLIENT_REQUESTS = [
    "tools/list", "tools/call", "prompts/list", "prompts/get", "resources/list", "resources/templates/list",
    "resources/read", "resources/subscribe", "resources/unsubscribe", "completion/complete", "logging/setLevel",
    "vendor.example/Unheard-Of",
]  # fmt: skip
CLIENT_NOTIFICATIONS = ["notifications/roots/list_changed", "notifications/tasks/status", "vendor/notice"]
SERVER_REQUESTS = [
    "sampling/createMessage", "elicitation/create", "roots/list", "tasks/get", "tasks/result", "tasks/list",
    "tasks/cancel", "vendor/question",
]  # fmt: skip
SERVER_NOTIFICATIONS = [
    "notifications/message", "notifications/resources/updated", "notifications/resources/list_changed",
    "notifications/tools/list_changed", "notifications/prompts/list_changed",
    "notifications/elicitation/complete", "vendor/notice",
]  # fmt: skip

ODD = (
    '{ "b":1.0 ,"a":[1e400,-0,123456789012345678901234567890],"s":"\\u00e9\\ud800/é","k":{"x":1,"x":2},'
    '"_meta":{"v/n":null} }'
)
"""JSON that a decoder and encoder would change, with spaces that have to stay."""


def server_channel(world: Driver, stream: ChannelId | None) -> ChannelId:
    """Returns the channel for messages of the server outside of a response: its stdout, or the GET stream."""
    return stream if stream is not None else world.dials[0].channel


def open_session(world: Driver, down: str, up: str) -> tuple[Client, ChannelId, ChannelId]:
    """Returns a client with an open stream, its server's channel, and the channel for messages outside of responses."""
    client = new_client(world, down, up)
    init = client.initialize()
    stream = world.start_server(listens=True)
    client.session = world.sent[init][-1].session
    client.notify("notifications/initialized")
    session_channel = client.pipe or client.listen()
    world.sent[session_channel].clear()
    return client, server_channel(world, stream), session_channel


# --- Requests and answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("down", "up"), ANY_PAIR)
@pytest.mark.parametrize("method", CLIENT_REQUESTS)
@pytest.mark.parametrize("params", [None, "{}", ODD, "[1, 2]"])
def test_requests_and_results_pass_byte_for_byte(down: str, up: str, method: str, params: str | None) -> None:
    world = driver()
    client = connect(world, down, up)
    channel = client.request('"i"', method, params)
    call = world.take_sent(method)
    assert call.raw == request(str(call.id), method, params)
    world.answer(call, ODD)
    assert world.messages(channel) == [result('"i"', ODD)]


def test_methods_with_escapes_are_decoded() -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    client.send(b'{"jsonrpc":"2.0","id":1,"method":"tools\\/l\\u0069st"}')
    assert world.was_sent("tools/list")


@pytest.mark.parametrize(("down", "up"), ANY_PAIR)
def test_the_server_is_initialized_with_the_clients_own_params_and_the_client_gets_its_own_result(
    down: str, up: str
) -> None:
    world = driver()
    client = new_client(world, down, up)
    params = '{"protocolVersion": "2025-06-18","capabilities":{"roots":{ },"x":1.0},"clientInfo":{"name":"\\u00e9"}}'
    channel = client.initialize(params)
    if up == "pipe":
        world.open(world.dials[0].channel, Connected())
    init = world.take_sent("initialize")
    assert init.raw == request(str(init.id), "initialize", params)
    answer = (
        '{"protocolVersion":"2025-06-18", "capabilities":{"tools":{}},"serverInfo":{"v":1.0},"instructions":"\\u0041"}'
    )
    world.answer(init, answer, session="S1")
    assert world.messages(channel) == [result("0", answer)]
    assert world.take_sent("notifications/initialized").raw == notification("notifications/initialized")


@pytest.mark.parametrize(("down", "up"), ANY_PAIR)
@pytest.mark.parametrize(
    "text",
    [
        '{"code":-32602,"message":"Unknown tool: x"}',
        '{ "code" : 0, "message":"\\u00e9", "data":{"k":1.0,"k":2} }',
        '{"code":-32042,"message":"","data":{"elicitations":[]},"more":true}',
    ],
)
def test_errors_pass_byte_for_byte(down: str, up: str, text: str) -> None:
    world = driver()
    client = connect(world, down, up)
    channel = client.request("5", "tools/call", "{}")
    call = world.take_sent("tools/call")
    world.reply(call, error(str(call.id), text))
    assert world.messages(channel) == [error("5", text)]


@pytest.mark.parametrize("up", ["pipe", "http"])
@pytest.mark.parametrize("text", ['"boom"', "null", "[]", '{"message":"no code"}', '{"code":"E1","message":"m"}', "{}"])
def test_malformed_errors_are_wrapped_and_not_lost(up: str, text: str) -> None:
    """Client libraries drop an error that they cannot read, and wait for ever."""
    world = driver()
    client = connect(world, "http", up)
    channel = client.request("5", "tools/call", "{}")
    call = world.take_sent("tools/call")
    world.reply(call, error(str(call.id), text))
    seen = world.only_message(channel)["error"]
    assert seen["code"] == -32603
    assert isinstance(seen["message"], str)
    assert seen["data"] == {"dev.isthmus/original": json.loads(text)}


@pytest.mark.parametrize(
    "text",
    [
        '{"content":[{"type":"text","text":"\\u0007 failed"}],"isError":true}',
        '{"content":[],"isError": true ,"structuredContent":{"a":1.00}}',
        '{"tools":[],"nextCursor":"eyJhIjoxfQ=="}',
    ],
)
def test_failed_tool_results_and_cursors_are_untouched(text: str) -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    channel = client.request("1", "tools/list", '{"cursor":"\\u0065yJ=="}')
    call = world.take_sent("tools/list")
    assert call.raw.endswith(b'"params":{"cursor":"\\u0065yJ=="}}')
    world.answer(call, text)
    assert world.messages(channel) == [result("1", text)]


@pytest.mark.parametrize(("down", "up"), ANY_PAIR)
@pytest.mark.parametrize("method", CLIENT_NOTIFICATIONS)
@pytest.mark.parametrize("params", [None, ODD])
def test_notifications_of_the_client_pass_byte_for_byte(down: str, up: str, method: str, params: str | None) -> None:
    world = driver()
    client = connect(world, down, up)
    client.notify(method, params)
    assert world.take_sent(method).raw == notification(method, params)


@pytest.mark.parametrize(("down", "up"), ANY_PAIR)
@pytest.mark.parametrize("method", SERVER_NOTIFICATIONS)
@pytest.mark.parametrize("params", [None, ODD])
def test_notifications_of_the_server_pass_byte_for_byte(down: str, up: str, method: str, params: str | None) -> None:
    world = driver()
    _, server, session_channel = open_session(world, down, up)
    world.send(server, notification(method, params))
    assert world.messages(session_channel) == [notification(method, params)]


@pytest.mark.parametrize(("down", "up"), ANY_PAIR)
def test_ping_is_answered_on_the_spot_on_both_sides(down: str, up: str) -> None:
    world = driver()
    client, server, session_channel = open_session(world, down, up)
    channel = client.request('"p"', "ping", '{"_meta":{}}')
    assert world.messages(channel) == [result('"p"')]
    assert not world.unread
    world.sent[channel].clear()
    world.send(server, request('"q\\u0041"', "ping"))
    assert world.take_sent("").raw == result('"q\\u0041"')
    assert not world.sent[session_channel]


# --- Where the server's messages go -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["notifications/message", "vendor/notice", "sampling/createMessage"])
def test_messages_on_the_stream_of_a_call_stay_on_its_stream(method: str) -> None:
    world = driver()
    client, _, session_channel = open_session(world, "http", "http")
    channels = [client.request(str(n), "tools/call", "{}") for n in range(3)]
    calls = [world.take_sent("tools/call") for _ in range(3)]
    for n in (2, 0, 1):
        world.open(calls[n].channel, Connected())
        message = notification if method != "sampling/createMessage" else lambda m, p: request("7" + p[5], m, p)
        world.send(calls[n].channel, message(method, f'{{"n":{n}}}'))
    for n, channel in enumerate(channels):
        (frame,) = world.frames(channel)
        assert (frame["method"], frame["params"]) == (method, {"n": n})
    assert not world.sent[session_channel]


def test_a_client_that_takes_only_json_is_not_sent_events() -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    channel = client.send(request("1", "tools/call", '{"_meta":{"progressToken":1}}'), takes_events=False)
    call = world.take_sent("tools/call")
    world.send(call.channel, notification("notifications/progress", f'{{"progressToken":{call.id},"progress":1}}'))
    world.send(call.channel, notification("notifications/message", "{}"))
    world.send(call.channel, request("1", "elicitation/create", "{}"))
    world.answer(call, '{"a":1}')
    assert world.messages(channel) == [result("1", '{"a":1}')]
    assert [json.loads(m)["method"] for m in world.messages(client.listen())] == [
        "notifications/message",
        "elicitation/create",
    ]


@pytest.mark.parametrize("down", ["pipe", "http"])
def test_messages_of_the_server_wait_for_initialized(down: str) -> None:
    """2025-11-25 lifecycle: a server "SHOULD NOT send requests" to the client before `initialized`."""
    world = driver()
    client = new_client(world, down, "pipe")
    init = client.initialize()
    world.start_server()
    client.session = world.sent[init][-1].session
    if down == "http":
        client.listen()
    session_channel = client.pipe or client.stream
    assert session_channel is not None
    world.sent[session_channel].clear()
    world.send(world.dials[0].channel, request("1", "roots/list"))
    assert not world.sent[session_channel]
    client.notify("notifications/initialized")
    assert world.only_message(session_channel)["method"] == "roots/list"


@pytest.mark.parametrize("down", ["pipe", "http"])
def test_a_request_stands_in_for_a_lost_initialized(down: str) -> None:
    world = driver()
    client = new_client(world, down, "pipe")
    init = client.initialize()
    world.start_server()
    client.session = world.sent[init][-1].session
    world.send(world.dials[0].channel, request("1", "roots/list"))
    channel = client.request("1", "tools/call", "{}")
    if down == "http":
        assert not world.sent[client.listen()]
    assert world.messages(channel)[-1] == request("1", "roots/list"), "one call is open: it is asked there"


# --- Progress ---------------------------------------------------------------------------------------------------------


def meta(token: str) -> str:
    return f'{{"name":"t","_meta":{{"x":1.0,"progressToken":{token}}}}}'


@pytest.mark.parametrize(("down", "up"), ANY_PAIR)
@pytest.mark.parametrize("token", ["1", "0", '"abc"', '"\\u00e9"', "1.0", '"1"', "99999999999999999999"])
@pytest.mark.parametrize("as_text", [False, True])
def test_progress_comes_back_under_the_clients_own_token(down: str, up: str, token: str, as_text: bool) -> None:
    world = driver()
    client, server, _ = open_session(world, down, up)
    channel = client.request("1", "tools/call", meta(token))
    call = world.take_sent("tools/call")
    given = call.frame["params"]["_meta"]["progressToken"]
    assert type(given) is int
    assert call.raw.endswith(b'{"name":"t","_meta":{"x":1.0,"progressToken":%d}}}' % given), "nothing else changed"
    seen = f'"{given}"' if as_text else str(given)
    for source, far in zip({server, call.channel}, ("0.50", "1e0"), strict=False):
        upward, progress = (
            notification("notifications/progress", f'{{"progressToken":{name},"progress":{far},"m":"é"}}')
            for name in (seen, token)
        )
        world.send(source, upward)
        assert world.messages(channel) == [progress]
        world.sent[channel].clear()


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_equal_tokens_of_many_calls_do_not_mix(up: str) -> None:
    """Clients often count their tokens from the same number."""
    world = driver()
    clients = [connect(world, "http", up, session=f"S{n}") for n in range(2)]
    calls = [(c, c.request("1", "tools/call", meta("1"))) for c in clients for _ in range(3)]
    received = [world.take_sent("tools/call") for _ in calls]
    tokens = [h.frame["params"]["_meta"]["progressToken"] for h in received]
    for n in (5, 0, 3, 1, 4, 2):
        params = f'{{"progressToken":{tokens[n]},"progress":{n}}}'
        world.send(received[n].channel, notification("notifications/progress", params))
    for n, (_, channel) in enumerate(calls):
        assert world.only_message(channel)["params"] == {"progressToken": 1, "progress": n}


@pytest.mark.parametrize("token", ["true", "1.5", "2e0", "{}", "[1]"])
def test_an_invalid_progress_token_is_refused(token: str) -> None:
    """A server might read 2e0 as 2, which is the token of another request."""
    world = driver()
    client = connect(world, "http", "pipe")
    channel = client.request("1", "tools/call", meta(token))
    assert world.only_message(channel)["error"]["code"] == -32602
    assert "expected a string or an integer" in world.only_message(channel)["error"]["message"]
    assert not world.unread


def test_a_null_progress_token_is_no_token() -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    client.request("1", "tools/call", meta("null"))
    assert world.take_sent("tools/call").raw.endswith(meta("null").encode() + b"}")


def test_a_duplicate_progress_token_is_refused() -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    channel = client.request("1", "tools/call", '{"_meta":{"progressToken":1,"progressToken":2}}')
    assert world.only_message(channel)["error"]["code"] == -32600
    assert not world.unread


# --- Cancellation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("down", "up"), ANY_PAIR)
@pytest.mark.parametrize("id_raw", ["1", '"x"', "1.0"])
@pytest.mark.parametrize("extra", ["", ',"reason":"\\u0062ored"', ',"reason":"x", "_meta":{"n":1.0},"x":[ ]'])
def test_cancellation_is_passed_on_under_the_servers_id(down: str, up: str, id_raw: str, extra: str) -> None:
    world = driver()
    client = connect(world, down, up)
    channel = client.request(id_raw, "tools/call", "{}")
    call = world.take_sent("tools/call")
    client.notify("notifications/cancelled", f'{{"requestId":{id_raw}{extra}}}')
    expected = notification("notifications/cancelled", f'{{"requestId":{call.id}{extra}}}')
    assert world.take_sent("notifications/cancelled").raw == expected
    assert not world.sent[channel], "a cancelled request gets no answer"
    assert (channel in world.closed) == (down == "http"), "but its reply ends"
    assert world.engine.exchange_count == 0


@pytest.mark.parametrize(
    "params",
    ['{"requestId":99}', '{"requestId":"1"}', "{}", '{"requestId":null}', '{"requestId":1,"requestId":1}', "[]", None],
)
@pytest.mark.parametrize("down", ["pipe", "http"])
def test_unknown_or_malformed_cancellations_are_ignored(down: str, params: str | None) -> None:
    world = driver()
    client = connect(world, down, "pipe")
    channel = client.request("1", "tools/call", "{}")
    call = world.take_sent("tools/call")
    client.notify("notifications/cancelled", params)
    assert not world.unread
    world.answer(call)
    assert world.messages(channel) == [result("1")]


# --- The server asks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("down", "up"), ANY_PAIR)
@pytest.mark.parametrize("method", SERVER_REQUESTS)
@pytest.mark.parametrize("params", [None, ODD])
def test_questions_of_the_server_and_their_answers_pass_byte_for_byte(
    down: str, up: str, method: str, params: str | None
) -> None:
    world = driver()
    client, server, session_channel = open_session(world, down, up)
    world.send(server, request('"q"', method, params))
    (asked,) = world.messages(session_channel)
    number = json.loads(asked)["id"]
    assert asked == request(str(number), method, params)
    client.send(result(str(number), ODD))
    assert world.take_sent("").raw == result('"q"', ODD)


@pytest.mark.parametrize("up", ["pipe", "http"])
@pytest.mark.parametrize("id_raw", ["0", "1.0", '"1"', '"\\u0041\\n"', "9" * 40, '"' + "x" * 500 + '"', "-1"])
def test_the_servers_ids_of_any_form_come_back_as_they_were(up: str, id_raw: str) -> None:
    world = driver()
    client, server, session_channel = open_session(world, "http", up)
    world.send(server, request(id_raw, "sampling/createMessage", "{}"))
    number = world.only_message(session_channel)["id"]
    assert type(number) is int
    client.send(result(str(number), '{"ok":1}'))
    assert world.take_sent("").raw == result(id_raw, '{"ok":1}')


def test_equal_ids_of_two_servers_questions_do_not_mix() -> None:
    world = driver()
    one, one_server, one_channel = open_session(world, "http", "pipe")
    two = new_client(world, "pipe", "pipe")
    two.initialize()
    world.start_server()
    two.notify("notifications/initialized")
    assert two.pipe is not None
    world.sent[two.pipe].clear()
    two_server = world.dials[-1].channel
    world.send(one_server, request("1", "roots/list"))
    world.send(two_server, request("1", "roots/list"))
    two.send(result(str(world.only_message(two.pipe)["id"]), '{"who":2}'))
    one.send(result(str(world.only_message(one_channel)["id"]), '{"who":1}'))
    answers = {received.channel: received.frame for received in (world.take_sent(""), world.take_sent(""))}
    assert {c: f["result"]["who"] for c, f in answers.items()} == {one_server: 1, two_server: 2}
    assert all(frame["id"] == 1 for frame in answers.values())


@pytest.mark.parametrize(("down", "up"), ANY_PAIR)
def test_a_refused_question_comes_back_as_the_clients_own_error(down: str, up: str) -> None:
    world = driver()
    client, server, session_channel = open_session(world, down, up)
    world.send(server, request('"q"', "sampling/createMessage", "{}"))
    text = '{"code":-1, "message":"User rejected","data":1.0}'
    client.send(error(str(world.only_message(session_channel)["id"]), text))
    assert world.take_sent("").raw == error('"q"', text)


@pytest.mark.parametrize(("down", "up"), ANY_PAIR)
@pytest.mark.parametrize("extra", ["", ',"reason":"\\u006eo"', ',"reason":"x", "_meta":{"n":1.0},"x":[ ]'])
def test_a_question_that_is_withdrawn_is_cancelled_for_the_client_and_its_late_answer_dropped(
    down: str, up: str, extra: str
) -> None:
    world = driver()
    client, server, session_channel = open_session(world, down, up)
    world.send(server, request('"q"', "elicitation/create", "{}"))
    number = world.only_message(session_channel)["id"]
    world.send(server, notification("notifications/cancelled", f'{{"requestId":"q"{extra}}}'))
    cancelled = notification("notifications/cancelled", f'{{"requestId":{number}{extra}}}')
    assert world.messages(session_channel)[1:] == [cancelled]
    client.send(result(str(number)))
    assert not world.unread


@pytest.mark.parametrize("params", ['{"requestId":9}', "{}", None, '{"requestId":{}}', '{"requestId":1,"requestId":2}'])
def test_a_withdrawal_of_no_question_is_ignored(params: str | None) -> None:
    world = driver()
    client, server, session_channel = open_session(world, "http", "pipe")
    world.send(server, request("1", "elicitation/create", "{}"))
    world.send(server, notification("notifications/cancelled", params))
    client.send(result(str(world.only_message(session_channel)["id"])))
    assert world.take_sent("").raw == result("1")


@pytest.mark.parametrize(("down", "up"), ANY_PAIR)
@pytest.mark.parametrize("token", ['"t"', "5", "1.0"])
def test_progress_on_a_question_goes_back_under_the_servers_token(down: str, up: str, token: str) -> None:
    world = driver()
    client, server, session_channel = open_session(world, down, up)
    world.send(server, request('"q"', "sampling/createMessage", meta(token)))
    asked = world.only_message(session_channel)
    given = asked["params"]["_meta"]["progressToken"]
    client.notify("notifications/progress", f'{{"progressToken":{given},"progress":1.0}}')
    expected = notification("notifications/progress", f'{{"progressToken":{token},"progress":1.0}}')
    assert world.take_sent("notifications/progress").raw == expected


# --- Servers that bend the rules --------------------------------------------------------------------------------------


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_batches_are_split(up: str) -> None:
    world = driver()
    client, server, session_channel = open_session(world, "http", up)
    channels = [client.request(n, "tools/call", "{}") for n in "12"]
    calls = [world.take_sent("tools/call") for _ in channels]
    log = notification("vendor/notice", '{"a": 1}')
    parts = [log, result(str(calls[1].id), '{"n": 2}'), b'"noise"', result(str(calls[0].id), '{"n": 1}')]
    world.send(server, b"[" + b" ,\n".join(parts) + b"]")
    assert [world.messages(channel) for channel in channels] == [[result("1", '{"n": 1}')], [result("2", '{"n": 2}')]]
    assert world.messages(session_channel) == [log]


@pytest.mark.parametrize(("down", "up"), ANY_PAIR)
def test_an_id_echoed_as_text_finds_its_request(down: str, up: str) -> None:
    world = driver()
    client = connect(world, down, up)
    channel = client.request("1", "tools/call", "{}")
    call = world.take_sent("tools/call")
    world.reply(call, result(f'"{call.id}"', '{"a":1}'))
    assert world.messages(channel) == [result("1", '{"a":1}')]


def test_an_answer_may_come_on_any_stream_of_its_session() -> None:
    world = driver()
    client, server, _ = open_session(world, "http", "http")
    channels = [client.request(n, "tools/call", "{}") for n in "12"]
    calls = [world.take_sent("tools/call") for _ in channels]
    world.open(calls[0].channel, Connected())
    world.send(calls[0].channel, result(str(calls[1].id), '{"n":2}'))
    world.send(server, result(str(calls[0].id), '{"n":1}'))
    assert [world.messages(channel) for channel in channels] == [[result("1", '{"n":1}')], [result("2", '{"n":2}')]]


def test_an_answer_of_another_session_is_not_taken() -> None:
    world = driver()
    mine, yours = (connect(world, "http", "http", session=name) for name in ("S1", "S2"))
    channel = mine.request("1", "tools/call", "{}")
    other = yours.request("1", "prompts/list", "{}")
    call, foreign = world.take_sent("tools/call"), world.take_sent("prompts/list")
    assert call.id == foreign.id, "each link counts for itself"
    world.answer(foreign, '{"whose":"yours"}')
    assert not world.sent[channel]
    assert world.messages(other) == [result("1", '{"whose":"yours"}')]


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_a_second_answer_is_dropped(up: str) -> None:
    world = driver()
    client, server, session_channel = open_session(world, "pipe", up)
    client.request("1", "tools/call", "{}")
    call = world.take_sent("tools/call")
    world.send(server, result(str(call.id), '{"n":1}'))
    world.send(server, result(str(call.id), '{"n":2}'))
    world.send(server, result("999", '{"n":3}'))
    assert world.messages(session_channel) == [result("1", '{"n":1}')]


NOISE = [
    b"Server listening on stdio", b"", b"{", b"\xff\xfe", b"1", b"null", b"{}", b"[]", b"[[]]",
    b'{"jsonrpc":"2.0","result":{}}', b'{"jsonrpc":"1.0","method":"a"}', b'{"jsonrpc":"2.0","id":1.5,"result":{}}',
    b"[" * 4000, b'{"jsonrpc":"2.0","error":{"code":1,"message":"whose?"}}',
    b'{"id":%d,"result":"x"}', b'{"level":30,"id":%d,"msg":"handled","method":"POST"}', b'{"error":"limit","id":%d}',
    b'{"jsonrpc":"1.0","id":%d,"result":{}}', b'{"level":50,"id":"%d","error":{"code":429,"message":"rate"}}',
    b'{"id":%d,"result":{"content":[]}', b'{"jsonrpc":"2.0","id":%d,"result":{"content":[', b'[{"id":%d,"result":1}]',
    b'{"id":%d,"method":"notifications/cancelled","params":{"requestId":"1"}}',
    b'{"result":{"a":1},"jsonrpc":"2.0","id":%d',
]  # fmt: skip


@pytest.mark.parametrize(("down", "up"), ANY_PAIR)
@pytest.mark.parametrize("noise", NOISE)
def test_invalid_messages_of_the_server_are_dropped(down: str, up: str, noise: bytes) -> None:
    world = driver()
    client, server, session_channel = open_session(world, down, up)
    channel = client.request("1", "tools/call", "{}")
    call = world.take_sent("tools/call")
    sends = [effect for effect in world.send(server, noise.replace(b"%d", b"%d" % call.id)) if isinstance(effect, Send)]
    assert not sends
    world.answer(call)
    assert world.messages(channel) == [result("1")]
    assert world.messages(session_channel) in ([], [result("1")])


def test_invalid_messages_are_logged_without_their_payload() -> None:
    world = driver()
    _, server, _ = open_session(world, "http", "pipe")
    world.send(server, b'{"password":"hunter2"')
    assert len(world.notes("warning")) == 1
    assert "hunter2" not in world.notes("warning")[0]


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_a_broken_answer_whose_request_is_known_ends_that_request(up: str) -> None:
    """The client does not wait for the whole time limit."""
    world = driver()
    client, server, _ = open_session(world, "http", up)
    channel = client.request("1", "tools/call", "{}")
    call = world.take_sent("tools/call")
    world.send(server, f'{{"jsonrpc":"2.0","id":{call.id},"result":{{}},"error":{{}}}}'.encode())
    assert world.only_message(channel)["error"]["code"] == -32603


def test_the_error_of_an_unanswered_call_names_the_garbage_on_its_stream() -> None:
    world = driver()
    client, _, _ = open_session(world, "http", "http")
    first, second = (client.request(n, "tools/call", "{}") for n in "12")
    calls = [world.take_sent("tools/call") for _ in "12"]
    for call in calls:
        world.open(call.channel, Connected())
        world.send(call.channel, b'{"result":')
    assert not world.sent[first]
    world.end(calls[0].channel)
    assert world.only_message(first)["error"]["code"] == -31001
    assert (
        "the server's answer could not be read: got text that is not JSON"
        in world.only_message(first)["error"]["message"]
    )
    world.send(calls[1].channel, result(str(calls[1].id)))
    assert world.messages(second) == [result("2")], "a later answer counts"


def test_an_answer_without_an_id_belongs_to_the_request_of_its_stream() -> None:
    """An error without an id, such as one about a size limit, reaches the client of the request."""
    world = driver()
    client, _, _ = open_session(world, "http", "http")
    first, second = (client.request(n, "tools/call", "{}") for n in "12")
    calls = [world.take_sent("tools/call") for _ in "12"]
    refusal = '{"code":-31007,"message":"too large"}'
    for call in calls:
        world.open(call.channel, Connected())
    world.send(world.last_dial(Listen).channel, error("null", refusal))
    assert not world.sent[first] and not world.sent[second], "an error on the session stream belongs to no request"
    world.send(calls[1].channel, error("null", refusal))
    assert world.messages(second) == [error("2", refusal)]
    world.end(calls[0].channel, Cause(End.BROKEN, last_event_id="e1"))
    world.wait(2.0)
    rest = world.last_dial(Listen).channel
    world.open(rest, Connected())
    world.send(rest, error("null", refusal))
    assert world.messages(first) == [error("1", refusal)]


def test_the_error_of_a_call_says_that_its_answer_may_have_been_dropped() -> None:
    world = driver()
    client, _, _ = open_session(world, "http", "http")
    channel = client.request("1", "tools/call", "{}")
    call = world.take_sent("tools/call")
    world.open(call.channel, Connected())
    world.end(call.channel, Cause(End.DONE, "got an event of 101 bytes, over the limit of 100 bytes"))
    assert world.only_message(channel)["error"]["code"] == -31001
    assert "over the limit" in world.only_message(channel)["error"]["message"]


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":%d,"result":{"text":"caf\xe9"}}',
        b'{"jsonrpc":"2.0","id":"%d","result":{"text":"caf\xe9"}}',
        b'{"jsonrpc":"2.0","id":%d,"result":{},"error":{}}',
        b'{"jsonrpc":"2.0","id":%d,"result":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    ],
)
def test_an_unreadable_answer_on_a_pipe_ends_its_request(line: bytes) -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    channel = client.request("7", "tools/call", "{}")
    call = world.take_sent("tools/call")
    world.send(call.channel, line % call.id)
    assert world.only_message(channel)["id"] == 7
    assert world.only_message(channel)["error"]["code"] == -32603
    assert "the server's answer could not be read" in world.only_message(channel)["error"]["message"]


@pytest.mark.parametrize("up", ["pipe", "http"])
@pytest.mark.parametrize("fault", [b'"params":7', b'"params":"\xff"'])
def test_a_broken_request_of_the_server_is_answered_and_ends_none_of_ours(up: str, fault: bytes) -> None:
    """Ids of the two directions are independent, and often are the same numbers."""
    world = driver()
    client = connect(world, "http", up)
    channel = client.request("7", "tools/call", "{}")
    call = world.take_sent("tools/call")
    if up == "http":
        world.open(call.channel, Connected())
    world.send(call.channel, b'{"jsonrpc":"2.0","id":%d,"method":"roots/list",%b}' % (call.id, fault))
    refusal = world.take_sent("").frame
    assert refusal["id"] == call.id
    assert refusal["error"]["code"] in (-32600, -32700)
    world.send(call.channel, b'{"jsonrpc":"2.0","method":"notifications/message",%b}' % fault)
    assert not world.unread
    assert not world.sent[channel]
    world.send(call.channel, result(str(call.id)))
    assert world.messages(channel) == [result("7")]


@pytest.mark.parametrize("id", ["null", '"server-error"'])
def test_an_error_without_a_usable_id_belongs_to_the_post_it_answers(id: str) -> None:
    """Python servers send such errors to messages that they cannot read."""
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/call", "{}")
    world.reply(world.take_sent("tools/call"), error(id, '{"code":-32600,"message":"no"}'))
    assert world.messages(channel) == [error("1", '{"code":-32600,"message":"no"}')]


def test_each_message_carries_the_upstream_session_and_its_revision() -> None:
    world = driver()
    client = connect(world, "http", "http", revision="2025-06-18", session="abc")
    client.request("1", "tools/list")
    client.notify("vendor/notice")
    for method in ("tools/list", "vendor/notice"):
        post = world.take_sent(method).post
        assert post is not None
        assert (post.session, post.revision) == ("abc", "2025-06-18")
    listen = world.last_dial(Listen).target
    assert isinstance(listen, Listen)
    assert (listen.session, listen.revision) == ("abc", "2025-06-18")


def test_the_first_message_names_neither_session_nor_revision() -> None:
    world = driver()
    new_client(world, "http", "http").initialize()
    post = world.take_sent("initialize").post
    assert post is not None
    assert (post.session, post.revision) == (None, None)


def test_closing_a_post_cancels_nothing() -> None:
    """2025-03-26 basic/transports: a disconnection is not a cancellation. The response is dropped."""
    world = driver()
    client = connect(world, "http", "pipe")
    channel = client.request("1", "tools/call", "{}")
    call = world.take_sent("tools/call")
    world.end(channel)
    assert not world.unread
    world.answer(call)
    assert not world.sent[channel]
    assert world.engine.exchange_count == 0


def test_the_end_of_a_pipe_ends_its_session() -> None:
    world = driver()
    client = connect(world, "pipe", "pipe")
    assert client.pipe is not None
    client.request("1", "tools/call", "{}")
    world.end(client.pipe)
    assert world.engine.session_count == 0
    assert world.dials[0].channel in world.closed


def test_a_get_with_a_last_event_id_is_an_ordinary_get() -> None:
    """Events carry no ids here, so there is nothing to resume. Waiting messages are delivered."""
    world = driver()
    client = connect(world, "http", "pipe")
    world.send(world.dials[0].channel, notification("notifications/tools/list_changed"))
    channel = world.engine.new_channel()
    world.open(channel, GetOpening(server="pipe", session=client.session, last_event_id="7"))
    assert len(world.messages(channel)) == 1
