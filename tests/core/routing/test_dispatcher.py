"""What servers say is read, given to whom it is for, and what nobody can use is noted."""

from __future__ import annotations

import pytest
from driving import Client, Driver, Heard, connect, driver, error, newcomer, notification, request
from isthmus.core.base.effects import Cause, Connected, End, Note, Spawn
from isthmus.core.base.errors import INTERNAL_ERROR, INVALID_REQUEST
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind
from stateless_driving import assert_idle, rise, served
from stateless_server import discovered, fail, modern_plan

UPS = pytest.mark.parametrize("up", ["pipe", "http"])
DIED = Cause(End.BROKEN, "exited with code 1")
FORGOTTEN = Cause(End.REFUSED, status=404)


def child(world: Driver) -> ChannelId:
    return world.last_dial(Spawn).channel


def called(up: str) -> tuple[Driver, Client, ChannelId, Heard]:
    """A call that the server, which is ready, has got; over HTTP its reply has begun."""
    world = driver()
    client = connect(world, "http", up)
    channel = client.request('"mine"', "tools/call", '{"name":"t"}')
    heard = world.hear("tools/call")
    if heard.post is not None:
        world.open(heard.channel, Connected())
    return world, client, channel, heard


def notes(world: Driver, before: int = 0) -> list[Note]:
    return [effect for effect in world.log[before:] if isinstance(effect, Note)]


# --- Noise ----------------------------------------------------------------------------------------------------------


def test_noise_is_noted_eight_times_and_then_more_and_more_rarely() -> None:
    """With how it begins, up to forty characters; what looks like a message may be payload, and is not shown."""
    world, _, _, heard = called("pipe")
    before = len(world.log)
    for _ in range(70):
        world.say(heard.channel, b"  debug: " + b"x" * 50)
    told = notes(world, before)
    assert {(note.level, note.server) for note in told} == {("warning", "pipe")}
    beginning = "; it begins " + repr("  debug: " + "x" * 31)
    texts = [note.text for note in told]
    assert [text.partition(beginning)[2] for text in texts] == [
        *[""] * 8, " (16 times by now)", " (32 times by now)", " (64 times by now)"
    ]  # fmt: skip
    assert all(text.startswith("server sent what is no message: ") and beginning in text for text in texts)


@pytest.mark.parametrize("message", [b'{"secret":1', b' ["secret"', b'\n{"secret"'])
def test_what_looks_like_a_message_is_not_shown(message: bytes) -> None:
    world, _, channel, heard = called("pipe")
    before = len(world.log)
    world.say(heard.channel, message)
    (note,) = notes(world, before)
    assert note.text.startswith("server sent what is no message: ")
    assert "secret" not in note.text
    assert "begins" not in note.text
    world.answer(heard)
    assert "result" in world.said(channel)


def test_what_a_server_wrote_in_place_of_an_answer_is_told_to_who_waits() -> None:
    """The first of it, where it then does not come up."""
    world = driver()
    channel = newcomer(world, "http", "pipe").initialize()
    world.open(child(world), Connected())
    for line in (b"{not json", b"usage: server PATH", b"more of it"):
        world.say(child(world), line)
    world.end(child(world), DIED)
    said = world.said(channel)["error"]["message"]
    assert said.endswith("exited with code 1; it wrote what is no message: 'usage: server PATH'")


@pytest.mark.parametrize("kind", ["handshake", "stateless"])
def test_what_it_wrote_before_it_answered_is_no_reason_of_a_later_end(kind: str) -> None:
    world = driver(modern_plan(Kind.PIPE)) if kind == "stateless" else driver()
    client = newcomer(world, "http", "pipe")
    channel = client.initialize()
    world.open(child(world), Connected())
    world.say(child(world), b"hello")
    if kind == "stateless":
        discovered(world)
    else:
        world.answer(world.hear("initialize"), '{"protocolVersion":"2025-11-25","capabilities":{}}')
    assert "result" in world.said(channel)
    world.say(child(world), b"hello again")
    before = len(world.log)
    world.end(child(world), DIED)
    texts = [note.text for note in notes(world, before)]
    assert len([text for text in texts if text.startswith("upstream lost: ")]) == 1
    assert not [text for text in texts if "it wrote" in text]
    assert any(text.endswith("exited with code 1") for text in texts)


