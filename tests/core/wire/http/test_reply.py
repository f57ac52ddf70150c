"""An HTTP reply: it stays undecided between JSON and events as long as it can, and loses no message either way."""

from __future__ import annotations

import itertools

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.effects import Close, Pass, Send, SendEvents
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.ids import ChannelId
from isthmus.core.wire.http.reply import (
    TRANSITIONS,
    HttpReply,
    HttpReplyInput,
    HttpReplyState,
    Out,
    ReplyBody,
    ReplyCut,
    ReplyDocument,
    ReplyEnd,
    ReplyHead,
)
from isthmus.core.wire.sse import COMMENT

ONE = ChannelId(1)


def test_the_table_is_total_and_every_state_is_reached() -> None:
    assert set(TRANSITIONS) == set(HttpReplyState)
    assert {taken for row in TRANSITIONS.values() for taken in row} == set(HttpReplyInput)
    assert {HttpReplyState.SILENT} | {after for row in TRANSITIONS.values() for after in row.values()} == set(
        HttpReplyState
    )
    assert TRANSITIONS[HttpReplyState.ENDED] == {}


def give(reply: HttpReply, taken: HttpReplyInput) -> list[Out]:
    if taken is HttpReplyInput.OPENED:
        return reply.open()
    if taken is HttpReplyInput.CLOSED:
        return reply.receive_close(Close(ONE))
    if taken is HttpReplyInput.COMMENT:
        return reply.keep_alive()
    if taken is HttpReplyInput.BEGUN:
        return reply.receive_pass(Pass(ONE, (b"12",), 9))
    if taken is HttpReplyInput.PART:
        return reply.receive_pass(Pass(ONE, (b"34",)))
    if taken is HttpReplyInput.LAST_PART:
        is_begun = reply.state is HttpReplyState.PASSING
        return reply.receive_pass(Pass(ONE, (b"0" * reply.left_bytes,)) if is_begun else Pass(ONE, (b"{}",), 2))
    return reply.receive_send(Send(ONE, b"{}", is_last=taken is HttpReplyInput.LAST))


@each_row("path", list(itertools.product(HttpReplyInput, repeat=3)))
def test_a_reply_follows_its_table(path: tuple[HttpReplyInput, ...]) -> None:
    """Every sequence of three inputs is tried; an illegal one is refused and changes nothing. There is one head, first,
    and one end, last."""
    reply, state = HttpReply(may_commit=True), HttpReplyState.SILENT
    outs: list[Out] = []
    for taken in path:
        if taken in TRANSITIONS[state]:
            outs += give(reply, taken)
            state = TRANSITIONS[state][taken]
        elif taken is HttpReplyInput.COMMENT:
            assert give(reply, taken) == []
        else:
            with pytest.raises(LocalProtocolError):
                give(reply, taken)
        assert reply.state is state
    heads = [i for i, out in enumerate(outs) if isinstance(out, (ReplyDocument, ReplyHead))]
    ends = [i for i, out in enumerate(outs) if isinstance(out, (ReplyCut, ReplyDocument, ReplyEnd))]
    assert heads == ([0] if outs else [])
    assert ends == ([len(outs) - 1] if state is HttpReplyState.ENDED else [])


def parse(outs: list[Out]) -> tuple[int, dict[bytes, bytes], list[bytes]]:
    """Status, headers and messages, as a client would see them."""
    head, *rest = outs
    if isinstance(head, ReplyDocument):  # whose length is left to the framing
        assert not rest and b"content-length" not in dict(head.headers)
        head, rest = ReplyHead(head.status, head.headers), [ReplyBody(head.data)]
    else:
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
    reply = HttpReply(accepts_json=accepts_json, is_stream=is_stream)
    outs: list[Out] = []
    if is_stream and data.draw(st.booleans()):
        outs += reply.open()
    for index, message in enumerate(messages):
        if data.draw(st.booleans()):
            outs += reply.keep_alive()
        is_last = not ends_by_close and index == len(messages) - 1
        outs += reply.receive_send(Send(ONE, message, is_last=is_last, session="s"))
    if reply.state is not HttpReplyState.ENDED:
        outs += reply.receive_close(Close(ONE, status=202))
    status, headers, seen = parse(outs)
    assert seen == messages
    was_silent = not messages and reply.state is HttpReplyState.ENDED and b"content-type" not in headers
    assert status == (202 if was_silent else 200)
    assert was_silent <= (not is_stream)


