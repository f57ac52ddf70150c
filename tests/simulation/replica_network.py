"""A network of several replicas: engines that share a storage, and pass requests on to each other.

A balancer sends each request to any replica. Each replica has its own clock and its own generator, its own links to
servers, and its lease, which is that of `core.replicas`. The faults of replicas:

kills: the process dies, and starts again under the same tag once its lease is gone. stops: it is stopped in order.
pauses: it stands still, and then handles what came meanwhile; its lease may be gone by then. splits: two replicas
cannot reach each other. isolates: a replica cannot reach the storage. outages: nobody can. skews: clocks differ.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec
from isthmus.core.base.effects import Close, Dial, Effect, Forward, Send
from isthmus.core.base.events import (
    Cause,
    DeleteOpening,
    DraftOpening,
    End,
    GetOpening,
    MessageOpening,
    Opening,
    PostOpening,
)
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.plan import Plan
from isthmus.core.base.replica import LEASE_PREFIX, ReplicaName, tag_of
from isthmus.core.bulk import BulkEngine
from isthmus.core.replicas.leases import Delete, Leases, LeaseState, Order, Scan
from isthmus.core.replicas.leases import Peer as OtherReplica
from lasting_network import ZERO_UNIX, LastingNetwork
from replica_storage import ReplicaDisk, SharedStorage
from simulated_network import Channel, Network, Peer, Wrong
from simulated_wires import Item

REPLICA_FAULTS: Final = ("kills", "stops", "pauses", "splits", "isolates", "outages", "skews")
TAGS: Final = "abcdefgh"
TRIED_S: Final = 40.0
"""The time after a trouble in which requests may still be refused for it."""
GONE_S: Final = 1.0
"""The time for which a read of all leases says which replicas there are not. One that joins others opens to clients so
long after it has its lease."""
FIND_MAX_S: Final = 5.0
"""The time that a request waits for its replica to be looked up."""
RESTART_MAX_S: Final = 3.0
LATE_MAX_S: Final = 20.0
"""The time after which a change of a lease that failed has taken effect, or never does."""
STARTING_S: Final = 2.0
"""The time after which all replicas have their leases at first, and are open."""
SKEW_MAX_S: Final = 4.0
EVENTS_MAX: Final = 2_000_000
PASSED: Final = (PostOpening, GetOpening, DeleteOpening, MessageOpening, DraftOpening)
GONE: Final = Cause(End.UNREACHABLE, "the other replica is gone")

GRID: Final = 2.0**20
"""The ticks of a second. All times are whole ticks, so that sums and differences of clocks are exact."""

Make = Callable[["Replica"], BulkEngine]


def on_grid(seconds: float) -> float:
    """Returns the first tick that is not before."""
    return math.ceil(seconds * GRID) / GRID


class GridChannel(Channel):
    """A channel whose messages arrive at whole ticks."""

    _last_in_at = _last_out_at = 0.0

    @property
    def last_in_at(self) -> float:  # type: ignore[override]
        return self._last_in_at

    @last_in_at.setter
    def last_in_at(self, at: float) -> None:
        self._last_in_at = on_grid(at)

    @property
    def last_out_at(self) -> float:  # type: ignore[override]
        return self._last_out_at

    @last_out_at.setter
    def last_out_at(self, at: float) -> None:
        self._last_out_at = on_grid(at)


class Replica(LastingNetwork):
    """One replica: an engine, its channels, and its lease.

    Attributes:
        whole: the network of all replicas.
        name: its tag and the run of its process.
        offset_s: the difference of its monotonic clock, `skew_s` that of its wall clock.
        is_cut_off: it cannot reach the storage.
        worked: CPU time and number of its inputs are counted here, if set.
    """

    def __init__(self, whole: ReplicaNetwork, tag: str) -> None:
        self.whole = whole
        self.tag = tag
        rng = whole.rng_of(f"replica {tag}")
        self.offset_s = float(rng.randint(0, 10_000))
        self.skew_s = rng.uniform(-SKEW_MAX_S, SKEW_MAX_S) if "skews" in whole.faults else 0.0
        self._latest = 0.0
        super().__init__(rng, whole.faults, whole.dialled)
        self.counts, self.history = whole.counts, whole.history
        self.unix_at_zero = self.latest_unix_at_zero = ZERO_UNIX - self.offset_s + self.skew_s
        self.disk = self.storage = ReplicaDisk(self, whole.disk)
        self.run_name = ""
        self.paused_until = self.opens_at = self._held_at = 0.0
        self.is_cut_off = False
        self.due_at: float | None = None
        self._due_in_whole: float | None = None
        self._held: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._hurry = 0  # events that are handled before any deadline, after a pause
        self._waiting: list[Callable[[], None]] = []  # requests whose replica is looked up, until all leases are read
        self.sought: set[Channel] = set()  # their channels
        self._alarm_at = math.inf
        self._is_down = True

    # --- What belongs to the whole ----------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        self._latest = max(self._latest, self.whole.now + self.offset_s)
        return self._latest

    @now.setter
    def now(self, now: float) -> None:
        pass

    @property
    def is_stormy(self) -> bool:
        return self.whole.is_stormy

    @is_stormy.setter
    def is_stormy(self, is_stormy: bool) -> None:
        pass

    @property
    def messages(self) -> int:
        return self.whole.messages

    @messages.setter
    def messages(self, count: int) -> None:
        self.whole.messages = count

    @property
    def log(self) -> Any:
        log = self.whole.log
        return None if log is None else lambda text: log(f"{self.tag} {text}")

    @log.setter
    def log(self, log: Any) -> None:
        pass

    def later(self, seconds: float, act: Callable[..., None], *given: Any) -> None:
        self.whole.later(seconds, self._do, act, given)

    def _do(self, act: Callable[..., None], given: tuple[Any, ...]) -> None:
        if self.is_paused:
            self._held.append((act, given))
        else:
            self._hurry -= self._hurry > 0
            act(*given)

    def filler(self, rng: random.Random) -> str:
        return self.whole.filler(rng)

    # --- Time -------------------------------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        return self.paused_until > self.whole.now

    def next_at(self, *, has_events: bool) -> float | None:
        """Returns when its next deadline is due, on the clock of the whole.

        Args:
            has_events: some event is due now.
        """
        if self._is_down or self.is_paused or (self._hurry and has_events):
            return None
        if self.due_at is None:
            due = self.engine.next_timeout()
            self.due_at = math.inf if due is None else due.at
            self._due_in_whole = None if due is None else on_grid(due.at - self.offset_s)
        return self._due_in_whole

    def handle_timeout(self) -> None:
        assert self.due_at is not None
        self._latest = max(self._latest, self.due_at)
        self._take_effects("handle_timeout", self.engine.handle_timeout(self.now))
        following = self.engine.next_timeout()
        if following is not None and following.at <= self.now:
            raise Wrong(f"a deadline that was handled is due again: {following}")

    def pause(self, seconds: float) -> None:
        """Lets the process stand still. What comes meanwhile is handled afterwards, some of it before any deadline."""
        self.paused_until = self.whole.now + seconds
        self.whole.later(seconds, self._wake)
        self.whole.troubled_until = max(self.whole.troubled_until, self.paused_until)

    def _wake(self) -> None:
        if self.is_paused:
            return
        held, self._held = self._held, deque()
        self._hurry = self._fate.choice((0, 1, 5, 100))
        for act, given in held:
            self.whole.later(0.0, self._do, act, given)

    def _take_effects(
        self, name: str, effects: list[Effect], channel: Channel | None = None, message: bytes = b""
    ) -> None:
        self.due_at = None
        super()._take_effects(name, effects, channel, message)

    # --- The life of the process ------------------------------------------------------------------------------------

    @property
    def name(self) -> ReplicaName:
        return ReplicaName(self.tag, self.run_name)

    def start_with(self, make: Make) -> None:
        """Starts the first process. Its lease is there at once."""
        self._make_engine = make
        self.start()

    def start(self) -> None:
        """Starts a process, which takes its lease first. It may have the address of the one before for sure."""
        if not self._is_down:
            return
        self.run_name = f"{self._fate.getrandbits(128):032x}"
        place = self.tag if self._fate.random() < 0.5 else ""
        self.leases = Leases(self.name, f"http://{self.tag}:1", place, now=self.now)
        self._alarm_at = math.inf
        self._arm()

    def _begin_serving(self) -> None:
        self._is_down = False
        self.due_at = None
        self.engine = self._make_engine(self)
        self._held_at = self.now
        joins_others = any(key.startswith(LEASE_PREFIX) and key != self.leases.key for key in self.disk.records)
        self.opens_at = self.whole.now + (GONE_S if joins_others else 0.0)

    def crash(self) -> None:
        """Ends the process. Clients of requests that it had not begun to answer for another replica get a 503."""
        if self._is_down:
            return
        self.counts["crash"] += 1
        self._evicted = self.evicted
        is_orderly, self._is_stopping, self._is_doomed = self._is_stopping, False, False
        self._effects_left = 0
        self._is_down = True
        self.runs += 1
        self.whole.runs += 1
        self.whole.troubled_until = max(self.whole.troubled_until, self.whole.now)
        self.paused_until = 0.0
        self._wake()  # what peers learn by what was held back, they learn all the same
        self._hurry = 0
        self.disk.crash()
        self._appending.clear()
        channels, self.channels = list(self.channels.values()), {}
        self.engine = BulkEngine(
            Plan(servers=()), entropy=self._fate.randbytes, unix_at_zero=self.unix_at_zero, has_storage=True
        )
        for channel in channels:
            was_open, channel.is_cut, channel.is_over = channel.is_open, True, True
            if channel.is_dialled:
                channel.peer.receive_end(channel, None)
                continue
            self.whole.close_hop(channel)
            close = Close(channel.number, status=503) if channel in self.whole.unbegun else None
            if was_open:
                self.whole.later(self._fate.expovariate(1.0), channel.peer.receive_end, channel, close)
        for front in [front for front, hop in self.whole.hops.items() if hop[0] is self]:
            self.whole.break_hop(front)
        if is_orderly:
            self._order_lease(self.leases.receive_stop())
        self.run_name = ""
        self._waiting.clear()
        self.sought.clear()
        self.whole.later(self._fate.uniform(0.1, RESTART_MAX_S), self.start)

    def kill_soon(self) -> None:
        """Lets the process die in the middle of its next effects, or at once while it is paused."""
        if self.is_paused:
            self.crash()
        elif not self.is_tried:
            self._effects_left = self._fate.randint(1, 40)

    # --- Its lease --------------------------------------------------------------------------------------------------

    @property
    def can_reach_storage(self) -> bool:
        return not (self.is_cut_off or self.whole.is_storage_away)

    def _arm(self) -> None:
        """Sees to it that the lease is looked at when something is due."""
        due = self.leases.next_timeout()
        if due is not None and due.at < self._alarm_at:
            self._alarm_at = due.at
            self.later(max(0.0, due.at - self.now), self._ring, self.run_name, due.at)

    def rearm(self) -> None:
        """Looks at the lease again after a rest."""
        self._alarm_at = math.inf
        self._arm()

    def _ring(self, run: str, at: float) -> None:
        if run != self.run_name:
            return
        self._alarm_at = math.inf
        if self._waiting or not self.whole.is_quiet:
            self._order_lease(self.leases.handle_timeout(self.now))
            self._arm()

    def _order_lease(self, orders: list[Order]) -> None:
        for order in orders:
            self.whole.later(self.rng.uniform(0.001, 0.05), self._lease_there, order, self.run_name)

    def _lease_there(self, order: Order, run: str) -> None:
        """Carries out an order at the storage. Its answer comes some time later."""
        back_s = self.rng.uniform(0.001, 0.05)
        if self.can_reach_storage:
            self.later(back_s, self._take_lease_answer, run, *self._change_lease(order))
            return
        fate = self.rng.random()
        if not isinstance(order, Scan) and fate < 0.4:  # it failed, and takes effect now or later
            self.whole.later(0.0 if fate < 0.2 else self.rng.uniform(0.0, LATE_MAX_S), self._change_lease, order)
        self.later(self.rng.uniform(0.0, 4.0), self._take_lease_answer, run, "receive_failed", True, ())

    def _change_lease(self, order: Order) -> tuple[str, bool, tuple[Any, ...]]:
        """Returns the name of the input that has the answer, whether it takes the time, and its other arguments."""
        records = self.whole.disk.records
        if isinstance(order, Scan):
            keys = sorted(key for key in records if key.startswith(LEASE_PREFIX))
            return "receive_scan", True, ([(key, records[key], records.version(key)) for key in keys],)
        if records.version(order.key) != order.if_version:
            return "receive_conflict", True, ()
        if isinstance(order, Delete):
            del records[order.key]
            self.counts["lease deleted"] += 1
            return "receive_deleted", False, ()
        records[order.key] = order.value
        return "receive_saved", True, (records.version(order.key),)

    def _take_lease_answer(self, run: str, name: str, takes_now: bool, given: tuple[Any, ...]) -> None:
        if run != self.run_name:
            return
        leases = self.leases
        before = leases.peers() if name in ("receive_scan", "receive_deleted") else frozenset()
        self._order_lease(getattr(leases, name)(*given, *([self.now] if takes_now else [])))
        if name == "receive_scan":
            waiting, self._waiting = self._waiting, []
            for look in waiting:
                look()
        for peer in before and before.difference(leases.peers()):
            self.whole.break_hops(self, peer.tag, peer.run)
        if leases.state is LeaseState.HELD and self._is_down:
            self._begin_serving()
        elif leases.state is LeaseState.LOST and not self._is_down:
            self.counts["lease lost"] += 1
            self.crash()
        elif leases.state is LeaseState.REFUSED:
            self.counts["lease refused"] += 1
            self.run_name = ""
            self.whole.later(RESTART_MAX_S, self.start)
        if self.run_name:
            self._arm()

    def take_notice(self, key: str, value: bytes | None, run: str) -> None:
        """Tells the engine of a record that another replica has written or removed."""
        if run == self.run_name and not self._is_down:
            self._take_effects(
                "receive_records", self.engine.receive_records([(key, value)], self.now), None, key.encode()
            )

    # --- Requests that other replicas answer ------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        if not isinstance(effect, Forward) or self._is_doomed or self._is_down:
            super()._carry_out(effect)
            return
        channel = self.channels.get(effect.channel)
        if channel is None or channel.is_dialled:
            raise Wrong(f"ordered for a channel that is over: {effect}")
        self._forbid_ending(channel, effect)
        opening, _ = self.whole.requests[channel]
        if not isinstance(opening, PASSED) or effect.replica == self.tag:
            raise Wrong(f"this is no request to pass on: {effect}, {opening}")
        if channel.last_out_at:
            raise Wrong(f"something was sent before it was passed on: {effect}, {opening}")
        if opening.is_returned:
            raise Wrong(f"a request that was returned is passed on again: {effect}, {opening}")
        if channel in self.whole.hops:
            raise Wrong(f"a request that was passed on is passed on again: {effect}, {opening}")
        channel.is_ending = True
        self.counts["forward"] += 1
        self.later(0.0, self._look_up, channel, channel.number, effect.replica)

    def _is_ours(self, channel: Channel, number: ChannelId) -> bool:
        """True if the request still waits here to be passed on."""
        return channel.home is self and channel.number == number and not (channel.is_over or channel.is_cut)

    def _look_up(
        self,
        channel: Channel,
        number: ChannelId,
        tag: str,
        missed: OtherReplica | None = None,
        is_replaced: bool = False,
    ) -> None:
        """Passes a request on to the replica with the tag, once that is found.

        Args:
            missed: the replica as it was known, which was not met.
            is_replaced: another process was met instead, so that what was read before does not count.
        """
        if not self._is_ours(channel, number):
            return
        peer = self.leases.find(tag)
        if peer is not None and peer != missed:
            self._connect(channel, number, peer, is_again=missed is not None)
            return
        since = max(self.now - (0.0 if is_replaced else GONE_S), self._held_at)
        find = partial(self._find, channel, number, tag, since, missed, is_replaced)
        self.sought.add(channel)
        self.later(FIND_MAX_S, self._give_up, channel, number, missed, is_replaced)
        find()

    def _find(
        self,
        channel: Channel,
        number: ChannelId,
        tag: str,
        since: float,
        missed: OtherReplica | None,
        is_replaced: bool,
    ) -> None:
        """Looks for a replica in the leases that were read last."""
        if not self._is_ours(channel, number) or channel not in self.sought:
            return
        if self.leases.read_from < since:
            self._waiting.append(partial(self._find, channel, number, tag, since, missed, is_replaced))
            self.leases.receive_wish(self.now)
            self._arm()
            return
        self.sought.discard(channel)
        peer = self.leases.find(tag)
        if peer is not None and peer != missed:
            self._connect(channel, number, peer, is_again=missed is not None)
        elif peer is not None and is_replaced:
            self._refuse_passed(channel, number)
        else:
            self._hand_back(channel, number)

    def _give_up(self, channel: Channel, number: ChannelId, missed: OtherReplica | None, is_replaced: bool) -> None:
        """Ends the search for a replica, as the leases could not be read."""
        if channel in self.sought and self._is_ours(channel, number):
            self.sought.discard(channel)
            if missed is None or is_replaced:
                self._refuse_passed(channel, number)
            else:
                self._hand_back(channel, number)

    def _connect(self, channel: Channel, number: ChannelId, peer: OtherReplica, *, is_again: bool) -> None:
        other = self.whole.replicas[peer.tag]
        opening, body = self.whole.requests[channel]
        if self.whole.are_split(self, other):
            self.later(self.rng.uniform(1.0, 10.0), self._refuse_passed, channel, number)
        elif other.is_down:
            if is_again:
                self._hand_back(channel, number)
            else:
                self._look_up(channel, number, peer.tag, peer)
        elif other.run_name != peer.run:  # it refuses the signature, which is for another run
            if is_again or (isinstance(opening, DraftOpening) and body is None):
                self._refuse_passed(channel, number)
            else:
                self._look_up(channel, number, peer.tag, peer, is_replaced=True)
        else:
            self.whole.hops[channel] = self, number, self.run_name
            self.whole.unbegun.add(channel)
            self._rebind(channel, other, is_returned=False)

    def _hand_back(self, channel: Channel, number: ChannelId) -> None:
        """Reports the request again, as the replica that it is for is gone."""
        if self._is_ours(channel, number):
            self.counts["returned"] += 1
            self._rebind(channel, self, is_returned=True)
            self._give_closed(number)

    def _rebind(self, channel: Channel, other: Replica, *, is_returned: bool) -> None:
        """Has a replica answer the request of the channel from now on."""
        self.channels.pop(channel.number, None)
        opening, body = self.whole.requests[channel]
        opening = msgspec.structs.replace(opening, is_returned=is_returned)  # type: ignore[type-var]
        self.whole.requests[channel] = opening, body
        channel.number, channel.home = other.engine.new_channel(), other
        channel.is_ending = channel.is_paused = False
        channel.held.clear()
        channel.last_in_at = other.now
        other.channels[channel.number] = channel
        other._send_in(channel, ("open", opening, body))

    def _give_closed(self, number: ChannelId, cause: Cause = GONE, run: str = "") -> None:
        """Tells the engine that a request that it passed on is over."""
        if not self._is_down and run in ("", self.run_name):
            self._take_effects("receive_close passed", self.engine.receive_close(number, cause, self.now))

    def _refuse_passed(self, channel: Channel, number: ChannelId) -> None:
        """Refuses a request whose replica does not answer."""
        if self._is_ours(channel, number):
            self.counts["passed 503"] += 1
            self._finish(channel, Close(number, status=503))

    # --- Channels, which may lead to another replica by now ---------------------------------------------------------

    def _arrive(self, channel: Channel, item: Item) -> None:
        if channel.home is not self and channel.home is not None:
            channel.home._send_in(channel, item)
        else:
            super()._arrive(channel, item)

    def _report_end(self, channel: Channel, cause: Cause) -> None:
        if channel.home is not self and channel.home is not None:
            channel.home._report_end(channel, cause)
            return
        super()._report_end(channel, cause)
        if channel.is_over:
            self.whole.close_hop(channel)

    def _deliver(self, channel: Channel, *sends: Send) -> None:
        self.whole.unbegun.discard(channel)
        if not (channel.is_over or channel.is_cut or channel.is_dialled):
            self.whole.check_session(self, channel, sends)
        super()._deliver(channel, *sends)

    def _new_channel(self, number: ChannelId, peer: Peer, name: str) -> Channel:
        self._opened[name] += 1
        rng = self.rng_of(f"{self.tag} {self.runs} {name} {self._opened[name]}")
        channel = self.channels[number] = GridChannel(number, peer, rng)
        channel.home = self
        return channel

    @property
    def is_open(self) -> bool:
        """True if clients reach it."""
        return not self._is_down and self.whole.now >= self.opens_at

    def open(self, peer: Any, opening: Opening, body: bytes | None = None) -> Channel:
        channel = super().open(peer, opening, body) if self.is_open else self._refuse_connection(peer)
        if channel.home is self:
            self.whole.requests[channel] = opening, body
        return channel


class ReplicaNetwork(Network):
    """All replicas, as clients and servers see them.

    Attributes:
        is_routed: the balancer knows the tags in names, and sends requests to their owners.
        requests: openings and bodies of the channels of clients.
        hops: requests that were passed on: by whom, on which of its channels, in which run.
        unbegun: those of them of whose response nothing has come yet.
        runs: the number of faults of replicas so far.
        is_quiet: leases are only read for requests.
    """

    disk: SharedStorage

    def __init__(self, rng: random.Random, faults: frozenset[str], dialled: Callable[[Channel, Dial], None]) -> None:
        super().__init__(rng, faults, dialled)
        self.dialled = dialled
        self.unix_at_zero = self.latest_unix_at_zero = ZERO_UNIX
        self.disk = self.storage = SharedStorage(self)
        self.replicas: dict[str, Replica] = {}
        self.is_routed = self.is_quiet = False
        self.requests: dict[Channel, tuple[Opening, bytes | None]] = {}
        self.hops: dict[Channel, tuple[Replica, ChannelId, str]] = {}
        self.unbegun: set[Channel] = set()
        self.runs = 0
        self.troubled_until = self._away_until = self._split_until = -TRIED_S
        self._split: frozenset[str] = frozenset()
        self._owners: dict[str, str] = {}  # runs, by the sessions that they have begun
        self._balanced: dict[str, int] = {}

    def begin(self, count: int, make: Make) -> None:
        """Starts the replicas."""
        self.replicas = {tag: Replica(self, tag) for tag in TAGS[:count]}
        for replica in self.replicas.values():
            replica.start_with(make)
        self.run(STARTING_S)

    # --- What clients and promises ask ------------------------------------------------------------------------------

    @property
    def now_unix(self) -> float:
        return self.unix_at_zero + self.now

    @property
    def evicted(self) -> int:
        return sum(replica.evicted for replica in self.replicas.values())

    @property
    def is_tried(self) -> bool:
        """True if a replica may refuse anything, or cannot be reached, or could not a while ago."""
        return self.now < max(self._away_until, self._split_until, self.troubled_until) + TRIED_S or any(
            one.is_tried or one.is_paused or one.is_cut_off for one in self.replicas.values()
        )

    @property
    def is_storage_away(self) -> bool:
        return self._away_until > self.now

    @property
    def channels(self) -> dict[Any, Channel]:  # type: ignore[override]
        """All channels, by their numbers and replicas."""
        return {
            (tag, number): channel
            for tag, replica in self.replicas.items()
            for number, channel in replica.channels.items()
        }

    @channels.setter
    def channels(self, channels: dict[ChannelId, Channel]) -> None:
        pass

    def are_split(self, one: Replica, other: Replica) -> bool:
        return self._split_until > self.now and {one.tag, other.tag} == self._split

    # --- Time -------------------------------------------------------------------------------------------------------

    def later(self, seconds: float, act: Callable[..., None], *given: Any) -> None:
        self._entered += 1
        heapq.heappush(self._queue, (on_grid(self.now + seconds), self._entered, act, given))

    def rest(self, seconds: float) -> None:
        """Lets time pass in which no replica comes or goes, without the renewals of leases, which would be most of what
        happens then."""
        self.is_quiet = True
        self.run(seconds)
        self.is_quiet = False
        for replica in self.replicas.values():
            replica.rearm()

    def run(self, seconds: float) -> None:
        end, queue, replicas = self.now + seconds, self._queue, list(self.replicas.values())
        while True:
            self._events += 1
            if self._events > EVENTS_MAX:
                raise Wrong(f"{EVENTS_MAX} things have happened, and more follow")
            first = queue[0][0] if queue else end + 1
            has_events = first <= min(self.now, end)
            due, owner = end + 1, None
            for replica in replicas:
                at = replica.next_at(has_events=has_events)
                if at is not None and at < due:
                    due, owner = at, replica
            if owner is not None and due <= min(first, end):
                self.now = max(self.now, due)
                owner.handle_timeout()
            elif first <= end:
                at, _, act, given = heapq.heappop(queue)
                self.now = max(self.now, at)
                act(*given)
            else:
                self.now = max(self.now, end)
                return

    # --- Faults -----------------------------------------------------------------------------------------------------

    def strike(self, number: int) -> None:
        """Draws faults of the replicas, about once a second."""
        rng = self.rng_of(f"r{number}")
        replica = self.replicas[rng.choice(list(self.replicas))]
        before = self.counts.total()
        if self.strikes("kills", 0.05, rng):
            replica.kill_soon()
        if self.strikes("stops", 0.03, rng) and not replica.is_tried:
            replica.stop()
        if self.strikes("pauses", 0.06, rng) and not replica.is_down:
            replica.pause(rng.choice((0.5, 4.0, 11.0, 14.0, 25.0)))
        if self.strikes("isolates", 0.05, rng):
            replica.is_cut_off = True
            self.later(rng.choice((1.0, 5.0, 14.0, 30.0)), self._join, replica)
        if self.strikes("outages", 0.03, rng):
            self._away_until = self.now + rng.choice((1.0, 5.0, 30.0))
        if self.strikes("splits", 0.06, rng) and len(self.replicas) > 1:
            self._split = frozenset(rng.sample(list(self.replicas), 2))
            self._split_until = self.now + rng.choice((1.0, 5.0, 30.0))
            for front, (hop, *_) in list(self.hops.items()):
                if front.home is not None and {hop.tag, getattr(front.home, "tag", "")} == self._split:
                    self.break_hop(front)
        self.runs += self.counts.total() != before

    def _join(self, replica: Replica) -> None:
        replica.is_cut_off = False
        self.troubled_until = max(self.troubled_until, self.now)

    # --- Requests that are passed on --------------------------------------------------------------------------------

    def close_hop(self, front: Channel) -> None:
        """Tells the replica that has passed a request on that it is over."""
        self.unbegun.discard(front)
        hop = self.hops.pop(front, None)
        if hop is not None:
            replica, number, run = hop
            replica.later(0.01, replica._give_closed, number, Cause(End.DONE), run)

    # --- Notices of records -----------------------------------------------------------------------------------------

    def tell(self, key: str, writer: Replica) -> None:
        """Tells the other replicas that a record was written or removed. Some of them do not hear of it, and some read
        it when it has changed again."""
        for replica in self.replicas.values():
            if replica is not writer and self.rng.random() < 0.9:
                self.later(self.delay(), self._read_noticed, replica, key)

    def _read_noticed(self, replica: Replica, key: str) -> None:
        if replica.can_reach_storage and not replica.is_down:
            value = None if self.disk.is_expired(key) else self.disk.records.get(key)
            replica.later(self.delay(), replica.take_notice, key, value, replica.run_name)

    def break_hops(self, replica: Replica, tag: str, run: str) -> None:
        """Breaks the connections of a replica to another one, which has no lease any more."""
        for front, (hop, *_) in list(self.hops.items()):
            other = front.home
            if hop is replica and isinstance(other, Replica) and (other.tag, other.run_name) == (tag, run):
                self.break_hop(front)

    def break_hop(self, front: Channel) -> None:
        """Breaks the connection between two replicas on which a response comes."""
        if front in self.unbegun and not front.is_left and not (front.is_over or front.is_cut):
            front.is_cut = front.is_left = True
            self.later(0.5, front.peer.receive_end, front, Close(front.number, status=503))
            self.later(0.5, self._lose, front)
        else:
            self.cut(front)
            self.later(0.5, self._lose, front)

    def _lose(self, front: Channel) -> None:
        assert front.home is not None
        front.home._report_end(front, Cause(End.BROKEN, "cut"))

    def check_session(self, replica: Replica, channel: Channel, sends: tuple[Send, ...]) -> None:
        """Checks that a session goes on in the process that has begun it, and nowhere else."""
        opening, _ = self.requests.get(channel, (None, None))
        named = getattr(opening, "session", None)
        for send in sends:
            if send.session is not None and self._owners.setdefault(send.session, replica.run_name) != replica.run_name:
                raise Wrong(f"{replica.tag} gives out the session {send.session}, which another process has begun")
            if named is not None and b'"result":' in send.message and self._owners.get(named) != replica.run_name:
                raise Wrong(f"{replica.tag} goes on with the session {named}, which is not its own: {send.message!r}")

    # --- Actions of peers -------------------------------------------------------------------------------------------

    def open(self, peer: Peer, opening: Opening, body: bytes | None = None) -> Channel:
        """Opens a channel of a client at a replica that the balancer chooses."""
        return self._choose(peer.name, opening).open(peer, opening, body)

    def _choose(self, name: str, opening: Opening) -> Replica:
        self._balanced[name] = self._balanced.get(name, 0) + 1
        rng = self.rng_of(f"balance {name} {self._balanced[name]}")
        names = (getattr(opening, "session", None), getattr(opening, "token", None), getattr(opening, "draft", None))
        owner = self.replicas.get(next((tag_of(one) for one in names if one), ""))
        if self.is_routed and owner is not None and owner.is_open:
            return owner
        up = [replica for replica in self.replicas.values() if replica.is_open]
        return rng.choice(up if up and rng.random() < 0.9 else list(self.replicas.values()))

    def connect(self, channel: Channel, opening: Opening) -> None:
        _home(channel).connect(channel, opening)

    def say(self, channel: Channel, message: bytes) -> None:
        _home(channel).say(channel, message)

    def send_many(self, channel: Channel, messages: Any, event_id: str | None = None) -> None:
        _home(channel).send_many(channel, messages, event_id)

    def prime(self, channel: Channel, event_id: str) -> None:
        _home(channel).prime(channel, event_id)

    def end(self, channel: Channel, cause: Cause) -> None:
        _home(channel).end(channel, cause)

    def cut(self, channel: Channel) -> None:
        _home(channel).cut(channel)

    def halve(self, channel: Channel) -> None:
        _home(channel).halve(channel)

    def end_half(self, channel: Channel) -> None:
        _home(channel).end_half(channel)


def _home(channel: Channel) -> Network:
    assert channel.home is not None
    return channel.home
