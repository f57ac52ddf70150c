"""Effects that the context orders: each one whole, once, and only on a channel that can still take it."""

from __future__ import annotations

from typing import Any

import pytest
from isthmus.core.base.effects import Close, Dial, Note, Pass, Pause, Resume, Send, SendEvents, Spawn
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.state.context import ChannelRole, Context

HIGH, LOW, MAX = 100, 40, 150
PLAN = Plan(servers=(ServerPlan(id="a", kind=Kind.PIPE), ServerPlan(id="b", kind=Kind.PIPE)))


class SharedSource(ChannelRole):
    """The role of a channel that feeds several sessions."""

    @property
    def feeds_many(self) -> bool:
        return True


def context() -> Context:
    limits = Limits(outbox_high_bytes=HIGH, outbox_low_bytes=LOW, outbox_max_bytes=MAX)
    return Context(PLAN, entropy=bytes, unix_at_zero=1000.0, limits=limits)


def opened(target: Context, *roles: ChannelRole) -> list[ChannelId]:
    channels = [target.new_channel() for _ in roles]
    for channel, role in zip(channels, roles, strict=True):
        target.register(channel, role)
    return channels


def taken(target: Context) -> list[Any]:
    out, target.out = target.out, []
    return out


# --- The initial state ------------------------------------------------------------------------------------------------


def test_a_context_begins_with_nothing() -> None:
    target = context()
    assert list(target.servers) == ["a", "b"]
    assert (target.out, target.source, target.channels(), len(target.timers)) == ([], None, [], 0)
    assert not (target.ends_source or target.is_draining)
    target.now = 7.5
    assert target.now_unix == 1007.5
    assert [target.new_channel() for _ in range(3)] == [1, 2, 3]
    assert [target.new_ticket() for _ in range(3)] == [1, 2, 3]
    assert len(target.mint()) == 32


def test_a_channel_is_registered_once_and_only_with_a_given_number() -> None:
    """A refused registration changes nothing."""
    target = context()
    role = ChannelRole()
    with pytest.raises(LocalProtocolError):
        target.register(ChannelId(1), role)
    (channel,) = opened(target, role)
    with pytest.raises(LocalProtocolError):
        target.register(channel, ChannelRole())
    assert target.channels() == [(channel, role)]
    target.new_channel()
    with pytest.raises(LocalProtocolError):
        target.register(ChannelId(3), role)
    target.register(ChannelId(2), role)


def test_a_dial_is_a_channel_and_an_order() -> None:
    target = context()
    role, to = ChannelRole(), Spawn("a", "w")
    assert target.dial(role, to) == 1
    assert target.dial(role, to) == 2
    assert taken(target) == [Dial(channel=ChannelId(1), target=to), Dial(channel=ChannelId(2), target=to)]
    assert target.role_of(ChannelId(2)) is role
    assert target.new_channel() == 3


# --- Orders -----------------------------------------------------------------------------------------------------------


def test_a_message_is_ordered_with_all_its_fields() -> None:
    target = context()
    (channel,) = opened(target, ChannelRole())
    assert target.send(channel, b"m") is True
    fields: dict[str, Any] = {
        "is_last": True,
        "status": 418,
        "session": "s",
        "event": "endpoint",
        "event_id": "1-1",
        "retry_ms": 5,
        "challenge": "c",
        "headers": (("a", "b"),),
    }
    assert target.send(channel, b"n", **fields) is True
    assert taken(target) == [
        Send(channel, b"m", False, 200, None, "message", None, None, "", ()),
        Send(channel, b"n", True, 418, "s", "endpoint", "1-1", 5, "c", (("a", "b"),)),
    ]
    assert target.unsent_bytes(channel) == 2


def test_a_channel_that_is_absent_or_ending_gets_no_orders() -> None:
    """An absent channel gets no order, nor does one that ends."""
    target = context()
    gone = target.new_channel()
    (ending,) = opened(target, ChannelRole())
    target.send(ending, b"m", is_last=True)
    taken(target)
    for channel in (gone, ending):
        assert target.send(channel, b"m") is False
        assert target.send_events(channel, (b"m",), (), 1) is False
        target.refuse(channel, 404, {})
        target.close(channel)
        assert not target.is_open(channel)
        assert target.role_if_open(channel) is None
        assert target.when_taken(channel, lambda: None) is True
    target.close(None)
    assert not target.is_open(None)
    assert target.pass_on(gone, (b"m",), 1) is False
    target.cut(gone, "why")
    with pytest.raises(LocalProtocolError, match="expected receive_open with an opening before"):
        target.receive_sent(gone, 5)
    assert taken(target) == []
    assert (target.unsent_bytes(gone), target.unsent_bytes(None), target.unsent_bytes(ending)) == (0, 0, 1)


def test_events_that_come_at_once_are_one_order() -> None:
    target = context()
    (channel,) = opened(target, ChannelRole())
    assert target.send_events(channel, (b"ab", b"c"), ("1-1", "1-2"), 3) is True
    assert taken(target) == [SendEvents(channel, (b"ab", b"c"), ("1-1", "1-2"))]
    assert target.unsent_bytes(channel) == 3
    assert target.is_open(channel)


def test_a_refusal_is_a_status_and_a_body() -> None:
    target = context()
    (channel,) = opened(target, ChannelRole())
    target.refuse(channel, 404, {"code": "x"}, (("a", "b"),))
    assert taken(target) == [Send(channel, b'{"code":"x"}', is_last=True, status=404, headers=(("a", "b"),))]
    assert not target.is_open(channel)


