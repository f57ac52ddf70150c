"""Tests of peers that guess, flood, vanish or break the rules: they harm no other peer, and nothing is raised."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import (
    DONE,
    NO_STREAM,
    UNIX_AT_ZERO,
    Client,
    Driver,
    ask_link,
    connect,
    driver,
    error,
    manifest,
    new_client,
    notification,
    request,
    result,
    send_in,
    upload,
)
from isthmus.core.base.effects import Delete, Dial, Listen, Note, Pause, Post, Resume, Spawn
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.events import Cause, Connected, End, UploadOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import (
    ArtifactProducer,
    Eviction,
    Kind,
    LocatorMode,
    OutputLocator,
    Plan,
    ServerPlan,
    UploadConsumer,
)
from isthmus.core.base.storage import Collect, Collected, CollectedFile, Discard, Forget, Receive, Save, Saved
from isthmus.core.engine import Engine
from isthmus.core.files.store.store import StoredArtifact

GONE = Cause(End.GONE)
HANDSHAKE = '{"protocolVersion":"2025-11-25","capabilities":{}}'
HELPER = "f_get_upload_url"
FILES = ServerPlan(
    id="f",
    kind=Kind.PIPE,
    consumers=(UploadConsumer(tools=("eat",), file_path_argument="path"),),
    producers=(
        ArtifactProducer(
            tools=("make",),
            output_locator=OutputLocator(mode=LocatorMode.REGEX, output_path_regexes=(r"/\S+",)),
        ),
    ),
)


def child_of(world: Driver) -> ChannelId:
    return [dial.channel for dial in world.dials if isinstance(dial.target, Spawn)][-1]


def error_of(world: Driver, channel: ChannelId) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(world.messages(channel)[-1])["error"]
    return found


def posts(world: Driver) -> int:
    """The number of open POSTs to servers."""
    return sum(isinstance(dial.target, Post) and dial.channel not in world.over for dial in world.dials)


# --- Questions that were never asked --------------------------------------------------------------------------------


def test_an_answer_to_a_question_that_waits_is_a_guess_and_changes_nothing() -> None:
    """A question that no client was sent stays open, and the server gets nothing of the guessed answer."""
    world = driver()
    client = connect(world, "http", "pipe")
    world.send(child_of(world), request('"q"', "elicitation/create", "{}"))
    client.send(result("1", '{"forged":true}'))
    assert not world.unread
    stream = client.listen()
    assert world.only_message(stream)["method"] == "elicitation/create"
    client.send(result(str(world.only_message(stream)["id"]), '{"real":true}'))
    assert world.take_sent("").frame == {"jsonrpc": "2.0", "id": "q", "result": {"real": True}}


def test_a_guess_does_not_disturb_the_end_of_the_wait() -> None:
    world = driver(limits=Limits(held_timeout_s=30.0))
    client = connect(world, "http", "pipe")
    world.send(child_of(world), request('"q"', "roots/list"))
    client.send(result("1"))
    world.wait(31)
    assert world.take_sent("").frame["error"]["code"] == -32603


def test_two_deadlines_at_one_wake_up_of_which_the_first_settles_the_second() -> None:
    """After a machine slept, the server's start and the question of the same server are overdue together."""
    world = driver(limits=Limits(start_timeout_s=60.0, held_timeout_s=30.0))
    client = connect(world, "http", "pipe")
    world.end(child_of(world), Cause(End.BROKEN))
    call = client.request("1", "tools/call", "{}")
    world.open(child_of(world), Connected())
    world.now += 31
    world.end(call, GONE)
    world.send(child_of(world), request('"q"', "roots/list"))
    world.now += 40
    world.wait(0)
    assert world.engine.exchange_count == 0


def test_an_answer_with_its_id_as_text_is_taken() -> None:
    """Some clients echo every id as a string."""
    world = driver()
    client = connect(world, "http", "pipe")
    stream = client.listen()
    world.send(child_of(world), request("7", "roots/list"))
    client.send(result(f'"{world.only_message(stream)["id"]}"', '{"roots":[]}'))
    assert world.take_sent("").frame == {"jsonrpc": "2.0", "id": 7, "result": {"roots": []}}


