"""What the parts of the engine order over the desk: each effect whole, once, and only where something can be sent."""

from __future__ import annotations

from typing import Any

import pytest
from isthmus.core.base.effects import Close, Dial, Note, Pass, Pause, Resume, Send, SendEvents, Spawn
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.state.context import Desk, Role

HIGH, LOW, MAX = 100, 40, 150
PLAN = Plan(servers=(ServerPlan(id="a", kind=Kind.PIPE), ServerPlan(id="b", kind=Kind.PIPE)))


class Crowd(Role):
    """What feeds several sessions."""

    @property
    def feeds_many(self) -> bool:
        return True


def desk() -> Desk:
    limits = Limits(outbox_high_bytes=HIGH, outbox_low_bytes=LOW, outbox_max_bytes=MAX)
    return Desk(PLAN, entropy=bytes, unix_at_zero=1000.0, limits=limits)


def opened(target: Desk, *roles: Role) -> list[ChannelId]:
    channels = [target.new_channel() for _ in roles]
    for channel, role in zip(channels, roles, strict=True):
        target.register(channel, role)
    return channels


def taken(target: Desk) -> list[Any]:
    out, target.out = target.out, []
    return out


# --- What it begins with ----------------------------------------------------------------------------------------------


def test_a_desk_begins_with_nothing() -> None:
    target = desk()
    assert list(target.servers) == ["a", "b"]
    assert (target.out, target.source, target.channels(), len(target.timers)) == ([], None, [], 0)
    assert not (target.ends_source or target.is_draining)
    target.now = 7.5
    assert target.now_unix == 1007.5
    assert [target.new_channel() for _ in range(3)] == [1, 2, 3]
    assert [target.new_ticket() for _ in range(3)] == [1, 2, 3]
    assert len(target.mint()) == 32


def test_a_channel_is_opened_once_and_if_it_was_given_out() -> None:
    """Nothing changes else."""
    target = desk()
    role = Role()
    with pytest.raises(LocalProtocolError):
        target.register(ChannelId(1), role)
    (channel,) = opened(target, role)
    with pytest.raises(LocalProtocolError):
        target.register(channel, Role())
    assert target.channels() == [(channel, role)]
    target.new_channel()
    with pytest.raises(LocalProtocolError):
        target.register(ChannelId(3), role)
    target.register(ChannelId(2), role)


def test_a_dial_is_a_channel_and_an_order() -> None:
    target = desk()
    role, to = Role(), Spawn("a", "w")
    assert target.dial(role, to) == 1
    assert target.dial(role, to) == 2
    assert taken(target) == [Dial(channel=ChannelId(1), target=to), Dial(channel=ChannelId(2), target=to)]
    assert target.role_of(ChannelId(2)) is role
    assert target.new_channel() == 3


# --- Orders -----------------------------------------------------------------------------------------------------------


def test_a_message_is_ordered_with_all_that_is_said_of_it() -> None:
    target = desk()
    (channel,) = opened(target, Role())
    assert target.send(channel, b"m") is True
    said: dict[str, Any] = {
        "is_last": True,
        "status": 418,
        "session": "s",
        "event": "endpoint",
        "event_id": "1-1",
        "retry_ms": 5,
        "challenge": "c",
        "headers": (("a", "b"),),
    }
    assert target.send(channel, b"n", **said) is True
    assert taken(target) == [
        Send(channel, b"m", False, 200, None, "message", None, None, "", ()),
        Send(channel, b"n", True, 418, "s", "endpoint", "1-1", 5, "c", (("a", "b"),)),
    ]
    assert target.unsent_bytes(channel) == 2


def test_nothing_is_ordered_where_nothing_can_be_sent() -> None:
    """A channel that is not there, and one that ends."""
    target = desk()
    gone = target.new_channel()
    (ending,) = opened(target, Role())
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
    target.receive_sent(gone, 5)
    assert taken(target) == []
    assert (target.unsent_bytes(gone), target.unsent_bytes(None), target.unsent_bytes(ending)) == (0, 0, 1)


def test_events_that_come_at_once_are_one_order() -> None:
    target = desk()
    (channel,) = opened(target, Role())
    assert target.send_events(channel, (b"ab", b"c"), ("1-1", "1-2"), 3) is True
    assert taken(target) == [SendEvents(channel, (b"ab", b"c"), ("1-1", "1-2"))]
    assert target.unsent_bytes(channel) == 3
    assert target.is_open(channel)


def test_a_refusal_is_a_status_and_a_body() -> None:
    target = desk()
    (channel,) = opened(target, Role())
    target.refuse(channel, 404, {"code": "x"}, (("a", "b"),))
    assert taken(target) == [Send(channel, b'{"code":"x"}', is_last=True, status=404, headers=(("a", "b"),))]
    assert not target.is_open(channel)


