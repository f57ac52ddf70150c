"""Tests of large answers to plain calls: they pass unchanged but for the client's id, in whatever pieces they come."""

from __future__ import annotations

import itertools
import json
import random
from base64 import b64encode
from collections.abc import Iterable

import pytest
from driving import GONE, Driver, SentMessage, connect, driver, new_client, request
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.base.effects import Pass, Pause, Resume
from isthmus.core.base.errors import OVERLOADED, LocalProtocolError
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.jsonrpc import envelope, envelope_edges
from isthmus.core.jsonrpc.envelope_edges import read_front, read_whole
from isthmus.core.trace import Recorder, replay

LARGE = 300_000
BROKEN = Cause(End.BROKEN, "the connection ended within the response")
FORMS = (
    '{"jsonrpc":"2.0","id":%s,"result":%s}',
    '{"jsonrpc": "2.0", "id": %s, "result": %s}',
    '{"id":%s,"jsonrpc":"2.0","result":%s}',
)
FORMS_BEHIND = ('{"result":%s,"jsonrpc":"2.0","id":%s}', '{"result": %s, "id": %s, "jsonrpc": "2.0"}')

RESULTS = st.dictionaries(
    st.text(max_size=3) | st.sampled_from(["id", "jsonrpc", "result"]),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=9)
        | st.sampled_from(['","id":7,"x":"', "}}", "\\"]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)


def cut(message: bytes, at: Iterable[int]) -> tuple[bytes, ...]:
    places = sorted({0, len(message), *(i % len(message) for i in at)})
    return tuple(message[start:stop] for start, stop in itertools.pairwise(places))


def text(size_bytes: int = LARGE) -> str:
    return '{"content":[{"type":"text","text":"%s"}]}' % ("x" * size_bytes)


def written(received: SentMessage, result: str, form: str = FORMS[0]) -> bytes:
    fields = (result, str(received.id)) if form in FORMS_BEHIND else (str(received.id), result)
    return (form % fields).encode()


def called(
    up: str, *, down: str = "http", id_raw: str = '"a"', limits: Limits | None = None
) -> tuple[Driver, ChannelId, SentMessage]:
    world = driver(limits=limits)
    client = connect(world, down, up)
    return world, client.request(id_raw, "tools/call", '{"name":"t"}'), world.take_sent("tools/call")


# --- Edges ------------------------------------------------------------------------------------------------------------


@given(result=RESULTS, form=st.sampled_from([*FORMS, *FORMS_BEHIND]), number=st.integers(0, 10**15 - 1), at=st.data())
def test_the_edges_show_what_the_decoder_finds(result: object, form: str, number: int, at: st.DataObject) -> None:
    """The number and the result that the edges show are those that the decoder finds, or the edges show nothing."""
    payload = json.dumps(result)
    message = (form % ((payload, number) if form in FORMS_BEHIND else (number, payload))).encode()
    pieces = cut(message, at.draw(st.lists(st.integers(0, 10**6), max_size=3)))
    answer = read_whole(pieces)
    if answer is None:
        assert len(pieces) > 1 or not message.endswith(b"}}")
        return
    frame = envelope.decode(message)
    assert (b"%d" % answer.number, b"".join(answer.pieces)) == (frame.id_raw, (frame.result or b"") + b"}")


@pytest.mark.parametrize(
    "message",
    [
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":null}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":null}',
        b'{"jsonrpc":"2.0","id":1.5,"result":{}}',
        b'{"jsonrpc":"2.0","id":"x","result":{}}',
        b'{"jsonrpc":"2.0","id":"1,"result":{}}',
        b'{"jsonrpc":"1.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","result":{}}',
        b'{"result":{"a":{},"jsonrpc":"2.0","id":1}}',
        b'{"result":"}","jsonrpc":"2.0","id":1}',
        b'[{"jsonrpc":"2.0","id":1,"result":{}}]',
        b'{"jsonrpc":"2.0","id":%d,"result":{}}' % 10**16,
    ],
)
def test_a_message_that_is_no_plain_answer_has_no_edges(message: bytes) -> None:
    assert read_whole((message,)) is None


