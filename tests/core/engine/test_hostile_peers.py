"""Peers that guess, flood, vanish or break the rules: what they do harms nobody else, ends, and is never raised."""

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
    newcomer,
    notification,
    request,
    result,
    send_in,
    upload,
)
from isthmus.core.base.effects import (
    Cause,
    Collect,
    Collected,
    CollectedFile,
    Connected,
    Delete,
    Dial,
    Discard,
    End,
    Forget,
    Listen,
    Pause,
    Post,
    Receive,
    Resume,
    Save,
    Saved,
    Spawn,
    UploadOpening,
)
from isthmus.core.base.errors import LocalProtocolError
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
    """POSTs to servers that are open."""
    return sum(isinstance(dial.target, Post) and dial.channel not in world.over for dial in world.dials)


# --- Questions that were never asked --------------------------------------------------------------------------------


def test_an_answer_to_a_question_that_waits_is_a_guess_and_changes_nothing() -> None:
    """Nobody was shown it: the server must not be told what a guesser says, and the question stays."""
    world = driver()
    client = connect(world, "http", "pipe")
    world.say(child_of(world), request('"q"', "elicitation/create", "{}"))
    client.say(result("1", '{"forged":true}'))
    assert not world.heard
    stream = client.listen()
    assert world.said(stream)["method"] == "elicitation/create"
    client.say(result(str(world.said(stream)["id"]), '{"real":true}'))
    assert world.hear("").frame == {"jsonrpc": "2.0", "id": "q", "result": {"real": True}}


def test_a_guess_does_not_disturb_the_end_of_the_wait() -> None:
    world = driver(limits=Limits(held_timeout_s=30.0))
    client = connect(world, "http", "pipe")
    world.say(child_of(world), request('"q"', "roots/list"))
    client.say(result("1"))
    world.wait(31)
    assert world.hear("").frame["error"]["code"] == -32603


def test_two_deadlines_at_one_wake_up_of_which_the_first_settles_the_second() -> None:
    """A machine that slept: the server's start and the question of the same server are overdue together."""
    world = driver(limits=Limits(start_timeout_s=60.0, held_timeout_s=30.0))
    client = connect(world, "http", "pipe")
    world.end(child_of(world), Cause(End.BROKEN))
    asking = client.request("1", "tools/call", "{}")
    world.open(child_of(world), Connected())
    world.now += 31
    world.end(asking, GONE)
    world.say(child_of(world), request('"q"', "roots/list"))
    world.now += 40
    world.wait(0)
    assert world.engine.exchange_count == 0


def test_an_answer_with_its_id_as_text_is_taken() -> None:
    """Some clients echo every id as a string."""
    world = driver()
    client = connect(world, "http", "pipe")
    stream = client.listen()
    world.say(child_of(world), request("7", "roots/list"))
    client.say(result(f'"{world.said(stream)["id"]}"', '{"roots":[]}'))
    assert world.hear("").frame == {"jsonrpc": "2.0", "id": 7, "result": {"roots": []}}


def test_ask_timeout_answers_the_server_and_tells_the_client() -> None:
    world = driver(limits=Limits(ask_timeout_s=100.0))
    client = connect(world, "pipe", "pipe")
    assert client.pipe is not None
    world.say(child_of(world), request('"q"', "elicitation/create", "{}"))
    number = world.said(client.pipe)["id"]
    world.wait(99)
    assert not world.heard
    world.wait(1.1)
    refusal = world.hear("").frame
    assert refusal["id"] == "q"
    assert refusal["error"] == {"code": -31008, "message": "the client did not answer within 100 s"}
    told = json.loads(world.messages(client.pipe)[-1])
    assert told["method"] == "notifications/cancelled"
    assert told["params"] == {"requestId": number, "reason": "the client did not answer within 100 s"}
    client.say(result(str(number)))
    assert not world.heard, "too late"