def test_question_timeout_answers_the_server_and_notifies_the_client() -> None:
    world = driver(limits=Limits(question_timeout_s=100.0))
    client = connect(world, "pipe", "pipe")
    assert client.pipe is not None
    world.send(child_of(world), request('"q"', "elicitation/create", "{}"))
    number = world.only_message(client.pipe)["id"]
    world.wait(99)
    assert not world.unread
    world.wait(1.1)
    refusal = world.take_sent("").frame
    assert refusal["id"] == "q"
    assert refusal["error"] == {"code": -31008, "message": "the client did not answer within 100 s"}
    cancelled = json.loads(world.messages(client.pipe)[-1])
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"] == {"requestId": number, "reason": "the client did not answer within 100 s"}
    client.send(result(str(number)))
    assert not world.unread, "too late"


def test_progress_of_the_client_starts_the_wait_for_its_answer_anew() -> None:
    world = driver(limits=Limits(question_timeout_s=100.0))
    client = connect(world, "pipe", "pipe")
    assert client.pipe is not None
    world.send(child_of(world), request('"q"', "sampling/createMessage", '{"_meta":{"progressToken":"t"}}'))
    world.wait(90)
    token = world.only_message(client.pipe)["params"]["_meta"]["progressToken"]
    client.notify("notifications/progress", f'{{"progressToken":{token},"progress":1}}')
    assert world.take_sent("notifications/progress").frame["params"]["progressToken"] == "t"
    world.wait(90)
    assert not world.unread
    world.wait(11)
    assert world.was_sent("")


def test_progress_on_a_question_that_waits_is_a_guess_too() -> None:
    world = driver(limits=Limits(held_timeout_s=30.0))
    client = connect(world, "http", "pipe")
    world.send(child_of(world), request('"q"', "sampling/createMessage", '{"_meta":{"progressToken":"t"}}'))
    client.notify("notifications/progress", '{"progressToken":1,"progress":1}')
    assert not world.unread
    world.wait(31)
    assert world.take_sent("").frame["error"]["code"] == -32603


def test_a_question_without_an_answer_keeps_no_session_alive() -> None:
    world = driver(limits=Limits(session_idle_ttl_s=60.0))
    client = connect(world, "http", "pipe")
    stream = client.listen()
    world.send(child_of(world), request('"q"', "elicitation/create", "{}"))
    world.end(stream, GONE)
    world.wait(61)
    assert world.engine.session_count == 0
    assert child_of(world) in world.closed


def test_a_broken_answer_on_a_pipe_is_an_error_for_its_server_and_never_taken_for_a_request() -> None:
    """The client's own request with that id gets one answer: its own."""
    world = driver()
    client = connect(world, "pipe", "pipe")
    assert client.pipe is not None
    client.request("1", "tools/call", "{}")
    call = world.take_sent("tools/call")
    world.send(call.channel, request('"q"', "elicitation/create", "{}"))
    client.send(b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}')
    response = world.take_sent("").frame
    assert response["id"] == "q"
    assert response["error"]["message"].startswith("the client's answer could not be read: got both result and error")
    assert (response["error"]["code"], set(response["error"])) == (-32603, {"code", "message"})
    world.answer(call)
    assert [frame["id"] for frame in world.frames(client.pipe) if "method" not in frame] == [1]


# --- Sessions that are over, or not yet there -----------------------------------------------------------------------


def test_a_reply_that_outlives_its_session_is_ignored() -> None:
    world = driver()
    client = connect(world, "http", "http")
    client.notify("vendor/notice")
    posted = world.take_sent("vendor/notice")
    world.open(posted.channel, Connected())
    client.delete()
    dials = len(world.dials)
    for message in (request("0", "ping"), request('"q"', "roots/list"), notification("x"), b"garbage"):
        world.send(posted.channel, message)
    assert len(world.dials) == dials
    world.wait(Limits().cancel_grace_s)
    assert posted.channel in world.closed