@pytest.mark.parametrize("form", FORMS)
def test_the_edge_shows_the_longest_envelope(form: str) -> None:
    beginning = (form % (10**15 - 1, text())).encode()[: envelope_edges.EDGE_BYTES]
    front = read_front(beginning)
    assert front is not None and front.number == 10**15 - 1
    for size_bytes in range(front.size_bytes):
        assert read_front(beginning[:size_bytes]) is None


# --- Whole ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [*FORMS, *FORMS_BEHIND])
@pytest.mark.parametrize("up", ["pipe", "http"])
def test_a_large_answer_is_not_copied_but_for_its_edges(up: str, form: str) -> None:
    world, channel, received = called(up)
    message = written(received, text(), form)
    pieces = (message[:1000], message[1000:290_000], message[290_000:])
    if up == "http":
        world.open(received.channel, Connected())
    world.send_pieces(received.channel, *pieces)
    order = world.only(Pass)
    assert order.pieces[2] is pieces[1]
    assert world.messages(channel) == [b'{"jsonrpc":"2.0","id":"a","result":' + text().encode() + b"}"]
    assert channel not in world.closed and world.engine.exchange_count == 0


@pytest.mark.parametrize("form", [FORMS[0], FORMS_BEHIND[0]])
def test_one_large_message_is_the_same_as_its_pieces(form: str) -> None:
    world, channel, received = called("pipe")
    world.send(received.channel, written(received, text(), form))
    assert world.every(Pass) and world.only_message(channel) == {
        "jsonrpc": "2.0",
        "id": "a",
        "result": json.loads(text()),
    }


def test_a_byte_order_mark_before_a_large_message_is_no_part_of_it() -> None:
    world, channel, received = called("pipe")
    world.send_pieces(
        received.channel, envelope.MARK + written(received, text())[:1000], written(received, text())[1000:]
    )
    assert world.only_message(channel)["result"] == json.loads(text())


def test_an_undecoded_result_is_passed_byte_for_byte() -> None:
    """Garbage within a large result is left to the client to judge, as it would be without a proxy."""
    world, channel, received = called("pipe")
    garbage = b'{"a":\xff[[{"id":9}' + b"x" * LARGE + b"}}"
    world.send_pieces(received.channel, b'{"jsonrpc":"2.0","id":%d,"result":' % received.id + garbage)
    assert world.messages(channel) == [b'{"jsonrpc":"2.0","id":"a","result":' + garbage]


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_a_large_answer_to_no_request_is_dropped(up: str) -> None:
    world, channel, received = called(up)
    for number in (received.id + 1, received.id - 1, 10**12):
        world.send_pieces(received.channel, (FORMS[0] % (number, text())).encode())
    assert not world.every(Pass) and not world.sent[channel]
    world.send_pieces(received.channel, written(received, text()))
    world.send_pieces(received.channel, written(received, text()))
    assert len(world.messages(channel)) == len(world.every(Pass)) == 1


def test_an_answer_for_a_pipe_is_sent_whole() -> None:
    """A line is one message and must not contain a line end, so the answer is decoded."""
    world, channel, received = called("pipe", down="pipe")
    world.send_pieces(received.channel, *cut(written(received, text()), (1000, 70_000)))
    assert not world.every(Pass) and world.only_message(channel)["result"] == json.loads(text())


def test_an_answer_on_a_stream_that_can_be_resumed_is_kept_whole() -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    channel = client.request("1", "tools/call", '{"name":"t"}')
    received = world.take_sent("tools/call")
    world.wait(Limits().stream_commit_s)
    assert channel in world.primed
    world.send_pieces(received.channel, *cut(written(received, text()), (1000,)))
    assert not world.every(Pass)
    assert world.sent[channel][-1].event_id is not None and world.only_message(channel)["result"] == json.loads(text())


def test_an_answer_whose_result_is_remembered_is_decoded() -> None:
    """Plain calls on the same connection make no difference."""
    world = driver()
    client = connect(world, "http", "http")
    client.request("1", "tools/call", '{"name":"t"}')
    world.answer(world.take_sent("tools/call"))
    channel = client.request("2", "tools/list")
    received = world.take_sent("tools/list")
    world.open(received.channel, Connected())
    message = written(received, '{"tools":[],"x":"%s"}' % ("x" * LARGE))
    assert not world.engine.passes(received.channel, message, len(message))
    world.send(received.channel, message)
    assert not world.every(Pass)
    assert world.only_message(channel)["result"]["tools"] == []


