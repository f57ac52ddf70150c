"""Tests of the dispatcher: messages of servers are decoded and delivered, and those that cannot be used are noted."""

from __future__ import annotations

import pytest
from driving import Client, Driver, SentMessage, connect, driver, error, new_client, notification, request
from isthmus.core.base.effects import Note, Spawn
from isthmus.core.base.errors import INTERNAL_ERROR, INVALID_REQUEST
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind
from stateless_driving import assert_idle, served, start_legacy_server
from stateless_server import discovered, fail, modern_plan

UPS = pytest.mark.parametrize("up", ["pipe", "http"])
DIED = Cause(End.BROKEN, "exited with code 1")
FORGOTTEN = Cause(End.REFUSED, status=404)


def child(world: Driver) -> ChannelId:
    return world.last_dial(Spawn).channel


def called(up: str) -> tuple[Driver, Client, ChannelId, SentMessage]:
    """Returns a call that a ready server has received. Over HTTP its response has begun."""
    world = driver()
    client = connect(world, "http", up)
    channel = client.request('"mine"', "tools/call", '{"name":"t"}')
    received = world.take_sent("tools/call")
    if received.post is not None:
        world.open(received.channel, Connected())
    return world, client, channel, received


def notes(world: Driver, before: int = 0) -> list[Note]:
    return [effect for effect in world.log[before:] if isinstance(effect, Note)]


# --- Noise ------------------------------------------------------------------------------------------------------------


def test_noise_is_a_warning_once_a_kind_and_then_noted_more_and_more_rarely() -> None:
    """The note quotes up to forty characters of the beginning. A line that looks like a message may be payload, and is
    not quoted."""
    world, _, _, received = called("pipe")
    before = len(world.log)
    for _ in range(70):
        world.send(received.channel, b"  debug: " + b"x" * 50)
    noise_notes = notes(world, before)
    assert [(note.level, note.server) for note in noise_notes] == [("warning", "pipe"), *[("debug", "pipe")] * 6]
    beginning = "; it begins " + repr("  debug: " + "x" * 31)
    texts = [note.text for note in noise_notes]
    assert [text.partition(beginning)[2] for text in texts] == [
        "", *(f" ({count} times by now)" for count in (2, 4, 8, 16, 32, 64))
    ]  # fmt: skip
    assert all(text.startswith("server sent what is no message: ") and beginning in text for text in texts)
    before = len(world.log)
    for line in (b'{"id":1,"result":7}', b"{", b'{"jsonrpc":"2.0","method":7}', b'{"jsonrpc":"2.0","method":8}'):
        world.send(received.channel, line)
    assert [note.level for note in notes(world, before)] == ["warning", "debug", "warning", "debug"]
    assert world.engine.report()[0].noise == 74


@pytest.mark.parametrize("message", [b'{"secret":1', b' ["secret"', b'\n{"secret"'])
def test_a_line_that_looks_like_a_message_is_not_quoted(message: bytes) -> None:
    world, _, channel, received = called("pipe")
    before = len(world.log)
    world.send(received.channel, message)
    (note,) = notes(world, before)
    assert note.text.startswith("server sent what is no message: ")
    assert "secret" not in note.text
    assert "begins" not in note.text
    world.answer(received)
    assert "result" in world.only_message(channel)


def test_the_error_of_a_failed_start_quotes_the_output() -> None:
    """The error of a failed start quotes the first line that is no message."""
    world = driver()
    channel = new_client(world, "http", "pipe").initialize()
    world.open(child(world), Connected())
    for line in (b"{not json", b"usage: server PATH", b"more of it"):
        world.send(child(world), line)
    world.end(child(world), DIED)
    text = world.only_message(channel)["error"]["message"]
    assert text.endswith("exited with code 1; it wrote what is no message: 'usage: server PATH'")


@pytest.mark.parametrize("kind", ["handshake", "stateless"])
def test_output_before_the_first_answer_is_not_quoted_for_a_later_end(kind: str) -> None:
    world = driver(modern_plan(Kind.PIPE)) if kind == "stateless" else driver()
    client = new_client(world, "http", "pipe")
    channel = client.initialize()
    world.open(child(world), Connected())
    world.send(child(world), b"hello")
    if kind == "stateless":
        discovered(world)
    else:
        world.answer(world.take_sent("initialize"), '{"protocolVersion":"2025-11-25","capabilities":{}}')
    assert "result" in world.only_message(channel)
    world.send(child(world), b"hello again")
    before = len(world.log)
    world.end(child(world), DIED)
    texts = [note.text for note in notes(world, before)]
    assert len([text for text in texts if text.startswith("upstream lost: ")]) == 1
    assert not [text for text in texts if "it wrote" in text]
    assert any(text.endswith("exited with code 1") for text in texts)