@given(
    message=st.binary(min_size=1, max_size=40).filter(lambda m: b"\r" not in m and b"\n" not in m),
    accepts_json=st.booleans(),
    is_open=st.booleans(),
    data=st.data(),
)
def test_a_message_in_parts_reads_as_it_would_whole(
    message: bytes, accepts_json: bool, is_open: bool, data: st.DataObject
) -> None:
    """The message is cut anywhere, and a broken-off message is never taken for whole."""
    cuts = sorted(data.draw(st.sets(st.integers(0, len(message)), max_size=5)) | {0, len(message)})
    parts = [message[start:stop] for start, stop in itertools.pairwise(cuts)]
    whole, parted, broken = (HttpReply(accepts_json=accepts_json) for _ in range(3))
    outs: dict[HttpReply, list[Out]] = {reply: reply.open() if is_open else [] for reply in (whole, parted, broken)}
    outs[whole] += whole.receive_send(Send(ONE, message, is_last=True))
    for index, part in enumerate(parts):
        assert parted.keep_alive() == [] or (is_open and not index)
        order = Pass(ONE, (part[:1], part[1:]), 0 if index else len(message))
        outs[parted] += parted.receive_pass(order)
        if index < len(parts) - 1:
            outs[broken] += broken.receive_pass(order)
    status, headers, messages = parse(outs[parted])
    came_at_once = len(parts) == 1 and accepts_json
    assert is_open or (b"content-length" in headers) is not came_at_once
    headers.pop(b"content-length", None)  # which a whole reply leaves to the framing
    assert (status, headers, messages) == parse(outs[whole])
    if len(parts) > 1:
        assert broken.receive_close(Close(ONE)) == [ReplyCut()]
        assert not any(isinstance(out, ReplyEnd) for out in outs[broken])


def test_line_ends_in_a_part_of_an_event_are_spaces_as_in_a_whole_one() -> None:
    reply = HttpReply()
    outs = [*reply.open(), *reply.receive_pass(Pass(ONE, (b"{\r", b"\n}"), 4))]
    assert parse(outs)[2] == [b"{  }"]


def test_no_more_is_passed_than_was_announced() -> None:
    reply = HttpReply()
    reply.receive_pass(Pass(ONE, (b"12",), 5))
    for order in (Pass(ONE, (b"3456",)), Pass(ONE, (b"3",), 5)):
        with pytest.raises(LocalProtocolError):
            reply.receive_pass(order)
        assert reply.left_bytes == 3


@pytest.mark.parametrize("status", [200, 400, 404])
@pytest.mark.parametrize("accepts", [(True, True), (True, False), (False, True)])
def test_a_single_message_keeps_its_status(status: int, accepts: tuple[bool, bool]) -> None:
    """An error is JSON whatever the client accepts; an answer is JSON if the client accepts it."""
    reply = HttpReply(accepts_json=accepts[0], accepts_events=accepts[1])
    outs = reply.receive_send(Send(ONE, b"{}", is_last=True, status=status, session="s1"))
    seen_status, headers, messages = parse(outs)
    assert (seen_status, messages, headers[b"mcp-session-id"]) == (status, [b"{}"], b"s1")
    is_json = accepts[0] or status >= 400
    assert headers[b"content-type"] == (b"application/json" if is_json else b"text/event-stream")


def test_event_streams_are_neither_cached_nor_buffered() -> None:
    (head, _) = HttpReply().receive_send(Send(ONE, b"{}", session="s1", status=404))
    assert isinstance(head, ReplyHead) and head.status == 200
    assert dict(head.headers) == {
        b"content-type": b"text/event-stream",
        b"cache-control": b"no-cache, no-transform",
        b"x-accel-buffering": b"no",
        b"mcp-session-id": b"s1",
    }


def test_clients_of_json_only_get_the_last_message_only() -> None:
    reply = HttpReply(accepts_events=False)
    for attempt in (reply.open, lambda: reply.receive_send(Send(ONE, b"{}"))):
        with pytest.raises(LocalProtocolError):
            attempt()
        assert reply.state is HttpReplyState.SILENT
    assert parse(reply.receive_send(Send(ONE, b"{}", is_last=True)))[2] == [b"{}"]


@pytest.mark.parametrize("is_open", [False, True])
def test_several_messages_are_sent_as_each_would_be(is_open: bool) -> None:
    """Several messages begin the stream if it is not open, and none of them ends it."""
    together, apart = HttpReply(), HttpReply()
    if is_open:
        assert together.open() == apart.open()
    outs = together.receive_events(SendEvents(ONE, (b"{}", b"[]"), ("1-1", "1-2")))
    singly = apart.receive_send(Send(ONE, b"{}", event_id="1-1")) + apart.receive_send(Send(ONE, b"[]", event_id="1-2"))
    assert isinstance(outs[-1], ReplyBody) and outs[:-1] == singly[:-2]
    assert outs[-1].data == b"".join(out.data for out in singly if isinstance(out, ReplyBody))
    assert together.receive_close(Close(ONE)) == [ReplyEnd()]
    with pytest.raises(LocalProtocolError):
        together.receive_events(SendEvents(ONE, (b"{}",)))