def test_progress_of_the_client_starts_the_wait_for_its_answer_anew() -> None:
    world = driver(limits=Limits(ask_timeout_s=100.0))
    client = connect(world, "pipe", "pipe")
    assert client.pipe is not None
    world.say(child_of(world), request('"q"', "sampling/createMessage", '{"_meta":{"progressToken":"t"}}'))
    world.wait(90)
    token = world.said(client.pipe)["params"]["_meta"]["progressToken"]
    client.notify("notifications/progress", f'{{"progressToken":{token},"progress":1}}')
    assert world.hear("notifications/progress").frame["params"]["progressToken"] == "t"
    world.wait(90)
    assert not world.heard
    world.wait(11)
    assert world.hears("")


def test_progress_on_a_question_that_waits_is_a_guess_too() -> None:
    world = driver(limits=Limits(held_timeout_s=30.0))
    client = connect(world, "http", "pipe")
    world.say(child_of(world), request('"q"', "sampling/createMessage", '{"_meta":{"progressToken":"t"}}'))
    client.notify("notifications/progress", '{"progressToken":1,"progress":1}')
    assert not world.heard
    world.wait(31)
    assert world.hear("").frame["error"]["code"] == -32603


def test_a_question_without_an_answer_keeps_no_session_alive() -> None:
    world = driver(limits=Limits(session_idle_ttl_s=60.0))
    client = connect(world, "http", "pipe")
    stream = client.listen()
    world.say(child_of(world), request('"q"', "elicitation/create", "{}"))
    world.end(stream, GONE)
    world.wait(61)
    assert world.engine.session_count == 0
    assert child_of(world) in world.closed


def test_a_broken_answer_on_a_pipe_is_told_to_who_asked_and_never_taken_for_a_request() -> None:
    """The client's own request with that id gets one answer: its own."""
    world = driver()
    client = connect(world, "pipe", "pipe")
    assert client.pipe is not None
    client.request("1", "tools/call", "{}")
    call = world.hear("tools/call")
    world.say(call.channel, request('"q"', "elicitation/create", "{}"))
    client.say(b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}')
    told = world.hear("").frame
    assert told["id"] == "q"
    assert told["error"]["message"].startswith("the client's answer could not be read: got both result and error")
    assert (told["error"]["code"], set(told["error"])) == (-32603, {"code", "message"})
    world.answer(call)
    assert [frame["id"] for frame in world.frames(client.pipe) if "method" not in frame] == [1]


# --- Sessions that are over, or not yet there -----------------------------------------------------------------------


def test_a_reply_that_outlives_its_session_is_not_listened_to() -> None:
    world = driver()
    client = connect(world, "http", "http")
    client.notify("vendor/notice")
    notice = world.hear("vendor/notice")
    world.open(notice.channel, Connected())
    client.delete()
    dials = len(world.dials)
    for message in (request("0", "ping"), request('"q"', "roots/list"), notification("x"), b"garbage"):
        world.say(notice.channel, message)
    assert len(world.dials) == dials
    world.wait(Limits().cancel_grace_s)
    assert notice.channel in world.closed


def test_a_forgotten_session_is_not_answered_while_there_is_none() -> None:
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/call", "{}")
    call = world.hear("tools/call")
    world.open(call.channel, Connected())
    client.notify("vendor/notice")
    world.end(world.hear("vendor/notice").channel, Cause(End.REFUSED, status=404))
    world.say(call.channel, request("0", "ping"))
    world.say(call.channel, request('"q"', "elicitation/create", "{}"))
    assert not world.heard
    assert not world.sent[channel]


@pytest.mark.parametrize("stage", ["opening", "answered"])
def test_a_handshake_whose_client_has_gone_is_let_go(stage: str) -> None:
    """Nobody knows the id of its session. A client that was in a hurry tries again, and again."""
    world = driver()
    channel = newcomer(world, "http", "pipe").initialize()
    if stage == "answered":
        world.open(child_of(world), Connected())
        world.answer(world.hear("initialize"), HANDSHAKE)
    world.end(channel, GONE)
    assert world.engine.session_count == 0
    assert child_of(world) in world.closed