def test_a_forgotten_session_is_not_answered_while_there_is_none() -> None:
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/call", "{}")
    call = world.take_sent("tools/call")
    world.open(call.channel, Connected())
    client.notify("vendor/notice")
    world.end(world.take_sent("vendor/notice").channel, Cause(End.REFUSED, status=404))
    world.send(call.channel, request("0", "ping"))
    world.send(call.channel, request('"q"', "elicitation/create", "{}"))
    assert not world.unread
    assert not world.sent[channel]


@pytest.mark.parametrize("stage", ["opening", "answered"])
def test_a_handshake_whose_client_has_gone_is_let_go(stage: str) -> None:
    """No client has the id of that session. A client in a hurry tries again and again."""
    world = driver()
    channel = new_client(world, "http", "pipe").initialize()
    if stage == "answered":
        world.open(child_of(world), Connected())
        world.answer(world.take_sent("initialize"), HANDSHAKE)
    world.end(channel, GONE)
    assert world.engine.session_count == 0
    assert child_of(world) in world.closed


def test_a_client_that_hangs_up_after_its_handshake_keeps_its_session() -> None:
    world = driver()
    client = new_client(world, "http", "pipe")
    channel = client.initialize()
    world.start_server()
    client.session = world.sent[channel][-1].session
    world.end(channel, DONE)
    assert world.engine.session_count == 1
    client.notify("notifications/initialized")
    client.request("1", "tools/list")
    assert world.was_sent("tools/list")


def test_requests_before_the_handshake_wait_for_it_and_are_asked_of_the_server() -> None:
    """The server's capabilities are not known yet, so the proxy answers nothing itself."""
    world = driver(FILES)
    client = new_client(world, "pipe", "f")
    assert client.pipe is not None
    client.initialize()
    client.request("1", "tools/list")
    client.request("2", "resources/read", '{"uri":"file:///x"}')
    assert not world.sent[client.pipe]
    world.start_server()
    world.answer(world.take_sent("tools/list"), '{"tools":[{"name":"eat","inputSchema":{}}]}')
    assert [tool["name"] for tool in list(world.frames(client.pipe))[-1]["result"]["tools"]] == [
        HELPER,
        "f_put_file",
        "eat",
    ]
    assert world.was_sent("resources/read")


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_notifications_wait_for_the_upstream_in_order_with_requests(up: str) -> None:
    world = driver(limits=Limits(notifications_waiting_max=2))
    client = new_client(world, "http", up)
    channel = client.initialize()
    spawned = up == "pipe"
    if spawned:
        world.open(world.dials[-1].channel, Connected())
    hello = world.take_sent("initialize")
    if spawned:
        world.end(hello.channel, Cause(End.BROKEN))
        assert error_of(world, channel)["code"] == -31004
        return
    world.answer(hello, HANDSHAKE, session="S1")
    client.session = world.sent[channel][-1].session
    client.notify("notifications/initialized")
    client.notify("a")
    client.request("1", "tools/list")
    client.notify("b")
    client.notify("c")
    assert [received.frame["method"] for received in world.unread] == ["notifications/initialized"]
    assert any("c dropped: too many wait" in note for note in world.notes("warning"))
    world.acknowledge(world.take_sent("notifications/initialized"))
    world.end(world.last_dial(Listen).channel, NO_STREAM)
    assert [received.frame["method"] for received in world.unread] == ["a", "tools/list", "b"]


@pytest.mark.parametrize("params", ['{"cursor":"a","cursor":"b"}', '{"\\u0063ursor":1,"cursor":2}'])
@pytest.mark.parametrize("capabilities", ["{}", '{"tools":{}}'])
def test_a_list_request_with_a_member_twice_is_refused(params: str, capabilities: str) -> None:
    """The error is the same whatever the server has, and the request does not go up."""
    world = driver(FILES)
    client = connect(world, "http", "f", capabilities=capabilities)
    channel = client.request("1", "tools/list", params)
    assert error_of(world, channel)["code"] in (-32600, -32602)
    assert "twice" in error_of(world, channel)["message"]
    assert not world.unread