# --- Broken messages ------------------------------------------------------------------------------------------------


@UPS
@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (b'{"jsonrpc":"2.0","id":%d,"result":{"a":"\xff"}}', "got a byte that is not UTF-8"),
        (b'{"jsonrpc":"1.0","id":%d,"result":{}}', 'got jsonrpc "1.0"'),
        (b'{"jsonrpc":"2.0","id":%d,"result":{},"error":{}}', "got both result and error"),
        (b'{"jsonrpc":"2.0","id":%d,"result":{"a":', "got"),
        (b'{"result":{"a":%b,"jsonrpc":"2.0","id":%%d}' % (b"1" * 5000), "got"),
    ],
    ids=["utf8", "version", "both", "cut", "tail"],
)
def test_a_broken_answer_ends_its_request(up: str, broken: bytes, said: str) -> None:
    """With an error that says so, and the server goes on."""
    world, client, channel, heard = called(up)
    world.say(heard.channel, broken.replace(b"%d", b"%d" % heard.id))
    answer = world.said(channel)
    assert answer["id"] == "mine"
    assert answer["error"].keys() == {"code", "message"}
    assert answer["error"]["code"] == INTERNAL_ERROR
    assert answer["error"]["message"].startswith(f"the server's answer could not be read: {said}")
    second = client.request("2", "tools/list")
    world.answer(world.hear("tools/list"), '{"tools":[]}')
    assert "result" in world.said(second)


@UPS
def test_a_broken_question_is_refused_under_its_id(up: str) -> None:
    """And one without an id that can be answered is dropped."""
    world, _, channel, heard = called(up)
    world.say(heard.channel, b'{"jsonrpc":"2.0","id":"q","method":"roots/list","params":7}')
    refused = world.hear("").frame
    assert (refused["id"], refused["error"]["code"]) == ("q", INVALID_REQUEST)
    assert refused["error"]["message"] == "got params that are a number, expected an object"
    world.say(heard.channel, b'{"jsonrpc":"2.0","id":1.5,"method":"roots/list"}')
    assert not world.heard
    assert not world.messages(channel)


def test_a_broken_question_of_a_server_without_sessions_is_not_answered() -> None:
    """Such a one asks nothing."""
    world = driver(modern_plan(Kind.PIPE))
    client = newcomer(world, "http", "pipe")
    client.initialize()
    discovered(world)
    before = len(world.log)
    world.say(child(world), b'{"jsonrpc":"2.0","id":"q","method":"roots/list","params":7}')
    world.say(child(world), request('"q"', "roots/list"))
    assert not world.heard
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
def test_an_error_without_a_number_is_that_of_the_post_it_came_on(message: bytes, is_answered: bool) -> None:
    """On a pipe there is none. An answer under a number that is none of ours is nobody's."""
    for up in ("http", "pipe"):
        world, _, channel, heard = called(up)
        world.say(heard.channel, message)
        if is_answered and up == "http":
            assert world.said(channel)["error"] == {"code": -1, "message": "no"}
            assert world.said(channel)["id"] == "mine"
        else:
            assert not world.messages(channel)
        if b"987654" in message:
            assert notes(world)[-1] == Note("debug", "server answered what nobody waits for: dropped", up)


@UPS
@pytest.mark.parametrize("spelling", [b"%d", b'"%d"', b"%d.0"])
def test_a_number_is_known_again_however_it_is_spelt(up: str, spelling: bytes) -> None:
    world, _, channel, heard = called(up)
    world.say(heard.channel, b'{"jsonrpc":"2.0","id":%b,"result":{"x":1}}' % (spelling % heard.id))
    assert world.said(channel) == {"jsonrpc": "2.0", "id": "mine", "result": {"x": 1}}