def test_a_client_that_hangs_up_after_its_handshake_keeps_its_session() -> None:
    world = driver()
    client = newcomer(world, "http", "pipe")
    channel = client.initialize()
    world.shake_hands()
    client.session = world.sent[channel][-1].session
    world.end(channel, DONE)
    assert world.engine.session_count == 1
    client.notify("notifications/initialized")
    client.request("1", "tools/list")
    assert world.hears("tools/list")


def test_requests_before_the_handshake_wait_for_it_and_are_asked_of_the_server() -> None:
    """What the server has is not known yet, so nothing is made up."""
    world = driver(FILES)
    client = newcomer(world, "pipe", "f")
    assert client.pipe is not None
    client.initialize()
    client.request("1", "tools/list")
    client.request("2", "resources/read", '{"uri":"file:///x"}')
    assert not world.sent[client.pipe]
    world.shake_hands()
    world.answer(world.hear("tools/list"), '{"tools":[{"name":"eat","inputSchema":{}}]}')
    assert [tool["name"] for tool in list(world.frames(client.pipe))[-1]["result"]["tools"]] == [HELPER, "eat"]
    assert world.hears("resources/read")


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_notifications_wait_for_the_upstream_in_order_with_requests(up: str) -> None:
    world = driver(limits=Limits(notices_waiting_max=2))
    client = newcomer(world, "http", up)
    channel = client.initialize()
    spawned = up == "pipe"
    if spawned:
        world.open(world.dials[-1].channel, Connected())
    hello = world.hear("initialize")
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
    assert [heard.frame["method"] for heard in world.heard] == ["notifications/initialized"]
    assert any("c dropped: too many wait" in note for note in world.notes("warning"))
    world.acknowledge(world.hear("notifications/initialized"))
    world.end(world.last_dial(Listen).channel, NO_STREAM)
    assert [heard.frame["method"] for heard in world.heard] == ["a", "tools/list", "b"]


@pytest.mark.parametrize("params", ['{"cursor":"a","cursor":"b"}', '{"\\u0063ursor":1,"cursor":2}'])
@pytest.mark.parametrize("capabilities", ["{}", '{"tools":{}}'])
def test_a_list_request_with_a_member_twice_is_refused(params: str, capabilities: str) -> None:
    """By what the client did wrong, whatever the server has; and the server is not asked."""
    world = driver(FILES)
    client = connect(world, "http", "f", capabilities=capabilities)
    channel = client.request("1", "tools/list", params)
    assert error_of(world, channel)["code"] in (-32600, -32602)
    assert "twice" in error_of(world, channel)["message"]
    assert not world.heard


# --- Servers that answer oddly --------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 404, 405, 501])
def test_a_server_that_refuses_every_event_stream_can_be_used(status: int) -> None:
    """405 it should be; 404 is what routers say that know POST only."""
    world = driver()
    client = newcomer(world, "http", "http")
    channel = client.initialize()
    world.answer(world.hear("initialize"), HANDSHAKE, session="S1")
    world.acknowledge(world.hear("notifications/initialized"))
    world.end(world.last_dial(Listen).channel, Cause(End.REFUSED, status=status))
    client.session = world.sent[channel][-1].session
    listing = client.request("1", "tools/list")
    world.answer(world.hear("tools/list"))
    assert world.messages(listing) == [result("1")]


SAID = ["could not commit the database session", "Unknown tool: start_session", "session expired for user bob"]


@pytest.mark.parametrize("said", SAID)
def test_a_400_that_speaks_of_some_session_is_an_ordinary_refusal(said: str) -> None:
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/call", "{}")
    body = error("null", json.dumps({"code": -32603, "message": said}))
    world.end(world.hear("tools/call").channel, Cause(End.REFUSED, status=400, body=body))
    assert error_of(world, channel)["message"] == said
    assert not world.heard


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
    """Of a request, of a notification and of a stream alike; and what is settled stays settled."""
    world = driver()
    client = connect(world, "http", "http", listens=True)
    refusal = Cause(End.REFUSED, status=status, body=body)
    channel = client.request("1", "tools/call", "{}")
    client.notify("vendor/notice")
    call, notice = world.hear("tools/call"), world.hear("vendor/notice")
    world.end(call.channel, refusal)
    world.end(notice.channel, refusal)
    world.end(world.last_dial(Listen).channel, refusal)
    client.delete()
    world.wait(10_000)
    assert len(world.messages(channel)) == 1


