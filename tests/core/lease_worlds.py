"""A world of replicas around one store: its time, and faults of the store and of the replicas."""

from __future__ import annotations

from dataclasses import dataclass, field

from isthmus.core.base.replica import ReplicaName
from isthmus.core.replicas.leases import Delete, Leases, LeaseState, Order, Save, Scan
from isthmus.core.replicas.records import decode


@dataclass
class Store:
    """Records with versions. `late` are saves that were answered with an error, and take effect later."""

    records: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    last_version: int = 0
    is_away: bool = False
    is_read_only: bool = False
    loses_answers: bool = False
    late: list[Save] = field(default_factory=list)
    history: list[tuple[str, str]] = field(default_factory=list)  # key and run of each save

    def save(self, order: Save) -> int | None:
        """Returns the new version; None: a conflict."""
        if self.records.get(order.key, (b"", 0))[1] != order.if_version:
            return None
        self.last_version += 1
        self.records[order.key] = (order.value, self.last_version)
        lease = decode(order.value)
        assert lease is not None
        self.history.append((order.key, lease.run))
        return self.last_version

    def delete(self, order: Delete) -> bool:
        if self.records.get(order.key, (b"", 0))[1] != order.if_version:
            return False
        del self.records[order.key]
        return True


class Replica:
    """One process. Its clock stands at `offset_s` when that of the world stands at 0."""

    def __init__(self, store: Store, tag: str, number: int, now: float, offset_s: float = 0.0, place: str = "") -> None:
        self.store = store
        self.offset_s = offset_s
        self.is_cut_off = self.is_paused = self.is_dead = False
        self.loses_answer = False  # that of the next save, which takes effect
        run = f"{number:032x}"
        self.leases = Leases(ReplicaName(tag, run), f"http://{tag}:1", place, now=now + offset_s)

    @property
    def holds(self) -> bool:
        return not self.is_dead and self.leases.state is LeaseState.HELD

    def turn(self, now: float) -> None:
        """Does all that is due."""
        if not (self.is_paused or self.is_dead):
            self._carry_out(self.leases.handle_timeout(now + self.offset_s), now)

    def stop(self, now: float) -> None:
        self._carry_out(self.leases.receive_stop(), now)
        self.is_dead = True

    def _carry_out(self, orders: list[Order], now: float) -> None:
        for _ in range(20):
            if not orders:
                return
            (order,) = orders
            orders = self._answer(order, now + self.offset_s)
        raise AssertionError("orders without end")

    def _answer(self, order: Order, now: float) -> list[Order]:
        store, leases = self.store, self.leases
        if store.is_away or self.is_cut_off or (store.is_read_only and not isinstance(order, Scan)):
            if isinstance(order, Save) and store.loses_answers:
                store.late.append(order)
            return leases.receive_failed(now)
        match order:
            case Scan():
                found = [(key, *record) for key, record in sorted(store.records.items())]
                return leases.receive_scan(found, now)
            case Save():
                version = store.save(order)
                if self.loses_answer:
                    self.loses_answer = False
                    return leases.receive_failed(now)
                return leases.receive_conflict(now) if version is None else leases.receive_saved(version, now)
            case Delete():
                return leases.receive_deleted() if store.delete(order) else leases.receive_conflict(now)


class World:
    """Replicas that have a turn each second."""

    def __init__(self, offsets_s: tuple[float, ...] = (0.0,)) -> None:
        self.now = 0.0
        self.store = Store()
        self.replicas: list[Replica] = []
        self._offsets_s = offsets_s

    def start(self, tag: str, place: str = "") -> Replica:
        number = len(self.replicas)
        replica = Replica(self.store, tag, number + 1, self.now, self._offsets_s[number % len(self._offsets_s)], place)
        self.replicas.append(replica)
        replica.turn(self.now)
        return replica

    def go_on(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            if not self.store.is_away and not self.store.is_read_only:
                late, self.store.late = self.store.late, []
                for order in late:
                    self.store.save(order)
            for replica in self.replicas:
                replica.turn(self.now)