# --- Servers that answer oddly --------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 404, 405, 501])
def test_a_server_that_refuses_every_event_stream_can_be_used(status: int) -> None:
    """405 is the right status; routers that know only POST answer 404."""
    world = driver()
    client = new_client(world, "http", "http")
    channel = client.initialize()
    world.answer(world.take_sent("initialize"), HANDSHAKE, session="S1")
    world.acknowledge(world.take_sent("notifications/initialized"))
    world.end(world.last_dial(Listen).channel, Cause(End.REFUSED, status=status))
    client.session = world.sent[channel][-1].session
    listing = client.request("1", "tools/list")
    world.answer(world.take_sent("tools/list"))
    assert world.messages(listing) == [result("1")]


@pytest.mark.parametrize("status", [400, 404, 500])
@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"code":2,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":null,"error":{"message":"a","\\u006dessage":"b"}}',
        b'{"jsonrpc":"2.0","id":null,"error":[' + b"[" * 5000,
        b'{"jsonrpc":"2.0","id":null,"error":"\xff"}',
        b'{"error":{"error":1,"error":2}}',
    ],
)
def test_a_refusal_with_any_body_is_a_refusal(status: int, body: bytes) -> None:
    """A request, a notification and a stream may be refused so; a settled request stays settled."""
    world = driver()
    client = connect(world, "http", "http", listens=True)
    refusal = Cause(End.REFUSED, status=status, body=body)
    channel = client.request("1", "tools/call", "{}")
    client.notify("vendor/notice")
    call, posted = world.take_sent("tools/call"), world.take_sent("vendor/notice")
    world.end(call.channel, refusal)
    world.end(posted.channel, refusal)
    world.end(world.last_dial(Listen).channel, refusal)
    client.delete()
    world.wait(10_000)
    assert len(world.messages(channel)) == 1


def test_a_confirmation_that_is_answered_with_an_open_stream_is_confirmed() -> None:
    world = driver()
    client = new_client(world, "http", "http")
    channel = client.initialize()
    world.answer(world.take_sent("initialize"), HANDSHAKE, session="S1")
    confirmation = world.take_sent("notifications/initialized")
    world.open(confirmation.channel, Connected())
    world.end(world.last_dial(Listen).channel, NO_STREAM)
    client.session = world.sent[channel][-1].session
    client.request("1", "tools/list")
    assert world.was_sent("tools/list")
    world.wait(Limits().cancel_grace_s)
    assert confirmation.channel in world.closed


def test_unreadable_answers_to_both_handshakes_fail_them_at_once() -> None:
    world = driver()
    channel = new_client(world, "http", "pipe").initialize()
    world.open(child_of(world), Connected())
    number = world.take_sent("initialize").id
    world.send(child_of(world), b'{"jsonrpc":"2.0","id":%d,"result":{"serverInfo":"caf\xe9"}}' % number)
    world.open(child_of(world), Connected())
    number = world.take_sent("server/discover").id
    world.send(child_of(world), b'{"jsonrpc":"2.0","id":%d,"result":{"serverInfo":"caf\xe9"}}' % number)
    assert "could not be read" in error_of(world, channel)["message"]


def test_a_server_that_writes_every_member_is_understood() -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    channel = client.request("1", "tools/list")
    call = world.take_sent("tools/list")
    parts = b'"method":null,"params":null,"result":{"tools":[]},"error":null'
    world.send(call.channel, b'{"jsonrpc":"2.0","id":%d,%b}' % (call.id, parts))
    assert world.messages(channel) == [result("1", '{"tools":[]}')]


def test_a_reply_that_breaks_after_its_answer_is_no_loss() -> None:
    world = driver()
    client = connect(world, "http", "http")
    client.request("1", "tools/list")
    call = world.take_sent("tools/list")
    world.open(call.channel, Connected())
    world.send(call.channel, result(str(call.id)))
    world.end(call.channel, Cause(End.BROKEN))
    assert world.notes("warning") == []


def test_a_request_that_may_have_run_before_a_failing_restart_has_an_unknown_outcome() -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    channel = client.request("1", "tools/list")
    world.take_sent("tools/list")
    world.end(child_of(world), Cause(End.BROKEN))
    world.end(child_of(world), Cause(End.UNREACHABLE, unsent=True))
    assert error_of(world, channel)["code"] == -31001
    assert error_of(world, channel)["data"]["outcome"] == "unknown"