@pytest.mark.parametrize("id", ["null", '"server-error"', "{id}"])
def test_a_400_that_denies_our_session_is_a_forgotten_session(id: str) -> None:
    """Unless it is said of the request itself: then a tool may have said it."""
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/call", "{}")
    call = world.hear("tools/call")
    text = '{"code":-32000,"message":"Bad Request: No valid session ID provided"}'
    body = error(id.format(id=call.id), text)
    world.end(call.channel, Cause(End.REFUSED, status=400, body=body))
    assert world.hears("initialize") == (id != "{id}")
    assert bool(world.sent[channel]) == (id == "{id}")


def test_a_confirmation_that_is_answered_with_an_open_stream_is_confirmed() -> None:
    world = driver()
    client = newcomer(world, "http", "http")
    channel = client.initialize()
    world.answer(world.hear("initialize"), HANDSHAKE, session="S1")
    confirmation = world.hear("notifications/initialized")
    world.open(confirmation.channel, Connected())
    world.end(world.last_dial(Listen).channel, NO_STREAM)
    client.session = world.sent[channel][-1].session
    client.request("1", "tools/list")
    assert world.hears("tools/list")
    world.wait(Limits().cancel_grace_s)
    assert confirmation.channel in world.closed


def test_an_unreadable_answer_to_the_handshake_fails_it_at_once() -> None:
    world = driver()
    channel = newcomer(world, "http", "pipe").initialize()
    world.open(child_of(world), Connected())
    number = world.hear("initialize").id
    world.say(child_of(world), b'{"jsonrpc":"2.0","id":%d,"result":{"serverInfo":"caf\xe9"}}' % number)
    assert "could not be read" in error_of(world, channel)["message"]


def test_a_server_that_writes_every_member_is_understood() -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    channel = client.request("1", "tools/list")
    call = world.hear("tools/list")
    parts = b'"method":null,"params":null,"result":{"tools":[]},"error":null'
    world.say(call.channel, b'{"jsonrpc":"2.0","id":%d,%b}' % (call.id, parts))
    assert world.messages(channel) == [result("1", '{"tools":[]}')]


def test_a_reply_that_breaks_after_its_answer_is_no_loss() -> None:
    world = driver()
    client = connect(world, "http", "http")
    client.request("1", "tools/list")
    call = world.hear("tools/list")
    world.open(call.channel, Connected())
    world.say(call.channel, result(str(call.id)))
    world.end(call.channel, Cause(End.BROKEN))
    assert world.notes("warning") == []


def test_a_request_that_may_have_run_before_a_failing_restart_is_not_said_not_to_have() -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    channel = client.request("1", "tools/list")
    world.hear("tools/list")
    world.end(child_of(world), Cause(End.BROKEN))
    world.end(child_of(world), Cause(End.UNREACHABLE, unsent=True))
    assert error_of(world, channel)["code"] == -31001
    assert error_of(world, channel)["data"]["outcome"] == "unknown"


def test_a_server_that_forgets_whatever_it_is_told_is_not_asked_all_the_time() -> None:
    """A subscription wants it back; nobody waits for anything."""
    world = driver(limits=Limits(restart_backoff_s=1.0))
    client = connect(world, "http", "http", capabilities='{"resources":{"subscribe":true}}', listens=True)
    client.request("1", "resources/subscribe", '{"uri":"file:///a"}')
    world.answer(world.hear("resources/subscribe"))
    for number in range(20):
        if (stream := world.last_dial(Listen).channel) not in world.over:
            world.say(stream, request(str(number), "ping"))
            world.end(world.hear("").channel, Cause(End.REFUSED, status=404))
        if world.hears("initialize"):
            world.shake_hands(session=f"S{number}", listens=True)
            world.answer(world.hear("resources/subscribe"))
        else:
            world.wait(0.1)
    handshakes = sum(isinstance(d.target, Post) and b'"initialize"' in d.target.message for d in world.dials)
    assert handshakes < 6


