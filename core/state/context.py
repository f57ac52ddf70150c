"""The context that all parts of the engine share: the channel table, flow control, timers, tickets and the list of
effects.

Flow control: every message sent is counted against its channel until the driver reports that it left. While a channel
holds more than `outbox_high_bytes`, the channels that feed it are paused. Below `outbox_low_bytes`, or when the full
channel is gone, they are resumed. A channel that feeds several sessions is not paused, since one client that reads
nothing must not hold up the others; the full channel is closed once it holds more than `outbox_max_bytes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from ..base.budget import Budget
from ..base.effects import Close, Dial, Effect, Forward, Note, Pass, Pause, Resume, Send, SendEvents, Target
from ..base.errors import LocalProtocolError
from ..base.events import Headers
from ..base.ids import ChannelId, Entropy, Ticket, mint
from ..base.limits import Limits
from ..base.plan import Plan, ServerPlan
from ..base.replica import tag_of
from ..base.timers import Timers
from ..tracing.sampling import Sampler
from ..tracing.trace import Tracer

TimerKey = tuple[str, object]
"""A timer's purpose, and the object it is for."""


_NO_FEEDERS: Final[frozenset[ChannelId]] = frozenset()


class ChannelRole:
    """The purpose of a channel, and the state of its outbox. Each part of the engine has its own subclasses.

    Attributes:
        channel: its number, if the engine has dialled it.
        unsent_bytes: bytes of the messages that have not left yet.
        is_ending: nothing more can be sent.
        is_cut: it was closed because its peer takes too little, and what is unsent does not count any more.
        may_be_cut: its peer is a client that may be cut off for that.
        feeders: the channels that are paused because this one is full.
        then: a callback for when most of the outbox has left.
        trace_context: of a client's channel, the `PostOpening.trace_context` of the latest HTTP request.
    """

    # Most channels carry one message, and few are ever full: class attributes hold the usual values, to save memory.
    channel: ChannelId | None = None
    unsent_bytes: int = 0
    is_ending: bool = False
    is_cut: bool = False
    may_be_cut: bool = False
    feeders: set[ChannelId] | frozenset[ChannelId] = _NO_FEEDERS
    then: Callable[[], None] | None = None
    trace_context: Headers = ()

    @property
    def feeds_many(self) -> bool:
        """True if messages from this channel may be for any of several sessions. Such a channel is never paused."""
        return False


