"""A reply stays undecided between JSON and events as long as it can, and loses no message either way."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.effects import Close, Send
from isthmus.core.errors import LocalProtocolError
from isthmus.core.ids import ChannelId
from isthmus.core.wire.http_reply import TRANSITIONS, Input, Out, Reply, ReplyBody, ReplyEnd, ReplyHead, State
from isthmus.core.wire.sse import COMMENT

ONE = ChannelId(1)


def test_the_table_is_total_and_every_state_is_reached() -> None:
    assert set(TRANSITIONS) == set(State)
    assert {taken for row in TRANSITIONS.values() for taken in row} == set(Input)
    assert {State.SILENT} | {after for row in TRANSITIONS.values() for after in row.values()} == set(State)
    assert TRANSITIONS[State.ENDED] == {}


def give(reply: Reply, taken: Input) -> list[Out]:
    if taken is Input.OPENED:
        return reply.open()
    if taken is Input.CLOSED:
        return reply.receive_close(Close(ONE))
    if taken is Input.COMMENT:
        return reply.keep_alive()
    return reply.receive_send(Send(ONE, b"{}", is_last=taken is Input.LAST))


@pytest.mark.parametrize("path", list(itertools.product(Input, repeat=3)))
def test_a_reply_follows_its_table(path: tuple[Input, ...]) -> None:
    """Every sequence of three inputs; an illegal one is refused and changes nothing. One head first, one end last."""
    reply, state = Reply(may_commit=True), State.SILENT
    outs: list[Out] = []
    for taken in path:
        if taken in TRANSITIONS[state]:
            outs += give(reply, taken)
            state = TRANSITIONS[state][taken]
        elif taken is Input.COMMENT:
            assert give(reply, taken) == []
        else:
            with pytest.raises(LocalProtocolError):
                give(reply, taken)
        assert reply.state is state
    heads = [i for i, out in enumerate(outs) if isinstance(out, ReplyHead)]
    ends = [i for i, out in enumerate(outs) if isinstance(out, ReplyEnd)]
    assert heads == ([0] if outs else [])
    assert ends == ([len(outs) - 1] if state is State.ENDED else [])


def parse(outs: list[Out]) -> tuple[int, dict[bytes, bytes], list[bytes]]:
    """Status, headers and messages, as a client would see them."""
    head, *rest = outs
    assert isinstance(head, ReplyHead)
    assert isinstance(rest.pop(), ReplyEnd)
    body = b"".join(out.data for out in rest if isinstance(out, ReplyBody))
    headers = dict(head.headers)
    if b"content-length" in headers:
        assert int(headers[b"content-length"]) == len(body)
    if headers.get(b"content-type") == b"application/json":
        return head.status, headers, [body]
    blocks = body.split(b"\n\n")
    assert blocks.pop() == b""
    lines = [block.split(b"\n") for block in blocks if not block.startswith(b":")]
    assert all(len(pair) == 2 and pair[0] == b"event: message" for pair in lines)
    return head.status, headers, [pair[1].removeprefix(b"data: ") for pair in lines]


MESSAGES = st.lists(st.binary(min_size=1, max_size=30).filter(lambda m: b"\r" not in m and b"\n" not in m), max_size=5)


@given(
    messages=MESSAGES,
    ends_by_close=st.booleans(),
    accepts_json=st.booleans(),
    is_stream=st.booleans(),
    data=st.data(),
)
def test_a_client_reads_exactly_what_was_sent(
    messages: list[bytes], ends_by_close: bool, accepts_json: bool, is_stream: bool, data: st.DataObject
) -> None:
    reply = Reply(accepts_json=accepts_json, is_stream=is_stream)
    outs: list[Out] = []
    if is_stream and data.draw(st.booleans()):
        outs += reply.open()
    for index, message in enumerate(messages):
        if data.draw(st.booleans()):
            outs += reply.keep_alive()
        is_last = not ends_by_close and index == len(messages) - 1
        outs += reply.receive_send(Send(ONE, message, is_last=is_last, session="s"))
    if reply.state is not State.ENDED:
        outs += reply.receive_close(Close(ONE, status=202))
    status, headers, seen = parse(outs)
    assert seen == messages
    was_silent = not messages and reply.state is State.ENDED and b"content-type" not in headers
    assert status == (202 if was_silent else 200)
    assert was_silent <= (not is_stream)


@pytest.mark.parametrize("status", [200, 400, 404])
@pytest.mark.parametrize("accepts", [(True, True), (True, False), (False, True)])
def test_a_single_message_keeps_its_status(status: int, accepts: tuple[bool, bool]) -> None:
    """Errors are JSON whatever the client takes; an answer is what it takes, JSON if it may."""
    reply = Reply(accepts_json=accepts[0], accepts_events=accepts[1])
    outs = reply.receive_send(Send(ONE, b"{}", is_last=True, status=status, session="s1"))
    seen_status, headers, messages = parse(outs)
    assert (seen_status, messages, headers[b"mcp-session-id"]) == (status, [b"{}"], b"s1")
    is_json = accepts[0] or status >= 400
    assert headers[b"content-type"] == (b"application/json" if is_json else b"text/event-stream")


def test_events_are_not_cached_or_collected_on_their_way() -> None:
    (head, _) = Reply().receive_send(Send(ONE, b"{}", session="s1", status=404))
    assert isinstance(head, ReplyHead) and head.status == 200
    assert dict(head.headers) == {
        b"content-type": b"text/event-stream",
        b"cache-control": b"no-cache, no-transform",
        b"x-accel-buffering": b"no",
        b"mcp-session-id": b"s1",
    }


def test_only_json_clients_get_no_message_before_the_last() -> None:
    reply = Reply(accepts_events=False)
    for attempt in (reply.open, lambda: reply.receive_send(Send(ONE, b"{}"))):
        with pytest.raises(LocalProtocolError):
            attempt()
        assert reply.state is State.SILENT
    assert parse(reply.receive_send(Send(ONE, b"{}", is_last=True)))[2] == [b"{}"]


@pytest.mark.parametrize("status, is_stream", list(itertools.product([200, 202, 204, 404, 405], [False, True])))
def test_closing_in_silence(status: int, is_stream: bool) -> None:
    outs = Reply(is_stream=is_stream).receive_close(Close(ONE, status=status))
    head = outs[0]
    assert isinstance(head, ReplyHead) and outs[1:] == [ReplyEnd()]
    headers = dict(head.headers)
    if is_stream and status < 300:
        assert (head.status, headers[b"content-type"]) == (200, b"text/event-stream")
    else:
        assert head.status == status
        assert headers.get(b"content-length") == (None if status == 204 else b"0")
        assert (b"allow" in headers) is (status == 405)


def test_a_challenge_goes_into_a_head_that_is_still_to_be_written() -> None:
    order = Send(channel=ChannelId(1), message=b"{}", is_last=True, status=401, challenge="Bearer x")
    for reply in (Reply(), Reply(accepts_json=False), Reply(accepts_events=False)):
        head = reply.receive_send(order)[0]
        assert isinstance(head, ReplyHead)
        assert head.status == 401
        assert (b"www-authenticate", b"Bearer x") in head.headers
    late = Reply()
    late.open()
    assert [type(out) for out in late.receive_send(order)] == [ReplyBody, ReplyEnd]


def test_a_long_silence_opens_the_stream_where_nothing_is_missing_from_the_head() -> None:
    """Middle boxes cut what stays silent; but a reply that may still have to name a session waits."""
    reply = Reply(may_commit=True)
    opened = reply.keep_alive()
    assert isinstance(opened[0], ReplyHead)
    assert opened[0].status == 200
    assert opened[1:] == [ReplyBody(COMMENT)]
    assert reply.keep_alive() == [ReplyBody(COMMENT)]
    last = reply.receive_send(Send(channel=ChannelId(1), message=b"{}", is_last=True))
    assert [type(out) for out in last] == [ReplyBody, ReplyEnd]
    assert Reply().keep_alive() == []
    assert Reply(may_commit=True, accepts_events=False).keep_alive() == []


PLAIN = (b"content-type", b"application/json"), (b"content-length", b"2")


@pytest.mark.parametrize(
    ("order", "headers"),
    [
        (Send(ONE, b"{}", is_last=True), PLAIN),
        (Send(ONE, b"{}", is_last=True, session="s"), (*PLAIN, (b"mcp-session-id", b"s"))),
        (Send(ONE, b"{}", is_last=True, headers=(("Retry-After", "1"),)), (*PLAIN, (b"retry-after", b"1"))),
        (Send(ONE, b"{}", is_last=True, status=405), (*PLAIN, (b"allow", b"POST"))),
        (Send(ONE, b"{}", is_last=True, status=401, challenge="Basic"), (*PLAIN, (b"www-authenticate", b"Basic"))),
        (Send(ONE, b"", is_last=True, status=204), ()),
        (Send(ONE, b"", is_last=True, status=204, session="s"), ((b"mcp-session-id", b"s"),)),
    ],
)
def test_the_head_of_a_whole_reply(order: Send, headers: tuple[tuple[bytes, bytes], ...]) -> None:
    """Line by line: nothing is said of a body where there is none."""
    reply = Reply()
    assert reply.receive_send(order) == [ReplyHead(order.status, headers), ReplyBody(order.message), ReplyEnd()]


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (202, ((b"content-length", b"0"),)),
        (204, ()),
        (404, ((b"content-length", b"0"),)),
        (405, ((b"content-length", b"0"), (b"allow", b"POST"))),
    ],
)
def test_the_head_of_an_empty_reply(status: int, headers: tuple[tuple[bytes, bytes], ...]) -> None:
    assert Reply().receive_close(Close(ONE, status=status)) == [ReplyHead(status, headers), ReplyEnd()]


def test_the_head_of_an_event_stream() -> None:
    """It is the same whether an event, a comment or nothing comes first; only an event can name a session."""
    lines = (
        (b"content-type", b"text/event-stream"),
        (b"cache-control", b"no-cache, no-transform"),
        (b"x-accel-buffering", b"no"),
    )
    assert Reply().open() == [ReplyHead(200, lines)]
    assert Reply(may_commit=True).keep_alive() == [ReplyHead(200, lines), ReplyBody(COMMENT)]
    head, _ = Reply().receive_send(Send(ONE, b"{}", session="s"))
    assert head == ReplyHead(200, (*lines, (b"mcp-session-id", b"s")))
    refused = Reply(is_stream=True, accepts_json=False).receive_close(Close(ONE, status=404))
    assert refused == [ReplyHead(404, ((b"content-length", b"0"),)), ReplyEnd()]
    ended = Reply(is_stream=True, accepts_json=False).receive_close(Close(ONE, status=200))
    assert ended == [ReplyHead(200, lines), ReplyEnd()]
