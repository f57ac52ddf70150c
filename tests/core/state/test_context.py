"""Flow control: a source that fills a channel is paused once, and resumed once when the channel drains or closes."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from isthmus.core.base.effects import Close, Dial, Effect, Listen, Pause, Resume, Send
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.state.context import ChannelRole, Context

HIGH: Final = 100
LOW: Final = 40
PLAN = Plan(servers=(ServerPlan(id="files", kind=Kind.PIPE),))


def context() -> Context:
    limits = Limits(outbox_high_bytes=HIGH, outbox_low_bytes=LOW)
    return Context(PLAN, entropy=bytes, unix_at_zero=1000.0, limits=limits)


def opened(target: Context, count: int) -> list[ChannelId]:
    channels = [target.new_channel() for _ in range(count)]
    for channel in channels:
        target.register(channel, ChannelRole())
    return channels


def taken(target: Context) -> list[Effect]:
    """Effects ordered since the last call, without messages."""
    out, target.out = target.out, []
    return [effect for effect in out if not isinstance(effect, Send)]


# --- One sink, one source -------------------------------------------------------------------------------------------


def test_a_full_channel_pauses_its_source_until_it_is_low() -> None:
    """More than the high mark pauses, the low mark or less resumes, and neither is ordered twice."""
    target = context()
    source, sink = opened(target, 2)
    target.source = source
    target.send(sink, b"x" * HIGH)
    assert taken(target) == []
    target.send(sink, b"x")
    assert taken(target) == [Pause(channel=source)]
    target.send(sink, b"x" * HIGH)
    assert taken(target) == []
    target.receive_sent(sink, HIGH)
    target.receive_sent(sink, HIGH - LOW)
    assert taken(target) == []
    target.receive_sent(sink, 1)
    assert taken(target) == [Resume(channel=source)]
    target.receive_sent(sink, LOW)
    assert taken(target) == []


def test_a_source_waits_for_every_channel_it_filled() -> None:
    """The first full channel pauses the source, and the last one that drains resumes it."""
    target = context()
    source, one, two = opened(target, 3)
    target.source = source
    target.send(one, b"x" * (HIGH + 1))
    target.send(two, b"x" * (HIGH + 1))
    assert taken(target) == [Pause(channel=source)]
    target.receive_sent(one, HIGH + 1)
    assert taken(target) == []
    target.receive_sent(two, HIGH + 1)
    assert taken(target) == [Resume(channel=source)]


def test_every_source_that_fills_a_channel_is_paused() -> None:
    """A second source that sends into a full channel is paused as well."""
    target = context()
    first, second, sink = opened(target, 3)
    for source in (first, second, first):
        target.source = source
        target.send(sink, b"x" * (HIGH + 1))
    assert taken(target) == [Pause(channel=first), Pause(channel=second)]
    target.release(sink)
    assert taken(target) == [Resume(channel=first), Resume(channel=second)]


def test_a_source_that_is_gone_is_not_resumed() -> None:
    """A closed source gets no `Resume`, and the channel's next source is paused by its own message."""
    target = context()
    source, other, sink = opened(target, 3)
    target.source = source
    target.send(sink, b"x" * (HIGH + 1))
    target.release(source)
    taken(target)
    target.source = other
    target.send(sink, b"x")
    assert taken(target) == [Pause(channel=other)]
    target.receive_sent(sink, HIGH + 2)
    assert taken(target) == [Resume(channel=other)]


def test_a_deadline_pauses_no_channel() -> None:
    """A message that a deadline sends pauses no channel."""
    target = context()
    (channel,) = opened(target, 1)
    target.source = None
    target.send(channel, b"x" * (HIGH + 1))
    assert taken(target) == []


def test_a_peer_that_reads_no_responses_is_paused() -> None:
    """A peer that sends requests and reads no responses fills its own channel, and is paused."""
    target = context()
    (channel,) = opened(target, 1)
    target.source = channel
    target.send(channel, b"x" * (HIGH + 1))
    assert taken(target) == [Pause(channel=channel)]
    target.receive_sent(channel, HIGH + 1)
    assert taken(target) == [Resume(channel=channel)]