@pytest.mark.parametrize("text", ["[]", '{"protocolVersion":"2025-11-25","protocolVersion":"x"}'])
def test_a_session_that_cannot_be_used_is_ended(text: str) -> None:
    world = driver()
    newcomer(world, "http", "http").initialize()
    world.answer(world.hear("initialize"), text, session="S9")
    assert [dial.target.session for dial in world.dials if isinstance(dial.target, Delete)] == ["S9"]


def test_noise_is_noted_ever_more_rarely_and_never_shows_payload() -> None:
    world = driver()
    connect(world, "http", "pipe")
    for _ in range(1000):
        world.say(child_of(world), b"DEBUG loading")
    world.say(child_of(world), b'{"result":"hunter2"}')
    notes = world.notes("warning")
    assert len(notes) < 20
    assert "it begins 'DEBUG loading'" in notes[0]
    assert "(512 times by now)" in notes[-1]
    world.say(child_of(world), b'{"params":"hunter2","method":"x","jsonrpc":"2.0"}')
    assert not any("hunter2" in note for note in world.notes("warning"))


def test_params_that_cannot_be_read_are_not_noted() -> None:
    world = driver()
    connect(world, "http", "pipe")
    world.say(child_of(world), b'{"jsonrpc":"2.0","method":"x","params":"my password is hunter2"}')
    (note,) = world.notes("warning")
    assert note == "server sent what is no message: got params that are a string, expected an object"


def test_a_server_that_dies_again_and_again_is_left_alone_for_a_while() -> None:
    """It starts well, and is wanted back at once because of a subscription."""
    world = driver(limits=Limits(restart_backoff_s=1.0, restart_backoff_max_s=30.0))
    client = connect(world, "http", "pipe", capabilities='{"resources":{"subscribe":true}}')
    client.request("1", "resources/subscribe", '{"uri":"file:///a"}')
    world.answer(world.hear("resources/subscribe"))
    world.end(child_of(world), Cause(End.BROKEN))
    began = len(world.dials)
    for _ in range(300):
        if child_of(world) in world.over:
            world.wait(1)
            continue
        world.open(child_of(world), Connected())
        world.answer(world.hear("initialize"), HANDSHAKE)
        world.hear("notifications/initialized")
        world.answer(world.hear("resources/subscribe"))
        world.end(child_of(world), Cause(End.BROKEN))
    assert 5 < len(world.dials) - began < 20


def test_a_server_that_has_answered_since_is_restarted_at_once() -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    for number in range(5):
        channel = client.request(str(number), "tools/call", "{}")
        if number:
            world.shake_hands()
        world.answer(world.hear("tools/call"))
        assert world.messages(channel) == [result(str(number))]
        world.end(child_of(world), Cause(End.BROKEN))


def test_what_follows_its_own_end_within_a_batch_is_dropped() -> None:
    """A server that refuses to initialize has said its last word, also when it goes on."""
    world = driver()
    channel = newcomer(world, "http", "pipe").initialize()
    world.open(child_of(world), Connected())
    number = world.hear("initialize").id
    refusal = error(str(number), '{"code":1,"message":"no"}')
    world.say(child_of(world), b"[" + refusal + b"," + request("5", "ping") + b"," + b'{"method":7}' + b"]")
    assert error_of(world, channel) == {"code": 1, "message": "no"}
    assert not world.heard


# --- Floods ---------------------------------------------------------------------------------------------------------


def test_a_reply_that_stays_open_after_its_answer_is_ended() -> None:
    world = driver()
    client = connect(world, "http", "http")
    for number in range(50):
        channel = client.request(str(number), "tools/call", "{}")
        call = world.hear("tools/call")
        world.open(call.channel, Connected())
        world.say(call.channel, result(str(call.id)))
        assert world.messages(channel) == [result(str(number))]
    assert posts(world) == 50
    world.wait(Limits().cancel_grace_s)
    assert posts(world) == 0


def test_a_notification_that_nobody_takes_is_given_up() -> None:
    world = driver(limits=Limits(notice_timeout_s=60.0))
    client = connect(world, "http", "http")
    client.notify("vendor/notice")
    world.wait(61)
    assert posts(world) == 0