class Context:
    """The shared state of one engine.

    Attributes:
        now: the time of the current input, in seconds on the driver's monotonic clock.
        out: the effects of the current input so far, in order.
        source: the channel that the current input came on, if that channel may be paused.
        ends_source: the current input is known to be the last on `source`.
        unix_at_zero: wall time, in seconds since 1970, at which `now` was 0.
        servers: the servers by id.
        endpoints: the servers that clients reach at each endpoint, by the id of its server or profile.
        last_channel: the last number that was given out.
        unopened: the channels that have a number, and that the driver has not reported as open or over yet.
        memory: the bytes that sessions keep of messages.
        tracer: begins the traces of requests; None if the plan has no tracing.
    """

    def __init__(self, plan: Plan, *, entropy: Entropy, unix_at_zero: float, limits: Limits) -> None:
        self.plan = plan
        self.limits = limits
        self.entropy = entropy
        self.servers: dict[str, ServerPlan] = {server.id: server for server in plan.servers}
        self.endpoints = {id: frozenset((id,)) for id in self.servers}
        self.endpoints |= {one.id: frozenset(server.id for server in one.servers) for one in plan.profiles}
        self.timers: Timers[TimerKey] = Timers()
        self.now = float("-inf")
        self.out: list[Effect] = []
        self.source: ChannelId | None = None
        self.ends_source = False
        self.is_draining = False
        self.unix_at_zero = unix_at_zero
        self.unopened: set[ChannelId] = set()
        self.memory = Budget(limits.memory_max_bytes, limits.owner_memory_max_bytes)
        self.tracer = None if plan.tracing is None else Tracer(plan.tracing, Sampler(plan.tracing, entropy))
        self._unsent_bytes = 0
        self._channels: dict[ChannelId, ChannelRole] = {}
        self._paused: dict[ChannelId, int] = {}
        self.last_channel = 0
        self._last_ticket = 0

    # --- Inputs -------------------------------------------------------------------------------------------------

    def begin(self, now: float, source: ChannelId | None, *, ends_source: bool = False) -> list[Effect]:
        """Begins an input. Returns the list of its effects, to which all that follows is added.

        Args:
            source: the channel that it came on, if that may be paused.
            ends_source: it is the last on that channel.

        Raises:
            LocalProtocolError: time runs backwards. Nothing has changed.
        """
        if not now >= self.now:  # NaN is refused, too
            raise LocalProtocolError(f"time runs backwards: {now} after {self.now}")
        self.now = now
        self.source = source
        self.ends_source = ends_source
        self.out = []
        return self.out

    def end_source(self) -> None:
        """Marks what follows in this input as caused by no channel."""
        self.source = None
        self.ends_source = False

    def drain(self) -> None:
        """Refuses new work from now on."""
        self.is_draining = True

    # --- Names --------------------------------------------------------------------------------------------------

    @property
    def now_unix(self) -> float:
        """The wall time, in seconds since 1970."""
        return self.unix_at_zero + self.now

    def mint(self) -> str:
        """Returns a fresh unguessable name."""
        return mint(self.entropy)

    def mint_tagged(self) -> str:
        """Returns a fresh unguessable name of something that lives in this replica."""
        replica = self.plan.replica
        return self.mint() if replica is None else f"{replica.tag}.{self.mint()}"

    def new_channel(self) -> ChannelId:
        """Returns a channel number that was never used."""
        self.last_channel += 1
        channel = ChannelId(self.last_channel)
        self.unopened.add(channel)
        return channel

    def new_ticket(self) -> Ticket:
        """Returns a ticket that was never used."""
        self._last_ticket += 1
        return Ticket(self._last_ticket)

    def order(self, effect: Effect) -> None:
        """Adds an effect."""
        self.out.append(effect)

    def note(self, level: str, text: str, server: str = "", *, is_audit: bool = False) -> None:
        """Orders a log note. `text` must hold no secrets or payloads."""
        self.out.append(Note(level=level, text=text, server=server, is_audit=is_audit))

    # --- Channels -----------------------------------------------------------------------------------------------

    def register(self, channel: ChannelId, role: ChannelRole) -> None:
        """Puts a channel that the driver opened into the table.

        Raises:
            LocalProtocolError: the number was not given out by `new_channel`, or is in use.
        """
        if channel in self._channels or channel not in self.unopened:
            seen = "is open already" if channel in self._channels else "is over, or was never given out"
            raise LocalProtocolError(f"channel {channel} {seen}, expected a number from new_channel")
        self.unopened.discard(channel)
        self._channels[channel] = role

    def dial(self, role: ChannelRole, target: Target) -> ChannelId:
        """Orders a channel to a server, and puts it into the table at once."""
        self.last_channel += 1
        channel = role.channel = ChannelId(self.last_channel)
        self._channels[channel] = role
        self.unopened.add(channel)
        self.out.append(Dial(channel=channel, target=target))
        return channel

    def receive_connected(self, channel: ChannelId) -> ChannelRole | None:
        """Handles that a channel to a server is open. Returns its role; None if the channel is gone."""
        found = self._channels.get(channel)
        if found is not None:
            self.unopened.discard(channel)
        return found

    def check_was_open(self, channel: ChannelId, what: str) -> None:
        """Checks that a channel is open or was. What comes late on a channel that is over crossed its end.

        Args:
            what: the input, for people.

        Raises:
            LocalProtocolError: the driver has not reported the channel as open.
        """
        if channel in self.unopened:
            first = "a Connected" if channel in self._channels else "an opening"
            raise LocalProtocolError(f"got {what} on channel {channel}, expected receive_open with {first} before")
        if not 0 < channel <= self.last_channel:
            raise LocalProtocolError(f"got {what} on channel {channel}, which was never given out")

    def assign(self, channel: ChannelId, role: ChannelRole) -> None:
        """Gives an open channel another role. The new role takes over the outbox."""
        before = self._channels[channel]
        role.unsent_bytes, role.is_ending = before.unsent_bytes, before.is_ending
        role.feeders, role.then, role.is_cut = before.feeders, before.then, before.is_cut
        self._channels[channel] = role

    def role_of(self, channel: ChannelId) -> ChannelRole | None:
        """Returns the role of a channel; None if the channel is gone."""
        return self._channels.get(channel)

    def address_of(self, channel: ChannelId) -> str:
        """Returns the address of the client of a channel, as its opening has it; "" if there is none."""
        opening = getattr(self.role_of(channel), "opening", None)
        return getattr(opening, "address", "")

    def role_if_open(self, channel: ChannelId) -> ChannelRole | None:
        """Returns the role of a channel to which something can still be sent; else None."""
        found = self._channels.get(channel)
        return None if found is None or found.is_ending else found

    def is_open(self, channel: ChannelId | None) -> bool:
        """True if something can still be sent to the channel."""
        found = None if channel is None else self._channels.get(channel)
        return found is not None and not found.is_ending

    def unsent_bytes(self, channel: ChannelId | None) -> int:
        """Returns the number of bytes that were sent to the channel and have not left yet."""
        found = None if channel is None else self._channels.get(channel)
        return 0 if found is None else found.unsent_bytes

    def release(self, channel: ChannelId) -> ChannelRole | None:
        """Removes a channel that is gone, and resumes its feeders. Returns its role; None if it was gone before."""
        found = self._channels.pop(channel, None)
        self.unopened.discard(channel)
        if found is None:
            return None
        if not found.is_cut:
            self._unsent_bytes -= found.unsent_bytes
        if found.feeders:
            self._resume_feeders(found)
        if self._paused.pop(channel, 0):
            for other in self._channels.values():
                other.feeders -= {channel}
        return found

    def channels(self) -> list[tuple[ChannelId, ChannelRole]]:
        """Returns all channels, oldest first."""
        return list(self._channels.items())

    def send(
        self,
        channel: ChannelId,
        message: bytes,
        *,
        is_last: bool = False,
        status: int = 200,
        session: str | None = None,
        event: str = "message",
        event_id: str | None = None,
        retry_ms: int | None = None,
        challenge: str = "",
        headers: Headers = (),
    ) -> bool:
        """Orders one message. Returns False, and orders nothing, if the channel is gone or ending."""
        found = self._channels.get(channel)
        if found is None or found.is_ending:
            return False
        self.out.append(Send(channel, message, is_last, status, session, event, event_id, retry_ms, challenge, headers))
        found.is_ending = is_last
        held_bytes = found.unsent_bytes
        # The last message on the channel that caused it needs no pause: nothing follows it there.
        found.unsent_bytes += len(message)
        self._unsent_bytes += len(message)
        if found.unsent_bytes > self.limits.outbox_high_bytes and not (is_last and self.source == channel):
            self._receive_full(found, channel, held_bytes)
        return True

    def forward(self, channel: ChannelId, name: str, *, is_returned: bool) -> bool:
        """True if `name` is that of something in another replica: it then answers the request of the channel.

        Args:
            is_returned: it could not be reached.
        """
        own = self.plan.replica
        if own is None or is_returned:
            return False
        tag, found = tag_of(name), self._channels.get(channel)
        if not tag or tag == own.tag or found is None or found.is_ending:
            return False
        self.out.append(Forward(channel, tag))
        found.is_ending = True
        return True

    def send_events(
        self, channel: ChannelId, messages: tuple[bytes, ...], event_ids: tuple[str, ...], size_bytes: int
    ) -> bool:
        """Orders several messages, `size_bytes` together, on an HTTP reply that goes on. Returns False, and orders
        nothing, if the channel is gone or ending."""
        found = self._channels.get(channel)
        if found is None or found.is_ending:
            return False
        self.out.append(SendEvents(channel, messages, event_ids))
        held_bytes = found.unsent_bytes
        found.unsent_bytes += size_bytes
        self._unsent_bytes += size_bytes
        if found.unsent_bytes > self.limits.outbox_high_bytes:
            self._receive_full(found, channel, held_bytes)
        return True

    def _receive_full(self, full: ChannelRole, channel: ChannelId, held_bytes: int) -> None:
        """Handles a channel over its limit: pauses the source, or, if the source feeds many sessions, closes a channel
        that held too much (`held_bytes`) before this message."""
        role = None if self.source is None else self.role_of(self.source)
        if role is None or not role.feeds_many:
            self._hold_back(full, channel)
        elif held_bytes > self.limits.outbox_max_bytes:
            self.close(channel, reason="too much waits to be read")
        self._relieve()

    def _relieve(self) -> None:
        """Cuts off the clients with the most unsent bytes, while all channels together have more than they may."""
        while self._unsent_bytes > self.limits.outboxes_max_bytes:
            left = [pair for pair in self._channels.items() if pair[1].may_be_cut and not pair[1].is_cut]
            channel, fullest = max(left, key=lambda pair: pair[1].unsent_bytes, default=(None, ChannelRole()))
            if channel is None or not fullest.unsent_bytes:
                return
            fullest.is_ending = fullest.is_cut = True
            self._unsent_bytes -= fullest.unsent_bytes
            self.out.append(Close(channel=channel, reason="too much waits to be read", drops=True))
            self.note("warning", f"a channel is closed whose peer left {fullest.unsent_bytes} bytes unread")

    def pass_on(self, channel: ChannelId, pieces: tuple[bytes, ...], size_bytes: int = 0) -> bool:
        """Orders a part of the last message of a channel. Returns False, and orders nothing, if the channel is gone.

        Args:
            size_bytes: size of the whole message, given with its first part only: the channel is ending from then on.
        """
        found = self._channels.get(channel)
        if found is None:
            return False
        assert found.is_ending is not bool(size_bytes)
        self.out.append(Pass(channel, pieces, size_bytes))
        found.is_ending = True
        more_bytes = sum(map(len, pieces))
        found.unsent_bytes += more_bytes
        if not found.is_cut:
            self._unsent_bytes += more_bytes
        if found.unsent_bytes > self.limits.outbox_high_bytes and not self.ends_source:
            self._hold_back(found, channel)
            self._relieve()
        return True

    def cut(self, channel: ChannelId, reason: str) -> None:
        """Orders the end of a channel in the middle of its last message."""
        if channel in self._channels:
            self.out.append(Close(channel=channel, reason=reason))

    def refuse(self, channel: ChannelId, status: int, body: dict[str, object], headers: Headers = ()) -> None:
        """Answers an HTTP request outside the protocol with a status and a JSON body."""
        self.send(channel, msgspec.json.encode(body), is_last=True, status=status, headers=headers)

    def close(self, channel: ChannelId | None, *, status: int = 202, reason: str = "", code: int = 1000) -> None:
        """Orders the end of a channel, unless that was ordered before."""
        found = None if channel is None else self._channels.get(channel)
        if channel is None or found is None or found.is_ending:
            return
        found.is_ending = True
        self.out.append(Close(channel=channel, status=status, reason=reason, code=code))

    # --- Flow control -------------------------------------------------------------------------------------------

    def receive_sent(self, channel: ChannelId, size_bytes: int) -> None:
        """Handles the report that `size_bytes` left a channel: resumes its feeders and runs its callback if few bytes
        are left.

        Raises:
            LocalProtocolError: more bytes are reported than were ordered, or the channel was never open.
        """
        found = self._channels.get(channel)
        if found is None:
            if channel in self.unopened or not 0 < channel <= self.last_channel:
                self.check_was_open(channel, "receive_sent")
            return
        if not 0 <= size_bytes <= found.unsent_bytes:
            self.check_sent(channel, size_bytes)
        found.unsent_bytes -= size_bytes
        if not found.is_cut:
            self._unsent_bytes -= size_bytes
        if found.unsent_bytes > self.limits.outbox_low_bytes:
            return
        if found.feeders:
            self._resume_feeders(found)
        if found.then is not None:
            then, found.then = found.then, None
            then()

    def check_sent(self, channel: ChannelId, size_bytes: int) -> None:
        """Checks that no more bytes are reported than were ordered.

        Raises:
            LocalProtocolError: more are, or less than none.
        """
        found = self._channels.get(channel)
        ordered_bytes = 0 if found is None else found.unsent_bytes
        if not 0 <= size_bytes <= ordered_bytes:
            seen = f"got {size_bytes} bytes as sent on channel {channel}"
            raise LocalProtocolError(
                f"{seen}, expected at most the {ordered_bytes} that were ordered and have not left"
            )

    def when_taken(self, channel: ChannelId, then: Callable[[], None]) -> bool:
        """True if more can be sent to a channel at once. If not, `then` is called when most of its outbox has left,
        unless the channel ends before."""
        found = self._channels.get(channel)
        if found is None or found.is_ending or found.unsent_bytes <= self.limits.outbox_high_bytes:
            return True
        found.then = then
        return False

    def hold_back(self, channel: ChannelId) -> None:
        """Pauses the source of the current input until `channel`, which took too much of it, is gone."""
        self._hold_back(self._channels[channel], channel)

    def _hold_back(self, full: ChannelRole, channel: ChannelId) -> None:
        source = self.source
        if source is None or source in full.feeders or source not in self._channels:
            return
        full.feeders |= {source}
        count = self._paused.get(source, 0)
        self._paused[source] = count + 1
        if count == 0:
            self.out.append(Pause(channel=source))

    def _resume_feeders(self, drained: ChannelRole) -> None:
        for source in sorted(drained.feeders):
            count = self._paused.get(source, 0)
            if count > 1:
                self._paused[source] = count - 1
            elif count == 1:
                del self._paused[source]
                if source in self._channels:
                    self.out.append(Resume(channel=source))
        drained.feeders = _NO_FEEDERS