def test_a_server_that_always_forgets_the_session_is_dialled_ever_more_rarely() -> None:
    """A subscription needs the server back, but no request waits for it."""
    world = driver(limits=Limits(restart_backoff_s=1.0))
    client = connect(world, "http", "http", capabilities='{"resources":{"subscribe":true}}', listens=True)
    client.request("1", "resources/subscribe", '{"uri":"file:///a"}')
    world.answer(world.take_sent("resources/subscribe"))
    for number in range(20):
        if (stream := world.last_dial(Listen).channel) not in world.over:
            world.send(stream, request(str(number), "ping"))
            world.end(world.take_sent("").channel, Cause(End.REFUSED, status=404))
        if world.was_sent("initialize"):
            world.start_server(session=f"S{number}", listens=True)
            world.answer(world.take_sent("resources/subscribe"))
        else:
            world.wait(0.1)
    handshakes = sum(isinstance(d.target, Post) and b'"initialize"' in d.target.message for d in world.dials)
    assert handshakes < 6


@pytest.mark.parametrize("text", ["[]", '{"protocolVersion":"2025-11-25","protocolVersion":"x"}'])
def test_a_session_that_cannot_be_used_is_ended(text: str) -> None:
    world = driver()
    new_client(world, "http", "http").initialize()
    world.answer(world.take_sent("initialize"), text, session="S9")
    assert [dial.target.session for dial in world.dials if isinstance(dial.target, Delete)] == ["S9"]


def test_noise_is_noted_ever_more_rarely_and_never_shows_payload() -> None:
    world = driver()
    connect(world, "http", "pipe")
    for _ in range(1000):
        world.send(child_of(world), b"DEBUG loading")
    world.send(child_of(world), b'{"result":"hunter2"}')
    text, _ = world.notes("warning")
    assert "it begins 'DEBUG loading'" in text
    rare = [note for note in world.notes("debug") if "times by now" in note]
    assert len(rare) < 20
    assert "(512 times by now)" in rare[-1]
    world.send(child_of(world), b'{"params":"hunter2","method":"x","jsonrpc":"2.0"}')
    assert not any("hunter2" in note.text for note in world.every(Note))


def test_params_that_cannot_be_read_are_not_noted() -> None:
    world = driver()
    connect(world, "http", "pipe")
    world.send(child_of(world), b'{"jsonrpc":"2.0","method":"x","params":"my password is hunter2"}')
    (note,) = world.notes("warning")
    assert note == "server sent what is no message: got params that are a string, expected an object"


def test_a_server_that_dies_again_and_again_is_left_alone_for_a_while() -> None:
    """The server starts well, and a subscription needs it back at once."""
    world = driver(limits=Limits(restart_backoff_s=1.0, restart_backoff_max_s=30.0))
    client = connect(world, "http", "pipe", capabilities='{"resources":{"subscribe":true}}')
    client.request("1", "resources/subscribe", '{"uri":"file:///a"}')
    world.answer(world.take_sent("resources/subscribe"))
    world.end(child_of(world), Cause(End.BROKEN))
    began = len(world.dials)
    for _ in range(300):
        if child_of(world) in world.over:
            world.wait(1)
            continue
        world.open(child_of(world), Connected())
        world.answer(world.take_sent("initialize"), HANDSHAKE)
        world.take_sent("notifications/initialized")
        world.answer(world.take_sent("resources/subscribe"))
        world.end(child_of(world), Cause(End.BROKEN))
    assert 5 < len(world.dials) - began < 20


def test_a_server_that_has_answered_since_is_restarted_at_once() -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    for number in range(5):
        channel = client.request(str(number), "tools/call", "{}")
        if number:
            world.start_server()
        world.answer(world.take_sent("tools/call"))
        assert world.messages(channel) == [result(str(number))]
        world.end(child_of(world), Cause(End.BROKEN))