def test_an_answer_between_two_revisions_is_decoded() -> None:
    """Decoding restores what was replaced for the older revision."""
    world = driver()
    client = new_client(world, "http", "http")
    greeting = client.initialize()
    world.start_server(revision="2025-06-18")
    client.session = world.sent[greeting][-1].session
    client.notify("notifications/initialized")
    channel = client.request("1", "tools/call", '{"name":"t"}')
    received = world.take_sent("tools/call")
    world.open(received.channel, Connected())
    assert not world.engine.passes(received.channel, written(received, text()), LARGE)
    world.send(received.channel, written(received, text()))
    assert not world.every(Pass) and world.only_message(channel)["result"] == json.loads(text())


# --- In parts ---------------------------------------------------------------------------------------------------------


def begun(limits: Limits | None = None, size_bytes: int = LARGE) -> tuple[Driver, ChannelId, SentMessage, bytes]:
    """Returns a call whose answer has begun to come, and the whole message, of which 1000 bytes have come."""
    world, channel, received = called("http", limits=limits)
    message = written(received, text(size_bytes))
    assert world.engine.passes(received.channel, message[:1000], len(message))
    world.send_part(received.channel, message[:1000], size_bytes=len(message))
    return world, channel, received, message


@given(
    at=st.lists(st.integers(200, LARGE), max_size=6, unique=True),
    id_raw=st.sampled_from(["1", '"a"', "-7", '"%s"' % ("i" * 200)]),
)
@settings(max_examples=30)
def test_an_answer_in_parts_is_the_answer(at: list[int], id_raw: str) -> None:
    """The answer arrives complete wherever it is cut, under the client's own id, and the call ends once."""
    world, channel, received = called("http", id_raw=id_raw)
    parts = cut(written(received, text()), at)
    for index, part in enumerate(parts):
        assert world.engine.exchange_count == 1
        first_bytes = 0 if index else sum(map(len, parts))
        world.send_part(received.channel, part, size_bytes=first_bytes, is_last=index == len(parts) - 1)
    assert world.messages(channel) == [f'{{"jsonrpc":"2.0","id":{id_raw},"result":{text()}}}'.encode()]
    assert world.engine.exchange_count == 0
    assert channel not in world.closed


def test_an_answer_that_does_not_pass_is_gathered() -> None:
    """An answer passes in parts only if it is large, within the limit, the answer of this POST, and has its id at the
    start."""
    world = driver(limits=Limits(reply_size_max_bytes=2 * LARGE))
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/call", '{"name":"t"}')
    client.request("2", "tools/call", '{"name":"t"}')
    received, other = world.take_sent("tools/call"), world.take_sent("tools/call")
    message = written(received, text())
    size_bytes = len(message)
    assert world.engine.passes(received.channel, message[: envelope_edges.EDGE_BYTES], size_bytes)
    assert not world.engine.passes(received.channel, message, envelope_edges.PARTS_MIN_BYTES - 1)
    assert not world.engine.passes(received.channel, message, 2 * LARGE + 1)
    assert not world.engine.passes(received.channel, written(received, text(), FORMS_BEHIND[0]), size_bytes)
    assert not world.engine.passes(other.channel, message, size_bytes)
    assert not world.engine.passes(channel, message, size_bytes)
    assert not world.engine.passes(ChannelId(10**6), message, size_bytes)
    with pytest.raises(LocalProtocolError, match="does not pass"):
        world.send_part(other.channel, message, size_bytes=size_bytes)
    world.open(received.channel, Connected())
    world.send(received.channel, message)
    assert not world.engine.passes(received.channel, message, size_bytes), "it is answered"
    assert world.only_message(channel)["result"] == json.loads(text())


def test_more_than_was_announced_is_our_own_mistake() -> None:
    world, _, received, message = begun()
    with pytest.raises(LocalProtocolError, match="more than"):
        world.send_part(received.channel, message)
    world.send_part(received.channel, message[1000:], is_last=True)