# --- Broken messages --------------------------------------------------------------------------------------------------


@UPS
@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (b'{"jsonrpc":"2.0","id":%d,"result":{"a":"\xff"}}', "got a byte that is not UTF-8"),
        (b'{"jsonrpc":"2.0","id":%d,"result":{},"error":{}}', "got both result and error"),
        (b'{"jsonrpc":"2.0","id":%%d,"result":%b}' % (b"[" * 50_000 + b"]" * 50_000), "got JSON nested too deeply"),
        (b'{"result":%b,"jsonrpc":"2.0","id":%%d}' % (b"[" * 50_000 + b"]" * 50_000), "got JSON nested too deeply"),
    ],
    ids=["utf8", "both", "deep", "tail"],
)
def test_a_broken_answer_ends_its_request(up: str, broken: bytes, reason: str) -> None:
    """The client gets an error that says so, and the server goes on."""
    world, client, channel, received = called(up)
    world.send(received.channel, broken.replace(b"%d", b"%d" % received.id))
    answer = world.only_message(channel)
    assert answer["id"] == "mine"
    assert answer["error"].keys() == {"code", "message"}
    assert answer["error"]["code"] == INTERNAL_ERROR
    assert answer["error"]["message"].startswith(f"the server's answer could not be read: {reason}")
    second = client.request("2", "tools/list")
    world.answer(world.take_sent("tools/list"), '{"tools":[]}')
    assert "result" in world.only_message(second)


@UPS
def test_a_broken_question_is_refused_under_its_id(up: str) -> None:
    """A question without a usable id is dropped."""
    world, _, channel, received = called(up)
    world.send(received.channel, b'{"jsonrpc":"2.0","id":"q","method":"roots/list","params":7}')
    refused = world.take_sent("").frame
    assert (refused["id"], refused["error"]["code"]) == ("q", INVALID_REQUEST)
    assert refused["error"]["message"] == "got params that are a number, expected an object"
    world.send(received.channel, b'{"jsonrpc":"2.0","id":1.5,"method":"roots/list"}')
    assert not world.unread
    assert not world.messages(channel)


def test_a_broken_question_of_a_server_without_sessions_is_not_answered() -> None:
    """A server without sessions may not send requests at all."""
    world = driver(modern_plan(Kind.PIPE))
    client = new_client(world, "http", "pipe")
    client.initialize()
    discovered(world)
    before = len(world.log)
    world.send(child(world), b'{"jsonrpc":"2.0","id":"q","method":"roots/list","params":7}')
    world.send(child(world), request('"q"', "roots/list"))
    assert not world.unread
    texts = [(note.level, note.text) for note in notes(world, before)]
    assert texts[1:] == [("warning", "roots/list dropped: a server without sessions asks nothing")]


@pytest.mark.parametrize(
    ("message", "is_answered"),
    [
        (b'{"jsonrpc":"2.0","error":{"code":-1,"message":"no"}}', True),
        (b'{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no"}}', True),
        (b'{"jsonrpc":"2.0","id":"odd","error":{"code":-1,"message":"no"}}', True),
        (b'{"jsonrpc":"2.0","id":"odd","result":{}}', False),
        (b'{"jsonrpc":"2.0","id":987654,"error":{"code":-1,"message":"no"}}', False),
        (b'{"jsonrpc":"2.0","id":987654,"result":{}}', False),
    ],
)
def test_an_error_without_an_id_answers_the_post_it_came_on(message: bytes, is_answered: bool) -> None:
    """An error on a pipe came on no POST, and is dropped. So is an answer with an id that no request of ours has."""
    for up in ("http", "pipe"):
        world, _, channel, received = called(up)
        world.send(received.channel, message)
        if is_answered and up == "http":
            assert world.only_message(channel)["error"] == {"code": -1, "message": "no"}
            assert world.only_message(channel)["id"] == "mine"
        else:
            assert not world.messages(channel)
        if b"987654" in message:
            assert notes(world)[-1] == Note("debug", "server answered what nobody waits for: dropped", up)