def test_messages_after_a_refused_handshake_in_the_same_batch_are_dropped() -> None:
    """Messages of a server after its refusal to initialize are ignored."""
    world = driver()
    channel = new_client(world, "http", "pipe").initialize()
    world.open(child_of(world), Connected())
    number = world.take_sent("initialize").id
    refusal = error(str(number), '{"code":1,"message":"no"}')
    world.send(child_of(world), b"[" + refusal + b"," + request("5", "ping") + b"," + b'{"method":7}' + b"]")
    world.open(child_of(world), Connected())
    number = world.take_sent("server/discover").id
    world.send(child_of(world), error(str(number), '{"code":1,"message":"no"}'))
    assert error_of(world, channel) == {"code": 1, "message": "no"}
    assert not world.unread


# --- Floods ---------------------------------------------------------------------------------------------------------


def test_a_reply_that_stays_open_after_its_answer_is_ended() -> None:
    world = driver()
    client = connect(world, "http", "http")
    for number in range(50):
        channel = client.request(str(number), "tools/call", "{}")
        call = world.take_sent("tools/call")
        world.open(call.channel, Connected())
        world.send(call.channel, result(str(call.id)))
        assert world.messages(channel) == [result(str(number))]
    assert posts(world) == 50
    world.wait(Limits().cancel_grace_s)
    assert posts(world) == 0


def test_a_notification_that_its_server_does_not_take_times_out() -> None:
    world = driver(limits=Limits(notification_timeout_s=60.0))
    client = connect(world, "http", "http")
    client.notify("vendor/notice")
    world.wait(61)
    assert posts(world) == 0


def test_notifications_open_high_pauses_their_sender_until_some_have_arrived() -> None:
    world = driver(limits=Limits(notifications_open_high=3))
    client = connect(world, "pipe", "http")
    assert client.pipe is not None
    for _ in range(3):
        client.notify("vendor/notice")
    assert Pause(channel=client.pipe) not in world.log
    client.notify("vendor/notice")
    assert Pause(channel=client.pipe) in world.log
    for received in list(world.unread):
        world.acknowledge(received)
    assert Resume(channel=client.pipe) in world.log


def test_notifications_open_max_drops_those_whose_sender_cannot_be_paused() -> None:
    world = driver(limits=Limits(notifications_open_max=5, notifications_open_high=3))
    client = connect(world, "http", "http")
    for _ in range(9):
        client.notify("vendor/notice")
    assert posts(world) == 5
    assert any("5 notifications and answers are on their way: one more dropped" in n for n in world.notes("warning"))


def test_pings_of_a_server_are_answered_within_bounds() -> None:
    world = driver(limits=Limits(notifications_open_max=8, notifications_open_high=4))
    client = connect(world, "http", "http", listens=True)
    assert client.session
    stream = world.last_dial(Listen).channel
    for number in range(100):
        world.send(stream, request(str(number), "ping"))
    assert posts(world) == 8
    assert Pause(channel=stream) in world.log


def test_a_client_over_http_is_refused_while_the_server_takes_nothing() -> None:
    world = driver(limits=Limits(outbox_max_bytes=2000, outbox_high_bytes=1000, outbox_low_bytes=10))
    client = connect(world, "http", "pipe")
    while not world.sent[channel := client.post(notification("x", '{"a":"' + "y" * 300 + '"}'))]:
        assert world.closed[channel].status == 202
    assert world.sent[channel][0].status == 503
    assert error_of(world, channel)["code"] == -31007
    assert world.only_message(client.post(request("4", "ping")))["result"] == {}
    refused = client.post(request("5", "tools/list"))
    assert (world.sent[refused][0].status, world.only_message(refused)["id"]) == (503, 5)
    sent = sum(len(message) for message in world.messages(child_of(world)))
    world.engine.receive_sent(child_of(world), sent, world.now)
    client.post(request("5", "tools/list"))
    assert world.was_sent("tools/list")


def test_a_client_that_takes_no_answers_is_paused() -> None:
    world = driver(limits=Limits(outbox_high_bytes=1000, outbox_low_bytes=10))
    client = connect(world, "pipe", "pipe")
    assert client.pipe is not None
    client.request('"' + "x" * 1200 + '"', "ping")
    assert Pause(channel=client.pipe) in world.log
    assert Resume(channel=client.pipe) not in world.log


