"""The lease of one replica: how it takes, renews and loses it, and what it knows of those of others.

A lease is a record, `replica/<tag>`, with the run of its holder. The holder saves it anew every `renew_s` seconds, each
time on the condition that it is at the version of the renewal before. A replica is gone exactly if there is no record
of its run any more.

Records do not expire, and no two clocks are compared. Each replica reads all leases after it has renewed its own. It
deletes one that it has seen unchanged for `lease_s` seconds of its own monotonic clock, on the condition that the
record still is at that version. The next renewal of a holder that was only paused or cut off conflicts then, so the
holder learns that it has lost its lease. It ends.

The time for which a lease was seen unchanged counts only while the store was usable, because nobody could renew
otherwise. It begins again after each read and each renewal that failed, and where two reads end more than
`GAP_RENEWALS` intervals apart: the store may have been frozen meanwhile, or this process, or its machine with all of
its other processes. A replica that cannot renew does not read on, so it deletes nobody.

A save that failed may take effect later. So a conflict alone does not say that the lease is lost: the replica reads its
record again, and takes the version of one that has its own run.

A replica begins by taking its lease. Where the record has another run, that process is gone for sure if it had bound
the same socket, which this one has bound now. Else the record is taken over once it was seen
unchanged for `lease_s`. If it changes, another replica has this tag, and this one does not start.

One order is carried out at a time, and its answer is an input.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

import msgspec

from ..base.replica import ReplicaName
from ..base.state_machine import Machine
from ..base.timers import Deadline
from .records import Lease, decode, encode, key_of, tag_in

LEASE_S: Final = 10.0
"""Seconds for which a lease has to be seen unchanged before it is deleted. A healthy holder renews three times
meanwhile, and one whose store comes back after an outage connects to it within them."""
RENEW_S: Final = 3.0
"""Seconds from one renewal to the next. One write in three seconds is nothing to a store."""
GAP_RENEWALS: Final = 2
"""Intervals of renewals by which two reads may be apart and still count as one watch. A store that takes a second or
two for an answer stays within them. With the interval before the gap they are shorter than a lease."""
SCAN_EVERY_S: Final = 1.0
"""Seconds between two reads of all leases because of tags that are not known: anybody can write any tag into a name."""
REPLICAS_MAX: Final = 256
"""Replicas of one store. Each of them reads all leases every few seconds. At it: another replica does not start."""


class Peer(msgspec.Struct, frozen=True):
    """Another replica: its tag and run, and the address at which other replicas reach it, "" if there is none."""

    tag: str
    run: str
    address: str


class Save(msgspec.Struct, frozen=True, tag=True):
    """An order to save the own lease if it is at `if_version`; 0: if there is none. Answered by `receive_saved`,
    `receive_conflict` or `receive_failed`."""

    key: str
    value: bytes
    if_version: int


class Scan(msgspec.Struct, frozen=True, tag=True):
    """An order to read all leases, by a read that begins now. Answered by `receive_scan` or `receive_failed`."""


class Delete(msgspec.Struct, frozen=True, tag=True):
    """An order to delete a lease if it is at `if_version`. Answered by `receive_deleted`, `receive_conflict` or
    `receive_failed`."""

    key: str
    if_version: int


Order: TypeAlias = Save | Scan | Delete


class LeaseState(enum.Enum):
    """The states of the own lease."""

    TAKING = "taking"  # it is not ours yet
    HELD = "held"  # it is renewed
    REFUSED = "refused"  # another replica has the tag, or there are too many
    LOST = "lost"  # others believe that this process is gone
    LEFT = "left"  # it was given back


class LeaseInput(enum.Enum):
    """The inputs that move a lease from state to state."""

    HOLD = "hold"  # the record is of this run
    REFUSE = "refuse"  # the record changes while another run has it, cannot be read, or is one too many
    LOSE = "lose"  # a renewal conflicted, and the record is gone or of another run
    LEAVE = "leave"  # the replica stops in order


# An input missing from a row is illegal in that state; an empty row is terminal.
TRANSITIONS: Final[dict[LeaseState, dict[LeaseInput, LeaseState]]] = {
    LeaseState.TAKING: {
        LeaseInput.HOLD: LeaseState.HELD,
        LeaseInput.REFUSE: LeaseState.REFUSED,
        LeaseInput.LEAVE: LeaseState.LEFT,
    },
    LeaseState.HELD: {
        LeaseInput.LOSE: LeaseState.LOST,
        LeaseInput.LEAVE: LeaseState.LEFT,
    },
    LeaseState.REFUSED: {},
    LeaseState.LOST: {},
    LeaseState.LEFT: {},
}


class Rival(NamedTuple):
    """The lease of another run under the own tag. `lease` is None if it cannot be read."""

    lease: Lease | None
    version: int


class _Watch(NamedTuple):
    """A lease of another replica: what it says, None if it cannot be read, and since when it was seen unchanged."""

    lease: Lease | None
    version: int
    since: float


class Leases(Machine[LeaseState, LeaseInput]):
    """The lease of one replica, and its view of those of others.

    Args:
        address: where other replicas reach this one, as in `Lease`.
        place: as in `Lease`.
        now: seconds on a monotonic clock of the caller, which goes on while the process is paused.

    Attributes:
        rival: while the lease is being taken, and once it was refused or lost, that of another run under the same tag;
            None: there is none.
        read_from: the beginning of the last read of all leases that succeeded.
    """

    TRANSITIONS = TRANSITIONS

    def __init__(
        self,
        own: ReplicaName,
        address: str = "",
        place: str = "",
        *,
        now: float,
        lease_s: float = LEASE_S,
        renew_s: float = RENEW_S,
    ) -> None:
        assert lease_s > (1 + GAP_RENEWALS) * renew_s
        super().__init__(LeaseState.TAKING)
        self.own: Final = own
        self.rival: Rival | None = None
        self.read_from = -math.inf
        self._lease = Lease(own.run, address, 0, place)
        self.lease_s: Final = lease_s
        self._renew_s = renew_s
        self._gap_s = GAP_RENEWALS * renew_s
        self._due_at = now
        self._wished_at = math.inf
        self._order: Order | None = None  # the one that is carried out
        self._version = 0  # of our record, as far as we know
        self._is_doubted = False  # a renewal has conflicted, and our record was not read since
        self._may_retry = False
        self._others: dict[str, _Watch] = {}
        self._stale: list[Delete] = []
        self._scan_at = -math.inf
        self._read_at = -math.inf  # the end of the last read, unless something failed since
        self._is_watching = False
        self._rival_since = now

    # --- Queries ----------------------------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        return key_of(self.own.tag)

    @property
    def address(self) -> str:
        """The address at which other replicas reach this one; "": there is none."""
        return self._lease.address

    @property
    def replica_count(self) -> int:
        """The number of replicas with a lease, as last seen, with this one."""
        return 1 + len(self._others)

    def find(self, tag: str) -> Peer | None:
        """Returns the other replica with this tag, as last seen. One whose lease cannot be read has neither run nor
        address, and is not gone."""
        found = self._others.get(key_of(tag))
        if found is None:
            return None
        return Peer(tag, "", "") if found.lease is None else Peer(tag, found.lease.run, found.lease.address)

    def peers(self) -> frozenset[Peer]:
        """All other replicas whose leases can be read, as last seen."""
        return frozenset(
            Peer(tag_in(key), watch.lease.run, watch.lease.address)
            for key, watch in self._others.items()
            if watch.lease is not None
        )

    def next_timeout(self) -> Deadline | None:
        if self.is_over or self._order is not None:
            return None
        if self._wished_at < self._due_at:
            return Deadline(self._wished_at, "a tag is looked up")
        return Deadline(self._due_at, "renewal of the lease")

    # --- Inputs -----------------------------------------------------------------------------------------------------

    def handle_timeout(self, now: float) -> list[Order]:
        if self.is_over or self._order is not None:
            return []
        if now >= self._due_at:
            self._due_at = now + self._renew_s
            self._may_retry = True
            return [self._scan(now) if self.state is LeaseState.TAKING else self._save()]
        return [self._scan(now)] if now >= self._wished_at else []

    def receive_wish(self, now: float) -> None:
        """A tag is asked for that is not known, or the known replica was not there: all leases are read anew, once
        `SCAN_EVERY_S` has passed since the last time."""
        self._wished_at = max(now, self._scan_at + SCAN_EVERY_S)

    def receive_scan(self, found: Iterable[tuple[str, bytes, int]], now: float) -> list[Order]:
        """All leases were read: the key, value and version of each."""
        assert isinstance(self._order, Scan)
        self._order = None
        if self.is_over:
            return []
        self.read_from = self._scan_at
        records = {key: (value, version) for key, value, version in found if tag_in(key)}
        own = records.pop(self.key, None)
        self._watch(records, now)
        if self.state is LeaseState.TAKING:
            return self._take(own, now)
        if self._is_doubted:
            return self._judge(own)
        return self._delete_next()

    def receive_saved(self, version: int, now: float) -> list[Order]:
        """The own lease was saved, and has this version now."""
        assert isinstance(self._order, Save) and version > self._version
        self._order = None
        if self.is_over:
            return []
        self._version, self._is_doubted = version, False
        if self.state is LeaseState.TAKING:
            self._hold()
            return []
        return [self._scan(now)]

    def receive_deleted(self) -> list[Order]:
        """The lease of another replica was deleted."""
        order, self._order = self._order, None
        assert isinstance(order, Delete)
        self._others.pop(order.key, None)
        return self._delete_next()

    def receive_conflict(self, now: float) -> list[Order]:
        """The record was not at the version of the order."""
        order, self._order = self._order, None
        assert isinstance(order, Save | Delete)
        if isinstance(order, Delete):
            return self._delete_next()  # its holder lives; the next scan says more
        if self.is_over:
            return []
        self._is_doubted = self.state is LeaseState.HELD
        return [self._scan(now)]

    def receive_failed(self, now: float) -> list[Order]:
        """The store did not carry out the order, or will do so later."""
        order, self._order = self._order, None
        self._read_at = -math.inf
        self._stale = []
        return [self._scan(now)] if isinstance(order, Save) and self.state is LeaseState.HELD else []

    def receive_stop(self) -> list[Order]:
        """The replica stops in order and has drained, so that nobody need find it any more."""
        if self.is_over:
            return []
        is_held = self.state is LeaseState.HELD
        self.step(LeaseInput.LEAVE)
        self._stale = []
        self._order = Delete(self.key, self._version) if is_held else None
        return [] if self._order is None else [self._order]

    # --- The own lease ----------------------------------------------------------------------------------------------

    def _scan(self, now: float) -> Scan:
        self._scan_at, self._wished_at = now, math.inf
        self._order = order = Scan()
        return order

    def _save(self) -> Save:
        self._lease = msgspec.structs.replace(self._lease, renewed=self._lease.renewed + 1)
        self._order = order = Save(self.key, encode(self._lease), self._version)
        return order

    def _hold(self) -> None:
        self.rival = None
        self.step(LeaseInput.HOLD)

    def _take(self, own: tuple[bytes, int] | None, now: float) -> list[Order]:
        """Decides what to do about the record under our tag, while the lease is not ours."""
        if own is None:
            self.rival, self._version = None, 0
            if len(self._others) >= REPLICAS_MAX:
                self.step(LeaseInput.REFUSE)
                return []
            return [self._save()]
        lease, version = decode(own[0]), own[1]
        if lease is not None and lease.run == self.own.run:  # a save that had failed took effect
            self._version = version
            self._hold()
            return []
        known, self.rival = self.rival, Rival(lease, version)
        if lease is None or (known is not None and known.version != version):
            self.step(LeaseInput.REFUSE)
            return []
        if known is None or not self._is_watching:
            self._rival_since = now
        had_our_socket = lease.place != "" and lease.place == self._lease.place
        if not had_our_socket and self._scan_at - self._rival_since < self.lease_s:
            return []
        self._version = version
        return [self._save()]

    def _judge(self, own: tuple[bytes, int] | None) -> list[Order]:
        """Decides whether the lease is still ours, after a renewal has conflicted."""
        lease = None if own is None else decode(own[0])
        if own is None or lease is None or lease.run != self.own.run:
            self.rival = None if own is None else Rival(lease, own[1])
            self.step(LeaseInput.LOSE)
            return []
        self._version, self._is_doubted = own[1], False
        may_retry, self._may_retry = self._may_retry, False
        return [self._save()] if may_retry else []

    # --- Those of others --------------------------------------------------------------------------------------------

    def _watch(self, records: Mapping[str, tuple[bytes, int]], now: float) -> None:
        self._is_watching = now - self._read_at <= self._gap_s
        self._read_at = now
        before, self._others = self._others, {}
        for key, (value, version) in islice(records.items(), REPLICAS_MAX):
            known = before.get(key)
            if known is None or known.version != version:
                known = _Watch(decode(value), version, now)
            self._others[key] = known if self._is_watching else known._replace(since=now)
        # One that cannot be read is kept: another version of Isthmus may renew it in another way.
        self._stale = [
            Delete(key, watch.version)
            for key, watch in self._others.items()
            if watch.lease is not None and self._scan_at - watch.since >= self.lease_s
        ]

    def _delete_next(self) -> list[Order]:
        self._order = self._stale.pop() if self._stale else None
        return [] if self._order is None else [self._order]