def test_an_end_is_ordered_once() -> None:
    """The status, reason and code have defaults; a cut ends a message in the middle, even after a `Close`."""
    target = context()
    one, two = opened(target, ChannelRole(), ChannelRole())
    target.close(one)
    target.close(one, reason="again")
    target.close(two, status=204, reason="r", code=1001)
    assert taken(target) == [
        Close(channel=one, status=202, reason="", code=1000),
        Close(channel=two, status=204, reason="r", code=1001),
    ]
    target.cut(two, "broken")
    assert taken(target) == [Close(channel=two, reason="broken")]


def test_a_note_names_its_server() -> None:
    target = context()
    target.note("info", "t", "a")
    target.note("warning", "u")
    assert taken(target) == [Note(level="info", text="t", server="a"), Note(level="warning", text="u", server="")]


# --- Roles of channels ------------------------------------------------------------------------------------------------


def test_a_channel_that_is_for_something_else_is_as_full_as_before() -> None:
    target = context()
    before, after = ChannelRole(), ChannelRole()
    source, sink = opened(target, ChannelRole(), before)
    target.source = source
    called: list[int] = []
    target.send(sink, b"x" * (HIGH + 1))
    assert target.when_taken(sink, lambda: called.append(1)) is False
    target.assign(sink, after)
    assert target.role_of(sink) is target.role_if_open(sink) is after
    assert (after.unsent_bytes, after.is_ending, after.feeders) == (HIGH + 1, False, {source})
    taken(target)
    target.receive_sent(sink, HIGH + 1)
    assert taken(target) == [Resume(channel=source)]
    assert called == [1]


def test_a_channels_role_is_released_once() -> None:
    target = context()
    role = ChannelRole()
    (channel,) = opened(target, role)
    assert target.release(channel) is role
    assert target.release(channel) is None
    assert target.role_of(channel) is None


# --- Full channels ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "is_closed"), [(MAX, False), (MAX + 1, True)])
@pytest.mark.parametrize("how", ["one", "several"])
def test_a_shared_source_is_not_paused_and_a_full_sink_is_closed(before: int, is_closed: bool, how: str) -> None:
    """The sink is closed only when more than the bound waits for it."""
    target = context()
    shared, sink = opened(target, SharedSource(), ChannelRole())
    target.send(sink, b"x" * before)
    taken(target)
    target.source = shared
    if how == "one":
        target.send(sink, b"y")
    else:
        target.send_events(sink, (b"y",), (), 1)
    _, *rest = taken(target)
    assert rest == ([Close(channel=sink, reason="too much waits to be read")] if is_closed else [])


@pytest.mark.parametrize(("size", "is_paused"), [(HIGH, False), (HIGH + 1, True)])
def test_several_events_fill_a_channel_as_one_does(size: int, is_paused: bool) -> None:
    target = context()
    source, sink = opened(target, ChannelRole(), ChannelRole())
    target.source = source
    target.send_events(sink, (b"x",), (), size)
    _, *rest = taken(target)
    assert rest == ([Pause(channel=source)] if is_paused else [])


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("is_own", [True, False])
def test_a_post_is_not_paused_by_its_own_response(is_own: bool, is_last: bool) -> None:
    """A POST's channel carries no further request."""
    target = context()
    source, sink = opened(target, ChannelRole(), ChannelRole())
    target.source = sink if is_own else source
    target.send(sink, b"x" * (HIGH + 1), is_last=is_last)
    _, *rest = taken(target)
    assert rest == ([] if is_own and is_last else [Pause(channel=target.source)])


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("size", [HIGH, HIGH + 1])
def test_parts_of_a_message_pause_their_source(size: int, ends: bool) -> None:
    """The first part counts with the size of the whole message. The channel is ending from then on, and a source that
    ends with it is not paused."""
    target = context()
    source, sink = opened(target, ChannelRole(), ChannelRole())
    target.source, target.ends_source = source, ends
    assert target.pass_on(sink, (b"x" * 10, b"y"), 500) is True
    assert not target.is_open(sink)
    assert target.pass_on(sink, (b"z" * (size - 11),)) is True
    assert target.unsent_bytes(sink) == size
    expected: list[Any] = [Pass(sink, (b"x" * 10, b"y"), 500), Pass(sink, (b"z" * (size - 11),), 0)]
    if size > HIGH and not ends:
        expected.append(Pause(channel=source))
    assert taken(target) == expected


def test_a_callback_runs_once_when_the_channel_drains() -> None:
    """The callback runs at the low mark, only if the channel was full, and not when the channel ends."""
    target = context()
    one, two = opened(target, ChannelRole(), ChannelRole())
    called: list[str] = []
    for channel, size in ((one, HIGH), (two, HIGH + 1)):
        target.send(channel, b"x" * size)
    assert target.when_taken(one, lambda: called.append("one")) is True
    assert target.when_taken(two, lambda: called.append("two")) is False
    target.receive_sent(two, HIGH - LOW)
    assert called == []
    target.receive_sent(two, 1)
    assert called == ["two"]
    target.receive_sent(two, LOW)
    target.receive_sent(one, HIGH)
    assert called == ["two"]
    target.send(one, b"x" * (HIGH + 1))
    assert target.when_taken(one, lambda: called.append("late")) is False
    target.release(one)
    assert called == ["two"]


def test_more_sent_than_ordered_is_refused() -> None:
    target = context()
    (channel,) = opened(target, ChannelRole())
    target.send(channel, b"abc")
    with pytest.raises(LocalProtocolError, match=f"got 4 bytes as sent on channel {channel}, expected at most the 3 "):
        target.receive_sent(channel, 4)
    assert target.unsent_bytes(channel) == 3
    target.receive_sent(channel, 3)
    assert target.unsent_bytes(channel) == 0