def test_held_messages_are_bounded_in_bytes() -> None:
    world = driver(limits=Limits(held_per_session_max_bytes=10_000))
    client = connect(world, "http", "pipe")
    for number in range(50):
        world.send(child_of(world), notification("notifications/message", json.dumps({"n": number, "x": "y" * 2000})))
    kept = [frame["params"]["n"] for frame in world.frames(client.listen())]
    assert kept == [46, 47, 48, 49], "the newest"


def test_one_held_message_may_be_as_large_as_it_is() -> None:
    world = driver(limits=Limits(held_per_session_max_bytes=1000))
    client = connect(world, "http", "pipe")
    world.send(child_of(world), notification("notifications/message", '{"x":"' + "y" * 5000 + '"}'))
    assert len(world.messages(client.listen())) == 1


def test_streams_per_session_max_ends_the_oldest() -> None:
    world = driver(limits=Limits(streams_per_session_max=2))
    client = connect(world, "http", "pipe")
    streams = [client.listen() for _ in range(4)]
    assert [stream in world.closed for stream in streams] == [True, True, False, False]


def test_subscriptions_that_are_not_remembered_are_noted() -> None:
    world = driver(limits=Limits(subscriptions_per_session_max=1))
    client = connect(world, "http", "pipe")
    for uri in "ab":
        client.request(f'"{uri}"', "resources/subscribe", f'{{"uri":"file:///{uri}"}}')
        world.answer(world.take_sent("resources/subscribe"))
    assert any("is not set again if the server is lost" in note for note in world.notes("warning"))


# --- Files ----------------------------------------------------------------------------------------------------------


def make(world: Driver, client: Client) -> tuple[ChannelId, Collect]:
    """A call whose result names a file, up to the Collect order for it."""
    channel = client.request("1", "tools/call", '{"name":"make","arguments":{}}')
    world.answer(world.take_sent("tools/call"), '{"content":[{"type":"text","text":"wrote /w/a.txt"}]}')
    return channel, world.last(Collect)


def test_artifacts_that_do_not_fit_together_are_not_both_kept() -> None:
    world = driver(FILES, limits=Limits(session_storage_max_bytes=100))
    client = connect(world, "http", "f")
    calls = [make(world, client) for _ in range(2)]
    for _, order in calls:
        file = CollectedFile(path="/w/a.txt", filename="a.txt", size_bytes=60, sha256="0" * 64)
        world.store(order.ticket, Collected(files=(file,)))
    (save,) = world.every(Save)
    world.store(save.ticket, Saved())
    assert Discard(blob=calls[1][1].blobs[0]) in world.log
    results = [json.loads(world.messages(channel)[-1])["result"]["_meta"] for channel, _ in calls]
    assert ["artifact" in meta for meta in results] == [True, False]


def test_files_that_are_taken_in_too_late_are_removed() -> None:
    world = driver(FILES, limits=Limits(storage_timeout_s=10.0))
    client = connect(world, "http", "f")
    channel, order = make(world, client)
    world.wait(11)
    assert "did not answer within 10 s" in str(world.only_message(channel))
    file = CollectedFile(path="/w/a.txt", filename="a.txt", size_bytes=60, sha256="0" * 64)
    assert world.store(order.ticket, Collected(files=(file,))) == [Discard(blob=order.blobs[0])]
    assert world.store(order.ticket, Collected(files=(file,))) == []


def test_a_slow_upload_outlives_its_link_when_another_client_gets_one() -> None:
    world = driver(FILES)
    slow, other = connect(world, "http", "f"), connect(world, "http", "f")
    channel = send_in(world, UploadOpening(server="f", query=ask_link(slow, HELPER)))
    world.wait(Limits().upload_link_ttl_s + 10)
    ask_link(other, HELPER)
    for save in world.send(channel, manifest(("a.txt", 5))):
        assert isinstance(save, Save)
        world.store(save.ticket, Saved())
    assert world.only_message(channel)["count"] == 1


