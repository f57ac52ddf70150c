"""What the parts of the engine share: the channel table, flow control, timers, tickets and the list of effects.

Flow control: every message sent is counted against its channel until the driver says that it left. While a channel
holds more than `outbox_high_bytes`, whatever feeds it is paused; below `outbox_low_bytes`, or when it is gone, that is
resumed. What feeds several sessions is not paused, for one that takes nothing must not hold up the others: such a
channel is closed once it holds more than `outbox_max_bytes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from ..base.effects import Close, Dial, Effect, Headers, Note, Pass, Pause, Resume, Send, SendEvents, Target
from ..base.errors import LocalProtocolError
from ..base.ids import ChannelId, Entropy, Ticket, mint
from ..base.limits import Limits
from ..base.plan import Plan, ServerPlan
from ..base.timers import Timers

TimerKey = tuple[str, object]
"""(purpose, whose)."""


_NOBODY: Final[frozenset[ChannelId]] = frozenset()


class Role:
    """What a channel is for, each part of the engine having its own; and what is on its way there.

    Attributes:
        unsent_bytes: of messages that have not left yet.
        is_ending: nothing more can be sent.
        feeders: the channels that are paused because this one is full.
        then: what goes on when most of it was taken.
    """

    # Most channels carry one message, and few are ever full: what is usual is the class's.
    unsent_bytes: int = 0
    is_ending: bool = False
    feeders: set[ChannelId] | frozenset[ChannelId] = _NOBODY
    then: Callable[[], None] | None = None

    @property
    def feeds_many(self) -> bool:
        """Whether what comes on it may be for any of several sessions."""
        return False


class Desk:
    """Shared by reference; only the engine's public methods set `now`, `source` and `out`.

    Attributes:
        source: the channel that this input came on, if it may be held back.
        ends_source: it is known to end with this input.
    """

    def __init__(self, plan: Plan, *, entropy: Entropy, unix_at_zero: float, limits: Limits) -> None:
        self.plan = plan
        self.limits = limits
        self.entropy = entropy
        self.servers: dict[str, ServerPlan] = {server.id: server for server in plan.servers}
        self.timers: Timers[TimerKey] = Timers()
        self.now = float("-inf")
        self.out: list[Effect] = []
        self.source: ChannelId | None = None
        self.ends_source = False
        self.is_draining = False
        self.unix_at_zero = unix_at_zero
        self._channels: dict[ChannelId, Role] = {}
        self._paused: dict[ChannelId, int] = {}
        self._last_channel = 0
        self._last_ticket = 0

    @property
    def now_unix(self) -> float:
        return self.unix_at_zero + self.now

    def mint(self) -> str:
        return mint(self.entropy)

    def new_channel(self) -> ChannelId:
        self._last_channel += 1
        return ChannelId(self._last_channel)

    def new_ticket(self) -> Ticket:
        self._last_ticket += 1
        return Ticket(self._last_ticket)

    def order(self, effect: Effect) -> None:
        self.out.append(effect)

    def note(self, level: str, text: str, server: str = "") -> None:
        self.out.append(Note(level=level, text=text, server=server))

    # --- Channels -----------------------------------------------------------------------------------------------

    def register(self, channel: ChannelId, role: Role) -> None:
        if channel in self._channels or channel > self._last_channel:
            raise LocalProtocolError(f"channel {channel} was not given out by new_channel, or is open already")
        self._channels[channel] = role

    def dial(self, role: Role, target: Target) -> ChannelId:
        self._last_channel += 1
        channel = ChannelId(self._last_channel)
        self._channels[channel] = role
        self.out.append(Dial(channel=channel, target=target))
        return channel

    def assign(self, channel: ChannelId, role: Role) -> None:
        """The channel is for something else from now on."""
        before = self._channels[channel]
        role.unsent_bytes, role.is_ending = before.unsent_bytes, before.is_ending
        role.feeders, role.then = before.feeders, before.then
        self._channels[channel] = role

    def role_of(self, channel: ChannelId) -> Role | None:
        return self._channels.get(channel)

    def role_if_open(self, channel: ChannelId) -> Role | None:
        """The same, of a channel where something can still be sent."""
        found = self._channels.get(channel)
        return None if found is None or found.is_ending else found

    def is_open(self, channel: ChannelId | None) -> bool:
        """Whether something can still be sent there."""
        found = None if channel is None else self._channels.get(channel)
        return found is not None and not found.is_ending

    def unsent_bytes(self, channel: ChannelId | None) -> int:
        """How much was sent there that has not left yet."""
        found = None if channel is None else self._channels.get(channel)
        return 0 if found is None else found.unsent_bytes

    def release(self, channel: ChannelId) -> Role | None:
        """The channel is gone. Returns what it was for."""
        found = self._channels.pop(channel, None)
        if found is None:
            return None
        if found.feeders:
            self._feed_again(found)
        if self._paused.pop(channel, 0):
            for other in self._channels.values():
                other.feeders -= {channel}
        return found

    def channels(self) -> list[tuple[ChannelId, Role]]:
        """All open ones, oldest first."""
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
        """Order one message. False if the channel is gone or ending: nothing is ordered then."""
        found = self._channels.get(channel)
        if found is None or found.is_ending:
            return False
        self.out.append(Send(channel, message, is_last, status, session, event, event_id, retry_ms, challenge, headers))
        found.is_ending = is_last
        held_bytes = found.unsent_bytes
        found.unsent_bytes += len(message)
        if found.unsent_bytes > self.limits.outbox_high_bytes and not (is_last and self.source == channel):
            self._receive_full(found, channel, held_bytes)
        return True

    def send_events(
        self, channel: ChannelId, messages: tuple[bytes, ...], event_ids: tuple[str, ...], size_bytes: int
    ) -> bool:
        """Order several messages, `size_bytes` together, on an HTTP reply that goes on. False as `send` says it."""
        found = self._channels.get(channel)
        if found is None or found.is_ending:
            return False
        self.out.append(SendEvents(channel, messages, event_ids))
        held_bytes = found.unsent_bytes
        found.unsent_bytes += size_bytes
        if found.unsent_bytes > self.limits.outbox_high_bytes:
            self._receive_full(found, channel, held_bytes)
        return True

    def _receive_full(self, full: Role, channel: ChannelId, held_bytes: int) -> None:
        """More waits to leave on a channel than should; so much did before."""
        role = None if self.source is None else self.role_of(self.source)
        if role is None or not role.feeds_many:
            self._hold_back(full, channel)
        elif held_bytes > self.limits.outbox_max_bytes:
            self.close(channel, reason="too much waits to be read")

    def pass_on(self, channel: ChannelId, pieces: tuple[bytes, ...], size_bytes: int = 0) -> bool:
        """Order a part of the last message of a channel. False if the channel is gone: nothing is ordered then.

        Args:
            size_bytes: of the whole message, with its first part: the channel is ending from then on.
        """
        found = self._channels.get(channel)
        if found is None:
            return False
        assert found.is_ending is not bool(size_bytes)
        self.out.append(Pass(channel, pieces, size_bytes))
        found.is_ending = True
        found.unsent_bytes += sum(map(len, pieces))
        if found.unsent_bytes > self.limits.outbox_high_bytes and not self.ends_source:
            self._hold_back(found, channel)
        return True

    def cut(self, channel: ChannelId, reason: str) -> None:
        """Order the end of a channel in the midst of its last message."""
        if channel in self._channels:
            self.out.append(Close(channel=channel, reason=reason))

    def refuse(self, channel: ChannelId, status: int, body: dict[str, object], headers: Headers = ()) -> None:
        """Answer an HTTP request outside the protocol with a status and a JSON body."""
        self.send(channel, msgspec.json.encode(body), is_last=True, status=status, headers=headers)

    def close(self, channel: ChannelId | None, *, status: int = 202, reason: str = "", code: int = 1000) -> None:
        """Order the end of a channel, once."""
        found = None if channel is None else self._channels.get(channel)
        if channel is None or found is None or found.is_ending:
            return
        found.is_ending = True
        self.out.append(Close(channel=channel, status=status, reason=reason, code=code))

    # --- Flow control -------------------------------------------------------------------------------------------

    def receive_sent(self, channel: ChannelId, size_bytes: int) -> None:
        found = self._channels.get(channel)
        if found is None:
            return
        if size_bytes > found.unsent_bytes:
            raise LocalProtocolError(f"channel {channel} reports more bytes sent than were ordered")
        found.unsent_bytes -= size_bytes
        if found.unsent_bytes > self.limits.outbox_low_bytes:
            return
        if found.feeders:
            self._feed_again(found)
        if found.then is not None:
            then, found.then = found.then, None
            then()

    def when_taken(self, channel: ChannelId, then: Callable[[], None]) -> bool:
        """Whether more can be sent to a channel at once. If not, `then` is called when most was taken, unless the
        channel has ended by then."""
        found = self._channels.get(channel)
        if found is None or found.is_ending or found.unsent_bytes <= self.limits.outbox_high_bytes:
            return True
        found.then = then
        return False

    def hold_back(self, channel: ChannelId) -> None:
        """Pause whatever caused the current input until `channel`, which took too much of it, is gone."""
        self._hold_back(self._channels[channel], channel)

    def _hold_back(self, full: Role, channel: ChannelId) -> None:
        source = self.source
        if source is None or source in full.feeders or source not in self._channels:
            return
        full.feeders |= {source}
        count = self._paused.get(source, 0)
        self._paused[source] = count + 1
        if count == 0:
            self.out.append(Pause(channel=source))

    def _feed_again(self, drained: Role) -> None:
        for source in sorted(drained.feeders):
            count = self._paused.get(source, 0)
            if count > 1:
                self._paused[source] = count - 1
            elif count == 1:
                del self._paused[source]
                if source in self._channels:
                    self.out.append(Resume(channel=source))
        drained.feeders = _NOBODY