@pytest.mark.parametrize("cause", [BROKEN, Cause(End.DONE)])
def test_an_answer_that_breaks_off_is_cut_off(cause: Cause) -> None:
    """The client's channel is closed, the break is noted, and no answer is owed any more."""
    world, channel, received, message = begun()
    world.send_part(received.channel, message[1000:2000])
    world.end(received.channel, cause)
    assert channel in world.closed and not world.sent[channel]
    assert any(f"{len(message) - 2000} bytes to come" in note for note in world.notes("warning"))
    assert world.engine.exchange_count == 0
    world.end(channel, BROKEN)


def test_other_messages_meanwhile_do_not_disturb_the_answer() -> None:
    """Late progress is dropped. A second answer and a cancellation by the client change nothing."""
    world = driver()
    client = connect(world, "http", "http", listens=True)
    channel = client.request("1", "tools/call", '{"name":"t","_meta":{"progressToken":"p"}}')
    received = world.take_sent("tools/call")
    message = written(received, text())
    world.send_part(received.channel, message[:1000], size_bytes=len(message))
    stream = next(dial.channel for dial in world.dials if type(dial.target).__name__ == "Listen")
    world.send(
        stream,
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":1}}' % received.id,
    )
    world.send(stream, written(received, "{}"))
    client.notify("notifications/cancelled", '{"requestId":1}')
    world.wait(Limits().stream_commit_s + Limits().cancel_grace_s)
    assert received.channel not in world.closed
    world.send_part(received.channel, message[1000:], is_last=True)
    assert world.only_message(channel)["result"] == json.loads(text())


def test_an_empty_part_has_no_effect() -> None:
    world, channel, received, message = begun()
    assert world.send_part(received.channel, b"", b"") == []
    world.send_part(received.channel, message[1000:], is_last=True)
    assert world.only_message(channel)["result"] == json.loads(text())


def test_a_request_whose_answer_has_begun_is_not_repeated() -> None:
    """Even a request that only reads is not repeated: its client has some of the answer."""
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "resources/read", '{"uri":"a:b"}')
    received = world.take_sent("resources/read")
    message = written(received, text())
    world.send_part(received.channel, message[:1000], size_bytes=len(message))
    world.end(received.channel, BROKEN)
    assert not world.was_sent("resources/read")
    assert channel in world.closed


def test_a_client_that_leaves_is_not_sent_the_rest() -> None:
    world, channel, received, message = begun()
    world.end(channel, GONE)
    world.send_part(received.channel, message[1000:2000])
    assert received.channel in world.closed
    world.end(received.channel)
    assert world.engine.exchange_count == 0
    assert not world.notes("warning")


def test_a_slow_client_pauses_its_server() -> None:
    """The unsent bytes stay within the limit and one part."""
    limits = Limits(outbox_high_bytes=40_000, outbox_low_bytes=10_000)
    world, channel, received, message = begun(limits, 3 * LARGE)
    taken_bytes, at, is_held, high_bytes = 0, 1000, False, 0
    turns = {Pause: 0, Resume: 0}
    while at < len(message):
        effects = []
        if not is_held:
            effects = world.send_part(received.channel, message[at : at + 8000])
            at += 8000
        else:
            step = min(5000, len(world.passed[channel]) - taken_bytes)
            effects = world.take(channel, step)
            taken_bytes += step
        for effect in effects:
            if isinstance(effect, Pause | Resume):
                assert effect.channel == received.channel
                is_held = isinstance(effect, Pause)
                turns[type(effect)] += 1
        high_bytes = max(high_bytes, len(world.passed[channel]) - taken_bytes)
    assert high_bytes <= 48_000
    assert turns[Pause] >= 10 and turns[Pause] - turns[Resume] in (0, 1)
    assert world.only_message(channel)["result"] == json.loads(text(3 * LARGE))


def test_a_server_that_does_not_go_on_is_given_up() -> None:
    """The reply timeout begins anew with each part."""
    limits = Limits(reply_timeout_s=100.0)
    world, channel, received, message = begun(limits)
    for at in range(1000, 5000, 1000):
        world.wait(90)
        world.send_part(received.channel, message[at : at + 1000])
    assert received.channel not in world.closed
    world.wait(99)
    assert received.channel not in world.closed
    world.wait(1)
    assert received.channel in world.closed
    world.end(received.channel)
    assert channel in world.closed