def test_a_channel_that_takes_too_much_holds_its_source_back_until_it_is_gone() -> None:
    target = context()
    source, sink = opened(target, 2)
    target.source = source
    target.hold_back(sink)
    assert taken(target) == [Pause(channel=source)]
    target.release(sink)
    assert taken(target) == [Resume(channel=source)]


def test_a_closed_channel_still_drains() -> None:
    """Messages ordered before the end are delivered, and keep their source paused until then."""
    target = context()
    source, sink = opened(target, 2)
    target.source = source
    target.send(sink, b"x" * (HIGH + 1))
    target.close(sink)
    target.close(sink)
    assert taken(target) == [Pause(channel=source), Close(channel=sink)]
    assert not target.send(sink, b"late")
    target.receive_sent(sink, HIGH + 1)
    assert taken(target) == [Resume(channel=source)]


def test_more_sent_than_ordered_is_refused() -> None:
    """The caller's mistake raises, and leaves the state as it was."""
    target = context()
    source, sink = opened(target, 2)
    target.source = source
    target.send(sink, b"x" * (HIGH + 1))
    taken(target)
    with pytest.raises(LocalProtocolError):
        target.receive_sent(sink, HIGH + 2)
    assert taken(target) == []
    target.receive_sent(sink, HIGH + 1)
    assert taken(target) == [Resume(channel=source)]


# --- The channel table ----------------------------------------------------------------------------------------------


def test_channels_are_registered_once_and_only_as_numbered() -> None:
    """A number that was not given out, or is open, is the caller's mistake."""
    target = context()
    (channel,) = opened(target, 1)
    for wrong in (channel, ChannelId(channel + 1)):
        with pytest.raises(LocalProtocolError):
            target.register(wrong, ChannelRole())
    assert [found for found, _ in target.channels()] == [channel]


def test_a_dialled_channel_has_a_number_of_its_own() -> None:
    target = context()
    role = ChannelRole()
    (downstream,) = opened(target, 1)
    upstream = target.dial(role, Listen(server="files"))
    assert upstream != downstream
    assert target.out == [Dial(channel=upstream, target=Listen(server="files"))]
    assert target.role_of(upstream) is role
    assert target.release(upstream) is role
    assert target.release(upstream) is None
    assert target.role_of(upstream) is None
    assert target.new_channel() not in (upstream, downstream)


def test_after_the_last_message_nothing_follows() -> None:
    """No message and no `Close` follows the last message."""
    target = context()
    (channel,) = opened(target, 1)
    assert target.is_open(channel)
    assert target.send(channel, b"{}", is_last=True, status=404, session="s")
    assert not target.is_open(channel)
    assert not target.send(channel, b"{}")
    target.close(channel)
    assert target.out == [Send(channel=channel, message=b"{}", is_last=True, status=404, session="s")]


def test_an_absent_channel_gets_no_orders() -> None:
    """A channel that is gone, or never was, gets no order and raises no error."""
    target = context()
    (channel,) = opened(target, 1)
    target.release(channel)
    for absent in (channel, ChannelId(99)):
        assert not target.send(absent, b"{}")
        assert not target.is_open(absent)
        target.close(absent)
    target.receive_sent(channel, 5)
    target.close(None)
    assert not target.is_open(None)
    assert target.out == []


def test_wall_time_runs_with_the_clock() -> None:
    target = context()
    target.now = 7.5
    assert target.now_unix == 1007.5


# --- The context against a model ------------------------------------------------------------------------------------