def test_notices_open_high_pauses_who_sends_them_until_some_have_arrived() -> None:
    world = driver(limits=Limits(notices_open_high=3))
    client = connect(world, "pipe", "http")
    assert client.pipe is not None
    for _ in range(3):
        client.notify("vendor/notice")
    assert Pause(channel=client.pipe) not in world.log
    client.notify("vendor/notice")
    assert Pause(channel=client.pipe) in world.log
    for heard in list(world.heard):
        world.acknowledge(heard)
    assert Resume(channel=client.pipe) in world.log


def test_notices_open_max_drops_what_cannot_be_paused() -> None:
    world = driver(limits=Limits(notices_open_max=5, notices_open_high=3))
    client = connect(world, "http", "http")
    for _ in range(9):
        client.notify("vendor/notice")
    assert posts(world) == 5
    assert any("5 notifications and answers are on their way: one more dropped" in n for n in world.notes("warning"))


def test_pings_of_a_server_are_answered_within_bounds() -> None:
    world = driver(limits=Limits(notices_open_max=8, notices_open_high=4))
    client = connect(world, "http", "http", listens=True)
    assert client.session
    stream = world.last_dial(Listen).channel
    for number in range(100):
        world.say(stream, request(str(number), "ping"))
    assert posts(world) == 8
    assert Pause(channel=stream) in world.log


def test_a_client_over_http_is_refused_while_the_server_takes_nothing() -> None:
    world = driver(limits=Limits(outbox_max_bytes=2000, outbox_high_bytes=1000, outbox_low_bytes=10))
    client = connect(world, "http", "pipe")
    while not world.sent[channel := client.post(notification("x", '{"a":"' + "y" * 300 + '"}'))]:
        assert world.closed[channel].status == 202
    assert world.sent[channel][0].status == 503
    assert error_of(world, channel)["code"] == -31007
    assert world.said(client.post(request("4", "ping")))["result"] == {}
    refused = client.post(request("5", "tools/list"))
    assert (world.sent[refused][0].status, world.said(refused)["id"]) == (503, 5)
    sent = sum(len(message) for message in world.messages(child_of(world)))
    world.engine.receive_sent(child_of(world), sent, world.now)
    client.post(request("5", "tools/list"))
    assert world.hears("tools/list")


def test_a_client_that_takes_no_answers_is_not_listened_to() -> None:
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
        world.say(child_of(world), notification("notifications/message", json.dumps({"n": number, "x": "y" * 2000})))
    kept = [frame["params"]["n"] for frame in world.frames(client.listen())]
    assert kept == [46, 47, 48, 49], "the newest"


def test_one_held_message_may_be_as_large_as_it_is() -> None:
    world = driver(limits=Limits(held_per_session_max_bytes=1000))
    client = connect(world, "http", "pipe")
    world.say(child_of(world), notification("notifications/message", '{"x":"' + "y" * 5000 + '"}'))
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
        world.answer(world.hear("resources/subscribe"))
    assert any("is not set again if the server is lost" in note for note in world.notes("warning"))


# --- Files ----------------------------------------------------------------------------------------------------------


def make(world: Driver, client: Client) -> tuple[ChannelId, Collect]:
    """A call whose result names a file, up to where that is to be taken in."""
    channel = client.request("1", "tools/call", '{"name":"make","arguments":{}}')
    world.answer(world.hear("tools/call"), '{"content":[{"type":"text","text":"wrote /w/a.txt"}]}')
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
    assert "did not answer within 10 s" in str(world.said(channel))
    file = CollectedFile(path="/w/a.txt", filename="a.txt", size_bytes=60, sha256="0" * 64)
    assert world.store(order.ticket, Collected(files=(file,))) == [Discard(blob=order.blobs[0])]
    assert world.store(order.ticket, Collected(files=(file,))) == []