def test_an_unfinished_answer_keeps_its_session_and_counts_as_an_exchange() -> None:
    limits = Limits(session_idle_ttl_s=10.0)
    world, _, received, message = begun(limits)
    world.wait(35)
    assert world.engine.session_count == 1
    assert world.engine.exchange_count == 1
    world.send_part(received.channel, message[1000:], is_last=True)
    assert world.engine.exchange_count == 0
    world.wait(25)
    assert world.engine.session_count == 0


def test_the_end_of_its_session_cuts_an_answer_off() -> None:
    world, channel, received, _ = begun()
    world.stop()
    assert received.channel in world.closed
    world.end(received.channel)
    assert channel in world.closed
    assert world.engine.exchange_count == 0


# --- Recorded ---------------------------------------------------------------------------------------------------------


def test_a_trace_of_answers_in_pieces_and_parts_replays() -> None:
    lines: list[bytes] = []
    plan = Plan(servers=(ServerPlan(id="http", kind=Kind.HTTP),))
    engine = Recorder(plan, entropy=random.Random(1).randbytes, unix_at_zero=0.0, write=lines.append)
    world = Driver(engine)  # type: ignore[arg-type]  # it has the engine's inputs
    client = connect(world, "http", "http")
    for number in (1, 2):
        client.request(str(number), "tools/call", "{}")
        received = world.take_sent("tools/call")
        message = written(received, text())
        if number == 1:
            world.send_part(received.channel, message[:1000], size_bytes=len(message))
            world.send_part(received.channel, message[1000:], is_last=True)
        else:
            world.open(received.channel, Connected())
            world.send_pieces(received.channel, message[:1000], message[1000:])
    assert len(world.every(Pass)) == 3
    assert list(replay(lines)) == []
    other = b64encode(b"y" * 30)  # stands for other bytes than those of the effects
    assert list(replay([line.replace(b64encode(b"x" * 30), other, 1) for line in lines]))


@pytest.mark.parametrize("mark", [b"", envelope.MARK])
@pytest.mark.parametrize("size_bytes", [2, 20, 2000])
def test_the_pieces_of_a_message_are_the_message(size_bytes: int, mark: bytes) -> None:
    """A client's request may come in pieces as well as a server's answer, each with or without a byte order mark."""
    world = driver()
    client = connect(world, "pipe", "pipe")
    assert client.pipe is not None
    message = request('"a"', "tools/call", json.dumps({"name": "t", "arguments": {"x": "y" * size_bytes}}))
    world.send_pieces(client.pipe, mark + message[:30], message[30:31], message[31:])
    received = world.take_sent("tools/call")
    assert received.frame["params"] == {"name": "t", "arguments": {"x": "y" * size_bytes}}
    answer = written(received, text(size_bytes))
    world.send_pieces(received.channel, mark + answer[:20], answer[20:])
    assert world.only_message(client.pipe) == {"jsonrpc": "2.0", "id": "a", "result": json.loads(text(size_bytes))}


def test_pieces_on_a_channel_that_is_over_are_dropped() -> None:
    world = driver()
    client = connect(world, "pipe", "pipe")
    assert client.pipe is not None
    world.end(client.pipe, GONE)
    world.unread.clear()
    assert world.engine.receive_pieces(client.pipe, (request("1", "tools/list"), b" "), world.now) == []
    assert not world.unread


def test_a_call_with_an_unfinished_answer_is_open() -> None:
    """The call counts against the limit of the session until the answer is complete."""
    world = driver(limits=Limits(exchanges_per_session_max=1))
    client = connect(world, "http", "http")
    client.request("1", "tools/call", '{"name":"t"}')
    received = world.take_sent("tools/call")
    message = written(received, text())
    world.send_part(received.channel, message[:1000], size_bytes=len(message))
    for takes_events in (True, False):
        other = client.send(request("2", "tools/call", '{"name":"t"}'), takes_events=takes_events)
        assert not world.was_sent("tools/call")
        assert world.only_message(other)["error"]["code"] == OVERLOADED
    world.send_part(received.channel, message[1000:], is_last=True)
    client.request("3", "tools/call", '{"name":"t"}')
    assert world.was_sent("tools/call")