@UPS
@pytest.mark.parametrize("spelling", [b"%d", b'"%d"', b"%d.0"])
def test_an_id_is_recognized_in_every_spelling(up: str, spelling: bytes) -> None:
    world, _, channel, received = called(up)
    world.send(received.channel, b'{"jsonrpc":"2.0","id":%b,"result":{"x":1}}' % (spelling % received.id))
    assert world.only_message(channel) == {"jsonrpc": "2.0", "id": "mine", "result": {"x": 1}}


# --- Batches ----------------------------------------------------------------------------------------------------------


@UPS
def test_each_part_of_a_batch_is_read_by_itself(up: str) -> None:
    """A broken part hides no other. A batch that cannot be split is noise."""
    world, _, channel, received = called(up)
    world.send(received.channel, b"[7,%b]" % request('"q"', "ping"))
    assert world.take_sent("").frame == {"jsonrpc": "2.0", "id": "q", "result": {}}
    before = len(world.log)
    world.send(received.channel, b"[7,")
    assert len(notes(world, before)) == 1
    world.send(received.channel, b'[8,{"jsonrpc":"2.0","id":%d,"result":{}}]' % received.id)
    assert world.only_message(channel)["result"] == {}


# --- What cannot be used ----------------------------------------------------------------------------------------------


def test_a_question_of_a_session_that_is_lost_is_noted_and_dropped() -> None:
    world, client, channel, received = called("http")
    client.request("2", "tools/list")
    world.end(world.take_sent("tools/list").channel, FORGOTTEN)
    before = len(world.log)
    world.send(received.channel, request('"q"', "roots/list"))
    debug_notes = [note for note in notes(world, before) if note.level == "debug"]
    assert debug_notes == [Note("debug", "roots/list dropped: its session is lost, so is its answer", "http")]
    assert not world.messages(channel)


def test_a_broken_notification_of_a_server_without_sessions_is_noted() -> None:
    world = driver(modern_plan(Kind.PIPE))
    new_client(world, "http", "pipe").initialize()
    discovered(world)
    before = len(world.log)
    method = "notifications/subscriptions/acknowledged"
    world.send(child(world), notification(method, '{"_meta":{"a":1,"a":2}}'))
    (note,) = notes(world, before)
    assert (note.level, note.server) == ("warning", "pipe")
    assert note.text.startswith(f"server sent a broken {method}: ")


# --- Own requests -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_done", [False, True])
def test_only_an_accepted_level_is_set_again(is_done: bool) -> None:
    """The call that wanted the level is sent either way. A server that comes back gets only a level that it had
    accepted."""
    world, client, _ = served()
    channel = client.call(level="debug")
    received = world.take_sent("logging/setLevel")
    if is_done:
        world.answer(received)
    else:
        world.reply(received, error(str(received.id), '{"code":-32601,"message":"no"}'))
    world.answer(world.take_sent("tools/call"), '{"content":[]}')
    assert "result" in client.answered(channel)
    world.end(child(world), DIED)
    client.request("tools/list")
    start_legacy_server(world)
    assert world.was_sent("logging/setLevel") is is_done


@pytest.mark.parametrize("is_done", [False, True])
def test_only_an_accepted_subscription_is_confirmed(is_done: bool) -> None:
    world, client, _ = served()
    channel = client.request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:b"]})
    received = world.take_sent("resources/subscribe")
    if is_done:
        world.answer(received)
    else:
        world.reply(received, error(str(received.id), '{"code":-32602,"message":"no"}'))
    (confirmation,) = client.notifications(channel)
    assert confirmation["params"]["notifications"] == ({"resourceSubscriptions": ["a:b"]} if is_done else {})


def test_a_subscription_that_is_refused_for_good_is_not_requested_again() -> None:
    """An error with any other code may be temporary, so the subscription is requested again."""
    for code, is_asked in ((-32601, False), (-32602, False), (-32600, False), (-32603, True), (-32000, True)):
        world = driver(modern_plan(Kind.PIPE))
        new_client(world, "http", "pipe").initialize()
        listen = discovered(world, '{"tools":{"listChanged":true}}', grants=False)
        assert listen is not None
        fail(world, listen, code)
        world.wait(100)
        assert world.was_sent("subscriptions/listen") is is_asked, code