def test_another_principal_does_not_keep_an_upload_alive() -> None:
    world = driver(FILES, limits=Limits(upload_ttl_s=100.0))
    owner, other = connect(world, "http", "f"), connect(world, "http", "f", principal="eve")
    (handle,) = upload(owner, HELPER, ("a.txt", 5))
    arguments = json.dumps({"name": "eat", "arguments": {"path": handle}})
    world.wait(90)
    assert "Unknown upload handle" in str(world.only_message(other.request("1", "tools/call", arguments)))
    world.wait(20)
    assert "Unknown upload handle" in str(world.only_message(owner.request("1", "tools/call", arguments)))


def test_artifacts_of_earlier_runs_count_and_expire() -> None:
    """Stored artifacts take their room, and their deadlines are kept."""
    record = StoredArtifact(
        server="f",
        sid="0" * 32,
        aid="1" * 32,
        principal="",
        blob="2" * 32,
        filename="a.txt",
        mime_type="text/plain",
        size_bytes=60,
        sha256="0" * 64,
        tool="make",
        is_exposed=True,
        expires_at_unix=UNIX_AT_ZERO + 500,
    )
    limits = Limits(storage_max_bytes=100)
    world = driver(FILES, limits=limits, stored=[record], eviction=Eviction.NONE)
    client = connect(world, "http", "f")
    send_in(world, UploadOpening(server="f", query=ask_link(client, HELPER)))
    assert world.last(Receive).total_size_max_bytes == 40
    assert client.listen()
    world.wait(500 - world.now)
    assert Discard(blob=record.blob) in world.log
    assert Forget(key=record.key) in world.log


def test_an_engine_that_signs_links_wants_a_key() -> None:
    with pytest.raises(LocalProtocolError, match="expected at least one of 16 secret bytes"):
        Engine(Plan(servers=(FILES,)), entropy=bytes, unix_at_zero=0.0, has_storage=True)
    Engine(Plan(servers=(ServerPlan(id="p", kind=Kind.PIPE),)), entropy=bytes, unix_at_zero=0.0)


def test_tools_whose_file_is_optional_can_be_called_while_uploads_are_switched_off() -> None:
    world = driver(FILES, uploads_enabled=False)
    client = connect(world, "http", "f")
    client.request("1", "tools/call", '{"name":"eat","arguments":{"other":1}}')
    assert world.was_sent("tools/call")


def test_a_handle_is_refused_while_uploads_are_switched_off() -> None:
    world = driver(FILES, uploads_enabled=False)
    client = connect(world, "http", "f")
    response = world.only_message(
        client.request("1", "tools/call", '{"name":"eat","arguments":{"path":"/etc/hostname"}}')
    )
    assert response["result"]["isError"]
    assert "uploads are switched off here" in response["result"]["content"][0]["text"]
    assert HELPER not in str(response)
    assert not world.unread


def test_every_dial_is_to_a_server_of_the_plan() -> None:
    """The helpers of this file dial a server, so that no test above passes for want of one."""
    world = driver(FILES)
    connect(world, "http", "f")
    assert isinstance(world.only(Dial).target, Spawn)


def test_a_question_on_a_stream_that_is_gone_for_good_is_withdrawn_on_the_next_stream() -> None:
    world = driver(limits=Limits(stream_ttl_s=5.0))
    client = connect(world, "http", "pipe")
    channel = client.request("1", "tools/call")
    call = world.take_sent("tools/call")
    world.send(child_of(world), request('"q"', "elicitation/create", "{}"))
    number = world.only_message(channel)["id"]
    world.answer(call)
    world.wait(6.0)
    world.send(child_of(world), notification("notifications/cancelled", '{"requestId":"q","reason":"done"}'))
    cancelled = world.only_message(client.listen())
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"] == {"requestId": number, "reason": "done"}


@pytest.mark.parametrize("id_raw", ["1", "7", '"x"', "null"])
def test_a_broken_answer_to_no_question_is_dropped(id_raw: str) -> None:
    world = driver()
    client = connect(world, "pipe", "pipe")
    assert client.pipe is not None
    client.send(f'{{"jsonrpc":"2.0","id":{id_raw},"result":{{}},"error":{{}}}}'.encode())
    assert not world.unread
    assert not world.messages(client.pipe)
    assert any("got both result and error" in text for text in world.notes("warning"))
    client.request("1", "tools/list")
    assert world.was_sent("tools/list")