# --- Batches --------------------------------------------------------------------------------------------------------


@UPS
def test_each_part_of_a_batch_is_read_by_itself(up: str) -> None:
    """One that is broken hides none; a batch that cannot be split is noise."""
    world, _, channel, heard = called(up)
    world.say(heard.channel, b"[7,%b]" % request('"q"', "ping"))
    assert world.hear("").frame == {"jsonrpc": "2.0", "id": "q", "result": {}}
    before = len(world.log)
    world.say(heard.channel, b"[7,")
    assert len(notes(world, before)) == 1
    world.say(heard.channel, b'[8,{"jsonrpc":"2.0","id":%d,"result":{}}]' % heard.id)
    assert world.said(channel)["result"] == {}


# --- What cannot be used --------------------------------------------------------------------------------------------


def test_a_question_of_a_session_that_is_lost_is_noted_and_dropped() -> None:
    world, client, channel, heard = called("http")
    client.request("2", "tools/list")
    world.end(world.hear("tools/list").channel, FORGOTTEN)
    before = len(world.log)
    world.say(heard.channel, request('"q"', "roots/list"))
    told = [note for note in notes(world, before) if note.level == "debug"]
    assert told == [Note("debug", "roots/list dropped: its session is lost, so is its answer", "http")]
    assert not world.messages(channel)


def test_a_broken_notification_of_a_server_without_sessions_is_noted() -> None:
    world = driver(modern_plan(Kind.PIPE))
    newcomer(world, "http", "pipe").initialize()
    discovered(world)
    before = len(world.log)
    method = "notifications/subscriptions/acknowledged"
    world.say(child(world), notification(method, '{"_meta":{"a":1,"a":2}}'))
    (note,) = notes(world, before)
    assert (note.level, note.server) == ("warning", "pipe")
    assert note.text.startswith(f"server sent a broken {method}: ")


# --- Requests of ours -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_done", [False, True])
def test_what_a_server_says_of_a_level_decides_whether_it_is_set_again(is_done: bool) -> None:
    """A call that wanted it goes up either way; a server that comes back is told again of what it took."""
    world, client, _ = served()
    channel = client.call(level="debug")
    heard = world.hear("logging/setLevel")
    if is_done:
        world.answer(heard)
    else:
        world.reply(heard, error(str(heard.id), '{"code":-32601,"message":"no"}'))
    world.answer(world.hear("tools/call"), '{"content":[]}')
    assert "result" in client.answered(channel)
    world.end(child(world), DIED)
    client.request("tools/list")
    rise(world)
    assert world.hears("logging/setLevel") is is_done


@pytest.mark.parametrize("is_done", [False, True])
def test_what_a_server_says_of_a_subscription_decides_whether_it_is_confirmed(is_done: bool) -> None:
    world, client, _ = served()
    channel = client.request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:b"]})
    heard = world.hear("resources/subscribe")
    if is_done:
        world.answer(heard)
    else:
        world.reply(heard, error(str(heard.id), '{"code":-32602,"message":"no"}'))
    (told,) = client.told(channel)
    assert told["params"]["notifications"] == ({"resourceSubscriptions": ["a:b"]} if is_done else {})


def test_a_subscription_that_is_refused_as_it_always_will_be_is_not_asked_for_again() -> None:
    """Another error may pass."""
    for code, is_asked in ((-32601, False), (-32602, False), (-32600, False), (-32603, True), (-32000, True)):
        world = driver(modern_plan(Kind.PIPE))
        newcomer(world, "http", "pipe").initialize()
        listen = discovered(world, '{"tools":{"listChanged":true}}', grants=False)
        assert listen is not None
        fail(world, listen, code)
        world.wait(100)
        assert world.hears("subscriptions/listen") is is_asked, code