def test_clients_of_json_only_get_no_several_messages() -> None:
    reply = HttpReply(accepts_events=False)
    with pytest.raises(LocalProtocolError):
        reply.receive_events(SendEvents(ONE, (b"{}", b"[]")))
    assert reply.state is HttpReplyState.SILENT


CLOSINGS = [*itertools.product([200, 202, 204, 404, 405], [False, True], [True])]
CLOSINGS += [(status, False, False) for status in (200, 202)]


@pytest.mark.parametrize("status, is_stream, accepts_events", CLOSINGS)
def test_closing_without_a_message(status: int, is_stream: bool, accepts_events: bool) -> None:
    outs = HttpReply(is_stream=is_stream, accepts_events=accepts_events).receive_close(Close(ONE, status=status))
    head = outs[0]
    assert isinstance(head, ReplyHead) and outs[1:] == [ReplyEnd()]
    headers = dict(head.headers)
    if (is_stream and status < 300) or (status == 200 and accepts_events):
        assert (head.status, headers[b"content-type"]) == (200, b"text/event-stream")
    else:
        assert head.status == status
        assert headers.get(b"content-length") == (None if status == 204 else b"0")
        assert (b"allow" in headers) is (status == 405)


def test_a_challenge_is_added_to_an_unwritten_head() -> None:
    order = Send(channel=ChannelId(1), message=b"{}", is_last=True, status=401, challenge="Bearer x")
    for reply in (HttpReply(), HttpReply(accepts_json=False), HttpReply(accepts_events=False)):
        (head,) = reply.receive_send(order)
        assert isinstance(head, ReplyDocument)
        assert head.status == 401
        assert (b"www-authenticate", b"Bearer x") in head.headers
    late = HttpReply()
    late.open()
    assert [type(out) for out in late.receive_send(order)] == [ReplyBody, ReplyEnd]


def test_a_keep_alive_opens_the_stream_if_its_head_is_complete() -> None:
    """Middle boxes cut silent connections; but a reply that may still have to name a session waits."""
    reply = HttpReply(may_commit=True)
    opened = reply.keep_alive()
    assert isinstance(opened[0], ReplyHead)
    assert opened[0].status == 200
    assert opened[1:] == [ReplyBody(COMMENT)]
    assert reply.keep_alive() == [ReplyBody(COMMENT)]
    last = reply.receive_send(Send(channel=ChannelId(1), message=b"{}", is_last=True))
    assert [type(out) for out in last] == [ReplyBody, ReplyEnd]
    assert HttpReply().keep_alive() == []
    assert HttpReply(may_commit=True, accepts_events=False).keep_alive() == []


PLAIN = ((b"content-type", b"application/json"),)


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
    """The lines are exact; a reply without a body has no Content-Type."""
    if order.message:
        wanted: list[Out] = [ReplyDocument(headers, (order.message,), order.status)]
    else:
        wanted = [ReplyHead(order.status, headers), ReplyEnd()]
    assert HttpReply().receive_send(order) == wanted


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
    assert HttpReply().receive_close(Close(ONE, status=status)) == [ReplyHead(status, headers), ReplyEnd()]


def test_the_head_of_an_event_stream() -> None:
    """The head does not depend on whether an event, a comment or nothing comes first; only an event can name a
    session."""
    lines = (
        (b"content-type", b"text/event-stream"),
        (b"cache-control", b"no-cache, no-transform"),
        (b"x-accel-buffering", b"no"),
    )
    assert HttpReply().open() == [ReplyHead(200, lines)]
    assert HttpReply(may_commit=True).keep_alive() == [ReplyHead(200, lines), ReplyBody(COMMENT)]
    head, _ = HttpReply().receive_send(Send(ONE, b"{}", session="s"))
    assert head == ReplyHead(200, (*lines, (b"mcp-session-id", b"s")))
    refused = HttpReply(is_stream=True, accepts_json=False).receive_close(Close(ONE, status=404))
    assert refused == [ReplyHead(404, ((b"content-length", b"0"),)), ReplyEnd()]
    ended = HttpReply(is_stream=True, accepts_json=False).receive_close(Close(ONE, status=200))
    assert ended == [ReplyHead(200, lines), ReplyEnd()]