def test_an_end_is_ordered_once() -> None:
    """With what is usual where nothing else is said; a cut comes in the midst of a message, and after its order."""
    target = desk()
    one, two = opened(target, Role(), Role())
    target.close(one)
    target.close(one, reason="again")
    target.close(two, status=204, reason="r", code=1001)
    assert taken(target) == [
        Close(channel=one, status=202, reason="", code=1000),
        Close(channel=two, status=204, reason="r", code=1001),
    ]
    target.cut(two, "broken")
    assert taken(target) == [Close(channel=two, reason="broken")]


def test_a_note_says_of_whom_it_is() -> None:
    target = desk()
    target.note("info", "t", "a")
    target.note("warning", "u")
    assert taken(target) == [Note(level="info", text="t", server="a"), Note(level="warning", text="u", server="")]


# --- Whose a channel is -----------------------------------------------------------------------------------------------


def test_a_channel_that_is_for_something_else_is_as_full_as_before() -> None:
    target = desk()
    before, after = Role(), Role()
    source, sink = opened(target, Role(), before)
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


def test_what_a_channel_was_for_is_told_once() -> None:
    target = desk()
    role = Role()
    (channel,) = opened(target, role)
    assert target.release(channel) is role
    assert target.release(channel) is None
    assert target.role_of(channel) is None


# --- What is full -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "is_closed"), [(MAX, False), (MAX + 1, True)])
@pytest.mark.parametrize("how", ["one", "several"])
def test_what_feeds_many_is_not_held_back_and_who_takes_nothing_is_closed(
    before: int, is_closed: bool, how: str
) -> None:
    """Only once more waits for it than may."""
    target = desk()
    crowd, sink = opened(target, Crowd(), Role())
    target.send(sink, b"x" * before)
    taken(target)
    target.source = crowd
    if how == "one":
        target.send(sink, b"y")
    else:
        target.send_events(sink, (b"y",), (), 1)
    _, *rest = taken(target)
    assert rest == ([Close(channel=sink, reason="too much waits to be read")] if is_closed else [])


@pytest.mark.parametrize(("size", "is_paused"), [(HIGH, False), (HIGH + 1, True)])
def test_several_events_fill_a_channel_as_one_does(size: int, is_paused: bool) -> None:
    target = desk()
    source, sink = opened(target, Role(), Role())
    target.source = source
    target.send_events(sink, (b"x",), (), size)
    _, *rest = taken(target)
    assert rest == ([Pause(channel=source)] if is_paused else [])


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("is_own", [True, False])
def test_who_asked_once_is_not_held_back_by_its_own_answer(is_own: bool, is_last: bool) -> None:
    """A POST's channel: nothing more comes on it."""
    target = desk()
    source, sink = opened(target, Role(), Role())
    target.source = sink if is_own else source
    target.send(sink, b"x" * (HIGH + 1), is_last=is_last)
    _, *rest = taken(target)
    assert rest == ([] if is_own and is_last else [Pause(channel=target.source)])


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("size", [HIGH, HIGH + 1])
def test_parts_that_are_passed_on_hold_back_whose_they_are(size: int, ends: bool) -> None:
    """The first with the size of the whole; the channel is ending from then on. What ends with this is not paused."""
    target = desk()
    source, sink = opened(target, Role(), Role())
    target.source, target.ends_source = source, ends
    assert target.pass_on(sink, (b"x" * 10, b"y"), 500) is True
    assert not target.is_open(sink)
    assert target.pass_on(sink, (b"z" * (size - 11),)) is True
    assert target.unsent_bytes(sink) == size
    expected: list[Any] = [Pass(sink, (b"x" * 10, b"y"), 500), Pass(sink, (b"z" * (size - 11),), 0)]
    if size > HIGH and not ends:
        expected.append(Pause(channel=source))
    assert taken(target) == expected


def test_whoever_waits_for_room_goes_on_once_when_most_was_taken() -> None:
    """At the lower bound; only who found it full waits, and the end of the channel calls nobody."""
    target = desk()
    one, two = opened(target, Role(), Role())
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


def test_more_than_was_sent_cannot_have_left() -> None:
    target = desk()
    (channel,) = opened(target, Role())
    target.send(channel, b"abc")
    with pytest.raises(LocalProtocolError, match=f"channel {channel} reports more"):
        target.receive_sent(channel, 4)
    assert target.unsent_bytes(channel) == 3
    target.receive_sent(channel, 3)
    assert target.unsent_bytes(channel) == 0