def test_too_many_settings_are_noted_and_not_set_again() -> None:
    world = driver(limits=Limits(subscriptions_per_session_max=1))
    client = connect(world, "http", "pipe")
    for number in range(2):
        channel = client.request(str(number), "resources/subscribe", f'{{"uri":"a:{number}"}}')
        if world.hears("resources/subscribe"):
            world.answer(world.hear("resources/subscribe"))
        assert world.messages(channel)
    text = "resources/subscribe is not set again if the server is lost: too many are remembered"
    assert [note for note in notes(world) if "set again" in note.text] == [Note("warning", text, "pipe")]


def test_an_answer_proves_that_a_process_stands() -> None:
    """Failures before it are none in a row with those after it."""
    world = driver(limits=Limits(crash_loop_failures=2, restart_backoff_s=1.0))
    for number in range(4):
        client = connect(world, "http", "pipe")
        client.request(f"{number}", "tools/list")
        if number % 2:
            world.answer(world.hear("tools/list"))
        else:
            world.heard.clear()
        world.end(child(world), DIED)
    newcomer(world, "http", "pipe").initialize()
    assert child(world) not in world.over


@UPS
def test_a_batch_ends_where_its_channel_does(up: str) -> None:
    """What comes after the answer to the last request of its session is for nobody."""
    world, client, channel, heard = called(up)
    answer = b'{"jsonrpc":"2.0","id":%d,"result":{}}' % heard.id
    world.say(heard.channel, b"[%b,%b,%b]" % (answer, answer, b"7"))
    assert world.said(channel)["result"] == {}
    assert [note.text for note in notes(world) if note.level == "debug"][-1:] in (
        ["server answered what nobody waits for: dropped"],
        [],
    )
    assert client.session is not None


@pytest.mark.parametrize(("gap", "is_found"), [(4096, True), (4097, False)])
def test_so_much_of_the_end_of_a_broken_answer_is_searched_for_its_id(gap: int, is_found: bool) -> None:
    """Where its beginning does not tell."""
    world, _, channel, heard = called("pipe")
    last = b'1,"jsonrpc":"2.0","id":%d' % heard.id
    tail = last + b" " * (gap - len(last) - 1) + b"}"
    world.say(heard.channel, b'{"result":{"a":\xff' + b"x" * 5000 + tail)
    assert bool(world.messages(channel)) is is_found


# --- What an answer settles -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "broken",
    [
        b'{"jsonrpc":"2.0","result":{}}',
        b'{"jsonrpc":"2.0","id":null,"result":{}}',
        b'{"jsonrpc":"2.0","id":"odd","result":{},"error":{}}',
        b'{"result":{"a":1,"jsonrpc":"2.0","id":"odd"}',
    ],
)
def test_a_broken_answer_without_a_number_is_that_of_the_post_it_came_on(broken: bytes) -> None:
    """On a pipe it could be anybody's."""
    for up in ("http", "pipe"):
        world, _, channel, heard = called(up)
        world.say(heard.channel, broken)
        if up == "http":
            assert world.said(channel)["error"]["code"] == INTERNAL_ERROR
            assert "could not be read" in world.said(channel)["error"]["message"]
        else:
            assert not world.messages(channel)


def test_a_broken_answer_to_what_nobody_asked_is_noise_and_no_more() -> None:
    world, _, channel, heard = called("pipe")
    before = len(world.log)
    world.say(heard.channel, b'{"jsonrpc":"1.0","id":987654,"result":{}}')
    (note,) = notes(world, before)
    assert note.level == "warning"
    assert not world.messages(channel)


@UPS
@pytest.mark.parametrize("is_error", [False, True])
def test_after_an_answer_nothing_is_waited_for(up: str, is_error: bool) -> None:
    """And its id may be used again."""
    world, client, _ = served(up, "pipe")
    for turn in range(2):
        channel = client.call(id_raw="7")
        heard = world.hear("tools/call")
        if is_error:
            world.reply(heard, error(str(heard.id), '{"code":-32050,"message":"no"}'))
        else:
            world.answer(heard, '{"content":[]}')
        frames = [frame for frame in world.frames(channel) if frame.get("id") == 7]
        assert len(frames) == turn + 1
        assert ("error" in frames[-1]) is is_error
        assert_idle(world)
