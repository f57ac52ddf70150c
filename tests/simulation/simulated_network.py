"""One engine, a clock that jumps, and channels on which messages are delayed, held back and lost.

Every event is an entry of one queue, ordered by time and then by when it was entered. Every random choice comes from a
generator named after the part that draws, so a seed gives one history, and a part that is left out changes as little as
possible for the others.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec
from isthmus.core.base.effects import Close, Dial, Effect, Listen, Note, Pass, Pause, Resume, Send, SendEvents
from isthmus.core.base.events import Cause, End, Opening, Primed, Queued
from isthmus.core.base.ids import ChannelId, Ticket
from isthmus.core.base.storage import Forget, ForgetAll, StorageAnswer, Sweep
from isthmus.core.bulk import BulkEngine
from manners import of_peer

FAULTS: Final = (
    *("far", "stalls", "cuts", "crashes", "garbage", "rude", "late", "never", "twice", "forgets", "errors"),
    *("cancels", "leaves"),
)
"""Faults. Each world has some of them, and the others not at all:

far: messages take seconds, each channel for itself. stalls: messages are not read for a while. cuts: a channel is lost,
with the messages in flight. crashes: a server's process dies; a server over HTTP breaks all replies. garbage: servers
send text that is no message, or belongs to no request. rude: clients do the same. late, never, twice: the ways in which
servers answer. forgets: servers over HTTP forget sessions. errors: servers answer with errors. cancels: clients cancel.
leaves: clients leave in the middle, and come again.
"""

STRANGE: Final = ("sleeps", "halves", "doubles")
"""Further faults, for worlds of one process without a disk.