def test_too_many_settings_are_noted_and_not_set_again() -> None:
    world = driver(limits=Limits(subscriptions_per_session_max=1))
    client = connect(world, "http", "pipe")
    for number in range(2):
        channel = client.request(str(number), "resources/subscribe", f'{{"uri":"a:{number}"}}')
        if world.was_sent("resources/subscribe"):
            world.answer(world.take_sent("resources/subscribe"))
        assert world.messages(channel)
    text = "resources/subscribe is not set again if the server is lost: too many are remembered"
    assert [note for note in notes(world) if "set again" in note.text] == [Note("warning", text, "pipe")]


def test_an_answer_proves_that_a_process_works() -> None:
    """Failures before an answer and failures after it do not add up to a crash loop."""
    world = driver(limits=Limits(crash_loop_failures=2, restart_backoff_s=1.0))
    for number in range(4):
        client = connect(world, "http", "pipe")
        client.request(f"{number}", "tools/list")
        if number % 2:
            world.answer(world.take_sent("tools/list"))
        else:
            world.unread.clear()
        world.end(child(world), DIED)
    new_client(world, "http", "pipe").initialize()
    assert child(world) not in world.over


@UPS
def test_a_batch_ends_where_its_channel_does(up: str) -> None:
    """Parts after the answer to the last request of the session are dropped."""
    world, client, channel, received = called(up)
    answer = b'{"jsonrpc":"2.0","id":%d,"result":{}}' % received.id
    world.send(received.channel, b"[%b,%b,%b]" % (answer, answer, b"7"))
    assert world.only_message(channel)["result"] == {}
    assert [note.text for note in notes(world) if note.level == "debug"][-1:] in (
        ["server answered what nobody waits for: dropped"],
        [],
    )
    assert client.session is not None


@pytest.mark.parametrize(("gap", "is_found"), [(4096, True), (4097, False)])
def test_so_much_of_the_end_of_a_deep_answer_is_searched_for_its_id(gap: int, is_found: bool) -> None:
    """The end is searched if the beginning has no id."""
    world, _, channel, received = called("pipe")
    last = b'1,"jsonrpc":"2.0","id":%d' % received.id
    tail = last + b" " * (gap - len(last) - 1) + b"}"
    world.send(received.channel, b'{"result":' + b"[" * 50_000 + b"]" * 50_000 + b',"more":' + tail)
    assert bool(world.messages(channel)) is is_found


# --- What an answer settles -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "broken",
    [
        b'{"jsonrpc":"2.0","result":{}}',
        b'{"jsonrpc":"2.0","id":null,"result":{}}',
        b'{"jsonrpc":"2.0","id":"odd","result":{},"error":{}}',
        b'{"result":%b,"jsonrpc":"2.0","id":"odd"}' % (b"[" * 50_000 + b"]" * 50_000),
    ],
)
def test_a_broken_answer_without_an_id_ends_the_post_it_came_on(broken: bytes) -> None:
    """A broken answer on a pipe could belong to any request, and is dropped."""
    for up in ("http", "pipe"):
        world, _, channel, received = called(up)
        world.send(received.channel, broken)
        if up == "http":
            assert world.only_message(channel)["error"]["code"] == INTERNAL_ERROR
            assert "could not be read" in world.only_message(channel)["error"]["message"]
        else:
            assert not world.messages(channel)


def test_a_broken_answer_to_no_request_is_noise() -> None:
    world, _, channel, received = called("pipe")
    before = len(world.log)
    world.send(received.channel, b'{"jsonrpc":"1.0","id":987654,"result":{}}')
    (note,) = notes(world, before)
    assert note.level == "warning"
    assert not world.messages(channel)


@UPS
@pytest.mark.parametrize("is_error", [False, True])
def test_an_answer_leaves_nothing_pending(up: str, is_error: bool) -> None:
    """The id may be used again."""
    world, client, _ = served(up, "pipe")
    for turn in range(2):
        channel = client.call(id_raw="7")
        received = world.take_sent("tools/call")
        if is_error:
            world.reply(received, error(str(received.id), '{"code":-32050,"message":"no"}'))
        else:
            world.answer(received, '{"content":[]}')
        frames = [frame for frame in world.frames(channel) if frame.get("id") == 7]
        assert len(frames) == turn + 1
        assert ("error" in frames[-1]) is is_error
        assert_idle(world)