class AgainstAModel(RuleBasedStateMachine):
    """The model holds what every channel has unsent and who filled it, and derives who must be paused from that."""

    def __init__(self) -> None:
        super().__init__()
        self.context = context()
        self.unsent: dict[ChannelId, int] = {}
        self.filled_by: dict[ChannelId, set[ChannelId]] = {}
        self.ending: set[ChannelId] = set()
        self.paused: set[ChannelId] = set()

    def carry_out(self) -> None:
        """Applies the context's orders: each at most once, and only where it changes something."""
        for effect in taken(self.context):
            if isinstance(effect, Pause):
                assert effect.channel not in self.paused
                assert effect.channel in self.unsent
                self.paused.add(effect.channel)
            elif isinstance(effect, Resume):
                assert effect.channel in self.paused
                self.paused.remove(effect.channel)

    def pick(self, data: st.DataObject) -> ChannelId:
        return data.draw(st.sampled_from(sorted(self.unsent)))

    @precondition(lambda self: len(self.unsent) < 5)
    @rule()
    def open(self) -> None:
        (channel,) = opened(self.context, 1)
        self.unsent[channel] = 0
        self.filled_by[channel] = set()

    @precondition(lambda self: self.unsent)
    @rule(data=st.data(), size=st.integers(1, 2 * HIGH), is_last=st.booleans(), is_from_peer=st.booleans())
    def send(self, data: st.DataObject, size: int, is_last: bool, is_from_peer: bool) -> None:
        sink = self.pick(data)
        source = self.pick(data) if is_from_peer else None
        self.context.source = source
        is_last = is_last and size < 20
        was_sent = self.context.send(sink, b"x" * size, is_last=is_last)
        assert was_sent == (sink not in self.ending)
        if was_sent:
            self.unsent[sink] += size
            if is_last:
                self.ending.add(sink)
            # A peer that got its last message sends nothing more on that channel.
            if self.unsent[sink] > HIGH and source is not None and not (is_last and source == sink):
                self.filled_by[sink].add(source)
        self.carry_out()

    @precondition(lambda self: any(self.unsent.values()))
    @rule(data=st.data())
    def drain(self, data: st.DataObject) -> None:
        sink = data.draw(st.sampled_from([channel for channel, size in sorted(self.unsent.items()) if size]))
        size = data.draw(st.integers(1, self.unsent[sink]) | st.just(self.unsent[sink]))
        self.context.receive_sent(sink, size)
        self.unsent[sink] -= size
        if self.unsent[sink] <= LOW:
            self.filled_by[sink].clear()
        self.carry_out()

    @precondition(lambda self: self.unsent)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        channel = self.pick(data)
        self.context.close(channel)
        self.ending.add(channel)
        self.carry_out()

    @precondition(lambda self: self.unsent)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        channel = self.pick(data)
        self.context.release(channel)
        del self.unsent[channel]
        del self.filled_by[channel]
        for sources in self.filled_by.values():
            sources.discard(channel)
        self.carry_out()
        self.ending.discard(channel)
        self.paused.discard(channel)

    @invariant()
    def exactly_the_sources_of_full_channels_are_paused(self) -> None:
        owed = set().union(*self.filled_by.values()) if self.filled_by else set()
        assert self.paused == owed

    @invariant()
    def no_source_is_paused_without_reason(self) -> None:
        if all(size <= LOW for size in self.unsent.values()):
            assert not self.paused


TestAgainstAModel = AgainstAModel.TestCase
TestAgainstAModel.settings = settings(max_examples=60, stateful_step_count=40)


def test_a_message_is_cut_only_on_a_channel_that_exists() -> None:
    """A channel whose last message has begun is closed in the middle of it; an absent channel gets no order."""
    target = context()
    (channel,) = opened(target, 1)
    assert target.pass_on(channel, (b"ab",), 5)
    target.close(channel, reason="not twice")
    target.cut(channel, "broken off")
    assert taken(target)[1:] == [Close(channel=channel, reason="broken off")]
    target.release(channel)
    target.cut(channel, "it is gone")
    target.cut(ChannelId(99), "it never was")
    assert taken(target) == []