sleeps: the machine stands still for minutes, then everything arrives at once. halves: one direction of a channel goes
dead, until both sides find out. doubles: clients open a stream that they already have, and repeat requests on another
connection.
"""

EVENTS_MAX: Final = 200_000
"""The bound on events of one world. Many more would be an endless loop."""


def filler_of(size_chars: int) -> str:
    """Returns a text of that length in which a gap shows."""
    return ("0123456789" * (size_chars // 10 + 1))[:size_chars]


class Wrong(AssertionError):
    """Raised when the proxy breaks a rule."""


class Peer(Protocol):
    @property
    def name(self) -> str: ...
    def receive(self, channel: Channel, send: Send) -> None: ...
    def receive_end(self, channel: Channel, close: Close | None) -> None: ...


class Store(Protocol):
    def carry_out(self, order: Effect) -> bool: ...


class Channel:
    """One channel between the engine and a peer.

    Attributes:
        is_ending: the engine has ordered its end.
        is_over: the engine was told of its end.
        is_cut: messages pass in neither direction any more.
        is_left: the peer is gone, and receives nothing.
        is_mute_in, is_mute_out: nothing reaches the engine, or the peer, and neither has noticed.
        is_dialled: the channel leads to a server.
        status: the status of the reply whose last message has gone to the peer.
        event_id: the last event id that the peer has seen, or, for a server, has sent.
        linger_s: the time that its process takes to end once the engine has closed it.
        drops_line_end: the next line that the peer writes is its last, and has no end.
        rng: the generator for its delays and faults.
        home: the network of the engine that it leads to; None if it was never open.
    """

    home: Network | None = None

    def __init__(self, number: ChannelId, peer: Peer, rng: random.Random | None = None) -> None:
        self.number = number
        self.peer = peer
        self.rng = rng or random.Random(number)
        self.held: deque[tuple[Any, ...]] = deque()
        self.status = 200
        self.last_in_at = self.last_out_at = 0.0
        self.is_dialled = self.is_mute_in = self.is_mute_out = False
        self.is_paused = self.is_ending = self.is_over = self.is_cut = self.is_left = False
        self.event_id: str | None = None
        self.linger_s = 0.0
        self.drops_line_end = False

    @property
    def is_open(self) -> bool:
        """True as far as the peer can tell."""
        return not (self.is_left or self.is_over or self.is_cut)


class Network:
    """The network of a world.

    Attributes:
        faults: the faults of this world, which strike while `is_stormy`.
        manners: the manners of this world, which stay.
        history: a hash of all inputs and effects of the engine.
        counts: the number of inputs and faults, by name.
        asked: the number of requests of all clients.
        overtaken: messages of servers that arrived after the proxy had closed their channel.
        storage: carries out storage orders.
        log: called with each input and its effects, if set.
        overlapping: faults by which the next session of a client may begin before the proxy knows that the last one is
            over.
    """

    overlapping = frozenset({"far", "cuts", "halves", "sleeps", "stalls"})

    def __init__(self, rng: random.Random, faults: frozenset[str], dialled: Callable[[Channel, Dial], None]) -> None:
        self.rng, self.faults, self._dialled = rng, faults, dialled
        self._root = rng.getrandbits(64)
        self.engine: BulkEngine
        self.manners: frozenset[str] = frozenset()
        self.now = 100.0
        self.is_stormy = True
        self.channels: dict[ChannelId, Channel] = {}
        self.history = hashlib.sha256()
        self.counts: Counter[str] = Counter()
        self.storage: Store | None = None
        self.log: Callable[[str], None] | None = None
        self.messages = self.asked = 0
        self._opened: Counter[str] = Counter()
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.overtaken: list[bytes] = []
        self._entered = self._first = 0
        self._events = 0

    def rng_of(self, name: str) -> random.Random:
        """Returns the generator of that name."""
        return random.Random(f"{self._root} {name}")

    def strikes(self, fault: str, chance: float, rng: random.Random | None = None) -> bool:
        """True if the fault strikes now. Draws from `rng` whether the world has this fault or not."""
        struck = (rng or self.rng).random() < chance and self.is_stormy and fault in self.faults
        if struck:
            self.counts["fault " + fault] += 1
        return struck

    def manners_of(self, name: str) -> frozenset[str]:
        """Returns the manners of the peer of that name."""
        return of_peer(self.manners, self.rng_of(f"manners of {name}"))

    # --- Time -------------------------------------------------------------------------------------------------------

    def later(self, seconds: float, act: Callable[..., None], *given: Any) -> None:
        self._entered += 1
        heapq.heappush(self._queue, (self.now + seconds, self._entered, act, given))

    def sleep(self, seconds: float, first: int) -> None:
        """Lets the clock jump. The first `first` events that came meanwhile are handled before any deadline."""
        self.now += seconds
        self._first = first

    def run(self, seconds: float) -> None:
        """Lets that much time pass."""
        end = self.now + seconds
        while True:
            self._events += 1
            if self._events > EVENTS_MAX:
                raise Wrong(f"{EVENTS_MAX} things have happened, and more follow")
            due = self.engine.next_timeout()
            first = self._queue[0][0] if self._queue else end + 1
            is_late = self._first > 0 and first <= min(self.now, end)
            if due is not None and due.at <= min(first, end) and not is_late:
                self.now = max(self.now, due.at)
                self._take_effects("handle_timeout", self.engine.handle_timeout(self.now))
                following = self.engine.next_timeout()
                if following is not None and following.at <= self.now:
                    raise Wrong(f"a deadline that was handled is due again: {following}")
            elif first <= end:
                self._first -= self._first > 0
                at, _, act, given = heapq.heappop(self._queue)
                self.now = max(self.now, at)
                act(*given)
            else:
                self.now = max(self.now, end)
                return

    def filler(self, rng: random.Random) -> str:
        """Returns text that makes an answer longer than it needs to be."""
        return ""

    def delay(self, channel: Channel | None = None) -> float:
        rng = self.rng if channel is None else channel.rng
        if self.strikes("far", 0.3, rng):
            return rng.expovariate(0.5)
        return rng.uniform(0.001, 0.05)

    # --- Actions of peers -------------------------------------------------------------------------------------------

    def open(self, peer: Peer, opening: Opening, body: bytes | None = None) -> Channel:
        """Opens a channel of a client, with a body."""
        channel = self._new_channel(self.engine.new_channel(), peer, peer.name)
        self._send_in(channel, ("open", opening, body))
        if self.strikes("cuts", 0.1, channel.rng):
            self.later(channel.rng.expovariate(3.0), self.cut, channel)
        return channel

    def _new_channel(self, number: ChannelId, peer: Peer, name: str) -> Channel:
        self._opened[name] += 1
        channel = self.channels[number] = Channel(number, peer, self.rng_of(f"{name} {self._opened[name]}"))
        channel.home = self
        return channel

    def _queue_up(self, channel: Channel) -> None:
        """Reports that the stream waits until another one ends: the server has reached its maximum."""
        if not (channel.is_over or channel.is_ending):
            self._take_effects("Queued", self.engine.receive_open(channel.number, Queued(), self.now), channel)

    def connect(self, channel: Channel, opening: Opening) -> None:
        """Accepts a channel that the engine has dialled."""
        self._send_in(channel, ("open", opening, None))

    def say(self, channel: Channel, message: bytes) -> None:
        self._send_in(channel, ("say", message))
        if self.strikes("cuts", 0.004, channel.rng):
            self.later(channel.rng.expovariate(2.0), self.cut, channel)

    def send_many(self, channel: Channel, messages: Sequence[bytes], event_id: str | None = None) -> None:
        """Sends several messages that arrive together. The last one has that event id."""
        self._send_in(channel, ("many", messages, event_id))
        if self.strikes("cuts", 0.004, channel.rng):
            self.later(channel.rng.expovariate(2.0), self.cut, channel)

    def prime(self, channel: Channel, event_id: str) -> None:
        """Sends an event id of a server before any message."""
        self._send_in(channel, ("prime", event_id))

    def end(self, channel: Channel, cause: Cause) -> None:
        """Ends a channel from the peer's side, after its messages."""
        channel.is_left = True
        self._send_in(channel, ("end", cause))

    def cut(self, channel: Channel) -> None:
        """Cuts a channel: messages pass in neither direction any more, and both sides find out in their own time."""
        if channel.is_open:
            self._part(channel)

    def _part(self, channel: Channel) -> None:
        if channel.is_over or channel.is_cut:
            return
        channel.is_cut = True
        self.later(channel.rng.expovariate(1.0), self._report_end, channel, Cause(End.BROKEN, "cut"))
        if not channel.is_left:
            self.later(channel.rng.expovariate(1.0), channel.peer.receive_end, channel, None)

    def end_half(self, channel: Channel) -> None:
        """Ends the sending side of the peer, which keeps receiving. Its driver ends the channel once no answer is owed
        on it."""
        self._send_in(channel, ("half",))

    def _end_input(self, channel: Channel) -> None:
        """Handles the end of what a client sends, where messages have a form on the wire."""

    def _wait_answered(self, channel: Channel) -> None:
        if channel.is_over or channel.is_cut:
            return
        if self.engine.owes(channel.number):
            self.later(0.5, self._wait_answered, channel)
        else:
            self.later(max(0.0, channel.last_out_at - self.now) + 0.01, self._finish, channel, None)

    def halve(self, channel: Channel) -> None:
        """Kills one direction. After a while the other one dies too, and both sides find out."""
        if channel.rng.random() < 0.5:
            channel.is_mute_in = True
        else:
            channel.is_mute_out = True
        self.later(channel.rng.uniform(1.0, 30.0), self._part, channel)

    def _send_in(self, channel: Channel, item: tuple[Any, ...]) -> None:
        channel.last_in_at = max(channel.last_in_at, self.now + self.delay(channel))
        self.later(channel.last_in_at - self.now, self._arrive, channel, item)

    def _arrive(self, channel: Channel, item: tuple[Any, ...]) -> None:
        if item[0] == "say" and channel.is_dialled and channel.is_ending:
            self.overtaken.append(item[1])
        if channel.is_over or channel.is_cut or channel.is_mute_in:
            return
        if channel.is_paused and item[0] != "end":
            channel.held.append(item)
        elif item[0] == "end":
            self._report_end(channel, item[1])
        elif item[0] == "half":
            self._end_input(channel)
            self._wait_answered(channel)
        elif not channel.is_ending:
            self.messages += len(item[1]) if item[0] == "many" else 1
            if item[0] == "prime":
                channel.event_id = item[1]
                self._take_effects("Primed", self.engine.receive_open(channel.number, Primed(), self.now), channel)
            elif item[0] == "many":
                channel.event_id = item[2]
                effects = self.engine.receive_messages(channel.number, item[1], self.now)
                self._take_effects("receive_messages", effects, channel, b"\n".join(item[1]))
            elif item[0] == "say":
                effects = self.engine.receive_message(channel.number, item[1], self.now)
                self._take_effects("receive_message", effects, channel, item[1])
            else:
                self._take_effects(
                    type(item[1]).__name__, self.engine.receive_open(channel.number, item[1], self.now), channel
                )
                if item[2] is not None and not channel.is_ending:
                    effects = self.engine.receive_message(channel.number, item[2], self.now)
                    self._take_effects("receive_message", effects, channel, item[2])

    def _report_end(self, channel: Channel, cause: Cause) -> None:
        if not channel.is_over:
            channel.is_over = True
            self.channels.pop(channel.number, None)
            if channel.is_dialled and channel.event_id is not None and cause.end is not End.REFUSED:
                cause = msgspec.structs.replace(cause, last_event_id=channel.event_id)
            self._give_end(channel, cause)

    def _give_end(self, channel: Channel, cause: Cause) -> None:
        effects = self.engine.receive_close(channel.number, cause, self.now)
        self._take_effects("receive_close " + cause.end.value, effects, channel)

    def answer(self, ticket: Ticket, answer: StorageAnswer) -> None:
        """Gives the engine the result of a storage order."""
        self._take_effects("receive_answer", self.engine.receive_answer(ticket, answer, self.now))

    # --- Effects of the engine --------------------------------------------------------------------------------------

    def _take_effects(
        self, name: str, effects: list[Effect], channel: Channel | None = None, message: bytes = b""
    ) -> None:
        """Notes an input, and carries out its effects."""
        self.counts[name] += 1
        number = 0 if channel is None else channel.number
        if self.log is not None:
            peer = "" if channel is None else f" {channel.peer.name}"
            self.log("\n    ".join([f"{self.now:.3f} {name} {number}{peer} {message!r}", *map(repr, effects)]))
        self.history.update(f"{self.now!r} {name} {number} ".encode() + message + b"\n")
        self.history.update(msgspec.json.encode(effects) + b"\n")
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._send(effect)
        elif isinstance(effect, SendEvents):
            ids = effect.event_ids or (None,) * len(effect.messages)
            sends = [
                Send(effect.channel, message, event_id=id) for message, id in zip(effect.messages, ids, strict=True)
            ]
            self._send(*sends)
        elif isinstance(effect, Close):
            channel = self.channels.get(effect.channel)
            if channel is not None:
                self._forbid_ending(channel, effect)
                channel.is_ending = True
                wait_s = max(0.0, channel.last_out_at - self.now) + 0.001 + channel.linger_s
                self.later(wait_s, self._finish, channel, effect)
        elif isinstance(effect, Dial):
            channel = self._new_channel(effect.channel, _NOBODY, f"to {effect.target.server}")
            channel.is_dialled = True
            wait_s = 0.0
            if isinstance(effect.target, Listen) and not effect.target.is_of_call and channel.number % 5 == 0:
                self.later(0.001, self._queue_up, channel)
                wait_s = channel.number % 7 * 2.0
            self.later(wait_s + self.delay(channel), self._dialled, channel, effect)
        elif isinstance(effect, Pause):
            if (channel := self.channels.get(effect.channel)) is not None:
                channel.is_paused = True
        elif isinstance(effect, Resume):
            if (channel := self.channels.get(effect.channel)) is not None:
                channel.is_paused = False
                held, channel.held = channel.held, deque()
                for item in held:
                    self.later(0.0, self._arrive, channel, item)
        elif isinstance(effect, Pass):
            self._pass(effect)
        elif self.storage is not None and self.storage.carry_out(effect):
            pass
        elif not isinstance(effect, Note | Forget | ForgetAll | Sweep):
            raise Wrong(f"nothing here calls for that: {effect}")

    def _pass(self, order: Pass) -> None:
        raise Wrong(f"nothing here is so large: {order}")

    def _forbid_ending(self, channel: Channel, effect: Effect) -> None:
        if channel.is_ending or channel.is_over:
            raise Wrong(f"ordered for a channel that is over: {effect}")

    def _send(self, *sends: Send) -> None:
        """Sends messages that travel together."""
        channel = self.channels.get(sends[0].channel)
        if channel is None:
            raise Wrong(f"ordered for a channel that is over: {sends[0]}")
        self._forbid_ending(channel, sends[0])
        channel.is_ending = sends[-1].is_last
        pause = channel.rng.uniform(5.0, 20.0) if self.strikes("stalls", 0.02, channel.rng) else 0.0
        channel.last_out_at = max(channel.last_out_at, self.now + pause + self.delay(channel))
        self.later(channel.last_out_at - self.now, self._deliver, channel, *sends)

    def _deliver(self, channel: Channel, *sends: Send) -> None:
        if channel.is_over or channel.is_cut or channel.is_mute_out:
            return
        self.messages += len(sends)
        for send in sends:
            if not channel.is_left:
                channel.event_id = send.event_id or channel.event_id
                channel.peer.receive(channel, send)
        size_bytes = sum(len(send.message) for send in sends)
        if size_bytes and not channel.is_over:
            self._report_sent(channel, size_bytes, is_last=sends[-1].is_last)
        if sends[-1].is_last:
            channel.status = sends[-1].status
            self._finish(channel, None)

    def _report_sent(self, channel: Channel, size_bytes: int, *, is_last: bool) -> None:
        self._take_effects("receive_sent", self.engine.receive_sent(channel.number, size_bytes, self.now), channel)

    def _finish(self, channel: Channel, close: Close | None) -> None:
        """Ends on both sides a channel that the engine has ended."""
        if channel.is_over or channel.is_cut:
            return
        is_left = channel.is_left
        self._report_end(channel, Cause(End.DONE))
        if channel.is_mute_out:
            self.later(30.0, channel.peer.receive_end, channel, None)
        elif not is_left:
            channel.is_left = True
            channel.peer.receive_end(channel, close or Close(channel.number, status=channel.status))


class _Nobody:
    name = "nobody"

    def receive(self, channel: Channel, send: Send) -> None:
        raise Wrong(f"sent on a channel that is not connected: {send}")

    def receive_end(self, channel: Channel, close: Close | None) -> None:
        pass


_NOBODY: Final = _Nobody()