def test_a_slow_upload_outlives_its_link_whoever_asks_for_others() -> None:
    world = driver(FILES)
    slow, other = connect(world, "http", "f"), connect(world, "http", "f")
    channel = send_in(world, UploadOpening(server="f", query=ask_link(slow, HELPER)))
    world.wait(Limits().upload_link_ttl_s + 10)
    ask_link(other, HELPER)
    for save in world.say(channel, manifest(("a.txt", 5))):
        assert isinstance(save, Save)
        world.store(save.ticket, Saved())
    assert world.said(channel)["count"] == 1


def test_a_foreign_session_does_not_keep_an_upload_alive() -> None:
    world = driver(FILES, limits=Limits(upload_ttl_s=100.0))
    owner, other = connect(world, "http", "f"), connect(world, "http", "f")
    (handle,) = upload(owner, HELPER, ("a.txt", 5))
    arguments = json.dumps({"name": "eat", "arguments": {"path": handle}})
    world.wait(90)
    assert "Unknown upload handle" in str(world.said(other.request("1", "tools/call", arguments)))
    world.wait(20)
    assert "Unknown upload handle" in str(world.said(owner.request("1", "tools/call", arguments)))


def test_artifacts_of_earlier_runs_count_and_expire() -> None:
    """The room they take is not given away a second time, and their deadlines are kept."""
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


@pytest.mark.parametrize("key", [b"", b"x" * 15])
def test_an_engine_that_signs_links_wants_a_key(key: bytes) -> None:
    with pytest.raises(LocalProtocolError, match="expected at least 16 secret bytes"):
        Engine(Plan(servers=(FILES,), link_key=key), entropy=bytes, unix_at_zero=0.0)
    Engine(Plan(servers=(ServerPlan(id="p", kind=Kind.PIPE),), link_key=key), entropy=bytes, unix_at_zero=0.0)


def test_tools_whose_file_is_optional_can_be_called_while_uploads_are_switched_off() -> None:
    world = driver(FILES, uploads_enabled=False)
    client = connect(world, "http", "f")
    client.request("1", "tools/call", '{"name":"eat","arguments":{"other":1}}')
    assert world.hears("tools/call")


def test_uploads_that_are_switched_off_are_said_to_be() -> None:
    world = driver(FILES, uploads_enabled=False)
    client = connect(world, "http", "f")
    said = world.said(client.request("1", "tools/call", '{"name":"eat","arguments":{"path":"/etc/hostname"}}'))
    assert said["result"]["isError"]
    assert "uploads are switched off here" in said["result"]["content"][0]["text"]
    assert HELPER not in str(said)
    assert not world.heard


def test_every_dial_is_to_a_server_of_the_plan() -> None:
    """A check of this file's own helpers: nothing above could pass for want of a server."""
    world = driver(FILES)
    connect(world, "http", "f")
    assert isinstance(world.only(Dial).target, Spawn)


def test_a_client_that_was_asked_on_a_stream_that_is_gone_for_good_hears_of_the_end_on_the_next() -> None:
    world = driver(limits=Limits(stream_ttl_s=5.0))
    client = connect(world, "http", "pipe")
    channel = client.request("1", "tools/call")
    call = world.hear("tools/call")
    world.say(child_of(world), request('"q"', "elicitation/create", "{}"))
    number = world.said(channel)["id"]
    world.answer(call)
    world.wait(6.0)
    world.say(child_of(world), notification("notifications/cancelled", '{"requestId":"q","reason":"done"}'))
    told = world.said(client.listen())
    assert told["method"] == "notifications/cancelled"
    assert told["params"] == {"requestId": number, "reason": "done"}


@pytest.mark.parametrize("id_raw", ["1", "7", '"x"', "null"])
def test_a_broken_answer_to_nothing_that_was_asked_is_nothing_to_anybody(id_raw: str) -> None:
    world = driver()
    client = connect(world, "pipe", "pipe")
    assert client.pipe is not None
    client.say(f'{{"jsonrpc":"2.0","id":{id_raw},"result":{{}},"error":{{}}}}'.encode())
    assert not world.heard
    assert not world.messages(client.pipe)
    assert any("got both result and error" in text for text in world.notes("warning"))
    client.request("1", "tools/list")
    assert world.hears("tools/list")
