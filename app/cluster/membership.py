"""Carries out the orders of `core/replicas`: keeps the lease of this process in the store, and finds other replicas."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from ...core.base.replica import LEASE_PREFIX, ReplicaName
from ...core.replicas.leases import REPLICAS_MAX, Delete, Leases, LeaseState, Order, Peer, Save, Scan
from ...storage.interface import Records, StorageError, VersionConflict
from ..base.errors import Failed, StartError

FIND_TIMEOUT_S: Final = 5.0
"""Seconds that a request waits for its replica to be looked up, which takes one while the store is well. Clients wait
for 30 or more."""
GONE_S: Final = 1.0
"""Seconds for which a read of all leases says which replicas there are not. So all requests for a replica that is gone
share the reads, of which there is one in `SCAN_EVERY_S`. A replica that joins others serves clients so long after its
lease was saved: nobody then takes it for one that is gone."""
LEAVE_TIMEOUT_S: Final = 5.0
"""Seconds that giving the lease back may take at the end. Otherwise it is deleted by another replica."""

_UNREACHABLE: Final = (
    "other replicas use these stores, and cannot pass requests on to this one: set cluster.listen or cluster.socket, "
    "or let the balancer send each request to the replica whose tag its session begins with"
)

_log = logging.getLogger("isthmus.cluster")


class Membership:
    """The lease of this process, and the other replicas.

    One task at a time uses the store. So an answer never meets a question of another moment.

    Args:
        records: a store for leases alone: a renewal must not wait until others have saved what they have.
        fence: called once the lease is lost, and makes further changes of what the replicas share impossible.
        when_gone: called with each replica that has no lease any more, and whose address nobody has.
        when_ended: called when the run of another replica has ended.
        gone_s: as `GONE_S`; 0: leases are read anew for each replica that is not known.
    """

    def __init__(
        self,
        leases: Leases,
        records: Records,
        *,
        fence: Callable[[], Awaitable[None]],
        when_gone: Callable[[Peer], None] = lambda _: None,
        when_ended: Callable[[], None] = lambda: None,
        gone_s: float = GONE_S,
    ) -> None:
        self._leases = leases
        self._records = records
        self._fence = fence
        self._when_gone = when_gone
        self._when_ended = when_ended
        self._gone_s = gone_s
        self._held_at = math.inf
        self._joins_others = False
        self._is_usable = True  # as far as it was logged
        self._wake = anyio.Event()  # something is due sooner
        self._change = anyio.Event()  # all leases were read

    @property
    def name(self) -> ReplicaName:
        return self._leases.own

    @property
    def replica_count(self) -> int:
        """The number of replicas, this one included."""
        return self._leases.replica_count

    def is_first(self) -> bool:
        """True if no other replica has a tag before that of this one."""
        return all(self.name.tag < peer.tag for peer in self._leases.peers())

    @property
    def is_lost(self) -> bool:
        """True if the lease is lost, so that nothing of what the replicas share may be changed any more."""
        return self._leases.state is LeaseState.LOST

    async def take(self) -> None:
        """Takes the lease, which may wait until that of an earlier run is over.

        Raises:
            StartError: another replica has the tag.
            StorageError: the store cannot be used.
        """
        leases, is_told = self._leases, False
        while True:
            await self._turn(is_start=True)
            if leases.state is not LeaseState.TAKING:
                break
            if leases.rival is not None and not is_told:
                is_told = True
                told = "replica %s has a lease already: waiting %g s to see whether a process still renews it"
                _log.warning(told, self.name.tag, leases.lease_s)
            await self._wait()
        if leases.state is LeaseState.REFUSED:
            raise StartError(self._why_refused())
        self._held_at = anyio.current_time()
        if self._gone_s:
            # Read after the lease was saved: a replica that takes one later finds it.
            self._joins_others = {key async for key, _ in self._records.scan(LEASE_PREFIX)} != {leases.key}

    async def wait_seen(self) -> None:
        """Returns when no other replica takes this one for one that is gone."""
        if self._joins_others:
            await anyio.sleep_until(self._held_at + self._gone_s)

    async def run(self) -> None:
        """Keeps the lease, until it is cancelled.

        Raises:
            Failed: the lease is lost.
        """
        is_reachable = self._leases.address != ""
        settled_at = anyio.current_time() + 2 * self._leases.lease_s  # the leases of dead replicas are deleted by then
        while not self.is_lost:
            await self._wait()
            with anyio.CancelScope(shield=True):  # an answer that is not read leaves a version that is not known
                await self._turn()
            if not is_reachable and self.replica_count > 1 and anyio.current_time() > settled_at:
                is_reachable = True
                _log.warning(_UNREACHABLE)
        await self._fence()
        rival = self._leases.rival
        to = "" if rival is None or rival.lease is None else f" to {rival.lease.address or rival.lease.run}"
        raise Failed(
            f"the lease of replica {self.name.tag} was lost{to}: this process had been paused or cut off for "
            f"longer than {self._leases.lease_s:g} s, and ends so that nothing is done twice: start it again"
        )

    async def leave(self) -> None:
        """Gives the lease back, if it is held. `run` has ended."""
        with anyio.move_on_after(LEAVE_TIMEOUT_S, shield=True):
            await self._carry_out(self._leases.receive_stop())

    def known(self, tag: str) -> Peer | None:
        """Returns the other replica with this tag, as last seen; None if it has to be looked up."""
        return self._leases.find(tag)

    async def find(self, tag: str, other_than: Peer | None = None, *, is_replaced: bool = False) -> Peer | None:
        """Returns the other replica with this tag; None if it is gone for good.

        One that is not known is looked up, at most once in `SCAN_EVERY_S` seconds for all that ask. If the store cannot
        be used, nobody knows whether it is gone: then it is returned without a run and an address.

        Args:
            other_than: the replica as it was known, whose process was not met at its address. It is looked up, too, as
                it may have started again, perhaps at another address, and is returned if it has not.
            is_replaced: another process was met there, so that what was read before does not count.
        """
        peer = self._leases.find(tag)
        if peer is not None and peer != other_than:
            return peer
        since = max(anyio.current_time() - (0.0 if is_replaced else self._gone_s), self._held_at)
        with anyio.move_on_after(FIND_TIMEOUT_S):
            while self._leases.read_from < since and not self._leases.is_over:
                self._leases.receive_wish(anyio.current_time())
                self._wake.set()
                await self._change.wait()
        if self._leases.is_over or self._leases.read_from < since:
            return peer or Peer(tag, "", "")
        return self._leases.find(tag)

    # --- Orders -----------------------------------------------------------------------------------------------------

    async def _wait(self) -> None:
        """Waits until something is due."""
        while (deadline := self._leases.next_timeout()) is not None:
            self._wake = anyio.Event()
            with anyio.move_on_at(deadline.at):
                await self._wake.wait()
            if not self._wake.is_set():
                return

    async def _turn(self, *, is_start: bool = False) -> None:
        before = self._leases.peers()
        await self._carry_out(self._leases.handle_timeout(anyio.current_time()), is_start=is_start)
        peers = self._leases.peers()
        if peers != before:
            addresses = {peer.address for peer in peers}  # one that was started again may have that of the run before
            for peer in before:
                if peer.address not in addresses:
                    self._when_gone(peer)
        if before - peers:
            self._when_ended()

    async def _carry_out(self, orders: list[Order], *, is_start: bool = False) -> None:
        while orders:
            (order,) = orders
            try:
                orders = await self._answer(order)
            except StorageError as error:
                if is_start:
                    raise
                if self._is_usable:
                    self._is_usable = False
                    _log.warning(
                        "the lease of replica %s cannot be renewed, and is tried again: %s", self.name.tag, error
                    )
                orders = self._leases.receive_failed(anyio.current_time())
            except VersionConflict:
                orders = self._leases.receive_conflict(anyio.current_time())
            else:
                if isinstance(order, Save) and not self._is_usable:
                    self._is_usable = True
                    _log.warning("the lease of replica %s is renewed again", self.name.tag)
            if isinstance(order, Scan):
                self._change.set()
                self._change = anyio.Event()

    async def _answer(self, order: Order) -> list[Order]:
        leases, records = self._leases, self._records
        match order:
            case Scan():
                found = [(key, one.value, one.version) async for key, one in records.scan(LEASE_PREFIX)]
                return leases.receive_scan(found, anyio.current_time())
            case Save():
                version = await records.save(order.key, order.value, if_version=order.if_version)
                return leases.receive_saved(version, anyio.current_time())
            case Delete():
                # A record that has expired is deleted, and unlike a deletion a save can name the version.
                await records.save(order.key, b"", expires_at_unix=1.0, if_version=order.if_version)
                return leases.receive_deleted()

    def _why_refused(self) -> str:
        tag, rival = self.name.tag, self._leases.rival
        if rival is None:
            return f"{REPLICAS_MAX} replicas use these stores, the most that may: stop one of them first"
        if rival.lease is None:
            return (
                f"replica {tag} has a lease that another version of Isthmus wrote, and that may still be renewed: give "
                f"this one another cluster.replica, or delete the record {self._leases.key} once that has ended"
            )
        where = f"at {rival.lease.address}" if rival.lease.address else "elsewhere"
        return f"replica {tag} runs already {where}: give this one another cluster.replica"
